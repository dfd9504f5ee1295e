/*
 * gk_spread.h - one clustering on several devices: GPUs, and the CPU beside them; or many small ones.
 *
 * The rows of a store are shared out: each device has a session of its own backend with a run of
 * rows, on a thread of its own, and computes its part of a pass.  Sums are exact integers, so the
 * parts add up to the same bits whatever the devices, and whatever their shares.  The engine sees
 * one backend, and decides once per iteration.
 *
 * Shares follow speed (after Mohiuddin et al. 2014, who share points by capability): at first by
 * what is known of a device, then as measured.  A device that fails leaves its rows to the others.
 *
 * Or rows go up while they are read, and stay nowhere else (gk_spread_ingest.c): then shares stay,
 * and after a failure the rows are read once more, for the others.
 */
#ifndef GK_SPREAD_H
#define GK_SPREAD_H

#include "core/gk_backend.h"

/* Sixteen GPUs and the CPU. */
#define GK_SPREAD_DEVICES	17

typedef struct GkSpreadDevice
{
	const GkBackend *backend;
	int			number;			/* of the GPU; -1: the CPU */
	double		speed;			/* rows a millisecond, to begin with; 0: as its backend says */
} GkSpreadDevice;

typedef struct GkSpread
{
	int			n;
	GkSpreadDevice device[GK_SPREAD_DEVICES];
	/*
	 * Test only: rows of the devices as in "64,1"; the last one has the rest.  They are rounded to tiles.
	 * NULL or "": by speed.  They stay so; or `again` is asked after each step whether they are others now.
	 */
	const char *rows;
	bool		(*again) (const struct GkSpread *spread);
	uint32_t	left_out;		/* GPUs that failed in this job: bit i is GPU i */
} GkSpread;

/* Is that a status of a device which the others can do without? */
static inline bool
gk_spread_is_loss(GkStatus st)
{
	return st == GK_ERR_DEVICE || st == GK_ERR_DEVICE_MEMORY || st == GK_ERR_NO_DEVICE;
}

/*
 * After gk_registry_choose() has chosen a GPU: find the devices that share the job instead.  Returns
 * how many, or 0 where one device is to do it.  With GK_DEVICE_BOTH, or a list and GK_DEVICE_GPU, all
 * that are usable; else as many as are worth it.  rows and left_out are the caller's.
 */
int			gk_spread_choose(GkDeviceKind kind, const char *gpus, int64_t n, int d, int k, GkSpread *out);

/* Many small groups, as far as it says which devices pay. */
typedef struct GkSpreadGroups
{
	int64_t		groups;
	int64_t		rows;			/* of all of them */
	int			d;
	double		products;		/* rows x features x clusters x runs, added up */
	int			max_iter;
	int			threads;		/* that sort and prepare them */
} GkSpreadGroups;

/* The same for such groups, which the CPU prepares in any case: with GK_DEVICE_BOTH, too, the devices are GPUs. */
int			gk_spread_choose_groups(GkDeviceKind kind, const char *gpus, const GkSpreadGroups *work, GkSpread *out);

/*
 * After an error of a session that had taken the rows while they were read: leave out the device that
 * failed.  True: there are others, for which the rows can be read once more.
 */
bool		gk_spread_leave_out(GkSpread *spread, GkStatus st, const GkError *err);

/* Its sessions take the devices of GkHost.spread.  They take no groups: gk_group_batch.h. */
extern const GkBackend gk_spread_backend;

#endif							/* GK_SPREAD_H */
