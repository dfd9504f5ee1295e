"""kill -9 of backends, parallel workers and the server's own processes, and immediate stops, at random moments.

Sessions write labels, each with a row that says which, and run everything else. After each
recovery every table has the labels of the last transaction that was committed, and of no other;
nothing is left of temporary files and shared memory; answers are right.
"""
import os
import signal
import threading
import time

from faults import JOBS, SETUP, Server, answers, make_models, make_pages, make_table, some_settings
from fuzz_common import Campaign

SESSIONS = 3
ROWS = 12000
RECOVERY = 60.0  # seconds, on any machine
LABELS = "SELECT hash(string_agg(label::text, ' ' ORDER BY id)) FROM"

campaign = Campaign("kills")
lock = threading.Lock()


def starts(k):
    """Initial centroids, with which the order of the rows makes no difference."""
    return "{" + ",".join(f"{{{-1 + 2 * i / k},{1 - 2 * i / k},{i / k},{(i * 3 % k) / k}}}" for i in range(k)) + "}"


def labelling(table, k):
    return f"SELECT FROM kmeans('{table}', '{{a,b,c,d}}', {k}, 'label', centroids => '{starts(k)}', max_iter => 3)"


class Writer(threading.Thread):
    """A session that works until it is lost."""

    def __init__(self, number, rng, acknowledged, right):
        super().__init__(daemon=True)
        self.table, self.rng, self.acknowledged, self.right = f"t{number}", rng, acknowledged, right
        self.session = campaign.session(self.table)
        self.session.run("SET client_min_messages = error")
        self.trouble = None

    def write(self):
        k = self.rng.randint(2, 6)
        n = self.acknowledged[self.table][1] + 1
        return (k, n), (f"{some_settings(self.rng)}BEGIN; {labelling(self.table, k)}; "
                        f"UPDATE done SET k = {k}, n = {n} WHERE t = '{self.table}'; COMMIT; RESET ALL")

    def read(self):
        if self.rng.random() < 0.4:  # for long enough, by workers
            return None, ("SET gkmeans.reader = heap; SET gkmeans.workers = 2; "
                          "SELECT count(*) FROM kmeans('pages', '{a,b,c,d}', 1, max_iter => 1)")
        job = self.rng.choice(JOBS)
        return job, f"{some_settings(self.rng)}BEGIN; {job.on('pts')}"

    def run(self):
        while True:
            writes = self.rng.random() < 0.5
            what, statement = self.write() if writes else self.read()
            self.tried = what if writes else None
            outcome = self.session.run(statement)
            if outcome.ok:
                if writes:
                    self.acknowledged[self.table] = what
                elif what is not None and outcome.value != self.right[what.name]:
                    self.trouble = f"another answer of {what.name}"
                self.session.run("ROLLBACK; RESET ALL; SET client_min_messages = error", False)
            elif outcome.state == "40P01" and what is not None and getattr(what, "name", "") == "new column":
                self.session.run("ROLLBACK; RESET ALL", False)  # two add it at the same time
            elif not outcome.state.startswith(("08", "57P0")):
                self.trouble = f"{outcome}"
                self.session.run("ROLLBACK; RESET ALL", False)
            if self.session.lost:
                return
            del self.session.script[1:]


def child(server, rng, before):
    """A process to kill: half of the time a parallel worker, if one begins soon; else a session, or one of the server's own."""
    wish = rng.random()
    end = time.monotonic() + 0.5
    if wish < 0.4:
        while time.monotonic() < end:
            new = [pid for pid in server.child_pids() if pid not in before]
            if new:
                return "parallel worker", rng.choice(new)
            time.sleep(0.001)
    title = {pid: title for pid, title in server.children()}
    sessions = [pid for pid in title if "[local]" in title[pid]]
    pid = rng.choice(sessions if wish < 0.9 else list(title))
    return title[pid], pid


def disturb(server, rng, writers, before):
    """Ends the server's work in one of the ways; which."""
    time.sleep(rng.uniform(0, 0.3))
    if rng.random() < 0.1:
        server.stop("immediate")
        campaign.check(server.start(), "the server does not start after an immediate stop")
        return "immediate stop"
    while True:
        what, pid = child(server, rng, before)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        # a worker may have ended by itself, and the server has nothing to recover from
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if not any(w.is_alive() for w in writers):
                return f"kill -9 of {what}"
            time.sleep(0.002)


def recovered(server, label, writers, acknowledged, labels, right, rng):
    """Nothing is left, nothing is half done; the next round's first session."""
    session = campaign.session("after")
    campaign.check(session.run("SELECT 1", False).ok, f"{label}: no answer", session)
    session.run("SET client_min_messages = error", False)
    left = server.temporary()
    campaign.check(not left, f"{label}: files are left: {left}")
    campaign.check(session.run("SELECT count(*) FROM gkmeans_progress", False).value == "0",
                   f"{label}: gkmeans_progress has rows", session)
    for w in writers:
        campaign.check(w.trouble is None, f"{label}: {w.trouble}", w.session)
        k, n = (int(v) for v in session.run(f"SELECT k, n FROM done WHERE t = '{w.table}'", False).rows[0])
        # a commit that was under way may have been done
        campaign.check((k, n) in (acknowledged[w.table], w.tried), f"{label}: {w.table} is at {n}, k = {k}, but "
                       f"{acknowledged[w.table]} was committed and {w.tried} tried", w.session)
        acknowledged[w.table] = (k, n)
        got = session.run(f"{LABELS} {w.table}")
        campaign.check(got.ok and got.value == labels[k], f"{label}: {w.table} has not the labels of k = {k}: {got}", w.session)
        rows = session.run(f"SET enable_seqscan = off; SELECT count(*) FROM {w.table} WHERE id > 0", False)
        campaign.check(rows.ok and rows.value == str(ROWS), f"{label}: {w.table} has {rows}", w.session)
        session.run("RESET ALL; SET client_min_messages = error", False)
        if rng.random() < 0.2:
            session.run(f"VACUUM {w.table}", False)
    job = rng.choice(JOBS)
    again = session.run(f"BEGIN; {job.on('pts')}")
    campaign.check(again.ok and again.value == right[job.name], f"{label}: {job.name} afterwards: {again}", session)
    session.close()


def main():
    first = campaign.session("first")
    server = Server(first)
    first.close()
    server.restart()
    first = campaign.session("first")
    tables = [f"t{i}" for i in range(SESSIONS)]
    for statement in (SETUP, make_table("pts"), make_models("pts"), make_pages("pts"),
                      "CREATE TABLE done (t text PRIMARY KEY, k int, n int)", "VACUUM ANALYZE"):
        campaign.sane(first.run(statement, False))
    right, _ = answers(first, "pts")
    labels, acknowledged = {}, {}
    for t in tables:
        for statement in (make_table(t, ROWS), f"ALTER TABLE {t} ADD PRIMARY KEY (id)", f"INSERT INTO done VALUES ('{t}', 6, 0)"):
            first.run(statement, False)
        for k in range(2, 7):
            first.run(labelling(t, k), False)
            labels.setdefault(k, first.run(f"{LABELS} {t}", False).value)
        acknowledged[t] = (6, 0)
        first.run(f"VACUUM ANALYZE {t}", False)
    if len(set(labels.values())) < 5:
        raise SystemExit("labels of different k do not differ")
    first.close()
    kinds, slowest = {}, 0
    campaign.start = time.monotonic()  # all that was no attack
    for rng in campaign.cases():
        writers = [Writer(i, type(rng)(rng.random()), acknowledged, right) for i in range(SESSIONS)]
        before = set(server.child_pids())
        for w in writers:
            w.start()
        label = disturb(server, rng, writers, before)
        start = time.monotonic()
        for w in writers:
            w.join(RECOVERY)
            if not campaign.check(not w.is_alive(), f"{label}: a session does not end", w.session):
                campaign.finish()
            w.session.close()
        recovered(server, label, writers, acknowledged, labels, right, rng)
        slowest = max(slowest, time.monotonic() - start)
        kind = "session" if "[local]" in label else "parallel worker" if "parallel worker" in label else label.split(": ")[-1]
        kinds[kind] = kinds.get(kind, 0) + 1
    with open(server.log, errors="replace") as f:
        bad = [line.rstrip() for line in f if any(w in line for w in ("PANIC:", "TRAP:", "Segmentation", "signal 6"))]
    campaign.check(not bad, f"the log has {bad[:5]}")
    print(f"{sum(kinds.values())} kills: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))
    print(f"the slowest recovery, with its checks, took {slowest:.1f} s")
    campaign.finish()


main()
