/*
 * gk_load.h - batches into chunks by whoever has the time.
 *
 * Where rows go is decided in their order, by one thread; the copies may be made later, in
 * any order and by any thread.
 */
#ifndef GK_LOAD_H
#define GK_LOAD_H

#include "core/store/gk_batch.h"
#include "core/store/gk_points.h"

/* Rows of a batch on their way to rows of a chunk. */
typedef struct GkMove
{
	const GkBatch *batch;
	int			from;
	int			rows;
	/* The chunk, as it is until the move is made. */
	char	   *data;
	int			stride;
	const uint8_t *wide;
	int			to;
} GkMove;

/* Who makes the moves. */
typedef struct GkMover
{
	/* May return before it is made; the batch stays until then. */
	GkStatus	(*move) (void *arg, const GkMove *move);
	/* Returns when all are made. */
	GkStatus	(*finish) (void *arg);
	void	   *arg;
} GkMover;

/* Places for a batch's rows, whose statistics come apart. */
GkStatus	gk_store_add_by(GkStore *store, const GkBatch *batch, const GkMover *mover, GkError *err);
/* Make a move.  Any thread. */
void		gk_store_move(const GkStore *store, const GkMove *move);

#endif							/* GK_LOAD_H */
