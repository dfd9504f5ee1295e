/*
 * bench.h - what the engine's benchmarks share: a host's memory, and medians.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdlib.h>

static inline void *
host_alloc(void *ctx, size_t bytes)
{
	(void) ctx;
	return malloc(bytes);
}

static inline void
host_free(void *ctx, void *p)
{
	(void) ctx;
	free(p);
}

static inline int
by_value(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Of n values, which it sorts. */
static inline double
median(double *v, int n)
{
	qsort(v, n, sizeof(double), by_value);
	return v[n / 2];
}

#endif							/* BENCH_H */
