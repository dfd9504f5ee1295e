/*
 * gk_cpu_closer.c - canonical distances of the pairs of a row and a centroid that may be closer, as products of integers say.
 *
 * Of a centroid that may be closer to many of a tile's rows, distances to all of them are computed at once; other pairs
 * fill vectors, each lane with a row and a centroid of its own.  Where there are many of these, the tile's rows are first
 * put with their features in a row, as the centroids' are.
 */
#include <math.h>

#include "cpu/prune/gk_cpu_prune.h"

/* Pairs of a tile that wait for a vector. */
typedef struct Waiting
{
	const GkTiles *tile;
	const float *c;
	const float *turned;		/* its rows with their features in a row; NULL: they are not */
	size_t		pitch;
	int			count;
	int32_t		row[GK_CLOSER_PAIRS];
	int32_t		label[GK_CLOSER_PAIRS];
} Waiting;

/* Floats from one row to the next: an odd number of cache lines, so that rows are in different sets of a cache. */
static size_t
row_pitch(int d)
{
	size_t		lines = ((size_t) d * sizeof(float) + GK_CACHE_LINE - 1) / GK_CACHE_LINE;

	return (lines | 1) * GK_CACHE_LINE / sizeof(float);
}

bool
gk_cpu_closer_room(GkSession *s, int threads)
{
	return s->kernels->turn == NULL || gk_cpu_room(s, &s->turned, threads, GK_ROW_PAD * row_pitch(s->pts->d) * sizeof(float));
}

static void
flush(const GkSession *s, Waiting *w, GkCloserPairs *take, void *arg)
{
	float		d2[GK_CLOSER_PAIRS];
	int32_t		at[GK_CLOSER_PAIRS];

	if (w->count == 0)
		return;
	for (int i = 0; i < w->count; i++)
		at[i] = (int32_t) (w->turned != NULL ? w->row[i] * w->pitch : (size_t) w->row[i]);
	s->kernels->own_distance(w->turned != NULL ? w->turned : w->tile->x, w->turned != NULL ? 1 : w->tile->stride, at, w->label, w->count,
							 w->c, w->tile->d, d2);
	take(arg, w->row, w->label, d2, w->count);
	w->count = 0;
}

/* Bits of a tile's first rows. */
static uint64_t
first_rows(int rows)
{
	return rows < GK_ROW_PAD ? (UINT64_C(1) << rows) - 1 : ~UINT64_C(0);
}

int
gk_cpu_closer_count(int k, const uint64_t *closer, int rows)
{
	uint64_t	some = first_rows(rows);
	int			all = 0;

	/* few words have bits, and in a build for any x86-64 counting them takes a call */
	for (int q = 0; q < k; q++)
		if ((closer[q] & some) != 0)
			all += __builtin_popcountll(closer[q] & some);
	return all;
}

/* Distances of many rows to centroid q. */
static void
compare_tile(const GkSession *s, const Waiting *w, int q, uint64_t bits, GkCloserPairs *take, void *arg)
{
	GkTiles		one = *w->tile;
	float		own[GK_ROW_PAD];
	int32_t		row[GK_ROW_PAD];
	int32_t		label[GK_ROW_PAD];
	float		d2[GK_ROW_PAD];
	int			count = 0;

	one.count = 1;
	for (int i = 0; i < GK_ROW_PAD; i++)
		own[i] = INFINITY;
	s->kernels->mindist(&one, w->c, q, q + 1, own);
	for (; bits != 0; bits &= bits - 1)
	{
		row[count] = __builtin_ctzll(bits);
		label[count] = q;
		d2[count] = own[row[count]];
		count++;
	}
	take(arg, row, label, d2, count);
}

int
gk_cpu_closer_pairs(GkSession *s, const GkTiles *tile, const float *c, int k, const uint64_t *closer, int rows, int thread,
					GkCloserPairs *take, void *arg)
{
	uint64_t	some = first_rows(rows);
	int			all = gk_cpu_closer_count(k, closer, rows);
	Waiting		w = {.tile = tile,.c = c,.pitch = row_pitch(tile->d)};

	if (s->kernels->turn != NULL && all >= GK_COST_CLOSER_TURN)
	{
		float	   *turned = s->turned + thread * GK_ROW_PAD * w.pitch;

		s->kernels->turn(tile->x, tile->stride, tile->d, turned, w.pitch);
		w.turned = turned;
	}
	for (int q = 0; q < k; q++)
	{
		uint64_t	bits = closer[q] & some;

		if (bits == 0)
			continue;
		if (__builtin_popcountll(bits) >= GK_COST_CLOSER_DENSE)
		{
			if (gk_cpu_halt(s))
				return all;
			flush(s, &w, take, arg);
			compare_tile(s, &w, q, bits, take, arg);
			bits = 0;
		}
		for (; bits != 0; bits &= bits - 1)
		{
			w.row[w.count] = __builtin_ctzll(bits);
			w.label[w.count++] = q;
			if (w.count < GK_CLOSER_PAIRS)
				continue;
			if (gk_cpu_halt(s))
				return all;
			flush(s, &w, take, arg);
		}
	}
	flush(s, &w, take, arg);
	return all;
}
