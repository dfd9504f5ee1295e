/*
 * gk_spread_session.h - a session on several devices: what gk_spread.c (passes), gk_spread_share.c
 * (who has which rows), gk_spread_move.c, gk_spread_labels.c and gk_group_batch.c (groups, which need no rows) share.
 */
#ifndef GK_SPREAD_SESSION_H
#define GK_SPREAD_SESSION_H

#include "core/spread/gk_spread.h"
#include "core/spread/gk_spread_threads.h"
#include "core/store/gk_store.h"

/* Shares stay if an iteration would take at least this much of the time with others; and where sessions move. */
#define GK_SPREAD_NEAR_ENOUGH	0.95
#define GK_SPREAD_NEARER		0.975

typedef struct GkSpreadPart
{
	GkSpreadDevice of;
	GkSession  *whole;
	GkHost		host;			/* of its session: any thread may call it */
	char		number[12];		/* as GkProblem.gpu_devices; "": the CPU */
	bool		lost;			/* it failed */
	double		speed;			/* rows a millisecond; 0: not known */
	double		speed_then;		/* when shares were last made */
	double		recent_ms[4];	/* of the last steps with these rows */
	int			measured;		/* steps with these rows */
	/* Its rows, if it has any; with groups, those that it has clustered. */
	int64_t		first;
	int64_t		rows;
	int64_t		share;			/* rows that it takes while they are read, if others come after it */
	GkStore    *store;
	GkSession  *session;		/* of of.backend */
	/* While edges move: the rows that it had, and the store of those that its session does not have. */
	int64_t		was_first;
	int64_t		was_rows;
	GkStore    *other;			/* NULL: they are the same */
	bool		speaks;			/* the one whose results are taken where all have the same */
	/* Of the pass at hand. */
	GkStatus	status;
	GkError		error;
	double		ms;
	double		busy_ms;		/* GkStep's or GkAdvance's */
	GkStep		step;
	GkAdvance	advance;
	GkFinish	finish;
	gk_int128	phi;
	gk_int128  *pot;
	GkPick	   *pick;
	GkMoments  *moments;
	int			got;
	int			rounds;			/* of seeding, done */
	int64_t		far;
} GkSpreadPart;

/* Arguments of a pass. */
typedef struct GkSpreadPass
{
	const float *c;
	int			k;
	GkStep	   *step;			/* the caller's, also of recall() */
	float	   *recalled;		/* centroids [k][d] */
	GkAdvance  *advance;		/* the caller's */
	GkSpreadPart *speaker;		/* of advance() and recall() */
	bool		stats;			/* GkFinish is wanted */
	bool		labels;			/* and labels */
	uint64_t	key;
	bool		use_d2;
	int			want;
	const uint64_t *keys;		/* [rounds] of seeding */
	int			rounds;
	float	   *points;			/* [rounds][d], of the part that speaks */
	const GkPrep *prep;
	const GkJoin *members;		/* with the rows that they have, while others take them over */
} GkSpreadPass;

typedef void (*GkSpreadRun) (GkSpreadPart *p);

struct GkSession
{
	const GkHost *host;
	GkStore    *store;			/* NULL: of groups */
	void	   *groups;			/* gk_group_batch.c's */
	const GkPoints *pts;
	GkProblem	problem;
	GkSpreadThreads threads;
	int			n;
	GkSpreadPart part[GK_SPREAD_DEVICES];
	bool		ingested;		/* the rows came while they were read, and are not in the store */
	bool		wide;			/* as doubles */
	int64_t		expected;		/* rows, while they come; 0: not known */
	bool		joined;			/* their sessions add up what they find by themselves (GkBackend.join) */
	int			spill_fd;		/* the host's, for all threads; -1: none */
	/* The pass at hand. */
	GkSpreadRun run;
	GkSpreadPass pass;
	GkSpreadPart *only;			/* the one that takes part; NULL: all */
	/* Room for the parts' results: gk_spread_room(). */
	char	   *room;
	size_t		room_bytes;		/* of each part */
	size_t		room_all;
	/* The seeds since seed_begin(), for a device that has not seen them. */
	bool		seeding;
	float	   *seeds;			/* [nseeds][d] */
	int			nseeds;
	int			seeds_room;
	/* Of advance(). */
	bool		due;			/* other shares pay, once the caller has the centroids */
	bool		gone;			/* the centroids are lost with a device */
	int			steps_only;		/* clusters that these sessions leave to step(); 0: not known */
	/* Whether other shares pay: milliseconds. */
	double		arrange_ms;		/* what new shares cost */
	double		lost_ms;		/* what these have cost since they were made */
	bool		movable;		/* sessions can go on with other rows: gk_spread_move.c */
	double		move_ms;		/* what that costs */
	double		first_ms;		/* the step after it, while that is the last one; < 0: it comes next; else 0 */
	/* Labels on their way (gk_spread_labels.c). */
	const GkLabelSink *sink;
	int32_t    *label;			/* [n] of all rows, to be sent afterwards; NULL: they are sent at once */
	float	   *d2;
	int64_t		sent;			/* rows that the sink has */
};

/* Start the devices' threads; none has rows yet.  Sessions are to be closed before the end. */
GkStatus	gk_spread_begin(const GkHost *host, const GkSpread *devices, GkSession **out, GkError *err);
void		gk_spread_end(GkSession *s);

/*
 * Have the parts run a pass.  A device that fails leaves its rows to the others, if the host says
 * so, and all run it again.
 */
GkStatus	gk_spread_run(GkSession *s, GkSpreadRun run, GkError *err);

/* Once: return the error of a part, that of a device only where there is no other. */
GkStatus	gk_spread_run_once(GkSession *s, GkSpreadRun run, GkError *err);

/* Have an error name the device. */
static inline GkStatus
gk_spread_named(const GkSpreadPart *p, GkStatus st, GkError *err)
{
	if (gk_spread_is_loss(st))
		err->gpu = p->of.number + 1;
	return st;
}

/* After a run that returned st: GK_OK if the other devices may go on, after new shares; not with rows that are lost. */
GkStatus	gk_spread_drop_lost(GkSession *s, GkStatus st);

/* Room for the parts' results, `bytes` for each; that of part i.  false: out of memory. */
bool		gk_spread_room(GkSession *s, size_t bytes);
void	   *gk_spread_room_of(const GkSession *s, int i);

/* A session that has no rows yet, with its threads; its end. */
GkStatus	gk_spread_begin_rows(const GkProblem *problem, GkSession **out, GkError *err);
void		gk_spread_close(GkSession *s);

/* gk_spread_share.c: give each device that is left its rows, and open its session. */
GkStatus	gk_spread_arrange(GkSession *s, GkError *err);
void		gk_spread_close_parts(GkSession *s);

/* The rows of each device that is left, of n: GkSpreadPart.first and rows.  Open the sessions of those that have some. */
void		gk_spread_share(GkSession *s, int64_t n);
GkStatus	gk_spread_open_parts(GkSession *s, GkError *err);

/* Rows a millisecond, as measured, or about. */
double		gk_spread_speed(const GkSession *s, const GkSpreadPart *p);

/* gk_spread_move.c: new shares, and each session goes on with what it can keep.  Not while seeding. */
GkStatus	gk_spread_move(GkSession *s, GkError *err);

/* Can the sessions do that, as far as is known? */
bool		gk_spread_is_movable(const GkSession *s);

/* A part's thread: open its session; close it. */
void		gk_spread_open_part(GkSpreadPart *p);
void		gk_spread_close_part(GkSpreadPart *p);

/* What the backend of a part is given. */
GkProblem	gk_spread_problem(const GkSpreadPart *p);

/* Test only: the shares are given (GkSpread.rows). */
bool		gk_spread_is_forced(const GkSession *s);

/* gk_spread_ingest.c: all rows are there and prepared: go on with them. */
extern const GkIngestBackend gk_spread_ingest;
GkStatus	gk_spread_ingested(GkSession *s, GkError *err);

/* After a step: measure; true: other shares would pay. */
bool		gk_spread_measure(GkSession *s);

/* Each device with its share, as "gpu 0 50 %, cpu 50 %"; the second one tells the host. */
void		gk_spread_describe(const GkSession *s, char *out, size_t len);
void		gk_spread_tell(const GkSession *s);

/* Say so. */
GkStatus	gk_spread_out_of_memory(GkError *err);

/* gk_spread_seed.c: GkBackend's seeding. */
GkStatus	gk_spread_seed_begin(GkSession *s, GkError *err);
void		gk_spread_seed_end(GkSession *s);
GkStatus	gk_spread_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err);
GkStatus	gk_spread_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err);
GkStatus	gk_spread_seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err);
GkStatus	gk_spread_seed_far(GkSession *s, int64_t *row, GkError *err);
GkStatus	gk_spread_row(GkSession *s, int64_t row, float *out, GkError *err);
GkStatus	gk_spread_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done,
								  GkError *err);

/* gk_spread_labels.c */
GkStatus	gk_spread_finish(GkSession *s, const float *centroids, int k,
							 GkFinish *out, const GkLabelSink *sink, GkError *err);

#endif							/* GK_SPREAD_SESSION_H */
