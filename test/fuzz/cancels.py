"""Cancels, terminations and timeouts at random moments of every function, in several sessions at once.

What is promised: the session, or its end, within 200 ms, on a machine that is not busy
(the 99th percentile is printed); nothing left behind; right answers afterwards.
"""
import os
import statistics
import threading
import time

from faults import JOBS, LEFT, SETUP, Job, Server, answers, make_models, make_pages, make_table, shape, some_settings
from fuzz_common import Campaign

LIMIT = 5.0  # seconds until a session returns, on any machine
SESSIONS = 4

# They would take much longer than LIMIT: who does not listen is seen
FOREVER = "tol => 0, max_iter => 100000"
LONG = [
    Job("long kmeans", f"SELECT FROM kmeans('pages', '{{a,b,c,d}}', 300, init => 'random', {FOREVER})"),
    Job("long seed", "SELECT FROM kmeans('pages', '{a,b,c,d}', 5000, max_iter => 1)"),
    Job("long load", "SELECT FROM kmeans('long', '{a,b,c,d}', 1)"),
    Job("long labels", f"SELECT FROM kmeans_labels(ARGS, 900, init => 'random', {FOREVER})"),
    Job("long label_column", f"SELECT FROM kmeans(ARGS, 900, 'label', init => 'random', {FOREVER})"),
    Job("long grouped", f"SELECT FROM kmeans_grouped('pages', '{{tenth}}', '{{a,b,c,d}}', 300, {FOREVER})"),
    Job("long grouped by two", f"SELECT FROM kmeans_grouped('pages', '{{tenth,w}}', '{{a,b,c,d}}', 300, {FOREVER})"),
    Job("long agg", f"SELECT kmeans_agg(ARRAY[a,b,c,d]::float8[], 300, kmeans_options({FOREVER})) FROM pages GROUP BY tenth"),
    Job("long window", "SELECT max(l) FROM (SELECT kmeans(ARRAY[a,b,c,d]::float8[], 900) OVER (PARTITION BY tenth) AS l FROM pages) x"),
    Job("long k-scan", f"SELECT FROM kmeans_scan('pages', '{{a,b,c,d}}', 100, 300, {FOREVER})"),
    Job("long eigenvectors", "SELECT FROM kmeans_spectral(ARGS, 3, 4000, init => 'random', max_iter => 1)"),
    Job("long spectral scan", "SELECT FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit(ARGS, 3, 2000, init => 'random', max_iter => 1)), 2, 2000)"),
    Job("long evaluate", "SELECT kmeans_evaluate(m, 'pages', 480000) FROM models"),
    Job("long step", "SELECT length(kmeans_step('long', '{a,b,c,d}', (SELECT m FROM models))::text)"),
    Job("long step of rows", "SELECT kmeans_step(m, a, b, c, d) FROM long, models"),
    Job("long scan svg", f"SELECT kmeans_scan_svg('pages', '{{a,b,c,d}}', 100, 300, {FOREVER})"),
    Job("long svg", "SELECT length(kmeans_svg(m, 'long')) FROM models"),
]

campaign = Campaign("cancels")
lock = threading.Lock()
times = {"cancel": [], "terminate": [], "timeout": []}
finished = 0  # statements that were faster than the signal


class Victim(threading.Thread):
    """One session and the one that disturbs it, on a table of their own."""

    def __init__(self, number, right, seconds):
        super().__init__(daemon=True)
        self.table = f"pts{number}"
        self.right, self.seconds = right, seconds
        self.other = campaign.session(f"other {number}")
        for statement in (make_table(self.table), f"VACUUM ANALYZE {self.table}"):
            self.other.run(statement, False)
        self.begin()
        self.shape = None

    def begin(self):
        self.session = campaign.session(self.table)
        self.session.run("SET client_min_messages = error")
        self.base = None

    def signal(self, what, delay):
        """After a while; when, as the clock says just before."""
        time.sleep(delay)
        self.when = time.monotonic()
        self.other.run(f"SELECT pg_{what}_backend({self.session.pid})", False)

    def attack(self, job, settings, what, delay):
        """One statement; what it answered, and how late after the signal it returned."""
        statement = f"{settings}BEGIN; {job.on(self.table)}"
        if what == "timeout":
            statement = f"{settings}SET statement_timeout = {max(1, int(delay * 1000))}; BEGIN; {job.on(self.table)}"
            start = time.monotonic()
            outcome = self.session.run(statement)
            return outcome, time.monotonic() - start - delay
        signal = threading.Thread(target=self.signal, args=(what, delay))
        signal.start()
        outcome = self.session.run(statement)
        end = time.monotonic()
        signal.join()
        return outcome, end - self.when

    def one(self, rng):
        global finished
        job = rng.choice(JOBS if rng.random() < 0.9 else LONG)
        settings = some_settings(rng)
        what = rng.choice(("cancel",) * 6 + ("timeout", "terminate"))
        delay = rng.uniform(0, 1) * self.seconds.get(job.name, 1)
        label = f"{job.name}, {settings}{what} after {delay * 1000:.0f} ms"
        outcome, late = self.attack(job, settings, what, delay)
        with lock:
            if outcome.ok:
                finished += 1
                if job.name in self.right:
                    campaign.check(outcome.value == self.right[job.name], f"{label}: another answer", self.session)
            else:
                wanted = ("08006", "57P01") if what == "terminate" else ("57014",)
                campaign.check(outcome.state in wanted, f"{label}: {outcome}", self.session)
                campaign.check(late < LIMIT, f"{label}: returned after {late:.2f} s", self.session)
                times[what].append((late, label))
        if what == "terminate":
            self.ended(label)
        else:
            self.healthy(label, rng, job)

    def ended(self, label):
        """The session has gone, with its files and workers."""
        pid, end = self.session.pid, time.monotonic() + LIMIT
        left = f"""SELECT (SELECT count(*) FROM pg_stat_activity WHERE {pid} IN (pid, leader_pid))
            + (SELECT count(*) FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql_tmp{pid}.%')
            + (SELECT count(*) FROM gkmeans_progress WHERE pid = {pid})"""
        while (outcome := self.other.run(left, False)).value != "0" and time.monotonic() < end:
            time.sleep(0.01)
        with lock:
            campaign.check(outcome.value == "0", f"{label}: {outcome.value} processes, files and rows are left", self.session)
        self.session.close()
        self.begin()

    def healthy(self, label, rng, job):
        """Nothing is left, and the session works on."""
        # a cancel or a timeout that came late may end the first of these
        for _ in range(2):
            self.session.run("ROLLBACK; RESET ALL; SET client_min_messages = error", False)
        left = self.session.run(LEFT, False)
        workers = self.other.run(f"SELECT count(*) FROM pg_stat_activity WHERE leader_pid = {self.session.pid}", False)
        if rng.random() < 0.1 and job.name in self.right:  # the same again; else a short one
            again = self.session.run(f"BEGIN; {job.on(self.table)}")
            good = again.ok and again.value == self.right[job.name]
            self.session.run("ROLLBACK", False)
        else:
            again = self.session.run("SELECT count(DISTINCT label), min(label), sum(size) FROM "
                                     f"kmeans('few', '{{a,b,c,d}}', 3) k, {self.table} WHERE id <= 100")
            good = again.ok and again.rows == [("1", "-1", str(100 * 300))]
        with lock:
            campaign.check(left.ok and left.value == "0|0|0", f"{label}: left over: {left}", self.session)
            campaign.check(workers.value == "0", f"{label}: {workers.value} workers live on", self.session)
            campaign.check(good, f"{label}: not well afterwards: {again}", self.session)
        self.flat(label)
        self.session.script.clear()

    def flat(self, label):
        """Threads: at most those of the largest team (6), and some that find memory. Files: tables' ones."""
        threads, files = shape(self.session.pid)
        with lock:
            campaign.check(threads <= max(10, os.cpu_count() + 4), f"{label}: {threads} threads", self.session)
            campaign.check(files <= 100, f"{label}: {files} open files", self.session)

    def run(self):
        while True:
            with lock:
                if campaign.left() <= 0 or campaign.failed >= campaign.args.failures:
                    return
                rng = campaign.rng()
                campaign.case += 1
                vacuum = campaign.case % 97 == 0
            try:
                self.one(rng)
            except Exception as e:  # else the others would go on, and nobody see it
                with lock:
                    campaign.fail(f"{type(e).__name__}: {e}", self.session)
                return
            if vacuum:
                self.other.run(f"VACUUM {self.table}", False)


def main():
    first = campaign.session("first")
    server = Server(first)
    first.close()
    server.restart()
    first = campaign.session("first")
    for statement in (SETUP, make_table("pts"), make_models("pts"), make_table("few", 300), make_pages("pts"),
                      "CREATE VIEW long AS SELECT pages.* FROM generate_series(1, 100), pages", "VACUUM ANALYZE"):
        campaign.sane(first.run(statement, False))
    right, seconds = answers(first, "pts")
    segments = server.segments()
    victims = [Victim(i, right, seconds) for i in range(SESSIONS)]
    campaign.start = time.monotonic()  # all that was no attack
    for v in victims:
        v.start()
    for v in victims:
        v.join()
    for v in victims:
        v.session.close()
        v.other.close()
    time.sleep(0.5)
    left = server.left(segments)
    campaign.check(not left, f"files are left: {left}")
    workers = [title for _, title in server.children() if "parallel worker" in title]
    campaign.check(not workers, f"workers live on: {workers}")
    campaign.check(not server.crashes(), f"crashes: {server.crashes()[:5]}")
    campaign.check(first.run("SELECT count(*) FROM gkmeans_progress", False).value == "0", "gkmeans_progress has rows")
    for what, late in times.items():
        if len(late) > 1:
            late.sort()
            ms = [1000 * t for t, _ in late]
            print(f"{what}: {len(ms)}, late by {statistics.median(ms):.0f} ms (median), "
                  f"{ms[len(ms) * 99 // 100]:.0f} ms (99th percentile), {ms[-1]:.0f} ms at most: {late[-1][1]}")
    print(f"{finished} statements were done before")
    campaign.finish()


main()
