/*
 * fn_predict.c - kmeans_predict, kmeans_distance, kmeans_transform: one point against a model.
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

/* Copy a model that s is not prepared for to a context below parent, with prepared centroids. */
static void
prepare(Predictor *s, const KmeansModel *v, MemoryContext parent)
{
	MemoryContext caller;
	GkModel		m;
	int64		d = v->d;
	int			slice = Max(1, 1000000 / v->d);

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
 * The call's model and point, both prepared; NULL when a feature is NULL.
 */
static Predictor *
begin(FunctionCallInfo fcinfo)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;
	Predictor  *s = flinfo->fn_extra;
	bool		complete;
	KmRowRules	rules = {0};

	if (s == NULL)
	{
		s = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Predictor));
		s->constant = is_constant(flinfo);
		kmeans_point_init(&s->point, fcinfo, 1, PG_NARGS() - 1, KM_POINT_TO_LABEL, flinfo->fn_mcxt);
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

/* kmeans_predict(model kmeans_model, VARIADIC point "any") returns int */
Datum
kmeans_predict(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo);
	float		d2;

	if (s == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT32(gk_nearest(s->prepared, s->prep.d, s->centroids, s->k, &d2));
}

/* kmeans_distance(model kmeans_model, VARIADIC point "any") returns float8 */
Datum
kmeans_distance(PG_FUNCTION_ARGS)
{
	Predictor  *s = begin(fcinfo);
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
	Predictor  *s = begin(fcinfo);
	double	   *distance;

	if (s == NULL)
		PG_RETURN_NULL();
	distance = palloc(s->k * sizeof(double));
	for (int i = 0; i < s->k; i++)
	{
		float		d2 = gk_d2(s->prepared, 1, s->centroids + (int64) i * s->prep.d, s->prep.d);

		if (i % 4096 == 4095)
			CHECK_FOR_INTERRUPTS();
		distance[i] = gk_distance_from_d2(&s->prep, d2);
	}
	PG_RETURN_DATUM(km_float8_array(distance, s->k));
}
