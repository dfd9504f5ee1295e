/*
 * mixed.h - what the SQL functions of k-prototypes share.
 *
 *   fn_mixed_rows.c     relation, columns  -> KmMixedRows: numbers, and categories as codes
 *   fn_mixed_pages.c    the same by threads, from the pages of tables
 *   fn_mixed_prepare.c  KmMixedRows        -> the engine's rows
 *   fn_mixed.c          kmeans_mixed(), kmeans_mixed_fit()
 *   fn_mixed_model.c    their model, which is jsonb; kmeans_mixed_predict()
 */
#ifndef MIXED_H
#define MIXED_H

#include "postgres.h"

#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "core/mixed/gk_mixed.h"
#include "functions/mixed_dictionary.h"
#include "relation/relation.h"

#define MOST_GAMMA	1e30

/* A column, and how its values are prepared. */
typedef struct KmMixedColumn
{
	char	   *name;
	bool		number;			/* else categories */
	/* (value - center) * scale, on the grid of expo */
	double		center;
	double		scale;
	int			expo;
	text	  **categories;		/* of a fit: [codes], in the order of their bytes */
} KmMixedColumn;

/* The rows of a fit. */
typedef struct KmMixedRows
{
	DestReceiver pub;			/* must be first */
	MemoryContext cxt;
	MemoryContext row;			/* of a row's values */
	struct KmPgHost *host;
	KmSource   *source;
	int			ncolumns;
	KmMixedColumn *column;
	Oid		   *type;			/* [ncolumns] base types; an enum's: anyenum */
	int		   *place;			/* [ncolumns] among the numbers, or the categories */
	GkMixed		m;				/* until they are prepared, a row's codes are side by side */
	double	  **number;			/* [d] as they are read */
	KmMixedDictionary *dictionary;	/* [c] */
	double		dictionary_bytes;
	int64		room;			/* rows */
	int64		left_out;
} KmMixedRows;

/* ---- fn_mixed_rows.c ---- */

/* Is a column of this base type a number?  If not, km_is_category() says whether it is a category. */
extern bool km_mixed_is_number(Oid type);

/* A value of a number's type. */
extern double km_mixed_number(Oid type, Datum value);

/* Is a category's value its bytes, so that a thread can read it? */
extern bool km_mixed_is_plain(Oid type);

/* A value's bytes.  Of a plain type, if it is not stored out of line or compressed, without PostgreSQL. */
extern KmMixedKey km_mixed_key_of(Oid type, Datum value, uint64 *space);

/* Look at the columns; read all rows that have no NULL. */
extern void km_mixed_open(KmMixedRows *x, Oid relid, ArrayType *columns);
extern void km_mixed_read(KmMixedRows *x);

/* ERROR when the rows and categories are more than memory allows. */
extern void km_mixed_check_memory(const KmMixedRows *x);

/* Have room for `rows` more. */
extern void km_mixed_make_room(KmMixedRows *x, int64 rows);

/* The code of a category, which may be new. */
extern int32 km_mixed_code_of(KmMixedRows *x, int category, const KmMixedKey *key);

/* Take a row's values; one with a NULL is left out. */
extern void km_mixed_take(KmMixedRows *x, const Datum *value, const bool *isnull);

/* ---- fn_mixed_pages.c ---- */

/* A KmQueryScan for KmMixedRows. */
extern bool km_mixed_scan(struct QueryDesc *desc, DestReceiver *dest);

/* ---- fn_mixed_prepare.c ---- */

/* Into the engine's form.  Returns Huang's gamma: half the mean standard deviation of the numbers, as distances have them. */
extern float km_mixed_prepare_rows(KmMixedRows *x, bool standardize);

/* ---- fn_mixed_model.c ---- */

/* The prepared value of a number; ERROR when it is not finite. */
extern float km_mixed_prepare(const KmMixedColumn *column, double value);

/* A cluster's means and shares, for users to read. */
extern Jsonb * km_mixed_centroid(const GkMixed *m, const KmMixedColumn *columns, int ncolumns, int cluster);

/* The whole model. */
extern Jsonb * km_mixed_model(const GkMixed *m, const KmMixedColumn *columns, int ncolumns);

#endif							/* MIXED_H */
