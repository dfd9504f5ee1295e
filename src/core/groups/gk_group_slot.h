/*
 * gk_group_slot.h - many small groups for a device: how their points lie in its slots, and
 * what a backend does with them (gk_group_batch.c fills them).
 *
 * The points of each group are prepared (gk_numerics.h) and laid one group after
 * the other into a slot of memory that the device reads by itself; the device
 * seeds, iterates and finishes each of them on its own and puts the results into
 * the same slot.  A backend has several slots, so that some are filled while it
 * works on others.
 *
 * What a device takes: the Euclidean distance, no weights, k-means++, random rows
 * or given centroids.
 */
#ifndef GK_GROUP_SLOT_H
#define GK_GROUP_SLOT_H

#include "core/gk_numerics.h"

struct GkCore;

/* Groups of a slot, at most. */
#define GK_GROUP_BATCH_GROUPS	16384
/* Points of a group, at most: their values may be added up exactly in a float64. */
#define GK_GROUP_BATCH_ROWS		8192
/* Points and results of a group begin at a multiple of this. */
#define GK_GROUP_BATCH_ALIGN		16

/* What all groups of a call have in common. */
typedef struct GkGroupBatchTask
{
	int			d;
	int			k;				/* of the largest group, and of `given` */
	bool		random;			/* k rows without replacement; else k-means++ */
	const double *given;		/* [k][d] centroids to begin with, in original units; or NULL */
	int			n_init;
	int			max_iter;
	int64_t		seed;
	const char *gpu_devices;	/* as in GkProblem */
	const char *gpu_fault;
} GkGroupBatchTask;

/*
 * A group.  At `in`: double center[d], double scale[d], float x[d][n],
 * int32 expo[d].  At `out`: GkGroupBatchResult, then double centroid[k][d], int64 size[k],
 * int64 hi[k], lo[k], float max_d2[k].
 */
typedef struct GkGroupBatchItem
{
	int32_t		n;
	int32_t		k;				/* clusters to look for */
	int32_t		candidates;		/* of a round of k-means++ */
	int32_t		d2_expo;		/* of GkPoints */
	double		tol;			/* squared prepared length */
	uint32_t	in;				/* byte of the slot */
	uint32_t	out;
} GkGroupBatchItem;

typedef struct GkGroupBatchResult
{
	int32_t		k;				/* clusters found */
	int32_t		iterations;
	int32_t		converged;
	int32_t		unused;
} GkGroupBatchResult;

static inline size_t
gk_group_batch_align(size_t bytes)
{
	return (bytes + GK_GROUP_BATCH_ALIGN - 1) / GK_GROUP_BATCH_ALIGN * GK_GROUP_BATCH_ALIGN;
}

static inline size_t
gk_group_batch_in_bytes(int64_t n, int d)
{
	return gk_group_batch_align((size_t) d * (2 * sizeof(double) + sizeof(int32_t) + n * sizeof(float)));
}

static inline size_t
gk_group_batch_out_bytes(int k, int d)
{
	return gk_group_batch_align(sizeof(GkGroupBatchResult) + (size_t) k * (d * sizeof(double) + 3 * sizeof(int64_t) + sizeof(float)));
}

/* The results of k clusters (the k that was asked for), by their places. */
typedef struct GkGroupBatchOut
{
	GkGroupBatchResult *head;
	double	   *centroid;
	int64_t    *size;
	int64_t    *hi;				/* inertia: hi * 2^40 + lo in units of 2^(d2_expo - 80) */
	int64_t    *lo;
	float	   *max_d2;
} GkGroupBatchOut;

GK_HD GkGroupBatchOut
gk_group_batch_out(char *at, int k, int d)
{
	GkGroupBatchOut o;

	o.head = (GkGroupBatchResult *) at;
	o.centroid = (double *) (o.head + 1);
	o.size = (int64_t *) (o.centroid + (size_t) k * d);
	o.hi = o.size + k;
	o.lo = o.hi + k;
	o.max_d2 = (float *) (o.lo + k);
	return o;
}

/* ---- the backend's side ---- */

/* A call's slots; what the backend itself needs of it follows. */
typedef struct GkGroupSession
{
	int			slots;
	size_t		slot_bytes;
	char	  **slot;			/* [slots] */
} GkGroupSession;

typedef struct GkGroupBatchBackend
{
	GkStatus	(*open) (const GkHost *host, const struct GkCore *core, const GkGroupBatchTask *task,
						 GkGroupSession **out, GkError *err);
	/*
	 * An upper bound of the time that a group of n points takes, as a share of a slot's (1 for
	 * all of its groups); over 1 when the device does not take it.
	 */
	double		(*share) (const GkGroupSession *session, int64_t n, int k);
	/*
	 * Start on a slot that was filled: n groups, which read bytes [0, read) and write
	 * [read, end).
	 */
	GkStatus	(*start) (GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n,
						  size_t read, size_t end, GkError *err);
	/* Wait until the slot's results are there. */
	GkStatus	(*wait) (GkGroupSession *session, int slot, GkError *err);
	/* Never fails, NULL allowed; gives up slots that are under way. */
	void		(*close) (GkGroupSession *session);
} GkGroupBatchBackend;

#endif							/* GK_GROUP_SLOT_H */
