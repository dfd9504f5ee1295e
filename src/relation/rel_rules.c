/*
 * rel_rules.c - what a row may hold: rows of a relation, and what errors say.
 */
#include "postgres.h"

#include "utils/lsyscache.h"

#include "relation/rel_rules.h"

/* ---- counts ---- */

void
km_count_left_out(KmReadCounts *counts, KmVerdict verdict)
{
	if (verdict == KM_ROW_NO_WEIGHT)
		counts->no_weight++;
	else if (verdict == KM_ROW_NULL_FEATURE)
		counts->null_feature++;
	else if (verdict == KM_ROW_NONFINITE)
		counts->nonfinite++;
	else
		counts->no_direction++;
}

void
km_counts_add(KmReadCounts *to, const KmReadCounts *from)
{
	to->null_feature += from->null_feature;
	to->nonfinite += from->nonfinite;
	to->no_direction += from->no_direction;
	to->no_weight += from->no_weight;
}

int64
km_group_rows_left_out(const KmReadCounts *c)
{
	return c->null_feature + c->nonfinite + c->no_direction + c->no_weight;
}

static void
add_reason(StringInfo why, int64 rows, const char *reason)
{
	if (rows > 0)
		appendStringInfo(why, "%s" INT64_FORMAT " %s", why->len > 0 ? ", " : "", rows, reason);
}

void
km_notice_no_rows(const KmSource *source)
{
	ereport(NOTICE,
			(errmsg("no usable rows in \"%s\"", source->relname)));
}

void
km_notice_left_out(const KmReadCounts *c)
{
	int64		rows = km_group_rows_left_out(c);
	StringInfoData why;

	if (rows == 0)
		return;
	initStringInfo(&why);
	add_reason(&why, c->null_feature, "with a NULL feature");
	add_reason(&why, c->nonfinite, "with NaN or infinity");
	add_reason(&why, c->no_direction, "with all features zero");
	add_reason(&why, c->no_weight, "with weight 0 or NULL");
	ereport(NOTICE,
			(errmsg_plural(INT64_FORMAT " row was left out", INT64_FORMAT " rows were left out",
						   (unsigned long) rows, rows),
			 errdetail("%s.", why.data)));
}

/* ---- errors ---- */

/* For ereport: which row it is. */
static int
row_detail(const KmPointOrigin *o)
{
	const KmSource *source = o->source;
	const TupleTableSlot *slot = o->slot;
	ItemPointer ctid;

	if (o->number == 0)
		return 0;
	if (slot == NULL || source->at_ctid < 0)
		return errdetail("It is row " INT64_FORMAT " of \"%s\".", o->number, source->relname);
	ctid = (ItemPointer) DatumGetPointer(slot->tts_values[source->at_ctid]);
	return errdetail("It is row " INT64_FORMAT " of \"%s\", at (%u,%u) in \"%s\".",
					 o->number, source->relname, ItemPointerGetBlockNumberNoCheck(ctid),
					 ItemPointerGetOffsetNumberNoCheck(ctid),
					 get_rel_name(DatumGetObjectId(slot->tts_values[source->at_tableoid])));
}

static const char *
feature_name(const char *names, int feature)
{
	for (int j = 0; names != NULL && j < feature; j++)
		names += strlen(names) + 1;
	return names;
}

static int
nonfinite_hint(const KmPointOrigin *o)
{
	if (o->source != NULL)
		return errhint("Use nonfinite => 'skip' to leave such rows out.");
	if (o->use == KM_POINT_TO_FIT)
		return errhint("Use nonfinite => 'skip' to leave such points out; the window function, which has no options, leaves out a point that is NULL.");
	if (o->use != KM_POINT_TO_LABEL)
		return errhint("Leave such rows out by WHERE, or by FILTER (WHERE ...) after the aggregate.");
	return 0;
}

/* Feature j of the point is v. */
static void
throw_nonfinite(const KmPointOrigin *o, int j, double v)
{
	const KmSource *source = o->source;
	const char *name = feature_name(o->names, j);
	const char *value = isnan(v) ? "NaN" : source == NULL ? "infinite or out of range" : v > 0 ? "infinity" : "-infinity";

	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 source != NULL && source->array ?
			 errmsg("column \"%s\" has %s in element %d", source->columns[0], value, j + 1) :
			 source != NULL ?
			 errmsg("column \"%s\" has %s", source->columns[j], value) :
			 name != NULL ?
			 errmsg("feature %d (\"%s\") of the point is %s", j + 1, name, value) :
			 errmsg("feature %d of the point is %s", j + 1, value),
			 source != NULL ? row_detail(o) : 0,
			 nonfinite_hint(o)));
}

static void
throw_no_direction(const KmPointOrigin *o)
{
	bool		to_fit = o->source != NULL || o->use == KM_POINT_TO_FIT;

	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("a point with all features zero has no direction"),
			 o->source != NULL ? row_detail(o) :
			 to_fit ? 0 : errdetail("The model was made with the cosine distance."),
			 to_fit ? errhint("Use nonfinite => 'skip' to leave such %s out, or distance => 'euclidean'.",
							  o->source != NULL ? "rows" : "points") : 0));
}

static void
throw_bad_weight(const KmPointOrigin *o, double weight)
{
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 o->source != NULL ?
			 errmsg("weight must be finite and at least 0, but column \"%s\" has %g",
					o->source->weight_column, weight) :
			 errmsg("weight must be finite and at least 0, not %g", weight),
			 o->source != NULL ? row_detail(o) : 0));
}

void
km_throw_verdict(KmVerdict verdict, const KmPointOrigin *o, const double *x, Size stride, int d)
{
	int			j = 0;

	if (verdict == KM_ROW_BAD_WEIGHT)
		throw_bad_weight(o, x[d * stride]);
	if (verdict == KM_ROW_NO_DIRECTION)
		throw_no_direction(o);
	while (isfinite(x[j * stride]))
		j++;
	throw_nonfinite(o, j, x[j * stride]);
	pg_unreachable();
}

int
km_array_features(const ArrayType *array, const KmPointOrigin *o)
{
	int			ndim = ARR_NDIM(array);

	if (ndim > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 o->source != NULL ?
				 errmsg("arrays in column \"%s\" must have 1 dimension, not %d", o->source->columns[0], ndim) :
				 errmsg("point is an array of %d dimensions, expected 1", ndim),
				 o->source != NULL ? row_detail(o) : 0));
	if (ndim == 0)
		ereport(ERROR,
				(errcode(o->source != NULL ? ERRCODE_ARRAY_SUBSCRIPT_ERROR : ERRCODE_DATA_EXCEPTION),
				 o->source != NULL ?
				 errmsg("array in column \"%s\" is empty", o->source->columns[0]) :
				 errmsg("point has no features"),
				 o->source != NULL ? row_detail(o) : 0));
	return ARR_DIMS(array)[0];
}

int
km_valid_features(KmLayout layout, const char *body, Size bytes, const KmPointOrigin *o)
{
	int			d = km_vector_features(layout, body, bytes);

	if (unlikely(d == 0))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 o->source != NULL ?
				 errmsg("column \"%s\" has a value that is not a valid %s", o->source->columns[0], km_vector_type_name(layout)) :
				 errmsg("point is not a valid %s", km_vector_type_name(layout)),
				 o->source != NULL ? row_detail(o) : 0));
	return d;
}

void
km_check_most_features(int d)
{
	if (d > GK_MAX_D)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("points must have at most %d features, not %d", GK_MAX_D, d)));
}

void
km_throw_features(int d, int expected, const KmPointOrigin *o)
{
	if (o->source != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array in column \"%s\" has %d elements, but those before it have %d",
						o->source->columns[0], d, expected),
				 row_detail(o)));
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 o->use == KM_POINT_TO_FIT || o->use == KM_POINT_TO_SUM ?
			 errmsg_plural("point has %d feature, but those before it have %d",
						   "point has %d features, but those before it have %d",
						   d, d, expected) :
			 errmsg_plural("point has %d feature, the model has %d",
						   "point has %d features, the model has %d",
						   d, d, expected),
			 o->use == KM_POINT_TO_FIT || o->use == KM_POINT_TO_SUM ? 0 : errhint("kmeans_info() has the names of the model's columns.")));
}

/* ---- rows of a relation ---- */

static void
set_features(KmRowReader *r, int d)
{
	if (likely(r->d != 0))
		return;
	km_check_most_features(d);
	/* arrays of a query may have changed since the means were taken */
	if (r->fill.value != NULL)
		km_check_features(d, r->fill.d, &r->origin);
	r->point = MemoryContextAlloc(r->context, (d + 1) * sizeof(double));
	if (r->keep_nulls)
		r->missing = MemoryContextAlloc(r->context, d * sizeof(bool));
	r->begin(r->arg, d);
	r->d = d;
}

static inline bool
leaves_out_nulls(const KmRowReader *r)
{
	return r->fill.value == NULL && !r->keep_nulls;
}

static void
put_null(KmRowReader *r, int j)
{
	r->point[j] = r->keep_nulls ? 0.0 : r->fill.value[j];
	if (r->keep_nulls)
		r->missing[j] = true;
}

/* A row of which some columns are NULL. */
static void
read_gaps(KmRowReader *r, const Datum *values, const bool *nulls)
{
	const KmSource *source = r->origin.source;

	for (int i = 0; i < source->nruns; i++)
		for (int j = source->runs[i].first; j < source->runs[i].end; j++)
			if (nulls[j])
				put_null(r, j);
			else
				r->point[j] = km_value_of(source->runs[i].type, values[j]);
}

/* An array of which some elements are NULL. */
static void
read_array_gaps(KmRowReader *r, const ArrayType *array, int d)
{
	KmValueType type = r->origin.source->runs[0].type;
	const void *at = ARR_DATA_PTR(array);

	for (int j = 0; j < d; j++)
	{
		if (att_isnull(j, ARR_NULLBITMAP(array)))
			put_null(r, j);
		else
			at = km_values_in(type, at, 1, r->point + j);
	}
}

static void
begin_missing(KmRowReader *r, int d)
{
	if (r->keep_nulls)
		memset(r->missing, 0, d * sizeof(bool));
}

static KmVerdict
read_columns(KmRowReader *r, const Datum *values, const bool *nulls)
{
	const KmSource *source = r->origin.source;
	bool		gaps = memchr(nulls, true, source->ncolumns) != NULL;

	if (gaps && leaves_out_nulls(r))
		return KM_ROW_NULL_FEATURE;
	set_features(r, source->ncolumns);
	begin_missing(r, r->d);
	if (gaps)
	{
		read_gaps(r, values, nulls);
		return KM_ROW_KEPT;
	}
	for (int i = 0; i < source->nruns; i++)
	{
		const KmColumnRun *run = &source->runs[i];

		km_values_of(run->type, values + run->first, run->end - run->first, r->point + run->first);
	}
	return KM_ROW_KEPT;
}

static KmVerdict
read_array(KmRowReader *r, Datum value, bool isnull)
{
	ArrayType  *array;
	int			d;
	bool		gaps;
	bool		usable;

	if (isnull)
		return KM_ROW_NULL_FEATURE;
	array = DatumGetArrayTypeP(value);
	d = km_array_features(array, &r->origin);
	if (r->d != 0)
		km_check_features(d, r->d, &r->origin);
	gaps = array_contains_nulls(array);
	usable = !gaps || !leaves_out_nulls(r);
	if (usable)
	{
		set_features(r, d);
		begin_missing(r, d);
	}
	if (gaps && usable)
		read_array_gaps(r, array, d);
	else if (usable)
		km_values_in(r->origin.source->runs[0].type, ARR_DATA_PTR(array), d, r->point);
	if ((Pointer) array != DatumGetPointer(value))
		pfree(array);
	return usable ? KM_ROW_KEPT : KM_ROW_NULL_FEATURE;
}

static KmVerdict
read_vector(KmRowReader *r, Datum value, bool isnull)
{
	KmLayout	layout = r->origin.source->layout;
	struct varlena *vector;
	int			d;

	if (isnull)
		return KM_ROW_NULL_FEATURE;
	vector = PG_DETOAST_DATUM_PACKED(value);
	d = km_valid_features(layout, VARDATA_ANY(vector), VARSIZE_ANY_EXHDR(vector), &r->origin);
	if (r->d != 0)
		km_check_features(d, r->d, &r->origin);
	set_features(r, d);
	begin_missing(r, d);
	km_vector_values(layout, VARDATA_ANY(vector), d, r->point);
	if ((Pointer) vector != DatumGetPointer(value))
		pfree(vector);
	return KM_ROW_KEPT;
}

static bool
lacks_all(const KmRowReader *r)
{
	return r->rules.partial && memchr(r->missing, false, r->d) == NULL;
}

/* The weight, when there is one, behind the features. */
static KmVerdict
read_point(KmRowReader *r, const Datum *values, const bool *nulls)
{
	const KmSource *source = r->origin.source;
	double		weight = 1.0;
	KmVerdict	verdict = KM_ROW_KEPT;

	if (source->weighted)
	{
		if (nulls[source->at_weight])
			return KM_ROW_NO_WEIGHT;
		weight = km_value_of(source->weight_type, values[source->at_weight]);
		verdict = km_judge_weight(weight);
		(void) km_keeps(verdict, &r->rules, &r->origin, &weight, 1, 0);
	}
	if (verdict == KM_ROW_KEPT)
		verdict = !source->array ? read_columns(r, values, nulls) : source->layout != KM_LAYOUT_ARRAY
			? read_vector(r, values[0], nulls[0]) : read_array(r, values[0], nulls[0]);
	if (verdict != KM_ROW_KEPT)
		return verdict;
	if (lacks_all(r))
		return KM_ROW_NULL_FEATURE;
	r->point[r->d] = weight;
	verdict = km_judge_point(r->point, r->d, &r->rules);
	(void) km_keeps(verdict, &r->rules, &r->origin, r->point, 1, r->d);
	r->elsewhere = source->array && VARATT_IS_EXTERNAL(DatumGetPointer(values[0]));
	return verdict;
}

KmVerdict
km_read_row(KmRowReader *r, TupleTableSlot *slot)
{
	slot_getallattrs(slot);
	if (!r->sorted)
		r->origin.number++;
	r->origin.slot = r->first == 0 ? slot : NULL;
	return read_point(r, slot->tts_values + r->first, slot->tts_isnull + r->first);
}
