/*
 * gk_testhost.h - a GkHost for tests: malloc that counts what is live and can
 * fail at the Nth call, a spill file, a stop after the Nth poll; stores and data.
 */
#ifndef GK_TESTHOST_H
#define GK_TESTHOST_H

#include "core/gk_backend.h"

typedef struct TestHost
{
	GkHost		host;
	int64_t		allocs;			/* calls so far */
	int64_t		fail_at;		/* this call fails; 0: none */
	int64_t		live;			/* blocks not given back */
	int64_t		polls;
	int64_t		stop_at;		/* this poll asks to stop; 0: none */
	int			stopped;		/* any thread may read it */
	int			spill;			/* -1: none so far */
	int64_t		spill_calls;
	int64_t		spill_fail_at;
} TestHost;

void		test_host_init(TestHost *t, int threads);
void		test_host_end(TestHost *t);

/*
 * A store of n rows, row-major values, optional weights; aux column 0 holds the
 * row's index in x.  order: NULL or a permutation.  NaN is a missing value.  Not prepared yet.
 */
GkStore    *load_store(TestHost *t, const double *x, const double *w, int64_t n, int d,
					   const int *order, size_t chunk_bytes, size_t limit, GkError *err);

/* Rows into an empty store of that shape; it is not prepared, and what it has stays. */
GkStatus	fill_store(GkStore *s, const double *x, const double *w, int64_t n, int d,
					   const int *order, GkError *err);

/* Room for a step's results of k clusters; free_step() gives it back. */
GkStep		new_step(int k, int d);
void		free_step(GkStep *step);

/* Labels collected by aux column 0. */
typedef struct Labels
{
	int32_t    *label;			/* [n] */
	float	   *d2;
	int64_t		seen;
} Labels;

GkLabelSink test_sink(Labels *l);

/* Deterministic random numbers for test data. */
double		test_uniform(uint64_t *state);
double		test_normal(uint64_t *state);
int			test_pick(uint64_t *state, int lo, int hi); /* one of lo .. hi */

typedef enum TestKind
{
	TEST_LATTICE,				/* ties everywhere */
	TEST_DUPLICATES,			/* nine different points */
	TEST_UNIFORM,				/* no clusters */
	TEST_IN_ORDER,
	TEST_BLOBS,
	TEST_OUTLIERS,				/* blobs and points far away, at both ends of what float32 can square */
	TEST_FAR_APART				/* blobs */
} TestKind;

/* Points [n][d], and weights that span six powers of ten, by malloc. */
double	   *random_points(uint64_t *state, TestKind kind, int n, int d);
double	   *random_weights(uint64_t *state, int n);

#endif
