/*
 * gk_pass_quality.c - answer passes of the measures of quality: see gk_pass_quality.h.
 *
 * All sums are of integers in units that the question names, so the answers of any sets of
 * rows add up to the bits of all rows in one place.
 */
#include <string.h>

#include "core/gk_tiles.h"
#include "core/quality/gk_quality_internal.h"
#include "core/rescan/gk_pass_quality.h"

/* Rows as they are given that are looked at together: enough for all threads. */
#define MOST_ROWS	65536

struct GkPassQuality
{
	const GkPass *pass;
	GkQuality	q;
	/* Rows as they are given, until there are enough. */
	GkBatch		rows;
	void	   *memory;			/* of them; NULL: none */
	int			capacity;
	int64_t		row;			/* ordinal of the first */
	/* The sample's rows so far. */
	size_t		got;
	size_t		room;
	int64_t    *stratum;		/* [room] */
	int64_t    *label;			/* [room] */
	double	   *x;				/* [room][d] */
};

GkStatus
gk_pass_quality_open(const GkHost *host, const GkPass *pass, size_t chunk_bytes, GkPassQuality **out, GkError *err)
{
	size_t		rows = chunk_bytes / (pass->prep->d * sizeof(double));

	GkPassQuality *p = gk_alloc0(host, 1, sizeof(GkPassQuality));
	GkStatus	st;

	*out = NULL;
	if (p == NULL)
		return gk_quality_no_memory(err);
	p->pass = pass;
	p->capacity = rows < GK_BATCH_ROWS ? GK_BATCH_ROWS : rows > MOST_ROWS ? MOST_ROWS : (int) rows;
	p->q = (GkQuality) {.host = host,.prep = pass->prep,.d = pass->prep->d,.k = pass->k,.raw = pass->raw,.expo = pass->expo,
		.n = pass->all_rows,.m = pass->sample};
	st = gk_quality_begin(&p->q, pass->centers, err);
	for (int c = 0; st == GK_OK && pass->kind == GK_PASS_SPREAD && c < pass->k; c++)
	{
		p->q.sum.count[c] = pass->size[c];
		p->q.lone |= pass->size[c] == 1;
		for (int j = 0; j < p->q.d; j++)
			p->q.mean[(size_t) c * p->q.d + j] = pass->size[c] > 0 ? pass->means[(size_t) c * p->q.d + j] : INFINITY;
	}
	if (st == GK_OK)
		*out = p;
	else
		gk_pass_quality_free(p);
	return st;
}

/* ---- rows in ---- */

static GkStatus
more_room(GkPassQuality *p, GkError *err)
{
	const GkHost *host = p->q.host;
	size_t		room = 2 * p->room + 64;
	int64_t    *stratum = gk_alloc(host, room, sizeof(int64_t));
	int64_t    *label = gk_alloc(host, room, sizeof(int64_t));
	double	   *x = gk_alloc(host, room * p->q.d, sizeof(double));

	if (stratum == NULL || label == NULL || x == NULL)
	{
		gk_free(host, stratum);
		gk_free(host, label);
		gk_free(host, x);
		return gk_quality_no_memory(err);
	}
	if (p->got > 0)
	{
		memcpy(stratum, p->stratum, p->got * sizeof(int64_t));
		memcpy(label, p->label, p->got * sizeof(int64_t));
		memcpy(x, p->x, p->got * p->q.d * sizeof(double));
	}
	gk_free(host, p->stratum);
	gk_free(host, p->label);
	gk_free(host, p->x);
	p->stratum = stratum;
	p->label = label;
	p->x = x;
	p->room = room;
	return GK_OK;
}

/* Keep the sample's rows among those at hand. */
static GkStatus
pick(GkPassQuality *p, int64_t row, GkError *err)
{
	GkQuality  *q = &p->q;

	for (int64_t s = gk_quality_stratum(q->n, q->m, row); s < q->m; s++)
	{
		int64_t		at = gk_quality_sample_row(q->n, q->m, s);
		GkStatus	st = GK_OK;

		if (at >= row + q->rows)
			break;
		if (p->got == p->room && (st = more_room(p, err)) != GK_OK)
			return st;
		p->stratum[p->got] = s;
		p->label[p->got] = gk_quality_label(q, (int) (at - row), p->x + p->got * q->d, q->per_thread[0].f);
		p->got++;
	}
	return GK_OK;
}

/* Of the rows at hand. */
static GkStatus
room_for_labels(GkQuality *q, GkError *err)
{
	if (q->own_labels >= q->rows)
		return GK_OK;
	gk_free(q->host, q->own_label);
	q->own_labels = 0;
	q->own_label = gk_alloc(q->host, q->rows, sizeof(int32_t));
	if (q->own_label == NULL)
		return gk_quality_no_memory(err);
	q->own_labels = q->rows;
	q->label = q->own_label;
	return GK_OK;
}

/* Look at rows as they are given. */
static GkStatus
run_rows(GkPassQuality *p, const GkBatch *b, GkError *err)
{
	GkQuality  *q = &p->q;
	int64_t		row = p->row;
	GkStatus	st;

	for (int j = 0; j < q->d; j++)
		q->column[j] = gk_batch_column(b, j);
	q->wide = (const uint8_t *) b->wide;
	q->rows = b->rows;
	p->row += b->rows;
	if ((st = room_for_labels(q, err)) != GK_OK)
		return st;
	if (p->pass->kind == GK_PASS_SAMPLE)
		return pick(p, row, err);
	/* the first pass labels the rows */
	if (!gk_quality_sum_rows(q) || (p->pass->kind == GK_PASS_SPREAD && !gk_quality_measure_rows(q)))
		return GK_STOPPED;
	return GK_OK;
}

void
gk_pass_quality_begin(GkPassQuality *p, int64_t first)
{
	p->row = first;
}

GkStatus
gk_pass_quality_flush(GkPassQuality *p, GkKeptRows *keep, GkError *err)
{
	int64_t		row = p->row;
	GkStatus	st;

	if (p->memory == NULL || p->rows.rows == 0)
		return GK_OK;
	st = run_rows(p, &p->rows, err);
	if (st == GK_OK && keep != NULL)
	{
		bool		taken;

		st = gk_kept_take_batch(keep, p->q.host, &p->rows, gk_batch_bytes(p->q.d, 0, p->capacity), row, &taken, err);
		if (taken)
			p->memory = NULL;
	}
	p->rows.rows = 0;
	return st;
}

/* Put a batch's values behind those of a column. */
static void
append_column(GkBatch *to, const GkBatch *b, int j)
{
	if (b->wide[j] && !to->wide[j])
		gk_batch_widen(to, j, to->rows);
	if (to->wide[j] && !b->wide[j])
		for (int i = 0; i < b->rows; i++)
			((double *) gk_batch_column(to, j))[to->rows + i] = ((const float *) gk_batch_column(b, j))[i];
	else
		memcpy((char *) gk_batch_column(to, j) + to->rows * gk_value_bytes(b->wide[j]), gk_batch_column(b, j),
			   b->rows * gk_value_bytes(b->wide[j]));
}

GkStatus
gk_pass_quality_batch(GkPassQuality *p, const GkBatch *b, GkKeptRows *keep, GkError *err)
{
	const GkHost *host = p->q.host;
	GkStatus	st = GK_OK;

	if (p->memory != NULL && p->rows.rows + b->rows > p->capacity)
		st = gk_pass_quality_flush(p, keep, err);
	if (st != GK_OK)
		return st;
	if (p->memory == NULL)
	{
		p->memory = gk_alloc(host, gk_batch_bytes(p->q.d, 0, p->capacity), 1);
		if (p->memory == NULL)
			return gk_quality_no_memory(err);
		gk_batch_init(&p->rows, p->memory, p->q.d, 0, p->capacity);
	}
	for (int j = 0; j < p->q.d; j++)
		append_column(&p->rows, b, j);
	p->rows.rows += b->rows;
	return GK_OK;
}

GkStatus
gk_pass_quality_again(GkPassQuality *p, const GkKeptRows *kept, int64_t *rows, GkError *err)
{
	GkStatus	st = GK_OK;

	*rows = 0;
	for (int i = 0; st == GK_OK && i < kept->nbatches; i++)
	{
		p->row = kept->batch[i].row;
		st = run_rows(p, &kept->batch[i].rows, err);
		*rows += kept->batch[i].rows.rows;
	}
	return st;
}

typedef struct Labels
{
	int32_t    *label;
	int			rows;
} Labels;

static bool
take_labels(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Labels	   *l = ctx;

	(void) d2;
	(void) aux;
	memcpy(l->label + l->rows, label, rows * sizeof(int32_t));
	l->rows += rows;
	return true;
}

static GkStatus
label_chunk(GkPassQuality *p, const GkBackend *backend, GkSession *session, GkError *err)
{
	GkQuality  *q = &p->q;
	Labels		labels = {NULL};
	GkLabelSink sink = {&labels, take_labels, NULL};

	GkStatus	st = room_for_labels(q, err);

	if (st != GK_OK)
		return st;
	labels.label = q->own_label;
	return backend->finish(session, q->centroid_f, q->k, NULL, &sink, err);
}

GkStatus
gk_pass_quality_chunk(GkPassQuality *p, const GkBackend *backend, GkSession *session, const GkChunk *chunk,
					  int64_t row, GkError *err)
{
	GkQuality  *q = &p->q;
	GkStatus	st;

	for (int j = 0; j < q->d; j++)
		q->column[j] = chunk->data + (size_t) j * chunk->stride;
	q->stride = chunk->stride;
	q->rows = chunk->rows;
	if (p->pass->kind == GK_PASS_SAMPLE)
		return pick(p, row, err);
	if ((st = label_chunk(p, backend, session, err)) != GK_OK)
		return st;
	return (p->pass->kind == GK_PASS_MEANS ? gk_quality_sum_rows(q) : gk_quality_measure_rows(q)) ? GK_OK : GK_STOPPED;
}

/* ---- the answer ---- */

static void
put_means(const GkQuality *q, GkPassResult *out)
{
	size_t		kd = (size_t) q->k * q->d;

	memcpy(out->i128, q->sum.sum, kd * sizeof(gk_int128));
	out->i128[kd] = q->sum.inertia;
	memcpy(out->i64, q->sum.count, q->k * sizeof(int64_t));
	out->i64[q->k] = q->sum.far;
}

static void
put_spread(const GkQuality *q, GkPassResult *out)
{
	memcpy(out->i128, q->sum.spread, q->k * sizeof(gk_int128));
	out->i128[q->k] = q->sum.within;
	out->i128[q->k + 1] = q->sum.simplified;
}

GkStatus
gk_pass_quality_end(GkPassQuality *p, GkPassResult *out, GkError *err)
{
	GkPass		pass = *p->pass;
	GkStatus	st;

	pass.want = (int) p->got;
	if ((st = gk_pass_result_init(p->q.host, &pass, p->q.d, out, err)) != GK_OK)
		return st;
	switch (pass.kind)
	{
		case GK_PASS_MEANS:
			gk_quality_add_sums(&p->q);
			put_means(&p->q, out);
			break;
		case GK_PASS_SPREAD:
			gk_quality_add_spreads(&p->q);
			put_spread(&p->q, out);
			if (p->q.sum.far)
				return gk_fail(err, GK_ERR_DATA, "the unit of a pass does not suit the rows");
			break;
		default:
			if (p->got > 0)
			{
				memcpy(out->i64, p->stratum, p->got * sizeof(int64_t));
				memcpy(out->i64 + p->got, p->label, p->got * sizeof(int64_t));
				memcpy(out->dbl, p->x, out->ndbl * sizeof(double));
			}
	}
	return GK_OK;
}

void
gk_pass_quality_free(GkPassQuality *p)
{
	const GkHost *host;

	if (p == NULL)
		return;
	host = p->q.host;
	gk_quality_end(&p->q);
	gk_free(host, p->memory);
	gk_free(host, p->stratum);
	gk_free(host, p->label);
	gk_free(host, p->x);
	gk_free(host, p);
}
