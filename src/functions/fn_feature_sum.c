/*
 * fn_feature_sum.c - feature_sum(point) and feature_sum(point, weight): the Feature Sum as a
 * plain GROUP BY aggregate.  The sums are those of types/state_sum.c.
 */
#include "postgres.h"

#include "functions/functions.h"
#include "types/state.h"

PG_FUNCTION_INFO_V1(feature_sum_add);
PG_FUNCTION_INFO_V1(feature_sum_subtract);
PG_FUNCTION_INFO_V1(feature_sum_add_weighted);
PG_FUNCTION_INFO_V1(feature_sum_subtract_weighted);

/* The call's point and weight. */
static KmVerdict
read_row(FunctionCallInfo fcinfo, KmeansPoint *p, bool weighted, double *weight)
{
	static const KmRowRules rules;
	KmVerdict	verdict;

	if (weighted)
	{
		if (PG_ARGISNULL(2))
			return KM_ROW_NO_WEIGHT;
		*weight = PG_GETARG_FLOAT8(2);
		verdict = km_judge_weight(*weight);
		if (!km_keeps(verdict, &rules, &p->origin, weight, 1, 0))
			return verdict;
	}
	if (!kmeans_point_read(p, fcinfo))
		return KM_ROW_NULL_FEATURE;
	verdict = km_judge_point(p->values, p->d, &rules);
	(void) km_keeps(verdict, &rules, &p->origin, p->values, 1, p->d);
	return verdict;
}

static Datum
transition(FunctionCallInfo fcinfo, const char *name, int nargs, bool weighted, int sign)
{
	KmeansSum  *sum = (KmeansSum *) kmeans_state_arg(fcinfo, KMEANS_STATE_SUM, name);
	KmeansPoint *p = kmeans_point_of_call(fcinfo, 1, nargs, KM_POINT_TO_SUM);
	double		weight = 1.0;
	KmVerdict	verdict = read_row(fcinfo, p, weighted, &weight);

	/* Without points it has no features, but moving aggregates take no NULL. */
	if (sum == NULL)
		sum = kmeans_sum_make(0, 0, 0);
	if (verdict != KM_ROW_KEPT)
		PG_RETURN_POINTER(sum);
	/* nor has one whose points have all left the window's frame */
	if (sum->head.d == 0 || (sum->head.rows == 0 && sum->head.d != p->d))
		sum = kmeans_sum_make(p->d, 0, 0);
	km_check_features(p->d, sum->head.d, &p->origin);
	sum = weighted ? kmeans_sum_add_weighted(sum, p->values, p->d, weight, sign) :
		kmeans_sum_add(sum, p->values, p->d, sign);
	PG_RETURN_POINTER(sum);
}

/* feature_sum_add(state kmeans_state, VARIADIC point "any") returns kmeans_state */
Datum
feature_sum_add(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "feature_sum_add", PG_NARGS() - 1, false, 1);
}

/* feature_sum_subtract(state kmeans_state, VARIADIC point "any") returns kmeans_state */
Datum
feature_sum_subtract(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "feature_sum_subtract", PG_NARGS() - 1, false, -1);
}

/* feature_sum_add_weighted(state kmeans_state, point float8[], weight float8) returns kmeans_state */
Datum
feature_sum_add_weighted(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "feature_sum_add_weighted", 1, true, 1);
}

/* feature_sum_subtract_weighted(state kmeans_state, point float8[], weight float8) returns kmeans_state */
Datum
feature_sum_subtract_weighted(PG_FUNCTION_ARGS)
{
	return transition(fcinfo, "feature_sum_subtract_weighted", 1, true, -1);
}
