/*
 * gk_cpu_int8_scan.h - compare tiles with all centroids by products of 8-bit integers: GkInt8Kernels.closer and guess.
 *
 * A template, after gk_cpu_int8_closer.h. Before it come
 *   INT8_GROUP		GkInt8Kernels.group
 *   INT8_SCAN		centroids at a time, groups
 *   INT8_VECTORS	vectors of rows at a time
 *   within(x, s, k, row, d2, closer)		of these rows and centroids from k on, bits of those that may be closer: row 0 first
 *   keep_least(x, s, k, row, least, label)	the nearest of these and those before
 *   begin_products(), end_products()		around them, in each kernel
 */
#include <math.h>
#include <string.h>

GK_TARGET static void
guess(int tiles, const GkInt8 *s, const GkInt8Points *x, int32_t *label)
{
	float		least[GK_INT16_TILES * GK_ROW_PAD];

	for (int i = 0; i < tiles * GK_ROW_PAD; i++)
		least[i] = INFINITY;
	memset(label, 0, tiles * GK_ROW_PAD * sizeof(int32_t));
	begin_products();
	for (int k = 0; k < s->k; k += INT8_SCAN)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += INT8_VECTORS * GK_LANES)
				keep_least(x + t, s, k, row, least + t * GK_ROW_PAD, label + t * GK_ROW_PAD);
	end_products();
}

GK_TARGET static void
closer(int tiles, const GkInt8 *s, const GkInt8Points *x, const float *d2, uint64_t *out)
{
	size_t		width = (size_t) (s->k + INT8_GROUP - 1) / INT8_GROUP * INT8_GROUP;

	begin_products();
	for (int k = 0; k < s->k; k += INT8_SCAN)
		for (int t = 0; t < tiles; t++)
			for (int row = 0; row < GK_ROW_PAD; row += INT8_VECTORS * GK_LANES)
				within(x + t, s, k, row, d2 + t * GK_ROW_PAD, out + t * width + k);
	end_products();
}
