/*
 * A device that is opened beside the reading of rows: the thread (gk_beside.c), and the rows that
 * wait for the device in chunks and then go up (gk_ingest.c), whenever it is open: each row once,
 * in order, to the bit; after a failure the store has all of them.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/gk_beside.h"
#include "core/store/gk_store.h"
#include "gk_test.h"
#include "gk_testhost.h"

/* ---- the thread ---- */

static int	gate;
static int	done;
static int	given_back;

static void
wait_for_gate(void)
{
	struct timespec nap = {0, 100000};

	while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	done++;
}

static void
count_done(void)
{
	done++;
}

static void
give_back(void)
{
	given_back++;
}

static bool
stop_now(void *ctx)
{
	(void) ctx;
	return true;
}

static void
test_thread(void)
{
	TestHost	t;
	GkHost		held = {.stop = stop_now};

	test_host_init(&t, 1);
	ok(!gk_beside_running() && gk_beside_wait(NULL) && !gk_beside_then(give_back), "without a task there is nothing to wait for");
	gk_beside_start(wait_for_gate);
	t.stop_at = 3;
	ok(gk_beside_running() && !gk_beside_wait(&t.host) && t.polls == 3, "a wait ends when the host asks to stop");
	ok(!gk_beside_wait(&held), "and when it shows that it was asked");
	ok(!gk_beside_wait_ms(5) && gk_beside_running(), "and when its time is over");
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	t.stop_at = 0;
	t.stopped = 0;
	ok(gk_beside_wait(&t.host) && !gk_beside_running() && done == 1, "the task goes on and ends");
	ok(!gk_beside_then(give_back) && given_back == 0, "after its end it takes no other one");
	for (int i = 0; i < 200; i++)
		gk_beside_start(count_done);
	ok(gk_beside_wait(NULL) && done == 201, "one task after the other");
	gate = 0;
	gk_beside_start(wait_for_gate);
	ok(gk_beside_then(give_back) && gk_beside_then(give_back) && given_back == 0, "a task that is at work takes one more");
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	ok(gk_beside_wait_ms(60000) && done == 202 && given_back == 1, "which it does once, at its end");
	test_host_end(&t);
}

/* ---- rows that wait ---- */

/* A device that only keeps the rows. */
struct GkSession
{
	GkProblem	problem;
	bool		wide;
	void	   *room;			/* [d][ROOM] */
	double	   *x;				/* [rows][d] */
	int64_t		rows;
};

#define ROOM	1000
/* The first rows come to a room that takes fewer than have a place. */
#define FEW		77

static long calls_left;			/* until a call fails; < 0: none does */
static GkSession *kept;			/* the one that is open */
static int64_t expected;

static GkStatus
call(GkError *err)
{
	if (calls_left < 0 || calls_left-- > 0)
		return GK_OK;
	return gk_fail(err, GK_ERR_DEVICE, "it fails");
}

static GkStatus
keep_open(const GkProblem *problem, int64_t rows, bool wide, GkSession **out, GkError *err)
{
	int			d = problem->core->points(problem->store)->d;
	GkStatus	st = call(err);

	*out = NULL;
	if (st != GK_OK)
		return st;
	*out = kept = calloc(1, sizeof(GkSession));
	kept->problem = *problem;
	kept->wide = wide;
	kept->room = malloc((size_t) d * ROOM * sizeof(double));
	expected = rows;
	return GK_OK;
}

static GkStatus
keep_room(GkSession *s, void **to, int *stride, int *rows, GkError *err)
{
	*to = s->room;
	*stride = ROOM;
	*rows = s->rows < FEW ? FEW : ROOM;
	return call(err);
}

static GkStatus
keep_send(GkSession *s, int rows, GkError *err)
{
	int			d = s->problem.core->points(s->problem.store)->d;
	GkStatus	st = call(err);

	if (st != GK_OK)
		return st;
	s->x = realloc(s->x, (size_t) (s->rows + rows) * d * sizeof(double));
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < d; j++)
			s->x[(s->rows + i) * d + j] = s->wide ? ((double *) s->room)[j * ROOM + i] : ((float *) s->room)[j * ROOM + i];
	s->rows += rows;
	return GK_OK;
}

static GkStatus
keep_prepare(GkSession *s, const GkPrep *prep, GkMoments *moments, GkError *err)
{
	int			d = s->problem.core->points(s->problem.store)->d;

	(void) prep;
	memset(moments, 0, d * sizeof(GkMoments));
	return call(err);
}

static void
keep_close(GkSession *s)
{
	if (s == NULL)
		return;
	free(s->room);
	free(s->x);
	free(s);
	kept = NULL;
}

static const GkIngestBackend keep_ingest = {keep_open, keep_room, keep_send, NULL, keep_prepare};
static const GkBackend keeper = {.name = "keeper",.close = keep_close,.ingest = &keep_ingest};

/* The device is open at the n-th question, or when it has to be. */
typedef struct Question
{
	GkStore    *store;
	bool		wide;
	int			at;
	int			asked;
	bool		forced;			/* by the memory limit, or because there are no more rows */
	GkStatus	status;			/* of gk_store_ingest(); -1: not called */
} Question;

static GkStatus
answer(void *arg, bool now, GkError *err)
{
	Question   *q = arg;

	if (++q->asked < q->at && !now)
		return GK_OK;
	gk_store_ask(q->store, NULL, NULL);
	q->forced = now;
	if (gk_store_can_ingest(q->store))
		q->status = gk_store_ingest(q->store, &keeper, q->wide, err);
	return GK_OK;
}

typedef struct Case
{
	int64_t		n;
	int			d;
	bool		wide;			/* the device takes doubles; every third column has some */
	int			threads;
	size_t		chunk_bytes;
	size_t		limit;
	int			at;
} Case;

static double *
values(const Case *c)
{
	double	   *x = malloc((size_t) c->n * c->d * sizeof(double));
	uint64_t	rng = 5;

	for (int64_t i = 0; i < c->n; i++)
		for (int j = 0; j < c->d; j++)
		{
			double		v = test_normal(&rng);

			/* doubles begin in the middle of a chunk */
			x[i * c->d + j] = c->wide && j % 3 == 0 && i > c->n / 3 ? v : (float) v;
		}
	return x;
}

/* Several batches at a time, as a leader with threads adds them. */
static GkStatus
add(GkStore *s, const double *x, const Case *c, GkError *err)
{
	enum
	{
	BATCHES = 3};
	int			capacity = gk_batch_capacity(c->d, 16384);
	size_t		bytes = (gk_batch_bytes(c->d, 0, capacity) + 63) / 64 * 64;
	char	   *memory = malloc(BATCHES * bytes);
	GkColumnStats *stats = malloc(c->d * sizeof(GkColumnStats));
	GkStatus	st = GK_OK;

	gk_stats_clear(stats, c->d);
	for (int64_t row = 0; st == GK_OK && row < c->n;)
	{
		GkBatch		batches[BATCHES];
		int			n = 0;

		for (; n < BATCHES && row < c->n; n++)
		{
			GkBatch    *b = &batches[n];

			gk_batch_init(b, memory + n * bytes, c->d, 0, capacity);
			for (; b->rows < capacity - n && row < c->n; b->rows++, row++)
				for (int j = 0; j < c->d; j++)
					gk_batch_put(b, j, x[row * c->d + j]);
			gk_batch_observe(b, stats);
		}
		st = gk_store_add(s, batches, n, c->threads, err);
	}
	gk_store_observed(s, stats);
	free(stats);
	free(memory);
	return st;
}

static bool
same_rows(GkStore *s, const double *x, const Case *c)
{
	return gk_store_reader(s) == &keeper && kept != NULL && kept->rows == c->n && gk_store_rows(s) == c->n &&
		memcmp(kept->x, x, (size_t) c->n * c->d * sizeof(double)) == 0;
}

/* Prepared chunks like those of a store that was never asked. */
static bool
same_chunks(GkStore *s, const double *x, const Case *c)
{
	TestHost	t;
	GkStore    *plain;
	GkError		err;
	float	   *a = malloc(c->d * sizeof(float));
	float	   *b = malloc(c->d * sizeof(float));
	bool		same;

	test_host_init(&t, 1);
	same = gk_store_reader(s) == NULL && gk_store_create(&t.host, c->d, false, 0, c->chunk_bytes, SIZE_MAX, &plain, &err) == GK_OK &&
		add(plain, x, c, &err) == GK_OK && gk_store_prepare(plain, GK_EUCLIDEAN, false, &err) == GK_OK &&
		gk_store_rows(s) == c->n;
	for (int64_t i = 0; same && i < c->n; i++)
		same = gk_store_row(s, i, a, &err) == GK_OK && gk_store_row(plain, i, b, &err) == GK_OK && memcmp(a, b, c->d * sizeof(float)) == 0;
	gk_store_free(plain);
	test_host_end(&t);
	free(a);
	free(b);
	return same;
}

/* Returns the status of gk_store_prepare(); *good: the rows are where they should be, once. */
static GkStatus
run(const Case *c, const double *x, long fail_at, Question *q, bool *good)
{
	TestHost	t;
	GkStore    *s;
	GkError		err;
	GkStatus	st;

	test_host_init(&t, c->threads);
	calls_left = fail_at;
	*q = (Question) {.wide = c->wide,.at = c->at,.status = -1};
	st = gk_store_create(&t.host, c->d, false, 0, c->chunk_bytes, c->limit, &s, &err);
	if (st == GK_OK)
	{
		q->store = s;
		gk_store_expect(s, (double) c->n / 2);
		gk_store_ask(s, answer, q);
		st = add(s, x, c, &err);
	}
	if (st == GK_OK)
		st = gk_store_prepare(s, GK_EUCLIDEAN, false, &err);
	*good = st == GK_OK && (q->status == GK_OK ? same_rows(s, x, c) : same_chunks(s, x, c));
	gk_store_free(s);
	*good &= t.live == 0 && kept == NULL;
	calls_left = -1;
	test_host_end(&t);
	return st;
}

static void
test_rows(void)
{
	for (int wide = 0; wide < 2; wide++)
		for (int threads = 1; threads <= 3; threads += 2)
		{
			Case		c = {.n = 60000,.d = 5,.wide = wide,.threads = threads,.chunk_bytes = 1 << 18,.limit = SIZE_MAX};
			double	   *x = values(&c);
			int			bad = 0;
			int			up = 0;
			Question	q;

			for (c.at = 1; c.at < 400; c.at += c.at < 20 ? 1 : 37)
			{
				bool		good;

				run(&c, x, -1, &q, &good);
				bad += !good;
				up += q.status == GK_OK;
			}
			ok(bad == 0 && up >= 20 && q.forced, "%s by %d threads go up once and in order, whenever the device is open (%d bad of %d)",
			   wide ? "doubles" : "floats", threads, bad, up);
			free(x);
		}
}

static void
test_limit(void)
{
	Case		c = {.n = 60000,.d = 5,.threads = 2,.chunk_bytes = 1 << 16,.limit = 1 << 18,.at = 1000000};
	double	   *x = values(&c);
	Question	q;
	bool		good;
	GkStatus	st = run(&c, x, -1, &q, &good);

	ok(st == GK_OK && good && q.status == GK_OK && q.forced && expected < c.n / 2 + 1 && q.asked < 60,
	   "no memory for more rows: the device has to be open then (question %d)", q.asked);
	c.limit = SIZE_MAX;
	st = run(&c, x, -1, &q, &good);
	ok(st == GK_OK && good && q.forced && q.asked > 60 && expected == c.n,
	   "no more rows: then, too (question %d)", q.asked);
	free(x);
}

/* Failures until the rows that waited are there leave them where they are; a later one loses them. */
static void
test_failures(void)
{
	Case		c = {.n = 20000,.d = 4,.threads = 2,.chunk_bytes = 1 << 16,.limit = SIZE_MAX,.at = 20};
	double	   *x = values(&c);
	int			stayed = 0;
	int			lost = 0;
	int			bad = 0;
	long		n = 0;
	Question	q;

	for (; n < 1000; n++)
	{
		bool		good;
		GkStatus	st = run(&c, x, n, &q, &good);

		if (st == GK_OK && q.status == GK_OK)
		{
			bad += !good;
			break;
		}
		stayed += q.status == GK_ERR_DEVICE && good;
		lost += q.status == GK_OK && st == GK_ERR_DEVICE && kept == NULL;
		bad += q.status == GK_ERR_DEVICE ? !good : !(q.status == GK_OK && st == GK_ERR_DEVICE);
	}
	ok(bad == 0 && stayed > 10 && lost > 10, "a device that fails at any of %ld calls: %d times the rows stayed, %d times they were lost (%d bad)",
	   n, stayed, lost, bad);
	free(x);
}

int
main(void)
{
	calls_left = -1;
	test_thread();
	test_rows();
	test_limit();
	test_failures();
	return done_testing();
}
