/*
 * rel_vector.h - values of vector types as they are stored.
 *
 * pgvector's vector, halfvec and sparsevec, and PostgreSQL's bit.  A type's name proves
 * nothing, so it has to be a member of the extension called vector; and what a value
 * claims about itself is checked before it is read, each time.
 */
#ifndef REL_VECTOR_H
#define REL_VECTOR_H

#include "postgres.h"

typedef enum KmLayout
{
	KM_LAYOUT_ARRAY,			/* an array of PostgreSQL's, not a vector */
	KM_LAYOUT_VECTOR, KM_LAYOUT_HALFVEC, KM_LAYOUT_SPARSEVEC, KM_LAYOUT_BIT
} KmLayout;

/* What a value of KM_LAYOUT_VECTOR has before its floats. */
#define KM_VECTOR_HEAD	(2 * sizeof(int16))

/* How values of a base type are stored; KM_LAYOUT_ARRAY: it is no vector type. */
extern KmLayout km_vector_layout(Oid type); /* rel_types.c */
extern const char *km_vector_type_name(KmLayout layout);

/*
 * The rest is for any thread.  body is a value without its varlena header, and need not be
 * aligned.
 */

/* How many features a value has; 0: it is not a valid one. */
extern int	km_vector_features(KmLayout layout, const char *body, Size bytes);

/* Bytes of a value of d features at most. */
extern Size km_vector_largest(KmLayout layout, int d);

/* The d features of a valid value. */
extern void km_vector_floats(KmLayout layout, const char *body, int d, float *to);

/* The same as doubles.  Not for other threads. */
extern void km_vector_values(KmLayout layout, const char *body, int d, double *to);

#endif							/* REL_VECTOR_H */
