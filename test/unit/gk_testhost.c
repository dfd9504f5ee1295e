#define _GNU_SOURCE				/* memfd_create */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/store/gk_batch.h"
#include "core/store/gk_points.h"
#include "core/gk_numerics.h"
#include "gk_testhost.h"

static void *
host_alloc(void *ctx, size_t bytes)
{
	TestHost   *t = ctx;
	void	   *p;

	if (++t->allocs == t->fail_at)
		return NULL;
	p = malloc(bytes);
	if (p != NULL)
	{
		memset(p, 0xA5, bytes < 4096 ? bytes : 4096);	/* nothing may rely on zeros */
		t->live++;
	}
	return p;
}

static void
host_free(void *ctx, void *p)
{
	TestHost   *t = ctx;

	t->live--;
	free(p);
}

static bool
host_poll(void *ctx)
{
	TestHost   *t = ctx;

	if (++t->polls == t->stop_at)
		__atomic_store_n(&t->stopped, 1, __ATOMIC_RELAXED);
	return t->stopped;
}

static bool
host_stop(void *ctx)
{
	return __atomic_load_n(&((TestHost *) ctx)->stopped, __ATOMIC_RELAXED);
}

static bool
host_spill_write(void *ctx, int64_t offset, const void *data, size_t bytes)
{
	TestHost   *t = ctx;

	if (++t->spill_calls == t->spill_fail_at)
		return false;
	if (t->spill < 0)
		t->spill = memfd_create("spill", 0);
	return pwrite(t->spill, data, bytes, offset) == (ssize_t) bytes;
}

static int
host_spill_fd(void *ctx)
{
	TestHost   *t = ctx;

	return ++t->spill_calls == t->spill_fail_at ? -1 : t->spill;
}

void
test_host_init(TestHost *t, int threads)
{
	memset(t, 0, sizeof(*t));
	t->host.ctx = t;
	t->host.alloc = host_alloc;
	t->host.free = host_free;
	t->host.poll = host_poll;
	t->host.stop = host_stop;
	t->host.spill_write = host_spill_write;
	t->host.spill_fd = host_spill_fd;
	t->spill = -1;
	t->host.threads = threads;
}

void
test_host_end(TestHost *t)
{
	if (t->spill >= 0)
		close(t->spill);
	t->spill = -1;
}

GkStatus
fill_store(GkStore *s, const double *x, const double *w, int64_t n, int d, const int *order, GkError *err)
{
	GkBatch    *b = gk_store_batch(s);
	GkStatus	st = GK_OK;

	for (int64_t i = 0; st == GK_OK && i < n; i++)
	{
		int64_t		row = order ? order[i] : i;

		for (int j = 0; j < d; j++)
			if (isnan(x[row * d + j]))
				gk_batch_miss(b, j);
			else
				gk_batch_put(b, j, x[row * d + j]);
		if (w != NULL)
			gk_batch_put(b, d, w[row]);
		if (gk_store_points(s)->naux > 0)
			gk_batch_aux(b, 0)[b->rows] = (uint32_t) row;
		if (++b->rows == b->capacity || i == n - 1)
			st = gk_store_commit(s, err);
	}
	return st;
}

GkStore *
load_store(TestHost *t, const double *x, const double *w, int64_t n, int d,
		   const int *order, size_t chunk_bytes, size_t limit, GkError *err)
{
	GkStore    *s;

	if (gk_store_create(&t->host, d, w != NULL, 1, chunk_bytes, limit, &s, err) != GK_OK)
		return NULL;
	if (fill_store(s, x, w, n, d, order, err) == GK_OK)
		return s;
	gk_store_free(s);
	return NULL;
}

static bool
collect(void *ctx, int rows, const int32_t *label, const float *d2, const uint32_t *const *aux)
{
	Labels	   *l = ctx;

	for (int i = 0; i < rows; i++)
	{
		l->label[aux[0][i]] = label[i];
		l->d2[aux[0][i]] = d2[i];
		l->seen++;
	}
	return true;
}

GkLabelSink
test_sink(Labels *l)
{
	GkLabelSink s = {l, collect, NULL};

	return s;
}

double
test_uniform(uint64_t *state)
{
	return gk_uniform(gk_mix(*state += UINT64_C(0x9e3779b97f4a7c15)));
}

double
test_normal(uint64_t *state)
{
	double		u = test_uniform(state);

	return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * test_uniform(state));
}

int
test_pick(uint64_t *state, int lo, int hi)
{
	return lo + (int) (test_uniform(state) * (hi - lo + 1));
}

static double
value(uint64_t *state, TestKind kind, int row)
{
	switch (kind)
	{
		case TEST_LATTICE:
			return test_pick(state, 0, 3);
		case TEST_DUPLICATES:
			return row % 9 * 5.0;
		case TEST_UNIFORM:
			return test_uniform(state);
		case TEST_IN_ORDER:
			return row + test_uniform(state);
		default:
			return row % 6 * (kind == TEST_FAR_APART ? 1e12 : 6.0) + test_normal(state);
	}
}

double *
random_points(uint64_t *state, TestKind kind, int n, int d)
{
	double	   *x = malloc(sizeof(double) * n * d);

	for (int i = 0; i < n; i++)
		for (int j = 0; j < d; j++)
			x[(size_t) i * d + j] = value(state, kind, i);
	for (int i = 0; kind == TEST_OUTLIERS && i < n; i += 97)
		x[(size_t) i * d] *= i % 2 ? 1e9 : 1e-18;
	return x;
}

double *
random_weights(uint64_t *state, int n)
{
	double	   *w = malloc(sizeof(double) * n);

	for (int i = 0; i < n; i++)
		w[i] = pow(10.0, 6 * test_uniform(state) - 3);
	return w;
}

GkStep
new_step(int k, int d)
{
	return (GkStep) {.sum = malloc(sizeof(gk_int128) * k * d),.mass = malloc(sizeof(gk_int128) * k),.count = malloc(sizeof(int64_t) * k),
		.unchanged = malloc(k)};
}

void
free_step(GkStep *step)
{
	free(step->sum);
	free(step->mass);
	free(step->count);
	free(step->unchanged);
}
