/*
 * gk_seeds.h - seeds in progress: what gk_seed.c and gk_seed_hierarchical.c share.
 */
#ifndef GK_SEEDS_H
#define GK_SEEDS_H

#include "core/gk_engine.h"
#include "core/store/gk_store.h"

/* Prepared points, in order of choice. */
typedef struct GkSeeds
{
	const GkBackend *backend;
	GkSession  *session;
	GkStore    *store;
	const GkHost *host;
	int			d;
	int64_t		seed;
	int			run;
	int			stream;			/* keeps nested seedings' random numbers apart */
	float	   *points;			/* [k][d] */
	int			n;
} GkSeeds;

static inline uint64_t
gk_seeds_key(const GkSeeds *s, int64_t round)
{
	return gk_key(s->seed, s->run, round + ((int64_t) s->stream << 40));
}

/* Greedy k-means++ from s->n seeds (whose D is up to date if s->n > 0) up to k. */
GkStatus	gk_seeds_plus_plus(GkSeeds *s, int k, GkError *err);

/*
 * Make an empty store like that of the points, with room for `rows` of them; give the rows
 * that it has these weights, relative to the heaviest.
 */
GkStatus	gk_seeds_store(const GkSeeds *s, bool weighted, int rows, GkChunkStore *out, GkError *err);
void		gk_seeds_weigh(GkChunkStore *o, const double *w);

/* k-means++ among such points: from s->n seeds up to k. */
GkStatus	gk_seeds_plus_plus_of(GkSeeds *s, const GkChunkStore *points, int stream, int k, GkError *err);

/* k seeds by clustering a sample in two levels: gk_seed_hierarchical.c. */
GkStatus	gk_seeds_hierarchical(GkSeeds *s, int k, GkError *err);

#endif							/* GK_SEEDS_H */
