/*
 * roofline.c - see roofline.h.
 *
 * Both are short (a few milliseconds a turn, the best of several turns), so that
 * they can be measured again beside every case: a virtual machine's speed changes
 * within minutes.  Work is handed out in small pieces as the engine does it, so that
 * threads that lose their CPU to others cost both the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "roofline.h"

#define TURNS		5
#define READ_PIECE	((size_t) 256 << 10)
#define FMA_PIECES	64

static volatile double sink;

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- reading ---- */

typedef double v8 __attribute__((vector_size(64), aligned(64)));

#if defined(__x86_64__)
#define WIDE(set) __attribute__((target(set)))
#else
#define WIDE(set)
#endif

#define READ(name, set) \
	WIDE(set) static double \
	name(const v8 *p, size_t n) \
	{ \
		v8		s[4] = {{0}}; \
		double	total = 0.0; \
		for (size_t i = 0; i + 4 <= n; i += 4) \
		{ \
			s[0] += p[i]; \
			s[1] += p[i + 1]; \
			s[2] += p[i + 2]; \
			s[3] += p[i + 3]; \
		} \
		for (int u = 0; u < 4; u++) \
			for (int v = 0; v < 8; v++) \
				total += s[u][v]; \
		return total; \
	}

READ(read_base, "sse2")
READ(read_avx2, "avx2,fma")
READ(read_avx512, "avx512f")

static double
read_piece(const v8 *p, size_t n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return read_avx512(p, n);
	if (__builtin_cpu_supports("avx2"))
		return read_avx2(p, n);
#endif
	return read_base(p, n);
}

static char *room;

static void
clear_job(void *arg, int64_t job, int thread)
{
	(void) arg;
	(void) thread;
	memset(room + job * READ_PIECE, 0, READ_PIECE);
}

static void
read_job(void *arg, int64_t job, int thread)
{
	(void) arg;
	(void) thread;
	sink = read_piece((const v8 *) (room + job * READ_PIECE), READ_PIECE / sizeof(v8));
}

double
roofline_read(const GkHost *host, size_t bytes)
{
	static size_t have;
	double		best = 0.0;
	size_t		pieces = (bytes + READ_PIECE - 1) / READ_PIECE;

	if (have < pieces * READ_PIECE)
	{
		if (room != NULL)
			munmap(room, have);
		have = pieces * READ_PIECE;
		room = mmap(NULL, have, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (room == MAP_FAILED)
			abort();
		madvise(room, have, MADV_HUGEPAGE);
		gk_parallel_for(host, (int64_t) pieces, clear_job, NULL);
	}
	for (int turn = 0; turn < TURNS; turn++)
	{
		double		t0 = seconds();

		gk_parallel_for(host, (int64_t) pieces, read_job, NULL);
		t0 = seconds() - t0;
		if (pieces * READ_PIECE / t0 * 1e-9 > best)
			best = pieces * READ_PIECE / t0 * 1e-9;
	}
	return best;
}

/* ---- multiply-adds ---- */

/* Independent chains enough for any latency, few enough for the registers. */
#define CHAINS		12
#define ROUNDS		5000

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static double
fma_avx512(void)
{
	__m512		a[CHAINS];
	__m512		x = _mm512_set1_ps(0.999f);
	__m512		y = _mm512_set1_ps(0.001f);
	__m512		s = _mm512_setzero_ps();

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm512_set1_ps((float) i);
	for (int r = 0; r < ROUNDS; r++)
	{
#pragma GCC unroll 16
		for (int i = 0; i < CHAINS; i++)
			a[i] = _mm512_fmadd_ps(a[i], x, y);
	}
	for (int i = 0; i < CHAINS; i++)
		s = _mm512_add_ps(s, a[i]);
	return _mm512_reduce_add_ps(s);
}

__attribute__((target("avx2,fma"))) static double
fma_avx2(void)
{
	__m256		a[CHAINS];
	__m256		x = _mm256_set1_ps(0.999f);
	__m256		y = _mm256_set1_ps(0.001f);
	__m256		s = _mm256_setzero_ps();
	float		out[8];

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm256_set1_ps((float) i);
	for (int r = 0; r < ROUNDS; r++)
	{
#pragma GCC unroll 16
		for (int i = 0; i < CHAINS; i++)
			a[i] = _mm256_fmadd_ps(a[i], x, y);
	}
	for (int i = 0; i < CHAINS; i++)
		s = _mm256_add_ps(s, a[i]);
	_mm256_storeu_ps(out, s);
	return out[0];
}
#endif

static double
fma_scalar(void)
{
	float		a[CHAINS];
	double		s = 0.0;

	for (int i = 0; i < CHAINS; i++)
		a[i] = (float) i;
	for (int r = 0; r < ROUNDS; r++)
		for (int i = 0; i < CHAINS; i++)
			a[i] = __builtin_fmaf(a[i], 0.999f, 0.001f);
	for (int i = 0; i < CHAINS; i++)
		s += a[i];
	return s;
}

const char *
roofline_widest(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return "avx512";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "avx2";
#endif
	return "scalar";
}

static double (*fma_fn) (void);

static void
fma_job(void *arg, int64_t job, int thread)
{
	(void) arg;
	(void) job;
	(void) thread;
	sink = fma_fn();
}

double
roofline_fma(const GkHost *host, const char *set)
{
	double		lanes = 1.0;
	double		best = 0.0;

	fma_fn = fma_scalar;
#if defined(__x86_64__)
	if (strcmp(set, "avx512") == 0 && __builtin_cpu_supports("avx512f"))
	{
		fma_fn = fma_avx512;
		lanes = 16.0;
	}
	else if (strcmp(set, "avx2") == 0 && __builtin_cpu_supports("avx2"))
	{
		fma_fn = fma_avx2;
		lanes = 8.0;
	}
	else
#endif
	if (strcmp(set, "scalar") != 0)
		return 0.0;
	for (int turn = 0; turn < TURNS; turn++)
	{
		double		t0 = seconds();
		double		rate;

		gk_parallel_for(host, FMA_PIECES, fma_job, NULL);
		rate = 2.0 * lanes * CHAINS * ROUNDS * FMA_PIECES / (seconds() - t0) * 1e-9;
		if (rate > best)
			best = rate;
	}
	return best;
}
