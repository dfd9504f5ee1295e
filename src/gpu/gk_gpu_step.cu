/*
 * gk_gpu_step.cu - step() and advance(): one pass for the host, and passes ahead of it.
 *
 * Between two iterations the host would have to wait for the sums, make the centroids and launch again, while
 * the device does nothing.  So the device makes the next centroids itself and goes on; a log keeps what each
 * iteration used and found.  When the host comes with centroids that are, bit for bit, those of the next log
 * entry, the entry is the answer.  When it does not (it repaired an empty cluster, or began another restart),
 * the chain is dropped and a new one starts from what it was given.  Joined sessions (gk_gpu_join.cu) have to
 * find the same, so there the host says whether its centroids follow.
 *
 * Where a step's result is large, that would still bind the device to what the bus and the host can take.  There the
 * log stays on the device: advance() tells the host what each cluster did, and recall() hands out an entry of the log,
 * once the host needs it.
 *
 * The log comes back in units: one launch's entries (gk_gpu_fuse_registers.cu: many) or one iteration.  At
 * most GK_GPU_UNITS are in flight or being looked at.
 */
#include <string.h>

#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_move_sum.h"

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
		GK_DO(gk_gpu_gemm_begin(s, k, true, s->chain_follows, err));
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
		rows = gk_gpu_move_rows(s);
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
	size_t		bytes = s->quiet || s->brief_bytes > 0 ? gk_gpu_unit_host_bytes(s) : GK_LOG_HEAD + entries * s->entry_bytes;

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
	double		read = (double) s->n * s->cols * sizeof(float) / GK_READ_PER_MS;
	double		work = (double) s->n * s->d * k;
	double		compute = gk_gpu_gemm_wanted(s, k) ? work / GK_GEMM_PER_MS :
		work * GK_DISTANCE_OPS / (s->gpu->sms * GK_SM_LANES * GK_CYCLES_PER_MS);

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
	GkTotals	totals;
	GkCounts	counts = {};
	bool		filter = false;

	if (!rehearsal)
		GK_DO(gk_gpu_filter_ready(s, k, &filter, err));
	if (!filter && s->brief_bytes == 0 && regime_of(s, k) == GK_FUSE_REGISTERS && s->n <= gk_gpu_fuse_registers_rows(s, k) && s->resident == s->n &&
		!gk_gpu_is_joined(s, k) && s->pts->prep.distance == GK_EUCLIDEAN)
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
		s->chain_follows = true;
		GK_DO(gk_gpu_join_totals(s, k, &totals, err));
		if (filter)
			counts.work = gk_gpu_filter_work(s);
		else if (s->gemm_k == k)
			counts.gemm = gk_gpu_gemm_counts(s);
		if (gk_gpu_is_joined(s, k))
			counts.busy = gk_gpu_join_busy(s);
		GK_DO(gk_gpu_update(s, &totals, &counts, k, unit, err));
	}
	/* It comes back while the next unit computes. */
	GK_TRY(cudaEventRecord(s->gpu->unit_made, s->gpu->stream));
	GK_TRY(cudaStreamWaitEvent(s->gpu->copy, s->gpu->unit_made, 0));
	GK_DO(bring(s, unit, host_unit(s, slot), iters, err));
	GK_TRY(cudaEventRecord(s->gpu->unit_done[slot], s->gpu->copy));
	s->unit_count[slot] = iters;
	s->unit_filtered[slot] = filter;
	s->units++;
	s->chain_left -= iters;
	return GK_OK;
}

/*
 * may_follow: iterations will be asked for that have the centroids of the one before.  follows: these are the last
 * one's.
 */
static GkStatus
chain_start(GkSession *s, const float *centroids, int k, bool may_follow, bool follows, GkError *err)
{
	double		ms = iteration_ms(s, k);
	bool		ahead = may_follow && ms <= GK_AHEAD_MS && s->resident == s->n;

	GK_DO(gk_gpu_log_room(s, k, err));
	GK_DO(gk_gpu_agree(s, ahead, &ahead));
	/* An old chain may still use the buffers: stop it and wait. */
	if (s->units > 0)
		GK_TRY(cudaMemsetAsync(s->done, 1, sizeof(int), s->gpu->copy));
	GK_TRY(cudaEventRecord(s->gpu->pace[1], s->gpu->copy));
	GK_TRY(cudaStreamWaitEvent(s->gpu->stream, s->gpu->pace[1], 0));
	gk_gpu_step_stop(s);
	GK_DO(gk_gpu_drain(s, err));
	/* What ran ahead may have ended anywhere. */
	if (s->chain_ahead)
		gk_gpu_gemm_forget(s);
	GK_DO(gk_gpu_put_centroids(s, centroids, k, err));
	GK_TRY(cudaMemsetAsync(s->done, 0, sizeof(int), s->gpu->stream));
	GK_DO(gk_gpu_join_begin(s, err));
	s->chain_k = k;
	s->chain_follows = follows;
	s->unit_first = 0;
	s->chain_ahead = ahead && s->problem.max_iter > 1;
	s->chain_left = s->chain_ahead || (may_follow && s->brief_bytes > 0) ? s->problem.max_iter : 1;
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

/* One of the log's. */
typedef struct Entry
{
	int			unit;			/* -1: none */
	int			at;				/* in the unit */
} Entry;

static char *
host_entry(const GkSession *s, const Entry *entry)
{
	return gk_gpu_entries(s, host_unit(s, entry->unit)) + entry->at * s->entry_bytes;
}

/* Is this entry of the log for these centroids? */
static bool
is_for(const GkSession *s, const Entry *entry, const float *centroids, int k)
{
	const gk_int128 *totals = (const gk_int128 *) host_entry(s, entry);

	return memcmp(totals + gk_gpu_values(s, k), centroids, (size_t) k * s->d * sizeof(float)) == 0;
}

/*
 * The next entry of the log if it is for these centroids; NULL: whichever it is for.  Joined sessions must find the
 * same: they go by what the host says of the centroids, and the one whose totals it takes sees that it is so.
 */
static GkStatus
chain_next(GkSession *s, const float *centroids, int k, bool follows, Entry *next, GkError *err)
{
	bool		joined = gk_gpu_is_joined(s, k);

	if (s->chain_k != k || (joined && !follows))
		return GK_OK;
	while (s->units > 0)
	{
		char	   *unit = host_unit(s, s->unit_first);
		const GkLogHead *head = (const GkLogHead *) unit;
		Entry		entry = {s->unit_first, s->unit_entry};

		GK_DO(gk_gpu_wait(s, s->gpu->unit_done[s->unit_first], err));
		if (s->unit_filtered[s->unit_first])
			gk_gpu_filter_judge(s, k, head->work);
		else if (s->unit_entry == 0 && s->gemm_k == k)
			gk_gpu_gemm_judge(s, k, &head->gemm);
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
		if (centroids != NULL && !s->quiet && s->brief_bytes == 0 && !is_for(s, &entry, centroids, k))
			return joined ? gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's next centroids are not the host's") : GK_OK;
		*next = entry;
		s->unit_entry++;
		return GK_OK;
	}
	return GK_OK;
}

/* Totals as the host wants them, from an entry that has come there. */
static void
unpack(const GkSession *s, const Entry *entry, int k, GkStep *out)
{
	const gk_int128 *totals = (const gk_int128 *) host_entry(s, entry);
	size_t		sums = (size_t) k * s->d;

	memcpy(out->sum, totals, sums * sizeof(gk_int128));
	memcpy(out->mass, totals + sums, k * sizeof(gk_int128));
	for (int i = 0; i < k; i++)
		out->count[i] = (int64_t) totals[sums + (s->pts->weighted ? k : 0) + i];
}

/* The same from the entry of a unit that stayed on the device. */
static GkStatus
fetch_result(GkSession *s, int unit, int k, GkStep *out, GkError *err)
{
	const gk_int128 *totals = (const gk_int128 *) gk_gpu_entries(s, s->log + unit * s->unit_bytes);
	size_t		sums = (size_t) k * s->d;

	memcpy(out->count, gk_gpu_brief(host_unit(s, unit), k).count, k * sizeof(int64_t));
	GK_DO(gk_gpu_fetch(s, out->mass, totals + sums, k * sizeof(gk_int128), err));
	return gk_gpu_fetch(s, out->sum, totals, sums * sizeof(gk_int128), err);
}

/* Does the host want results from here?  Make room for what it wants. */
static GkStatus
prepare(GkSession *s, int k, bool wanted, GkError *err)
{
	bool		quiet = gk_gpu_is_joined(s, k) && !wanted;

	GK_DO(gk_gpu_room(s, k, err));
	if (s->quiet != quiet)
	{
		gk_gpu_step_stop(s);
		GK_DO(gk_gpu_drain(s, err));
		s->quiet = quiet;
		s->log_room = 0;
	}
	return gk_gpu_log_room(s, k, err);
}

/* Keep two units under way while the host looks at this one. */
static GkStatus
run_ahead(GkSession *s, GkError *err)
{
	while (s->chain_ahead && s->units < GK_GPU_UNITS && s->chain_left > 0)
		GK_DO(chain_launch(s, false, err));
	return GK_OK;
}

/* Begin a chain with these centroids; its first entry. */
static GkStatus
begin(GkSession *s, const float *centroids, int k, bool may_follow, bool follows, Entry *entry, GkError *err)
{
	GK_DO(chain_start(s, centroids, k, may_follow, follows, err));
	GK_DO(chain_next(s, centroids, k, true, entry, err));
	if (entry->unit >= 0)
		return GK_OK;
	return gk_gpu_join_is_over(s) ? GK_STOPPED :
		gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's log does not start with what it was given");
}

/* The entry of the log for these centroids.  Where results stay here they are new ones: the host would advance else. */
static GkStatus
find(GkSession *s, const float *centroids, int k, bool follows, Entry *entry, GkError *err)
{
	bool		brief = s->brief_bytes > 0;

	if (!brief)
		GK_DO(chain_next(s, centroids, k, follows, entry, err));
	if (entry->unit < 0)
		GK_DO(begin(s, centroids, k, !brief && k <= s->problem.k_max, follows, entry, err));
	return run_ahead(s, err);
}

/* The first entry with these centroids; NULL: the next one, if the chain has not ended, as it was told. */
static GkStatus
go_on(GkSession *s, const float *centroids, int k, Entry *entry, GkError *err)
{
	if (centroids != NULL)
		GK_DO(begin(s, centroids, k, true, false, entry, err));
	else
		GK_DO(chain_next(s, NULL, k, true, entry, err));
	if (entry->unit < 0 && gk_gpu_join_is_over(s))
		return GK_STOPPED;
	return run_ahead(s, err);
}

/* A pass is over: what its own rows took; a joined session that failed tells the others. */
static void
end_pass(GkSession *s, GkStatus st, const Entry *entry, double *busy_ms)
{
	if (s->joined == NULL)
		return;
	if (st != GK_OK)
		gk_gpu_join_give_up(s);
	*busy_ms = entry->unit >= 0 ? (double) ((const GkLogHead *) host_unit(s, entry->unit))->busy * 1e-6 : 0.0;
}

GkStatus
gk_gpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	Entry		entry = {-1, 0};
	GkStatus	st;

	/* The papers' hybrid has no chain, and no other pass knows of it. */
	if (s->regime == GK_PAPER_HYBRID)
	{
		GK_DO(gk_gpu_room(s, k, err));
		return gk_gpu_paper_hybrid(s, centroids, k, out, err);
	}
	st = prepare(s, k, out->sum != NULL, err);
	if (st == GK_OK)
		st = find(s, centroids, k, out->follows, &entry, err);
	if (st == GK_OK && s->brief_bytes > 0 && !s->quiet)
		st = fetch_result(s, entry.unit, k, out, err);
	else if (st == GK_OK && !s->quiet)
		unpack(s, &entry, k, out);
	end_pass(s, st, &entry, &out->busy_ms);
	return st;
}

GkStatus
gk_gpu_advance(GkSession *s, const float *centroids, int k, GkAdvance *out, GkError *err)
{
	Entry		entry = {-1, 0};
	GkStatus	st;

	if (s->regime == GK_PAPER_HYBRID || k > s->problem.k_max)
		return GK_OK;
	st = prepare(s, k, out->count != NULL, err);
	if (st == GK_OK && s->brief_bytes == 0)
		return GK_OK;
	if (st == GK_OK)
		st = go_on(s, centroids, k, &entry, err);
	out->done = st == GK_OK && entry.unit >= 0;
	if (out->done)
		s->unit_recalled = entry.unit;
	if (out->done && !s->quiet)
	{
		GkBrief		brief = gk_gpu_brief(host_unit(s, entry.unit), k);

		memcpy(out->count, brief.count, k * sizeof(int64_t));
		memcpy(out->moved, brief.moved, k * sizeof(double));
		memcpy(out->explained, brief.explained, k * sizeof(double));
	}
	end_pass(s, st, &entry, &out->busy_ms);
	return st;
}

GkStatus
gk_gpu_recall(GkSession *s, int k, float *centroids, GkStep *out, bool *kept, GkError *err)
{
	const gk_int128 *totals = (const gk_int128 *) gk_gpu_entries(s, s->log + s->unit_recalled * s->unit_bytes);

	*kept = true;
	GK_DO(fetch_result(s, s->unit_recalled, k, out, err));
	return gk_gpu_fetch(s, centroids, totals + gk_gpu_values(s, k), (size_t) k * s->d * sizeof(float), err);
}
