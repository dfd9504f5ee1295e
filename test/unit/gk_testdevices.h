/*
 * gk_testdevices.h - several devices that are none: the CPU plays them, each fails when it is told to.
 */
#ifndef GK_TESTDEVICES_H
#define GK_TESTDEVICES_H

#include "core/gk_backend.h"
#include "core/spread/gk_spread.h"

#define DEVICES			8

/* What device i does, and has done; its own thread alone writes its part. */
typedef struct Fake
{
	int			calls;			/* of passes, open() among them */
	int			fail_at;		/* this call fails; 0: none */
	GkStatus	failure;
	bool		dead;			/* it has failed, and does so from then on */
	double		ms_per_row;		/* that a step takes, besides what the CPU takes */
	int64_t		max_rows;		/* more do not fit; 0: any do */
	int64_t		rows;			/* of the session that was opened last */
	int64_t		expected;		/* of the one that was to take rows while they are read */
	int			open;			/* sessions */
	int			steps;
	int			moves;			/* sessions that went on with other rows, */
	int			stays;			/* and that could not, each so many-th; 0: none */
} Fake;

extern Fake fakes[DEVICES];
extern int	wrong_problems;		/* that a device was given */
extern int64_t all_rows;		/* of the problem; -1: any */
extern bool joining;			/* their sessions join */
extern int	advancing;			/* they make iterations by themselves; from 2 on each so many-th they do not */
extern int	advanced;			/* iterations that were made so, and */
extern int	recalled;			/* how often they were recalled */
extern int	moved;				/* how often a session went on with other rows */
extern int	joined_rounds;		/* of seeding that joined sessions have done */

extern const GkBackend fake_device;

/* n such devices, the last one the CPU itself if wanted; rows: as rows_take_turns(). */
GkSpread	spread_over(int n, bool cpu, const char *rows);

int			sessions_open(void);

#endif							/* GK_TESTDEVICES_H */
