/*
 * fn_predict.c - kmeans_predict, kmeans_distance, kmeans_transform, kmeans_nearest: one point
 * against a model.
 *
 * A query calls these for row after row with the same model, so the model is prepared once and kept
 * with the call site (fn_extra).  Each call only has to see that the model is still the same one,
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

#include "access/detoast.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/memutils.h"

#include "core/gk_numerics.h"
#include "functions/functions.h"

PG_FUNCTION_INFO_V1(kmeans_predict);
PG_FUNCTION_INFO_V1(kmeans_distance);
PG_FUNCTION_INFO_V1(kmeans_transform);
PG_FUNCTION_INFO_V1(kmeans_nearest);

typedef struct Predictor
{
	KmeansPoint point;
	bool		constant;		/* the model argument is a constant */

	/* The model it is prepared for. */
	MemoryContext cxt;			/* all below, NULL: no model yet */
	bool		toasted;
	struct varatt_external toast;
	Size		size;
	uint64		fingerprint;

	GkPrep		prep;
	int			k;
	float	   *centroids;		/* [k][d], prepared */
	float	   *prepared;		/* [d], the point */
	float	   *d2;				/* [k], to the centroids; NULL: not asked for yet */
	char	   *names;			/* of the features, one after the other, or NULL */
} Predictor;

static bool
is_constant(const FmgrInfo *flinfo)
{
	const Node *expr = flinfo->fn_expr;

	return expr != NULL && IsA(expr, FuncExpr) &&
		IsA(linitial(((const FuncExpr *) expr)->args), Const);
}

static void *
copy(const void *from, Size bytes)
{
	return memcpy(palloc_extended(bytes, MCXT_ALLOC_HUGE), from, bytes);
}

/* Centroids that are dealt with between two looks at interrupts. */
static int
slice_of(int d)
{
	return Max(1, 1000000 / d);
}

/* Copy a model that s is not prepared for to a context below parent, with prepared centroids. */
static void
prepare(Predictor *s, const KmeansModel *v, MemoryContext parent)
{
	MemoryContext caller;
	GkModel		m;
	int64		d = v->d;
	int			slice = slice_of(v->d);

	if (s->cxt != NULL)
		MemoryContextDelete(s->cxt);
	s->cxt = NULL;
	kmeans_model_view(v, &m);
	caller = MemoryContextSwitchTo(AllocSetContextCreate(parent, "kmeans_model prepared",
														 ALLOCSET_SMALL_SIZES));
	s->prep = m.prep;
	s->prep.center = copy(m.prep.center, d * sizeof(double));
	s->prep.scale = copy(m.prep.scale, d * sizeof(double));
	s->prep.expo = copy(m.prep.expo, d * sizeof(int32));
	s->k = m.k;
	s->centroids = palloc_extended(m.k * d * sizeof(float), MCXT_ALLOC_HUGE);
	for (int i = 0; i < m.k; i += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_model_prepare(&s->prep, m.centroids + i * d, Min(slice, m.k - i), s->centroids + i * d);
	}
	s->prepared = palloc(d * sizeof(float));
	s->d2 = NULL;
	s->names = v->ncolumns > 0 && !v->columns_array ? copy(kmeans_model_names(v), v->names_len) : NULL;
	s->size = VARSIZE(v);
	s->fingerprint = v->fingerprint;
	s->cxt = CurrentMemoryContext;
	MemoryContextSwitchTo(caller);
}

/* Make s ready for a value, which same_model() did not recognize. */
static void
take_model(Predictor *s, Datum datum, MemoryContext parent)
{
	KmeansModel *v = kmeans_model_from_datum(datum);
	const Pointer raw = DatumGetPointer(datum);

	/* it may be the same content from another place: compressed, or another row */
	if (s->cxt == NULL || s->size != VARSIZE(v) || s->fingerprint != v->fingerprint)
		prepare(s, v, parent);
	s->toasted = VARATT_IS_EXTERNAL_ONDISK(raw);
	if (s->toasted)
		VARATT_EXTERNAL_GET_POINTER(s->toast, raw);
	if ((Pointer) v != raw)
		pfree(v);
}

/* Is this the model that s is prepared for?  False may also mean "not sure". */
static bool
same_model(const Predictor *s, Datum datum)
{
	const Pointer raw = DatumGetPointer(datum);

	if (s->cxt == NULL)
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

		return VARSIZE(v) == s->size && v->fingerprint == s->fingerprint;
	}
	return false;
}

/*
 * The call's model and point of nargs arguments, both prepared; NULL when a feature is NULL.
 */
static Predictor *
begin(FunctionCallInfo fcinfo, int nargs)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;
	Predictor  *s = flinfo->fn_extra;
	bool		complete;
	KmRowRules	rules = {0};

	if (s == NULL)
	{
		s = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Predictor));
		s->constant = is_constant(flinfo);
		kmeans_point_init(&s->point, fcinfo, 1, nargs, KM_POINT_TO_LABEL, flinfo->fn_mcxt);
		flinfo->fn_extra = s;
	}
	if (!same_model(s, PG_GETARG_DATUM(0)))
		take_model(s, PG_GETARG_DATUM(0), flinfo->fn_mcxt);

	complete = kmeans_point_read(&s->point, fcinfo);
	if (!complete && s->point.d == 0)
		return NULL;			/* a NULL instead of a point */
	s->point.origin.names = s->names;
	rules.cosine = s->prep.distance == GK_COSINE;
	km_check_features(s->point.d, s->prep.d, &s->point.origin);
	if (!complete)
		return NULL;
	(void) km_keeps(km_judge_point(s->point.values, s->point.d, &rules), &rules, &s->point.origin,
					s->point.values, 1, s->point.d);
	(void) gk_prepare_point(&s->prep, s->point.values, s->prepared);
	return s;
}

/* Squared distances of the point to all centroids: s->d2. */
static void
measure_all(Predictor *s)
{
	int			d = s->prep.d;
	int			slice = slice_of(d);

	if (s->d2 == NULL)
		s->d2 = MemoryContextAllocHuge(s->cxt, s->k * sizeof(float));
	for (int i = 0; i < s->k; i += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_distances(s->prepared, d, s->centroids + (int64) i * d, Min(slice, s->k - i), s->d2 + i);
	}
}

/* kmeans_predict(model kmeans_model, VARIADIC point "any") returns int */
Datum
kmeans_predict(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	float		d2;

	if (s == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(gk_nearest(s->prepared, s->prep.d, s->centroids, s->k, &d2));
}

/* kmeans_distance(model kmeans_model, VARIADIC point "any") returns float8 */
Datum
kmeans_distance(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	float		d2;

	if (s == NULL)
		PG_RETURN_NULL();
	gk_nearest(s->prepared, s->prep.d, s->centroids, s->k, &d2);
	PG_RETURN_FLOAT8(gk_distance_from_d2(&s->prep, d2));
}

/* kmeans_transform(model kmeans_model, VARIADIC point "any") returns float8[] */
Datum
kmeans_transform(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo, PG_NARGS() - 1);
	double	   *distance;

	if (s == NULL)
		PG_RETURN_NULL();
	measure_all(s);
	distance = palloc(s->k * sizeof(double));
	for (int i = 0; i < s->k; i++)
		distance[i] = gk_distance_from_d2(&s->prep, s->d2[i]);
	PG_RETURN_DATUM(km_float8_array(distance, s->k));
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
	uint64	   *rank;

	km_result_begin(fcinfo, &result);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || (s = begin(fcinfo, 1)) == NULL)
		return (Datum) 0;
	measure_all(s);
	m = Min(m, s->k);
	rank = lowest_ranks(s->d2, s->k, m);
	for (int i = 0; i < m; i++)
	{
		int			cluster = (int) (uint32) rank[i];
		Datum		values[2] = {Int32GetDatum(cluster),
		Float8GetDatum(gk_distance_from_d2(&s->prep, s->d2[cluster]))};
		bool		nulls[2] = {false};

		CHECK_FOR_INTERRUPTS();
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}
