/*
 * gpu_harness.c - see gpu_harness.h.  Compiled with OpenMP and -ffp-contract=off.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_harness.h"

double
harness_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* ---- the host and the core's function table ---- */

static bool
host_poll(void *ctx)
{
	GkStore    *s = ctx;

	return s->poll_after >= 0 && s->poll_after-- <= 0;
}

static const GkPoints *
core_points(GkStore *store)
{
	return &store->pts;
}

static GkStatus
core_open(GkStore *store, int index, int read, GkChunk *view, GkError *err)
{
	(void) read;
	(void) err;
	*view = store->pts.chunks[index];
	return GK_OK;
}

static GkStatus
core_close(GkStore *store, int index, GkChunk *view, bool dirty, GkError *err)
{
	(void) store;
	(void) index;
	(void) view;
	(void) dirty;
	(void) err;
	return GK_OK;
}

static void *
core_alloc(const GkHost *host, size_t count, size_t size)
{
	void	   *p = NULL;

	(void) host;
	return posix_memalign(&p, 64, count * size + 64) == 0 ? p : NULL;
}

static void
core_free(const GkHost *host, void *ptr)
{
	(void) host;
	free(ptr);
}

static bool
core_parallel(const GkHost *host, int64_t jobs, GkJob fn, void *arg)
{
	(void) host;
#pragma omp parallel for schedule(dynamic, 1)
	for (int64_t i = 0; i < jobs; i++)
		fn(arg, i, omp_get_thread_num());
	return true;
}

static int
core_threads(const GkHost *host)
{
	(void) host;
	return omp_get_max_threads();
}

const GkCore harness_core = {
	.points = core_points,
	.chunk_open = core_open,
	.chunk_close = core_close,
	.alloc = core_alloc,
	.free = core_free,
	.parallel_for = core_parallel,
	.parallel_for_long = core_parallel,
	.threads = core_threads,
};

const GkBackend *
harness_load(const char *path, char *reason, size_t len)
{
	void	   *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void	   *symbol = lib ? dlsym(lib, GK_GPU_SYMBOL) : NULL;
	GkBackendInit init;
	const GkBackend *b;

	memcpy(&init, &symbol, sizeof(init));
	if (init == NULL)
	{
		snprintf(reason, len, "%s", dlerror());
		return NULL;
	}
	b = init();
	if (b->api_version != GK_BACKEND_API || b->struct_size != sizeof(GkBackend))
	{
		snprintf(reason, len, "another version");
		return NULL;
	}
	return b;
}

/* ---- points ---- */

static double
normal(uint64_t h)
{
	double		r = sqrt(2.0 * gk_neg_log(gk_uniform(h)));

	return r * cos(6.283185307179586 * gk_uniform(gk_mix(h ^ 0x5bd1e995)));
}

/* Lutz et al.'s data: centres uniform in [-100, 100]^d, points normal around one. */
static double
blob(const Shape *sh, uint64_t seed, int64_t id, int j)
{
	uint64_t	hr = gk_hash(seed, id);
	int			centres = sh->centres ? sh->centres : 10;
	double		centre = (gk_uniform(gk_hash(seed + hr % centres * 7919, j)) - 0.5) * 200.0;

	return (centre + 10.0 * normal(gk_mix(hr + (uint64_t) j * 1000003u + 1))) / (1 << (j % 3));
}

static double
coordinate(const Shape *sh, uint64_t seed, int64_t id, int j)
{
	uint64_t	h = gk_hash(seed + 31, id);
	double		t;

	if (sh->point != NULL)
		return sh->point(id, j);
	switch (sh->kind)
	{
		case INTEGERS:
			return (double) (gk_mix(h + (uint64_t) j * 1000003u) % 3);
		case RIVALS:
			if (id < sh->k)
				return blob(sh, seed, id, j);
			/* Off the middle by 2^-8 to 2^-23 of the way. */
			t = 0.5 + (h & 1 ? 1.0 : -1.0) * gk_pow2(-8 - (int) (h >> 1 & 15));
			return (1.0 - t) * blob(sh, seed, (int64_t) (h >> 8 & 0xffffff) % sh->k, j) +
				t * blob(sh, seed, (int64_t) (h >> 32 & 0xffffff) % sh->k, j);
		case SPECTRUM:
			return normal(gk_mix(gk_hash(seed, id) + (uint64_t) j * 1000003u + 1)) * 20.0 / sqrt(j + 1.0);
		case OUTLIER:
			return id == sh->n / 2 ? 60.0 : blob(sh, seed, id, j) * 1e-6;
		case CONSTANT:
			return j % 2 ? 0.0 : blob(sh, seed, id, j);
		default:
			return blob(sh, seed, id, j);
	}
}

GkStore *
harness_store(const Shape *sh, uint64_t seed)
{
	GkStore    *s = calloc(1, sizeof(*s));
	GkPoints   *p = &s->pts;
	int			cols = sh->d + (sh->weighted ? 1 : 0);
	int64_t		rows = sh->chunk_rows ? sh->chunk_rows : (16 << 20) / (cols * 4) / 64 * 64;
	double		box = 0.0;

	s->poll_after = -1;
	s->host.ctx = s;
	s->host.poll = host_poll;
	p->n = sh->n;
	p->d = sh->d;
	p->weighted = sh->weighted;
	p->resident = true;
	p->prep.d = sh->d;
	p->prep.center = calloc(sh->d, sizeof(double));
	p->prep.scale = calloc(sh->d, sizeof(double));
	p->prep.expo = calloc(sh->d, sizeof(int32_t));
	p->total_sum = calloc(sh->d, sizeof(gk_int128));
	for (int j = 0; j < sh->d; j++)
	{
		/* Columns of different reach, centre and scale. */
		p->prep.expo[j] = 8 - j % 3 + sh->expo;
		p->prep.center[j] = j * 0.37;
		p->prep.scale[j] = j % 2 ? 1.0 : 4.0;
		box += ldexp(1.0, 2 * (p->prep.expo[j] + 1));
	}
	frexp(box, &p->d2_expo);
	rows = rows < 64 ? 64 : rows;
	p->nchunks = (int) ((sh->n + rows - 1) / rows);
	p->chunks = calloc(p->nchunks, sizeof(GkChunk));
	for (int c = 0; c < p->nchunks; c++)
	{
		GkChunk    *ch = &p->chunks[c];

		ch->first = c * rows;
		ch->rows = (int) (sh->n - ch->first < rows ? sh->n - ch->first : rows);
		ch->stride = (ch->rows + GK_ROW_PAD - 1) / GK_ROW_PAD * GK_ROW_PAD;
		ch->data = core_alloc(NULL, (size_t) ch->stride * cols, sizeof(float));
	}
#pragma omp parallel for schedule(dynamic, 1)
	for (int64_t job = 0; job < (int64_t) p->nchunks * cols; job++)
	{
		GkChunk    *ch = &p->chunks[job / cols];
		int			j = (int) (job % cols);
		float	   *x = ch->data + (size_t) j * ch->stride;
		int			expo = j < sh->d ? p->prep.expo[j] : 0;
		double		magic = gk_grid_magic(expo);
		double		inv = gk_pow2(40 - expo);
		gk_int128	total = 0;

		memset(x, 0, ch->stride * sizeof(float));
		for (int i = 0; i < ch->rows; i++)
		{
			/* Without `distinct` every 16th row repeats an earlier one. */
			int64_t		id = ch->first + i;

			if (!sh->distinct && id % 16 == 15)
				id -= id % 256;
			if (j == sh->d)
				x[i] = fmaxf(gk_to_grid(gk_uniform(gk_mix(gk_hash(seed, id) + 7)), magic), 0x1p-40f);
			else
			{
				double		v = coordinate(sh, seed, id, j) * gk_pow2(sh->expo);
				double		top = gk_pow2(expo);

				v = v > top ? top : v < -top ? -top : v;
				x[i] = gk_to_grid(v, magic);
			}
			total += gk_fixed(x[i], inv);
		}
#pragma omp critical
		if (j < sh->d)
			p->total_sum[j] += total;
		else
			p->total_mass += total;
	}
	if (!sh->weighted)
		p->total_mass = sh->n;
	return s;
}

void
harness_store_free(GkStore *s)
{
	for (int c = 0; c < s->pts.nchunks; c++)
		free(s->pts.chunks[c].data);
	free(s->pts.chunks);
	free(s->pts.prep.center);
	free(s->pts.prep.scale);
	free(s->pts.prep.expo);
	free(s->pts.total_sum);
	free(s);
}

const float *
harness_row(const GkStore *s, int64_t row, size_t *stride, float *weight)
{
	const GkPoints *p = &s->pts;
	int			c = (int) (row / p->chunks[0].rows);
	const GkChunk *ch = &p->chunks[c];

	*stride = ch->stride;
	*weight = p->weighted ? ch->data[(size_t) p->d * ch->stride + (row - ch->first)] : 1.0f;
	return ch->data + (row - ch->first);
}

void
harness_point(const GkStore *s, int64_t row, float *out)
{
	size_t		st;
	float		w;
	const float *x = harness_row(s, row, &st, &w);

	for (int j = 0; j < s->pts.d; j++)
		out[j] = x[j * st];
}

void
harness_centroids(const GkStore *s, int k, uint64_t seed, float *out)
{
	for (int i = 0; i < k; i++)
		harness_point(s, (int64_t) (gk_hash(seed, i) % (uint64_t) s->pts.n), out + (size_t) i * s->pts.d);
}

/* ---- steps ---- */

GkStep
harness_step_alloc(int k, int d)
{
	GkStep		s = {NULL};

	s.sum = calloc((size_t) k * d, sizeof(gk_int128));
	s.mass = calloc(k, sizeof(gk_int128));
	s.count = calloc(k, sizeof(int64_t));
	return s;
}

void
harness_step_free(GkStep *s)
{
	free(s->sum);
	free(s->mass);
	free(s->count);
}

bool
harness_step_equal(const GkStep *a, const GkStep *b, int k, int d)
{
	return memcmp(a->sum, b->sum, (size_t) k * d * sizeof(gk_int128)) == 0 &&
		memcmp(a->mass, b->mass, k * sizeof(gk_int128)) == 0 &&
		memcmp(a->count, b->count, k * sizeof(int64_t)) == 0;
}

/* ---- the oracle ---- */

void
oracle_step(const GkStore *s, const float *c, int k, GkStep *out, int32_t *labels, float *d2out)
{
	const GkPoints *p = &s->pts;
	int			d = p->d;

	memset(out->sum, 0, (size_t) k * d * sizeof(gk_int128));
	memset(out->mass, 0, k * sizeof(gk_int128));
	memset(out->count, 0, k * sizeof(int64_t));
#pragma omp parallel
	{
		GkStep		mine = harness_step_alloc(k, d);
		double	   *inv = malloc(d * sizeof(double));

		for (int j = 0; j < d; j++)
			inv[j] = gk_pow2(40 - p->prep.expo[j]);
#pragma omp for schedule(dynamic, 256)
		for (int64_t r = 0; r < p->n; r++)
		{
			size_t		st;
			float		w;
			const float *x = harness_row(s, r, &st, &w);
			float		best = 0.0f;
			int			label = 0;

			for (int i = 0; i < k; i++)
			{
				float		v = gk_d2(x, st, c + (size_t) i * d, d);

				if (i == 0 || v < best)
				{
					best = v;
					label = i;
				}
			}
			labels[r] = label;
			d2out[r] = best;
			mine.count[label]++;
			if (p->weighted)
			{
				int64_t		wi = gk_fixed(w, 0x1p40);

				mine.mass[label] += wi;
				for (int j = 0; j < d; j++)
					mine.sum[(size_t) label * d + j] += (gk_int128) wi * gk_fixed(x[j * st], inv[j]);
			}
			else
			{
				mine.mass[label]++;
				for (int j = 0; j < d; j++)
					mine.sum[(size_t) label * d + j] += gk_fixed(x[j * st], inv[j]);
			}
		}
#pragma omp critical
		{
			for (size_t v = 0; v < (size_t) k * d; v++)
				out->sum[v] += mine.sum[v];
			for (int i = 0; i < k; i++)
			{
				out->mass[i] += mine.mass[i];
				out->count[i] += mine.count[i];
			}
		}
		harness_step_free(&mine);
		free(inv);
	}
}

void
oracle_stats(const GkStore *s, int k, const int32_t *labels, const float *d2, GkFinish *out)
{
	double		scale = gk_pow2(40 - s->pts.d2_expo);

	memset(out->count, 0, k * sizeof(int64_t));
	memset(out->inertia, 0, k * sizeof(gk_int128));
	memset(out->max_d2, 0, k * sizeof(float));
	for (int64_t r = 0; r < s->pts.n; r++)
	{
		size_t		st;
		float		w;

		harness_row(s, r, &st, &w);
		out->count[labels[r]]++;
		out->inertia[labels[r]] += gk_d2_fixed((double) w * (double) d2[r], scale);
		if (d2[r] > out->max_d2[labels[r]])
			out->max_d2[labels[r]] = d2[r];
	}
}

double
oracle_update(const GkStore *s, const GkStep *step, int k, float *c, double *moved, double *explained)
{
	const GkPrep *p = &s->pts.prep;
	double		shift = 0.0;
	double	   *each = malloc(k * sizeof(double));

	/* (In benchmarks the host must not be what takes the time.) */
#pragma omp parallel for schedule(static) if ((size_t) k * p->d > 100000)
	for (int i = 0; i < k; i++)
	{
		double		far = 0.0;
		double		taken = 0.0;

		for (int j = 0; step->count[i] > 0 && j < p->d; j++)
		{
			size_t		at = (size_t) i * p->d + j;
			double		sum = gk_i128_to_double(step->sum[at]);
			double		mass = gk_i128_to_double(step->mass[i]);
			GkFeaturePrep prep = gk_feature_prep(p->center, p->scale, p->expo, j);
			double		mean;

			taken += gk_explained_feature(sum, mass, s->pts.weighted, prep, c[at]);
			far += gk_update_feature(sum / mass, prep, c[at], &mean, &c[at]);
		}
		each[i] = far;
		if (explained != NULL)
			explained[i] = taken;
	}
	for (int i = 0; i < k; i++)
		shift += each[i];
	if (moved != NULL)
		memcpy(moved, each, k * sizeof(double));
	free(each);
	return shift;
}

/* ---- iterations ---- */

Iterations
harness_iterations(const GkBackend *backend, GkSession *session, const GkStore *store, int k, float *c)
{
	return (Iterations) {backend, session, store, k, c, true, harness_step_alloc(k, store->pts.d),
		calloc(k, sizeof(double)), calloc(k, sizeof(double))};
}

void
harness_iterations_free(Iterations *it)
{
	harness_step_free(&it->step);
	free(it->moved);
	free(it->explained);
}

GkStatus
harness_recall(Iterations *it, GkError *err)
{
	bool		kept = true;
	GkStatus	st = it->here ? GK_OK : it->backend->recall(it->session, it->k, it->c, &it->step, &kept, err);

	if (st == GK_OK && !it->here)
		oracle_update(it->store, &it->step, it->k, it->c, it->moved, it->explained);
	it->here = st == GK_OK;
	return st;
}

GkStatus
harness_iterate(Iterations *it, GkError *err)
{
	GkAdvance	a = {.count = it->step.count,.moved = it->moved,.explained = it->explained};
	GkStatus	st = it->backend->advance(it->session, it->here ? it->c : NULL, it->k, &a, err);

	if (st == GK_OK && !a.done && !it->here)
	{
		st = harness_recall(it, err);
		return st == GK_OK ? harness_iterate(it, err) : st;
	}
	it->here = st == GK_OK && !a.done;
	if (it->here)
		st = it->backend->step(it->session, it->c, it->k, &it->step, err);
	if (it->here && st == GK_OK)
		oracle_update(it->store, &it->step, it->k, it->c, it->moved, it->explained);
	return st;
}

double
harness_shift(const Iterations *it)
{
	double		shift = 0.0;

	for (int i = 0; i < it->k; i++)
		shift += it->moved[i];
	return shift;
}

gk_int128
oracle_seed_update(const GkStore *s, const float *c, int m, float *mind2)
{
	gk_int128	phi = 0;
	double		scale = gk_pow2(40 - s->pts.d2_expo);

	for (int64_t r = 0; r < s->pts.n; r++)
	{
		size_t		st;
		float		w;
		const float *x = harness_row(s, r, &st, &w);

		for (int i = 0; i < m; i++)
			mind2[r] = fminf(mind2[r], gk_d2(x, st, c + (size_t) i * s->pts.d, s->pts.d));
		phi += gk_d2_fixed((double) w * (double) mind2[r], scale);
	}
	return phi;
}

gk_int128
oracle_seed_eval(const GkStore *s, const float *c, const float *mind2)
{
	gk_int128	pot = 0;
	double		scale = gk_pow2(40 - s->pts.d2_expo);

	for (int64_t r = 0; r < s->pts.n; r++)
	{
		size_t		st;
		float		w;
		const float *x = harness_row(s, r, &st, &w);

		pot += gk_d2_fixed((double) w * (double) fminf(mind2[r], gk_d2(x, st, c, s->pts.d)), scale);
	}
	return pot;
}

static int
by_key(const void *va, const void *vb)
{
	const GkPick *a = va;
	const GkPick *b = vb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

int
oracle_race(const GkStore *s, uint64_t key, const float *mind2, int want, GkPick *out)
{
	GkPick	   *all = malloc(s->pts.n * sizeof(GkPick));
	int64_t		m = 0;

	for (int64_t r = 0; r < s->pts.n; r++)
	{
		size_t		st;
		float		w;
		double		weight;

		harness_row(s, r, &st, &w);
		weight = w;
		if (mind2 != NULL)
		{
			if (mind2[r] == 0.0f)
				continue;
			weight *= (double) mind2[r];
		}
		all[m].key = gk_race_key(gk_hash(key, r), weight);
		all[m++].row = r;
	}
	qsort(all, m, sizeof(GkPick), by_key);
	if (m > want)
		m = want;
	memcpy(out, all, m * sizeof(GkPick));
	free(all);
	return (int) m;
}

int64_t
oracle_far(const GkStore *s, const float *mind2)
{
	int64_t		best = -1;

	for (int64_t r = 0; r < s->pts.n; r++)
	{
		int			cmp = 0;
		size_t		sa,
					sb;
		float		w;

		if (mind2[r] <= 0.0f || (best >= 0 && mind2[r] < mind2[best]))
			continue;
		if (best >= 0 && mind2[r] == mind2[best])
		{
			const float *a = harness_row(s, r, &sa, &w);
			const float *b = harness_row(s, best, &sb, &w);

			for (int j = 0; j < s->pts.d && cmp == 0; j++)
				cmp = a[j * sa] < b[j * sb] ? -1 : a[j * sa] > b[j * sb];
			if (cmp >= 0)
				continue;
		}
		best = r;
	}
	return best;
}
