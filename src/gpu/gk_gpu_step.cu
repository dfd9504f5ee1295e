/*
 * gk_gpu_step.cu - step(): one pass for the host, and passes ahead of it.
 *
 * Between two iterations the host would have to wait for the sums, make the
 * centroids and launch again, while the device does nothing.  So the device
 * makes the next centroids itself and goes on; a log keeps what each iteration
 * used and found.  When the host comes with centroids that are, bit for bit,
 * those of the next log entry, the entry is the answer.  When it does not (it
 * repaired an empty cluster, or began another restart), the chain is dropped
 * and a new one starts from what it was given.
 *
 * The log comes back in units: one launch's entries (gk_gpu_fuse_registers.cu: many) or
 * one iteration.  At most GK_GPU_UNITS are in flight.
 */
#include <string.h>

#include "gpu/gk_gpu.h"

#define UNIT_MS			4.0		/* aim for one unit of many iterations */
#define AHEAD_MS		20.0	/* longer iterations are not worth running ahead */

/* ---- which kernels ---- */

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
			(gk_gpu_small_fits(s, k) || gk_gpu_fused_fits(s, k)) ? GK_SINGLE_PASS : GK_MULTI_PASS;
	if (strategy == GK_CROSS_PROCESSING)
		s->regime = GK_REGIME_CROSS;
	else if (strategy == GK_SINGLE_PASS && s->fsum != GK_DELTA)
		s->regime = s->fsum != GK_PARTITIONED_FEATURES && gk_gpu_small_fits(s, k) ? GK_REGIME_SMALL :
			gk_gpu_fused_fits(s, k) ? GK_REGIME_FUSED : GK_REGIME_MULTI;
	else
		s->regime = GK_REGIME_MULTI;
	s->blocked = strategy == GK_SINGLE_PASS;
	if (s->fsum == GK_FSUM_AUTO)
		s->fsum = GK_PARTITIONED_FEATURES;
	if (s->msum == GK_MSUM_AUTO)
		s->msum = k <= 64 ? GK_PARTITIONED_PRIVATE : GK_PARTITIONED_LOCAL;
}

/* Regime of this k: seeding may ask for more centroids than the problem has. */
static GkRegime
regime_of(const GkSession *s, int k)
{
	if (s->regime == GK_REGIME_SMALL && !gk_gpu_small_fits(s, k))
		return gk_gpu_fused_fits(s, k) ? GK_REGIME_FUSED : GK_REGIME_MULTI;
	if (s->regime == GK_REGIME_FUSED && !gk_gpu_fused_fits(s, k))
		return GK_REGIME_MULTI;
	return s->regime;
}

/* ---- one pass ---- */

typedef struct Pass
{
	int			k;
	GkRegime	regime;
	bool		last;			/* out: the last cluster was left out */
} Pass;

static GkStatus
pass_slice(GkSession *s, const GkRows *rows, void *arg, GkError *err)
{
	Pass	   *p = (Pass *) arg;

	if (p->regime == GK_REGIME_SMALL)
		GK_DO(gk_gpu_small_slice(s, rows, p->k, &p->last, err));
	else if (p->regime == GK_REGIME_FUSED)
		GK_DO(gk_gpu_fused(s, rows, p->k, err));
	else
	{
		GkLabels	labels;

		GK_DO(gk_gpu_labels(s, rows->rows, p->k, &labels, err));
		GK_DO(gk_gpu_assign(s, rows, p->k, labels, NULL, err));
		if (s->fsum == GK_DELTA)
			GK_DO(gk_gpu_delta(s, rows, p->k, labels, err));
		else
			GK_DO(gk_gpu_feature_sum(s, rows, p->k, labels, err));
		GK_DO(gk_gpu_mass_sum(s, rows, p->k, labels, err));
		if (s->fsum == GK_DELTA)
		{
			size_t		width = labels.narrow ? 1 : sizeof(int32_t);

			GK_TRY(cudaMemcpyAsync((char *) s->delta_labels + rows->first * width, labels.at, rows->rows * width,
								   cudaMemcpyDeviceToDevice, s->gpu->stream));
		}
	}
	return gk_gpu_reduce(s, p->k, err);
}

/* Delta keeps every point's label and the totals from step to step. */
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
	Pass		p = {k, regime_of(s, k), false};
	int64_t		rows = gk_gpu_slice_rows(s, k);

	if (s->fsum == GK_DELTA)
		GK_DO(delta_begin(s, k, err));
	else
		GK_TRY(cudaMemsetAsync(s->totals, 0, gk_gpu_values(s, k) * sizeof(gk_int128), s->gpu->stream));
	if (p.regime == GK_REGIME_SMALL)
	{
		if (rows > gk_gpu_small_rows(s, k))
			rows = gk_gpu_small_rows(s, k);
	}
	else
	{
		GK_DO(gk_gpu_pack(s, s->centroids, k, err));
		if (p.regime == GK_REGIME_MULTI)
		{
			int64_t		cached = (int64_t) s->gpu->l2 / 3 / (s->cols * (int64_t) sizeof(float));

			rows = gk_gpu_sum_rows(s, k);
			if (s->blocked && rows > cached)
				rows = cached < s->gpu->sms * 256 ? s->gpu->sms * 256 : cached;
		}
	}
	GK_DO(gk_gpu_each(s, rows, pass_slice, &p, err));
	if (p.last)
		GK_DO(gk_gpu_reduce_last(s, k, err));
	return GK_OK;
}

/* ---- the chain ---- */

static char *
unit_at(const GkSession *s, char *base, int unit)
{
	return base + (size_t) unit * s->unit_bytes;
}

void
gk_gpu_step_stop(GkSession *s)
{
	s->chain_k = 0;
	s->units = 0;
	s->unit_entry = 0;
}

/* Estimated time of one iteration over resident points. */
static double
iteration_ms(const GkSession *s, int k)
{
	double		bytes = (double) s->n * s->cols * 4 / 4e9;
	double		flops = (double) s->n * s->d * k * 3 / (s->gpu->sms * 128 * 1.5e6);

	return 0.004 + (bytes > flops ? bytes : flops);
}

/* Launch one more unit of the chain; a rehearsal's centroids are none. */
static GkStatus
chain_launch(GkSession *s, bool rehearsal, GkError *err)
{
	int			slot = (s->unit_first + s->units) % GK_GPU_UNITS;
	char	   *unit = unit_at(s, s->log, slot);
	int			k = s->chain_k;
	int			iters = s->chain_iters < s->chain_left ? s->chain_iters : s->chain_left;
	bool		boxes = false;

	if (!rehearsal)
		GK_DO(gk_gpu_filter_ready(s, k, &boxes, err));
	if (boxes)
	{
		iters = 1;
		GK_DO(gk_gpu_filter_pass(s, k, err));
		GK_DO(gk_gpu_update(s, k, unit, err));
		GK_DO(gk_gpu_filter_log(s, (GkLogHead *) unit, err));
	}
	else if (regime_of(s, k) == GK_REGIME_SMALL && s->n <= gk_gpu_small_rows(s, k) && s->resident == s->n)
		GK_DO(gk_gpu_small_run(s, k, iters, unit, err));
	else
	{
		iters = 1;
		GK_DO(pass(s, k, err));
		GK_DO(gk_gpu_update(s, k, unit, err));
	}
	GK_TRY(cudaMemcpyAsync(unit_at(s, s->log_host, slot), unit, 64 + iters * s->entry_bytes,
						   cudaMemcpyDeviceToHost, s->gpu->stream));
	GK_TRY(cudaEventRecord(s->gpu->unit_done[slot], s->gpu->stream));
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
		ms <= AHEAD_MS && s->resident == s->n;

	/* What is left of an old chain uses the buffers: tell it to stop, wait. */
	if (s->units > 0)
		GK_TRY(cudaMemsetAsync(s->done, 1, sizeof(int), s->gpu->copy));
	GK_TRY(cudaEventRecord(s->gpu->pace[1], s->gpu->copy));
	GK_TRY(cudaStreamWaitEvent(s->gpu->stream, s->gpu->pace[1], 0));
	GK_DO(gk_gpu_drain(s, err));
	gk_gpu_step_stop(s);
	GK_TRY(cudaMemcpyAsync(s->centroids, centroids, (size_t) k * s->d * sizeof(float),
						   cudaMemcpyHostToDevice, s->gpu->stream));
	GK_TRY(cudaMemsetAsync(s->done, 0, sizeof(int), s->gpu->stream));
	s->chain_k = k;
	s->unit_first = 0;
	s->chain_left = ahead && s->problem.max_iter > 1 ? s->problem.max_iter : 1;
	s->chain_iters = (int) (UNIT_MS / ms);
	if (s->chain_iters > s->entries)
		s->chain_iters = s->entries;
	if (s->chain_iters < 1)
		s->chain_iters = 1;
	return chain_launch(s, false, err);
}

/*
 * A kernel is loaded when it is launched for the first time, which takes
 * milliseconds: better here than in the first iteration.  These find that they are
 * done already.
 */
GkStatus
gk_gpu_step_rehearse(GkSession *s, int k, GkError *err)
{
	GkRegime	regime = regime_of(s, k);

	if ((regime != GK_REGIME_SMALL && regime != GK_REGIME_FUSED) || s->resident < s->n || s->fsum == GK_DELTA)
		return GK_OK;
	GK_TRY(cudaMemsetAsync(s->done, 1, sizeof(int), s->gpu->stream));
	s->chain_k = k;
	s->chain_iters = s->chain_left = 1;
	s->unit_first = 0;
	GK_DO(chain_launch(s, true, err));
	GK_DO(gk_gpu_drain(s, err));
	gk_gpu_step_stop(s);
	return GK_OK;
}

/* The next entry of the log if it is for these centroids, else NULL. */
static GkStatus
chain_next(GkSession *s, const float *centroids, int k, const gk_int128 **entry, GkError *err)
{
	*entry = NULL;
	if (s->chain_k != k)
		return GK_OK;
	while (s->units > 0)
	{
		char	   *unit = unit_at(s, s->log_host, s->unit_first);
		const GkLogHead *head = (const GkLogHead *) unit;
		const gk_int128 *log;

		GK_DO(gk_gpu_wait(s, s->gpu->unit_done[s->unit_first], err));
		gk_gpu_filter_judge(s, k, head->work);
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
		log = (const gk_int128 *) (unit + 64 + s->unit_entry * s->entry_bytes);
		if (memcmp(log + gk_gpu_values(s, k), centroids, (size_t) k * s->d * sizeof(float)) == 0)
		{
			*entry = log;
			s->unit_entry++;
		}
		return GK_OK;
	}
	return GK_OK;
}

/* Sums as the host wants them. */
static void
unpack(const GkSession *s, const gk_int128 *totals, int k, GkStep *out)
{
	size_t		sums = (size_t) k * s->d;

	memcpy(out->sum, totals, sums * sizeof(gk_int128));
	memcpy(out->mass, totals + sums, k * sizeof(gk_int128));
	for (int i = 0; i < k; i++)
		out->count[i] = (int64_t) totals[sums + (s->pts->weighted ? k : 0) + i];
}

GkStatus
gk_gpu_step(GkSession *s, const float *centroids, int k, GkStep *out, GkError *err)
{
	const gk_int128 *entry;

	GK_DO(gk_gpu_room(s, k, err));
	if (s->regime == GK_REGIME_CROSS)
		return gk_gpu_paper_hybrid(s, centroids, k, out, err);
	GK_DO(chain_next(s, centroids, k, &entry, err));
	if (entry == NULL)
	{
		GK_DO(chain_start(s, centroids, k, err));
		GK_DO(chain_next(s, centroids, k, &entry, err));
		if (entry == NULL)
			return gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's log does not start with what it was given");
	}
	/* Keep two units under way while the host looks at this one. */
	while (s->units < 3 && s->chain_left > 0)
		GK_DO(chain_launch(s, false, err));
	unpack(s, entry, k, out);
	return GK_OK;
}
