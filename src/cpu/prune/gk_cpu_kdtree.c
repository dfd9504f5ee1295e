/*
 * gk_cpu_kdtree.c - a k-d tree of a sample of the points, for gk_cpu_seed_index.c.
 *
 * Each node cuts its rows in halves along the feature that they differ most in.  The
 * sampled rows end up leaf by leaf, so those next to each other also tell how large the
 * box of a tile will be, at most, and whether candidates for seeds can leave it out.
 */
#include <math.h>
#include <string.h>

#include "cpu/prune/gk_cpu_prune.h"

/* The sample is one row of these, ... */
#define SAMPLE_OF		32
/* ... as many rows of it make a leaf, and there are no more leaves than that. */
#define LEAF_SAMPLE		8
#define MAX_LEAVES		4096
/* Rows that tell how far apart the features of a node are. */
#define SPREAD_ROWS		32
/* Sampled rows in a box that stands for a tile's. */
#define BOX_ROWS		64

static int
widest_feature(const GkTree *t, const GkKey *key, int count)
{
	int			step = (count + SPREAD_ROWS - 1) / SPREAD_ROWS;
	float		widest = -1.0f;
	int			feature = 0;

	for (int j = 0; j < t->d; j++)
	{
		float		sum = 0.0f;
		float		squares = 0.0f;
		float		first = t->x[(size_t) key[0].row * t->d + j];

		for (int i = 0; i < count; i += step)
		{
			float		v = t->x[(size_t) key[i].row * t->d + j] - first;

			sum += v;
			squares += v * v;
		}
		squares -= sum * sum * (float) step / (float) count;
		if (squares > widest)
		{
			widest = squares;
			feature = j;
		}
	}
	return feature;
}

/* Put the key in the middle by value at its place, smaller ones before it (Hoare). */
static void
halve(GkKey *key, int count)
{
	int			lo = 0;
	int			hi = count - 1;

	while (lo < hi)
	{
		float		pivot = key[lo + (hi - lo) / 2].v;
		int			i = lo;
		int			j = hi;

		while (i <= j)
		{
			while (key[i].v < pivot)
				i++;
			while (pivot < key[j].v)
				j--;
			if (i <= j)
			{
				GkKey		swap = key[i];

				key[i++] = key[j];
				key[j--] = swap;
			}
		}
		if (count / 2 <= j)
			hi = j;
		else if (count / 2 >= i)
			lo = i;
		else
			break;
	}
}

static void
divide(GkTree *t, int node, GkKey *key, int count)
{
	int			half = count / 2;
	int			feature;

	if (node >= (1 << t->levels) - 1)
		return;
	feature = widest_feature(t, key, count);
	for (int i = 0; i < count; i++)
		key[i].v = t->x[(size_t) key[i].row * t->d + feature];
	halve(key, count);
	t->split[node] = (GkSplit) {key[half].v, feature};
	divide(t, 2 * node + 1, key, half);
	divide(t, 2 * node + 2, key + half, count - half);
}

/* Take rows at equal distances, and their D. */
static void
take_sample(const GkSession *s, GkTree *t)
{
	const GkPoints *p = s->pts;
	int			chunk = 0;

	for (int i = 0; i < t->rows; i++)
	{
		int64_t		row = p->n / t->rows * i;
		const GkChunk *c;

		while (row >= p->chunks[chunk].first + p->chunks[chunk].rows)
			chunk++;
		c = &p->chunks[chunk];
		for (int j = 0; j < t->d; j++)
			t->x[(size_t) i * t->d + j] = c->data[(size_t) j * c->stride + (row - c->first)];
		t->d2[i] = c->mind2[row - c->first];
		t->key[i].row = i;
	}
}

/* The share of tiles that candidates have to look at: sampled neighbours stand for one. */
double
gk_kdtree_open(const GkTree *t, const float *c, int candidates)
{
	int			open = 0;
	int			boxes = t->rows / BOX_ROWS;

	for (int g = 0; g < boxes; g++)
	{
		const GkKey *key = t->key + g * BOX_ROWS;
		float		sum[GK_MARKS] = {0};
		float		max_d2 = 0.0f;

		for (int i = 0; i < BOX_ROWS; i++)
			max_d2 = fmaxf(max_d2, t->d2[key[i].row]);
		for (int j = 0; j < t->d; j++)
		{
			float		low = INFINITY;
			float		high = -INFINITY;

			for (int i = 0; i < BOX_ROWS; i++)
			{
				float		v = t->x[(size_t) key[i].row * t->d + j];

				low = v < low ? v : low;
				high = v > high ? v : high;
			}
			for (int q = 0; q < candidates; q++)
			{
				float		at = c[q * t->d + j];
				float		away = at < low ? low - at : at > high ? at - high : 0.0f;

				sum[q] += away * away;
			}
		}
		for (int q = 0; q < candidates; q++)
			open += sum[q] < max_d2;
	}
	return boxes > 0 ? (double) open / boxes / candidates : 1.0;
}

GkTree
gk_kdtree_plan(const GkSession *s)
{
	int64_t		n = s->pts->n;
	int64_t		rows = n / SAMPLE_OF;
	GkTree		t = {.d = s->pts->d};

	rows = rows < BOX_ROWS ? BOX_ROWS : rows > LEAF_SAMPLE * MAX_LEAVES ? LEAF_SAMPLE * MAX_LEAVES : rows;
	t.rows = (int) (rows < n ? rows : n);
	while ((LEAF_SAMPLE << (t.levels + 1)) <= t.rows)
		t.levels++;
	return t;
}

bool
gk_kdtree_make(GkSession *s, GkTree *t)
{
	size_t		rows = t->rows;

	if (!gk_cpu_room(s, &t->x, rows, (t->d + 1) * sizeof(float) + sizeof(GkKey) + sizeof(GkSplit)))
		return false;
	t->d2 = t->x + rows * t->d;
	t->key = (GkKey *) (t->d2 + rows);
	t->split = (GkSplit *) (t->key + rows);
	take_sample(s, t);
	divide(t, 0, t->key, t->rows);
	return true;
}
