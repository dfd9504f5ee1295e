/*
 * Fits and measures of quality of rows that are not kept here: in any number of parts, on some servers that keep them
 * or read them again, the bits of the same rows in one store; failures at every allocation leave nothing behind.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gk_backend.h"
#include "core/rescan/gk_rows_quality.h"
#include "gk_test.h"
#include "gk_testfit.h"

#define MOST_PARTS	9
#define SERVERS		2

/* Parts, every other one on the other server, that answer passes, and stay there from one to the next if they may. */
typedef struct Parts
{
	TestHost   *host;
	const double *x;
	const double *w;
	int			n;
	int			d;
	int			parts;
	size_t		chunk;
	bool		keeps;
	/* As a server has them: of prepared and of raw rows. */
	GkKeptRows	kept[2][SERVERS];
	bool		made[2][SERVERS];
	bool		stays[2][MOST_PARTS];
	int			stayed;
	int			reads;
} Parts;

static GkStatus
read_part(Parts *p, GkPassAnswerer *answerer, int first, int end, GkError *err)
{
	GkStore    *s = NULL;
	int		   *order = malloc(sizeof(int) * (p->n + 1));
	GkStatus	st = gk_store_create(&p->host->host, p->d, p->w != NULL, 1, 1 << 20, SIZE_MAX, &s, err);

	for (int i = 0; i < p->n; i++)
		order[i] = first + i;
	if (st == GK_OK)
	{
		gk_store_pass_on(s, gk_pass_answer_take, answerer);
		st = fill_store(s, p->x, p->w, end - first, p->d, order, err);
	}
	gk_store_free(s);
	free(order);
	p->reads++;
	return st;
}

/* Of a part. */
static int
first_row(const Parts *p, int number)
{
	return (int) ((int64_t) p->n * number / p->parts);
}

static GkStatus
ask_server(Parts *p, const GkPass *pass, int server, GkPassResult *out, GkError *err)
{
	GkKeptRows *kept = p->keeps && gk_pass_may_keep(pass) ? &p->kept[pass->raw][server] : NULL;
	bool	   *made = &p->made[pass->raw][server];
	const GkBackend *device = &gk_cpu_backend;
	GkPassAnswerer *answerer;
	GkStatus	st = gk_pass_answer_open(&p->host->host, pass, &device, p->chunk, NULL, NULL, &answerer, err);

	if (st != GK_OK)
		return st;
	if (kept != NULL && *made)
		st = gk_pass_answer_again(answerer, kept, err);
	for (int i = server; st == GK_OK && i < p->parts; i += SERVERS)
	{
		bool	   *stays = &p->stays[pass->raw][i];

		if (kept != NULL && *made && *stays)
			continue;
		gk_pass_answer_begin(answerer, first_row(p, i), *made ? NULL : kept);
		st = read_part(p, answerer, first_row(p, i), first_row(p, i + 1), err);
		if (st == GK_OK)
			st = gk_pass_answer_flush(answerer, err);
		if (kept != NULL && !*made)
		{
			*stays = !kept->full;
			p->stayed += *stays;
		}
	}
	*made = *made || kept != NULL;
	if (st == GK_OK)
		st = gk_pass_answer_end(answerer, out, err);
	gk_pass_answer_free(answerer);
	return st;
}

static GkStatus
ask(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	Parts	   *p = ctx;
	GkStatus	st = gk_pass_result_init(&p->host->host, pass, pass->kind == GK_PASS_STATS ? 0 : p->d, out, err);

	(void) sink;
	for (int i = 0; st == GK_OK && i < SERVERS; i++)
	{
		GkPassResult some = {0};

		st = ask_server(p, pass, i, &some, err);
		if (st == GK_OK)
			st = gk_pass_add(&p->host->host, pass, out, &some, err);
		gk_pass_result_free(&p->host->host, &some);
	}
	return st;
}

static void
describe(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	(void) ctx;
	snprintf(device, device_len, "test");
	snprintf(strategy, strategy_len, "parts");
}

typedef struct Data
{
	int			n,
				d,
				k;
	double	   *x,
			   *w;
	GkDistance	distance;
	bool		standardize;
} Data;

static Data
make_data(uint64_t *rng, int number)
{
	Data		p = {.n = 30 + test_pick(rng, 0, 4000),.d = test_pick(rng, 1, 9),.k = test_pick(rng, 1, 8)};

	p.distance = number % 4 == 3 && p.d > 1 ? GK_COSINE : GK_EUCLIDEAN;
	p.standardize = number % 4 == 1;
	p.x = malloc(sizeof(double) * p.n * p.d);
	p.w = number % 3 == 0 ? malloc(sizeof(double) * p.n) : NULL;
	for (int i = 0; i < p.n; i++)
	{
		if (p.w != NULL)
			p.w[i] = 1.0 + i % 3;
		/* floats first, then some doubles */
		for (int j = 0; j < p.d; j++)
			p.x[i * p.d + j] = (1 + j) * ((i % 5) * 3.0 * (j % 2 ? 1 : -1)) + (i > p.n / 2 || j == 0 ? test_normal(rng) : i % 16 / 8.0);
	}
	return p;
}

static void
free_data(Data *p)
{
	free(p->x);
	free(p->w);
}

/* Fit, and measure in one store: of prepared rows, and of the rows as they are, with the rows of a sample. */
typedef struct Measured
{
	GkModel		model;
	GkMeasures	prepared;
	GkMeasures	raw;
	int64_t		got;
	double	   *x;
	int32_t    *label;
} Measured;

#define SAMPLE	200

static GkOptions
options(const Data *p)
{
	return (GkOptions) {.k = p->k,.n_init = 1,.max_iter = 3,.distance = p->distance,.standardize = p->standardize};
}

static void
measure_here(TestHost *host, const Data *p, Measured *m)
{
	GkOptions	o = options(p);
	Labels		labels = {.label = malloc(sizeof(int32_t) * p->n),.d2 = malloc(sizeof(float) * p->n)};
	GkLabelSink sink = test_sink(&labels);
	GkError		err;
	GkStore    *s = load_store(host, p->x, p->w, p->n, p->d, NULL, 1 << 20, 1 << 30, &err);

	memset(m, 0, sizeof(*m));
	m->x = malloc(sizeof(double) * SAMPLE * p->d);
	m->label = malloc(sizeof(int32_t) * SAMPLE);
	if (gk_store_prepare(s, p->distance, p->standardize, &err) != GK_OK ||
		gk_fit(s, &gk_cpu_backend, &o, &sink, &m->model, &err) != GK_OK ||
		gk_quality_labels(s, labels.label, m->model.k, SAMPLE, &m->prepared, &err) != GK_OK)
		abort();
	gk_store_free(s);
	s = load_store(host, p->x, p->w, p->n, p->d, NULL, 1 << 20, 1 << 30, &err);
	if (gk_quality_model(s, &m->model, SAMPLE, &m->raw, &err) != GK_OK ||
		gk_quality_rows(s, &m->model, SAMPLE, m->x, m->label, &m->got, &err) != GK_OK)
		abort();
	gk_store_free(s);
	free(labels.label);
	free(labels.d2);
}

static void
free_measured(TestHost *host, Measured *m)
{
	gk_model_free(&host->host, &m->model);
	free(m->x);
	free(m->label);
}

/* The same of parts; *reads: how often they were read, *stayed: how many stayed. */
static GkStatus
measure_parts(TestHost *host, const Data *p, const GkModel *model, int parts, size_t chunk, size_t limit, Measured *m,
			  int *reads, int *stayed, GkError *err)
{
	Parts		all = {.host = host,.x = p->x,.w = p->w,.n = p->n,.d = p->d,.parts = parts,.chunk = chunk,.keeps = limit > 0};
	GkRows		rows = {&all, ask, describe};
	GkOptions	o = options(p);
	GkStore    *s = NULL;
	GkStatus	st;

	for (int i = 0; i < SERVERS; i++)
		all.kept[0][i].limit = all.kept[1][i].limit = limit;
	st = gk_rows_open(&host->host, &rows, p->w != NULL, &s, err);
	if (st == GK_OK)
		st = gk_rows_quality(s, model, false, SAMPLE, &m->raw, err);
	if (st == GK_OK)
		st = gk_rows_sample(s, model, SAMPLE, m->x, m->label, &m->got, err);
	if (st == GK_OK)
		st = gk_store_prepare(s, p->distance, p->standardize, err);
	if (st == GK_OK)
		st = gk_rows_quality(s, model, true, SAMPLE, &m->prepared, err);
	if (st == GK_OK)
		st = gk_fit(s, &gk_rows_backend, &o, NULL, &m->model, err);
	gk_store_free(s);
	for (int i = 0; i < SERVERS; i++)
	{
		gk_kept_rows_free(&host->host, &all.kept[0][i]);
		gk_kept_rows_free(&host->host, &all.kept[1][i]);
	}
	*reads = all.reads;
	*stayed = all.stayed;
	return st;
}

static bool
same(const Measured *a, const Measured *b, int k, int d)
{
	return b->model.centroids != NULL && memcmp(a->model.centroids, b->model.centroids, sizeof(double) * k * d) == 0 &&
		memcmp(&a->raw, &b->raw, sizeof(GkMeasures)) == 0 && memcmp(&a->prepared, &b->prepared, sizeof(GkMeasures)) == 0 &&
		a->got == b->got && memcmp(a->x, b->x, sizeof(double) * a->got * d) == 0 &&
		memcmp(a->label, b->label, sizeof(int32_t) * a->got) == 0;
}

static void
test_same_bits(void)
{
	static const size_t limits[] = {0, 20000, SIZE_MAX};
	uint64_t	rng = 5;
	int			differ = 0;
	int			some = 0;
	int			more = 0;
	int			leaks = 0;
	int			tried = 0;

	for (int number = 0; number < 24; number++)
	{
		Data		p = make_data(&rng, number);
		TestHost	here;
		Measured	want;

		test_host_init(&here, 1);
		measure_here(&here, &p, &want);
		for (int i = 0; i < 3; i++)
		{
			TestHost	host;
			Measured	got = {.x = malloc(sizeof(double) * SAMPLE * p.d),.label = malloc(sizeof(int32_t) * SAMPLE)};
			int			parts = test_pick(&rng, 1, MOST_PARTS);
			int			reads = 0;
			int			stayed;
			GkError		err = {0};

			test_host_init(&host, test_pick(&rng, 1, 3));
			/* chunks of one batch, and of all rows */
			if (measure_parts(&host, &p, &want.model, parts, i == 1 ? 1000 : 1 << 20, limits[i], &got, &reads, &stayed, &err) != GK_OK)
				printf("# %s\n", err.message);
			differ += !same(&want, &got, p.k, p.d);
			gk_model_free(&host.host, &got.model);
			/* statistics, raw rows, moments, prepared rows: once each */
			some += stayed > 0 && stayed < 2 * parts;
			more += limits[i] == SIZE_MAX && reads > 4 * parts + (p.standardize ? parts : 0);
			leaks += host.live != 0;
			tried++;
			free(got.x);
			free(got.label);
			test_host_end(&host);
		}
		free_measured(&here, &want);
		test_host_end(&here);
		free_data(&p);
	}
	ok(differ == 0, "rows in parts, read again or kept: %d of %d differ from those in one store", differ, tried);
	ok(some > 5, "and where only some of them have room (%d times)", some);
	ok(more == 0, "parts that keep their rows are read once for each way of looking at them (%d more often)", more);
	ok(leaks == 0, "all memory was given back");
}

static void
test_failures(void)
{
	uint64_t	rng = 9;
	Data		p = make_data(&rng, 1);
	TestHost	here;
	Measured	want;
	int			failed = 0;
	int			wrong = 0;

	p.n = 300;
	test_host_init(&here, 1);
	measure_here(&here, &p, &want);
	for (int at = 1; at < 400; at++)
	{
		Measured	got = {.x = malloc(sizeof(double) * SAMPLE * p.d),.label = malloc(sizeof(int32_t) * SAMPLE)};
		TestHost	host;
		GkStatus	st;
		GkError		err;
		int			reads;
		int			stayed;

		test_host_init(&host, 1);
		host.fail_at = at;
		st = measure_parts(&host, &p, &want.model, 4, 1000, at % 2 ? SIZE_MAX : 0, &got, &reads, &stayed, &err);
		gk_model_free(&host.host, &got.model);
		failed += st == GK_ERR_MEMORY;
		wrong += (st != GK_OK && st != GK_ERR_MEMORY) || host.live != 0;
		free(got.x);
		free(got.label);
		test_host_end(&host);
	}
	ok(failed > 100 && wrong == 0, "%d failed allocations leave nothing behind", failed);
	free_measured(&here, &want);
	test_host_end(&here);
	free_data(&p);
}

int
main(void)
{
	test_same_bits();
	test_failures();
	return done_testing();
}
