/*
 * gk_testread.h - a fit of rows that go up to several devices while they are read, as fn_fit.c makes it.
 */
#ifndef GK_TESTREAD_H
#define GK_TESTREAD_H

#include "core/spread/gk_spread.h"
#include "gk_testfit.h"

typedef struct Reading
{
	/* How the rows come. */
	double		expected;		/* rows; < 0: not known */
	int64_t		before;			/* rows before the devices are open */
	bool		wide;
	int			threads;
	size_t		chunk;			/* bytes of one, for those */
	int64_t		stop_at;		/* as TestHost's, counted from the first row that goes up, or from the fit on */
	int64_t		fail_at;
	bool		in_fit;
	/* What became of them. */
	int			reads;			/* of the rows */
	int			up;				/* times that they went up */
	int			lost;			/* devices that were left out */
	bool		on_cpu;
} Reading;

/*
 * Into an answer that answer_init() made; no labels.  Devices that fail are taken out of the spread.  On the
 * CPU, from main memory: spread is NULL.
 */
void		read_and_fit(Answer *a, const Problem *p, GkSpread *spread, Reading *r, GkError *err);

#endif							/* GK_TESTREAD_H */
