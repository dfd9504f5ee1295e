/*
 * gk_cpu_int16_amx.c - products of 16-bit integers (gk_cpu_int16_products.h) for processors with AMX.
 *
 * Tile registers multiply 16 x 64 by 64 x 16 integers of 8 bits, as many as 512 VNNI instructions do of 16 bits,
 * in the time of some 64 of them.  A 16-bit integer is 256 h + l, h of -128 .. 127 and l of 0 .. 255, so a product
 * of two takes four of theirs, which are added up apart: still several times as fast as VNNI.  As
 * sums of bytes do not overflow, points and centroids may be rounded finer than there, and sums are shifted to fit
 * 32 bits: by 8 bits at least, so that the lowest ones need not be exact, and by 16 at most.
 *
 * Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3, 2022.
 */
#include "cpu/simd/gk_cpu_kernels.h"
#include "cpu/simd/gk_cpu_unroll.h"

#ifdef GK_CPU_AMX

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/simd/gk_cpu_amx.h"
#include "cpu/simd/gk_cpu_vector_avx512.h"

#define INT16_GROUP		16
#define INT16_VECTORS	1
#define INT16_UNIT		64
#define INT16_APART		true

/* The largest sum: both products of high and low bytes, and the low ones' upper part. */
_Static_assert((2 * 128 * 255 + 255) * (int64_t) GK_MAX_D <= INT32_MAX, "sums of bytes overflow");

/* A tile register's 16 rows of 64 bytes as 32-bit words, and the two of 64 features. */
#define HIGH		0
#define LOW			GK_AMX_REGISTER
#define BOTH		(2 * GK_AMX_REGISTER)

/*
 * Rounded points are, for each 16 rows, [d / 64][high, low][16][16 rows]: four features in a word.  A group
 * of centroids is [d / 64][high, low][16 centroids][64 bytes].
 */

GK_INLINE void
store_words(int32_t *y, int words, int p, int w, __m512i a, __m512i b)
{
	/* of four bytes: low ones of both features, high ones of both */
	const __m512i apart = _mm512_set4_epi32(0x0f0d0e0c, 0x0b090a08, 0x07050604, 0x03010200);
	int32_t    *to = y + p * 16 * words + w / 32 * BOTH + w % 32 / 2 * 16;

	a = _mm512_shuffle_epi8(a, apart);
	b = _mm512_shuffle_epi8(b, apart);
	_mm512_storeu_si512(to + HIGH, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b));
	_mm512_storeu_si512(to + LOW, _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16)));
}

static void
put(int32_t *group, int q, int first, const int16_t * b, int count)
{
	uint8_t    *to = (uint8_t *) (group + first / INT16_UNIT * BOTH) + q * INT16_UNIT;

	for (int j = 0; j < INT16_UNIT; j++)
	{
		uint16_t	v = j < count ? (uint16_t) b[j] : 0;

		to[HIGH * sizeof(int32_t) + j] = (uint8_t) (v >> 8);
		to[LOW * sizeof(int32_t) + j] = (uint8_t) v;
	}
}

GK_INLINE const int32_t *
block(const int32_t *y, size_t words, int row)
{
	return y + row * words;
}

/* Words of a row are in the order of memory. */
GK_INLINE int32_t
word(const int32_t *y, size_t words, int row, size_t w)
{
	return y[(row / 16 * words + w) * 16 + row % 16];
}

GK_INLINE void
begin_products(void)
{
	gk_amx_begin();
}

GK_INLINE void
end_products(void)
{
	_tile_release();
}

/*
 * A group of centroids and 16 rows: of wide ones both do not fit the first cache, where the centroids are to stay.
 * What is shifted out is less than 2.
 */
GK_INLINE void
products(__m512i acc[INT16_GROUP][INT16_VECTORS], const int32_t *y, const int32_t *c, size_t words, __m512i shift)
{
	const __m512i up = _mm512_sub_epi32(_mm512_set1_epi32(16), shift);
	const __m512i down = _mm512_sub_epi32(shift, _mm512_set1_epi32(8));
	int32_t		sum[4][GK_AMX_REGISTER] __attribute__((aligned(64)));

	/* registers are no operands that a compiler knows of */
	__asm__ volatile("" ::: "memory");
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (size_t w = 0; w < words; w += INT16_UNIT / 2, y += BOTH, c += BOTH)
	{
		_tile_loadd(4, c + HIGH, 64);
		_tile_stream_loadd(5, y + HIGH, 64);
		_tile_dpbssd(0, 4, 5);
		_tile_stream_loadd(6, y + LOW, 64);
		_tile_dpbsud(1, 4, 6);
		_tile_loadd(7, c + LOW, 64);
		_tile_dpbusd(2, 7, 5);
		_tile_dpbuud(3, 7, 6);
	}
	_tile_stored(0, sum[0], 64);
	_tile_stored(1, sum[1], 64);
	_tile_stored(2, sum[2], 64);
	_tile_stored(3, sum[3], 64);
	__asm__ volatile("" ::: "memory");
	GK_UNROLL
	for (int q = 0; q < INT16_GROUP; q++)
	{
		__m512i		high = _mm512_sllv_epi32(_mm512_load_si512(sum[0] + q * 16), up);
		__m512i		mixed = _mm512_add_epi32(_mm512_load_si512(sum[1] + q * 16), _mm512_load_si512(sum[2] + q * 16));
		__m512i		low = _mm512_add_epi32(mixed, _mm512_srli_epi32(_mm512_load_si512(sum[3] + q * 16), 8));

		acc[q][0] = _mm512_add_epi32(_mm512_add_epi32(acc[q][0], high), _mm512_srav_epi32(low, down));
	}
}

GK_INLINE void
products_few(__m512i acc[INT16_GROUP][INT16_VECTORS], const int32_t *few, const int32_t *c, size_t words, const int32_t *shift)
{
	products(acc, few, c, words, _mm512_loadu_si512(shift));
}

GK_INLINE void
add_squares(__m512i *sum, __m512i pair)
{
	*sum = _mm512_dpwssd_epi32(*sum, pair, pair);
}

#include "cpu/simd/gk_cpu_int16_products.h"

/* Linux gives a process tile registers when it asks for them. */
#define ARCH_REQ_XCOMP_PERM	0x1023
#define XFEATURE_XTILEDATA	18

bool
gk_cpu_has_amx(void)
{
	const unsigned bits = 1u << 24 | 1u << 25;	/* AMX-TILE, AMX-INT8 */
	unsigned	a,
				b,
				c,
				d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bits) == bits &&
		syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const GkInt16Kernels gk_int16_amx = {
	INT16_KERNELS,
	.cost = 0.1,
	/* four such tiles: with fewer, reading the centroids takes longer than computing */
	.longest = 1280
};

#endif							/* GK_CPU_AMX */
