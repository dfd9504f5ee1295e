"""Problems of test/fuzz/problems.py: sums of features, steps of a model, and ties."""
import json

import numpy as np

from fuzz_common import literal
from problem_attack import campaign, floats, problem
from problem_oracle import exact_sum


@problem(2)
def ties(a):
    """Whole numbers, where every distance is exact: the lowest number wins, and a weight is as many rows."""
    rng = a.rng
    d = rng.randint(1, 3)
    columns = [f"x{j}" for j in range(d)]
    heads = sorted({tuple(rng.randint(-3, 3) for _ in columns) for _ in range(rng.randint(1, 9))}, key=lambda _: rng.random())
    n = rng.choice([1, 20, 300, 1500])
    points = np.array([[rng.randint(-4, 4) for _ in columns] + [rng.randint(1, 3)] for _ in range(n)], float)
    typ, names = rng.choice(["int4", "float8", "float4", "int8"]), literal(columns) + "::text[]"
    a.s.run("BEGIN")
    for name, rows in (("heads", heads), ("points", points)):
        listed = [f"{c} {typ}" for c in columns] + ["w int"] * (name == "points")
        a.s.run(f"CREATE {rng.choice(['TEMP ', ''])}TABLE {name} ({', '.join(listed)})")
        a.s.copy(name, ["\t".join(str(int(v)) for v in row) for row in rows])
    a.s.run(f"CREATE TEMP TABLE model AS SELECT kmeans_fit('heads', {names}, {len(heads)}, "
            f"centroids => {literal([list(map(float, h)) for h in heads])}::float8[]) AS m")
    nearest = ((points[:, None, :d] - np.array(heads, float)) ** 2).sum(axis=2).argmin(axis=1)
    point, expected = ", ".join(columns), [(str(i), str(i)) for i in nearest]
    got = a.s.run(f"SELECT l.cluster, kmeans_predict(m, {point}) FROM model, kmeans_labels('points', m) l "
                  "JOIN points p ON p.ctid = l.ctid ORDER BY p.ctid")
    a.check(got.rows == expected, f"labels of points at equal distance: {got}, expected {expected[:20]}")
    whole = a.s.run(f"SELECT kmeans_finish(kmeans_step('points', {names}, m, weight_column => 'w')) FROM model")
    several = a.s.run(f"SELECT kmeans_step(m, {point}) FROM model, points, generate_series(1, w)")
    if campaign.sane(whole, a.s) and campaign.sane(several, a.s):
        centroids = [[c["centroid"] for c in json.loads(o.value, parse_float=str, parse_int=str)["clusters"]]
                     for o in (whole, several)]
        a.check(centroids[0] == centroids[1], f"a step with weights {centroids[0]}, of as many rows {centroids[1]}")
        full = [i for i in range(len(heads)) if (nearest == i).any()]
        mean = [np.average(points[nearest == i, :d], axis=0, weights=points[nearest == i, d]) for i in full]
        a.check(np.allclose(np.array(centroids[0], float)[full], mean, rtol=1e-12, atol=1e-12),
                f"means {centroids[0]}, numpy {mean}")
    a.s.run("ROLLBACK")


def same_sums(got, expected, weighted, rows):
    """Equal; a weight times a value is a multiple of 2^-1074, the nearest one for each row."""
    slack = rows * 2.0 ** -1074 if weighted else 0.0
    return len(got) == len(expected) and all(x == y or abs(x - y) <= slack for x, y in zip(got, expected))


@problem(2)
def feature_sum(a):
    finite = np.isfinite(a.rows.x).all(axis=1)
    weighted = a.weighted and a.t.d < 20
    usable = finite & ~a.rows.null & ((a.rows.w > 0) & np.isfinite(a.rows.w) if weighted else True)
    kept = a.rows.x[usable].tolist()
    if len(kept) * a.t.d > 3000:
        return
    rows, point = a.usable_rows(usable, weighted)
    got = a.s.run(f"SELECT feature_sum({point}), feature_sum_finish((SELECT kmeans_combine(part) FROM "
                  f"(SELECT feature_sum_partial({point}) AS part FROM {rows} GROUP BY id % 3) p)) FROM {rows}")
    if not campaign.sane(got, a.s):
        return
    w = a.rows.w[usable].tolist() if weighted else None
    expected = [exact_sum(c, w) for c in zip(*kept)] if kept else []
    if None in expected or not got.ok:
        a.check(None in expected and got.state == "22003", f"feature_sum: {got}, expected {expected}")
        return
    for text in got.rows[0]:
        a.check(same_sums(floats(text).tolist() if text else [], expected, weighted, len(kept)), f"feature_sum: {text}, expected {expected}")


@problem()
def sliding_sum(a):
    """feature_sum over a frame that moves: of each row it is that of the frame's rows."""
    weighted = a.weighted and a.t.d < 20
    usable = np.isfinite(a.rows.x).all(axis=1) & ~a.rows.null & ((a.rows.w > 0) & np.isfinite(a.rows.w) if weighted else True)
    order = sorted(np.flatnonzero(usable), key=lambda i: int(a.rows.id[i]))[:2000 // a.t.d]
    rows, point = a.usable_rows(np.isin(np.arange(a.rows.n), order), weighted)
    before = a.rng.randint(0, 5)
    got = a.s.run(f"SELECT feature_sum({point}) OVER (ORDER BY id ROWS {before} PRECEDING) FROM {rows} ORDER BY id")
    frames = [order[max(0, i - before):i + 1] for i in range(len(order))]
    expected = [[exact_sum(c, a.rows.w[f].tolist() if weighted else None) for c in zip(*a.rows.x[f].tolist())] for f in frames]
    if not campaign.sane(got, a.s):
        return
    if any(None in e for e in expected) or not got.ok:
        a.check(any(None in e for e in expected) and got.state == "22003", f"feature_sum of frames: {got}")
        return
    wrong = next((i for i, (r, e) in enumerate(zip(got.rows, expected))
                  if not same_sums(floats(r[0]).tolist(), e, weighted, before + 1)), None)
    a.check(wrong is None, lambda: f"feature_sum of row {wrong}'s frame: {got.rows[wrong][0]}, expected {expected[wrong]}")


@problem(2)
def step(a):
    """The step from the model of i iterations leads to that of i + 1, and so do its parts."""
    if not a.model:
        return
    i = a.rng.randint(1, 3)
    before, after = (a.s.run(a.call("kmeans_fit", what="kmeans_fit", tol=0.0, n_init=1, max_iter=m)) for m in (i, i + 1))
    if not (before.ok and after.ok):
        a.check(before.state == after.state == "22003", f"kmeans_fit: {before}, {after}")
        return
    model = literal(before.value) + "::kmeans_model"
    weight = f", weight_column => {literal(a.t.weight)}" if a.weighted else ""
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    centroids = "SELECT c.cluster, c.centroid FROM kmeans_centroids"
    relation = a.s.run(f"{centroids}(kmeans_finish(kmeans_step({a.t.regclass}, {a.t.names}, {model}{weight}{nonfinite}))) c")
    if not campaign.sane(relation, a.s):
        return
    first, second = json.loads(before.value, parse_float=str), json.loads(after.value, parse_float=str)
    # but for clusters that lost their points: the fit's end looks after them, too
    if a.ordered and not a.weighted and first["inertia"] not in (0, "0") and \
            second["history"]["inertia"][i:] == [first["inertia"]]:
        a.same(relation, a.s.run(f"{centroids}({literal(after.value)}) c"), f"a step of the model after {i}")
    # as the rows are left out that have a NULL or no weight; aggregates refuse others
    usable = a.kept | a.rows.null | (a.rows.no_weight if a.weighted else False)
    rows, point = a.usable_rows(usable, a.weighted)
    if relation.ok:
        counts = str(a.kept.sum()), str((usable & ~a.kept).sum())
        relation.rows = [row + counts for row in relation.rows]
    for what, stepped in ("parts of a step", f"SELECT kmeans_finish(kmeans_combine(part)) FROM (SELECT kmeans_step_partial({model}, {point}) "
                          f"AS part FROM {rows} GROUP BY id % 3) p"), ("kmeans_step", f"SELECT kmeans_step({model}, {point}) FROM {rows}"):
        a.same(a.s.run(f"SELECT c.cluster, c.centroid, rows_used, rows_skipped FROM ({stepped}) s (m), kmeans_centroids(m) c, "
                       "kmeans_info(m)"), relation, what)
