/*
 * gk_cpu_hamerly_search.c - the rows of a block that bounds (gk_cpu_hamerly.c) leave open.
 *
 * Tiles are looked over; open rows are listed and searched in dense tiles, or, where most
 * of a tile is open, the tile as it is.  With groups of centroids (gk_cpu_exponion.c) the
 * list is sorted, so that the rows of a tile have groups in common.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Skip groups of centroids farther from a point's own than this many times its upper bound. */
#define REACH			2.25f

typedef struct Search
{
	GkSession  *s;
	GkCpuHamerly *h;
	GkHamerlyScratch *own;
	const GkBlock *b;
	const float *c;
	int			k;
	/* Of the block's rows. */
	int32_t    *label;
	float	   *slack;
	float	   *lower;			/* NULL: not kept */
	float	   *tile_slack;		/* of its tiles */
	int			open;			/* rows in the list */
	int			changes;
} Search;

/* A tile has a row of that margin. */
static inline void
lower_tile(Search *w, int tile, float margin)
{
	float		slack = gk_taken_off(margin, w->h->travel_up);

	if (!(slack >= w->tile_slack[tile]))
		w->tile_slack[tile] = slack;
}

/*
 * Keep the bounds of row `row`, the i-th of the scratch's; return its margin.  searched: if that is not above 0, they
 * are still those of its cluster, which has to reach so far; else the row will be searched.
 */
static inline float
keep(Search *w, int row, int i, bool searched)
{
	const GkHamerlyScratch *own = w->own;
	int			label = own->label[i];
	GkReach    *reach = &own->reach[label];
	float		gap = own->lower[i] - own->upper[i];
	float		margin = own->slack[i] - w->h->limit[label];

	w->slack[row] = own->slack[i];
	if (!(own->upper[i] <= reach->upper) && (searched || margin > 0.0f))
		reach->upper = own->upper[i];
	if (!(gap <= reach->gap) && (searched || margin > 0.0f))
		reach->gap = gap;
	return margin;
}

/* The scratch's n rows have been searched: row i is row[i] of the block, or first + i. */
static void
decide(Search *w, const int32_t *row, int first, int n)
{
	const GkCpuHamerly *h = w->h;
	GkHamerlyScratch *own = w->own;

	own->done.searched += n;
	w->s->kernels->margin(&h->margin, own->label, own->d2, own->second, own->upper, own->lower, own->slack);
	for (int i = 0; i < n; i++)
	{
		int			r = row != NULL ? row[i] : first + i;
		int32_t		label = own->label[i];

		if (w->label[r] != label)
		{
			own->change[w->changes++] = (GkLabelChange) {r, w->label[r]};
			w->label[r] = label;
		}
		if (w->lower != NULL)
			w->lower[r] = gk_taken_off(own->lower[i], h->near_limit[label]);
		lower_tile(w, r / GK_ROW_PAD, keep(w, r, i, true));
	}
}

/* Compare a tile with no centroid yet. */
static void
search_none(GkHamerlyScratch *own)
{
	for (int i = 0; i < GK_ROW_PAD; i++)
	{
		own->label[i] = 0;
		own->d2[i] = own->second[i] = INFINITY;
	}
}

/* Compare a tile with all centroids. */
static void
search_all(Search *w, const GkTiles *x)
{
	GkHamerlyScratch *own = w->own;

	search_none(own);
	w->s->kernels->assign_two(x, w->c, 0, w->k, own->label, own->d2, own->second);
}

/* Search tile t of the block as it stands. */
static void
search_tile(Search *w, int t, int rows)
{
	const GkBlock *b = w->b;
	GkTiles		x = {.x = b->chunk->data + b->row + t * GK_ROW_PAD,.tile = GK_ROW_PAD,
	.stride = b->chunk->stride,.count = 1,.d = w->s->pts->d};

	search_all(w, &x);
	decide(w, NULL, t * GK_ROW_PAD, rows);
}

/*
 * Compute the upper bounds of the listed rows anew, from the distance to their own centroid;
 * those that this settles leave the list.
 */
static void
tighten(Search *w)
{
	const GkBlock *b = w->b;
	const GkCpuHamerly *h = w->h;
	GkHamerlyScratch *own = w->own;
	int			left = 0;

	own->done.tightened += w->open;
	for (int from = 0; from < w->open; from += GK_ROW_PAD)
	{
		int			n = w->open - from < GK_ROW_PAD ? w->open - from : GK_ROW_PAD;
		const int32_t *row = own->list + from;

		for (int i = 0; i < GK_ROW_PAD; i++)
			own->label[i] = i < n ? w->label[row[i]] : 0;
		w->s->kernels->own_distance(b->chunk->data + b->row, b->chunk->stride, row, own->label, n,
									w->c, w->s->pts->d, own->d2);
		for (int i = 0; i < n; i++)
		{
			float		lower = h->fresh ? 0.0f : gk_taken_off(w->lower[row[i]] - h->near_limit[own->label[i]], 0.0f);

			own->second[i] = lower > 0.0f ? lower * lower : 0.0f;
		}
		w->s->kernels->margin(&h->margin, own->label, own->d2, own->second, own->upper, own->lower, own->slack);
		for (int i = 0; i < n; i++)
		{
			int			r = row[i];
			float		margin = keep(w, r, i, false);
			bool		open = !(margin > 0.0f);
			float		slack = gk_taken_off(open ? FLT_MAX : margin, h->travel_up);
			float	   *least = &w->tile_slack[r / GK_ROW_PAD];

			/* Without branches: they would go either way. */
			own->list_upper[left] = own->upper[i];
			own->list[left] = r;
			left += open;
			*least = slack < *least ? slack : *least;
		}
	}
	w->open = left;
}

/* Gather rows of the block in a tile. */
static GkTiles
gather(const Search *w, const int32_t *row, int n)
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

/* Search the listed rows, gathered in tiles. */
static void
search_list(Search *w)
{
	for (int from = 0; from < w->open; from += GK_ROW_PAD)
	{
		int			n = w->open - from < GK_ROW_PAD ? w->open - from : GK_ROW_PAD;
		GkTiles		x = gather(w, w->own->list + from, n);

		search_all(w, &x);
		decide(w, w->own->list + from, 0, n);
	}
}

/* ---- with groups of centroids ---- */

/* The group of a row's label. */
static int
group_of(const Search *w, int row)
{
	return w->s->exponion.place[w->label[row]] / GK_EXPONION_GROUP;
}

static void
sort_list(Search *w)
{
	GkHamerlyScratch *own = w->own;
	int			groups = w->s->exponion.count;
	int			before = 0;

	memset(own->start, 0, groups * sizeof(int32_t));
	for (int i = 0; i < w->open; i++)
		own->start[group_of(w, own->list[i])]++;
	for (int i = 0; i < groups; i++)
	{
		int			count = own->start[i];

		own->start[i] = before;
		before += count;
	}
	for (int i = 0; i < w->open; i++)
		own->order[own->start[group_of(w, own->list[i])]++] = i;
}

/*
 * Note which groups matter to rows first .. end-1 of the order, which are of group a;
 * return how far the others are from it, at least.
 */
static float
note_near(Search *w, int a, int first, int end)
{
	GkHamerlyScratch *own = w->own;
	int			groups = w->s->exponion.count;
	const float *apart = w->s->exponion.apart + (size_t) a * groups;
	float		upper = 0.0f;
	float		rest = INFINITY;

	for (int i = first; i < end; i++)
		upper = own->list_upper[own->order[i]] > upper ? own->list_upper[own->order[i]] : upper;
	upper *= REACH;
	for (int i = 0; i < groups; i++)
	{
		bool		near = apart[i] < upper;

		own->near[i] |= near;
		rest = !near && apart[i] < rest ? apart[i] : rest;
	}
	own->near[a] = true;
	return rest;
}

/* Compare a tile with the groups that matter. */
static void
search_near(Search *w, const GkTiles *x)
{
	const GkCpuExponion *e = &w->s->exponion;
	GkHamerlyScratch *own = w->own;

	search_none(own);
	own->done.all_groups += e->count;
	for (int i = 0, end; i < e->count; i = end + 1)
	{
		for (end = i; end < e->count && own->near[end];)
			end++;
		if (end > i)
			w->s->kernels->assign_two(x, e->c, i * GK_EXPONION_GROUP,
									  end * GK_EXPONION_GROUP < w->k ? end * GK_EXPONION_GROUP : w->k,
									  own->label, own->d2, own->second);
		own->done.groups += end - i;
	}
}

/* Search rows from .. from + n - 1 of the order. */
static void
search_groups(Search *w, int from, int n)
{
	GkHamerlyScratch *own = w->own;
	int32_t		row[GK_ROW_PAD];
	float		rest[GK_ROW_PAD];
	GkTiles		x;
	bool		tie = false;

	for (int i = 0; i < n; i++)
		row[i] = own->list[own->order[from + i]];
	x = gather(w, row, n);
	memset(own->near, 0, w->s->exponion.count);
	for (int first = 0, end; first < n; first = end)
	{
		int			a = group_of(w, row[first]);

		end = first + 1;
		while (end < n && group_of(w, row[end]) == a)
			end++;
		rest[first] = note_near(w, a, from + first, from + end);
		for (int i = first + 1; i < end; i++)
			rest[i] = rest[first];
	}
	search_near(w, &x);
	for (int i = 0; i < n; i++)
	{
		tie |= !(own->second[i] > own->d2[i]);
		own->label[i] = w->s->exponion.cluster[own->label[i]];
	}
	if (tie)					/* the first cluster is wanted, not that of the first place */
		search_all(w, &x);
	else
		for (int i = 0; i < n; i++)
		{
			float		upper = own->list_upper[own->order[from + i]];
			float		away = (rest[i] - upper) * (1.0f - 0x1p-20f) - upper * 0x1p-20f;

			away = away > 0.0f ? away * away : 0.0f;
			own->second[i] = away < own->second[i] ? away : own->second[i];
		}
	decide(w, row, 0, n);
}

static void
search_sorted(Search *w)
{
	sort_list(w);
	for (int from = 0; from < w->open; from += GK_ROW_PAD)
		search_groups(w, from, w->open - from < GK_ROW_PAD ? w->open - from : GK_ROW_PAD);
}

/* ---- the block ---- */

/* A new epoch: count the moves from here on. */
static void
rebase(Search *w)
{
	const GkCpuHamerly *h = w->h;

	for (int i = 0; i < w->b->rows; i++)
		w->slack[i] = gk_taken_off(w->slack[i] - h->limit_before[w->label[i]], 0.0f);
	for (int i = 0; w->lower != NULL && i < w->b->rows; i++)
		w->lower[i] = gk_taken_off(w->lower[i] - h->near_limit_before[w->label[i]], 0.0f);
	for (int t = 0; t < w->b->tiles; t++)
		w->tile_slack[t] = gk_taken_off(w->tile_slack[t] - h->travel_before, 0.0f);
}

/* Ask for the open rows of a tile, which are looked at soon. */
static void
fetch(const Search *w, int first, uint64_t open)
{
	const GkBlock *b = w->b;

	for (int i = 0; i < GK_ROW_PAD; i += 16)
		if ((open >> i & 0xffff) != 0)
			for (int j = 0; j < w->s->pts->d; j++)
				__builtin_prefetch(b->chunk->data + b->row + (size_t) j * b->chunk->stride + first + i, 0, 2);
}

/* Look over tile t: search it, or list its open rows. */
static void
look(Search *w, int t)
{
	const GkCpuHamerly *h = w->h;
	int			first = t * GK_ROW_PAD;
	int			rows = w->b->rows - first < GK_ROW_PAD ? w->b->rows - first : GK_ROW_PAD;
	uint64_t	open = rows < GK_ROW_PAD ? (UINT64_C(1) << rows) - 1 : ~UINT64_C(0);
	float		least = INFINITY;

	if (!h->fresh)
		open &= w->s->kernels->open_rows(w->slack + first, w->label + first, h->limit, &least);
	w->tile_slack[t] = INFINITY;
	w->own->done.tiles++;
	if (__builtin_popcountll(open) > h->dense_rows)
	{
		search_tile(w, t, rows);
		return;
	}
	if (least < INFINITY)
		lower_tile(w, t, least);
	fetch(w, first, open);
	for (; open != 0; open &= open - 1)
		w->own->list[w->open++] = first + __builtin_ctzll(open);
}

const GkLabelChange *
gk_cpu_hamerly_block(GkSession *s, const GkBlock *b, const float *centroids, int k, int *changes)
{
	GkCpuHamerly *h = &s->hamerly;
	Search		w = {.s = s,.h = h,.own = gk_hamerly_scratch(h, b->thread),.b = b,.c = centroids,.k = k,
		.label = s->previous + b->slot,.slack = h->slack + b->slot,
		.lower = h->lower != NULL ? h->lower + b->slot : NULL,.tile_slack = h->tile_slack + b->slot / GK_ROW_PAD};

	if (h->rebase)
		rebase(&w);
	/* rows past the last one, in its tile's vectors, never have the least slack */
	for (int i = b->rows; h->fresh && i < b->tiles * GK_ROW_PAD; i++)
		w.slack[i] = INFINITY;
	for (int t = 0; t < b->tiles; t++)
		if (h->fresh || !(w.tile_slack[t] > h->travel_up))
			look(&w, t);
	if (h->grouped || h->tighten)
		tighten(&w);
	if (h->grouped)
		search_sorted(&w);
	else
		search_list(&w);
	*changes = w.changes;
	return w.own->change;
}
