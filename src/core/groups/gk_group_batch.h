/*
 * gk_group_batch.h - many small groups, clustered by a device slot by slot.
 */
#ifndef GK_GROUP_BATCH_H
#define GK_GROUP_BATCH_H

#include "core/gk_backend.h"

/*
 * Groups to be clustered, each as by gk_group_fit() without labels.  Everything but
 * rows() is called by any thread.
 */
typedef struct GkGroupBatchWork
{
	const GkOptions *options;
	int			d;
	int64_t		groups;
	void	   *ctx;
	int64_t		(*rows) (void *ctx, int64_t group); /* n >= 1 */
	const double *(*row) (const void *rows, int64_t i); /* GkGroupRow */
	const void *(*arg) (void *ctx, int64_t group);	/* its argument */
	/* A thread's host; what it gave out is not needed when done() is called. */
	const GkHost *(*host) (void *ctx, int thread);
	void		(*done) (void *ctx, int thread);
	/* Takes over what a model says of clusters; false: out of memory. */
	bool		(*result) (void *ctx, int64_t group, const GkModel *model, int thread);
} GkGroupBatchWork;

/* Does any device take groups with such options? */
bool		gk_group_batch_possible(const GkOptions *options, bool weighted);

/*
 * Cluster the groups that the device takes; the others get no result.  Results stay when the
 * device fails.
 */
GkStatus	gk_group_batch_fit(const GkHost *host, const GkBackend *backend, const GkGroupBatchWork *work, GkError *err);

#endif							/* GK_GROUP_BATCH_H */
