"""What the campaigns about faults share: a server to stop and start, statements of every kind, what may be left over.

The server is that of test/with-cluster, started again with other settings or in another
environment.
"""
import os
import pwd
import random
import subprocess
import threading
import time
from collections import namedtuple

from fuzz_common import Session

ROWS = 30000  # of points: 256 pages and more are read by threads
# The server's, by default: nothing but the sessions of a campaign starts processes, and what is left
# of shared memory can be seen (but not where calls fail: PostgreSQL leaves the file of a segment behind
# when it has no memory for the zeros to write to it).
OPTIONS = ("-c autovacuum=off -c dynamic_shared_memory_type=mmap -c log_min_messages=error "
           "-c client_min_messages=error -c restart_after_crash=on -c jit=off -c max_worker_processes=16 -c max_parallel_workers=16")


class Server:
    """The server of test/with-cluster, stopped and started at will."""

    def __init__(self, session):
        self.data = session.run("SHOW data_directory", False).value
        self.log = os.path.join(self.data, "server.log")
        owner = pwd.getpwuid(os.stat(self.data).st_uid)
        self.owner = owner
        self.as_owner = [] if owner.pw_uid == os.getuid() else [
            "setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--init-groups"]

    def pg_ctl(self, *args, before=(), env=None):
        return subprocess.run([*self.as_owner, *before, "pg_ctl", "-D", self.data, "-w", "-t", "60", *args],
                              cwd="/", env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def stop(self, mode="fast"):
        return self.pg_ctl("stop", "-m", mode)

    def start(self, options="", before=(), env=None):
        """before: a command that starts pg_ctl in its own way, such as prlimit."""
        return self.pg_ctl("start", "-l", self.log, "-o", f"{OPTIONS} {options}", before=before, env=env)

    def restart(self, options="", before=(), env=None):
        self.stop()
        if not self.start(options, before, env):
            with open(self.log, errors="replace") as f:
                raise SystemExit("the server does not start:\n" + "".join(f.readlines()[-20:]))

    def postmaster(self):
        with open(os.path.join(self.data, "postmaster.pid")) as f:
            return int(f.readline())

    def child_pids(self):
        pid = self.postmaster()
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(child) for child in f.read().split()]

    def children(self):
        """Of the postmaster: (pid, title)."""
        found = []
        for pid in self.child_pids():
            try:
                with open(f"/proc/{pid}/cmdline") as f:
                    found.append((pid, f.read().replace("\0", " ").strip()))
            except OSError:
                pass
        return found

    def temporary(self):
        """Temporary files: none between statements."""
        return [os.path.join(folder, f) for folder, _, files in os.walk(os.path.join(self.data, "base", "pgsql_tmp"))
                for f in files]

    def segments(self):
        """Segments of shared memory; those in /dev/shm, which have no server's name, if no process has mapped them."""
        found = {f"pg_dynshmem/{f}" for f in os.listdir(os.path.join(self.data, "pg_dynshmem"))}
        shared = {f"/dev/shm/{f}" for f in os.listdir("/dev/shm") if f.startswith("PostgreSQL.")}
        for pid in filter(str.isdigit, os.listdir("/proc")) if shared else ():
            try:
                with open(f"/proc/{pid}/maps") as f:
                    shared -= {line.split()[-1] for line in f if "/dev/shm/PostgreSQL." in line}
            except OSError:  # it has ended, or is another user's
                pass
        return found | {f for f in shared if os.path.exists(f) and os.stat(f).st_uid == self.owner.pw_uid}

    def left(self, segments):
        """Files that should not be there; segments that are none of those given. Another server's may be left for a moment."""
        left = self.temporary() + list(self.segments() - segments)
        for _ in range(10):
            if not left:
                break
            time.sleep(0.3)
            left = self.temporary() + list((self.segments() - segments).intersection(left))
        return left

    def crashes(self):
        """Lines of the log that no fault of the system excuses."""
        with open(self.log, errors="replace") as f:
            return [line.rstrip() for line in f
                    if any(word in line for word in ("was terminated by signal", "PANIC:", "TRAP:", "libgomp:"))]


def shape(pid):
    """Threads and open files of a process."""
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def status(pid, field):
    """A number of /proc/PID/status, such as VmSize in kB."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


# ---- statements ----

class Job(namedtuple("Job", "name sql")):
    """Statements whose last one's only value is the answer; TABLE, ARGS stand for the table, and it and its columns."""

    def on(self, table):
        return self.sql.replace("ARGS", "'TABLE', '{a,b,c,d}'").replace("TABLE", table)


SETUP = """
CREATE EXTENSION gkmeans;
-- md5() does not say that it has no memory
CREATE FUNCTION hash(text) RETURNS bigint LANGUAGE sql AS $$ SELECT hashtextextended($1, 0) $$;
CREATE FUNCTION answer(kmeans_model) RETURNS text LANGUAGE sql AS $$
    SELECT (($1::text::jsonb - '{device,strategy,load_ms,seed_ms,iterate_ms,context_ms,upload_ms,total_ms}'::text[])::text) $$;
"""


def make_table(name, rows=ROWS):
    return f"""CREATE TABLE {name} AS
        SELECT i AS id, sin(i) AS a, cos(i * 0.7)::real AS b, (i::bigint * 7919 % 1000) / 1000.0::float8 AS c,
               (i::bigint * 104729 % 997) / 997.0::float8 AS d, 1 + i % 3 AS w, -1 AS label, i % 10 AS tenth, i % 200 AS part
        FROM generate_series(1, {rows}) i"""


def make_wide(name, rows, features):
    """Points in an array, some megabytes of them."""
    return f"""CREATE TABLE {name} AS SELECT i AS id, i % 8 AS tenth, -1 AS label,
        array_agg((sin(i) + cos(i * j) + i % (j + 2))::float4 ORDER BY j) AS v
        FROM generate_series(1, {rows}) i, generate_series(1, {features}) j GROUP BY i ORDER BY i"""


def make_pages(table):
    """Many pages of it, which workers can read."""
    return "CREATE VIEW pages AS " + " UNION ALL ".join([f"SELECT * FROM {table}"] * 16)


def make_models(table):
    return f"CREATE TABLE models AS SELECT kmeans_fit('{table}', '{{a,b,c,d}}', 10, init => 'random', max_iter => 2) AS m"


def rows(name, call):
    """What a call returns, in any order."""
    return Job(name, f"SELECT hash(string_agg(x::text, ' ' ORDER BY x::text)) FROM {call} x")


LABELS = "SELECT hash(string_agg(LABEL::text, ' ' ORDER BY id)) FROM "
JOBS = [
    rows("kmeans", "kmeans(ARGS, 12, init => 'random', max_iter => 8)"),
    rows("seed", "kmeans(ARGS, 10, max_iter => 2)"),
    rows("seed ||", "kmeans(ARGS, 20, init => 'k-means||', max_iter => 2)"),
    rows("weights", "kmeans(ARGS, 9, weight_column => 'w', standardize => true, n_init => 2, max_iter => 3)"),
    rows("cosine", "kmeans(ARGS, 9, distance => 'cosine', max_iter => 3)"),
    Job("fit", "SELECT answer(kmeans_fit(ARGS, 8, max_iter => 4))"),
    rows("labels", "(SELECT ctid, cluster, distance FROM kmeans_labels(ARGS, 5, init => 'random', max_iter => 2))"),
    rows("labels of a model", "(SELECT ctid, cluster, distance FROM kmeans_labels('TABLE', (SELECT m FROM models)))"),
    Job("label_column", "SELECT FROM kmeans(ARGS, 4, 'label', init => 'random', max_iter => 2); "
        + LABELS.replace("LABEL", "label") + "TABLE"),
    Job("new column", "SELECT FROM kmeans(ARGS, 4, 'new_label', init => 'random', max_iter => 2); "
        + LABELS.replace("LABEL", "new_label") + "TABLE"),
    Job("label_table", "SELECT FROM kmeans_label_table(ARGS, 4, 'TABLE_labels', '{id}', init => 'random', max_iter => 2); "
        + LABELS.replace("LABEL", "cluster") + "TABLE_labels"),
    rows("grouped", "kmeans_grouped('TABLE', '{tenth}', '{a,b,c,d}', 6, max_iter => 5)"),
    rows("grouped by two", "kmeans_grouped('TABLE', '{tenth,w}', '{a,b,c,d}', 3, max_iter => 5)"),
    rows("agg", "(SELECT tenth, answer(kmeans_agg(ARRAY[a,b,c,d]::float8[], 5, kmeans_options(max_iter => 4))) "
         "FROM TABLE GROUP BY tenth)"),
    rows("window", "(SELECT id, kmeans(ARRAY[a,b,c,d]::float8[], 5) OVER (PARTITION BY tenth) FROM TABLE)"),
    rows("window parts", "(SELECT id, kmeans(ARRAY[a,b,c,d]::float8[], 3) OVER (PARTITION BY part) FROM TABLE)"),
    rows("window read", "(SELECT id, kmeans(ARRAY[a,b,c,d]::float8[], 1) OVER () FROM TABLE)"),
    rows("k-scan", "kmeans_scan(ARGS, 2, 6, max_iter => 3, sample => 500)"),
    rows("spectral", "kmeans_spectral(ARGS, 4, 40, max_iter => 3)"),
    rows("spectral scan", "kmeans_spectral_scan((SELECT kmeans_spectral_fit(ARGS, 4, 40, max_iter => 3)), 2, 5)"),
    rows("evaluate", "kmeans_evaluate((SELECT m FROM models), 'TABLE', 1000)"),
    Job("step", "SELECT hash(kmeans_step(ARGS, (SELECT m FROM models))::text)"),
    Job("step of rows", "SELECT answer(kmeans_step(m, a, b, c, d)) FROM TABLE, models"),
    Job("feature_sum", "SELECT hash(feature_sum(a, b, c, d)::text) FROM TABLE"),
    Job("predict", "SELECT hash(string_agg(kmeans_predict(m, a, b, c, d)::text, '' ORDER BY id)) FROM TABLE, models"),
    Job("svg", "SELECT hash(kmeans_svg((SELECT m FROM models), 'TABLE', points => 500))"),
    Job("scan svg", "SELECT hash(kmeans_scan_svg(ARGS, 2, 5, max_iter => 3, sample => 500))"),
    Job("spectral svg", "SELECT hash(kmeans_spectral_svg(kmeans_spectral_fit(ARGS, 4, 40, max_iter => 3)))"),
]

SETTINGS = {
    "gkmeans.strategy": ("scan", "single_pass", "multi_pass"),
    "gkmeans.memory_limit": ("'1MB'", "'300kB'"),
    "gkmeans.chunk_size": ("'64kB'", "'256kB'"),
    "gkmeans.threads": ("1", "2", "3", "6"),
    "gkmeans.workers": ("0", "1", "2", "3"),
    "gkmeans.reader": ("executor", "auto"),
    "gkmeans.keep_memory": ("0",),
    "gkmeans.skip_points": ("on", "off"),
    "gkmeans.enable_window_scan": ("off",),
    "work_mem": ("'64kB'",),
}


def some_settings(rng, only=None):
    """SET statements, none to a few of them."""
    names = rng.sample(list(only or SETTINGS), rng.choice((0, 1, 1, 2, 3)))
    return "".join(f"SET {name} = {rng.choice(SETTINGS[name])}; " for name in names)


def answers(session, table, jobs=JOBS):
    """The right answer of every job, and its seconds."""
    right, seconds = {}, {}
    for job in jobs:
        start = time.monotonic()
        outcome = session.run(f"BEGIN; {job.on(table)}", False)
        seconds[job.name] = time.monotonic() - start
        if not outcome.ok:
            raise SystemExit(f"{job.name} does not work: {outcome}")
        right[job.name] = outcome.value
        session.run("ROLLBACK", False)
    return right, seconds


# What a session may not have between two statements, as 'memory|files|progress'
LEFT = """SELECT concat_ws('|', (SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'gkmeans'),
    (SELECT count(*) FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql_tmp' || pg_backend_pid() || '.%'),
    (SELECT count(*) FROM gkmeans_progress WHERE pid = pg_backend_pid()))"""
