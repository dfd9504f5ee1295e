/*
 * gk_balanced_near.c - the cheapest moves of a row from one cluster to another.
 *
 * Few rows of a cluster are ever moved, so a pair of clusters has a heap of its cheapest moves only, and a
 * last one beyond which rows are not in it.  When the heap is used up, the rows of the cluster are gone
 * through again.
 */
#include "core/balanced/gk_balanced.h"

static inline bool
before(GkMove a, GkMove b)
{
	return a.cost < b.cost || (a.cost == b.cost && a.row < b.row);
}

/* Sift the element at i down; last_first: the heap has its last element first. */
static void
sift_down(GkMove *heap, int count, int i, bool last_first)
{
	GkMove		m = heap[i];

	for (;;)
	{
		int			child = 2 * i + 1;

		if (child >= count)
			break;
		if (child + 1 < count && before(heap[child + 1], heap[child]) != last_first)
			child++;
		if (before(heap[child], m) == last_first)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = m;
}

static void
sift_up(GkMove *heap, int i, bool last_first)
{
	GkMove		m = heap[i];

	while (i > 0 && before(m, heap[(i - 1) / 2]) != last_first)
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = m;
}

/*
 * Keep the cheapest moves, the last one first.  It is compared where it stands beside those of other
 * clusters: the heaps are a power of two apart, and would push each other out of the cache.
 */
static inline void
offer(const GkFlow *f, GkNear *near, GkMove *heap, GkMove m)
{
	if (near->count < f->room)
	{
		heap[near->count] = m;
		sift_up(heap, near->count++, true);
	}
	else
	{
		near->complete = false;
		if (!before(m, near->last))
			return;
		heap[0] = m;
		sift_down(heap, near->count, 0, true);
	}
	near->last = heap[0];
}

/* All are offered: turn the heap round. */
static void
close_heap(GkNear *near, GkMove *heap)
{
	for (int i = near->count / 2 - 1; i >= 0; i--)
		sift_down(heap, near->count, i, false);
}

/* List the moves from a to clusters b0 .. b1 - 1. */
static void
fill(GkFlow *f, int a, int b0, int b1)
{
	GkNear	   *near = f->near + (size_t) a * f->k;

	for (int b = b0; b < b1; b++)
		near[b] = (GkNear) {.complete = true};
	for (int32_t row = f->head[a]; row >= 0; row = f->next[row])
	{
		int64_t		own = gk_flow_cost(f, row, a);

		for (int b = b0; b < b1; b++)
			if (b != a)
				offer(f, &near[b], gk_near_moves(f, a, b), (GkMove) {gk_flow_cost(f, row, b) - own, row});
	}
	for (int b = b0; b < b1; b++)
		close_heap(&near[b], gk_near_moves(f, a, b));
}

void
gk_near_fill(GkFlow *f, int a)
{
	fill(f, a, 0, f->k);
	gk_near_edges(f, a);
}

static void
refill(GkFlow *f, int a, int b)
{
	fill(f, a, b, b + 1);
	f->work += f->size[a];
}

void
gk_near_add(GkFlow *f, int a, int32_t row)
{
	int64_t		own = gk_flow_cost(f, row, a);

	for (int b = 0; b < f->k; b++)
	{
		GkNear	   *near = &f->near[(size_t) a * f->k + b];
		GkMove	   *heap = gk_near_moves(f, a, b);
		GkMove		m = {gk_flow_cost(f, row, b) - own, row};

		if (b == a || !(near->complete || before(m, near->last)))
			continue;
		if (near->count == 2 * f->room)
		{
			/* the row is one of the cluster's by now */
			refill(f, a, b);
			continue;
		}
		heap[near->count] = m;
		sift_up(heap, near->count++, false);
	}
}

void
gk_near_edges(GkFlow *f, int a)
{
	for (int b = 0; b < f->k; b++)
	{
		GkNear	   *near = &f->near[(size_t) a * f->k + b];
		GkMove	   *heap = gk_near_moves(f, a, b);

		if (b == a)
			continue;
		while (near->count > 0 && f->label[heap[0].row] != a)
		{
			heap[0] = heap[--near->count];
			sift_down(heap, near->count, 0, false);
		}
		if (near->count == 0 && !near->complete)
			refill(f, a, b);
		f->edge[(size_t) a * f->k + b] = near->count > 0 ? heap[0].cost : INT64_MAX;
	}
}
