#!/usr/bin/env python3
"""kmeans_balanced() beside a linear program and k-means-constrained, in a running server.

The labels of a fit are the cheapest assignment to its centroids: within 1e-9 of the optimum of
scipy's HiGHS.  Begun where k-means-constrained has ended, a fit has no larger inertia; from the same
start the two may go to different local optima, and the differences are printed.  Where it is not
installed, that is skipped.
Connects by the PG* environment; needs the extension installed.
"""
import sys
import warnings

try:
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix
    from sklearn import datasets
    try:
        import psycopg2 as driver
    except ImportError:
        import psycopg as driver
except ImportError as e:
    print(f"skipped: {e.name} is not installed")
    sys.exit(0)
try:
    from k_means_constrained import KMeansConstrained
except ImportError:
    KMeansConstrained = None

passed = failed = 0


def ok(good, text):
    global passed, failed
    print(("ok - " if good else "not ok - ") + text, flush=True)
    if good:
        passed += 1
    else:
        failed += 1


def load(cur, name, x):
    """A table of the points, in one array column."""
    cur.execute(f"CREATE TABLE {name} (id int, p float8[], label int)")
    for first in range(0, len(x), 1000):
        rows = ",".join(f"({first + i},'{{{','.join(map(repr, map(float, p)))}}}')" for i, p in enumerate(x[first:first + 1000]))
        cur.execute(f"INSERT INTO {name} VALUES {rows}")


def text(c):
    return "{" + ",".join("{" + ",".join(map(repr, map(float, row))) + "}" for row in c) + "}"


def fit(cur, name, k, low, high, options):
    """Centroids, labels and inertia."""
    cur.execute(f"SELECT centroid, inertia FROM kmeans_balanced('{name}', '{{p}}', {k}, {low}, {high}, label_column => 'label', "
                f"{options}) ORDER BY cluster")
    rows = cur.fetchall()
    cur.execute(f"SELECT label FROM {name} ORDER BY id")
    return np.array([r[0] for r in rows]), np.array([r[0] for r in cur.fetchall()]), sum(r[1] for r in rows)


def optimum(cost, low, high):
    """The least cost of an assignment, by the simplex method."""
    n, k = cost.shape
    each = coo_matrix((np.ones(n * k), (np.repeat(np.arange(n), k), np.arange(n * k))))
    size = coo_matrix((np.ones(n * k), (np.tile(np.arange(k), n), np.arange(n * k))))
    answer = linprog(cost.ravel(), A_eq=each, b_eq=np.ones(n), bounds=(0, 1), method="highs",
                     A_ub=coo_matrix(np.vstack([size.toarray(), -size.toarray()])),
                     b_ub=np.concatenate([np.full(k, high), np.full(k, -low)]))
    return answer.fun


def assignments(cur):
    n, d, k = 1000, 8, 10
    rng = np.random.default_rng(0)
    for kind, x in (("uniform", rng.random((n, d))), ("normal", rng.standard_normal((n, d))),
                    ("blobs", datasets.make_blobs(n, d, centers=6, random_state=1)[0])):
        load(cur, kind, x)
        for low, high in ((100, 100), (90, 110), (1, 105), (80, n), (60, 200)):
            for iterations in (1, 100):
                c, label, _ = fit(cur, kind, k, low, high, f"max_iter => {iterations}")
                size = np.bincount(label, minlength=k)
                cost = ((x[:, None, :] - c[None]) ** 2).sum(axis=2)
                best = optimum(cost, low, high)
                over = cost[np.arange(n), label].sum() / best - 1
                ok(over < 1e-9 and size.min() >= low and size.max() <= high,
                   f"{kind}, {low} to {high} rows, {iterations} iterations at most: {over:.1e} over the linear program")


def inertia(x, label):
    return sum(((x[label == j] - x[label == j].mean(axis=0)) ** 2).sum() for j in np.unique(label))


def constrained(cur):
    """From the same starts, and from where k-means-constrained ends."""
    if KMeansConstrained is None:
        print("skipped: k-means-constrained is not installed")
        return
    readme = np.array([[1, 2], [1, 4], [1, 0], [4, 2], [4, 4], [4, 0]], float)
    cases = [("readme", readme, 2, 2, 5)]
    for name, x, k in (("iris", datasets.load_iris().data, 3), ("wine", datasets.load_wine().data, 3),
                       ("digits", datasets.load_digits().data, 10)):
        n = len(x)
        cases += [(name, x, k, n // k, -(-n // k)), (name, x, k, 1, n // k + n // k // 8), (name, x, k, n // k - n // k // 8, n)]
    better, same, worse = 0, 0, 0
    for name, x, k, low, high in cases:
        cur.execute(f"DROP TABLE IF EXISTS {name}")
        load(cur, name, x)
        for seed in range(3):
            start = x[np.random.default_rng(seed).choice(len(x), k, replace=False)]
            theirs = KMeansConstrained(k, size_min=low, size_max=high, init=start, n_init=1, max_iter=300, tol=0).fit(x)
            limit = inertia(x, theirs.labels_)
            options = "max_iter => 300, tol => 0"
            own = inertia(x, fit(cur, name, k, low, high, f"centroids => '{text(start)}', {options}")[1])
            end = np.array([x[theirs.labels_ == j].mean(axis=0) for j in range(k)])
            _, label, _ = fit(cur, name, k, low, high, f"centroids => '{text(end)}', {options}")
            size = np.bincount(label, minlength=k)
            ok(inertia(x, label) <= limit * (1 + 1e-9) and size.min() >= low and size.max() <= high,
               f"{name}, {low} to {high} rows, start {seed}: from k-means-constrained's end no inertia above its {limit:.6f}")
            print(f"# {name}, {low} to {high} rows, start {seed}: from the same start {own / limit - 1:+.1e}")
            better, same, worse = better + (own < limit * (1 - 1e-9)), same + (abs(own / limit - 1) <= 1e-9), worse + (own > limit * (1 + 1e-9))
    print(f"# from the same start, {better} better, {same} the same, {worse} worse")


def main():
    warnings.filterwarnings("ignore")
    con = driver.connect("")
    con.autocommit = True
    cur = con.cursor()
    for statement in ("SET client_min_messages = warning", "DROP SCHEMA IF EXISTS compare_balanced CASCADE",
                      "CREATE SCHEMA compare_balanced", "SET search_path = compare_balanced, public",
                      "CREATE EXTENSION IF NOT EXISTS gkmeans SCHEMA public"):
        cur.execute(statement)
    assignments(cur)
    constrained(cur)
    cur.execute("DROP SCHEMA compare_balanced CASCADE")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
