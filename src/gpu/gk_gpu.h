/*
 * gk_gpu.h - inside of the CUDA backend.
 *
 * One process-wide GkGpu (the device, its streams, the ring) and one GkSession per clustering.  The
 * points lie column-major in one allocation: feature j of row i is x[j * ld + i].  Lutz, Bress, Rabl,
 * Zeuch and Markl, "Efficient k-means on GPUs", 2018, is the paper behind the ways to sum.
 *
 * Words:
 *   resident   rows [0, resident) stay on the device; a pass streams the others through the ring
 *   ring       pinned buffers, each with a copy on the device
 *   slice      a range of rows in device memory; a pass takes one after the other (gk_gpu_each).  Its
 *              kernels end within GK_SLICE_S seconds, and its partial sums are exact
 *   value      a number of a step's result, in the order sum[k][d], mass[k] (weighted only), count[k]
 *   word       64 bits that kernels add to by atomics: two per value, a and b (GkAcc); the value is
 *              a + b * 2^shift
 *   total      a value as int128; after each slice the words are reduced into it
 *   chain      iterations that run ahead of the host; their log comes back in units (gk_gpu_step.cu)
 *   fuse       labels and sums in one kernel; the opposite is assign, then sum
 *
 * Files: gk_gpu_fuse_*, gk_gpu_assign* and gk_gpu_gemm* are the passes, gk_gpu_filter* skips distances,
 * gk_gpu_block* clusters a small group within one block, gk_gpu_join makes sessions on several devices one, and
 * gk_gpu_paper_* reproduces papers and runs on request only.
 */
#ifndef GK_GPU_H
#define GK_GPU_H

#include <cuda_runtime.h>

#include "core/gk_backend.h"
#include "core/gk_numerics.h"

#define GK_GPU_RING			4
#define GK_GPU_RING_BYTES	((size_t) 8 << 20)
#define GK_GPU_MOST			16	/* devices */
/* Rows whose integers' total fits an int64, without weights: |x| <= 2^40, and fewer than 2^23. */
#define GK_GPU_INT64_ROWS	(2 * GK_INT64_ROWS - GK_ROW_PAD)
#define GK_GPU_UNITS		3	/* of a chain, in flight or being looked at */
#define GK_GPU_SLACK		1024	/* floats readable past the last column */

typedef struct GkGpu
{
	int			ordinal;
	bool		opened;			/* a context may exist */
	bool		ready;
	bool		dead;			/* a sticky error: no CUDA call works any more */
	char		reason[200];
	char		name[96];
	int			major;			/* compute capability */
	int			minor;
	bool		may_follow;		/* its kernels wait as gk_follow() asks */
	int			sms;
	size_t		shared_optin;	/* bytes of shared memory one block may have */
	size_t		l2;
	cudaStream_t stream;		/* kernels */
	cudaStream_t copy;			/* to the device and back */
	char	   *ring[GK_GPU_RING];	/* pinned */
	cudaEvent_t ring_sent[GK_GPU_RING]; /* the copy from or to the slot is done */
	cudaEvent_t ring_used[GK_GPU_RING]; /* kernels on the slot's copy are done */
	int			ring_next;
	cudaEvent_t pace[2];
	int			pace_next;
	bool		pace_set[2];
	cudaEvent_t unit_made;
	cudaEvent_t unit_done[GK_GPU_UNITS];
	/* Memory that the others reach (gk_gpu_join.cu). */
	cudaMemPool_t pool;
	void	   *pool_held;
	unsigned	reached_by[GK_GPU_MOST];	/* of each device: its gk_gpu_context() then, 0: not */
	unsigned	contexts;		/* so far */
} GkGpu;

/* A slice of the points in device memory. */
typedef struct GkRows
{
	const float *x;				/* 16-byte aligned; column j at x + j * ld */
	const float *w;				/* weights or NULL */
	int64_t		ld;
	int64_t		rows;
	int64_t		first;			/* ordinal of the first row */
} GkRows;

/*
 * Labels in device memory: bytes while they suffice, a quarter of the traffic.  The largest value (-1 when
 * wide) means none yet.
 */
typedef struct GkLabels
{
	void	   *at;
	bool		narrow;			/* uint8_t, else int32_t */
} GkLabels;

#define GK_NARROW_K		255

/* Accumulator words. */
typedef struct GkAcc
{
	unsigned long long *a;
	unsigned long long *b;
} GkAcc;

/*
 * A unit of the log: GK_LOG_HEAD bytes, then its entries: totals, and the centroids that were used.  Large ones
 * stay on the device until they are recalled; a brief (GkBrief) of each goes to the host.
 */
#define GK_LOG_HEAD		128

#define GK_GEMM_HEADS	8		/* how much of a row a product may take, the last one all of it */

/* What a pass by products counted (gk_gpu_gemm.cu). */
typedef struct GkGemmCounts
{
	unsigned long long undecided;	/* rows; none with a head */
	unsigned long long pairs;	/* canonical distances of these; with a head, candidates of all rows */
	unsigned long long parts;	/* of tiles of columns that each GK_GEMM_SAMPLE-th tile of sorted rows needed */
	unsigned long long sorts;	/* of the points, before */
	int			head;			/* that the products took (gk_gpu_gemm_head.cu) */
	bool		near;			/* bounds left rows out: undecided are the others (gk_gpu_gemm_near.cu) */

	/*
	 * Of some rows, in the first pass of whole rows after a sort: candidates that each head would have left
	 * them.
	 */
	int			sampled;
	int			left[GK_GEMM_HEADS];

	/*
	 * How far the centroid moved that moved most; of a sample of rows how far their near columns may be, the
	 * sum.
	 */
	float		moved;
	float		gaps;
	int			sampled_gaps;
} GkGemmCounts;

typedef struct GkLogHead
{
	int			count;			/* entries written */
	int			stop;			/* converged or an empty cluster: no further entries */
	unsigned long long work;	/* distances of points, where gk_gpu_filter.cu left some out */
	GkGemmCounts gemm;			/* where gk_gpu_gemm.cu made the labels */
	unsigned long long busy;	/* nanoseconds that a joined session computed, 0: not known */
} GkLogHead;

#ifdef __cplusplus
static_assert(sizeof(GkLogHead) <= GK_LOG_HEAD, "the head of a unit has room");
#endif

/* Where the device has what the head is to say of a pass; NULL: nothing is to be said. */
typedef struct GkCounts
{
	const unsigned long long *work;
	const GkGemmCounts *gemm;
	const unsigned long long *busy;
} GkCounts;

/* What an iteration did to k clusters, in a unit after its head: as GkAdvance's. */
typedef struct GkBrief
{
	double	   *moved;
	double	   *explained;
	int64_t    *count;
} GkBrief;

/* What the update needs to know of the columns, on the device. */
typedef struct GkColumns
{
	const double *center;
	const double *scale;
	const double *inv;			/* 2^(40 - expo) */
	const int32_t *expo;
	const gk_int128 *total;		/* [d] exact sums over all rows, then the mass */
} GkColumns;

/* What does a pass; called by the files' names. */
typedef enum GkRegime
{
	GK_FUSE_REGISTERS,			/* labels and sums at once, sums in registers */
	GK_FUSE_MMA,				/* in shared memory, tensor cores rule clusters out */
	GK_FUSE_SHARED,				/* in shared memory */
	GK_GEMM,					/* labels by a matrix product, sums of what moved */
	GK_ASSIGN_SUM,				/* labels (assign), then feature_sum and mass_sum */
	GK_PAPER_FUSED,				/* at once, as Lutz et al. have it */
	GK_PAPER_HYBRID				/* labels, and sums on the CPU */
} GkRegime;

typedef struct GkFilter GkFilter;
typedef struct GkGemm GkGemm;
typedef struct GkSeedRounds GkSeedRounds;

struct GkSession
{
	GkGpu	   *gpu;
	const GkHost *host;
	const GkCore *core;
	GkStore    *store;
	const GkPoints *pts;
	GkProblem	problem;
	int			d;
	int			cols;			/* d, and the weight */
	int64_t		n;

	/* Points. */
	float	   *x;
	int64_t		ld;
	int64_t		resident;		/* rows kept on the device, whole chunks */
	int			stream_chunk;	/* first chunk that is streamed */
	float	   *slot[GK_GPU_RING];	/* device copies of the ring, when streaming */
	bool	   *pinned;			/* [chunks]: streamed from where they lie; NULL: none */
	int64_t		most;			/* rows that what is set aside for each is enough for, when streaming */
	size_t		spare;			/* bytes of gpu_memory_limit that are left */
	bool		ingested;		/* the points came by gk_gpu_ingest.cu and are not in the store */
	bool		raw_wide;		/* as doubles */
	char	   *raw;			/* points as they came, until all are prepared */
	char	   *next_raw;		/* those that take their place (GkIngestBackend.take_over); NULL: they stay */
	int64_t		next_ld;
	int64_t		next_rows;
	int			ingest_slot;	/* of the ring, being filled */
	int			npicked;		/* of the last race, when ingested */
	int			picked_next;	/* where to look first */
	GkPick	   *picked;			/* [npicked] */
	float	   *picked_points;	/* [npicked][d] */
	GkFilter   *filter;			/* gk_gpu_filter.cu; NULL: none yet */
	GkGemm	   *gemm;			/* gk_gpu_gemm.cu; NULL: none yet */
	int			gemm_k;			/* centroids that it has; 0: none */

	/* Columns. */
	void	   *columns_block;
	GkColumns	columns;

	/* Sized for k_room centroids; grown by gk_gpu_room(). */
	int			k_room;
	float	   *centroids;		/* [k][d] */
	float	   *packed;			/* as the kernels want them, see gk_gpu_assign.cu */
	GkAcc		acc;
	gk_int128  *totals;
	double	   *shifts;			/* [k] */
	int			log_room;		/* centroids; grown by gk_gpu_log_room() */
	char	   *log;			/* device: units of unit_bytes */
	char	   *log_host;		/* in pinned memory: units, or what of them comes to the host */
	size_t		unit_bytes;
	size_t		entry_bytes;
	size_t		brief_bytes;	/* of a unit; 0: entries go to the host, and no brief is made */
	bool		quiet;			/* a joined session whose totals the host takes from another one */
	int			entries;		/* per unit */
	int		   *done;			/* device: the chain has stopped */

	/* Scratch of one slice, grown on demand. */
	int32_t    *labels;			/* or bytes, see GkLabels */
	int64_t		labels_room;
	float	   *d2;
	int64_t		d2_room;
	void	   *scratch;
	size_t		scratch_room;
	int		   *move_count;		/* [1 + k] of gk_gpu_move_sum.cu: how many, of all and of each cluster; these
								 * are 0 between its sums */
	int64_t		move_count_room;
	int32_t    *delta_labels;	/* [n] of the last pass, for sums of what moved; wide or narrow as k asks */
	int			delta_k;		/* whose totals are there: k: of these; -k: of those in `filter`; 0: of none */

	/* Seeding. */
	float	   *mind2;			/* [n] */
	int			seeds;			/* so far */
	double		phi;			/* sum of w * D, rounded; 0: not known */
	float	   *kept;			/* [candidates][n]: distances of the last seed_eval() */
	int64_t		kept_room;
	int			candidates;		/* 0: none are kept */
	float	   *candidate;		/* host, [candidates][d] */
	int64_t		candidate_room;
	GkSeedRounds *seed_rounds;	/* gk_gpu_seed_rounds.cu; NULL: none yet */

	/* The chain: iterations that run ahead of the host, gk_gpu_step.cu. */
	int			chain_k;		/* 0: none */
	int			chain_left;		/* iterations that may still be launched */
	bool		chain_follows;	/* the next one has the last one's new centroids */
	int			unit_first;		/* oldest unit in flight */
	int			units;			/* in flight or not yet used up */
	int			unit_entry;		/* next entry of the oldest */
	int			unit_recalled;	/* the one that recall() is about */
	int			unit_count[GK_GPU_UNITS];
	bool		unit_filtered[GK_GPU_UNITS];	/* by gk_gpu_filter.cu */
	int			chain_iters;	/* iterations per unit */
	bool		chain_ahead;	/* they may be launched before they are asked for */
	bool		unpaced;		/* what is launched is short enough to be waited for */

	struct GkJoined *joined;	/* gk_gpu_join.cu; NULL: alone */

	GkRegime	regime;
	bool		single_pass;	/* else slices of GK_ASSIGN_SUM need not stay in the L2 cache */
	GkFeatureSum fsum;			/* what runs, never auto */
	GkMassSum	msum;
	double		context_ms;		/* until the device was open */
	double		upload_ms;		/* until it had the points */
	int64_t		faults_at;		/* injected: calls until the fault, < 0: none */
	cudaError_t fault;
};

static inline int
gk_gpu_threads(const GkSession *s)
{
	return s->core->threads(s->host);
}

static inline int64_t
gk_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t
gk_round_up(int64_t v, int64_t to)
{
	return (v + to - 1) / to * to;
}

/* Number of values of k clusters in the accumulators. */
static inline int64_t
gk_gpu_values(const GkSession *s, int k)
{
	return (int64_t) k * s->d + (s->pts->weighted ? 2 : 1) * (int64_t) k;
}

/* Of a unit of the log, what comes to the host: a quiet session's is but the head. */
static inline size_t
gk_gpu_unit_host_bytes(const GkSession *s)
{
	return s->quiet ? GK_LOG_HEAD : s->brief_bytes > 0 ? GK_LOG_HEAD + s->brief_bytes : s->unit_bytes;
}

/* The brief of k clusters, and the entries, in a unit on the device or on the host. */
static inline GkBrief
gk_gpu_brief(char *unit, int k)
{
	double	   *at = (double *) (unit + GK_LOG_HEAD);

	return
	{
		at, at + k, (int64_t *) (at + 2 * (size_t) k)
	};
}

static inline char *
gk_gpu_entries(const GkSession *s, char *unit)
{
	return unit + GK_LOG_HEAD + s->brief_bytes;
}

/* No coordinate of a point is larger than 2^it. */
static inline int
gk_gpu_top_expo(const GkSession *s)
{
	const GkPrep *prep = &s->pts->prep;
	int			top = prep->expo[0];

	for (int j = 1; j < s->d; j++)
		if (prep->expo[j] > top)
			top = prep->expo[j];
	return top;
}

/* ---- gk_gpu.cu ---- */

/* A session without a device, NULL: out of memory; the device for it; its end. */
GkSession  *gk_gpu_session(const GkProblem *problem);
GkStatus	gk_gpu_bind(GkSession *s, GkError *err);
void		gk_gpu_close(GkSession *s);
GkStatus	gk_gpu_move(GkSession *s, GkStore *store, int64_t from, bool *done, GkError *err);

/* Begin to fail as GkProblem.gpu_fault says. */
GkStatus	gk_gpu_arm_fault(GkSession *s, bool opening, GkError *err);

/* ---- gk_gpu_groups.cu: many small groups at once ---- */

extern const GkGroupBatchBackend gk_gpu_group_batch;

/* ---- gk_gpu_ingest.cu: points that go up while they are read ---- */

extern const GkIngestBackend gk_gpu_ingest;

/* Load its kernels, which the first launch would do otherwise. */
void		gk_gpu_ingest_load(void);

/* All points are there and prepared: complete the session. */
GkStatus	gk_gpu_ingested(GkSession *s, GkError *err);

/* Fetch the points of picked rows, for gk_gpu_row(). */
GkStatus	gk_gpu_picked(GkSession *s, const GkPick *picks, int n, GkError *err);
GkStatus	gk_gpu_row(GkSession *s, int64_t row, float *out, GkError *err);

/* ---- gk_gpu_context.cu: the device, errors, waiting ---- */

GkStatus	gk_gpu_fail(GkSession *s, cudaError_t e, const char *call, const char *file, int line, GkError *err);
cudaError_t gk_gpu_injected(GkSession *s);
GkStatus	gk_gpu_acquire(const char *devices, GkGpu **out, GkError *err);
int			gk_gpu_probe(GkDeviceInfo *out, int max);
double		gk_gpu_step_ms(int ordinal, const GkProblem *problem, int64_t rows);
void		gk_gpu_warm(int ordinal, const char *fault);
bool		gk_gpu_is_warm(int ordinal);
void		gk_gpu_release(int ordinal);

/* After a sticky error: give back what the device holds for this process, and never use it again. */
void		gk_gpu_discard(GkGpu *g);

/* A number of the context that a device has, another one whenever it is opened again; 0: it has none. */
unsigned	gk_gpu_context(int ordinal);
double		gk_gpu_ms(void);

/* Wait for an event, polling the host. */
GkStatus	gk_gpu_wait(GkSession *s, cudaEvent_t event, GkError *err);
GkStatus	gk_gpu_drain(GkSession *s, GkError *err);

/* Blocks of a kernel that run at a time, with `shared` bytes of dynamic shared memory each. */
GkStatus	gk_gpu_resident_blocks(GkSession *s, const void *kernel, int threads, size_t shared, int64_t *blocks,
								   GkError *err);

/* Launch `blocks` of them, or as many as run at a time; the kernel has one argument. */
GkStatus	gk_gpu_launch(GkSession *s, const void *kernel, int64_t blocks, int threads, size_t shared, const void *arg,
						  GkError *err);

/* Launch a kernel that may begin before the one before it has ended: gk_follow() in gk_gpu_device.cuh. */
cudaError_t gk_gpu_follow(const GkSession *s, const void *kernel, dim3 grid, int threads, size_t shared, void **args);
GkStatus	gk_gpu_error(GkError *err, GkStatus code, const char *fmt,...);

#define GK_TRY(call) \
	do { \
		cudaError_t e_ = gk_gpu_injected(s); \
		if (e_ == cudaSuccess) \
			e_ = (call); \
		if (e_ != cudaSuccess) \
			return gk_gpu_fail(s, e_, #call, __FILE__, __LINE__, err); \
	} while (0)

/* After a launch: its configuration errors. */
#define GK_LAUNCHED()	GK_TRY(cudaGetLastError())

#define GK_DO(status) \
	do { \
		GkStatus st_ = (status); \
		if (st_ != GK_OK) \
			return st_; \
	} while (0)

/* ---- gk_gpu_points.cu: points, buffers, slices ---- */

GkStatus	gk_gpu_upload(GkSession *s, GkError *err);

/*
 * Stream other rows after the resident ones, of a store that begins with the same chunks; false: it does not.
 * GK_ERR_MEMORY: the rows are those that they were.
 */
bool		gk_gpu_can_stream(const GkSession *s, const GkPoints *pts);
GkStatus	gk_gpu_stream_rows(GkSession *s, GkStore *store, GkError *err);

/* Clear the padding past the last row and the slack, which kernels read and never use. */
GkStatus	gk_gpu_clear_padding(GkSession *s, cudaStream_t stream, GkError *err);

/* Bytes of device memory that this clustering may still take; bytes that it needs beside n points. */
GkStatus	gk_gpu_budget(GkSession *s, size_t *bytes, GkError *err);
size_t		gk_gpu_rest(const GkSession *s, int64_t n);

/* Wait until the next slot of the ring is free; rows that a slot takes. */
GkStatus	gk_gpu_next_slot(GkSession *s, int *slot, GkError *err);
int64_t		gk_gpu_piece_rows(const GkSession *s);
void		gk_gpu_free_all(GkSession *s);
GkStatus	gk_gpu_room(GkSession *s, int k, GkError *err);
GkStatus	gk_gpu_log_room(GkSession *s, int k, GkError *err);
GkStatus	gk_gpu_grow(GkSession *s, void **buf, int64_t *room, int64_t want, size_t size, GkError *err);
GkStatus	gk_gpu_scratch(GkSession *s, size_t bytes, GkError *err);

/* Copy to the host's memory, which need not be pinned, what the device has made so far. */
GkStatus	gk_gpu_fetch(GkSession *s, void *to, const void *from, size_t bytes, GkError *err);

/* Copy k centroids to s->centroids. */
GkStatus	gk_gpu_put_centroids(GkSession *s, const float *centroids, int k, GkError *err);

typedef GkStatus (*GkSliceFn) (GkSession *s, const GkRows *rows, void *arg, GkError *err);

/* Call fn for every slice of at most max_rows rows, in row order. */
GkStatus	gk_gpu_each(GkSession *s, int64_t max_rows, GkSliceFn fn, void *arg, GkError *err);

/* After each of several slices: wait until not more than two are ahead of the device. */
GkStatus	gk_gpu_keep_pace(GkSession *s, GkError *err);

/* Rows that may be compared with k centroids in one launch. */
int64_t		gk_gpu_slice_rows(const GkSession *s, int k);

/* ---- gk_gpu_reduce.cu: totals, update, log ---- */

/* totals += a + b * 2^shift, and clear the words. */
GkStatus	gk_gpu_reduce(GkSession *s, int k, GkError *err);

/* The same for any values: the first `sums` of them with this shift. */
GkStatus	gk_gpu_reduce_values(GkSession *s, int64_t sums, int64_t values, int shift, GkError *err);

/* Totals in parts, whose sums are those of all rows. */
typedef struct GkTotals
{
	int			parts;
	bool		narrow;			/* int64_t, else gk_int128 */
	const void *of[GK_GPU_MOST];	/* each part's values; some may lie on other devices */
} GkTotals;

/* Totals of that many values to the host, waiting for them. */
GkStatus	gk_gpu_totals(GkSession *s, int64_t values, gk_int128 *out, GkError *err);

/* The last cluster is the total minus the rest. */
GkStatus	gk_gpu_reduce_last(GkSession *s, int k, GkError *err);

/* Log the totals of all rows and a pass's counts, make the next centroids, decide whether to stop. */
GkStatus	gk_gpu_update(GkSession *s, const GkTotals *totals, const GkCounts *counts, int k, char *unit, GkError *err);

/* ---- gk_gpu_fuse_registers.cu ---- */

bool		gk_gpu_fuse_registers_fits(const GkSession *s, int k);

/* `iters` iterations over resident points in one launch, logged to unit. */
GkStatus	gk_gpu_fuse_registers_run(GkSession *s, int k, int iters, char *unit, GkError *err);

/* Sums of one slice into s->acc; the last cluster is left out if *last. */
GkStatus	gk_gpu_fuse_registers(GkSession *s, const GkRows *rows, int k, bool *last, GkError *err);

/* Rows that a slice may have. */
int64_t		gk_gpu_fuse_registers_rows(const GkSession *s, int k);

/* ---- gk_gpu_assign.cu: labels ---- */

/* Bring k centroids into the kernels' layout (s->packed). */
GkStatus	gk_gpu_pack(GkSession *s, const float *centroids, int k, GkError *err);

/* Columns of s->packed for k centroids of many features. */
int			gk_gpu_wide_pad(int k);

/* Nearest centroids; labels.at and d2 may be NULL, not both. */
GkStatus	gk_gpu_assign(GkSession *s, const GkRows *rows, int k, GkLabels labels, float *d2, GkError *err);

/* Room for a slice's labels in s->labels, as wide as k asks. */
GkStatus	gk_gpu_labels(GkSession *s, int64_t rows, int k, GkLabels *out, GkError *err);

/* ---- gk_gpu_assign_mma.cu: the same, labels only, for some 17 to 128 features ---- */

bool		gk_gpu_assign_mma_fits(const GkSession *s, int k);
GkStatus	gk_gpu_assign_mma(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err);

/* ---- gk_gpu_gemm.cu: the same by a matrix product, for many features or clusters ---- */

/* May k clusters' labels come from there? */
bool		gk_gpu_gemm_wanted(const GkSession *s, int k);

/* Make the points ready for up to k centroids, sorted if that pays and is wanted; *good: they are. */
GkStatus	gk_gpu_gemm_points(GkSession *s, int k, bool sorted, bool *good, GkError *err);

/*
 * Make the centroids in s->centroids ready, and the points, at the first time.  Afterwards s->gemm_k is k, or
 * 0 where it is not possible or not worth it; s->packed may have other ones.  labelled: s->delta_labels, if they are
 * of k clusters, are near these.
 */
GkStatus	gk_gpu_gemm_begin(GkSession *s, int k, bool sorted, bool labelled, GkError *err);

/* Labels of all points, as narrow as *labels says, into s->labels. */
GkStatus	gk_gpu_gemm_labels(GkSession *s, int k, GkLabels *labels, GkError *err);

/*
 * Both, where it is worth it: int32 labels in s->labels.  gk_gpu_assign() then only adds distances.  stepped: as
 * GkFinish's.
 */
GkStatus	gk_gpu_gemm_all(GkSession *s, int k, bool sorted, const int32_t *stepped, GkError *err);

/* Sums of what moved since s->delta_labels, which become these; of at most gk_gpu_move_rows() rows. */
GkStatus	gk_gpu_gemm_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err);

/* Device: what a pass left undecided; once the log is here, decide how to go on. */
const GkGemmCounts *gk_gpu_gemm_counts(const GkSession *s);
void		gk_gpu_gemm_judge(GkSession *s, int k, const GkGemmCounts *counts);
void		gk_gpu_gemm_free(GkSession *s);

/* What is kept of rows from pass to pass is no more: a pass did not come to its end. */
void		gk_gpu_gemm_forget(GkSession *s);

/* Bytes of GkSession.spare that it holds. */
size_t		gk_gpu_gemm_held(const GkSession *s);

/* ---- gk_gpu_fuse_shared.cu, gk_gpu_fuse_mma.cu: sums of one slice into s->acc ---- */

bool		gk_gpu_fuse_shared_fits(const GkSession *s, int k);
GkStatus	gk_gpu_fuse_shared(GkSession *s, const GkRows *rows, int k, GkError *err);
bool		gk_gpu_fuse_mma_fits(const GkSession *s, int k);
GkStatus	gk_gpu_fuse_mma(GkSession *s, const GkRows *rows, int k, GkError *err);

/* ---- gk_gpu_filter.cu: iterations that leave distances out, for up to 24 features ---- */

/* Shall the next iteration filter?  Sorts the points when it pays. */
GkStatus	gk_gpu_filter_ready(GkSession *s, int k, bool *ready, GkError *err);

/* Totals of one pass with the centroids in s->centroids, into s->totals. */
GkStatus	gk_gpu_filter_pass(GkSession *s, int k, GkError *err);

/* Device: how many distances that took; once the log is here, decide whether to go on filtering. */
const unsigned long long *gk_gpu_filter_work(const GkSession *s);
void		gk_gpu_filter_judge(GkSession *s, int k, uint64_t work);
void		gk_gpu_filter_free(GkSession *s);

/* Bytes of GkSession.spare that its boxes hold. */
size_t		gk_gpu_filter_held(const GkSession *s);

/* ---- gk_gpu_paper_fused.cu: Partitioned Features in one pass, as the paper has it ---- */

bool		gk_gpu_paper_fused_fits(const GkSession *s, int k);
GkStatus	gk_gpu_paper_fused(GkSession *s, const GkRows *rows, int k, GkError *err);

/* ---- gk_gpu_feature_sum.cu, gk_gpu_mass_sum.cu: sums of labelled points ---- */

GkStatus	gk_gpu_feature_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err);
GkStatus	gk_gpu_mass_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err);
GkStatus	gk_gpu_delta(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err);
int64_t		gk_gpu_update_rows(const GkSession *s, int k);

/* The same for Feature Sum and Mass Sum as they are set: all rows if possible. */
int64_t		gk_gpu_sum_rows(const GkSession *s, int k);

/* ---- gk_gpu_step.cu, gk_gpu_paper_hybrid.cu ---- */

GkStatus	gk_gpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);
GkStatus	gk_gpu_advance(GkSession *s, const float *centroids, int k, GkAdvance *out, GkError *err);
GkStatus	gk_gpu_recall(GkSession *s, int k, float *centroids, GkStep *out, bool *kept, GkError *err);
void		gk_gpu_choose(GkSession *s);
GkStatus	gk_gpu_paper_hybrid(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err);
void		gk_gpu_step_stop(GkSession *s);

/* Load what a chain of this k launches, without an iteration. */
GkStatus	gk_gpu_step_rehearse(GkSession *s, int k, GkError *err);

/* ---- gk_gpu_join.cu: sessions on several devices as one ---- */

/* Device memory that joined sessions may read and write, of all others; freed by cudaFree(). */
GkStatus	gk_gpu_join_malloc(GkSession *s, void **to, size_t bytes, GkError *err);

/* Do passes with k centroids belong to several devices? */
static inline bool
gk_gpu_is_joined(const GkSession *s, int k)
{
	return s->joined != NULL && k <= s->problem.k_max;
}

/* As GkBackend.join and leave. */
bool		gk_gpu_join(const GkJoin *members, int n, int max_iter, double tol);
void		gk_gpu_leave(GkSession *s);

/* When all have left. */
void		gk_gpu_join_free(GkSession *s);

/* Give back the memory of the current device that others reach; it is made anew when it is needed. */
void		gk_gpu_join_drop(GkGpu *g);

/* This one has failed: the others do not wait for it.  Has one? */
void		gk_gpu_join_give_up(GkSession *s);
bool		gk_gpu_join_is_over(const GkSession *s);

/* Host: is that so for all of them?  Waits for the others; false as well when one has failed. */
GkStatus	gk_gpu_agree(GkSession *s, bool mine, bool *all);

/* Begin to number meetings anew; all do so in the same order. */
GkStatus	gk_gpu_join_begin(GkSession *s, GkError *err);

/* Host: what was begun may end without the others. */
void		gk_gpu_join_stop(GkSession *s);

/*
 * Device: wait until all others are here, and what they have written before can be read; *done, or
 * becomes 1 when one does not come.
 */
GkStatus	gk_gpu_meet(GkSession *s, int *done, GkError *err);

/* The totals of all rows, to be read by what is launched next. */
GkStatus	gk_gpu_join_totals(GkSession *s, int k, GkTotals *totals, GkError *err);

/* Device: how long its own rows took. */
const unsigned long long *gk_gpu_join_busy(const GkSession *s);

/* ---- gk_gpu_finish.cu ---- */

GkStatus	gk_gpu_finish(GkSession *s, const float *centroids, int k, GkFinish *out,
						  const GkLabelSink *sink, GkError *err);

/* ---- gk_gpu_seed.cu, gk_gpu_sample.cu, gk_gpu_seed_rounds.cu ---- */

GkStatus	gk_gpu_seed_begin(GkSession *s, GkError *err);
void		gk_gpu_seed_end(GkSession *s);
GkStatus	gk_gpu_seed_update(GkSession *s, const float *centroids, int m, gk_int128 *phi, GkError *err);
GkStatus	gk_gpu_seed_eval(GkSession *s, const float *centroids, int m, gk_int128 *pot, GkError *err);
void		gk_gpu_seed_forget(GkSession *s);	/* distances to candidates */
GkStatus	gk_gpu_seed_race(GkSession *s, uint64_t key, bool use_d2, int want, GkPick *out, int *got, GkError *err);
GkStatus	gk_gpu_seed_far(GkSession *s, int64_t *row, GkError *err);
GkStatus	gk_gpu_seed_rounds(GkSession *s, const uint64_t *keys, int rounds, int want, float *points, int *done,
							   GkError *err);
void		gk_gpu_seed_rounds_free(GkSession *s);

#endif							/* GK_GPU_H */
