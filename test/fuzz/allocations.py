"""The n-th call for memory, for a thread, to write or read a temporary file fails: n = 1, 2, ... until none does.

For each function and some settings. fail_nth.c, loaded into the server, lets the call
fail. Each n has to give an error of SQL that says so, or the right answer, and a session
that works on as before: nothing is left, nothing has leaked.
"""
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import time

from faults import JOBS, LEFT, SETUP, Job, Server, answers, make_models, make_table, make_wide, rows, status
from fuzz_common import TREE, Campaign

MEMORY, THREAD, WRITE, READ, OURS = 1, 2, 4, 8, 16
FIELDS = ("pid", "kinds", "fail_at", "last", "calls", "failed", "generation")
ROWS = 4000
ROUNDS = 6  # that a session may grow in, one after the other
SPILL = "SET gkmeans.memory_limit = '300kB'; SET gkmeans.chunk_size = '64kB'; SET work_mem = '64kB'; "
WORKERS = "SET gkmeans.workers = 2; "

# What fails, whether each n has a session of its own, whether it is the workers that fail, settings
WAYS = [
    ("memory", MEMORY, False, False, ""),
    ("memory, scan", MEMORY, False, False, "SET gkmeans.strategy = scan; "),
    ("memory, spilled", MEMORY, False, False, SPILL),
    ("memory, executor, 1 thread", MEMORY, False, False, "SET gkmeans.reader = executor; SET gkmeans.threads = 1; "),
    ("memory, workers", MEMORY, False, False, WORKERS),
    ("memory of the workers", OURS, False, True, WORKERS),
    ("memory of a new session", OURS, True, False, "SET gkmeans.threads = 3; "),
    ("threads", THREAD, True, False, "SET gkmeans.threads = 4; "),
    ("writing", WRITE, False, False, SPILL),
    ("reading", READ, False, False, SPILL),
]
# Points in blocks of huge pages, which the process keeps, and threads that find such memory
WIDE_ARGS = "'TABLE', '{v}', 5, init => 'random', max_iter => 2"
WIDE_JOBS = [
    rows("kmeans, wide", f"kmeans({WIDE_ARGS})"),
    rows("labels, wide", f"(SELECT ctid, cluster, distance FROM kmeans_labels({WIDE_ARGS}))"),
    rows("grouped, wide", "kmeans_grouped('TABLE', '{tenth}', '{v}', 5, max_iter => 2)"),
    # sums that begin with zeros, in memory that had points
    Job("step, wide", f"SELECT FROM kmeans({WIDE_ARGS}); SELECT hash(kmeans_step('few', '{{v}}', (SELECT m FROM many))::text)"),
]
MANY = "CREATE VIEW few AS SELECT v FROM wide WHERE id <= 50; CREATE TABLE many AS SELECT kmeans_fit('wide', '{v}', 2100, init => 'random', max_iter => 1) AS m"
WIDE_WAYS = [
    ("memory", MEMORY, False, False, ""),
    ("memory, nothing kept", MEMORY, False, False, "SET gkmeans.keep_memory = 0; "),
    ("memory of a new session", OURS, True, False, ""),
    ("threads", THREAD, True, False, "SET gkmeans.threads = 4; "),
    ("threads, nothing kept", THREAD, False, False, "SET gkmeans.keep_memory = 0; SET gkmeans.threads = 4; "),
]
# PostgreSQL gets memory for small things from the system now and then only: a history of hundreds of iterations is none
LONG = rows("long", "kmeans('TABLE', '{id}', 20, centroids => (SELECT array_agg(ARRAY[i::float8]) FROM generate_series(1, 20) i), "
            "tol => 0, max_iter => 520)")
FIRST = [(WIDE_JOBS[0], WIDE_WAYS[0]), (JOBS[0], WAYS[0]), (LONG, WAYS[0]), (WIDE_JOBS[3], WIDE_WAYS[0]),
         (WIDE_JOBS[0], WIDE_WAYS[3]), (WIDE_JOBS[0], WIDE_WAYS[4])]
GOOD = {MEMORY: ("53200",), OURS: ("53200",), THREAD: ("53200", "53000"), WRITE: ("53100", "58030"), READ: ("58030",)}
# a worker that does not even begin to work is told of in another way
NO_WORKER = ("53200", "55000", "53000")

campaign = Campaign("allocations")


class Fault:
    """The memory that fail_nth.c maps as well."""

    def __init__(self, path):
        with open(path, "wb") as f:
            f.write(bytes(4096))
        os.chmod(path, 0o666)
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 4096)

    def __getitem__(self, field):
        return struct.unpack_from("q", self.map, 8 * FIELDS.index(field))[0]

    def __setitem__(self, field, value):
        struct.pack_into("q", self.map, 8 * FIELDS.index(field), value)

    def arm(self, pid, kinds, n):
        self["kinds"], self["fail_at"], self["last"], self["calls"], self["failed"] = kinds, n, n, 0, 0
        if pid == -1:
            self["generation"] += 1
        self["pid"] = pid

    def disarm(self):
        """Whether a call has failed."""
        self["pid"] = 0
        return self["failed"] > 0


def new_session():
    session = campaign.session("it")
    session.run("SET client_min_messages = error; LOAD 'gkmeans'")
    return session


def one(session, fault, n, job, table, way, right):
    """The n-th call fails; False: there is no n-th call."""
    name, kinds, _, workers, settings = way
    label = f"{job.name}, {name}: call {n} fails"
    session.run(settings, False)
    fault.arm(-1 if workers else session.pid, kinds, n)
    start = time.monotonic()
    outcome = session.run(f"BEGIN; {job.on(table)}")
    took = time.monotonic() - start
    failed = fault.disarm()
    if not failed:
        session.run("ROLLBACK", False)
        return False
    if outcome.ok:
        campaign.check(outcome.value == right, f"{label}: another answer", session)
    else:
        campaign.check(outcome.state in (NO_WORKER if workers else GOOD[kinds]), f"{label}: {outcome}", session)
    if session.lost:
        campaign.check(took < 5, f"{label}: {took:.1f} s, {outcome}", session)
        return True
    session.run("ROLLBACK", False)
    left = session.run(LEFT, False)
    campaign.check(left.ok and left.value == "0|0|0", f"{label}: left over: {left}", session)
    start = time.monotonic()
    again = session.run(f"BEGIN; {job.on(table)}")
    whole = time.monotonic() - start    # a busy machine takes its time for that, too
    campaign.check(took < max(5, 3 * whole), f"{label}: {took:.1f} s, {outcome}; the next one: {whole:.1f} s", session)
    campaign.check(again.ok and again.value == right, f"{label}: not well afterwards: {again}", session)
    session.run("ROLLBACK; RESET ALL; SET client_min_messages = error", False)
    if n % 10 == 0:
        session.run(f"VACUUM {table}", False)  # of the rows that were written and taken back
    return True


def sweep(fault, job, table, way, right):
    """All n; how many there were."""
    if way[2]:
        n = 1
        while campaign.failed < campaign.args.failures:
            session = new_session()
            more = one(session, fault, n, job, table, way, right)
            session.close()
            if not more:
                break
            n += 1
        return n - 1
    session = new_session()
    for _ in range(2):
        session.run(f"{way[4]}BEGIN; {job.on(table)}", False)
        session.run("ROLLBACK; RESET ALL; SET client_min_messages = error", False)
    total, sizes = 0, [status(session.pid, "VmData")]
    # a heap that has got holes stops growing, a leak grows on and on
    while campaign.failed < campaign.args.failures:
        before = session
        session, n = all_calls(session, fault, job, table, way, right)
        total += n
        if session is not before:
            break
        sizes.append(status(session.pid, "VmData"))
        if sizes[-1] - sizes[-2] < 2048 + n:
            break
        if len(sizes) > ROUNDS:
            campaign.fail(f"{job.name}, {way[0]}: kB of addresses after each round of {n} failures: {sizes}", session)
            break
    campaign.count()
    session.close()
    return total


def all_calls(session, fault, job, table, way, right):
    """Each n once: (the session, how many there were). One that was lost gets a successor."""
    n = 1
    while campaign.failed < campaign.args.failures and one(session, fault, n, job, table, way, right):
        session.script.clear()
        n += 1
        if session.lost:
            session.close()
            session = new_session()
    return session, n - 1


def prepare():
    """The server with fail_nth.c, and the control."""
    first = campaign.session("first")
    server = Server(first)
    first.close()
    folder = os.path.dirname(server.data)
    library = os.path.join(folder, "fail_nth.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-fPIC", "-shared", "-o", library,
                    os.path.join(TREE, "test", "fuzz", "fail_nth.c"), "-ldl"], check=True)
    os.chmod(library, 0o755)
    fault = Fault(os.path.join(folder, "fail_nth"))
    # one arena: what threads allocate is no matter of chance
    server.restart("-c dynamic_shared_memory_type=posix", env={"LD_PRELOAD": library, "GK_FAIL_NTH": fault.file.name, "MALLOC_ARENA_MAX": "1"})
    first = campaign.session("first")
    for statement in (SETUP, make_table("pts", ROWS), make_models("pts"), make_wide("wide", 16000, 64), MANY, "VACUUM ANALYZE"):
        campaign.sane(first.run(statement, False))
    right = answers(first, "pts", [*JOBS, LONG])[0]
    right.update(answers(first, "wide", WIDE_JOBS)[0])
    return server, fault, right


def main():
    if not shutil.which(os.environ.get("CC", "cc")) or not sys.platform.startswith("linux"):
        print("skipped: there is no C compiler, or no LD_PRELOAD")
        return
    server, fault, right = prepare()
    segments = server.segments()
    todo = [(job, "pts", way) for job in [*JOBS, LONG] for way in WAYS]
    todo += [(job, "wide", way) for job in WIDE_JOBS for way in WIDE_WAYS]
    # all of them, in an order of the seed's, but first what a short run is not to miss; then once more
    order = list(range(len(todo)))
    random.Random(campaign.seed).shuffle(order)
    order.sort(key=lambda i: FIRST.index(todo[i][::2]) if todo[i][::2] in FIRST else len(FIRST))
    total = 0
    campaign.start = time.monotonic()  # all that was no attack
    for _ in campaign.cases():
        job, table, way = todo[order[campaign.case % len(todo)]]
        n = sweep(fault, job, table, way, right[job.name])
        total += n
        left = server.left(segments)
        campaign.check(not left, f"{job.name}, {way[0]}: files are left: {left}")
        segments = server.segments()
        print(f"{job.name}, {way[0]}: {n}", file=sys.stderr)
    campaign.check(not server.crashes(), f"crashes: {server.crashes()[:5]}")
    print(f"{total} calls have failed in {campaign.case} of {len(todo)} ways")
    campaign.finish()


main()
