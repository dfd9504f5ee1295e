/*
 * gk_gpu_join.h - sessions of one clustering on several GPUs, as gk_gpu_join.cu and gk_gpu_seed_rounds.cu
 * see them.
 */
#ifndef GK_GPU_JOIN_H
#define GK_GPU_JOIN_H

#include <pthread.h>

#include "gpu/gk_gpu.h"

/* What they have in common, in the host's memory. */
typedef struct GkMeeting
{
	int			n;
	pthread_mutex_t lock;
	pthread_cond_t news;
	/* Under the lock: */
	bool		over;			/* one has failed or left */
	unsigned	agreements;		/* so far */
	int			here;			/* sessions, for the next one */
	bool		so_far;
	bool		agreed;			/* the last one's result */
	unsigned   *stop;			/* [n] pinned: meetings up to this round of each device may end alone */
	/* Of the seeding (gk_gpu_seed_rounds.cu); read after an agreement. */
	void	   *seed_state[GK_GPU_MOST];
	float	   *seed_points[GK_GPU_MOST];
} GkMeeting;

typedef struct GkJoined
{
	GkMeeting  *with;
	int			me;
	int64_t		first[GK_GPU_MOST]; /* of each: number of its first row */
	/* Meetings are numbered by rounds, which are a chain or a batch of seeds each, and by turns of these. */
	unsigned	round;
	unsigned	turn;
	/* Device memory. */
	unsigned long long *heard;	/* [n] the meetings where the others were last */

	/*
	 * [3] end of the last meeting, 0: none; time from there to the next one; where this one left the round,
	 * 0: not yet
	 */
	unsigned long long *clock;
	bool		narrow;			/* 64 bits hold the totals of each */
	void	   *box[2];			/* own totals, at even and odd turns: int64_t if narrow, else gk_int128 */
	gk_int128  *sums;			/* where each device adds up a slice; NULL: none does */
	/* The others' memory. */
	void	   *boxes[2][GK_GPU_MOST];
	gk_int128  *sums_of[GK_GPU_MOST];
	unsigned long long *tell[GK_GPU_MOST];	/* own place in what they heard */
} GkJoined;

#endif							/* GK_GPU_JOIN_H */
