/*
 * gpu_harness.h - points in memory, a host and an oracle for the GPU backend's
 * tests and benchmarks: no server, no engine, nothing but the headers.
 */
#ifndef GPU_HARNESS_H
#define GPU_HARNESS_H

#include "core/gk_backend.h"
#include "core/gk_numerics.h"
#include "core/gk_update.h"

struct GkStore
{
	GkPoints	pts;
	GkHost		host;
	int			poll_after;		/* polls until stop, < 0: never */
};

/* What points there are. */
typedef enum Kind
{
	BLOBS,						/* Lutz et al.'s: normal around some centres */
	INTEGERS,					/* coordinates 0, 1, 2: ties in thousands */
	RIVALS,						/* the first k at random, the others nearly midway between two of these */
	OUTLIER,					/* blobs a million times smaller than their box, but for one point */
	CONSTANT,					/* blobs in every second column, the others are 0 */
	SPECTRUM					/* normal, column j's variance 1 / j: like embeddings */
} Kind;

typedef struct Shape
{
	int64_t		n;
	int			d;
	int			k;
	bool		weighted;
	int			chunk_rows;		/* 0: 16 MB chunks */
	int			centres;		/* 0: 10 */
	bool		distinct;		/* false: some points are equal */
	float		far;			/* not 0: all coordinates of centroid k / 2 at the start */
	Kind		kind;
	int			expo;			/* all coordinates times 2^it */
	double		(*point) (int64_t row, int feature);	/* NULL: kind's */
} Shape;

extern const GkCore harness_core;

GkStore    *harness_store(const Shape *shape, uint64_t seed);
void		harness_store_free(GkStore *store);

/* k points of the store as centroids, [k][d]. */
void		harness_centroids(const GkStore *store, int k, uint64_t seed, float *out);
const float *harness_row(const GkStore *store, int64_t row, size_t *stride, float *weight);
void		harness_point(const GkStore *store, int64_t row, float *out);	/* [d] */
const GkBackend *harness_load(const char *path, char *reason, size_t len);

/* The oracle: gk_numerics.h in plain C. */
void		oracle_step(const GkStore *store, const float *c, int k, GkStep *out, int32_t *labels, float *d2);
void		oracle_stats(const GkStore *store, int k, const int32_t *labels, const float *d2, GkFinish *out);

/* Move c; moved and explained: as GkAdvance's, or NULL.  Returns the squared movement of all. */
double		oracle_update(const GkStore *store, const GkStep *step, int k, float *c, double *moved, double *explained);
gk_int128	oracle_seed_update(const GkStore *store, const float *c, int m, float *mind2);
gk_int128	oracle_seed_eval(const GkStore *store, const float *c, const float *mind2);
int			oracle_race(const GkStore *store, uint64_t key, const float *mind2, int want, GkPick *out);
int64_t		oracle_far(const GkStore *store, const float *mind2);

GkStep		harness_step_alloc(int k, int d);
void		harness_step_free(GkStep *s);
bool		harness_step_equal(const GkStep *a, const GkStep *b, int k, int d);
double		harness_ms(void);

/* Iterations as gk_lloyd.c has them made. */
typedef struct Iterations
{
	const GkBackend *backend;
	GkSession  *session;
	const GkStore *store;
	int			k;
	float	   *c;				/* [k][d], the caller's: what the next one begins with, where `here` */
	bool		here;
	GkStep		step;			/* of the last one: counts, and the rest where `here` */
	double	   *moved;			/* [k] */
	double	   *explained;		/* [k] */
} Iterations;

Iterations	harness_iterations(const GkBackend *backend, GkSession *session, const GkStore *store, int k, float *c);
GkStatus	harness_iterate(Iterations *it, GkError *err);
GkStatus	harness_recall(Iterations *it, GkError *err);	/* have c here */
double		harness_shift(const Iterations *it);
void		harness_iterations_free(Iterations *it);

#endif							/* GPU_HARNESS_H */
