/*
 * fn_point.h - a point from the arguments of a function call.
 */
#ifndef FN_POINT_H
#define FN_POINT_H

#include "fmgr.h"

#include "relation/rel_rules.h"

/* How values of a type become real[]. */
typedef enum KmPointCast
{
	KM_CAST_NONE,				/* they need no change */
	KM_CAST_FUNCTION,
	KM_CAST_TEXT				/* by the type's output function and array_in() */
} KmPointCast;

/*
 * For functions whose last argument is VARIADIC "any": features given one by
 * one, or the whole point as one array of numbers, as one untyped literal
 * ('{1,2}'), or as one value of a type that has a cast to real[] (pgvector's
 * vector and halfvec).  A function with an array type in its signature may use
 * it too.
 */
typedef struct KmeansPoint
{
	int			d;				/* features of the point read last */
	double	   *values;			/* [d]; 0 for a NULL feature */
	int			capacity;
	int			first;			/* number of the first argument */
	int			nargs;			/* how many there are */
	bool		whole;			/* the one argument is the whole point */
	bool		floats;			/* all arguments are real */
	Oid		   *types;			/* base types of the arguments; of an array: of its elements */
	KmPointCast cast_kind;		/* of the one argument, to real[] */
	FmgrInfo	cast;
	KmPointOrigin origin;		/* for errors */
	MemoryContext cxt;
} KmeansPoint;

/* Is there a cast to real[] for the type, implicit or not?  Then its values are points. */
extern bool km_casts_to_reals(Oid type);

/* Look at the types of nargs arguments, once per FmgrInfo; *p lives in cxt. */
extern void kmeans_point_init(KmeansPoint *p, FunctionCallInfo fcinfo, int first, int nargs, KmPointUse use,
							  MemoryContext cxt);

/*
 * Read the point of this call into p->d and p->values.  False when a feature is
 * NULL.  NaN and infinities pass; km_judge_point() finds them.
 */
extern bool kmeans_point_read(KmeansPoint *p, FunctionCallInfo fcinfo);
/* The same for a point of one argument, whose value was fetched in another way. */
extern bool kmeans_point_read_one(KmeansPoint *p, Datum value, bool isnull);

/* Features of one number type, given one by one, into x. */
extern void km_point_features(Oid type, int d, const Datum *values, double *x);

#endif							/* FN_POINT_H */
