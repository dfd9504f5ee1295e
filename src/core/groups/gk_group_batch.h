/*
 * gk_group_batch.h - many small groups, clustered by one device or several, slot by slot.
 */
#ifndef GK_GROUP_BATCH_H
#define GK_GROUP_BATCH_H

#include "core/spread/gk_spread.h"

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
	int64_t		(*rows) (void *ctx, int64_t group); /* n >= 1; 0: it has its result */
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
 * Cluster the groups that the backend's device takes, or several, if there are any: the others get
 * no result.  A device that fails leaves its groups to the others, if the host says so, and is taken
 * out of the list; results stay when there is none left.
 */
GkStatus	gk_group_batch_fit(const GkHost *host, const GkBackend *backend, GkSpread *several, const GkGroupBatchWork *work,
							   GkError *err);

/* How much that is, for gk_spread_choose_groups(). */
GkSpreadGroups gk_group_batch_measure(const GkHost *host, const GkGroupBatchWork *work);

#endif							/* GK_GROUP_BATCH_H */
