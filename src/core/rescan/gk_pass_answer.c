/*
 * gk_pass_answer.c - answer a pass (gk_pass.h) from rows that are read and not kept.
 *
 * Batches of a loading store are prepared into one chunk; when that is full, the
 * backend's own pass runs over it, as over a store of one chunk, and its result
 * is added to the answer.  So every kernel, thread and device is used as for
 * points that are kept, and memory is that of one chunk.
 *
 * Seeding works on D, a float per point.  The CPU computes it anew from all seeds so far;
 * where that is much, D is kept and only new seeds are looked at, or the time would grow with the
 * square of k: with rows that stay in memory, or in a temporary file where the rows are in this server.
 */
#include <string.h>

#include "core/store/gk_store.h"
#include "core/rescan/gk_pass.h"
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
	GkPassResult chunk_answer;
	GkColumnStats *stats;		/* [columns] STATS */
	GkMoments  *moments;		/* [d] MOMENTS, and totals of the chunk */
	gk_int128	mass;
	GkChunkStore chunk;
	int64_t		row;			/* ordinal of its first row */
	GkPassAnswererNames names;
	GkPick	   *picks;			/* [want] */
	float	   *saved;			/* [stride] D from the seeds alone */
	GkKeptD    *kept;			/* NULL: not in this pass */
	GkKeptRows *keep;			/* NULL: rows are not kept */
	float	   *kept_d2;		/* of the chunk, which stays; NULL: none is kept */
	int			kept_nseeds;	/* that it is from */
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

/* Room for the answers of chunks like this one. */
static GkStatus
begin_answers(GkPassAnswerer *p, GkPoints *pts, GkError *err)
{
	pts->d2_expo = p->pass->d2_expo;
	pts->weight_exp = p->pass->weight_exp;
	p->moments = gk_alloc0(p->host, pts->d, sizeof(GkMoments));
	p->picks = gk_alloc(p->host, p->quality != NULL ? 0 : p->pass->want, sizeof(GkPick));
	if (p->moments == NULL || p->picks == NULL)
		return out_of_memory(err);
	if (p->quality != NULL)
		return GK_OK;
	return gk_pass_result_init(p->host, p->pass, pts->d, &p->chunk_answer, err);
}

/* Make the chunk when the first batch shows how many features and aux columns there are. */
static GkStatus
begin_chunk(GkPassAnswerer *p, const GkStore *from, const GkBatch *b, GkError *err)
{
	const GkPass *pass = p->pass;
	GkStatus	st = gk_chunk_store_make(&p->chunk, p->host, pass->prep, from->pts.weighted, from->pts.naux,
										 gk_chunk_store_rows(from, p->chunk_bytes, b->capacity), err);

	return st == GK_OK ? begin_answers(p, &p->chunk.store->pts, err) : st;
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
	size_t		kd = (size_t) p->pass->k * p->chunk_answer.d;
	GkStep		out = {.sum = p->chunk_answer.i128,.mass = p->chunk_answer.i128 + kd,.count = p->chunk_answer.i64};

	return b->step(s, p->pass->centroids, p->pass->k, &out, err);
}

static GkStatus
finish(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	GkFinish	out = {p->chunk_answer.i64, p->chunk_answer.i128, p->chunk_answer.flt};

	return b->finish(s, p->pass->centroids, p->pass->k, &out, p->sink, err);
}

static void
copy_point(const GkPassAnswerer *p, int64_t row, float *to)
{
	const GkChunk *c = p->chunk.chunk;

	for (int j = 0; j < p->chunk_answer.d; j++)
		to[j] = c->data[(size_t) j * c->stride + (size_t) (row - c->first)];
}

static GkStatus
run_race(GkPassAnswerer *p, const GkBackend *b, GkSession *s, int race, GkError *err)
{
	const GkPass *pass = p->pass;
	size_t		first = (size_t) race * pass->want;
	int64_t    *row = p->chunk_answer.i64 + gk_pass_races(pass) + first;
	int			got = 0;
	GkStatus	st = b->seed_race(s, pass->key, pass->use_d2, pass->want, p->picks, &got, err);

	p->chunk_answer.i64[race] = got;
	for (int i = 0; i < got; i++)
	{
		row[i] = p->picks[i].row;
		p->chunk_answer.dbl[first + i] = p->picks[i].key;
		copy_point(p, row[i], p->chunk_answer.flt + (first + i) * p->chunk_answer.d);
	}
	return st;
}

/*
 * Run each candidate's race from the D of the seeds.  Updating D by the candidate sums it up,
 * which gives the potential as well.
 */
static GkStatus
run_races(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	GkChunk    *c = p->chunk.chunk;
	size_t		bytes = (c->rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD * sizeof(float);
	GkStatus	st = GK_OK;

	if (pass->k == 0)
		return run_race(p, b, s, 0, err);
	if (p->saved == NULL && (p->saved = gk_alloc(p->host, c->stride, sizeof(float))) == NULL)
		return out_of_memory(err);
	memcpy(p->saved, c->mind2, bytes);
	for (int i = 0; st == GK_OK && i < pass->k; i++)
	{
		memcpy(c->mind2, p->saved, bytes);
		st = b->seed_update(s, pass->centroids + (size_t) i * p->chunk_answer.d, 1, &p->chunk_answer.i128[i], err);
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
	float	   *d2 = p->chunk.chunk->mind2;
	size_t		bytes = p->chunk.fill * sizeof(float);
	int			done = p->kept_nseeds;
	gk_int128	unused;
	GkStatus	st;

	if (done > 0)
		memcpy(d2, p->kept_d2, bytes);
	if (done == pass->nseeds)
		return GK_OK;
	st = b->seed_update(s, pass->seeds + (size_t) done * p->chunk_answer.d, pass->nseeds - done, &unused, err);
	memcpy(p->kept_d2, d2, bytes);
	return st;
}

/* Compute the chunk's D of all seeds. */
static GkStatus
make_d(GkPassAnswerer *p, const GkBackend *b, GkSession *s, GkError *err)
{
	const GkPass *pass = p->pass;
	float	   *d2 = p->chunk.chunk->mind2;
	int64_t		row = p->row - pass->first;
	int64_t		at = row * (int64_t) sizeof(float);
	size_t		bytes = p->chunk.fill * sizeof(float);
	bool		kept = p->kept != NULL && p->kept->seeding == pass->seeding && row + p->chunk.fill <= p->kept->rows;
	int			done = kept ? p->kept->nseeds : 0;
	gk_int128	unused;
	GkStatus	st = done > 0 ? gk_spill_read(p->host, at, d2, bytes, err) : GK_OK;

	if (st != GK_OK || done == pass->nseeds)
		return st;
	st = b->seed_update(s, pass->seeds + (size_t) done * p->chunk_answer.d, pass->nseeds - done, &unused, err);
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
		st = p->kept_d2 != NULL ? make_kept_d(p, b, s, err) : make_d(p, b, s, err);
	if (st == GK_OK && pass->kind == GK_PASS_FAR)
	{
		st = b->seed_far(s, &p->chunk_answer.i64[0], err);
		if (st == GK_OK && p->chunk_answer.i64[0] >= 0)
		{
			p->chunk_answer.flt[0] = p->chunk.chunk->mind2[p->chunk_answer.i64[0] - p->row];
			copy_point(p, p->chunk_answer.i64[0], p->chunk_answer.flt + 1);
		}
	}
	else
	{
		if (st == GK_OK && pass->want > 0)
			st = run_races(p, b, s, err);
		else if (st == GK_OK)
			st = b->seed_eval(s, pass->centroids, pass->k, p->chunk_answer.i128, err);
	}
	b->seed_end(s);
	return st;
}

static GkStatus
ask(GkPassAnswerer *p, const GkBackend *b, GkError *err)
{
	const GkPass *pass = p->pass;
	GkSession  *s = NULL;
	GkStatus	st = gk_chunk_store_open(&p->chunk, b, pass->k > 0 ? pass->k : 1, &s, err);

	if (st == GK_OK)
		st = pass->kind == GK_PASS_STEP ? step(p, b, s, err)
			: pass->kind == GK_PASS_FINISH ? finish(p, b, s, err)
			: p->quality != NULL ? gk_pass_quality_chunk(p->quality, b, s, p->chunk.chunk, p->row, err)
			: seed(p, b, s, err);
	if (st == GK_OK && pass->kind == GK_PASS_STEP)
		b->describe(s, p->names.device, sizeof(p->names.device), p->names.strategy, sizeof(p->names.strategy));
	b->close(s);
	return st;
}

/* ---- rows in ---- */

/* Ask about the closed chunk and add the answer. */
static GkStatus
ask_chunk(GkPassAnswerer *p, GkError *err)
{
	const GkBackend *b = backend_of(p);
	GkStatus	st = ask(p, b, err);

	if (gk_go_on_with_cpu(p->host, b, st, err))
	{
		*p->device = &gk_cpu_backend;
		st = ask(p, &gk_cpu_backend, err);
	}
	p->chunk_answer.rows = p->chunk.fill;
	if (p->quality != NULL)
		p->answer.rows += p->chunk.fill;
	else if (st == GK_OK)
		st = gk_pass_add(p->host, p->pass, &p->answer, &p->chunk_answer, err);
	p->row += p->chunk.fill;
	return st;
}

/* Copy the chunk, without the room that it leaves. */
static GkStatus
copy_chunk(GkPassAnswerer *p, GkChunkStore *to, GkError *err)
{
	const GkChunkStore *from = &p->chunk;
	GkStatus	st = gk_chunk_store_make(to, p->host, p->pass->prep, from->store->pts.weighted, 0, from->fill, err);

	if (st != GK_OK)
		return st;
	for (int j = 0; j < to->store->columns; j++)
		memcpy(to->chunk->data + (size_t) j * to->chunk->stride, from->chunk->data + (size_t) j * from->chunk->stride,
			   from->fill * sizeof(float));
	to->fill = from->fill;
	to->store->pts.weight_exp = p->pass->weight_exp;
	gk_chunk_store_close(to, 0);
	return gk_chunk_store_total(to);
}

static GkStatus
keep_chunk(GkPassAnswerer *p, GkError *err)
{
	GkKeptRows *k = p->keep;
	size_t		bytes = gk_store_chunk_bytes(p->chunk.store, gk_stride(p->chunk.fill));

	if (k->full || bytes > k->limit - k->bytes)
	{
		gk_kept_rows_free(p->host, k);
		k->full = true;
		return GK_OK;
	}
	if (k->n == k->room)
	{
		GkChunkStore *grown = gk_alloc0(p->host, 2 * k->room + 1, sizeof(GkChunkStore));

		if (grown == NULL)
			return out_of_memory(err);
		if (k->n > 0)
			memcpy(grown, k->chunk, k->n * sizeof(GkChunkStore));
		gk_free(p->host, k->chunk);
		k->chunk = grown;
		k->room = 2 * k->room + 1;
	}
	k->bytes += bytes;
	return copy_chunk(p, &k->chunk[k->n++], err);
}

static GkStatus
run_chunk(GkPassAnswerer *p, GkError *err)
{
	GkStatus	st;

	if (p->chunk.fill == 0)
		return GK_OK;
	close_chunk(p);
	st = ask_chunk(p, err);
	if (st == GK_OK && p->keep != NULL)
		st = keep_chunk(p, err);
	p->chunk.fill = 0;
	return st;
}

void
gk_kept_rows_free(const GkHost *host, GkKeptRows *rows)
{
	for (int i = 0; i < rows->n; i++)
	{
		gk_chunk_store_free(&rows->chunk[i]);
		if (rows->d2 != NULL)
			gk_free(host, rows->d2[i]);
	}
	for (int i = 0; i < rows->nbatches; i++)
		gk_free(host, rows->batch[i].values);
	gk_free(host, rows->batch);
	gk_free(host, rows->chunk);
	gk_free(host, rows->d2);
	gk_free(host, rows->seeds);
	*rows = (GkKeptRows) {.limit = rows->limit};
}

void
gk_pass_answer_keep(GkPassAnswerer *p, GkKeptRows *rows)
{
	if (gk_pass_may_keep(p->pass) && p->sink == NULL)
		p->keep = rows;
}

/* Have room for the D of all chunks, if the limit allows. */
static GkStatus
make_room_for_d(GkPassAnswerer *p, GkKeptRows *rows, GkError *err)
{
	size_t		bytes = 0;

	for (int i = 0; i < rows->n; i++)
		bytes += rows->chunk[i].fill * sizeof(float);
	if (rows->n == 0 || rows->d2 != NULL || bytes > rows->limit - rows->bytes)
		return GK_OK;
	rows->d2 = gk_alloc0(p->host, rows->n, sizeof(float *));
	if (rows->d2 == NULL)
		return out_of_memory(err);
	for (int i = 0; i < rows->n; i++)
		if ((rows->d2[i] = gk_alloc(p->host, rows->chunk[i].fill, sizeof(float))) == NULL)
			return out_of_memory(err);
	rows->bytes += bytes;
	return GK_OK;
}

/* Does the pass have all seeds of the kept D, in their order? */
static bool
has_kept_seeds(const GkPass *pass, const GkKeptRows *rows)
{
	return rows->nseeds > 0 && rows->nseeds <= pass->nseeds &&
		memcmp(rows->seeds, pass->seeds, (size_t) rows->nseeds * pass->prep->d * sizeof(float)) == 0;
}

static GkStatus
keep_seeds(GkPassAnswerer *p, GkKeptRows *rows, GkError *err)
{
	size_t		bytes = (size_t) p->pass->nseeds * p->pass->prep->d * sizeof(float);

	gk_free(p->host, rows->seeds);
	rows->seeds = gk_alloc(p->host, bytes, 1);
	if (rows->seeds == NULL)
		return out_of_memory(err);
	memcpy(rows->seeds, p->pass->seeds, bytes);
	rows->nseeds = p->pass->nseeds;
	return GK_OK;
}

GkStatus
gk_pass_answer_again(GkPassAnswerer *p, GkKeptRows *rows, GkError *err)
{
	bool		with_d = seeding(p->pass) && p->pass->nseeds > 0;
	GkStatus	st = with_d ? make_room_for_d(p, rows, err) : GK_OK;

	if (p->pass->raw)
		return gk_pass_quality_again(p->quality, rows, &p->answer.rows, err);
	with_d = with_d && rows->d2 != NULL;
	p->kept_nseeds = with_d && has_kept_seeds(p->pass, rows) ? rows->nseeds : 0;
	/* an error on the way leaves some of one pass and some of the other */
	if (with_d)
		rows->nseeds = 0;
	for (int i = 0; st == GK_OK && i < rows->n; i++)
	{
		GkPoints   *pts;

		p->chunk = rows->chunk[i];
		pts = &p->chunk.store->pts;
		p->chunk.chunk->first = seeding(p->pass) ? p->row : 0;
		pts->resident = backend_of(p) != &gk_cpu_backend;
		/* chunks differ in size */
		gk_free(p->host, p->saved);
		p->saved = NULL;
		if (i == 0)
			st = begin_answers(p, pts, err);
		pts->d2_expo = p->pass->d2_expo;
		p->kept_d2 = with_d ? rows->d2[i] : NULL;
		if (st == GK_OK)
			st = ask_chunk(p, err);
	}
	memset(&p->chunk, 0, sizeof(p->chunk));
	return st == GK_OK && with_d ? keep_seeds(p, rows, err) : st;
}

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
	p->row = pass->first;
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
	GkStatus	st = run_chunk(p, err);
	int64_t		rows = p->answer.rows;

	if (st == GK_OK)
		st = gk_pass_quality_end(p->quality, p->keep, &p->answer, err);
	p->answer.rows = rows;
	return st;
}

GkStatus
gk_pass_answer_end(GkPassAnswerer *p, GkPassResult *out, GkError *err)
{
	GkStatus	st = GK_OK;
	int			d = p->answer.d;

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
	else
		st = run_chunk(p, err);
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
	gk_pass_result_free(host, &p->chunk_answer);
	gk_free(host, p->stats);
	gk_free(host, p->moments);
	gk_free(host, p->picks);
	gk_free(host, p->saved);
	gk_pass_quality_free(p->quality);
	gk_chunk_store_free(&p->chunk);
	gk_free(host, p);
}
