/*
 * gk_gpu_block_lloyd.h - a whole clustering of one small group by one team of threads:
 * seeding, all iterations, the order of the clusters, restarts.
 *
 * The same as gk_seed.c, gk_lloyd.c, gk_repair.c and gk_finish.c do over a backend,
 * step by step and bit for bit, with everything in one piece of fast memory.
 * Threads take rows, or values to be added up, in turns; what decides is computed
 * by all of them alike from what they share, so that they stay together.
 */
#ifndef GK_GPU_BLOCK_LLOYD_H
#define GK_GPU_BLOCK_LLOYD_H

#include "gpu/gk_gpu_block_seed.h"

#define GK_MAX_ORDER_PASSES		4	/* as in gk_finish.c */

/* ---- iterations ---- */

/*
 * How values are added up: so many threads share one, each taking every share-th
 * row.  In the end part[v] is the sum.
 */
GK_TEAM int
gk_block_share(int values)
{
	return values < GK_SIZE ? GK_SIZE / values : 1;
}

/* Feature Sums and counts: part[i * (d + 1) + j], j = d for the count. */
GK_TEAM void
gk_block_sums(const GkBlockFit *s)
{
	int			values = s->k * (s->d + 1);
	int			share = gk_block_share(values);

	for (int u = GK_RANK; u < values * share; u += GK_SIZE)
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
	GK_MEET();
	for (int v = GK_RANK; v < values; v += GK_SIZE)
	{
		double		sum = s->part[v].f;

		for (int p = 1; p < share; p++)
			sum += s->part[p * values + v].f;
		s->part[v].f = sum;
		if (v % (s->d + 1) == s->d)
			s->count[v / (s->d + 1)] = (int32_t) sum;
	}
	GK_MEET();
}

/* New centroids of the clusters that have points; returns the squared movement. */
GK_TEAM double
gk_block_update(const GkBlockFit *s)
{
	int			d = s->d;
	double		shift = 0.0;

	for (int v = GK_RANK; v < s->k * d; v += GK_SIZE)
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
	GK_MEET();
	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
	{
		double		moved = 0.0;

		for (int j = 0; j < d; j++)
			moved += s->part[i * (d + 1) + j].f;
		s->part[i * (d + 1) + d].f = moved;
	}
	GK_MEET();
	for (int i = 0; i < s->k; i++)
		shift += s->part[i * (d + 1) + d].f;
	GK_MEET();
	return shift;
}

/* As gk_lloyd(); returns whether it converged. */
GK_TEAM bool
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
GK_TEAM bool
gk_block_order(const GkBlockFit *s, const int32_t *count)
{
	int			d = s->d;
	bool		moved = false;

	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
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
	GK_MEET();
	for (int i = 0; i < s->k; i++)
		moved |= s->place[i] != i;
	for (int v = GK_RANK; moved && v < s->k * d; v += GK_SIZE)
		s->part[s->place[v / d] * d + v % d].f = s->c[v];
	GK_MEET();
	for (int v = GK_RANK; moved && v < s->k * d; v += GK_SIZE)
	{
		s->c[v] = s->part[v].f;
		s->f[v] = gk_centroid_to_float(s->c[v], s->center[v % d], s->scale[v % d]);
	}
	GK_MEET();
	return moved;
}

/* Sizes, inertia and radius of each cluster, by the centroids as they are. */
GK_TEAM void
gk_block_stats(const GkBlockFit *s)
{
	int			values = s->k * 4;
	int			share = gk_block_share(values);

	gk_block_assign(s, true);
	for (int u = GK_RANK; u < values * share; u += GK_SIZE)
	{
		int			v = u % values;
		int			i = v / 4;
		int64_t		sum = 0;
		double		most = 0.0;

		for (int r = u / values; r < s->n; r += share)
		{
			int64_t		hi,
						lo;

			if (s->label[r] != i)
				continue;
			if (v % 4 == 2)
				sum++;
			else if (v % 4 == 3)
				most = (double) s->d2[r] > most ? (double) s->d2[r] : most;
			else
			{
				gk_d2_split((double) s->d2[r], s->d2_scale, &hi, &lo);
				sum += v % 4 == 0 ? hi : lo;
			}
		}
		if (v % 4 == 3)
			s->part[u].f = most;
		else
			s->part[u].i = sum;
	}
	GK_MEET();
	for (int v = GK_RANK; v < values; v += GK_SIZE)
	{
		int64_t		sum = 0;
		double		most = 0.0;

		for (int p = 0; p < share; p++)
			if (v % 4 == 3)
				most = s->part[p * values + v].f > most ? s->part[p * values + v].f : most;
			else
				sum += s->part[p * values + v].i;
		if (v % 4 == 0)
			s->hi[v / 4] = sum;
		else if (v % 4 == 1)
			s->lo[v / 4] = sum;
		else if (v % 4 == 2)
			s->size[v / 4] = (int32_t) sum;
		else
			s->max_d2[v / 4] = (float) most;
	}
	GK_MEET();
}

/* Leave out clusters without points; one thread does it, all know how many are left. */
GK_TEAM void
gk_block_drop_empty(GkBlockFit *s)
{
	int			d = s->d;
	int			left = 0;
	int			to = 0;

	for (int i = 0; i < s->k; i++)
		left += s->size[i] != 0;
	GK_MEET();
	for (int i = 0; GK_RANK == 0 && i < s->k; i++)
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
	GK_MEET();
}

/* As gk_finish(). */
GK_TEAM void
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
			for (int i = GK_RANK; i < s->k; i += GK_SIZE)
				s->count[i] = s->size[i];
			GK_MEET();
			counted = false;
			order_passes = 0;
		}
		else
			gk_block_drop_empty(s);
	}
}

/* ---- all of it ---- */

GK_TEAM void
gk_block_load(const GkBlockFit *s, const char *in)
{
	const double *columns = (const double *) in;
	const float *x = (const float *) (columns + 2 * s->d);
	const int32_t *expo = (const int32_t *) (x + (size_t) s->n * s->d);

	for (int i = GK_RANK; i < s->n * s->d; i += GK_SIZE)
		s->x[i] = x[i];
	for (int j = GK_RANK; j < s->d; j += GK_SIZE)
	{
		s->center[j] = columns[j];
		s->scale[j] = columns[s->d + j];
		s->expo[j] = expo[j];
		s->inv[j] = gk_pow2(GK_GRID_BITS - expo[j]);
	}
	GK_MEET();
}

GK_TEAM void
gk_block_store(const GkBlockFit *s, const GkGroupBatchOut *out, int iterations, bool converged)
{
	for (int v = GK_RANK; v < s->k * s->d; v += GK_SIZE)
		out->centroid[v] = s->c[v];
	for (int i = GK_RANK; i < s->k; i += GK_SIZE)
	{
		out->size[i] = s->size[i];
		out->hi[i] = s->hi[i];
		out->lo[i] = s->lo[i];
		out->max_d2[i] = s->max_d2[i];
	}
	if (GK_RANK == 0)
	{
		out->head->k = s->k;
		out->head->iterations = iterations;
		out->head->converged = converged;
		out->head->unused = 0;
	}
}

/* Cluster group g of a slot, in memory of gk_block_bytes(). */
GK_TEAM void
gk_block_group(const GkGroupBatchTask *task, const GkGroupBatchItem *g, char *slot, char *memory)
{
	GkBlockFit		s;
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
		GK_MEET();
	}
}

#endif							/* GK_GPU_BLOCK_LLOYD_H */
