/*
 * state.c - the type kmeans_state: input, output, combination, result.
 *
 * The binary form holds every number of the state in network order, and names in the client's
 * encoding.  The text form is the same in hexadecimal digits, with names in UTF-8.  Both are
 * lossless, and equal sums have equal forms, in whatever order the rows came.  Bytes from outside
 * are hostile: every length is computed anew and compared before memory is asked for.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "core/base/gk_exact.h"
#include "pg/pg.h"
#include "pg/pg_compat.h"
#include "types/model.h"
#include "types/state.h"

#define KM_WIRE_INVALID "invalid kmeans_state: "
#include "pg/pg_wire.h"

PG_FUNCTION_INFO_V1(kmeans_state_in);
PG_FUNCTION_INFO_V1(kmeans_state_out);
PG_FUNCTION_INFO_V1(kmeans_state_recv);
PG_FUNCTION_INFO_V1(kmeans_state_send);
PG_FUNCTION_INFO_V1(kmeans_state_combine);
PG_FUNCTION_INFO_V1(kmeans_state_normal);
PG_FUNCTION_INFO_V1(feature_sum_finish);
PG_FUNCTION_INFO_V1(kmeans_step_finish);
PG_FUNCTION_INFO_V1(kmeans_update_finish);
PG_FUNCTION_INFO_V1(kmeans_forget);

/* Magic, version, kind, d, rows. */
#define HEADER_BYTES	24
/* A sum has no more limbs than this, carries included. */
#define MAX_LIMBS		(GK_WIDE_LIMBS + 8)

/* Characters that are encoded or decoded between two looks for a cancel. */
#define HEX_PIECE		65536

/* ---- access ---- */

/*
 * What is checked here is what a damaged page would break; the input functions
 * and the aggregates make valid values only.
 */
static KmeansState *
from_datum(Datum datum)
{
	KmeansState *s = (KmeansState *) PG_DETOAST_DATUM(datum);
	uint64		size = 0;

	if (VARSIZE(s) >= sizeof(KmeansState) && s->magic == KMEANS_STATE_MAGIC)
	{
		if (s->kind == KMEANS_STATE_SUM && VARSIZE(s) >= offsetof(KmeansSum, limb))
		{
			KmeansSum  *sum = (KmeansSum *) s;

			if (s->d >= 0 && s->d <= GK_MAX_D && sum->nlimbs >= 0 && sum->nlimbs <= MAX_LIMBS)
				size = offsetof(KmeansSum, limb) + (uint64) s->d * sum->nlimbs * sizeof(int64);
		}
		else if (s->kind == KMEANS_STATE_STEP && VARSIZE(s) >= offsetof(KmeansStep, data))
		{
			KmeansStep *step = (KmeansStep *) s;

			if (s->d >= 1 && s->d <= GK_MAX_D && step->k >= 1 && step->k <= GK_MAX_K &&
				step->nplanes >= 0 && step->nplanes <= GK_MAX_SHIFTS &&
				(step->room == 0 || step->room == gk_partial_rows(s->d)) &&
				step->fill >= 0 && step->fill <= step->room)
				size = kmeans_step_size(step);
		}
	}
	if (size != VARSIZE(s))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("value is not a kmeans_state")));
	return s;
}

static KmeansState *
of_kind(KmeansState *s, KmeansStateKind kind)
{
	if (s->kind != kind)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 s->kind == KMEANS_STATE_STEP ?
				 errmsg("kmeans_state is a part of a step, not a sum of points") :
				 errmsg("kmeans_state is a sum of points, not a part of a step")));
	return s;
}

KmeansStep *
kmeans_step_from_datum(Datum datum)
{
	return (KmeansStep *) of_kind(from_datum(datum), KMEANS_STATE_STEP);
}

KmeansState *
kmeans_state_arg(FunctionCallInfo fcinfo, KmeansStateKind kind, const char *function)
{
	(void) km_aggregate_context(fcinfo, function);
	if (PG_ARGISNULL(0))
		return NULL;
	/* a user's aggregate may take it from a table: compressed, or of the other kind */
	return of_kind(from_datum(PG_GETARG_DATUM(0)), kind);
}

/* ---- combination ---- */

static KmeansState *
merge(KmeansState *to, KmeansState *from)
{
	if (to->kind != from->kind)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a sum of points and a part of a step cannot be combined")));
	if (to->kind == KMEANS_STATE_SUM)
		return (KmeansState *) kmeans_sum_merge((KmeansSum *) to, (KmeansSum *) from);
	return (KmeansState *) kmeans_step_merge((KmeansStep *) to, (KmeansStep *) from);
}

/* kmeans_state_combine(a kmeans_state, b kmeans_state) returns kmeans_state */
Datum
kmeans_state_combine(PG_FUNCTION_ARGS)
{
	KmeansState *a;

	if (PG_ARGISNULL(0) && PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (PG_ARGISNULL(0))
		PG_RETURN_POINTER(from_datum(PG_GETARG_DATUM(1)));
	a = from_datum(PG_GETARG_DATUM(0));
	if (PG_ARGISNULL(1))
		PG_RETURN_POINTER(a);

	/* in place only where the first argument is the aggregate's own */
	if (!AggCheckCallContext(fcinfo, NULL))
	{
		KmeansState *copy = palloc(VARSIZE(a));

		memcpy(copy, a, VARSIZE(a));
		a = copy;
	}
	PG_RETURN_POINTER(merge(a, from_datum(PG_GETARG_DATUM(1))));
}

static KmeansState *
normal(const KmeansState *s)
{
	if (s->kind == KMEANS_STATE_SUM)
		return (KmeansState *) kmeans_sum_normal((const KmeansSum *) s);
	return (KmeansState *) kmeans_step_flushed((const KmeansStep *) s);
}

/* kmeans_state_normal(state kmeans_state) returns kmeans_state */
Datum
kmeans_state_normal(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(normal(from_datum(PG_GETARG_DATUM(0))));
}

/* ---- result ---- */

/* feature_sum_finish(state kmeans_state) returns float8[] */
Datum
feature_sum_finish(PG_FUNCTION_ARGS)
{
	const KmeansSum *sum = (KmeansSum *) of_kind(from_datum(PG_GETARG_DATUM(0)), KMEANS_STATE_SUM);
	double	   *values;
	Datum	   *datums;

	/* Rows may all have left the window's frame. */
	if (sum->head.rows == 0)
		PG_RETURN_NULL();
	values = kmeans_sum_values(sum);
	datums = palloc(sum->head.d * sizeof(Datum));
	for (int j = 0; j < sum->head.d; j++)
		datums[j] = Float8GetDatum(values[j]);
	PG_RETURN_ARRAYTYPE_P(construct_array(datums, sum->head.d, FLOAT8OID, sizeof(float8),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* One entry more than the model's; gkmeans' own history is not longer than iterations. */
static double *
append(const double *history, int n, double v)
{
	double	   *to = palloc_extended((n + 1) * sizeof(double), MCXT_ALLOC_HUGE);

	memcpy(to, history, n * sizeof(double));
	to[n] = v;
	return to;
}

/* The model after one more iteration. */
static void
iterate(GkModel *m, const GkPartialResult *r, const KmeansStep *step)
{
	m->size = r->size;
	m->cluster_inertia = r->cluster_inertia;
	m->radius = r->radius;
	m->inertia = r->inertia;
	m->rows_used = step->head.rows;
	m->rows_skipped = step->skipped;
	m->iterations = Min(m->iterations, PG_INT32_MAX - 1) + 1;
	m->converged = !r->moved;
	m->history_inertia = append(m->history_inertia, m->history_len, r->inertia);
	m->history_shift = append(m->history_shift, m->history_len, r->shift);
	m->history_len++;
	strlcpy(m->strategy, "aggregate", sizeof(m->strategy));
}

/*
 * The model of its own rows and the new ones: a centroid moves to the mean of both, as far as
 * one can know it from the mean of the new ones and two counts.
 */
static void
update(GkModel *m, GkPartialResult *r, const GkModel *old)
{
	for (int c = 0; c < m->k; c++)
	{
		const double *from = old->centroids + (int64) c * m->prep.d;
		double	   *to = r->centroids + (int64) c * m->prep.d;
		double		part = (double) r->size[c] / ((double) old->size[c] + r->size[c]);

		CHECK_FOR_INTERRUPTS();
		/* one without new rows stays, empty or not */
		for (int j = 0; j < m->prep.d; j++)
			to[j] = r->size[c] == 0 ? from[j] : old->size[c] == 0 ? to[j] : from[j] + (to[j] - from[j]) * part;
		kmeans_state_count(&r->size[c], old->size[c]);
		r->cluster_inertia[c] += old->cluster_inertia[c];
		r->radius[c] = fmax(r->radius[c], old->radius[c]);
	}
	m->size = r->size;
	m->cluster_inertia = r->cluster_inertia;
	m->radius = r->radius;
	m->inertia = old->inertia + r->inertia;
	strlcpy(m->strategy, "update", sizeof(m->strategy));
}

/* The model that a finished step leads to: as kmeans_step(), or as kmeans_update(). */
static Datum
finish_step(FunctionCallInfo fcinfo, bool updates)
{
	KmeansStep *step = kmeans_step_flushed(kmeans_step_from_datum(PG_GETARG_DATUM(0)));
	KmeansStepView view;
	GkModel		m;
	GkPartialResult r;
	GkError		err;
	char	  **columns;
	Size		kd = (Size) step->k * step->head.d;
	int			slice = kmeans_centroid_slice(step->head.d);

	if (step->head.rows == 0)
		PG_RETURN_NULL();
	kmeans_step_view(step, &view);
	m = view.m;
	r.centroids = palloc_extended(kd * sizeof(double), MCXT_ALLOC_HUGE);
	memcpy(r.centroids, m.centroids, kd * sizeof(double));
	r.size = palloc(step->k * sizeof(int64));
	r.cluster_inertia = palloc(step->k * sizeof(double));
	r.radius = palloc(step->k * sizeof(double));
	r.mean = palloc(step->head.d * sizeof(double));
	for (int c = 0; c < step->k; c += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_partial_finish(&view.partial, c, Min(c + slice, step->k), &r);
	}

	m.centroids = r.centroids;
	if (updates)
	{
		kmeans_state_count(&m.rows_used, step->head.rows);
		kmeans_state_count(&m.rows_skipped, step->skipped);
		update(&m, &r, &view.m);
	}
	else
		iterate(&m, &r, step);
	strlcpy(m.device, "cpu", sizeof(m.device));
	m.context_ms = m.upload_ms = 0.0;

	columns = kmeans_model_columns(view.model);
	km_check(NULL, gk_model_check_range(&m, &err), &err);
	kmeans_model_validate(&m, columns, view.model->ncolumns, view.model->columns_array,
						  ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
	PG_RETURN_POINTER(kmeans_model_assemble(&m, columns, view.model->ncolumns,
											view.model->columns_array));
}

/* kmeans_finish(state kmeans_state) returns kmeans_model */
Datum
kmeans_step_finish(PG_FUNCTION_ARGS)
{
	return finish_step(fcinfo, false);
}

/* kmeans_update_finish(state kmeans_state) returns kmeans_model */
Datum
kmeans_update_finish(PG_FUNCTION_ARGS)
{
	const KmeansStep *step = kmeans_step_from_datum(PG_GETARG_DATUM(0));
	const KmeansModel *model = (const KmeansModel *) step->data;

	if (model->distance == GK_COSINE || (model->parts & KMEANS_WEIGHTED) || step->weighted)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 model->distance == GK_COSINE ? errmsg("kmeans_update() cannot update a model with distance 'cosine'") :
				 errmsg("kmeans_update() cannot update a model with weights"),
				 errdetail(model->distance == GK_COSINE ? "Its centroids do not tell how long the sums of its points are." :
						   "It does not tell how much its rows weigh together."),
				 errhint("Fit again, beginning with it: kmeans_fit(..., warm_start => model).")));
	return finish_step(fcinfo, true);
}

/* A part of a cluster's rows.  One stays, unless all are forgotten: a cluster without rows has no width. */
static int64
rows_kept(int64 rows, double keep)
{
	double		part = rint(rows * keep);

	return part > 0.0 || rows == 0 || keep == 0.0 ? (int64) part : 1;
}

/* kmeans_forget(model kmeans_model, keep float8) returns kmeans_model: as if it had seen only a part of its rows. */
Datum
kmeans_forget(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	double		keep = PG_GETARG_FLOAT8(1);
	int64	   *size;
	double	   *inertia;
	double		before = 0.0;
	double		after = 0.0;
	GkModel		m;

	if (!(keep >= 0.0 && keep <= 1.0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep must be between 0 and 1, not %g", keep),
				 errhint("It is the part of the rows that still count: 0.9 forgets a tenth of them.")));
	kmeans_model_view(v, &m);
	size = palloc(m.k * sizeof(int64));
	inertia = palloc(m.k * sizeof(double));
	m.rows_used = 0;
	for (int c = 0; c < m.k; c++)
	{
		size[c] = rows_kept(m.size[c], keep);
		/* as the rows: their mean distance stays */
		inertia[c] = m.cluster_inertia[c] * (m.size[c] > 0 ? (double) size[c] / m.size[c] : keep);
		m.rows_used += size[c];
		before += m.cluster_inertia[c];
		after += inertia[c];
	}
	m.size = size;
	m.cluster_inertia = inertia;
	m.inertia *= before > 0.0 ? after / before : keep;
	kmeans_model_validate(&m, kmeans_model_columns(v), v->ncolumns, v->columns_array, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
	PG_RETURN_POINTER(kmeans_model_assemble(&m, kmeans_model_columns(v), v->ncolumns, v->columns_array));
}

/* ---- output ---- */

/*
 * The encoding of names in the text form: it must not depend on the client, and hexadecimal
 * digits are not converted on the way to a database with another encoding.
 */
static int
text_encoding(void)
{
	int			own = GetDatabaseEncoding();

	/* these have no conversion to UTF-8 */
	return own == PG_SQL_ASCII || own == PG_MULE_INTERNAL ? own : PG_UTF8;
}

static void
put_int128s(StringInfo buf, const gk_int128_packed *v, Size n)
{
	for (Size i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		put_int128(buf, v[i]);
	}
}

static void
put_step(StringInfo buf, const KmeansStep *step, int encoding)
{
	KmeansStepView v;
	StringInfoData model;
	Size		k = step->k;

	kmeans_step_view(step, &v);
	initStringInfo(&model);
	kmeans_model_put(&model, v.model, encoding);
	pq_sendint32(buf, step->k);
	pq_sendint32(buf, step->weighted);
	pq_sendint32(buf, step->nplanes);
	pq_sendint32(buf, model.len);
	pq_sendint64(buf, step->skipped);
	pq_sendbytes(buf, model.data, model.len);
	pq_sendfloat4(buf, step->far_d2);
	for (int j = 0; j < step->head.d; j++)
		pq_sendfloat4(buf, v.partial.far[j]);
	for (Size i = 0; i < k; i++)
		pq_sendint64(buf, v.partial.count[i]);
	for (Size i = 0; i < k; i++)
		pq_sendfloat4(buf, v.partial.max_d2[i]);
	for (int i = 0; i < step->nplanes; i++)
	{
		pq_sendint32(buf, v.planes[i].shift);
		put_int128s(buf, v.planes[i].sum, k * step->head.d);
		put_int128s(buf, v.planes[i].mass, k);
		put_int128s(buf, v.planes[i].inertia, k);
	}
}

static void
put_state(StringInfo buf, const KmeansState *from, int encoding)
{
	const KmeansState *s = normal(from);

	pq_sendint32(buf, KMEANS_STATE_MAGIC);
	pq_sendint32(buf, KMEANS_STATE_VERSION);
	pq_sendint32(buf, s->kind);
	pq_sendint32(buf, s->d);
	pq_sendint64(buf, s->rows);
	if (s->kind == KMEANS_STATE_SUM)
	{
		const KmeansSum *sum = (const KmeansSum *) s;

		pq_sendint32(buf, sum->lo);
		pq_sendint32(buf, sum->nlimbs);
		for (Size i = 0; i < (Size) s->d * sum->nlimbs; i++)
		{
			km_look_for_cancel(i);
			pq_sendint64(buf, sum->limb[i]);
		}
	}
	else
		put_step(buf, (const KmeansStep *) s, encoding);
}

Datum
kmeans_state_send(PG_FUNCTION_ARGS)
{
	StringInfoData buf;

	pq_begintypsend(&buf);
	put_state(&buf, from_datum(PG_GETARG_DATUM(0)), pg_get_client_encoding());
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

Datum
kmeans_state_out(PG_FUNCTION_ARGS)
{
	StringInfoData buf;
	char	   *text;
	char	   *at;

	initStringInfo(&buf);
	put_state(&buf, from_datum(PG_GETARG_DATUM(0)), text_encoding());
	if ((Size) buf.len * 2 + 3 > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("kmeans_state of %d MB is too large for its text form", buf.len >> 20),
				 errhint("Use the binary form, kmeans_state_send().")));
	text = at = palloc((Size) buf.len * 2 + 3);
	*at++ = '\\';
	*at++ = 'x';
	for (int i = 0; i < buf.len; i += HEX_PIECE)
	{
		CHECK_FOR_INTERRUPTS();
		at += hex_encode(buf.data + i, Min(HEX_PIECE, buf.len - i), at);
	}
	*at = '\0';
	PG_RETURN_CSTRING(text);
}

/* ---- input ---- */

static float
get_float(StringInfo buf, const char *name, bool negative)
{
	float		v = pq_getmsgfloat4(buf);

	if (!isfinite(v) || (v < 0.0f && !negative))
		INVALID("\"%s\" is %g", name, v);
	return v;
}

static void
get_int128s(StringInfo buf, gk_int128_packed *v, Size n)
{
	for (Size i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		v[i] = get_int128(buf);
	}
}

static KmeansState *
get_sum(StringInfo buf, int d, int64 rows)
{
	int			lo;
	int			n;
	KmeansSum  *sum;

	require_bytes(buf, 8);
	lo = get_int(buf, "lo", 0, GK_WIDE_LIMBS);
	n = get_int(buf, "limbs", 0, GK_WIDE_LIMBS + GK_DIGITS_HEADROOM - lo);
	require_bytes(buf, (uint64) d * n * sizeof(int64));
	sum = kmeans_sum_make(d, lo, n == 0 ? 0 : n + GK_DIGITS_HEADROOM);
	sum->head.rows = rows;
	for (int j = 0; j < d; j++)
		for (int i = 0; i < n; i++)
		{
			int64		v = pq_getmsgint64(buf);
			int64		low = i == n - 1 ? -(int64) PG_UINT32_MAX : 0;

			if (v < low || v > PG_UINT32_MAX)
				INVALID("a digit of feature %d is %lld", j + 1, (long long) v);
			sum->limb[(Size) j * sum->nlimbs + i] = v;
		}
	return (KmeansState *) sum;
}

static KmeansModel *
get_model(StringInfo buf, int bytes, int encoding)
{
	StringInfoData part;

	require_bytes(buf, bytes);
	initStringInfo(&part);
	appendBinaryStringInfo(&part, pq_getmsgbytes(buf, bytes), bytes);
	return kmeans_model_get(&part, encoding);
}

static KmeansState *
get_step(StringInfo buf, int d, int64 rows, int encoding)
{
	int			shifts[GK_MAX_SHIFTS];
	int			k;
	bool		weighted;
	int			nplanes;
	int			model_bytes;
	int64		skipped;
	int64		counted = 0;
	uint64		plane_bytes;
	KmeansModel *model;
	KmeansStep *step;
	KmeansStepView v;

	require_bytes(buf, 24);
	k = get_int(buf, "k", 1, GK_MAX_K);
	weighted = get_int(buf, "weighted", 0, 1);
	nplanes = get_int(buf, "planes", 0, GK_MAX_SHIFTS);
	model_bytes = get_int(buf, "model", 1, MaxAllocSize / 2);
	skipped = get_count(buf, "skipped");
	model = get_model(buf, model_bytes, encoding);
	if (model->k != k || model->d != d)
		INVALID("it has %d clusters with %d features, but its model has %d with %d",
				k, d, model->k, model->d);
	plane_bytes = 4 + ((uint64) k * d + 2 * k) * sizeof(gk_int128);
	require_bytes(buf, 4 + (uint64) d * 4 + (uint64) k * 12 + nplanes * plane_bytes);

	/* The shifts lie in front of their planes. */
	for (int i = 0; i < nplanes; i++)
	{
		uint64		at = buf->cursor + 4 + (uint64) d * 4 + (uint64) k * 12 + i * plane_bytes;
		uint32		raw;

		memcpy(&raw, buf->data + at, sizeof(raw));
		shifts[i] = (int) pg_ntoh32(raw);
		if (shifts[i] < GK_PLANE_MIN || shifts[i] > GK_PLANE_MAX || shifts[i] % GK_PLANE_STEP != 0 ||
			(i > 0 && shifts[i] <= shifts[i - 1]))
			INVALID("plane %d has shift %d", i + 1, shifts[i]);
	}
	step = kmeans_step_make(model, weighted, false, nplanes, shifts);
	step->head.rows = rows;
	step->skipped = skipped;
	kmeans_step_view(step, &v);
	step->far_d2 = get_float(buf, "far_d2", false);
	for (int j = 0; j < d; j++)
		v.partial.far[j] = get_float(buf, "far", true);
	for (int i = 0; i < k; i++)
		counted += v.partial.count[i] = get_count(buf, "size");
	if (counted != rows)
		INVALID("its clusters have %lld points together, but it has %lld", (long long) counted, (long long) rows);
	for (int i = 0; i < k; i++)
		v.partial.max_d2[i] = get_float(buf, "radius", false);
	for (int i = 0; i < nplanes; i++)
	{
		(void) pq_getmsgint(buf, 4);
		get_int128s(buf, v.planes[i].sum, (Size) k * d);
		get_int128s(buf, v.planes[i].mass, k);
		get_int128s(buf, v.planes[i].inertia, k);
	}
	return (KmeansState *) step;
}

static KmeansState *
get_state(StringInfo buf, int encoding)
{
	KmeansState *s;
	int			version;
	int			kind;
	int			d;
	int64		rows;

	if (buf->len - buf->cursor < HEADER_BYTES)
		INVALID("it has %d bytes, expected at least %d", buf->len - buf->cursor, HEADER_BYTES);
	if (pq_getmsgint(buf, 4) != KMEANS_STATE_MAGIC)
		INVALID("it does not begin as a kmeans_state does");
	version = (int) pq_getmsgint(buf, 4);
	if (version != KMEANS_STATE_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_state has format version %d, this gkmeans reads version %d",
						version, KMEANS_STATE_VERSION),
				 errhint("Use the same version of gkmeans on all servers.")));
	kind = get_int(buf, "kind", KMEANS_STATE_SUM, KMEANS_STATE_STEP);
	d = get_int(buf, "d", kind == KMEANS_STATE_SUM ? 0 : 1, GK_MAX_D);
	rows = get_count(buf, "rows");
	s = kind == KMEANS_STATE_SUM ? get_sum(buf, d, rows) : get_step(buf, d, rows, encoding);
	require_end(buf);
	return s;
}

Datum
kmeans_state_recv(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(get_state((StringInfo) PG_GETARG_POINTER(0), pg_get_client_encoding()));
}

/* hex_decode(), piece by piece.  It skips spaces between bytes, so a piece may need a digit more. */
static void
decode_hex(const char *text, Size len, StringInfo to)
{
	while (len > 0)
	{
		Size		n = Min(HEX_PIECE, len);
		Size		spaces = 0;

		CHECK_FOR_INTERRUPTS();
		for (Size i = 0; i < n; i++)
			spaces += text[i] <= ' ';
		if (n < len && (n - spaces) % 2 != 0)
			n++;
		to->len += (int) hex_decode(text, n, to->data + to->len);
		text += n;
		len -= n;
	}
}

Datum
kmeans_state_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	Size		len = strlen(text);
	StringInfoData buf;

	if (len < 2 || text[0] != '\\' || text[1] != 'x')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid input syntax for type kmeans_state: \"%.*s\"", pg_mbcliplen(text, len, 20), text),
				 errdetail("The text of a kmeans_state begins with \"\\x\".")));
	initStringInfo(&buf);
	enlargeStringInfo(&buf, (int) (len / 2));
	decode_hex(text + 2, len - 2, &buf);
	PG_RETURN_POINTER(get_state(&buf, text_encoding()));
}
