/*
 * fn_mixed.c - kmeans_mixed() and kmeans_mixed_fit(): clusters of numbers and categories.
 *
 * Rows are read and prepared (mixed.h), and clustered from several starts.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"

#include "functions/functions.h"
#include "functions/mixed.h"

PG_FUNCTION_INFO_V1(kmeans_mixed);
PG_FUNCTION_INFO_V1(kmeans_mixed_fit);

/* relation, columns, k, and then: */
enum
{
	ARG_GAMMA = 3, ARG_STANDARDIZE, ARG_N_INIT, ARG_MAX_ITER, ARG_SEED
};

/* ---- fitting ---- */

static GkStatus
best_run(GkMixed *m, int n_init, int max_iter, int64 seed, GkError *err)
{
	double		least = INFINITY;
	int			best = 0;
	GkStatus	st = GK_OK;

	/* the best one once more, unless it is the last: it costs less than to keep what each has made */
	for (int i = 0; st == GK_OK && i <= n_init; i++)
	{
		int			which = i < n_init ? i : best;

		if (i == n_init && best == n_init - 1)
			break;
		st = gk_mixed_seed(m, seed, which, err);
		if (st == GK_OK)
			st = gk_mixed_fit(m, max_iter, err);
		if (st == GK_OK && m->objective < least)
		{
			least = m->objective;
			best = which;
		}
	}
	return st;
}

static double
parse_gamma(FunctionCallInfo fcinfo)
{
	double		gamma = PG_ARGISNULL(ARG_GAMMA) ? -1.0 : PG_GETARG_FLOAT8(ARG_GAMMA);

	if (!PG_ARGISNULL(ARG_GAMMA) && !(gamma >= 0.0 && gamma <= MOST_GAMMA))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gamma must be between 0 and 1e30, not %g", gamma),
				 errhint("It is what a category that differs adds to the squared distance; NULL is half the mean standard deviation of the numbers.")));
	return gamma;
}

/* The whole call; false: there are no rows. */
static bool
fit(FunctionCallInfo fcinfo, KmMixedRows *x)
{
	double		gamma = parse_gamma(fcinfo);
	int			n_init = km_parse_int(fcinfo, ARG_N_INIT, "n_init", 1, PG_INT32_MAX);
	int			max_iter = km_parse_int(fcinfo, ARG_MAX_ITER, "max_iter", 0, PG_INT32_MAX);
	float		by_numbers;
	GkError		err;

	memset(x, 0, sizeof(*x));
	km_require_arg(fcinfo, 0, "relation");
	km_require_arg(fcinfo, 1, "columns");
	km_require_arg(fcinfo, ARG_STANDARDIZE, "standardize");
	km_require_arg(fcinfo, ARG_SEED, "seed");
	x->cxt = CurrentMemoryContext;
	x->m.k = km_parse_k(fcinfo, 2);
	km_apply_simd();
	x->host = km_host_begin();
	x->m.host = km_host_engine(x->host);
	km_mixed_open(x, PG_GETARG_OID(0), PG_GETARG_ARRAYTYPE_P(1));
	km_mixed_read(x);
	if (x->m.n == 0)
	{
		km_host_end(x->host);
		return false;
	}
	x->m.k = Min(x->m.k, x->m.n);
	x->room = x->m.n;
	km_mixed_check_memory(x);
	by_numbers = km_mixed_prepare_rows(x, PG_GETARG_BOOL(ARG_STANDARDIZE));
	x->m.gamma = gamma >= 0.0 ? (float) gamma : by_numbers;
	km_check(x->host, gk_mixed_alloc(&x->m, &err), &err);
	km_check(x->host, best_run(&x->m, n_init, max_iter, PG_GETARG_INT64(ARG_SEED), &err), &err);
	return true;
}

/*
 * kmeans_mixed(relation regclass, columns text[], k int, gamma float8, standardize bool, n_init int, max_iter int,
 *              seed bigint)
 * returns table (cluster int, size bigint, centroid jsonb, cost float8)
 */
Datum
kmeans_mixed(PG_FUNCTION_ARGS)
{
	KmResult	result;
	KmMixedRows x;

	km_result_begin(fcinfo, &result);
	if (!fit(fcinfo, &x))
		return (Datum) 0;
	for (int i = 0; i < x.m.k; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {false};

		CHECK_FOR_INTERRUPTS();
		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum(x.m.size[i]);
		values[2] = JsonbPGetDatum(km_mixed_centroid(&x.m, x.column, x.ncolumns, i));
		values[3] = Float8GetDatum(x.m.spent[i]);
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	gk_mixed_free(&x.m);
	km_host_end(x.host);
	return (Datum) 0;
}

/* kmeans_mixed_fit(as kmeans_mixed()) returns jsonb */
Datum
kmeans_mixed_fit(PG_FUNCTION_ARGS)
{
	Jsonb	   *model;
	KmMixedRows x;

	if (!fit(fcinfo, &x))
		PG_RETURN_NULL();
	model = km_mixed_model(&x.m, x.column, x.ncolumns);
	gk_mixed_free(&x.m);
	km_host_end(x.host);
	PG_RETURN_JSONB_P(model);
}
