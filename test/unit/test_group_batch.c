/*
 * Packed groups (gk_group_batch.h), on a device that the CPU plays with the GPU's own code
 * and a team of threads: the same models as one by one; a device that fails or
 * is stopped.
 */
#define FAKE_TEAM	4
#include "../gpu/fake_groups.h"
#include "../gpu/group_cases.h"
#include "gk_test.h"
#include "gk_testhost.h"

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

int
main(void)
{
	PackedCase	cases[] = GROUP_CASES(1);
	GkBackend	backend = {.groups = &fake_groups};
	GkGroupBatchBackend failing = fake_groups;
	TestHost	t;
	GkHost		host;
	PackedReport r;
	int			failures = 0;

	test_host_init(&t, 2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		r = packed_run(&cases[i], &t.host, &backend);
		ok(r.status == GK_OK && r.different == 0 && r.results > cases[i].groups * 9 / 10,
		   "%s: %d groups, %d results, %d differ (first %d)", cases[i].name, cases[i].groups, r.results, r.different, r.first);
	}
	{
		PackedCase	c = {"", 40, 9000, 4, {.k = 3,.n_init = 1,.max_iter = 5,.tol = 0}};

		r = packed_run(&c, &t.host, &backend);
		ok(r.status == GK_OK && r.different == 0 && r.results > 0 && r.results < 40,
		   "groups that are too large get no result: %d of 40 have one", r.results);
	}
	ok(t.live == 0, "nothing is left");

	failing.start = failing_start;
	backend.groups = &failing;
	for (int n = 0; n < 6; n++)
	{
		calls = n;
		r = packed_run(&cases[0], &t.host, &backend);
		failures += r.status != GK_ERR_DEVICE || r.different != 0 || r.results == cases[0].groups;
	}
	ok(failures == 0, "a device that fails is an error, what was done before stays");
	host = t.host;
	host.ctx = &t;
	host.poll = stop;
	calls = -1;
	r = packed_run(&cases[0], &host, &backend);
	ok(r.status == GK_STOPPED, "it stops when it is asked to");
	for (int64_t nth = 1; nth < 30 && failures == 0; nth++)
	{
		PackedCase	c = {"", 3, 20, 2, {.k = 2,.n_init = 1,.max_iter = 5,.tol = 0}};
		TestHost	f;

		test_host_init(&f, 1);
		f.fail_at = nth;
		r = packed_run(&c, &f.host, &backend);
		failures += f.live != 0 || (r.status != GK_ERR_MEMORY && r.status != GK_OK);
		test_host_end(&f);
	}
	ok(failures == 0, "allocations that fail leave nothing behind");
	test_host_end(&t);
	return done_testing();
}
