/*
 * gk_gpu_step.cu - step(): one pass for the host, and passes ahead of it.
 *
 * Between two iterations the host would have to wait for the sums, make the centroids and launch again, while
 * the device does nothing.  So the device makes the next centroids itself and goes on; a log keeps what each
 * iteration used and found.  When the host comes with centroids that are, bit for bit, those of the next log
 * entry, the entry is the answer.  When it does not (it repaired an empty cluster, or began another restart),
 * the chain is dropped and a new one starts from what it was given.  Joined sessions (gk_gpu_join.cu) have to
 * find the same, so there the host says whether its centroids follow.
 *
 * The log comes back in units: one launch's entries (gk_gpu_fuse_registers.cu: many) or one iteration.  At
 * most GK_GPU_UNITS are in flight or being looked at.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"

/* ---- which kernels ---- */

/* Labels and sums at once where shared memory has room for the sums, else one after the other. */
static GkRegime
fuse(const GkSession *s, int k)
{
	/* The paper's kernel runs where it was asked for; nothing else pays for it: this is asked once a launch. */
	if (s->problem.feature_sum == GK_PARTITIONED_FEATURES && gk_gpu_paper_fused_fits(s, k))
		return GK_PAPER_FUSED;
	if (gk_gpu_fuse_mma_fits(s, k))
		return GK_FUSE_MMA;
	return gk_gpu_fuse_shared_fits(s, k) ? GK_FUSE_SHARED : GK_ASSIGN_SUM;
}

/* What does a pass with k centroids: seeding may ask for more of them than the problem has. */
static GkRegime
regime_of(const GkSession *s, int k)
{
	if (gk_gpu_gemm_wanted(s, k))
		return GK_GEMM;
	if (s->regime == GK_ASSIGN_SUM || s->regime == GK_PAPER_HYBRID)
		return s->regime;
	if (s->regime == GK_FUSE_REGISTERS && gk_gpu_fuse_registers_fits(s, k))
		return s->regime;
	return fuse(s, k);
}

/* Settings to what runs, "auto" resolved. */
void
gk_gpu_choose(GkSession *s)
{
	int			k = s->problem.k_max;
	GkStrategy	strategy = s->problem.strategy;

	s->fsum = s->problem.feature_sum;
	s->msum = s->problem.mass_sum;
	if (strategy == GK_STRATEGY_AUTO)
		strategy = s->fsum == GK_FSUM_AUTO && s->msum == GK_MSUM_AUTO &&
			(gk_gpu_fuse_registers_fits(s, k) || fuse(s, k) != GK_ASSIGN_SUM) ? GK_SINGLE_PASS : GK_MULTI_PASS;
	s->single_pass = strategy == GK_SINGLE_PASS;
	if (strategy == GK_CROSS_PROCESSING)
		s->regime = GK_PAPER_HYBRID;
	else if (!s->single_pass || s->fsum == GK_DELTA)
		s->regime = GK_ASSIGN_SUM;
	else if (s->fsum != GK_PARTITIONED_FEATURES && gk_gpu_fuse_registers_fits(s, k))
		s->regime = GK_FUSE_REGISTERS;
	else
		s->regime = fuse(s, k);
	if (s->fsum == GK_FSUM_AUTO)
		s->fsum = GK_PARTITIONED_FEATURES;
	if (s->msum == GK_MSUM_AUTO)
		s->msum = k <= 64 ? GK_PARTITIONED_PRIVATE : GK_PARTITIONED_LOCAL;
	if (gk_gpu_gemm_wanted(s, k))
		s->single_pass = false;
}

/* ---- one pass ---- */

typedef struct Pass
{
	int			k;
	GkRegime	regime;
	bool		last;			/* out: the last cluster was left out */
	GkLabels	labels;			/* GK_GEMM: of all points */
} Pass;

/* Labels, then their sums. */
static GkStatus
assign_sum(GkSession *s, const GkRows *rows, int k, GkError *err)
{
	size_t		width = k <= GK_NARROW_K ? 1 : sizeof(int32_t);
	GkLabels	labels;

	GK_DO(gk_gpu_labels(s, rows->rows, k, &labels, err));
	GK_DO(gk_gpu_assign(s, rows, k, labels, NULL, err));
	if (s->fsum == GK_DELTA)
		GK_DO(gk_gpu_delta(s, rows, k, labels, err));
	else
		GK_DO(gk_gpu_feature_sum(s, rows, k, labels, err));
	GK_DO(gk_gpu_mass_sum(s, rows, k, labels, err));
	if (s->fsum == GK_DELTA)
		GK_TRY(cudaMemcpyAsync((char *) s->delta_labels + rows->first * width, labels.at, rows->rows * width,
							   cudaMemcpyDeviceToDevice, s->gpu->stream));
	return GK_OK;
}

static GkStatus
pass_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	Pass	   *p = (Pass *) arg;
	GkStatus	st;

	switch (p->regime)
	{
		case GK_FUSE_REGISTERS:
			st = gk_gpu_fuse_registers(s, rows, p->k, &p->last, err);
			break;
		case GK_FUSE_MMA:
			st = gk_gpu_fuse_mma(s, rows, p->k, err);
			break;
		case GK_FUSE_SHARED:
			st = gk_gpu_fuse_shared(s, rows, p->k, err);
			break;
		case GK_PAPER_FUSED:
			st = gk_gpu_paper_fused(s, rows, p->k, err);
			break;
		case GK_GEMM:
			st = gk_gpu_gemm_sum(s, rows, p->k, p->labels, err);
			break;
		default:
			st = assign_sum(s, rows, p->k, err);
	}
	return st == GK_OK ? gk_gpu_reduce(s, p->k, err) : st;
}

/* Sums of what moved: keep every point's label and the totals from step to step. */
static GkStatus
delta_begin(GkSession *s, int k, GkError *err)
{
	if (s->delta_labels == NULL)
		GK_TRY(cudaMalloc((void **) &s->delta_labels, (s->n + GK_ROW_PAD) * sizeof(int32_t)));
	if (s->delta_k != k)
	{
		GK_TRY(cudaMemsetAsync(s->delta_labels, 0xff, s->n * sizeof(int32_t), s->gpu->stream));
		GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
		s->delta_k = k;
	}
	return GK_OK;
}

/* Totals of one pass with the centroids in s->centroids, into s->totals. */
static GkStatus
pass(GkSession *s, int k, GkError *err)
{
	Pass		p = {k, regime_of(s, k), false, {NULL, k <= GK_NARROW_K}};
	int64_t		rows = gk_gpu_slice_rows(s, k);

	if (p.regime != GK_FUSE_REGISTERS && p.regime != GK_GEMM)
		GK_DO(gk_gpu_pack(s, s->centroids, k, err));
	if (p.regime == GK_GEMM)
	{
		GK_DO(gk_gpu_gemm_begin(s, k, err));
		if (s->gemm_k != k)
			return pass(s, k, err); /* by another way: this one is switched off */
	}
	if (p.regime == GK_GEMM || s->fsum == GK_DELTA)
		GK_DO(delta_begin(s, k, err));
	else
	{
		s->delta_k = 0;
		GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
	}
	if (p.regime == GK_FUSE_REGISTERS)
		rows = gk_min(rows, gk_gpu_fuse_registers_rows(s, k));
	if (p.regime == GK_GEMM)
	{
		GK_DO(gk_gpu_gemm_labels(s, k, &p.labels, err));
		rows = GK_INT64_ROWS;
	}
	if (p.regime == GK_ASSIGN_SUM)
	{
		int64_t		cached = (int64_t) s->gpu->l2 / 3 / (s->cols * (int64_t) sizeof(float));

		rows = gk_gpu_sum_rows(s, k);
		if (s->single_pass && rows > cached)
			rows = cached < s->gpu->sms * 256 ? s->gpu->sms * 256 : cached;
	}
	GK_DO(gk_gpu_each(s, rows, pass_slice, &p, err));
	if (p.last)
		GK_DO(gk_gpu_reduce_last(s, k, err));
	return GK_OK;
}

/* ---- the chain ---- */

static char *
host_unit(const GkSession *s, int unit)
{
	return s->log_host + (size_t) unit * gk_gpu_unit_host_bytes(s);
}

/* A unit on its way to the host. */
static GkStatus
bring(GkSession *s, const char *unit, char *to, int entries, GkError *err)
{
	size_t		bytes = GK_LOG_HEAD + (s->quiet ? 0 : entries * s->entry_bytes);

	GK_TRY(cudaMemcpyAsync(to, unit, bytes, cudaMemcpyDeviceToHost, s->gpu->copy));
	return GK_OK;
}

void
gk_gpu_step_stop(GkSession *s)
{
	if (s->units > 0)
		gk_gpu_join_stop(s);
	s->chain_k = 0;
	s->units = 0;
	s->unit_entry = 0;
}

/* Estimated time of one iteration over resident points. */
static double
iteration_ms(const GkSession *s, int k)
{
	double		read = (double) s->n * s->cols * sizeof(float) / GK_READ_MS;
	double		work = (double) s->n * s->d * k;
	double		compute = gk_gpu_gemm_wanted(s, k) ? work / GK_GEMM_MS :
		work * GK_DISTANCE_OPS / (s->gpu->sms * GK_SM_LANES * GK_CYCLES_MS);

	return GK_ITERATION_MS + (read > compute ? read : compute);
}

/* Launch one more unit of the chain; in a rehearsal there are no centroids. */
static GkStatus
chain_launch(GkSession *s, bool rehearsal, GkError *err)
{
	int			slot = (s->unit_first + s->units) % GK_GPU_UNITS;
	char	   *unit = s->log + slot * s->unit_bytes;
	int			k = s->chain_k;
	int			iters = s->chain_iters < s->chain_left ? s->chain_iters : s->chain_left;
	const gk_int128 *totals;
	bool		filter = false;

	if (!rehearsal)
		GK_DO(gk_gpu_filter_ready(s, k, &filter, err));
	if (!filter && regime_of(s, k) == GK_FUSE_REGISTERS && s->n <= gk_gpu_fuse_registers_rows(s, k) && s->resident == s->n &&
		!gk_gpu_is_joined(s, k))
		GK_DO(gk_gpu_fuse_registers_run(s, k, iters, unit, err));
	else
	{
		GkStatus	st;

		iters = 1;
		/* or the host would come to its own work only when the device has done all of this */
		s->unpaced = s->chain_ahead;
		st = filter ? gk_gpu_filter_pass(s, k, err) : pass(s, k, err);
		s->unpaced = false;
		GK_DO(st);
		GK_DO(gk_gpu_join_totals(s, k, &totals, err));
		GK_DO(gk_gpu_update(s, totals, k, unit, err));
		if (filter)
			GK_DO(gk_gpu_filter_log(s, (GkLogHead *) unit, err));
		else if (s->gemm_k == k)
			GK_DO(gk_gpu_gemm_log(s, (GkLogHead *) unit, err));
		if (gk_gpu_is_joined(s, k))
			GK_DO(gk_gpu_join_log(s, (GkLogHead *) unit, err));
	}
	/* It comes back while the next unit computes. */
	GK_TRY(cudaEventRecord(s->gpu->unit_made, s->gpu->stream));
	GK_TRY(cudaStreamWaitEvent(s->gpu->copy, s->gpu->unit_made, 0));
	GK_DO(bring(s, unit, host_unit(s, slot), iters, err));
	GK_TRY(cudaEventRecord(s->gpu->unit_done[slot], s->gpu->copy));
	s->unit_count[slot] = iters;
	s->units++;
	s->chain_left -= iters;
	return GK_OK;
}

static GkStatus
chain_start(GkSession *s, const float *centroids, int k, GkError *err)
{
	double		ms = iteration_ms(s, k);
	bool		ahead = k <= s->problem.k_max && s->pts->prep.distance == GK_EUCLIDEAN &&
		ms <= GK_AHEAD_MS && s->resident == s->n;

	GK_DO(gk_gpu_log_room(s, k, err));
	GK_DO(gk_gpu_agree(s, ahead, &ahead));
	/* An old chain may still use the buffers: stop it and wait. */
	if (s->units > 0)
		GK_TRY(cudaMemsetAsync(s->done, 1, sizeof(int), s->gpu->copy));
	GK_TRY(cudaEventRecord(s->gpu->pace[1], s->gpu->copy));
	GK_TRY(cudaStreamWaitEvent(s->gpu->stream, s->gpu->pace[1], 0));
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	GK_DO(gk_gpu_put_centroids(s, centroids, k, err));
	GK_TRY(cudaMemsetAsync(s->done, 0, sizeof(int), s->gpu->stream));
	GK_DO(gk_gpu_join_begin(s, err));
	s->chain_k = k;
	s->unit_first = 0;
	s->chain_ahead = ahead && s->problem.max_iter > 1;
	s->chain_left = s->chain_ahead ? s->problem.max_iter : 1;
	s->chain_iters = (int) gk_min((int) (GK_UNIT_MS / ms), s->entries);
	if (s->chain_iters < 1)
		s->chain_iters = 1;
	return chain_launch(s, false, err);
}

/*
 * A kernel is loaded when it is launched for the first time, which takes milliseconds: better here than in
 * the first iteration.  These find that they are done already.
 */
GkStatus
gk_gpu_step_rehearse(GkSession *s, int k, GkError *err)
{
	GkRegime	regime = regime_of(s, k);

	if (regime == GK_GEMM || regime == GK_ASSIGN_SUM || regime == GK_PAPER_HYBRID || s->resident < s->n || s->fsum == GK_DELTA)
		return GK_OK;
	GK_DO(gk_gpu_log_room(s, k, err));
	GK_TRY(cudaMemsetAsync(s->done, 1, sizeof(int), s->gpu->stream));
	s->chain_k = k;
	s->chain_iters = s->chain_left = 1;
	s->unit_first = 0;
	GK_DO(chain_launch(s, true, err));
	GK_DO(gk_gpu_drain(s, err));
	gk_gpu_step_stop(s);
	return GK_OK;
}

/* What the host does with much memory is done by all threads: one takes as long as the device. */
#define HOST_BYTES		((size_t) 1 << 19)

static int64_t
host_jobs(size_t bytes)
{
	return (int64_t) ((bytes + HOST_BYTES - 1) / HOST_BYTES);
}

typedef struct Compare
{
	const char *used;
	const char *centroids;
	size_t		bytes;
	bool		differ;
} Compare;

static void
compare_bytes(void *arg, int64_t job, int thread)
{
	Compare    *c = (Compare *) arg;
	size_t		from = (size_t) job * HOST_BYTES;

	(void) thread;
	if (memcmp(c->used + from, c->centroids + from, gk_min(c->bytes - from, HOST_BYTES)) != 0)
		__atomic_store_n(&c->differ, true, __ATOMIC_RELAXED);
}

/* Is this entry of the log for these centroids? */
static GkStatus
is_for(GkSession *s, const gk_int128 *entry, const float *centroids, int k, bool *good)
{
	Compare		c = {(const char *) (entry + gk_gpu_values(s, k)), (const char *) centroids, (size_t) k * s->d * sizeof(float)};

	if (!s->core->parallel_for(s->host, host_jobs(c.bytes), compare_bytes, &c))
		return GK_STOPPED;
	*good = !c.differ;
	return GK_OK;
}

/*
 * The next entry of the log if it is for these centroids, else NULL.  Joined sessions must find the same: they go by
 * what the host says of the centroids, and the one whose totals it takes sees that it is so.
 */
static GkStatus
chain_next(GkSession *s, const float *centroids, int k, bool follows, const gk_int128 **entry, GkError *err)
{
	bool		joined = gk_gpu_is_joined(s, k);
	bool		good = true;

	*entry = NULL;
	if (s->chain_k != k || (joined && !follows))
		return GK_OK;
	while (s->units > 0)
	{
		char	   *unit = host_unit(s, s->unit_first);
		const GkLogHead *head = (const GkLogHead *) unit;
		const gk_int128 *log;

		GK_DO(gk_gpu_wait(s, s->gpu->unit_done[s->unit_first], err));
		gk_gpu_filter_judge(s, k, head->work);
		if (s->unit_entry == 0)
			gk_gpu_gemm_judge(s, k, head);
		if (s->unit_entry >= head->count)
		{
			if (head->stop || head->count < s->unit_count[s->unit_first])
				return GK_OK;	/* the chain ended here */
			s->unit_first = (s->unit_first + 1) % GK_GPU_UNITS;
			s->units--;
			s->unit_entry = 0;
			if (s->units == 0 && s->chain_left > 0)
				GK_DO(chain_launch(s, false, err));
			continue;
		}
		log = (const gk_int128 *) (unit + GK_LOG_HEAD + s->unit_entry * s->entry_bytes);
		if (!s->quiet)
			GK_DO(is_for(s, log, centroids, k, &good));
		if (!good)
			return joined ? gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's next centroids are not the host's") : GK_OK;
		*entry = log;
		s->unit_entry++;
		return GK_OK;
	}
	return GK_OK;
}

typedef struct Unpack
{
	const char *totals;
	GkStep	   *out;
	size_t		bytes;			/* of the sums */
} Unpack;

static void
unpack_sums(void *arg, int64_t job, int thread)
{
	const Unpack *u = (const Unpack *) arg;
	size_t		from = (size_t) job * HOST_BYTES;

	(void) thread;
	memcpy((char *) u->out->sum + from, u->totals + from, gk_min(u->bytes - from, HOST_BYTES));
}

/* Sums as the host wants them. */
static GkStatus
unpack(GkSession *s, const gk_int128 *totals, int k, GkStep *out)
{
	size_t		sums = (size_t) k * s->d;
	Unpack		u = {(const char *) totals, out, sums * sizeof(gk_int128)};

	memcpy(out->mass, totals + sums, k * sizeof(gk_int128));
	for (int i = 0; i < k; i++)
		out->count[i] = (int64_t) totals[sums + (s->pts->weighted ? k : 0) + i];
	return s->core->parallel_for(s->host, host_jobs(u.bytes), unpack_sums, &u) ? GK_OK : GK_STOPPED;
}

/* Does the host want the totals from here? */
static GkStatus
set_quiet(GkSession *s, bool quiet, GkError *err)
{
	if (s->quiet == quiet)
		return GK_OK;
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	s->quiet = quiet;
	s->log_room = 0;
	return GK_OK;
}

/* The entry of the log for these centroids, which a chain begins with if it has to. */
static GkStatus
entry_of(GkSession *s, const float *centroids, int k, bool follows, const gk_int128 **entry, GkError *err)
{
	GK_DO(gk_gpu_room(s, k, err));
	GK_DO(chain_next(s, centroids, k, follows, entry, err));
	if (*entry == NULL)
	{
		GK_DO(chain_start(s, centroids, k, err));
		GK_DO(chain_next(s, centroids, k, true, entry, err));
		if (*entry == NULL)
			return gk_gpu_join_is_over(s) ? GK_STOPPED :
				gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's log does not start with what it was given");
	}
	/* Keep two units under way while the host looks at this one. */
	while (s->units < GK_GPU_UNITS && s->chain_left > 0)
		GK_DO(chain_launch(s, false, err));
	return GK_OK;
}

GkStatus
gk_gpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	const gk_int128 *entry = NULL;
	GkStatus	st;

	/* The papers' hybrid has no chain, and no other pass knows of it. */
	if (s->regime == GK_PAPER_HYBRID)
	{
		GK_DO(gk_gpu_room(s, k, err));
		return gk_gpu_paper_hybrid(s, centroids, k, out, err);
	}
	st = set_quiet(s, gk_gpu_is_joined(s, k) && out->sum == NULL, err);
	if (st == GK_OK)
		st = entry_of(s, centroids, k, out->follows, &entry, err);
	if (st == GK_OK && entry != NULL && !s->quiet)
		st = unpack(s, entry, k, out);
	if (s->joined == NULL)
		return st;
	if (st != GK_OK)
		gk_gpu_join_give_up(s);
	out->busy_ms = entry != NULL ? (double) ((const GkLogHead *) host_unit(s, s->unit_first))->busy * 1e-6 : 0.0;
	return st;
}
