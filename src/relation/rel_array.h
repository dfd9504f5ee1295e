/*
 * rel_array.h - where the numbers of a row's array or vector are.
 */
#ifndef REL_ARRAY_H
#define REL_ARRAY_H

#include "relation/rel_deform.h"

/* Finds the arrays of one table's rows, and has copies of those that are not on their page as numbers. */
typedef struct KmArrays KmArrays;

/* In the current memory context.  No toast: for a helper, which defers what it would need PostgreSQL for. */
extern KmArrays *km_arrays_open(const KmRowSpec *spec, KmToast *toast);

/*
 * Find the features in an array or vector: KM_ROW_PLAIN, and where they are, as elements of the
 * spec's type; or KM_ROW_NULL_FEATURE or KM_ROW_DEFERRED.  They stay there as long as the page is
 * pinned, until km_arrays_forget().
 */
extern int	km_arrays_find(KmArrays *a, Datum value, const char **elements);

/* Is there room to find another one? */
extern bool km_arrays_have_room(const KmArrays *a);
extern void km_arrays_forget(KmArrays *a);

#endif							/* REL_ARRAY_H */
