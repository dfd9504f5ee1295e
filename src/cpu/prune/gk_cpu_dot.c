/*
 * gk_cpu_dot.c - labels by scalar products where they are certain, else by the
 * canonical distance.
 *
 * |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c), so the nearest centroid has the least
 * |c|^2 / 2 - x c: one multiply-add a feature instead of a difference and one.  The
 * rounded value is not the canonical distance, but mostly it tells which is the least.
 *
 * What may be wrong, with u = 2^-24, C the largest |c| and D the exact squared distance:
 *   - Products are added up in chains of some 40, and those in another one, so no term is
 *     rounded more than L = the lengths of both + 3 times: a computed |c|^2 / 2 - x c is off
 *     by at most L u (|x| C + C^2 / 2), the two that are compared by at most twice that,
 *     L u (2 |x| C + C^2) <= L u (|x|^2 + 2 C^2).
 *   - A canonical distance is off by at most (d + 2) u D, as all its terms are positive.
 *     With b the least and q any other, D_q = D_b + 2 (their difference): the order stays
 *     if the difference exceeds (d + 2) u D_b.
 * A difference above the sum decides, with 2 % for what rounding does to the bound itself
 * and to D_b in it (where it matters by d u of itself, up to 16,384 features 0.1 %), and 2^-120
 * for what underflow does.  |x|^2 may be any larger number: it is the largest of 64 rows, with
 * 2 d u of itself for its roundings, which is kept from pass to pass, since each row's own takes as
 * long as one more centroid.  Rows that are not decided, mostly some in a thousand and
 * all ties, are compared in the canonical way, lanes being centroids.
 *
 * Of wide points, integers decide where the processor multiplies them faster: gk_cpu_int16.c.
 *
 * Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
 */
#include <math.h>
#include <string.h>

#include "core/gk_numerics.h"
#include "cpu/prune/gk_cpu_prune.h"

/* Products added up in a row, at most: more round more, fewer take longer. */
#define CHAIN			48
/* Rows whose features are gathered: those that integers leave undecided at a time. */
#define POINT_ROOM		GK_INT16_FEW

bool
gk_cpu_dot_possible(const GkSession *s, int k)
{
	return s->kernels->assign_dot != NULL && !s->dot.useless &&
		s->pts->d >= GK_COST_DOT_MIN_D && k >= GK_COST_DOT_MIN_K;
}

/* Tiles that a block is to have, where integers compare that number at a time. */
static int
wanted_tiles(const GkSession *s, bool integers)
{
	return integers ? gk_cpu_int16_tiles(s, s->pts->d) : 1;
}

/*
 * Rows of a block when all centroids are compared at once, as the second nearest may be any.  Blocks
 * of wide points and many centroids may be larger than others: a tile at least, and with integers
 * those that are compared at a time.
 */
static int
block_rows(const GkSession *s, const GkSweep *sweep, int k, int tiles, bool integers)
{
	int			rows = sweep->rows / sweep->rounds / GK_ROW_PAD * GK_ROW_PAD;
	double		longest = integers ? s->kernels->integers->longest : GK_COST_DOT_LONGEST;
	double		most = longest * s->kernels->job_work / ((double) GK_ROW_PAD * s->pts->d * k);
	int			wanted = tiles * GK_ROW_PAD;

	while (wanted > GK_ROW_PAD && wanted > s->pts->n / (4 * sweep->threads))
		wanted -= GK_ROW_PAD;
	if (wanted > most * GK_ROW_PAD)
		wanted = (int) most * GK_ROW_PAD;
	return rows > wanted ? rows : wanted;
}

bool
gk_cpu_dot_wanted(const GkSession *s, const GkSweep *sweep, int k)
{
	bool		integers = gk_cpu_int16_faster(s, k);

	return gk_cpu_dot_possible(s, k) && block_rows(s, sweep, k, wanted_tiles(s, integers), integers) > 0;
}

double
gk_cpu_dot_cost(const GkSession *s, int k)
{
	int			d = s->pts->d;

	return gk_cpu_int16_faster(s, k) ? GK_COST_INT16(s->kernels->integers->cost, k, d) : GK_COST_DOT(k, d);
}

/* Make room for the largest squares; points that are not all in memory leave none. */
static bool
keep_squares(GkSession *s)
{
	if (s->dot.square != NULL || !s->pts->resident)
		return true;
	if (!gk_cpu_tile_room(s, &s->dot.square, sizeof(float)))
		return false;
	for (size_t t = s->first_tile; t < s->end_tile; t++)
		s->dot.square[t] = -1.0f;
	return true;
}

/* A thread's scratch: a tile of rows, POINT_ROOM rows, and what integers take. */
static bool
scratch_room(GkSession *s, const GkSweep *sweep, bool integers)
{
	size_t		d = s->pts->d;

	s->dot.scratch_bytes = gk_cpu_region_bytes((GK_ROW_PAD + POINT_ROOM) * d * sizeof(float) + (integers ? gk_cpu_int16_bytes(s, (int) d) : 0));
	return gk_cpu_room(s, &s->dot.scratch, sweep->threads, s->dot.scratch_bytes);
}

/* Centroids of one job: whole rows of gk_dot_width(). */
#define JOB_CENTROIDS	64

typedef struct Arrange
{
	GkCpuDot   *dot;
	const float *c;
	int			k;
	int			d;
	double	   *max_square;		/* [jobs] */
} Arrange;

/* Half of the squares, and columns. */
static void
arrange(void *arg, int64_t job, int thread)
{
	const Arrange *a = arg;
	size_t		width = gk_dot_width(a->k);
	int			first = (int) job * JOB_CENTROIDS;
	double		most = 0.0;

	(void) thread;
	for (int q = first; q < first + JOB_CENTROIDS; q++)
	{
		const float *c = a->c + (size_t) q * a->d;
		double		square = 0.0;

		for (int j = 0; j < a->d; j++)
		{
			float		v = q < a->k ? c[j] : INFINITY;

			square += (double) v * (double) v;
			a->dot->columns[j * width + q] = v;
		}
		if (q >= a->k)
			continue;
		a->dot->half[q] = (float) (0.5 * square);
		most = fmax(most, square);
	}
	a->max_square[job] = most;
}

void
gk_cpu_dot_plan(const GkSession *s, GkSweep *sweep, int k, int tiles, bool integers)
{
	sweep->rows = block_rows(s, sweep, k, tiles, integers);
	sweep->rounds = 1;
	sweep->per_round = k;
	sweep->job_work = (double) sweep->rows * s->pts->d * (k + GK_COST_OVERHEAD);
}

/* What float products take. */
static GkStatus
begin_floats(GkSession *s, const GkSweep *sweep, const float *c, int k, GkError *err)
{
	GkCpuDot   *dot = &s->dot;
	GkHost		host = s->host;
	int			d = s->pts->d;
	int			chains = (d + CHAIN - 1) / CHAIN;
	int			chain = (d + chains - 1) / chains;
	double		rounding = 1.02 * (chain + chains + 5) * 0x1p-24;
	int			jobs = (k + JOB_CENTROIDS - 1) / JOB_CENTROIDS;
	Arrange		a = {.dot = dot,.c = c,.k = k,.d = d};
	double		max_square = 0.0;
	bool		done;

	if (!gk_cpu_room(s, &dot->half, k, sizeof(float)) || !gk_cpu_room(s, &a.max_square, jobs, sizeof(double)) ||
		!gk_cpu_room(s, &dot->columns, gk_dot_width(k) * d, sizeof(float)) || !keep_squares(s))
		return gk_cpu_out_of_memory(err);
	host.threads = sweep->threads;
	done = s->core->parallel_for(&host, jobs, arrange, &a);
	for (int i = 0; done && i < jobs; i++)
		max_square = fmax(max_square, a.max_square[i]);
	gk_cpu_room_free(s, &a.max_square);
	dot->args = (GkDot) {.c = c,.half = dot->half,.columns = dot->columns,.k = k,.chain = chain,
		.slack = (float) rounding,.apart = (float) (rounding * 2.0 * max_square + 0x1p-120),
		.relative = (float) (1.02 * (d + 3) * 0x1p-24)};
	return done ? GK_OK : GK_STOPPED;
}

GkStatus
gk_cpu_dot_begin(GkSession *s, GkSweep *sweep, const float *c, int k, bool integers, GkError *err)
{
	GkCpuDot   *dot = &s->dot;
	GkStatus	st = GK_OK;

	integers = integers ? gk_cpu_int16_possible(s, k) : gk_cpu_int16_faster(s, k);
	if (!scratch_room(s, sweep, integers))
		return gk_cpu_out_of_memory(err);
	dot->args = (GkDot) {.c = c,.k = k};
	dot->open = 0;
	dot->int16.k = 0;
	dot->int16_open = dot->int16_rows = 0;
	gk_cpu_dot_plan(s, sweep, k, wanted_tiles(s, integers), integers);
	if (integers)
		st = gk_cpu_int16_begin(s, sweep, c, k, err);
	if (st == GK_OK && dot->int16.k == 0)
		return begin_floats(s, sweep, c, k, err);
	sweep->job_work *= dot->int16.k > 0 ? s->kernels->integers->cost : 1.0;
	return st;
}

/* Labels of one tile by float products, its open rows by canonical distances. */
static int64_t
dot_tile(GkSession *s, const GkTiles *x, int64_t slot, float *square, int rows, int32_t *label, float *point)
{
	uint64_t	open;
	int64_t		count = 0;

	s->kernels->assign_dot(x, &s->dot.args, square, label, &open);
	for (; open != 0 && !gk_cpu_halt(s); open &= open - 1, count++)
	{
		int			i = __builtin_ctzll(open);

		if (i >= rows)
			break;
		for (int j = 0; j < x->d; j++)
			point[j] = x->x[j * x->stride + i];
		label[i] = s->kernels->assign_one(point, &s->dot.args, x->d);
		gk_cpu_dot_tied(s, slot + i);
	}
	return count;
}

void
gk_cpu_dot_labels(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const float *below, int32_t *label)
{
	char	   *scratch = s->dot.scratch + thread * s->dot.scratch_bytes;
	float	   *tile = (float *) scratch;
	float	   *point = tile + (size_t) x->d * GK_ROW_PAD;
	float	   *kept = s->dot.square;
	int64_t		all = 0;

	if (s->dot.int16.k > 0)
	{
		gk_cpu_int16_labels(s, x, slot, rows, point, (char *) (point + POINT_ROOM * (size_t) x->d), below, label);
		return;
	}
	for (int t = 0; t < x->count; t++)
	{
		GkTiles		one = *x;
		float		square = -1.0f;

		one.x += t * x->tile;
		one.count = 1;
		if (x->stride != GK_ROW_PAD && x->d >= GK_COST_DOT_COPY_D)
		{
			for (int j = 0; j < x->d; j++)
				memcpy(tile + j * GK_ROW_PAD, one.x + j * x->stride, GK_ROW_PAD * sizeof(float));
			one.x = tile;
			one.stride = GK_ROW_PAD;
		}
		all += dot_tile(s, &one, slot + t * GK_ROW_PAD, kept != NULL ? kept + slot / GK_ROW_PAD + t : &square, rows - t * GK_ROW_PAD,
						label + t * GK_ROW_PAD, point);
	}
	__atomic_fetch_add(&s->dot.open, all, __ATOMIC_RELAXED);
}

void
gk_cpu_dot_assign(GkSession *s, const GkTiles *x, int64_t slot, int rows, int thread, const float *below, int32_t *label,
				  float *d2)
{
	gk_cpu_dot_labels(s, x, slot, rows, thread, below, label);
	gk_cpu_own_distances(s, x, rows, s->dot.args.c, label, d2);
}

void
gk_cpu_own_distances(const GkSession *s, const GkTiles *x, int rows, const float *c, const int32_t *label, float *d2)
{
	for (int first = 0; first < rows; first += GK_ROW_PAD)
	{
		int			end = rows - first < GK_ROW_PAD ? rows - first : GK_ROW_PAD;
		int			n = 0;
		int32_t		row[GK_ROW_PAD];
		int32_t		own[GK_ROW_PAD];
		float		is[GK_ROW_PAD];

		for (int i = 0; i < end; i++)
		{
			d2[first + i] = INFINITY;
			row[n] = i;
			own[n] = label[first + i];
			n += own[n] >= 0;
		}
		if (n == 0)
			continue;
		s->kernels->own_distance(x->x + first / GK_ROW_PAD * x->tile, x->stride, row, own, n, c, x->d, is);
		for (int i = 0; i < n; i++)
			d2[first + row[i]] = is[i];
	}
}

void
gk_cpu_dot_end(GkSession *s)
{
	if (s->dot.open > s->pts->n / GK_COST_DOT_OPEN_SHARE)
		s->dot.useless = true;
	gk_cpu_int16_end(s);
}

int
gk_cpu_tried_tiles(const GkSession *s, GkCpuTried out[GK_CPU_TRIED])
{
	int64_t		slot = s->pts->first_slot;
	int			count = 0;

	for (int i = 0; i < s->pts->nchunks; slot += gk_cpu_chunk_slots(s->pts, i++))
	{
		const GkChunk *chunk = &s->pts->chunks[i];

		for (int row = 0; count < GK_CPU_TRIED && row < chunk->rows; row += GK_ROW_PAD)
			if (chunk->first + row >= count * s->pts->n / GK_CPU_TRIED)
				out[count++] = (GkCpuTried) {.x = {chunk->data + row, GK_ROW_PAD, chunk->stride, 1, s->pts->d},.slot = slot + row,
					.rows = chunk->rows - row < GK_ROW_PAD ? chunk->rows - row : GK_ROW_PAD};
	}
	return count;
}
