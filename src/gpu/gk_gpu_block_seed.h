/*
 * gk_gpu_block_seed.h - where a team's clusters start, and start again: as gk_seed.c
 * and gk_repair.c.
 */
#ifndef GK_GPU_BLOCK_SEED_H
#define GK_GPU_BLOCK_SEED_H

#include "gpu/gk_gpu_block.h"

/* ---- seeding ---- */

GK_TEAM bool
gk_block_sooner(const GkBlockFit *s, int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a >= 0;
	return s->key[a] < s->key[b] || (s->key[a] == s->key[b] && a < b);
}

/* The rows with the smallest keys, in order, into place[]; returns how many. */
GK_TEAM int
gk_block_race(const GkBlockFit *s, uint64_t key, bool use_d2, int want)
{
	int			got = 0;

	for (int r = GK_RANK; r < s->n; r += GK_SIZE)
	{
		double		weight = use_d2 ? (double) s->d2[r] : 1.0;

		s->key[r] = weight > 0.0 ? gk_race_key(gk_hash(key, r), weight) : -1.0;
	}
	while (got < want)
	{
		int64_t		first = -1;

		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
			if (s->key[r] >= 0.0 && gk_block_sooner(s, r, first))
				first = r;
		GK_BLOCK_FIRST(s, first, gk_block_sooner);
		if (first < 0)
			break;
		if (GK_RANK == 0)
			s->place[got] = (int32_t) first;
		/* the thread that looks at this row is the one that takes it out */
		if (first % GK_SIZE == GK_RANK)
			s->key[first] = -1.0;
		got++;
	}
	GK_MEET();
	return got;
}

/* The first of `got` candidates that lowers the potential most. */
GK_TEAM int
gk_block_best(const GkBlockFit *s, int got)
{
	gk_int128	lowest = 0;
	int			best = 0;

	for (int q = 0; got > 1 && q < got; q++)
	{
		const float *point = s->x + s->place[q];
		int64_t		hi = 0;
		int64_t		lo = 0;
		gk_int128	pot;

		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
		{
			float		v = gk_block_d2(s, r, point, s->n);
			int64_t		h,
						l;

			gk_d2_split((double) (v < s->d2[r] ? v : s->d2[r]), s->d2_scale, &h, &l);
			hi += h;
			lo += l;
		}
		gk_block_sum2(s, &hi, &lo);
		pot = (gk_int128) hi * ((gk_int128) 1 << 40) + lo;
		if (q == 0 || pot < lowest)
		{
			lowest = pot;
			best = q;
		}
	}
	return s->place[best];
}

GK_TEAM void
gk_block_plus_plus(GkBlockFit *s, int64_t seed, int run, int k, int candidates)
{
	s->k = 0;
	while (s->k < k)
	{
		bool		first = s->k == 0;
		int			got = gk_block_race(s, gk_key(seed, run, s->k), !first, first ? 1 : candidates);
		int			row;

		if (got == 0)
			break;				/* every point is a seed already */
		row = gk_block_best(s, got);
		gk_block_set_point(s, s->k++, row);
		if (s->k < k)
			gk_block_nearer(s, s->x + row, s->n, first);
		GK_MEET();
	}
}

GK_TEAM void
gk_block_random(GkBlockFit *s, int64_t seed, int run, int k)
{
	s->k = gk_block_race(s, gk_key(seed, run, 0), false, k);
	for (int i = 0; i < s->k; i++)
		gk_block_set_point(s, i, s->place[i]);
	GK_MEET();
}

GK_TEAM void
gk_block_given(GkBlockFit *s, const double *given, int k)
{
	s->k = k;
	for (int v = GK_RANK; v < k * s->d; v += GK_SIZE)
	{
		s->c[v] = given[v];
		s->f[v] = gk_centroid_to_float(given[v], s->center[v % s->d], s->scale[v % s->d]);
	}
	GK_MEET();
}

/* ---- empty clusters ---- */

/* Farther; ties to the lexicographically smallest point, then to the lowest row. */
GK_TEAM bool
gk_block_farther(const GkBlockFit *s, int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a >= 0;
	if (s->d2[a] != s->d2[b])
		return s->d2[a] > s->d2[b];
	for (int j = 0; j < s->d; j++)
		if (s->x[j * s->n + a] != s->x[j * s->n + b])
			return s->x[j * s->n + a] < s->x[j * s->n + b];
	return a < b;
}

/* As gk_repair(); returns how many of the clusters with count 0 have a point now. */
GK_TEAM int
gk_block_repair(const GkBlockFit *s, const int32_t *count)
{
	int			repaired = 0;

	for (int i = 0; i < s->k; i++)
		gk_block_nearer(s, s->f + i * s->d, 1, i == 0);
	for (int i = 0; i < s->k; i++)
	{
		int64_t		far = -1;

		if (count[i] != 0)
			continue;
		for (int r = GK_RANK; r < s->n; r += GK_SIZE)
			if (s->d2[r] > 0.0f && gk_block_farther(s, r, far))
				far = r;
		GK_BLOCK_FIRST(s, far, gk_block_farther);
		if (far < 0)
			break;				/* every point is on a centroid */
		gk_block_set_point(s, i, (int) far);
		repaired++;
		GK_MEET();
		gk_block_nearer(s, s->f + i * s->d, 1, false);
	}
	GK_MEET();
	return repaired;
}

GK_TEAM bool
gk_block_some_empty(const GkBlockFit *s, const int32_t *count)
{
	for (int i = 0; i < s->k; i++)
		if (count[i] == 0)
			return true;
	return false;
}
#endif							/* GK_GPU_BLOCK_SEED_H */
