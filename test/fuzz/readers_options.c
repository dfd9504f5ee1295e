/*
 * readers_options.c - words and numbers as the options of a fit.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "functions/functions.h"
#include "readers.h"

extern Datum kmeans_model_in(PG_FUNCTION_ARGS);

/* An argument in the form that SQL would make of this text; NULL for an empty one. */
static NullableDatum
option(Oid type, char *text)
{
	NullableDatum arg = {(Datum) 0, text == NULL || text[0] == '\0'};
	Size		len = arg.isnull ? 0 : strlen(text);
	struct varlena *value;

	if (arg.isnull)
		return arg;
	switch (type)
	{
		case INT4OID:
			arg.value = Int32GetDatum((int32) strtoll(text, NULL, 10));
			break;
		case INT8OID:
			arg.value = Int64GetDatum(strtoll(text, NULL, 10));
			break;
		case FLOAT8OID:
			arg.value = Float8GetDatum(strtod(text, NULL));
			break;
		case BOOLOID:
			arg.value = BoolGetDatum(text[0] == 't');
			break;
		default:
			value = palloc(VARHDRSZ + len);
			SET_VARSIZE(value, VARHDRSZ + len);
			memcpy(VARDATA(value), text, len);
			arg.value = PointerGetDatum(value);
	}
	return arg;
}

/* "1,2;3,4" as a 2 x 2 array. */
static NullableDatum
matrix(char *text)
{
	NullableDatum arg = {(Datum) 0, text == NULL || text[0] == '\0'};
	int			numbers = 1;
	int			rows = 1;
	ArrayType  *a;

	if (arg.isnull)
		return arg;
	for (char *at = text; *at != '\0'; at++)
	{
		numbers += *at == ',' || *at == ';';
		rows += *at == ';';
	}
	a = palloc0(ARR_OVERHEAD_NONULLS(2) + numbers * sizeof(double));
	SET_VARSIZE(a, ARR_OVERHEAD_NONULLS(2) + numbers * sizeof(double));
	a->ndim = numbers % rows == 0 ? 2 : 1;
	a->elemtype = FLOAT8OID;
	ARR_DIMS(a)[0] = a->ndim == 2 ? rows : numbers;
	if (a->ndim == 2)
		ARR_DIMS(a)[1] = numbers / rows;
	for (int i = 0; i < numbers; i++)
	{
		((double *) ARR_DATA_PTR(a))[i] = strtod(text, &text);
		text += strcspn(text, ",;");
		text += *text != '\0';
	}
	arg.value = PointerGetDatum(a);
	return arg;
}

static KmFitOptions parsed;

/* The arguments k, <options> of a fit. */
static Datum
parse_options(PG_FUNCTION_ARGS)
{
	km_parse_options(fcinfo, 1, km_parse_k(fcinfo, 0), &parsed);
	return (Datum) 0;
}

/* Lines: k, weight_column, init, warm_start (a model's text), centroids, n_init, ... device, nulls. */
bool
read_options(const char *data, int size)
{
	char	   *text = pnstrdup(data, size);
	static const Oid types[] = {
		INT4OID, TEXTOID, TEXTOID, TEXTOID, FLOAT8ARRAYOID, INT4OID, INT4OID, FLOAT8OID, TEXTOID, BOOLOID,
		INT8OID, TEXTOID, TEXTOID, TEXTOID
	};
	Call		call = {parse_options, lengthof(types)};
	const GkOptions *o = &parsed.engine;

	StaticAssertStmt(lengthof(types) == 1 + GKMEANS_NOPTIONS, "types differ from <options>");
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		char	   *line = strsep(&text, "\n");

		if (i == 3 && line != NULL && line[0] != '\0')
		{
			if (!reader_try(kmeans_model_in, CStringGetDatum(line), &call.args[i].value))
				return false;
		}
		else
			call.args[i] = types[i] == FLOAT8ARRAYOID ? matrix(line) : option(types[i], line);
		if (i == 3)
			call.args[i].isnull = call.args[i].value == (Datum) 0;
	}
	if (!reader_call(&call))
		return false;
	if (o->k < 1 || o->k > GK_MAX_K || o->n_init < 1 || o->max_iter < 0 || !(o->tol >= 0.0 && o->tol <= DBL_MAX) ||
		(o->centroids != NULL) != (parsed.given_d > 0))
		reader_broken("bad options: k %d, n_init %d, max_iter %d, tol %g, centroids of %d features",
					  o->k, o->n_init, o->max_iter, o->tol, parsed.given_d);
	for (int i = 0; o->centroids != NULL && i < o->k * parsed.given_d; i++)
		if (!isfinite(o->centroids[i]))
			reader_broken("centroids have %g", o->centroids[i]);
	return true;
}
