"""Random SQL problems: every function of gkmeans on random tables, with random options and settings.

What the executor, one thread and plain C answer is checked by numpy. What any other settings,
functions and ways of asking answer must then be equal, as text.
"""
from collections import Counter
import json
import math
import re
from xml.etree import ElementTree

import numpy as np

from fuzz_common import ident, literal
from problem_attack import FIRST, PLAIN, SETTINGS, Attack, campaign, floats, problem, problems
from problem_oracle import close
from problem_tables import SHAPES, Table
import problem_after  # noqa: F401 - whose problems join these
import problem_balanced  # noqa: F401
import problem_manhattan  # noqa: F401
import problem_mixed  # noqa: F401
import problem_nulls  # noqa: F401
import problem_partial  # noqa: F401
import problem_sums  # noqa: F401

# What a model says of how and how fast it was made
VOLATILE = ("device", "strategy", "load_ms", "context_ms", "upload_ms", "seed_ms", "iterate_ms", "total_ms")

def model_text(text):
    """What of a model must not depend on settings."""
    if text is None:
        return None
    model = json.loads(text, parse_float=str, parse_int=str)
    return json.dumps({k: v for k, v in model.items() if k not in VOLATILE}, sort_keys=True)


# ---- the same answer by other ways ----

@problem(4)
def clusters(a):
    a.same(a.s.run(a.call("kmeans")), a.clusters, "kmeans under other settings")


@problem(3)
def fit(a):
    got = a.s.run(a.call("kmeans_fit", what="kmeans_fit"))
    if not campaign.sane(got, a.s):
        return
    if got.ok and a.fit.ok:
        a.check(model_text(got.value) == model_text(a.fit.value), "kmeans_fit under other settings")
    else:
        a.same(got, a.fit, "kmeans_fit under other settings")


@problem(4)
def labels(a):
    if a.labels and a.t.has_ctid:
        a.same(a.s.run(a.call("kmeans_labels")), a.labels, "kmeans_labels under other settings")


@problem(3)
def label_column(a):
    t = a.t
    if not t.writable or not a.labels:
        return
    column = t.label or "new_label"
    a.s.run("BEGIN")
    # what an UPDATE sets off: triggers, and rules, which may be refused
    if a.rng.random() < 0.1:
        a.s.run(f"CREATE TRIGGER again BEFORE UPDATE ON {t.base} FOR EACH ROW "
                "EXECUTE FUNCTION suppress_redundant_updates_trigger()")
    logged = t.label and a.rng.random() < 0.2
    if logged:
        a.s.run(f"CREATE TABLE ids AS SELECT id FROM {t.relation}; CREATE TABLE log (id int, label int); "
                f"CREATE RULE write AS ON UPDATE TO {t.base} DO ALSO INSERT INTO log " +
                a.rng.choice([f"VALUES (new.id, new.{ident(column)})",
                              f"SELECT i.id, new.{ident(column)} FROM ids i WHERE i.id = new.id"]))
    got = a.s.run(a.call("kmeans", label_column=column))
    if logged and a.clusters.ok and got.state in ("0A000", "42809"):
        campaign.count()
    elif a.same(got, a.clusters, "kmeans with label_column") and got.ok:
        expected = a.by_id()
        written = a.s.run(f"SELECT id, {ident(column)} FROM {t.relation}")
        a.check(dict(written.rows or ()) == expected, "label_column and kmeans_labels differ")
        if logged:
            a.check(set(a.s.run("SELECT * FROM log").rows) <= set(expected.items()), "labels that a rule has got")
    a.s.run("ROLLBACK")


@problem()
def label_table(a):
    if not a.labels or not a.t.has_ctid:
        return
    a.s.run("BEGIN")
    got = a.s.run(a.call("kmeans_label_table", between=", 'labelled', '{id}'"))
    if a.same(got, a.clusters, "kmeans_label_table") and got.ok:
        expected = a.by_id()
        written = a.s.run("SELECT * FROM labelled ORDER BY ctid")  # a parallel scan has another order
        a.check(written.rows == [(i, expected[i]) for i in a.rows.id], "kmeans_label_table and kmeans_labels differ")
    a.s.run("ROLLBACK")


@problem(2)
def predict(a):
    if not a.model or not a.t.has_ctid:
        return
    point = a.t.point() if a.t.array or a.rng.random() < 0.5 else ", ".join(f"t.{ident(c)}" for c in a.t.features)
    got = a.s.run(f"WITH m AS MATERIALIZED (SELECT {a.model['text']} AS m), l AS MATERIALIZED ({a.call('kmeans_labels')})\n"
                  f"SELECT count(*) FROM {a.t.relation} t JOIN l ON l.tableoid = t.tableoid AND l.ctid = t.ctid, m\n"
                  "WHERE l.cluster IS NOT NULL AND (l.cluster, l.distance) IS DISTINCT FROM "
                  f"(kmeans_predict(m, {point}), kmeans_distance(m, {point}))")
    if campaign.sane(got, a.s):
        a.check(got.ok and got.value == "0", f"rows whose kmeans_predict or kmeans_distance is not kmeans_labels': {got}")


@problem()
def labels_of_model(a):
    if not a.model or not a.labels or a.weighted:
        return
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    got = a.s.run(f"SELECT * FROM kmeans_labels({a.t.regclass}, {a.model['text']}{nonfinite})")
    a.same(got, a.labels, "kmeans_labels of the model")


@problem()
def transform(a):
    if not a.model:
        return
    for i in a.rng.sample(range(len(a.x)), min(3, len(a.x))):
        point = literal(a.x[i].tolist()) + "::float8[]"
        got = a.s.run(f"SELECT kmeans_transform(m, {point}), kmeans_predict(m, {point}), kmeans_distance(m, {point}) "
                      f"FROM (SELECT {a.model['text']} AS m) m")
        if not campaign.sane(got, a.s) or not a.check(got.ok, f"kmeans_transform: {got}"):
            return
        away, (label, distance) = floats(got.value[:]), got.rows[0][1:]
        value, slack = a.oracle.original(a.distance[i], a.bound[i])
        a.check((np.abs(away - value) <= slack).all() and away[int(label)] == float(distance) == away.min(),
                f"kmeans_transform {away}, label {label}, distance {distance}; numpy has {value} +- {slack}")


@problem()
def warm_start(a):
    """From the fit's own centroids, given either way."""
    if not a.model:
        return
    k = len(a.size)
    drop = ("init", "centroids", "n_init", "seed")
    start = f"SELECT * FROM kmeans({a.t.regclass}, {a.t.names}, {k}{a.arguments(drop=drop)}, "
    model = a.s.run(start + f"warm_start => {a.model['text']})")
    given = a.s.run(start + f"centroids => {literal(a.centroids.tolist())}::float8[])")
    if campaign.sane(model, a.s):
        a.same(given, model, "centroids and warm_start")


@problem()
def copies(a):
    """The same rows as a plain table; with given centroids in any order, too."""
    if not a.ordered and a.t.kind == "view":
        return
    by = " ORDER BY md5(id::text)" if a.ordered and not a.error else ""
    a.s.run("BEGIN; SET LOCAL max_parallel_workers_per_gather = 0")
    a.s.run(f"CREATE TABLE copy AS SELECT * FROM {a.t.relation}{by}")
    a.same(a.s.run(a.call("kmeans", relation="'copy'::regclass")), a.clusters, "a copy of the table")
    a.s.run("ROLLBACK")


@problem()
def uncommitted(a):
    """Rows that this transaction has changed and not yet committed."""
    if not a.t.writable:
        return
    some = f"id % {a.rng.choice([2, 5, 20])} = {a.rng.randrange(2)}"
    call = a.call(a.rng.choice(["kmeans", "kmeans_labels"]))
    a.s.run("BEGIN")
    a.s.run(f"UPDATE {a.t.base} SET id = id WHERE {some}; SAVEPOINT s; DELETE FROM {a.t.base} WHERE NOT {some}" +
            a.rng.choice(["", "; ROLLBACK TO s"]) + "; SAVEPOINT s")
    got = a.s.run(call)
    a.s.run("ROLLBACK TO s; SET gkmeans.reader = executor")
    a.same(got, a.s.run(call), "kmeans of uncommitted changes and the executor's")
    a.s.run("ROLLBACK")


REFUSED = [  # what to write instead of what, and the answer
    (dict(k=0), "22023", "k must be at least 1, not 0"),
    (dict(k=1000001), "54000", "k must be at most 1000000, not 1000001"),
    (dict(n_init=0), "22023", "n_init must be at least 1, not 0"),
    (dict(max_iter=-3), "22023", "max_iter must be at least 0, not -3"),
    (dict(tol=-1.0), "22023", "tol must be finite and at least 0, not -1"),
    (dict(tol=math.inf), "22023", "tol must be finite and at least 0, not"),
    (dict(init="best"), "22023", 'invalid value for init: "best"'),
    (dict(distance="chebyshev"), "22023", 'invalid value for distance: "chebyshev"'),
    (dict(nonfinite="ignore"), "22023", 'invalid value for nonfinite: "ignore"'),
    (dict(nulls="median"), "22023", 'invalid value for nulls: "median"'),
    (dict(weight_column="nowhere"), "42703", 'column "nowhere" of relation'),
    (dict(nonfinite=None), "22004", "nonfinite must not be NULL"),
]


@problem()
def refused(a):
    change, state, message = a.rng.choice(REFUSED)
    a.k, k = change.get("k", a.k), a.k
    call = a.call(a.rng.choice(["kmeans", "kmeans_fit", "kmeans_labels"] if a.t.has_ctid else ["kmeans", "kmeans_fit"]),
                  **{name: v for name, v in change.items() if name != "k"})
    a.k = k
    got = a.s.run(call)
    # options that contradict each other are an error, too
    right = [(state, message)] + [a.error] * bool(a.error)
    a.check(any(got.state == s and got.message.startswith(m) for s, m in right), f"expected {state} {message}, got {got}")


@problem()
def spectral(a):
    """Clusters of representatives: no setting changes them, and they have all rows."""
    if not a.model or "centroids" in a.options:
        return
    representatives = a.rng.choice((2, 3, 8, 30))
    more = a.rng.choice(("", ", affinity => 'rbf'", ", laplacian => 'random_walk'", ", laplacian => 'unnormalized'"))
    query = ("SELECT sum(size), string_agg(c::text, ' ' ORDER BY cluster), max(eigenvalues::text), min(k_by) FROM "
             f"(SELECT kmeans_spectral_fit({a.t.regclass}, {a.t.names}, {a.rng.choice(('NULL', 1, 2))}, {representatives}, "
             f"neighbors => {a.rng.choice((1, 3, 10))}{more}{a.arguments()}) AS m OFFSET 0) f, kmeans_centroids(m) c, kmeans_info(m)")
    got = a.s.run(query)
    a.settings(dict(PLAIN))
    expected = a.s.run(query)
    if campaign.sane(expected, a.s) and a.same(got, expected, "kmeans_spectral_fit") and got.ok:
        a.check(got.rows[0][0] == str(len(a.x)), f"clusters of {got.rows[0][0]} rows, not {len(a.x)}")


# ---- groups ----

def agg_options(a):
    text = a.arguments(drop=("weight_column",))
    return f", kmeans_options({text[2:]})" if text else ""


@problem(3)
def grouped(a):
    """Groups are those of kmeans_agg, and rows of other settings are the same in any order."""
    if a.error:
        return
    more = [] if "groups" in a.t.shape else [c.name for c in a.t.columns if c.name in ("note", "flag", a.t.label)]
    g = [a.t.group] + [name for name in more if a.rng.random() < 0.5]
    columns = literal(g) + "::text[]"
    call = f"SELECT * FROM kmeans_grouped({a.t.regclass}, {columns}, {a.t.names}, {a.k}{a.arguments()})"
    got = a.s.run(call)
    if not campaign.sane(got, a.s):
        return
    if len(g) == 1 and got.ok:
        sizes = Counter()
        for row in got.rows:
            sizes[json.loads(row[0])[g[0]]] += int(row[2])
        wanted = Counter(group for group, kept in zip(a.rows.group, a.kept) if kept)
        a.check({str(key) for key in sizes} == {str(key) for key in wanted} and sorted(sizes.values()) == sorted(wanted.values()),
                f"kmeans_grouped: rows of groups {sizes}, expected {wanted}")
    if a.weighted:
        a.settings(dict(PLAIN))
        expected = a.s.run(call)
    else:
        expected = a.s.run(f"SELECT grp, c.* FROM (SELECT jsonb_build_object({', '.join(f'{literal(c)}, {ident(c)}' for c in g)}) "
                           f"AS grp, kmeans_agg({a.t.point()}, {a.k}{agg_options(a)}) AS m FROM {a.t.relation} t GROUP BY 1) m, "
                           "kmeans_centroids(m) c")
    if got.ok and expected.state == "22003" and " is Infinity" in expected.message:
        return  # kmeans_agg makes a model, which cannot have that
    if campaign.sane(expected, a.s):
        for outcome in (got, expected):
            outcome.rows = sorted(outcome.rows, key=str) if outcome.ok else None
        a.same(got, expected, "kmeans_grouped")


@problem(3)
def window(a):
    """Labels per partition are those that kmeans_agg's models predict."""
    if a.error or a.weighted or a.skip and (~a.kept & ~a.rows.null).any() or not a.t.has_ctid or \
            (~np.isfinite(a.rows.x)).any() or np.abs(a.x).max(initial=0) > 1e150:
        return
    g, point = ident(a.t.group), a.t.point()
    given = a.options.get("centroids") if not a.cosine else None
    third = f", {literal(given)}::float8[]" if given else ""
    options = f", kmeans_options(centroids => {literal(given)}::float8[])" if given else ""
    # other columns come through the window's node, and points may go to files on the way
    kept_as = a.rng.choice([("text", "numeric"), ()])  # other than the rest, which are passed by value
    others = "".join(f", t.{ident(c.name)}" for c in a.t.columns
                     if c.name not in ["id"] + a.t.features and c.type not in kept_as and a.rng.random() < 0.7)
    relation = a.t.relation
    if a.rng.random() < 0.4:
        times = max(1, min(50, 30000 // max(1, a.rows.n * a.t.d)))
        relation = f"(SELECT t.* FROM {relation} t, generate_series(1, {times}))"
        a.s.run("SET gkmeans.memory_limit = '64kB'")
    got = a.s.run(f"SELECT id, kmeans({point}, {a.k}{third}) OVER (PARTITION BY {g}) AS cluster{others} FROM {relation} t")
    if not campaign.sane(got, a.s):
        return
    expected = a.s.run(f"SELECT id, kmeans_predict(m, {point}){others} FROM {relation} t JOIN (SELECT {g} AS grp, "
                       f"kmeans_agg({point}, {a.k}{options}) AS m FROM {relation} t GROUP BY 1) m "
                       f"ON m.grp IS NOT DISTINCT FROM t.{g}")
    if campaign.sane(expected, a.s):
        a.check(got.ok and expected.ok and sorted(got.rows, key=str) == sorted(expected.rows, key=str),
                f"kmeans() OVER: {got}\n  expected {expected}")


# ---- choosing k ----

@problem()
def scan(a):
    if not a.model or a.ordered:
        return
    k = min(a.k, 8)
    got = a.s.run(f"SELECT k, inertia, iterations, converged FROM kmeans_scan({a.t.regclass}, {a.t.names}, "
                  f"{max(1, k - 2)}, {k}{a.arguments()}, sample => 50)")
    if not campaign.sane(got, a.s) or a.out_of_range(got) or not a.check(got.ok, f"kmeans_scan: {got}"):
        return
    for row in got.rows:
        one = a.s.run(f"SELECT inertia, iterations, converged FROM kmeans_info(kmeans_fit({a.t.regclass}, {a.t.names}, "
                      f"{row[0]}{a.arguments()}))")
        a.check(one.ok and one.rows == [row[1:]], f"kmeans_scan says {row}, kmeans_fit {one}")


@problem()
def evaluate(a):
    if not a.model or a.weighted:
        return
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    got = a.s.run(f"SELECT rows, inertia FROM kmeans_evaluate({a.model['text']}, {a.t.regclass}, sample => 20{nonfinite})")
    if not campaign.sane(got, a.s) or a.out_of_range(got) or \
            not a.check(got.ok and got.value == str(len(a.x)), f"kmeans_evaluate: {got}"):
        return
    value, slack, exponent = a.oracle.inertia(a.distance.min(axis=1), a.bound.max(axis=1))
    a.check(close(float(got.rows[0][1]), value, slack, exponent),
            f"kmeans_evaluate has inertia {got.rows[0][1]}, numpy {value} +- {slack} times 2^{exponent}")


@problem()
def svg(a):
    """Pictures are XML without numbers that are none."""
    if a.error or not len(a.x):
        return
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    if a.model and not a.weighted and a.rng.random() < 0.5:
        call = f"kmeans_svg({a.model['text']}, {a.t.regclass}, points => 50{nonfinite})"
    elif a.ordered:
        return
    else:
        call = f"kmeans_scan_svg({a.t.regclass}, {a.t.names}, 1, {min(a.k, 5)}{a.arguments()}, sample => 50)"
    got = a.s.run("SELECT " + call)
    if campaign.sane(got, a.s) and not a.out_of_range(got) and a.check(got.ok, f"a picture: {got}"):
        ElementTree.fromstring(got.value)
        a.check(not re.search(r"[ \"]-?(nan|inf)", got.value, re.I), lambda: "numbers of a picture: " +
                re.search(r".{0,60}[ \"]-?(nan|inf).{0,20}", got.value, re.I)[0])


def one_case(rng):
    """A table in a session of its own, and some sets of options."""
    session = campaign.session()
    session.run("CREATE SCHEMA attacked; " + FIRST)
    try:
        shape = SHAPES[campaign.case] if campaign.case < len(SHAPES) else rng.choice(SHAPES) if rng.random() < 0.3 else {}
        table = Table(rng, session, shape)
        rows = table.read()
        made = list(session.script)
        for _ in range(2):
            session.script[:] = made
            attack = Attack(rng, session, table, rows)
            if not attack.begin():
                continue
            base = list(session.script)
            for do in rng.sample(problems, 10):
                session.script[:] = base
                attack.settings()
                before = campaign.failed
                do(attack)
                if session.lost or campaign.failed > before:
                    return
    finally:
        session.close()
        with_new = campaign.session()
        with_new.run("DROP SCHEMA attacked CASCADE")
        with_new.close()


def main():
    session = campaign.session()
    session.run("CREATE EXTENSION IF NOT EXISTS gkmeans; CREATE TABLE one AS SELECT 1 AS x; "
                "ALTER ROLE CURRENT_USER SET statement_timeout = '30s'")  # what hangs is an answer, too
    simd = [s for s in ("scalar", "avx2", "avx512f", "avx512", "neon")
            if session.run(f"SET gkmeans.simd = {s}; SELECT * FROM kmeans('one', '{{x}}', 1)").ok]
    session.close()
    SETTINGS["gkmeans.simd"] = simd
    campaign.run(one_case)


main()
