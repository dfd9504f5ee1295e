/*
 * rescan_wire.c - kmeans_pass(): one pass over relations of this server, asked by a
 * coordinator.
 *
 * Question and answer are bytes in network order.  They come from another server, so
 * every number is checked before memory is asked for.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/memutils.h"

#include "core/base/gk_exact.h"
#include "core/gk_numerics.h"
#include "rescan/rescan.h"

#define KM_WIRE_INVALID		"invalid pass of k-means: "
#define KM_WIRE_HINT		KM_FOR_COORDINATORS
#include "pg/pg_wire.h"

PG_FUNCTION_INFO_V1(kmeans_pass);

#define PASS_MAGIC		0x6b6d7031	/* "kmp1" */
#define ANSWER_MAGIC	0x6b6d6131	/* "kma1" */
#define PASS_VERSION	2

/* Candidates of k-means|| are the most centroids there are. */
#define MAX_POINTS		(11 * GK_MAX_K)

/* ---- numbers ---- */

static double
get_double(StringInfo buf, const char *name)
{
	double		v = pq_getmsgfloat8(buf);

	if (!isfinite(v))
		INVALID("\"%s\" is %g", name, v);
	return v;
}

static void
put_points(StringInfo buf, const float *points, int n, int d)
{
	pq_sendint32(buf, n);
	for (Size i = 0; i < (Size) n * d; i++)
		pq_sendfloat4(buf, points[i]);
}

static float *
get_points(StringInfo buf, const char *name, int d, int *n)
{
	float	   *points;

	require_bytes(buf, 4);
	*n = get_int(buf, name, 0, MAX_POINTS);
	require_bytes(buf, (uint64) *n * d * sizeof(float));
	points = palloc_extended((Size) *n * d * sizeof(float) + 1, MCXT_ALLOC_HUGE);
	for (Size i = 0; i < (Size) *n * d; i++)
	{
		points[i] = pq_getmsgfloat4(buf);
		if (!isfinite(points[i]))
			INVALID("\"%s\" has %g", name, points[i]);
	}
	return points;
}

static void
put_doubles(StringInfo buf, const double *values, Size n)
{
	for (Size i = 0; i < n; i++)
		pq_sendfloat8(buf, values[i]);
}

static double *
get_doubles(StringInfo buf, const char *name, Size n)
{
	double	   *values;

	require_bytes(buf, (uint64) n * sizeof(double));
	values = palloc_extended(n * sizeof(double) + 1, MCXT_ALLOC_HUGE);
	for (Size i = 0; i < n; i++)
		values[i] = get_double(buf, name);
	return values;
}

/* Magic and version. */
static void
get_head(StringInfo buf, bytea * bytes, uint32 magic)
{
	uint32		version;

	buf->data = VARDATA_ANY(bytes);
	buf->len = buf->maxlen = VARSIZE_ANY_EXHDR(bytes);
	buf->cursor = 0;
	require_bytes(buf, 8);
	if (pq_getmsgint(buf, 4) != magic)
		INVALID("it does not begin as one does");
	version = pq_getmsgint(buf, 4);
	if (version != PASS_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pass of k-means has format version %u, this gkmeans reads version %d",
						version, PASS_VERSION),
				 errhint("Use the same version of gkmeans on all servers.")));
}

/* ---- the question ---- */

/* What the measures of quality ask about. */
static void
put_measure(StringInfo buf, const GkPass *pass, int d)
{
	pq_sendint32(buf, pass->raw);
	pq_sendint32(buf, pass->expo);
	pq_sendint32(buf, pass->k);
	put_doubles(buf, pass->centers, (Size) pass->k * d);
	if (pass->kind == GK_PASS_SPREAD)
		for (int c = 0; c < pass->k; c++)
		{
			pq_sendint64(buf, pass->size[c]);
			if (pass->size[c] > 0)
				put_doubles(buf, pass->means + (Size) c * d, d);
		}
	if (pass->kind == GK_PASS_SAMPLE)
	{
		pq_sendint64(buf, pass->all_rows);
		pq_sendint32(buf, pass->sample);
	}
}

static void
get_sizes(StringInfo buf, GkPass *pass, int d)
{
	int64	   *size;
	double	   *means;

	/* before memory is asked for */
	require_bytes(buf, (uint64) pass->k * sizeof(int64));
	pass->size = size = palloc(pass->k * sizeof(int64));
	pass->means = means = palloc_extended((Size) pass->k * d * sizeof(double), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int c = 0; c < pass->k; c++)
	{
		require_bytes(buf, sizeof(int64));
		size[c] = get_count(buf, "size");
		if (size[c] > 0)
			memcpy(means + (Size) c * d, get_doubles(buf, "means", d), d * sizeof(double));
	}
}

static void
get_measure(StringInfo buf, GkPass *pass, int d)
{
	require_bytes(buf, 12);
	pass->raw = get_int(buf, "raw", 0, 1);
	pass->expo = get_int(buf, "unit of measures", -2200, 400);
	pass->k = get_int(buf, "clusters", 1, GK_MAX_K);
	pass->centers = get_doubles(buf, "centers", (Size) pass->k * d);
	if (pass->kind == GK_PASS_SPREAD)
		get_sizes(buf, pass, d);
	if (pass->kind == GK_PASS_SAMPLE)
	{
		require_bytes(buf, 12);
		pass->all_rows = get_count(buf, "rows");
		pass->sample = get_int(buf, "sample", 1, PG_INT32_MAX);
		if (pass->sample > pass->all_rows)
			INVALID("it is of %d of %lld rows", pass->sample, (long long) pass->all_rows);
	}
}

bytea *
km_pass_bytes(const GkPass *pass, const KmPassReading *reading)
{
	const GkPrep *prep = pass->prep;
	int			d = prep != NULL ? prep->d : 0;
	StringInfoData buf;

	pq_begintypsend(&buf);
	pq_sendint32(&buf, PASS_MAGIC);
	pq_sendint32(&buf, PASS_VERSION);
	pq_sendint32(&buf, pass->kind);
	pq_sendint32(&buf, d);
	pq_sendint32(&buf, reading->distance);
	pq_sendint32(&buf, reading->skip_nonfinite);
	pq_sendint32(&buf, reading->expect_d);
	if (pass->kind != GK_PASS_STATS)
	{
		pq_sendint32(&buf, prep->standardize);
		pq_sendint32(&buf, prep->unit_exp);
		pq_sendint32(&buf, pass->d2_expo);
		pq_sendint32(&buf, pass->weight_exp);
		for (int j = 0; j < d; j++)
		{
			pq_sendfloat8(&buf, prep->center[j]);
			pq_sendfloat8(&buf, prep->scale[j]);
			pq_sendint32(&buf, prep->expo[j]);
		}
		if (gk_pass_measures(pass))
			put_measure(&buf, pass, d);
		else
		{
			put_points(&buf, pass->centroids, pass->k, d);
			put_points(&buf, pass->seeds, pass->nseeds, d);
			pq_sendint64(&buf, pass->key);
			pq_sendint32(&buf, pass->use_d2);
			pq_sendint32(&buf, pass->want);
		}
	}
	return pq_endtypsend(&buf);
}

static void
get_seeds(StringInfo buf, GkPass *pass, int d)
{
	pass->centroids = get_points(buf, "centroids", d, &pass->k);
	pass->seeds = get_points(buf, "seeds", d, &pass->nseeds);
	require_bytes(buf, 16);
	pass->key = (uint64) pq_getmsgint64(buf);
	pass->use_d2 = get_int(buf, "use_d2", 0, 1);
	pass->want = get_int(buf, "want", 0, 2 * GK_MAX_K);
	if (pass->k == 0 && (pass->kind == GK_PASS_STEP || pass->kind == GK_PASS_FINISH))
		INVALID("it has no centroids");
	if (pass->use_d2 && pass->nseeds == 0)
		INVALID("it has no seeds");
}

void
km_pass_question(bytea * bytes, GkPass *pass, KmPassReading *reading)
{
	StringInfoData buf;
	GkPrep	   *prep;
	int			d;

	memset(pass, 0, sizeof(*pass));
	get_head(&buf, bytes, PASS_MAGIC);
	require_bytes(&buf, 20);
	pass->kind = get_int(&buf, "kind", GK_PASS_STATS, GK_PASS_SAMPLE);
	d = get_int(&buf, "d", pass->kind == GK_PASS_STATS ? 0 : 1, pass->kind == GK_PASS_STATS ? 0 : GK_MAX_D);
	reading->distance = get_int(&buf, "distance", GK_EUCLIDEAN, GK_COSINE);
	reading->skip_nonfinite = get_int(&buf, "nonfinite", 0, 1);
	reading->expect_d = get_int(&buf, "features", 0, GK_MAX_D);
	if (pass->kind != GK_PASS_STATS)
	{
		require_bytes(&buf, 16 + (uint64) d * 20);
		prep = palloc0(sizeof(GkPrep));
		pass->prep = prep;
		prep->d = d;
		prep->distance = reading->distance;
		prep->standardize = get_int(&buf, "standardize", 0, 1);
		prep->unit_exp = get_int(&buf, "unit", -2200, 2200);
		pass->d2_expo = get_int(&buf, "bound", -200, 200);
		pass->weight_exp = get_int(&buf, "weights", -1100, 1100);
		prep->center = palloc(d * sizeof(double));
		prep->scale = palloc(d * sizeof(double));
		prep->expo = palloc(d * sizeof(int32));
		for (int j = 0; j < d; j++)
		{
			prep->center[j] = get_double(&buf, "center");
			prep->scale[j] = get_double(&buf, "scale");
			prep->expo[j] = get_int(&buf, "expo", -GK_TOP_EXPO, 2 * GK_TOP_EXPO);
		}
		if (gk_pass_measures(pass))
			get_measure(&buf, pass, d);
		else
			get_seeds(&buf, pass, d);
	}
	require_end(&buf);
}

/* ---- the answer ---- */

static uint64
answer_bytes(const GkPassResult *r)
{
	return r->ni128 * 16 + r->ni64 * 8 + r->ndbl * 8 + r->nflt * 4;
}

static void
check_size(const GkPassResult *r)
{
	if (answer_bytes(r) > MaxAllocSize / 2 - 1024)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("answer of %llu MB is too large to be sent to another server",
						(unsigned long long) (answer_bytes(r) >> 20)),
				 errhint("Use fewer clusters, or a smaller sample.")));
}

static void
put_string(StringInfo buf, const char *s)
{
	pq_sendint32(buf, strlen(s));
	pq_sendbytes(buf, s, strlen(s));
}

/* A name, which may become a model's: letters that every encoding has. */
static void
get_string(StringInfo buf, char *out, int room)
{
	int			len;

	require_bytes(buf, 4);
	len = get_int(buf, "name", 0, room - 1);
	require_bytes(buf, len);
	memcpy(out, pq_getmsgbytes(buf, len), len);
	out[len] = '\0';
	for (int i = 0; i < len; i++)
		if (out[i] < ' ' || out[i] > '~')
			INVALID("a name has byte 0x%02x", (unsigned char) out[i]);
}

/* The rows of each relation; r->rows is their sum. */
static void
put_rows(StringInfo buf, const KmPassAnswer *answer)
{
	pq_sendint32(buf, answer->n);
	for (int i = 0; i < answer->n; i++)
		pq_sendint64(buf, answer->rows[i]);
}

static void
get_rows(StringInfo buf, KmPassAnswer *out, int64 rows)
{
	int			n;

	require_bytes(buf, 4);
	n = get_int(buf, "relations", 0, PG_INT32_MAX);
	if (n != out->n)
		INVALID("it is of %d relations, expected %d", n, out->n);
	require_bytes(buf, (uint64) n * sizeof(int64));
	for (int i = 0; i < n; i++)
	{
		out->rows[i] = get_count(buf, "rows of a relation");
		if (out->rows[i] > rows)
			INVALID("a relation has %lld of %lld rows", (long long) out->rows[i], (long long) rows);
		rows -= out->rows[i];
	}
	if (rows != 0)
		INVALID("%lld rows are of no relation", (long long) rows);
}

bytea *
km_pass_answer_bytes(const GkPass *pass, const KmPassAnswer *answer)
{
	const GkPassResult *r = &answer->result;
	const KmReadCounts *counts = &answer->counts;
	StringInfoData buf;

	check_size(r);
	pq_begintypsend(&buf);
	pq_sendint32(&buf, ANSWER_MAGIC);
	pq_sendint32(&buf, PASS_VERSION);
	pq_sendint32(&buf, pass->kind);
	pq_sendint32(&buf, r->d);
	pq_sendint64(&buf, r->rows);
	pq_sendint64(&buf, counts->null_feature);
	pq_sendint64(&buf, counts->nonfinite);
	pq_sendint64(&buf, counts->no_direction);
	pq_sendint64(&buf, counts->no_weight);
	put_string(&buf, answer->names.device);
	put_string(&buf, answer->names.strategy);
	if (pass->kind == GK_PASS_STATS)
		put_rows(&buf, answer);
	for (Size i = 0; i < r->ni128; i++)
	{
		km_look_for_cancel(i);
		put_int128(&buf, r->i128[i]);
	}
	for (Size i = 0; i < r->ni64; i++)
		pq_sendint64(&buf, r->i64[i]);
	for (Size i = 0; i < r->ndbl; i++)
		pq_sendfloat8(&buf, r->dbl[i]);
	for (Size i = 0; i < r->nflt; i++)
		pq_sendfloat4(&buf, r->flt[i]);
	return pq_endtypsend(&buf);
}

/* Limbs are no larger than their additions can have made them, or the next ones overflow. */
static void
check_wide(const GkWide *w)
{
	int64		most;

	if (w->pending < 0 || w->pending >= GK_DIGITS_PENDING)
		INVALID("\"pending\" is %lld", (long long) w->pending);
	most = (w->pending + 1) * (int64) PG_UINT32_MAX;
	for (int i = 0; i < GK_WIDE_LIMBS; i++)
		if (w->limb[i] < -most || w->limb[i] > most)
			INVALID("a digit is %lld after %lld additions", (long long) w->limb[i], (long long) w->pending);
}

/* What other code relies on: numbers of picks, rows, additions without a carry. */
static void
check_answer(const GkPass *pass, const GkPassResult *r)
{
	if (pass->kind == GK_PASS_SEED)
		for (int i = 0; i < gk_pass_races(pass); i++)
			if (r->i64[i] < 0 || r->i64[i] > pass->want)
				INVALID("a race has %lld of %d rows", (long long) r->i64[i], pass->want);
	if (pass->kind == GK_PASS_SAMPLE)
		for (int i = 0; i < pass->want; i++)
			if (r->i64[pass->want + i] < 0 || r->i64[pass->want + i] >= pass->k)
				INVALID("a row is in cluster %lld of %d", (long long) r->i64[pass->want + i], pass->k);
	if (pass->kind == GK_PASS_STATS)
		for (Size c = 0; c < r->ndbl / 2; c++)
		{
			check_wide((const GkWide *) r->i64 + c);
			if (!(r->dbl[2 * c] <= r->dbl[2 * c + 1]) || isinf(r->dbl[2 * c]) || isinf(r->dbl[2 * c + 1]))
				INVALID("minimum and maximum are %g and %g", r->dbl[2 * c], r->dbl[2 * c + 1]);
		}
}

void
km_pass_answer(const GkHost *engine, const GkPass *pass, bytea * bytes, KmPassAnswer *out)
{
	GkPassResult *r = &out->result;
	StringInfoData buf;
	GkPassResult lengths;
	GkError		err;
	int64		rows;
	int			d;

	get_head(&buf, bytes, ANSWER_MAGIC);
	require_bytes(&buf, 48);
	if (get_int(&buf, "kind", GK_PASS_STATS, GK_PASS_SAMPLE) != (int) pass->kind)
		INVALID("it answers another question");
	d = get_int(&buf, "d", 0, GK_MAX_D);
	rows = get_count(&buf, "rows");
	if (pass->kind != GK_PASS_STATS && d != pass->prep->d)
		INVALID("it is of %d features, expected %d", d, pass->prep->d);
	if (d == 0 && rows > 0)
		INVALID("it is of %lld rows without features", (long long) rows);
	out->counts.null_feature = get_count(&buf, "rows with NULL");
	out->counts.nonfinite = get_count(&buf, "rows with NaN");
	out->counts.no_direction = get_count(&buf, "zero rows");
	out->counts.no_weight = get_count(&buf, "rows without weight");
	get_string(&buf, out->names.device, sizeof(out->names.device));
	get_string(&buf, out->names.strategy, sizeof(out->names.strategy));
	if (pass->kind == GK_PASS_STATS)
		get_rows(&buf, out, rows);

	gk_pass_lengths(pass, d, &lengths);
	require_bytes(&buf, answer_bytes(&lengths));
	km_check(NULL, gk_pass_result_init(engine, pass, d, r, &err), &err);
	r->rows = rows;
	for (Size i = 0; i < r->ni128; i++)
	{
		km_look_for_cancel(i);
		r->i128[i] = get_int128(&buf);
	}
	for (Size i = 0; i < r->ni64; i++)
		r->i64[i] = pq_getmsgint64(&buf);
	for (Size i = 0; i < r->ndbl; i++)
		r->dbl[i] = pq_getmsgfloat8(&buf);
	for (Size i = 0; i < r->nflt; i++)
		r->flt[i] = pq_getmsgfloat4(&buf);
	require_end(&buf);
	check_answer(pass, r);
}

/* ---- SQL ---- */

static ArrayType *
array_or_null(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : PG_GETARG_ARRAYTYPE_P(arg);
}

/*
 * kmeans_pass(relations regclass[], columns text[], pass bytea, weight_column text,
 *             first_rows bigint[], device text) returns bytea
 */
Datum
kmeans_pass(PG_FUNCTION_ARGS)
{
	KmPassReading reading;
	GkPassResult r;
	GkPass		pass;
	char	  **columns;
	int			ncolumns;

	km_require_arg(fcinfo, 1, "columns");
	km_require_arg(fcinfo, 2, "pass");
	columns = km_column_names(PG_GETARG_ARRAYTYPE_P(1), "columns", &ncolumns);
	km_pass_question(PG_GETARG_BYTEA_PP(2), &pass, &reading);
	pass.weighted = !PG_ARGISNULL(3);
	if (pass.prep != NULL)
	{
		gk_pass_lengths(&pass, pass.prep->d, &r);
		check_size(&r);
	}
	km_job(array_or_null(fcinfo, 0), columns, ncolumns, km_parse_text(fcinfo, 3), array_or_null(fcinfo, 4));
	km_apply_simd();
	PG_RETURN_BYTEA_P(km_job_answer(&pass, &reading, km_parse_device(fcinfo, 5)));
}
