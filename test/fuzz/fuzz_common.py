"""What the campaigns of test/fuzz share: cases and their seeds, sessions that remember their SQL, failures.

    campaign = Campaign("problems")

    def one_case(rng):                      # a random.Random that belongs to seed and case
        session = campaign.session()        # psycopg, autocommit; remembers what it has run
        outcome = session.run("SELECT ...") # an Outcome: rows, or an error, and the notices
        campaign.check(outcome.ok, "what should be", session)

    campaign.run(one_case)                  # until the time is over; prints the counts, exits
"""
import argparse
import os
import random
import re
import sys
import time
import traceback

try:
    import psycopg
except ImportError as e:
    print(f"skipped: {e.name} is not installed")
    sys.exit(0)

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What no statement may answer, whatever it was asked
FORBIDDEN = ("XX000", "XX001", "XX002")


def ident(name):
    return '"' + name.replace('"', '""') + '"'


def literal(value):
    """A constant of SQL: None, numbers, text, and lists of them as arrays' texts."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"'{value!r}'::float8"
    if isinstance(value, (list, tuple)):
        value = array_text(value)
    return "'" + value.replace("'", "''") + "'"


def array_text(values):
    def element(v):
        if v is None:
            return "NULL"
        if isinstance(v, (list, tuple)):
            return array_text(v)
        if isinstance(v, str):
            return '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return repr(v)
    return "{" + ",".join(element(v) for v in values) + "}"


class Outcome:
    """Rows (tuples of texts), or the SQLSTATE and message of an error; and the notices."""

    def __init__(self, rows=None, state=None, message=None, detail=None, notices=()):
        self.rows, self.state, self.message, self.detail = rows, state, message, detail
        self.notices = tuple(notices)

    @property
    def ok(self):
        return self.state is None

    @property
    def value(self):
        """The only column of the only row."""
        return self.rows[0][0]

    def __eq__(self, other):
        return (self.rows, self.state, self.message) == (other.rows, other.state, other.message)

    def __str__(self):
        if not self.ok:
            return f"ERROR {self.state}: {self.message}" + (f" ({self.detail})" if self.detail else "")
        return f"{len(self.rows)} rows" + "".join("\n    " + " | ".join(map(str, r)) for r in self.rows[:20])


class Session:
    """A connection that remembers its statements. All values come back as PostgreSQL's text."""

    def __init__(self, name="", **connect):
        self.name, self.script, self.notices = name, [], []
        self.db = psycopg.connect("", autocommit=True, **connect)
        self.db.add_notice_handler(lambda d: self.notices.append((d.message_primary, d.message_detail)))
        self.pid = self.db.info.backend_pid

    def run(self, statement, remember=True):
        """Statements in one go; the rows are those of the last one."""
        if remember:
            self.script.append(statement)
        self.notices.clear()
        result = self.db.pgconn.exec_(statement.encode())
        return self._outcome(result)

    def copy(self, target, lines):
        """COPY target FROM stdin with lines of PostgreSQL's text format."""
        self.script.append(f"COPY {target} FROM stdin;\n" + "\n".join(lines) + "\n\\.")
        try:
            with self.db.cursor().copy(f"COPY {target} FROM stdin") as copy:
                copy.write("\n".join(lines) + "\n" if lines else "")
        except psycopg.Error as e:
            return Outcome(None, e.sqlstate or "08006", e.diag.message_primary or str(e))
        return Outcome([])

    def _outcome(self, result):
        field = psycopg.pq.DiagnosticField
        if result.status in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK,
                             psycopg.pq.ExecStatus.EMPTY_QUERY):
            rows = [tuple(None if (v := result.get_value(i, j)) is None else v.decode()
                          for j in range(result.nfields)) for i in range(result.ntuples)]
            return Outcome(rows, notices=self.notices)
        text = [(v.decode(errors="replace") if (v := result.error_field(f)) else None)
                for f in (field.SQLSTATE, field.MESSAGE_PRIMARY, field.MESSAGE_DETAIL)]
        if text[0] is None:  # no error of the server: the connection is gone
            text = ["08006", self.db.pgconn.error_message.decode(errors="replace").strip(), None]
        return Outcome(None, *text, notices=self.notices)

    def __str__(self):
        """What psql could run."""
        return f"-- session {self.name}\n" + \
            "".join(s + ("\n" if s.endswith("\n\\.") else ";\n") for s in self.script)

    @property
    def lost(self):
        return self.db.pgconn.status != psycopg.pq.ConnStatus.OK

    def close(self):
        self.db.close()


class Campaign:
    def __init__(self, name):
        parser = argparse.ArgumentParser(description=f"see test/fuzz/run {name}")
        parser.add_argument("--seconds", type=float, default=60)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--case", type=int, help="only this one")
        parser.add_argument("--failures", type=int, default=5, help="stop after N failures")
        self.args = parser.parse_args()
        self.name, self.seed = name, self.args.seed
        self.passed = self.failed = 0
        self.case = 0
        self.start = time.monotonic()
        self._progress = self.start

    def left(self):
        """Seconds until the time is over."""
        return self.start + self.args.seconds - time.monotonic()

    def cases(self):
        """A random.Random for each case, until the time is over or too much has failed."""
        if self.args.case is not None:
            self.case = self.args.case
            yield self.rng()
            return
        while self.left() > 0 and self.failed < self.args.failures:
            yield self.rng()
            self.case += 1

    def run(self, one_case):
        for rng in self.cases():
            try:
                one_case(rng)
            except Exception:  # pylint: disable=broad-except
                self.fail(traceback.format_exc())
        self.finish()

    def rng(self):
        return random.Random(f"{self.name} {self.seed} {self.case}")

    def session(self, name="", **connect):
        """A new session; a server that starts again after a crash gets a minute for it."""
        end = time.monotonic() + 60
        while True:
            try:
                return Session(name, **connect)
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def count(self, n=1):
        """n checks more have passed."""
        self.passed += n
        now = time.monotonic()
        if now - self._progress >= 10:
            self._progress = now
            print(f"{self.name}: case {self.case}, {self.passed} passed, {self.failed} failed, "
                  f"{now - self.start:.0f} s", file=sys.stderr, flush=True)

    def check(self, good, text, *sessions):
        """Counts, and reports what is not good. Returns good."""
        if good:
            self.count()
        else:
            self.fail(text() if callable(text) else text, *sessions)
        return good

    def sane(self, outcome, *sessions):
        """False, and a failure, for an internal error and a lost connection."""
        if outcome.ok or outcome.state not in FORBIDDEN and not outcome.state.startswith(("08", "57P")):
            return True
        self.fail(f"unexpected {outcome}", *sessions)
        return False

    def fail(self, text, *reproducers):
        """One failure: what it is, the seed, and the SQL (sessions, or texts) that shows it."""
        self.failed += 1
        print(f"not ok - {self.name}: {text}\n"
              f"    again: test/fuzz/run --seed {self.seed} --case {self.case} {self.name}", flush=True)
        script = "".join(f"{r}\n" for r in reproducers)
        if not script:
            return
        folder = os.path.join(TREE, "build", "fuzz")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self.name}-{self.seed}-{self.case}-{self.failed}.sql")
        with open(path, "w") as f:
            f.write(script)
        print(f"    SQL: {os.path.relpath(path, TREE)}; without long data:")
        short = re.sub(r"(FROM stdin;\n)(.*\n)((?:.*\n){3,}?)(\\\.)",
                       lambda m: f"{m[1]}{m[2]}... {m[3].count(chr(10))} more\n{m[4]}", script)
        print("\n".join("    | " + line[:1000] for line in short.splitlines()), flush=True)

    def finish(self):
        total = self.passed + self.failed
        print(f"{self.name}: {total} cases, {self.failed} failed, seed {self.seed}")
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not total else 0)
