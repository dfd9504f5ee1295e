/*
 * gk_gpu_block_lloyd.h - a whole clustering of one small group by one block of threads: seeding, all
 * iterations, the order of the clusters, restarts.
 *
 * The twin of gk_seed.c, gk_lloyd.c, gk_repair.c and gk_finish.c, step by step and bit for bit, with
 * everything in shared memory; test/unit/test_group_batch.c and test/gpu/test_groups.c compare them.  Threads take
 * rows, or values to add up, in turns.  Each decision is computed by all threads from what they share, so
 * that they never diverge.
 */
#ifndef GK_GPU_BLOCK_LLOYD_H
#define GK_GPU_BLOCK_LLOYD_H

#include "gpu/gk_gpu_block.h"

#define GK_MAX_ORDER_PASSES		4	/* as in gk_finish.c */

/* ---- iterations ---- */

/* Threads that add up one value: each takes every share-th row.  In the end part[v] is the sum. */
GK_BLOCK int
gk_block_share(int values)
{
	return values < GK_BLOCK_SIZE ? GK_BLOCK_SIZE / values : 1;
}

/* Feature Sums and counts: part[i * (d + 1) + j], j = d for the count. */
GK_BLOCK void
gk_block_sums(const GkBlockFit *s)
{
	int			values = s->k * (s->d + 1);
	int			share = gk_block_share(values);

	for (int u = GK_BLOCK_RANK; u < values * share; u += GK_BLOCK_SIZE)
	{
		int			v = u % values;
		int			i = v / (s->d + 1);
		int			j = v % (s->d + 1);
		double		sum = 0.0;

		for (int r = u / values; r < s->n; r += share)
			if (s->label[r] == i)
				sum += j < s->d ? (double) s->x[j * s->n + r] : 1.0;
		s->part[u].f = sum;
	}
	GK_BLOCK_SYNC();
	for (int v = GK_BLOCK_RANK; v < values; v += GK_BLOCK_SIZE)
	{
		double		sum = s->part[v].f;

		for (int p = 1; p < share; p++)
			sum += s->part[p * values + v].f;
		s->part[v].f = sum;
		if (v % (s->d + 1) == s->d)
			s->count[v / (s->d + 1)] = (int32_t) sum;
	}
	GK_BLOCK_SYNC();
}

/* New centroids of the clusters that have points; returns the squared movement. */
GK_BLOCK double
gk_block_update(const GkBlockFit *s)
{
	int			d = s->d;
	double		shift = 0.0;

	for (int v = GK_BLOCK_RANK; v < s->k * d; v += GK_BLOCK_SIZE)
	{
		int			i = v / d;
		int			j = v % d;
		GkWord	   *part = &s->part[i * (d + 1) + j];

		/* part->f * inv is the sum as an integer, which a double holds (GK_PACKAGE). */
		if (s->count[i] == 0)
			part->f = 0.0;
		else
			part->f = gk_update_feature(part->f * s->inv[j] / s->count[i], gk_feature_prep(s->center, s->scale, s->expo, j),
										s->f[v], &s->c[v], &s->f[v]);
	}
	GK_BLOCK_SYNC();
	for (int i = GK_BLOCK_RANK; i < s->k; i += GK_BLOCK_SIZE)
	{
		double		moved = 0.0;

		for (int j = 0; j < d; j++)
			moved += s->part[i * (d + 1) + j].f;
		s->part[i * (d + 1) + d].f = moved;
	}
	GK_BLOCK_SYNC();
	for (int i = 0; i < s->k; i++)
		shift += s->part[i * (d + 1) + d].f;
	GK_BLOCK_SYNC();
	return shift;
}

/* As gk_lloyd(); returns whether it converged. */
GK_BLOCK bool
gk_block_lloyd(const GkBlockFit *s, double tol, int max_iter, int *iterations)
{
	for (*iterations = 0; *iterations < max_iter;)
	{
		int			repaired = 0;
		double		shift;

		gk_block_assign(s, false);
		gk_block_sums(s);
		if (gk_block_some_empty(s, s->count))
			repaired = gk_block_repair(s, s->count);
		shift = gk_block_update(s);
		(*iterations)++;
		if (repaired == 0 && shift <= tol)
			return true;
	}
	return false;
}

/* ---- the end ---- */

/* Clusters by size, largest first, ties by centroid; returns whether any moved. */
GK_BLOCK bool
gk_block_order(const GkBlockFit *s, const int32_t *count)
{
	int			d = s->d;
	bool		moved = false;

	for (int i = GK_BLOCK_RANK; i < s->k; i += GK_BLOCK_SIZE)
	{
		int			place = 0;

		for (int o = 0; o < s->k; o++)
		{
			bool		before = count[o] > count[i];

			if (count[o] == count[i])
			{
				int			j = 0;

				while (j < d && s->c[o * d + j] == s->c[i * d + j])
					j++;
				before = j < d ? s->c[o * d + j] < s->c[i * d + j] : o < i;
			}
			place += before;
		}
		s->place[i] = place;
	}
	GK_BLOCK_SYNC();
	for (int i = 0; i < s->k; i++)
		moved |= s->place[i] != i;
	for (int v = GK_BLOCK_RANK; moved && v < s->k * d; v += GK_BLOCK_SIZE)
		s->part[s->place[v / d] * d + v % d].f = s->c[v];
	GK_BLOCK_SYNC();
	for (int v = GK_BLOCK_RANK; moved && v < s->k * d; v += GK_BLOCK_SIZE)
	{
		s->c[v] = s->part[v].f;
		s->f[v] = gk_centroid_to_float(s->c[v], s->center[v % d], s->scale[v % d]);
	}
	GK_BLOCK_SYNC();
	return moved;
}

/* Sizes, inertia and radius of each cluster, by the centroids as they are. */
GK_BLOCK void
gk_block_stats(const GkBlockFit *s)
{
	int			values = s->k * 4;
	int			share = gk_block_share(values);

	gk_block_assign(s, true);
	for (int u = GK_BLOCK_RANK; u < values * share; u += GK_BLOCK_SIZE)
	{
		int			v = u % values;
		int			i = v / 4;
		int64_t		sum = 0;
		double		max = 0.0;

		for (int r = u / values; r < s->n; r += share)
		{
			int64_t		hi,
						lo;

			if (s->label[r] != i)
				continue;
			if (v % 4 == 2)
				sum++;
			else if (v % 4 == 3)
				max = (double) s->d2[r] > max ? (double) s->d2[r] : max;
			else
			{
				gk_d2_split((double) s->d2[r], s->d2_scale, &hi, &lo);
				sum += v % 4 == 0 ? hi : lo;
			}
		}
		if (v % 4 == 3)
			s->part[u].f = max;
		else
			s->part[u].i = sum;
	}
	GK_BLOCK_SYNC();
	for (int v = GK_BLOCK_RANK; v < values; v += GK_BLOCK_SIZE)
	{
		int64_t		sum = 0;
		double		max = 0.0;

		for (int p = 0; p < share; p++)
			if (v % 4 == 3)
				max = s->part[p * values + v].f > max ? s->part[p * values + v].f : max;
			else
				sum += s->part[p * values + v].i;
		if (v % 4 == 0)
			s->hi[v / 4] = sum;
		else if (v % 4 == 1)
			s->lo[v / 4] = sum;
		else if (v % 4 == 2)
			s->size[v / 4] = (int32_t) sum;
		else
			s->max_d2[v / 4] = (float) max;
	}
	GK_BLOCK_SYNC();
}

/* Leave out clusters without points; one thread does it, all know how many are left. */
GK_BLOCK void
gk_block_drop_empty(GkBlockFit *s)
{
	int			d = s->d;
	int			left = 0;
	int			to = 0;

	for (int i = 0; i < s->k; i++)
		left += s->size[i] != 0;
	GK_BLOCK_SYNC();
	for (int i = 0; GK_BLOCK_RANK == 0 && i < s->k; i++)
	{
		if (s->size[i] == 0)
			continue;
		for (int j = 0; j < d; j++)
		{
			s->c[to * d + j] = s->c[i * d + j];
			s->f[to * d + j] = s->f[i * d + j];
		}
		s->hi[to] = s->hi[i];
		s->lo[to] = s->lo[i];
		s->max_d2[to] = s->max_d2[i];
		s->size[to++] = s->size[i];
	}
	s->k = left;
	GK_BLOCK_SYNC();
}

/* As gk_finish(). */
GK_BLOCK void
gk_block_finish(GkBlockFit *s)
{
	bool		counted = false;	/* by the finishing pass, not by the last iteration */
	int			order_passes = 0;
	int			repairs = 0;

	for (;;)
	{
		int			repaired = 0;

		if (!s->given && order_passes < GK_MAX_ORDER_PASSES)
		{
			bool		moved = gk_block_order(s, counted ? s->size : s->count);

			if (counted && !moved)
				break;
			order_passes++;
		}
		else if (counted)
			break;
		gk_block_stats(s);
		counted = true;
		if (!gk_block_some_empty(s, s->size))
			continue;
		if (repairs++ < s->k + 8)
			repaired = gk_block_repair(s, s->size);
		if (repaired > 0)
		{
			for (int i = GK_BLOCK_RANK; i < s->k; i += GK_BLOCK_SIZE)
				s->count[i] = s->size[i];
			GK_BLOCK_SYNC();
			counted = false;
			order_passes = 0;
		}
		else
			gk_block_drop_empty(s);
	}
}

/* ---- all of it ---- */

GK_BLOCK void
gk_block_load(const GkBlockFit *s, const char *in)
{
	const double *columns = (const double *) in;
	const float *x = (const float *) (columns + 2 * s->d);
	const int32_t *expo = (const int32_t *) (x + (size_t) s->n * s->d);

	for (int i = GK_BLOCK_RANK; i < s->n * s->d; i += GK_BLOCK_SIZE)
		s->x[i] = x[i];
	for (int j = GK_BLOCK_RANK; j < s->d; j += GK_BLOCK_SIZE)
	{
		s->center[j] = columns[j];
		s->scale[j] = columns[s->d + j];
		s->expo[j] = expo[j];
		s->inv[j] = gk_pow2(GK_GRID_BITS - expo[j]);
	}
	GK_BLOCK_SYNC();
}

GK_BLOCK void
gk_block_store(const GkBlockFit *s, const GkGroupBatchOut *out, int iterations, bool converged)
{
	for (int v = GK_BLOCK_RANK; v < s->k * s->d; v += GK_BLOCK_SIZE)
		out->centroid[v] = s->c[v];
	for (int i = GK_BLOCK_RANK; i < s->k; i += GK_BLOCK_SIZE)
	{
		out->size[i] = s->size[i];
		out->hi[i] = s->hi[i];
		out->lo[i] = s->lo[i];
		out->max_d2[i] = s->max_d2[i];
	}
	if (GK_BLOCK_RANK == 0)
	{
		out->head->k = s->k;
		out->head->iterations = iterations;
		out->head->converged = converged;
		out->head->unused = 0;
	}
}

/* Cluster group g of a slot, in memory of gk_block_bytes(). */
GK_BLOCK void
gk_block_group(const GkGroupBatchTask *task, const GkGroupBatchItem *g, char *slot, char *memory)
{
	GkBlockFit	s;
	GkGroupBatchOut out = gk_group_batch_out(slot + g->out, g->k, task->d);
	int			runs = task->given != NULL ? 1 : task->n_init;
	gk_int128	best = 0;

	s.n = g->n;
	s.d = task->d;
	s.given = task->given != NULL;
	s.d2_scale = gk_pow2(GK_GRID_BITS - g->d2_expo);
	gk_block_place(&s, g, memory);
	gk_block_load(&s, slot + g->in);
	for (int run = 0; run < runs; run++)
	{
		gk_int128	inertia = 0;
		int			iterations;
		bool		converged;

		if (task->given != NULL)
			gk_block_given(&s, task->given, g->k);
		else if (task->random)
			gk_block_random(&s, task->seed, run, g->k);
		else
			gk_block_plus_plus(&s, task->seed, run, g->k, g->candidates);
		converged = gk_block_lloyd(&s, g->tol, task->max_iter, &iterations);
		gk_block_finish(&s);
		for (int i = 0; i < s.k; i++)
			inertia += (gk_int128) s.hi[i] * ((gk_int128) 1 << 40) + s.lo[i];
		if (run == 0 || inertia < best)
		{
			best = inertia;
			gk_block_store(&s, &out, iterations, converged);
		}
		GK_BLOCK_SYNC();
	}
}

#endif							/* GK_GPU_BLOCK_LLOYD_H */
