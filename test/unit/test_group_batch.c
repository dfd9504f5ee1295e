/*
 * Packed groups (gk_group_batch.h), on devices that the CPU plays with the GPU's own code
 * and a team of threads: the same models as one by one; one device that fails or is stopped; two
 * to eight of unequal speed, each of which fails at each of its calls; when several pay.
 */
#define FAKE_TEAM	4
#include "../gpu/fake_groups.h"
#include "../gpu/group_cases.h"
#include "gk_test.h"
#include "gk_testhost.h"

#include <time.h>

/* ---- one device ---- */

static int	calls;				/* of start() until it fails; < 0: never */

static GkStatus
failing_start(GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n, size_t read, size_t end, GkError *err)
{
	return calls-- == 0 ? gk_fail(err, GK_ERR_DEVICE, "injected")
		: fake_start(session, slot, groups, n, read, end, err);
}

static bool
stop(void *ctx)
{
	(void) ctx;
	return true;
}

static void
test_one(TestHost *t)
{
	PackedCase	cases[] = GROUP_CASES(1);
	GkBackend	backend = {.groups = &fake_groups};
	GkGroupBatchBackend failing = fake_groups;
	GkHost		host;
	PackedReport r;
	int			failures = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		r = packed_run(&cases[i], &t->host, &backend, NULL);
		ok(r.status == GK_OK && r.different == 0 && r.results > cases[i].groups * 9 / 10,
		   "%s: %d groups, %d results, %d differ (first %d)", cases[i].name, cases[i].groups, r.results, r.different, r.first);
	}
	{
		PackedCase	c = {"", 40, 9000, 4, {.k = 3,.n_init = 1,.max_iter = 5,.tol = 0}};

		r = packed_run(&c, &t->host, &backend, NULL);
		ok(r.status == GK_OK && r.different == 0 && r.results > 0 && r.results < 40,
		   "groups that are too large get no result: %d of 40 have one", r.results);
	}
	ok(t->live == 0, "nothing is left");

	failing.start = failing_start;
	backend.groups = &failing;
	for (int n = 0; n < 6; n++)
	{
		calls = n;
		r = packed_run(&cases[0], &t->host, &backend, NULL);
		failures += r.status != GK_ERR_DEVICE || r.different != 0 || r.results == cases[0].groups;
	}
	ok(failures == 0, "a device that fails is an error, what was done before stays");
	host = t->host;
	host.ctx = t;
	host.poll = stop;
	calls = -1;
	r = packed_run(&cases[0], &host, &backend, NULL);
	ok(r.status == GK_STOPPED, "it stops when it is asked to");
	for (int64_t nth = 1; nth < 30 && failures == 0; nth++)
	{
		PackedCase	c = {"", 3, 20, 2, {.k = 2,.n_init = 1,.max_iter = 5,.tol = 0}};
		TestHost	f;

		test_host_init(&f, 1);
		f.fail_at = nth;
		r = packed_run(&c, &f.host, &backend, NULL);
		failures += f.live != 0 || (r.status != GK_ERR_MEMORY && r.status != GK_OK);
		test_host_end(&f);
	}
	ok(failures == 0, "allocations that fail leave nothing behind");
}

/* ---- several devices ---- */

#define DEVICES			8

/* What device i does, and has done; its own thread alone writes its part. */
typedef struct Fake
{
	int			calls;			/* of open(), start() and wait() */
	int			fail_at;		/* this call fails; 0: none */
	GkStatus	failure;
	bool		dead;			/* it has failed, and does so from then on */
	double		slot_ms;		/* that a slot takes, besides what the CPU takes */
	int			most;			/* points of a group that fits; 0: any */
	int			open;			/* sessions */
	int			slots;			/* that it was given */
} Fake;

static Fake fakes[DEVICES];
static int	lost_asked;
static bool lost_refused;
static char shares[128];

static GkStatus
call(Fake *f, GkError *err)
{
	if (++f->calls != f->fail_at && !f->dead)
		return GK_OK;
	f->dead |= f->failure == GK_ERR_DEVICE;
	return gk_fail(err, f->failure, "device %d failed", (int) (f - fakes));
}

static Fake *
fake_of(const GkGroupSession *session)
{
	return &fakes[((const FakePacks *) session)->number];
}

static GkStatus
several_open(const GkHost *host, const GkCore *core, const GkGroupBatchTask *task, GkGroupSession **out, GkError *err)
{
	Fake	   *f = &fakes[atoi(task->gpu_devices)];
	GkStatus	st = call(f, err);

	*out = NULL;
	if (st == GK_OK)
		st = fake_open(host, core, task, out, err);
	if (st == GK_OK)
	{
		((FakePacks *) *out)->number = (int) (f - fakes);
		f->open++;
	}
	return st;
}

/* Few groups a slot. */
static double
several_share(const GkGroupSession *session, int64_t n, int k)
{
	int			most = fake_of(session)->most;

	return fake_share(session, n, k) > 1.0 || (most > 0 && n > most) ? 2.0 : 0.04;
}

static GkStatus
several_start(GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n, size_t read, size_t end, GkError *err)
{
	GkStatus	st = call(fake_of(session), err);

	fake_of(session)->slots++;
	return st == GK_OK ? fake_start(session, slot, groups, n, read, end, err) : st;
}

static GkStatus
several_wait(GkGroupSession *session, int slot, GkError *err)
{
	Fake	   *f = fake_of(session);
	GkStatus	st = call(f, err);

	for (double until = gk_now_ms() + f->slot_ms; gk_now_ms() < until;)
		nanosleep(&(struct timespec) {0, 50000}, NULL);
	return st == GK_OK ? fake_wait(session, slot, err) : st;
}

static void
several_close(GkGroupSession *session)
{
	if (session != NULL)
		fake_of(session)->open--;
	fake_close(session);
}

static const GkGroupBatchBackend several_groups = {several_open, several_share, several_start, several_wait, several_close};
static const GkBackend several_backend = {.groups = &several_groups};

static bool
device_lost(void *ctx, const GkError *err)
{
	(void) ctx;
	lost_asked += strncmp(err->message, "device", 6) == 0;
	return !lost_refused;
}

static void
devices(void *ctx, const char *text)
{
	(void) ctx;
	snprintf(shares, sizeof(shares), "%s", text);
}

/* n devices, the last one the fastest. */
static GkSpread
spread_over(int n)
{
	GkSpread	s = {.n = n};

	memset(fakes, 0, sizeof(fakes));
	for (int i = 0; i < n; i++)
	{
		fakes[i].slot_ms = 0.2 * (n - i);
		s.device[i] = (GkSpreadDevice) {&several_backend, i, 1.0 + i};
	}
	lost_asked = 0;
	lost_refused = false;
	shares[0] = '\0';
	return s;
}

static int
sessions_open(void)
{
	int			open = 0;

	for (int i = 0; i < DEVICES; i++)
		open += fakes[i].open;
	return open;
}

static const PackedCase few = {"", 300, 30, 2, {.k = 3,.n_init = 1,.max_iter = 5,.tol = 0}};

static void
test_several(TestHost *t)
{
	PackedCase	cases[] = GROUP_CASES(1);
	int			bad = 0;
	int			used = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		int			n = 2 + (int) i % 7;
		GkSpread	spread = spread_over(n);
		PackedReport r = packed_run(&cases[i], &t->host, NULL, &spread);
		bool		all = r.status == GK_OK && r.different == 0 && r.results > cases[i].groups * 9 / 10;

		for (int d = 0; d < n; d++)
			used += fakes[d].slots > 0;
		if (!all || sessions_open() != 0 || spread.n != n || strncmp(shares, "gpu ", 4) != 0)
		{
			bad++;
			printf("# %s on %d devices (%s): %d results, %d differ (first %d), %s\n", cases[i].name, n, shares, r.results,
				   r.different, r.first, r.status != GK_OK ? r.err.message : "");
		}
	}
	ok(bad == 0 && t->live == 0, "groups on two to eight devices: the same models");
	ok(used >= 20, "most devices had some: %d", used);
	{
		PackedCase	c = {"", 300, 60, 2, {.k = 3,.n_init = 1,.max_iter = 5,.tol = 0}};
		GkSpread	spread = spread_over(3);
		PackedReport r;

		fakes[0].most = fakes[2].most = 30;
		r = packed_run(&c, &t->host, NULL, &spread);
		ok(r.status == GK_OK && r.different == 0 && r.results > 100, "devices that take other groups: %d of 300 have a result", r.results);
	}
}

/* Each device fails at each call, in turn, until it makes no more: the others do its groups. */
static void
test_failures(TestHost *t)
{
	int			injected = 0;
	int			bad = 0;

	for (int n = 2; n <= 4; n++)
		for (int device = 0; device < n; device++)
			for (int at = 1;; at++)
			{
				GkSpread	spread = spread_over(n);
				PackedReport r;
				bool		failed;

				fakes[device].fail_at = at;
				fakes[device].failure = at % 2 ? GK_ERR_DEVICE : GK_ERR_DEVICE_MEMORY;
				r = packed_run(&few, &t->host, NULL, &spread);
				failed = fakes[device].calls >= at;
				if (r.status != GK_OK || r.different != 0 || r.results != few.groups || lost_asked != failed ||
					spread.n != n - failed || sessions_open() != 0 || t->live != 0)
				{
					bad++;
					printf("# device %d of %d at call %d: %d results, %d differ, asked %d times, %d left, %s\n", device, n, at,
						   r.results, r.different, lost_asked, spread.n, r.status != GK_OK ? r.err.message : "");
				}
				injected += failed;
				if (!failed)
					break;
			}
	ok(bad == 0 && injected >= 30, "%d failures, at each call of each device: the others do its groups (%d bad)", injected, bad);
}

static void
test_last_one(TestHost *t)
{
	GkSpread	spread = spread_over(3);
	PackedReport r;

	for (int i = 0; i < 3; i++)
		fakes[i] = (Fake) {.fail_at = 6,.failure = GK_ERR_DEVICE,.slot_ms = 1.0};
	r = packed_run(&few, &t->host, NULL, &spread);
	ok(r.status == GK_ERR_DEVICE && r.different == 0 && r.results > 0 && r.results < few.groups && spread.n == 0 && lost_asked <= 2 &&
	   sessions_open() == 0 && t->live == 0,
	   "the last one's failure is the call's, what was done before stays (%s, %d results, asked %d times)", r.err.message,
	   r.results, lost_asked);

	spread = spread_over(3);
	fakes[1].fail_at = 1;
	fakes[1].failure = GK_ERR_DEVICE_MEMORY;
	fakes[0].slot_ms = fakes[2].slot_ms = 20.0;
	lost_refused = true;
	r = packed_run(&few, &t->host, NULL, &spread);
	ok(r.status == GK_ERR_DEVICE_MEMORY && r.different == 0 && lost_asked == 1 && sessions_open() == 0 && r.results < few.groups,
	   "where the host refuses, the first failure is (%s), and the others stop soon (%d results)", r.err.message, r.results);

	spread = spread_over(2);
	fakes[0].fail_at = 1;
	fakes[0].failure = GK_ERR_DEVICE;
	fakes[1].fail_at = 1;
	fakes[1].failure = GK_ERR_MEMORY;
	r = packed_run(&few, &t->host, NULL, &spread);
	ok(r.status == GK_ERR_MEMORY && lost_asked == 0 && sessions_open() == 0, "a failure that is no device's is the call's");

	/* one is left: it is that one, whatever the host's list says */
	spread = spread_over(2);
	fakes[0].fail_at = 1;
	fakes[0].failure = GK_ERR_DEVICE_MEMORY;
	(void) packed_run(&few, &t->host, NULL, &spread);
	r = packed_run(&few, &t->host, NULL, &spread);
	ok(r.status == GK_OK && r.results == few.groups && spread.n == 1 && fakes[0].calls == 1,
	   "a device that was lost is not asked again");
}

static void
test_stop_and_memory(TestHost *t)
{
	int			bad = 0;
	int			stopped = 0;
	GkHost		host = t->host;

	for (int at = 1; at < 4; at++)
	{
		GkSpread	spread = spread_over(3);
		PackedReport r;

		t->polls = 0;
		t->stop_at = at;
		r = packed_run(&few, &t->host, NULL, &spread);
		t->stopped = t->stop_at = 0;
		stopped += r.status == GK_STOPPED;
		bad += (r.status != GK_STOPPED && r.status != GK_OK) || r.different != 0 || sessions_open() != 0 || t->live != 0;
	}
	ok(bad == 0 && stopped >= 1, "they stop when the host asks them to (%d)", stopped);
	bad = 0;
	for (int64_t nth = 1; nth < 20; nth++)
	{
		GkSpread	spread = spread_over(2);
		PackedReport r;

		t->allocs = 0;
		t->fail_at = nth;
		r = packed_run(&few, &t->host, NULL, &spread);
		t->fail_at = 0;
		bad += t->live != 0 || sessions_open() != 0 || (r.status != GK_ERR_MEMORY && r.status != GK_OK);
	}
	ok(bad == 0, "allocations that fail leave nothing behind");
	/* before the first slot: a flag that a signal sets */
	t->stopped = 1;
	host.poll = NULL;
	{
		GkSpread	spread = spread_over(3);
		PackedReport r = packed_run(&few, &host, NULL, &spread);

		ok(r.status == GK_STOPPED && r.results == 0 && sessions_open() == 0, "and before they begin");
	}
	t->stopped = 0;
}

int
main(void)
{
	TestHost	t;

	test_host_init(&t, 2);
	test_one(&t);
	t.host.device_lost = device_lost;
	t.host.devices = devices;
	test_several(&t);
	test_failures(&t);
	test_last_one(&t);
	test_stop_and_memory(&t);
	test_host_end(&t);
	return done_testing();
}
