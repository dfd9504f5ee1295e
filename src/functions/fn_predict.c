/*
 * fn_predict.c - kmeans_predict, kmeans_distance, kmeans_normalized_distance, kmeans_transform,
 * kmeans_memberships, kmeans_nearest: one point against a model.
 *
 * A query calls these for row after row with the same model, so the prepared model (fn_prepared.c) is
 * kept with the call site (fn_extra).  Each call only has to see that the model is still the same one,
 * without detoasting it:
 *   - a constant cannot change;
 *   - a value in a TOAST table is known by its pointer (a value's id is not
 *     used for another one while a query can still see it);
 *   - any other value by its size and the fingerprint in its header, which
 *     every way of making a value computes anew.
 * get_fn_expr_arg_stable() is no help: PL/pgSQL keeps the call site of a simple expression while
 * the variables in it change.
 *
 * The arithmetic is the engine's, so a label here is the label the fit gave.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/memutils.h"

#include "core/gk_numerics.h"
#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_predict);
PG_FUNCTION_INFO_V1(gkmeans_label);
PG_FUNCTION_INFO_V1(kmeans_distance);
PG_FUNCTION_INFO_V1(kmeans_normalized_distance);
PG_FUNCTION_INFO_V1(kmeans_transform);
PG_FUNCTION_INFO_V1(kmeans_memberships);
PG_FUNCTION_INFO_V1(kmeans_nearest);

typedef struct Predictor
{
	KmeansPoint point;
	bool		constant;		/* the model argument is a constant */

	KmPrepared *model;			/* NULL: none yet */
	bool		toasted;		/* it came from there: */
	struct varatt_external toast;

	MemoryContext cxt;			/* of what follows, which has the model's sizes */
	float	   *prepared;		/* [d], the point */
	float	   *d2;				/* [k], to the centroids; NULL: not asked for yet */
	float	   *cluster_d2;		/* of a spectral model: to the nearest representative of each cluster */
	MemoryContextCallback callback;
} Predictor;

static bool
is_constant(const FmgrInfo *flinfo)
{
	const Node *expr = flinfo->fn_expr;

	return expr != NULL && IsA(expr, FuncExpr) &&
		IsA(linitial(((const FuncExpr *) expr)->args), Const);
}

/* The call site is going away. */
static void
release_model(void *arg)
{
	Predictor  *s = arg;

	if (s->model != NULL)
		km_prepared_release(s->model);
	s->model = NULL;
}

static Predictor *
new_predictor(FunctionCallInfo fcinfo, int nargs)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;
	Predictor  *s = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Predictor));

	s->constant = is_constant(flinfo);
	kmeans_point_init(&s->point, fcinfo, 1, nargs, KM_POINT_TO_LABEL, flinfo->fn_mcxt);
	s->cxt = AllocSetContextCreate(flinfo->fn_mcxt, "kmeans_predict", ALLOCSET_SMALL_SIZES);
	s->callback.func = release_model;
	s->callback.arg = s;
	MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &s->callback);
	return s;
}

/* Make s ready for a value, which same_model() did not recognize. */
static void
take_model(Predictor *s, Datum datum)
{
	const Pointer raw = DatumGetPointer(datum);
	KmPrepared *model = km_prepared_take(datum);

	release_model(s);
	s->model = model;
	MemoryContextReset(s->cxt);
	s->d2 = NULL;
	s->prepared = MemoryContextAlloc(s->cxt, model->prep.d * sizeof(float));
	s->toasted = VARATT_IS_EXTERNAL_ONDISK(raw);
	if (s->toasted)
		VARATT_EXTERNAL_GET_POINTER(s->toast, raw);
}

/* Is this the model that s is prepared for?  False may also mean "not sure". */
static bool
same_model(const Predictor *s, Datum datum)
{
	const Pointer raw = DatumGetPointer(datum);

	if (s->model == NULL)
		return false;
	if (s->constant)
		return true;
	if (VARATT_IS_EXTERNAL_ONDISK(raw))
	{
		struct varatt_external toast;

		VARATT_EXTERNAL_GET_POINTER(toast, raw);
		return s->toasted && memcmp(&toast, &s->toast, sizeof(toast)) == 0;
	}
	if (VARATT_IS_4B_U(raw))
	{
		const KmeansModel *v = (const KmeansModel *) raw;

		return VARSIZE(v) == s->model->size && v->fingerprint == s->model->fingerprint;
	}
	return false;
}

/*
 * Of a point that is not complete: is that so before its features are counted?  One NULL is no
 * point, whatever type it is taken for; nor are features with a NULL that nothing fills in.
 */
static bool
has_no_point(const Predictor *s, FunctionCallInfo fcinfo, int nargs)
{
	bool		null = false;

	for (int i = 1; i <= nargs; i++)
		null |= PG_ARGISNULL(i);
	return s->point.d == 0 || (null && (nargs == 1 || s->point.fill.value == NULL));
}

static bool
lacks_all(const KmeansPoint *p)
{
	return p->partial && memchr(p->missing, false, p->d) == NULL;
}

/*
 * The call's model and point of nargs arguments, both prepared; NULL when the model is, or the
 * point, or a feature that the model has no fill for, or all of a point that may lack some, or, to
 * skip them, when a feature is not finite.
 */
static Predictor *
begin_or_skip(FunctionCallInfo fcinfo, int nargs, bool skip_nonfinite)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;
	Predictor  *s = flinfo->fn_extra;
	bool		complete;
	KmRowRules	rules = {0};

	if (PG_ARGISNULL(0))
		return NULL;
	if (s == NULL)
		flinfo->fn_extra = s = new_predictor(fcinfo, nargs);
	if (!same_model(s, PG_GETARG_DATUM(0)))
		take_model(s, PG_GETARG_DATUM(0));

	s->point.fill = s->model->fill;
	s->point.partial = s->model->prep.distance == GK_PARTIAL;
	complete = kmeans_point_read(&s->point, fcinfo);
	if (!complete && has_no_point(s, fcinfo, nargs))
		return NULL;
	s->point.origin.names = s->model->names;
	rules.cosine = s->model->prep.distance == GK_COSINE;
	rules.skip_nonfinite = skip_nonfinite;
	km_check_features(s->point.d, s->model->prep.d, &s->point.origin);
	if (!complete || lacks_all(&s->point))
		return NULL;
	if (!km_keeps(km_judge_point(s->point.values, s->point.d, &rules), &rules, &s->point.origin,
				  s->point.values, 1, s->point.d))
		return NULL;
	(void) gk_prepare_point(&s->model->prep, s->point.values, s->prepared);
	for (int j = 0; s->point.partial && j < s->point.d; j++)
		if (s->point.missing[j])
			s->prepared[j] = NAN;
	return s;
}

static Predictor *
begin(FunctionCallInfo fcinfo, int nargs)
{
	return begin_or_skip(fcinfo, nargs, false);
}

/* The nearest representative of each cluster. */
static const float *
nearest_by_cluster(Predictor *s)
{
	const KmPrepared *m = s->model;

	for (int c = 0; c < m->clusters; c++)
		s->cluster_d2[c] = INFINITY;
	for (int i = 0; i < m->k; i++)
		s->cluster_d2[m->cluster[i]] = Min(s->cluster_d2[m->cluster[i]], s->d2[i]);
	return s->cluster_d2;
}

/* Squared distances of the point to all clusters, and their number. */
static const float *
measure_all(Predictor *s, int *k)
{
	int			d = s->model->prep.d;
	int			slice = kmeans_centroid_slice(d);

	if (s->d2 == NULL)
	{
		s->d2 = MemoryContextAllocHuge(s->cxt, s->model->k * sizeof(float));
		s->cluster_d2 = MemoryContextAlloc(s->cxt, Max(1, s->model->clusters) * sizeof(float));
	}
	for (int i = 0; i < s->model->k; i += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_distances_by(s->model->prep.distance, s->prepared, d, s->model->centroids + (int64) i * d,
						Min(slice, s->model->k - i), s->d2 + i);
	}
	*k = s->model->clusters > 0 ? s->model->clusters : s->model->k;
	return s->model->clusters > 0 ? nearest_by_cluster(s) : s->d2;
}

/* ERROR for a point that is so far out that its distance says nothing. */
static void
refuse_far(float d2)
{
	GkError		err = {0};

	if (unlikely(gk_is_far(d2)))
		km_throw(NULL, gk_fail_far(&err), &err);
}

static int
nearest_of(const Predictor *s, float *d2)
{
	const KmPrepared *m = s->model;
	int			nearest = gk_nearest_by(m->prep.distance, s->prepared, m->prep.d, m->centroids, m->k, d2);

	refuse_far(*d2);
	return nearest;
}

static int
label_of(const Predictor *s)
{
	float		d2;
	int			nearest = nearest_of(s, &d2);

	return s->model->clusters > 0 ? s->model->cluster[nearest] : nearest;
}

/* kmeans_predict(model kmeans_model, VARIADIC point "any") returns int */
Datum
kmeans_predict(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);

	if (s == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(label_of(s));
}

/* gkmeans_label(model kmeans_model, VARIADIC point "any") returns int: NULL for all points that a fit may leave out */
Datum
gkmeans_label(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin_or_skip(fcinfo, PG_NARGS() - 1, true);

	if (s == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(label_of(s));
}

/* kmeans_distance(model kmeans_model, VARIADIC point "any") returns float8 */
Datum
kmeans_distance(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	float		d2;

	if (s == NULL)
		PG_RETURN_NULL();
	nearest_of(s, &d2);
	PG_RETURN_FLOAT8(gk_distance_from_d2(&s->model->prep, d2));
}

/* kmeans_normalized_distance(model kmeans_model, VARIADIC point "any") returns float8: as kmeans_anomalies() has it */
Datum
kmeans_normalized_distance(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	float		d2;
	int			nearest;

	if (s == NULL)
		PG_RETURN_NULL();
	if (s->model->clusters > 0)
		kmeans_model_refuse_spectral(PG_GETARG_KMEANS_MODEL(0), "kmeans_normalized_distance()");
	nearest = nearest_of(s, &d2);
	PG_RETURN_FLOAT8(km_normalized(gk_distance_from_d2(&s->model->prep, d2), s->model->unit[nearest]));
}

/* kmeans_transform(model kmeans_model, VARIADIC point "any") returns float8[] */
Datum
kmeans_transform(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	const float *d2;
	double	   *distance;
	int			k;

	if (s == NULL)
		PG_RETURN_NULL();
	d2 = measure_all(s, &k);
	distance = palloc(k * sizeof(double));
	for (int i = 0; i < k; i++)
	{
		refuse_far(d2[i]);
		distance[i] = gk_distance_from_d2(&s->model->prep, d2[i]);
	}
	PG_RETURN_DATUM(km_float8_array(distance, k));
}

/*
 * kmeans_memberships(model kmeans_model, VARIADIC point "any") returns float8[]: of fuzzy c-means
 * with exponent 2, in inverse proportion to the squared distances.
 */
Datum
kmeans_memberships(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	const float *d2;
	double	   *share;
	double		nearest = INFINITY;
	double		sum = 0.0;
	int			k;

	if (s == NULL)
		PG_RETURN_NULL();
	if (!gk_distance_is_root(s->model->prep.distance))
		kmeans_refuse_distance(s->model->prep.distance, "kmeans_memberships()");
	d2 = measure_all(s, &k);
	share = palloc(k * sizeof(double));
	for (int i = 0; i < k; i++)
	{
		refuse_far(d2[i]);
		nearest = fmin(nearest, d2[i]);
	}
	for (int i = 0; i < k; i++)
	{
		/* at a centroid, equal ones share */
		share[i] = d2[i] == nearest ? 1.0 : nearest / d2[i];
		sum += share[i];
	}
	for (int i = 0; i < k; i++)
		share[i] /= sum;
	PG_RETURN_DATUM(km_float8_array(share, k));
}

/*
 * A cluster and its squared distance as one number, in the order of the label's rule: the
 * smaller distance, then the lower number.  Bits of floats that are not negative have the
 * order of the floats.
 */
static uint64
rank_of(float d2, int cluster)
{
	uint32		bits;

	memcpy(&bits, &d2, sizeof(bits));
	return (uint64) bits << 32 | (uint32) cluster;
}

static int
compare_ranks(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* The m lowest ranks of the k clusters, in order, m <= k. */
static uint64 *
lowest_ranks(const float *d2, int k, int m)
{
	uint64	   *rank = palloc_extended(2 * (Size) m * sizeof(uint64), MCXT_ALLOC_HUGE);
	uint64		limit = PG_UINT64_MAX;
	int			n = 0;

	for (int c = 0; c < k; c++)
	{
		uint64		r = rank_of(d2[c], c);

		if (r >= limit)
			continue;
		rank[n++] = r;
		if (n < 2 * m)
			continue;
		qsort(rank, n, sizeof(uint64), compare_ranks);
		n = m;
		limit = rank[m - 1];
	}
	qsort(rank, n, sizeof(uint64), compare_ranks);
	return rank;
}

/* kmeans_nearest(model kmeans_model, point "any", m int) returns table (cluster int, distance float8) */
Datum
kmeans_nearest(PG_FUNCTION_ARGS)
{
	int			m = km_parse_int(fcinfo, 2, "m", 1, PG_INT32_MAX);
	Predictor  *s;
	KmResult	result;
	const float *d2;
	uint64	   *rank;
	int			k;

	km_result_begin(fcinfo, &result);
	if (PG_ARGISNULL(0) || (s = begin(fcinfo, 1)) == NULL)
		return (Datum) 0;
	d2 = measure_all(s, &k);
	m = Min(m, k);
	rank = lowest_ranks(d2, k, m);
	for (int i = 0; i < m; i++)
	{
		int			cluster = (int) (uint32) rank[i];
		Datum		values[2] = {Int32GetDatum(cluster),
		Float8GetDatum(gk_distance_from_d2(&s->model->prep, d2[cluster]))};
		bool		nulls[2] = {false};

		CHECK_FOR_INTERRUPTS();
		refuse_far(d2[cluster]);
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}
