/*
 * gk_cpu_hamerly_search.c - the rows of a block that bounds (gk_cpu_hamerly.c) do not settle.
 *
 * Tiles are looked over; rows that are left are listed and searched in dense tiles, or,
 * where most of a tile is left, the tile as it is.  With bundles (gk_cpu_exponion.c) the
 * list is sorted, so that the rows of a tile have bundles in common.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_hamerly.h"

/* Bundles so many times a point's upper bound away from its centroid are not looked into. */
#define REACH			2.25f

typedef struct Work
{
	GkSession  *s;
	GkCpuHamerly *bounds;
	const GkBlock *b;
	GkHamerlyScratch *own;
	GkReach    *reach;			/* [k] of this thread's points */
	int32_t    *list;			/* [rows] of the block, to be decided */
	int			count;
	float	   *upper;			/* [rows] upper bounds of those in the list, once settled */
	/* With bundles. */
	int32_t    *order;			/* [rows] the list by bundles */
	int32_t    *start;			/* [bundles] where the next one of a bundle goes */
	uint8_t    *near;			/* [bundles] */
	const float *c;
	int			k;
	int32_t    *label;			/* of the block's rows */
	int			changed;
} Work;

/* A tile with one more row of that margin. */
static inline void
lower_tile(GkCpuHamerly *b, int64_t tile, float margin)
{
	float	   *left = (float *) b->tile.p + tile;
	float		slack = gk_taken_off(margin, b->travel_up);

	if (!(slack >= *left))
		*left = slack;
}

/* Keep the bounds of row `row`, the i-th of the scratch's; its margin. */
static inline float
keep(Work *w, int row, int i)
{
	const GkHamerlyScratch *own = w->own;
	GkCpuHamerly *bounds = w->bounds;
	int64_t		at = w->b->slot + row;
	int			label = own->label[i];
	GkReach    *reach = &w->reach[label];
	float		limit = ((float *) bounds->limit.p)[label];
	float		gap = own->lower[i] - own->upper[i];

	((float *) bounds->slack.p)[at] = own->slack[i];
	if (!(own->upper[i] <= reach->upper))
		reach->upper = own->upper[i];
	if (!(gap <= reach->gap))
		reach->gap = gap;
	return own->slack[i] - limit;
}

/* The scratch's n rows have been searched: row i is row[i] of the block, or first + i. */
static void
decide(Work *w, const int32_t *row, int first, int n)
{
	GkCpuHamerly *bounds = w->bounds;
	GkHamerlyScratch *own = w->own;
	float	   *floor = bounds->floor.p != NULL ? (float *) bounds->floor.p + w->b->slot : NULL;
	const float *largest = bounds->largest_up.p;

	own->searched += n;
	w->s->kernels->margin(&bounds->margin, own->label, own->d2, own->second,
						  own->upper, own->lower, own->slack);
	for (int i = 0; i < n; i++)
	{
		int			r = row != NULL ? row[i] : first + i;
		int32_t		label = own->label[i];

		if (w->label[r] != label)
		{
			w->b->label[w->changed] = r;
			((int32_t *) w->b->d2)[w->changed++] = w->label[r];
			w->label[r] = label;
		}
		if (floor != NULL)
			floor[r] = gk_taken_off(own->lower[i], largest[label]);
		lower_tile(bounds, (w->b->slot + r) / GK_ROW_PAD, keep(w, r, i));
	}
}

/* A tile against no centroid yet. */
static void
search_none(GkHamerlyScratch *own)
{
	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		own->label[i] = 0;
		own->d2[i] = own->second[i] = INFINITY;
	}
}

/* A tile against all centroids. */
static void
search_all(Work *w, const GkTiles *x)
{
	GkHamerlyScratch *own = w->own;

	search_none(own);
	w->s->kernels->second(x, w->c, 0, w->k, own->label, own->d2, own->second);
}

/* Tile t of the block as it stands. */
static void
search_tile(Work *w, int t, int rows)
{
	const GkBlock *b = w->b;
	GkTiles		x = {.x = b->chunk->data + b->row + t * GK_ROW_PAD,.tile = GK_ROW_PAD,
	.stride = b->chunk->stride,.count = 1,.d = w->s->pts->d};

	search_all(w, &x);
	decide(w, NULL, t * GK_ROW_PAD, rows);
}

/*
 * Upper bounds of the listed rows, from the true distance to their own centroid; those
 * that they settle leave the list.
 */
static void
settle(Work *w)
{
	const GkBlock *b = w->b;
	GkCpuHamerly *bounds = w->bounds;
	GkHamerlyScratch *own = w->own;
	const float *largest = bounds->largest_up.p;
	const float *floor = (float *) bounds->floor.p + b->slot;
	float	   *tile = (float *) bounds->tile.p + b->slot / GK_ROW_PAD;
	int			left = 0;

	own->tightened += w->count;
	for (int from = 0; from < w->count; from += GK_ROW_PAD)
	{
		int			n = w->count - from < GK_ROW_PAD ? w->count - from : GK_ROW_PAD;
		const int32_t *row = w->list + from;

		for (int i = 0; i < GK_ROW_PAD; i++)
			own->label[i] = i < n ? w->label[row[i]] : 0;
		w->s->kernels->own(b->chunk->data + b->row, b->chunk->stride, row, own->label, n,
						   w->c, w->s->pts->d, own->d2);
		for (int i = 0; i < n; i++)
		{
			float		lower = bounds->fresh ? 0.0f : gk_taken_off(floor[row[i]] - largest[own->label[i]], 0.0f);

			own->second[i] = lower > 0.0f ? lower * lower : 0.0f;
		}
		w->s->kernels->margin(&bounds->margin, own->label, own->d2, own->second,
							  own->upper, own->lower, own->slack);
		for (int i = 0; i < n; i++)
		{
			int			r = row[i];
			float		margin = keep(w, r, i);
			bool		open = !(margin > 0.0f);
			float		slack = gk_taken_off(open ? FLT_MAX : margin, bounds->travel_up);
			float	   *least = &tile[r / GK_ROW_PAD];

			/* No branches, they would go either way. */
			w->upper[left] = own->upper[i];
			w->list[left] = r;
			left += open;
			*least = slack < *least ? slack : *least;
		}
	}
	w->count = left;
}

/* Rows of the block as a tile. */
static GkTiles
gather(const Work *w, const int32_t *row, int n)
{
	const GkBlock *b = w->b;
	int			d = w->s->pts->d;

	for (int j = 0; j < d; j++)
	{
		const float *col = b->chunk->data + b->row + (size_t) j * b->chunk->stride;
		float	   *to = w->own->gathered + (size_t) j * GK_ROW_PAD;

		for (int i = 0; i < n; i++)
			to[i] = col[row[i]];
		for (int i = n; i < GK_ROW_PAD; i++)
			to[i] = to[0];
	}
	return (GkTiles) {.x = w->own->gathered,.tile = 0,.stride = GK_ROW_PAD,.count = 1,.d = d};
}

/* The listed rows, gathered in tiles. */
static void
search_list(Work *w)
{
	for (int from = 0; from < w->count; from += GK_ROW_PAD)
	{
		int			n = w->count - from < GK_ROW_PAD ? w->count - from : GK_ROW_PAD;
		GkTiles		x = gather(w, w->list + from, n);

		search_all(w, &x);
		decide(w, w->list + from, 0, n);
	}
}

/* ---- with bundles ---- */

static int
bundle_of(const Work *w, int row)
{
	return ((int32_t *) w->s->bundles.place.p)[w->label[row]] / GK_EXPONION_GROUP;
}

static void
sort_list(Work *w)
{
	int			bundles = w->s->bundles.count;
	int			before = 0;

	memset(w->start, 0, bundles * sizeof(int32_t));
	for (int i = 0; i < w->count; i++)
		w->start[bundle_of(w, w->list[i])]++;
	for (int i = 0; i < bundles; i++)
	{
		int			count = w->start[i];

		w->start[i] = before;
		before += count;
	}
	for (int i = 0; i < w->count; i++)
		w->order[w->start[bundle_of(w, w->list[i])]++] = i;
}

/*
 * Note which bundles matter to rows first .. end-1 of the order, which are of bundle a;
 * how far the others are from it, at least.
 */
static float
note_near(Work *w, int a, int first, int end)
{
	int			bundles = w->s->bundles.count;
	const float *apart = (float *) w->s->bundles.apart.p + (size_t) a * bundles;
	float		upper = 0.0f;
	float		rest = INFINITY;

	for (int i = first; i < end; i++)
		upper = w->upper[w->order[i]] > upper ? w->upper[w->order[i]] : upper;
	upper *= REACH;
	for (int i = 0; i < bundles; i++)
	{
		bool		near = apart[i] < upper;

		w->near[i] |= near;
		rest = !near && apart[i] < rest ? apart[i] : rest;
	}
	w->near[a] = true;
	return rest;
}

/* A tile of rows against the bundles that matter. */
static void
search_near(Work *w, const GkTiles *x)
{
	const GkCpuExponion *b = &w->s->bundles;
	GkHamerlyScratch *own = w->own;

	search_none(own);
	own->all += b->count;
	for (int i = 0; i < b->count;)
	{
		int			end = i;

		while (end < b->count && w->near[end])
			end++;
		if (end > i)
			w->s->kernels->second(x, b->c.p, i * GK_EXPONION_GROUP, end * GK_EXPONION_GROUP < w->k ? end * GK_EXPONION_GROUP : w->k,
								  own->label, own->d2, own->second);
		own->looked += end - i;
		i = end + 1;
	}
}

/* Rows from .. from + n - 1 of the order. */
static void
search_bundles(Work *w, int from, int n)
{
	GkHamerlyScratch *own = w->own;
	const int32_t *cluster = w->s->bundles.cluster.p;
	int32_t		row[GK_ROW_PAD];
	float		rest[GK_ROW_PAD];
	GkTiles		x;
	bool		tie = false;

	for (int i = 0; i < n; i++)
		row[i] = w->list[w->order[from + i]];
	x = gather(w, row, n);
	memset(w->near, 0, w->s->bundles.count);
	for (int first = 0, end; first < n; first = end)
	{
		int			a = bundle_of(w, row[first]);

		end = first + 1;
		while (end < n && bundle_of(w, row[end]) == a)
			end++;
		rest[first] = note_near(w, a, from + first, from + end);
		for (int i = first + 1; i < end; i++)
			rest[i] = rest[first];
	}
	search_near(w, &x);
	for (int i = 0; i < n; i++)
	{
		tie |= !(own->second[i] > own->d2[i]);
		own->label[i] = cluster[own->label[i]];
	}
	if (tie)					/* the first cluster is wanted, not that of the first place */
		search_all(w, &x);
	else
		for (int i = 0; i < n; i++)
		{
			float		upper = w->upper[w->order[from + i]];
			float		away = (rest[i] - upper) * (1.0f - 0x1p-20f) - upper * 0x1p-20f;

			away = away > 0.0f ? away * away : 0.0f;
			own->second[i] = away < own->second[i] ? away : own->second[i];
		}
	decide(w, row, 0, n);
}

static void
search_sorted(Work *w)
{
	sort_list(w);
	for (int from = 0; from < w->count; from += GK_ROW_PAD)
		search_bundles(w, from, w->count - from < GK_ROW_PAD ? w->count - from : GK_ROW_PAD);
}

/* ---- the block ---- */

/* A new epoch: count the moves from here on. */
static void
rebase(const GkCpuHamerly *bounds, const GkBlock *b, const int32_t *label)
{
	float	   *slack = (float *) bounds->slack.p + b->slot;
	float	   *floor = bounds->floor.p != NULL ? (float *) bounds->floor.p + b->slot : NULL;
	float	   *tile = (float *) bounds->tile.p + b->slot / GK_ROW_PAD;
	const float *before = bounds->limit_before.p;
	const float *largest = bounds->largest_before.p;

	for (int i = 0; i < b->rows; i++)
		slack[i] = gk_taken_off(slack[i] - before[label[i]], 0.0f);
	for (int i = 0; floor != NULL && i < b->rows; i++)
		floor[i] = gk_taken_off(floor[i] - largest[label[i]], 0.0f);
	for (int t = 0; t < b->tiles; t++)
		tile[t] = gk_taken_off(tile[t] - bounds->travel_before, 0.0f);
}

/* Rows of a tile will be looked at soon. */
static void
fetch(const Work *w, int first, uint64_t open)
{
	const GkBlock *b = w->b;

	for (int i = 0; i < GK_ROW_PAD; i += 16)
		if ((open >> i & 0xffff) != 0)
			for (int j = 0; j < w->s->pts->d; j++)
				__builtin_prefetch(b->chunk->data + b->row + (size_t) j * b->chunk->stride + first + i, 0, 2);
}

size_t
gk_hamerly_scratch_bytes(const GkSession *s, int rows, int k)
{
	size_t		bytes = sizeof(GkHamerlyScratch) + k * (sizeof(GkReach) + sizeof(int32_t) + sizeof(uint8_t)) +
		((size_t) s->pts->d * GK_ROW_PAD + 3 * rows) * sizeof(float);

	return (bytes + 127) / 64 * 64;
}

int
gk_cpu_hamerly_block(GkSession *s, const GkBlock *b, const float *centroids, int k)
{
	GkCpuHamerly *bounds = &s->bounds;
	Work		w = {.s = s,.bounds = bounds,.b = b,.c = centroids,.k = k};
	float	   *tile = (float *) bounds->tile.p + b->slot / GK_ROW_PAD;

	w.own = gk_hamerly_scratch(bounds, b->thread);
	w.reach = gk_hamerly_reach(s, w.own);
	w.list = (int32_t *) (w.reach + k);
	w.upper = (float *) (w.list + bounds->rows);
	w.order = w.list + 2 * (size_t) bounds->rows;
	w.start = w.order + bounds->rows;
	w.near = (uint8_t *) (w.start + k);
	w.label = (int32_t *) s->previous.p + b->slot;
	if (bounds->rebase)
		rebase(bounds, b, w.label);
	for (int i = b->rows; bounds->fresh && i < b->tiles * GK_ROW_PAD; i++)
		((float *) bounds->slack.p)[b->slot + i] = INFINITY;	/* the rest of the last tile's vectors never has the least */
	for (int t = 0; t < b->tiles; t++)
	{
		int			first = t * GK_ROW_PAD;
		int			rows = b->rows - first < GK_ROW_PAD ? b->rows - first : GK_ROW_PAD;
		uint64_t	open = rows < GK_ROW_PAD ? (UINT64_C(1) << rows) - 1 : ~UINT64_C(0);
		float		least = INFINITY;

		if (!bounds->fresh)
		{
			if (tile[t] > bounds->travel_up)
				continue;
			open &= s->kernels->tight((float *) bounds->slack.p + b->slot + first, w.label + first,
									  bounds->limit.p, &least);
		}
		tile[t] = INFINITY;
		w.own->tiles++;
		if (__builtin_popcountll(open) > bounds->dense)
		{
			search_tile(&w, t, rows);
			continue;
		}
		if (least < INFINITY)
			lower_tile(bounds, b->slot / GK_ROW_PAD + t, least);
		fetch(&w, first, open);
		for (; open != 0; open &= open - 1)
			w.list[w.count++] = first + __builtin_ctzll(open);
	}
	if (bounds->bundled || bounds->tighten)
		settle(&w);
	if (bounds->bundled)
		search_sorted(&w);
	else
		search_list(&w);
	return w.changed;
}
