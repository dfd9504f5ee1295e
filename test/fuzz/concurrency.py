"""Sessions that cluster while others write: what a snapshot sees, and what must not commit together.

In a storm threads read and write the same tables; it is random, so its failures print what the session
did and saw, not a sequence that repeats. The duels are two sessions, one statement at a time.
"""
import random
import threading
import time

from fuzz_common import Campaign

campaign = Campaign("concurrency")
ISOLATION = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
# for a conflict: isolation, whether the rows are deleted, whether that commits
WAYS = [(isolation, deleted, commit) for commit in (True, False) for deleted in (False, True) for isolation in ISOLATION]
READERS = ["SET gkmeans.reader = auto", "SET gkmeans.reader = auto; SET gkmeans.threads = 4",
           "SET gkmeans.reader = auto; SET gkmeans.workers = 2", "SET gkmeans.reader = auto; SET gkmeans.threads = 1",
           "SET gkmeans.reader = auto; SET gkmeans.workers = 3; SET gkmeans.strategy = scan"]
EXECUTOR = "RESET ALL; SET gkmeans.reader = executor"
# What a busy database may answer: serialization, deadlock, a table or column that has just gone
BUSY = ("40001", "40P01", "42P01", "42703", "55P03")

TABLES = """
DROP TABLE IF EXISTS plain, parted, other;
CREATE TABLE plain (id int, note int, x float8, y int, w float8, lab int, pad text) WITH (fillfactor = 70);
CREATE TABLE parted (id int, note int, x float8, y int, w float8, lab int, pad text) PARTITION BY HASH (id);
CREATE TABLE part0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE other (x int);
"""
ROWS = """INSERT INTO {t} (id, note, x, y, w, pad) SELECT i, nullif(i % 7, 0), nullif(i % 11, 5) + i * 1e-4, i % 3,
 i % 4, repeat('p', i % 50) FROM generate_series({first}, {last}) i"""


def calls(table):
    """Statements whose answer hangs on the rows of a table alone."""
    skip = f"'{table}', '{{x,y}}', 3"
    return [f"SELECT * FROM kmeans({skip})",
            f"SELECT * FROM kmeans({skip}, weight_column => 'w')",
            f"SELECT * FROM kmeans_labels({skip}, weight_column => 'w')",
            f"SELECT (kmeans_centroids(kmeans_fit({skip}, weight_column => 'w', standardize => true))).*",
            f"SELECT * FROM kmeans_grouped('{table}', '{{note}}', '{{x,y}}', 2) ORDER BY grp::text, cluster",
            f"SELECT inertia, silhouette FROM kmeans_scan('{table}', '{{x,y}}', 2, 3)"]


def write(rng, table):
    """A random change, often of many pages."""
    some = f"id % {rng.choice([2, 5, 17, 100])} = {rng.randrange(2)}"
    first = rng.randrange(1_000_000)
    return rng.choice([
        f"UPDATE {table} SET x = x + 1 WHERE {some}",
        f"UPDATE {table} SET pad = repeat('q', {rng.randrange(300)}) WHERE {some}",
        f"UPDATE {table} SET w = {rng.choice(['0', '1', 'NULL'])}, note = NULL WHERE {some}",
        f"DELETE FROM {table} WHERE {some}",
        ROWS.format(t=table, first=first, last=first + rng.choice([1, 50, 1000])),
        ROWS.format(t=table, first=first, last=first + 1000),
        f"BEGIN; {ROWS.format(t=table, first=first, last=first + 500)}; ROLLBACK",
        f"BEGIN; UPDATE {table} SET y = y + 1 WHERE {some}; SAVEPOINT s; DELETE FROM {table} WHERE {some}; "
        "ROLLBACK TO s; COMMIT",
        f"VACUUM {table}", f"VACUUM (FREEZE) {table}",
        f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS late float8 DEFAULT 7",
        f"ALTER TABLE {table} DROP COLUMN IF EXISTS late",
        f"TRUNCATE {table}; {ROWS.format(t=table, first=1, last=2000)}",
        f"SELECT * FROM kmeans('{table}', '{{x,y}}', 3, label_column => 'lab')",
        f"DELETE FROM {table} WHERE id NOT IN (SELECT id FROM {table} LIMIT 4000)",
    ])


class Thread(threading.Thread):
    """Steps of one session until the time is over; what it finds is told when all have ended."""

    def __init__(self, rng, name, step, end):
        super().__init__(daemon=True)
        self.rng, self.step, self.end = rng, step, end
        self.session = campaign.session(name)
        self.passed, self.found = 0, None

    def run(self):
        while time.monotonic() < self.end and not self.found:
            self.session.script.clear()
            try:
                self.found = self.step(self.rng, self.session)
            except Exception as e:  # pylint: disable=broad-except
                self.found = repr(e)
            self.passed += not self.found

    def report(self):
        campaign.count(self.passed)
        if self.found:
            campaign.fail(self.found, self.session)
        self.session.close()


def unexpected(outcome):
    """A failure for what even a busy database must not answer."""
    return None if outcome.ok or outcome.state in BUSY else f"unexpected {outcome}"


def writer(rng, s):
    table = rng.choice(["plain", "parted"])
    isolation = rng.choice(ISOLATION)
    outcome = s.run(f"SET default_transaction_isolation = '{isolation.lower()}'; SET lock_timeout = '2s'")
    for statement in write(rng, table).split("; "):
        outcome = s.run(statement)
        if not outcome.ok:
            s.run("ROLLBACK")
            break
    return unexpected(outcome)


def snapshot(rng, s):
    """In one snapshot all ways of reading give the executor's answer."""
    call = rng.choice(calls(rng.choice(["plain", "parted"])))
    s.run(f"{EXECUTOR}; BEGIN ISOLATION LEVEL {rng.choice(ISOLATION[1:])}")
    expected = s.run(call)
    for reader in rng.sample(READERS, 2):
        if not expected.ok:
            break
        s.run("RESET ALL; " + reader)
        got = s.run(call)
        if got != expected and (got.ok or got.state not in BUSY):
            return f"got {got}\n  the executor in the same snapshot {expected}"
    s.run("ROLLBACK")
    return unexpected(expected)


def statement(rng, s):
    """All parts of a statement see the same rows, under READ COMMITTED, too."""
    t = rng.choice(["plain", "parted"])
    s.run("RESET ALL; " + rng.choice(READERS))
    got = s.run(rng.choice([
        f"SELECT (SELECT coalesce(sum(size), 0) FROM kmeans('{t}', '{{x,y}}', 3, weight_column => 'w')) = "
        f"(SELECT count(*) FROM {t} WHERE x IS NOT NULL AND y IS NOT NULL AND w > 0)",
        f"SELECT count(*) = (SELECT count(*) FROM {t}) AND bool_and((l.cluster IS NULL) = (t.x IS NULL OR t.y IS NULL)) "
        f"IS NOT FALSE FROM kmeans_labels('{t}', '{{x,y}}', 3) l JOIN {t} t ON t.tableoid = l.tableoid AND t.ctid = l.ctid",
    ]))
    return unexpected(got) or (None if not got.ok or got.value == "t" else "rows of another snapshot")


def limited(rng, s):
    """SERIALIZABLE: who sees fewer than 20 rows adds one. So there are never more."""
    call = rng.choice(["SELECT coalesce(sum(size), 0) FROM kmeans('{t}', '{{x}}', 2)",
                       "SELECT count(*) FROM kmeans_labels('{t}', '{{x}}', 2)",
                       "SELECT coalesce(sum(size), 0) FROM kmeans_grouped('{t}', '{{g}}', '{{x}}', 2)"])
    t = rng.choice(["few", "few_parted"])
    s.run("RESET ALL; " + rng.choice(READERS) + "; BEGIN ISOLATION LEVEL SERIALIZABLE")
    seen = s.run(call.format(t=t))
    if seen.ok and int(seen.value) > 20:
        return f"{seen.value} rows in {t}, more than any serial order allows"
    if seen.ok and int(seen.value) < 20:
        seen = s.run(f"INSERT INTO {t} VALUES ({rng.randrange(100)}, {rng.randrange(9)})")
    elif seen.ok and rng.random() < 0.3:
        seen = s.run(f"DELETE FROM {t}")
    done = s.run("COMMIT" if seen.ok else "ROLLBACK")
    return unexpected(seen) or unexpected(done)


def storm(rng):
    setup = campaign.session()
    setup.run(TABLES + ROWS.format(t="plain", first=1, last=3000) + ";" + ROWS.format(t="parted", first=1, last=3000))
    setup.run("DROP TABLE IF EXISTS few, few_parted; CREATE TABLE few (x int, g int); "
              "CREATE TABLE few_parted (x int, g int) PARTITION BY RANGE (x);"
              "CREATE TABLE few0 PARTITION OF few_parted FOR VALUES FROM (0) TO (50);"
              "CREATE TABLE few1 PARTITION OF few_parted FOR VALUES FROM (50) TO (100)")
    setup.close()
    end = time.monotonic() + min(5, max(1, campaign.left()))
    steps = [writer, writer, snapshot, snapshot, statement, limited, limited, limited]
    threads = [Thread(random.Random(rng.random()), f"{step.__name__} {i}", step, end) for i, step in enumerate(steps)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for t in threads:
        t.report()


# ---- two sessions, one statement at a time ----

def skew(rng):
    """SERIALIZABLE: A clusters t and writes to u, B counts u and writes to t. Not both may commit."""
    a, b = campaign.session("A"), campaign.session("B")
    rows = rng.choice([0, 0, 1, 5, 300])
    parted = rng.random() < 0.5
    b.run("DROP TABLE IF EXISTS t, u, one; CREATE TABLE u (x int); CREATE TABLE one AS SELECT 1.0::float8 AS x; "
          "CREATE TABLE t (x float8, g int, lab int)" +
          (" PARTITION BY RANGE (x); CREATE TABLE t0 PARTITION OF t FOR VALUES FROM (-100) TO (0); "
           "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000)" if parted else ""))
    b.run(f"INSERT INTO t SELECT i, i % 3 FROM generate_series(1, {rows}) i")
    read = rng.choice(["* FROM kmeans('t', '{x}', 2)", "kmeans_fit('t', '{x}', 2)", "* FROM kmeans_labels('t', '{x}', 2)",
                       "* FROM kmeans('t', '{x}', 2, label_column => 'lab')", "* FROM kmeans_grouped('t', '{g}', '{x}', 2)",
                       "kmeans_step('t', '{x}', kmeans_fit('one', '{x}', 1))",
                       "* FROM kmeans_labels('t', kmeans_fit('one', '{x}', 1))",
                       "* FROM kmeans_evaluate(kmeans_fit('one', '{x}', 1), 't')",
                       "* FROM kmeans_label_table('t', '{x}', 2, 'pg_temp.labelled', '{g}')",
                       "k FROM kmeans_scan('t', '{x}', 2, 3)"])
    reader = rng.choice(READERS + [EXECUTOR])
    a.run(reader)
    for s in (a, b):
        s.run("BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL lock_timeout = '5s'")
    # -5 goes to a partition that is empty
    change = rng.choice(["INSERT INTO t VALUES (-5, 0)", "INSERT INTO t VALUES (7, 0)"] +
                        (["DELETE FROM t WHERE x = 1"] if rows and "label_column" not in read else []))
    order = [(a, f"SELECT {read}"), (b, "SELECT count(*) FROM u"), (a, "INSERT INTO u VALUES (1)"), (b, change)]
    if rng.random() < 0.5:
        order[0], order[1] = order[1], order[0]
    order += rng.sample([(a, "COMMIT"), (b, "COMMIT")], 2)
    outcomes = [s.run(statement) for s, statement in order]
    failed = [o for o in outcomes if not o.ok]
    if all(campaign.sane(o, a, b) for o in outcomes):
        campaign.check(any(o.state == "40001" for o in failed), f"write skew has committed: {read}, {change}, {rows} rows, "
                       f"{reader}", a, b, "-- in this order: " + "; ".join(f"{s.name}: {t}" for s, t in order))
    a.close()
    b.close()


def conflict(rng):
    """label_column meets rows that another session has changed and not committed."""
    a, b = campaign.session("A"), campaign.session("B")
    n = rng.choice([5, 300])
    b.run("DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, x float8, v int, lab int)")
    b.run(f"INSERT INTO t SELECT i, (i % 3) * 100 + i * 0.001, 0, nullif(i % 5, 1) FROM generate_series(1, {n}) i")
    model = b.run("SELECT kmeans_fit('t', '{x}', 3)").value
    expected = dict(b.run(f"SELECT id, kmeans_predict('{model}', x) FROM t").rows)
    # each in turn, so that a short run has them all
    isolation, deleted, commit = WAYS[campaign.case // 3 % len(WAYS)]
    modulus = rng.choice([2, 3, n])
    chosen = {str(i) for i in range(modulus, n + 1, modulus)}
    b.run("BEGIN")
    b.run(("DELETE FROM t" if deleted else f"UPDATE t SET v = 1, x = x + {rng.choice([0, 1000])}") +
          f" WHERE id % {modulus} = 0")
    a.run(rng.choice(READERS + [EXECUTOR]))
    a.run(f"BEGIN ISOLATION LEVEL {isolation}")
    answer, blocked = [], False
    call = threading.Thread(target=lambda: answer.append(a.run("SELECT * FROM kmeans('t', '{x}', 3, label_column => 'lab')")))
    call.start()
    while not blocked and call.is_alive():
        blocked = b.run(f"SELECT count(*) FROM pg_locks WHERE pid = {a.pid} AND NOT granted", remember=False).value != "0"
        time.sleep(0.002)
    b.run("COMMIT" if commit else "ROLLBACK")
    call.join()
    a.run("COMMIT")
    if campaign.sane(answer[0], a, b):
        if blocked and commit and isolation != "READ COMMITTED":
            campaign.check(answer[0].state == "40001", f"{isolation}: a changed row was labelled: {answer[0]}", a, b)
        else:
            changed = chosen if commit else set()
            wanted = {(i, label, "1" if i in changed else "0") for i, label in expected.items()
                      if not (deleted and i in changed)}
            got = set(b.run("SELECT id, lab, v FROM t").rows)
            campaign.check(answer[0].ok and got == wanted, f"{isolation}, {answer[0]}: rows (id, label, v) "
                           f"{sorted(got - wanted)[:5]}, expected {sorted(wanted - got)[:5]}", a, b)
    a.close()
    b.close()


def one_case(rng):
    if campaign.case % 10 == 9:
        storm(rng)
    else:
        (skew if campaign.case % 3 else conflict)(rng)


campaign.session().run("CREATE EXTENSION IF NOT EXISTS gkmeans")
campaign.run(one_case)
