/*
 * gk_pass_answer.c - answer a pass (gk_pass.h) from rows that are read and not kept.
 *
 * Batches of a loading store are prepared into one chunk; when that is full, the
 * backend's own pass runs over it, as over a store of one chunk, and its result
 * is added to the answer.  So every kernel, thread and device is used as for
 * points that are kept, and memory is that of one chunk.  Rows that have stayed are a
 * store of many chunks (gk_pass_kept.c).
 *
 * Seeding works on D, a float per point.  The CPU computes it anew from all seeds so far;
 * where that is much, D is kept and only new seeds are looked at, or the time would grow with the
 * square of k: with rows that stay in memory, or in a temporary file where the rows are in this server.
 */
#include <string.h>

#include "core/store/gk_store.h"
#include "core/rescan/gk_pass.h"
#include "core/rescan/gk_pass_kept.h"
#include "core/rescan/gk_pass_quality.h"

/* Keep D if the seeds have this many numbers: reading and writing it costs time, too. */
#define KEEP_FROM		256

struct GkPassAnswerer
{
	const GkHost *host;
	const GkPass *pass;
	const GkBackend **device;
	size_t		chunk_bytes;
	const GkLabelSink *sink;
	GkPassResult answer;
	GkPassResult some_answer;	/* of the rows at hand */
	GkColumnStats *stats;		/* [columns] STATS */
	GkMoments  *moments;		/* [d] MOMENTS, and totals of the chunk */
	gk_int128	mass;
	GkChunkStore chunk;			/* for the batches */
	GkStore    *some;			/* the rows at hand: of the chunk, or of some that have stayed */
	int64_t		row;			/* ordinal of the first of them */
	GkPassAnswererNames names;
	GkPick	   *picks;			/* [want] */
	float	   *saved;			/* D from the seeds alone, in whole tiles, chunk after chunk */
	size_t		saved_bytes;
	GkKeptD    *kept;			/* NULL: not in this pass */
	GkKeptRows *keep;			/* where the rows are to stay; NULL: nowhere */
	GkKeptChunk *kept_chunk;	/* what stays of each chunk at hand, with D; NULL: none has */
	int			kept_nseeds;	/* that D is from */
	GkPassQuality *quality;		/* answers a pass that measures; else NULL */
};

static GkStatus
out_of_memory(GkError *err)
{
	return gk_fail(err, GK_ERR_MEMORY, "out of memory");
}

static bool
seeding(const GkPass *pass)
{
	return pass->kind == GK_PASS_SEED || pass->kind == GK_PASS_FAR;
}

/* A pass with labels runs on the CPU: they go up once, and a device might fail in between. */
static const GkBackend *
backend_of(const GkPassAnswerer *p)
{
	return seeding(p->pass) || p->sink != NULL ? &gk_cpu_backend : *p->device;
}

/* ---- the chunk ---- */

/* Room for the answers of some rows. */
static GkStatus
begin_answers(GkPassAnswerer *p, GkError *err)
{
	int			d = p->pass->prep->d;

	if (p->moments != NULL)
		return GK_OK;
	p->moments = gk_alloc0(p->host, d, sizeof(GkMoments));
	p->picks = gk_alloc(p->host, p->quality != NULL ? 0 : p->pass->want, sizeof(GkPick));
	if (p->moments == NULL || p->picks == NULL)
		return out_of_memory(err);
	if (p->quality != NULL)
		return GK_OK;
	return gk_pass_result_init(p->host, p->pass, d, &p->some_answer, err);
}

/* Make the chunk when the first batch shows how many features and aux columns there are. */
static GkStatus
begin_chunk(GkPassAnswerer *p, const GkStore *from, const GkBatch *b, GkError *err)
{
	const GkPass *pass = p->pass;
	GkStatus	st = gk_chunk_store_make(&p->chunk, p->host, pass->prep, from->pts.weighted, from->pts.naux,
										 gk_chunk_store_rows(from, p->chunk_bytes, b->capacity), err);

	if (st != GK_OK)
		return st;
	p->chunk.store->pts.d2_expo = pass->d2_expo;
	p->chunk.store->pts.weight_exp = pass->weight_exp;
	return begin_answers(p, err);
}

/* Backends may leave one cluster to be the chunk's total less the others. */
static bool
wants_totals(const GkPassAnswerer *p)
{
	return p->pass->kind == GK_PASS_STEP;
}

static void
close_chunk(GkPassAnswerer *p)
{
	GkPoints   *pts = &p->chunk.store->pts;

	/* Races count rows; to a step the chunk is all there is. */
	gk_chunk_store_close(&p->chunk, seeding(p->pass) ? p->row : 0);

	/*
	 * The CPU would keep the labels of the last step of resident points, which are of no
	 * use here.
	 */
	pts->resident = backend_of(p) != &gk_cpu_backend;
	if (wants_totals(p))
	{
		pts->total_mass = pts->weighted ? p->mass : (gk_int128) p->chunk.fill;
		for (int j = 0; j < pts->d; j++)
			pts->total_sum[j] = p->moments[j].sum;
		memset(p->moments, 0, pts->d * sizeof(GkMoments));
		p->mass = 0;
	}
}

/* ---- calls of a backend, by kind of pass ---- */

static GkStatus
step(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	size_t		kd = (size_t) p->pass->k * p->some_answer.d;
	GkStep		out = {.sum = p->some_answer.i128,.mass = p->some_answer.i128 + kd,.count = p->some_answer.i64};

	return b->step(s, p->pass->centroids, p->pass->k, &out, err);
}

static GkStatus
finish(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	GkFinish	out = {.count = p->some_answer.i64,.inertia = p->some_answer.i128,.max_d2 = p->some_answer.flt};

	return b->finish(s, p->pass->centroids, p->pass->k, &out, p->sink, err);
}

/* The chunk at hand that has the row. */
static const GkChunk *
chunk_of(const GkPassAnswerer *p, int64_t row)
{
	const GkChunk *c = p->some->pts.chunks;

	while (row < c->first || row >= c->first + c->rows)
		c++;
	return c;
}

static void
copy_point(const GkPassAnswerer *p, int64_t row, float *to)
{
	const GkChunk *c = chunk_of(p, row);

	for (int j = 0; j < p->some_answer.d; j++)
		to[j] = c->data[(size_t) j * c->stride + (size_t) (row - c->first)];
}

static GkStatus
run_race(GkPassAnswerer *p, const GkBackend *b, GkSession *s, int race, GkError *err)
{
	const GkPass *pass = p->pass;
	size_t		first = (size_t) race * pass->want;
	int64_t    *row = p->some_answer.i64 + gk_pass_races(pass) + first;
	int			got = 0;
	GkStatus	st = b->seed_race(s, pass->key, pass->use_d2, pass->want, p->picks, &got, err);

	p->some_answer.i64[race] = got;
	for (int i = 0; i < got; i++)
	{
		row[i] = p->picks[i].row;
		p->some_answer.dbl[first + i] = p->picks[i].key;
		copy_point(p, row[i], p->some_answer.flt + (first + i) * p->some_answer.d);
	}
	return st;
}

/* Save D, unless it stays anyway. */
static GkStatus
save_d(GkPassAnswerer *p, GkError *err)
{
	const GkPoints *pts = &p->some->pts;
	size_t		bytes = 0;
	char	   *to;

	if (p->kept_chunk != NULL)
		return GK_OK;
	for (int i = 0; i < pts->nchunks; i++)
		bytes += gk_kept_d_bytes(&pts->chunks[i]);
	if (bytes > p->saved_bytes)
	{
		gk_free(p->host, p->saved);
		p->saved = gk_alloc(p->host, bytes, 1);
		p->saved_bytes = p->saved != NULL ? bytes : 0;
		if (p->saved == NULL)
			return out_of_memory(err);
	}
	to = (char *) p->saved;
	for (int i = 0; i < pts->nchunks; to += gk_kept_d_bytes(&pts->chunks[i]), i++)
		memcpy(to, pts->chunks[i].mind2, gk_kept_d_bytes(&pts->chunks[i]));
	return GK_OK;
}

static void
restore_d(GkPassAnswerer *p)
{
	const GkPoints *pts = &p->some->pts;
	const char *from = (const char *) p->saved;

	for (int i = 0; i < pts->nchunks; from += gk_kept_d_bytes(&pts->chunks[i]), i++)
		memcpy(pts->chunks[i].mind2, p->kept_chunk != NULL ? (const char *) p->kept_chunk[i].d2 : from,
			   gk_kept_d_bytes(&pts->chunks[i]));
}

/*
 * Run each candidate's race from the D of the seeds.  Updating D by the candidate sums it up,
 * which gives the potential as well.
 */
static GkStatus
run_races(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	GkStatus	st;

	if (pass->k == 0)
		return run_race(p, b, s, 0, err);
	st = save_d(p, err);
	for (int i = 0; st == GK_OK && i < pass->k; i++)
	{
		if (i > 0)
			restore_d(p);
		st = b->seed_update(s, pass->centroids + (size_t) i * p->some_answer.d, 1, &p->some_answer.i128[i], err);
		if (st == GK_OK)
			st = run_race(p, b, s, i, err);
	}
	return st;
}

/* The same with a D that stays in memory. */
static GkStatus
make_kept_d(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	const GkPoints *pts = &p->some->pts;
	int			done = p->kept_nseeds;
	gk_int128	unused;
	GkStatus	st;

	if (done > 0)
		restore_d(p);
	if (done == pass->nseeds)
		return GK_OK;
	st = b->seed_update(s, pass->seeds + (size_t) done * p->some_answer.d, pass->nseeds - done, &unused, err);
	for (int i = 0; i < pts->nchunks; i++)
		memcpy(p->kept_chunk[i].d2, pts->chunks[i].mind2, gk_kept_d_bytes(&pts->chunks[i]));
	return st;
}

/* Compute the D of all seeds, of the chunk. */
static GkStatus
make_d(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	float	   *d2 = p->some->pts.chunks[0].mind2;
	int64_t		at = p->row * (int64_t) sizeof(float);
	size_t		bytes = p->some->pts.n * sizeof(float);
	bool		kept = p->kept != NULL && p->kept->seeding == pass->seeding && p->row + p->some->pts.n <= p->kept->rows;
	int			done = kept ? p->kept->nseeds : 0;
	gk_int128	unused;
	GkStatus	st = done > 0 ? gk_spill_read(p->host, at, d2, bytes, err) : GK_OK;

	if (st != GK_OK || done == pass->nseeds)
		return st;
	st = b->seed_update(s, pass->seeds + (size_t) done * p->some_answer.d, pass->nseeds - done, &unused, err);
	if (st == GK_OK && p->kept != NULL && !p->host->spill_write(p->host->ctx, at, d2, bytes))
		st = gk_fail(err, GK_ERR_HOST, "could not write the temporary file");
	return st;
}

static GkStatus
seed(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	GkStatus	st = b->seed_begin(s, err);

	if (st == GK_OK)
		st = p->kept_chunk != NULL ? make_kept_d(p, b, s, err) : make_d(p, b, s, err);
	if (st == GK_OK && pass->kind == GK_PASS_FAR)
	{
		st = b->seed_far(s, &p->some_answer.i64[0], err);
		if (st == GK_OK && p->some_answer.i64[0] >= 0)
		{
			const GkChunk *c = chunk_of(p, p->some_answer.i64[0]);

			p->some_answer.flt[0] = c->mind2[p->some_answer.i64[0] - c->first];
			copy_point(p, p->some_answer.i64[0], p->some_answer.flt + 1);
		}
	}
	else
	{
		if (st == GK_OK && pass->want > 0)
			st = run_races(p, b, s, err);
		else if (st == GK_OK)
			st = b->seed_eval(s, pass->centroids, pass->k, p->some_answer.i128, err);
	}
	b->seed_end(s);
	return st;
}

static GkStatus
ask(GkPassAnswerer *p, const GkBackend *b, GkError *err)
{
	const GkPass *pass = p->pass;
	GkProblem	problem = gk_problem(p->some, pass->k > 0 ? pass->k : 1, 1);
	GkSession  *s = NULL;
	GkStatus	st = b->open(&problem, &s, err);

	if (st == GK_OK)
		st = pass->kind == GK_PASS_STEP ? step(p, b, s, err)
			: pass->kind == GK_PASS_FINISH ? finish(p, b, s, err)
			: p->quality != NULL ? gk_pass_quality_chunk(p->quality, b, s, &p->some->pts.chunks[0], p->row, err)
			: seed(p, b, s, err);
	if (st == GK_OK && pass->kind == GK_PASS_STEP)
		b->describe(s, p->names.device, sizeof(p->names.device), p->names.strategy, sizeof(p->names.strategy));
	b->close(s);
	return st;
}

/* ---- rows at hand ---- */

/* Ask about the rows at hand and add the answer. */
static GkStatus
ask_some(GkPassAnswerer *p, GkError *err)
{
	const GkBackend *b = backend_of(p);
	GkStatus	st = ask(p, b, err);

	if (gk_go_on_with_cpu(p->host, b, st, err))
	{
		*p->device = &gk_cpu_backend;
		st = ask(p, &gk_cpu_backend, err);
	}
	p->some_answer.rows = p->some->pts.n;
	if (p->quality != NULL)
		p->answer.rows += p->some->pts.n;
	else if (st == GK_OK)
		st = gk_pass_add(p->host, p->pass, &p->answer, &p->some_answer, err);
	return st;
}

static GkStatus
run_chunk(GkPassAnswerer *p, GkError *err)
{
	GkStatus	st;

	if (p->chunk.fill == 0)
		return GK_OK;
	close_chunk(p);
	p->some = p->chunk.store;
	p->kept_chunk = NULL;
	st = ask_some(p, err);
	if (st == GK_OK && p->keep != NULL)
		st = gk_kept_add_chunk(p->keep, p->host, &p->chunk, p->row, err);
	p->row += p->chunk.fill;
	p->chunk.fill = 0;
	return st;
}

void
gk_pass_answer_begin(GkPassAnswerer *p, int64_t first, GkKeptRows *keep)
{
	p->row = first;
	p->keep = gk_pass_may_keep(p->pass) && p->sink == NULL ? keep : NULL;
	if (p->keep != NULL)
		gk_kept_begin(p->keep);
	if (p->quality != NULL)
		gk_pass_quality_begin(p->quality, first);
}

GkStatus
gk_pass_answer_flush(GkPassAnswerer *p, GkError *err)
{
	GkStatus	st = run_chunk(p, err);

	return st == GK_OK && p->quality != NULL ? gk_pass_quality_flush(p->quality, p->keep, err) : st;
}

int64_t
gk_pass_answer_rows(const GkPassAnswerer *p)
{
	return p->answer.rows;
}

/* ---- rows that have stayed ---- */

/*
 * How many of the chunks from this one on are asked about at once: all of them; those of a seeding, which has two
 * floats per row in memory, as many as have room; measures look at one after the other.
 */
static int
chunks_at_once(const GkPassAnswerer *p, const GkKeptRows *k, int from)
{
	const GkPoints *pts = &k->store->pts;
	size_t		bytes = 0;
	int			n = 0;

	if (p->quality != NULL)
		return 1;
	if (!seeding(p->pass))
		return pts->nchunks - from;
	while (from + n < pts->nchunks &&
		   (bytes += gk_store_chunk_bytes(k->store, pts->chunks[from + n].stride)) <= p->chunk_bytes)
		n++;
	return n > 0 ? n : 1;
}

/* Ask about n chunks as a store of their own. */
static GkStatus
ask_kept(GkPassAnswerer *p, GkKeptRows *k, int from, int n, bool with_d, GkError *err)
{
	GkStore		some = *k->store;
	GkPoints   *pts = &some.pts;

	pts->chunks += from;
	pts->nchunks = n;
	pts->n = 0;
	for (int i = 0; i < n; i++)
	{
		/* races count the rows of all servers; to a step these are all there are */
		pts->chunks[i].first = seeding(p->pass) ? k->chunk[from + i].row : pts->n;
		pts->n += pts->chunks[i].rows;
	}
	pts->resident = backend_of(p) != &gk_cpu_backend;
	pts->d2_expo = p->pass->d2_expo;
	p->some = &some;
	p->row = k->chunk[from].row;
	p->kept_chunk = with_d ? k->chunk + from : NULL;
	return ask_some(p, err);
}

GkStatus
gk_pass_answer_again(GkPassAnswerer *p, GkKeptRows *k, GkError *err)
{
	bool		with_d = seeding(p->pass) && p->pass->nseeds > 0;
	GkStatus	st;

	if (p->pass->raw)
		return gk_pass_quality_again(p->quality, k, &p->answer.rows, err);
	if (k->store == NULL)
		return GK_OK;
	st = begin_answers(p, err);
	if (st == GK_OK && wants_totals(p))
		st = gk_kept_sum(k, err);
	if (st == GK_OK && with_d)
		st = gk_kept_begin_d(k, p->host, p->pass, &p->kept_nseeds, err);
	with_d = with_d && k->with_d;
	for (int from = 0, n; st == GK_OK && from < k->store->pts.nchunks; from += n)
	{
		n = chunks_at_once(p, k, from);
		st = ask_kept(p, k, from, n, with_d, err);
	}
	p->some = NULL;
	return st == GK_OK && with_d ? gk_kept_seeds(k, p->host, p->pass, err) : st;
}

/* ---- rows in ---- */

static GkStatus
observe(GkPassAnswerer *p, const GkStore *from, const GkBatch *b, GkError *err)
{
	if (p->stats == NULL)
	{
		p->stats = gk_alloc(p->host, from->columns, sizeof(GkColumnStats));
		if (p->stats == NULL)
			return out_of_memory(err);
		gk_stats_clear(p->stats, from->columns);
	}
	if (p->answer.d != 0 && p->answer.d != from->pts.d)
		return gk_fail(err, GK_ERR_DATA, "some points have %d features, others %d", p->answer.d, from->pts.d);
	gk_batch_observe(b, p->stats);
	p->answer.rows += b->rows;
	p->answer.d = from->pts.d;
	return GK_OK;
}

GkStatus
gk_pass_answer_take(void *arg, GkStore *store, const GkBatch *b, GkError *err)
{
	GkPassAnswerer *p = arg;
	const GkPass *pass = p->pass;
	GkChunk    *c;
	GkStatus	st;

	if (pass->kind == GK_PASS_STATS)
		return observe(p, store, b, err);
	if (store->pts.d != pass->prep->d)
		return gk_fail(err, GK_ERR_DATA, "points have %d features now, they had %d", store->pts.d, pass->prep->d);
	store->pts.weight_exp = pass->weight_exp;
	if (p->quality != NULL && pass->raw)
	{
		p->answer.rows += b->rows;
		return gk_pass_quality_batch(p->quality, b, p->keep, err);
	}
	if (pass->kind == GK_PASS_MOMENTS)
	{
		if (p->moments == NULL && (p->moments = gk_alloc0(p->host, store->pts.d, sizeof(GkMoments))) == NULL)
			return out_of_memory(err);
		gk_store_convert_batch(store, pass->prep, b, NULL, 0, p->moments, &p->mass);
		p->answer.rows += b->rows;
		return GK_OK;
	}
	if (p->chunk.store == NULL && (st = begin_chunk(p, store, b, err)) != GK_OK)
		return st;
	c = p->chunk.chunk;
	if (p->chunk.fill + b->rows > c->stride && (st = run_chunk(p, err)) != GK_OK)
		return st;
	gk_store_convert_batch(store, pass->prep, b, c->data + p->chunk.fill, c->stride,
						   wants_totals(p) ? p->moments : NULL, wants_totals(p) ? &p->mass : NULL);
	for (int a = 0; a < store->pts.naux; a++)
		memcpy(gk_chunk_aux(&p->chunk.store->pts, c, a) + p->chunk.fill, gk_batch_aux(b, a), b->rows * sizeof(uint32_t));
	p->chunk.fill += b->rows;
	return GK_OK;
}

/* ---- beginning and end ---- */

GkStatus
gk_pass_answer_open(const GkHost *host, const GkPass *pass, const GkBackend **device,
					size_t chunk_bytes, const GkLabelSink *sink, GkKeptD *kept, GkPassAnswerer **out, GkError *err)
{
	GkPassAnswerer *p = gk_alloc0(host, 1, sizeof(GkPassAnswerer));
	GkStatus	st;

	*out = NULL;
	if (p == NULL)
		return out_of_memory(err);
	p->host = host;
	p->pass = pass;
	p->device = device;
	p->chunk_bytes = chunk_bytes;
	p->sink = sink;
	if (pass->kind == GK_PASS_SEED && host->spill_write != NULL &&
		(int64_t) pass->nseeds * pass->prep->d >= KEEP_FROM)
		p->kept = kept;
	if (gk_pass_measures(pass))
		st = gk_pass_quality_open(host, pass, chunk_bytes, &p->quality, err);
	else
		st = gk_pass_result_init(host, pass, pass->kind == GK_PASS_STATS ? 0 : pass->prep->d, &p->answer, err);
	if (st == GK_OK)
		*out = p;
	else
		gk_pass_answer_free(p);
	return st;
}

/* Copy the statistics, which were kept as structs. */
static GkStatus
answer_stats(GkPassAnswerer *p, GkError *err)
{
	int64_t		rows = p->answer.rows;
	int			d = p->answer.d;
	GkStatus	st;

	if (rows == 0)
		return GK_OK;
	gk_pass_result_free(p->host, &p->answer);
	if ((st = gk_pass_result_init(p->host, p->pass, d, &p->answer, err)) != GK_OK)
		return st;
	p->answer.rows = rows;
	for (size_t c = 0; c < p->answer.ndbl / 2; c++)
	{
		p->answer.dbl[2 * c] = p->stats[c].min;
		p->answer.dbl[2 * c + 1] = p->stats[c].max;
		((GkWide *) p->answer.i64)[c] = p->stats[c].sum;
	}
	return GK_OK;
}

static GkStatus
answer_quality(GkPassAnswerer *p, GkError *err)
{
	int64_t		rows = p->answer.rows;
	GkStatus	st = gk_pass_quality_end(p->quality, &p->answer, err);

	p->answer.rows = rows;
	return st;
}

GkStatus
gk_pass_answer_end(GkPassAnswerer *p, GkPassResult *out, GkError *err)
{
	GkStatus	st = gk_pass_answer_flush(p, err);
	int			d = p->answer.d;

	if (st != GK_OK)
		return st;
	if (p->pass->kind == GK_PASS_STATS)
		st = answer_stats(p, err);
	else if (p->pass->kind == GK_PASS_MOMENTS)
	{
		for (int j = 0; p->moments != NULL && j < d; j++)
		{
			p->answer.i128[j] = p->moments[j].sum;
			p->answer.i128[d + j] = p->moments[j].sq;
		}
		p->answer.i128[2 * d] = p->pass->weighted ? p->mass : (gk_int128) p->answer.rows;
	}
	else if (p->quality != NULL)
		st = answer_quality(p, err);
	if (st != GK_OK)
		return st;
	if (p->kept != NULL)
		*p->kept = (GkKeptD) {p->pass->seeding, p->pass->nseeds, p->answer.rows};
	*out = p->answer;
	memset(&p->answer, 0, sizeof(p->answer));
	return GK_OK;
}

void
gk_pass_answer_names(const GkPassAnswerer *p, GkPassAnswererNames *out)
{
	*out = p->names;
}

void
gk_pass_answer_free(GkPassAnswerer *p)
{
	const GkHost *host;

	if (p == NULL)
		return;
	host = p->host;
	gk_pass_result_free(host, &p->answer);
	gk_pass_result_free(host, &p->some_answer);
	gk_free(host, p->stats);
	gk_free(host, p->moments);
	gk_free(host, p->picks);
	gk_free(host, p->saved);
	gk_pass_quality_free(p->quality);
	gk_chunk_store_free(&p->chunk);
	gk_free(host, p);
}
