"""nulls => 'mean' on the random tables: the clusters of a copy that was filled in here, with exact means."""
import numpy as np

from fuzz_common import array_text, ident, literal
from problem_attack import campaign, problem
from problem_oracle import exact_sum


def fill(a):
    """(rows that count, their features with means); the means are None where a column has none."""
    r = a.rows
    used = ~r.no_array & ~(r.no_weight if a.weighted else np.zeros(r.n, bool)) & np.isfinite(r.x).all(axis=1)
    x = r.x[used]
    empty = r.empty[used]
    means = []
    for j in range(a.t.d):
        values = x[~empty[:, j], j].tolist()
        total = exact_sum(values)
        if not values or total is None:
            return used, x, None if not values and len(x) else "out of range"
        # the quotient of equal values may be their neighbour
        means.append(values[0] + 0.0 if len(set(values)) == 1 else total / len(values))
    return used, np.where(empty, np.array(means).reshape(1, -1), x), means


def store(a, used, x):
    """The filled rows as a table, each with its place in the relation."""
    t = a.t
    columns = [f"{ident(t.features[0])} float8[]"] if t.array else [f"{ident(c)} float8" for c in t.features]
    if t.weight:
        columns.append(f"{ident(t.weight)} float8")
    a.s.run(f"CREATE TABLE filled (place text, {', '.join(columns)})")
    lines = []
    for i, row in zip(np.flatnonzero(used), x.tolist()):
        values = [a.rows.place[i] or "", *([array_text(row)] if t.array else map(repr, row))]
        if t.weight:
            values.append("\\N" if np.isnan(a.rows.w[i]) else repr(float(a.rows.w[i])))
        lines.append("\t".join(values))
    if lines:
        a.s.copy("filled", lines)


@problem(2)
def means(a):
    r = a.rows
    strange = ~np.isfinite(r.x).all(axis=1) & ~r.no_array & ~(r.no_weight if a.weighted else np.zeros(r.n, bool))
    if a.cosine and a.standardize or a.weighted and (~r.no_weight & ~((r.w > 0) & np.isfinite(r.w))).any() or \
            strange.any() and not a.skip:
        return
    used, x, means = fill(a)
    if means == "out of range":
        return
    got = a.s.run(a.call("kmeans", nulls="mean"))
    if means is None:
        a.check(got.state == "22004" and "has no mean: it is always NULL" in got.message, f"a column without a mean: {got}")
        return
    a.s.run("BEGIN")
    store(a, used, x)
    expected = a.s.run(a.call("kmeans", relation="'filled'"))
    if got.ok or expected.ok:
        a.same(got, expected, "nulls => 'mean' and a filled table")
    else:
        a.check((got.state, got.message) == (expected.state, expected.message),
                lambda: f"nulls => 'mean': {got}, a filled table: {expected}")
    if got.ok and got.rows and a.t.has_ctid:
        labels(a)
    a.s.run("ROLLBACK")


def labels(a):
    """Those of the fit, of its model, and of each row with its NULLs."""
    found = f"{a.call('kmeans_labels', nulls='mean')}"
    got = a.s.run(f"WITH m AS MATERIALIZED ({a.call('kmeans_fit', what='kmeans_fit AS m', nulls='mean')}), l AS MATERIALIZED ({found})\n"
                  f"SELECT count(*) FROM {a.t.relation} t JOIN l ON l.tableoid = t.tableoid AND l.ctid = t.ctid\n"
                  f"JOIN filled f ON f.place = t.tableoid || ' ' || t.ctid, m WHERE l.cluster IS NOT NULL AND\n"
                  f"((l.cluster, l.distance) IS DISTINCT FROM (kmeans_predict(m, {a.t.point()}), kmeans_distance(m, {a.t.point()}))\n"
                  f"OR l.cluster <> kmeans_predict(m, {a.t.point('f')}))")
    if campaign.sane(got, a.s):
        a.check(got.ok and got.value == "0", f"rows whose label is another one after nulls => 'mean': {got}")
