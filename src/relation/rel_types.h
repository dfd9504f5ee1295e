/*
 * rel_types.h - which types can be features, and how a query makes numbers of them.
 */
#ifndef REL_TYPES_H
#define REL_TYPES_H

#include "relation/rel_value.h"
#include "relation/rel_vector.h"

/* What the query's values of a column are. */
typedef struct KmColumnKind
{
	bool		array;			/* or vector, or point: all features at once */
	KmLayout	layout;			/* of it */
	KmValueType type;			/* of the value, or of its elements */
} KmColumnKind;

/* A type without domains, its own and its elements': their values are stored alike. */
extern Oid	km_base_type(Oid type);

/* True when values of a base type can be read as features. */
extern bool km_classify(Oid type, KmColumnKind *kind);

/* Is it a base type whose values are categories to kmeans_mixed()? */
extern bool km_is_category(Oid type);

/* The expression that a query selects for a column of a type that km_classify() knows. */
extern char *km_column_expression(Oid type, const char *quoted);

/* For users to read: that expression, and one for the first feature of an array, vector or point. */
extern char *km_number_expression(Oid type, const char *quoted);
extern char *km_first_feature(Oid type, const char *quoted);

/* Is it geometry or geography of PostGIS?  Their values are features if they are points. */
extern bool km_is_geometry(Oid type);

#endif							/* REL_TYPES_H */
