/*
 * Memory that a process keeps (gk_mem_pool.c): blocks do not overlap, go back to their owner,
 * and no more than the limit stays mapped.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/gk_core.h"
#include "core/base/gk_mem.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define MB		((size_t) 1 << 20)
#define BLOCKS	64
#define KEEP	(192 * MB)

static const int me;
static const int other;

static bool
sizes_are(size_t used, size_t kept)
{
	size_t		u;
	size_t		k;

	gk_mem_pool_sizes(&u, &k);
	return u == used && k == kept;
}

static bool
mapped(void *p)
{
	unsigned char in;

	return mincore(p, 4096, &in) == 0 || errno != ENOMEM;
}

static char *
take(const void *owner, size_t bytes, bool warm_wanted)
{
	bool		warm = !warm_wanted;
	char	   *p = gk_mem_pool_take(owner, bytes, &warm);

	if (p == NULL || warm != warm_wanted || (uintptr_t) p % (2 * MB) != 0)
		return NULL;
	memset(p, 7, bytes);
	return p;
}

static void
test_reuse(void)
{
	char	   *a;
	char	   *b;
	char	   *c;

	gk_mem_pool_limit(8 * MB);
	a = take(&me, 7 * MB, false);
	ok(a != NULL && sizes_are(8 * MB, 0) && !gk_mem_pool_warm(a), "a new block, of whole huge pages");
	ok(gk_mem_pool_give(a) && sizes_are(0, 8 * MB), "given back, it is kept");
	ok(!gk_mem_pool_give(a), "a block is given back once");
	b = take(&me, 2 * MB, true);
	c = take(&me, 5 * MB, true);
	ok(b == a + 6 * MB && c == a && sizes_are(8 * MB, 0), "two blocks are cut from it");
	ok(gk_mem_pool_warm(b) && gk_mem_pool_warm(c), "they were used before");
	ok(gk_mem_pool_give(b) && gk_mem_pool_give(c) && take(&me, 8 * MB, true) == a, "and are one again");
	b = take(&me, 2 * MB, false);
	ok(b != NULL && sizes_are(10 * MB, 0), "what is in use may be more than the limit");
	ok(gk_mem_pool_give(b) && sizes_are(8 * MB, 0) && !mapped(b), "but nothing is kept above it");
	ok(gk_mem_pool_give(a) && sizes_are(0, 8 * MB), "up to it, it is");
	b = take(&me, 10 * MB, false);
	ok(b != NULL && sizes_are(10 * MB, 0), "what is kept makes room for a larger block");
	ok(gk_mem_pool_give(b) && sizes_are(0, 0), "which is too large to be kept");
}

/* Chunks of a job like the one before, each twice as large up to some size. */
static void
test_again(void)
{
	const size_t mb[] = {4, 6, 10, 16, 16, 16, 16, 16};
	const int	n = sizeof(mb) / sizeof(mb[0]);
	char	   *apart = NULL;
	size_t		used;
	size_t		kept;
	int			cold = 0;

	gk_mem_pool_limit(1024 * MB);
	for (int job = 0; job < 3; job++)
	{
		for (int i = 0; i < n; i++)
		{
			bool		warm;
			char	   *block = gk_mem_pool_take(&me, mb[i] * MB, &warm);

			cold += block == NULL || (!warm && job > 0);
			/* something else lies between the chunks */
			if (job == 0 && i == 4)
				apart = take(&other, 2 * MB, false);
		}
		gk_mem_pool_sizes(&used, &kept);
		gk_mem_pool_give_all(&me);
	}
	ok(apart != NULL && cold == 0 && used == 102 * MB && kept == 0, "a job like the one before needs no new memory");
	gk_mem_pool_give_all(&other);
	gk_mem_pool_limit(0);
}

static void
test_owners(void)
{
	char	   *a;
	char	   *b;
	char	   *c;
	char		local[64];

	gk_mem_pool_limit(64 * MB);
	a = take(&me, 2 * MB, false);
	b = take(&other, 4 * MB, false);
	c = take(&me, 6 * MB, false);
	ok(!gk_mem_pool_give(local) && !gk_mem_pool_give(a + 64) && !gk_mem_pool_give(NULL), "what is no block is nobody's");
	gk_mem_pool_give_all(&me);
	ok(sizes_are(4 * MB, 8 * MB) && !gk_mem_pool_give(a) && !gk_mem_pool_give(c), "all blocks of an owner, and no other's");
	gk_mem_pool_limit(4 * MB);
	ok(sizes_are(4 * MB, 0) && !mapped(a) && !mapped(c), "a lower limit gives memory back at once");
	ok(gk_mem_pool_reuse(&me, 2 * MB) == NULL && sizes_are(4 * MB, 0), "nothing new for who wants what was used before");
	ok(b[4 * MB - 1] == 7 && gk_mem_pool_give(b) && sizes_are(0, 4 * MB), "not what is in use");
	ok(gk_mem_pool_reuse(&me, 5 * MB) == NULL && gk_mem_pool_reuse(&me, SIZE_MAX) == NULL && sizes_are(0, 4 * MB), "nor of another size");
	c = gk_mem_pool_reuse(&me, 1 * MB);
	ok(c == b + 2 * MB && sizes_are(2 * MB, 2 * MB) && gk_mem_pool_warm(c) && gk_mem_pool_give(c), "but if it fits");
	gk_mem_pool_limit(0);
	ok(sizes_are(0, 0) && !mapped(b), "limit 0: nothing is kept");
	{
		bool		warm;

		ok(gk_mem_pool_take(&me, SIZE_MAX, &warm) == NULL && gk_mem_pool_take(&me, SIZE_MAX / 4, &warm) == NULL &&
		   sizes_are(0, 0), "sizes that no system has");
	}
}

/* Memory from a host that has none while some is kept, as where addresses are limited. */
static void *
scarce_alloc(void *ctx, size_t bytes)
{
	TestHost   *t = ctx;

	return sizes_are(0, 0) ? t->host.alloc(t, bytes) : NULL;
}

static void
test_scarce(void)
{
	TestHost	t;
	GkHost		host;
	void	   *p;

	test_host_init(&t, 1);
	host = t.host;
	host.ctx = &t;
	host.alloc = scarce_alloc;
	gk_mem_pool_limit(64 * MB);
	ok(gk_mem_pool_give(take(&me, 4 * MB, false)) && sizes_are(0, 4 * MB), "something is kept");
	p = gk_alloc(&host, 1000, 1);
	ok(p != NULL && sizes_are(0, 0), "who finds no memory gets what is kept");
	gk_free(&host, p);
	ok(!gk_mem_pool_release(), "once it is gone there is none");
	gk_mem_pool_limit(0);
	test_host_end(&t);
}

/* Every block is filled with its number, which nobody else may write to. */
static void
test_many(void)
{
	char	   *block[BLOCKS] = {NULL};
	size_t		bytes[BLOCKS];
	uint64_t	state = 1;
	size_t		used = 0;
	size_t		u;
	size_t		k;
	int			wrong = 0;
	int			over = 0;
	int			warm_ones = 0;

	gk_mem_pool_limit(KEEP);
	for (int i = 0; i < 4000; i++)
	{
		int			n;

		state = state * 6364136223846793005u + 1442695040888963407u;
		n = (int) (state >> 33) % BLOCKS;
		if (block[n] != NULL)
		{
			for (size_t at = 0; at < bytes[n]; at += 4096)
				wrong += block[n][at] != (char) n;
			wrong += !gk_mem_pool_give(block[n]);
			used -= bytes[n];
			block[n] = NULL;
		}
		else
		{
			bool		warm;

			bytes[n] = (1 + (state >> 40) % 4) * 2 * MB;
			block[n] = gk_mem_pool_take(n % 2 ? &me : &other, bytes[n], &warm);
			warm_ones += warm;
			for (size_t at = 0; at < bytes[n]; at += 4096)
				block[n][at] = (char) n;
			used += bytes[n];
		}
		gk_mem_pool_sizes(&u, &k);
		wrong += u != used;
		over += k > 0 && u + k > KEEP;
	}
	ok(wrong == 0, "4,000 takes and gives: no block is another's (%d are)", wrong);
	ok(over == 0 && warm_ones > 1000, "nothing is kept over the limit, and %d blocks were used before", warm_ones);
	gk_mem_pool_give_all(&me);
	gk_mem_pool_give_all(&other);
	gk_mem_pool_sizes(&u, &k);
	ok(u == 0 && k > 0 && k <= KEEP, "all are given back");
	gk_mem_pool_limit(0);
	ok(sizes_are(0, 0), "and gone");
}

/* Bytes of this process's address space; 0: not known. */
static size_t
address_space(void)
{
	FILE	   *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	fclose(f);
	return (size_t) pages * (size_t) sysconf(_SC_PAGESIZE);
}

/* The system has no more addresses: kept blocks that are too small go before a larger one fails. */
static void
test_no_more(void)
{
	struct rlimit before;
	struct rlimit tight;
	size_t		now;
	bool		warm;
	char	   *used;
	char	   *small;
	char	   *large;
	bool		too_large;

	gk_mem_pool_limit((size_t) 1 << 40);
	used = take(&me, 2 * MB, false);
	small = take(&me, 64 * MB, false);
	ok(used != NULL && gk_mem_pool_give(small) && sizes_are(2 * MB, 64 * MB), "64 MB are kept");
	now = address_space();
	if (now == 0 || getrlimit(RLIMIT_AS, &before) != 0)
	{
		skip("the size of the address space is not known");
		return;
	}
	tight = before;
	tight.rlim_cur = now + 16 * MB;
	if (setrlimit(RLIMIT_AS, &tight) != 0)
	{
		skip("address space cannot be limited");
		return;
	}
	large = gk_mem_pool_take(&me, 72 * MB, &warm);
	too_large = gk_mem_pool_take(&me, 512 * MB, &warm) == NULL;
	(void) setrlimit(RLIMIT_AS, &before);
	ok(large != NULL && sizes_are(74 * MB, 0), "72 MB are found when they have gone, where no more than 16 are left");
	ok(too_large && used[2 * MB - 1] == 7, "what is in use stays, and too much is too much");
	gk_mem_pool_give_all(&me);
	gk_mem_pool_limit(0);
}

/* gk_alloc() of a host that keeps. */
static void
test_host(void)
{
	TestHost	t;
	char	   *large;
	char	   *small;
	size_t		used;
	size_t		kept;

	test_host_init(&t, 2);
	t.host.keep = true;
	gk_mem_pool_limit(64 * MB);
	large = gk_alloc_kept(&t.host, 3 * MB);
	small = gk_alloc(&t.host, 1, MB);
	gk_mem_pool_sizes(&used, &kept);
	ok(large != NULL && small != NULL && used == 4 * MB && t.live == 1, "large blocks are kept ones, small ones the host's");
	gk_alloc_soon(&t.host, large, 3 * MB);
	memset(large, 1, 3 * MB);
	gk_free(&t.host, large);
	gk_free(&t.host, small);
	ok(t.live == 0 && sizes_are(0, 4 * MB), "each goes back to where it came from");
	large = gk_alloc_kept(&t.host, 3 * MB);
	small = gk_alloc(&t.host, 3, MB);
	ok(large != NULL && gk_mem_pool_warm(large) && small != NULL && t.live == 1, "the points' is taken again; what else is large is the host's");
	gk_free(&t.host, large);
	large = gk_alloc0(&t.host, 3, MB);
	ok(large != NULL && gk_mem_pool_warm(large) && t.live == 1, "unless kept memory is free");
	ok(large != NULL && large[0] == 0 && large[3 * MB - 1] == 0, "zeroed when zeros are asked for");
	gk_free(&t.host, small);
	gk_mem_pool_give_all(t.host.ctx);
	ok(sizes_are(0, 4 * MB), "a host that goes leaves nothing in use");
	gk_mem_pool_limit(0);
}

/* Nothing but what the CPU computes beside the points: they were there before memory was kept. */
static void
test_fit(void)
{
	const int	n = 1000000;
	double	   *x = malloc(n * sizeof(double));
	GkOptions	o = {.k = 100,.init = GK_INIT_RANDOM,.n_init = 1,.max_iter = 3};
	TestHost	t;
	GkStore    *s;
	GkModel		model;
	GkError		err;
	size_t		used;
	size_t		kept;

	for (int i = 0; i < n; i++)
		x[i] = sqrt(i);
	test_host_init(&t, 2);
	s = load_store(&t, x, NULL, n, 1, NULL, 16 * MB, 64 * MB, &err);
	(void) gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	t.host.keep = true;
	gk_mem_pool_limit(64 * MB);
	if (gk_fit(s, &gk_cpu_backend, &o, NULL, &model, &err) == GK_OK)
		gk_model_free(&t.host, &model);
	gk_mem_pool_sizes(&used, &kept);
	ok(used == 0 && kept >= n * sizeof(int32_t), "what a fit computes beside its points is kept: %zu bytes", kept);
	gk_mem_pool_limit(0);
	t.host.keep = false;
	gk_store_free(s);
	test_host_end(&t);
	free(x);
}

int
main(void)
{
	test_reuse();
	test_again();
	test_owners();
	test_scarce();
	test_many();
	test_no_more();
	test_host();
	test_fit();
	return done_testing();
}
