#!/usr/bin/env python3
"""The answers of gkmeans beside scikit-learn's, in a running server.

Same data, same initial centroids, Lloyd, tol = 0, same max_iter: labels must be
equal on every row of iris, penguins and digits, and on all but 1 in 100,000 rows
of flights, where each difference must be a tie within 1e-6 relative. Inertia
within 1e-6 relative. Seeding: the best of 10 seeds within 1 % of scikit-learn's
best of 10. What follows a fit (distances, memberships, medoids, anomalies, shares, updates)
within 1e-5 of scikit-learn and numpy. Rows with holes, filled with means: the labels of SimpleImputer
and KMeans; compared by what they have: Lloyd's iterations by nan_euclidean_distances. Connects by the PG* environment; needs the extension installed.
"""
import csv
import gzip
import io
import os
import sys

try:
    import numpy as np
    import psycopg2
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
    from sklearn.impute import SimpleImputer
    from sklearn.metrics import pairwise_distances_argmin
    from sklearn.metrics.pairwise import nan_euclidean_distances
    from sklearn.preprocessing import StandardScaler
except ImportError as e:
    print(f"skipped: {e.name} is not installed")
    sys.exit(0)

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
passed = failed = 0


def ok(good, text):
    global passed, failed
    print(("ok - " if good else "not ok - ") + text, flush=True)
    if good:
        passed += 1
    else:
        failed += 1


def read(name):
    """Header and rows of a CSV file, gzipped or not."""
    path = os.path.join(DATA, name)
    with (gzip.open(path, "rt") if name.endswith(".gz") else open(path)) as f:
        rows = list(csv.reader(f))
    return rows[0], rows[1:]


def load(cur, table, name, columns, sql_type):
    """The named columns as a table (id, columns...), and as a float64 matrix without NULL rows."""
    head, rows = read(name)
    index = [head.index(c) for c in columns]
    cur.execute(f"CREATE TABLE {table} (id int, {', '.join(c + ' ' + sql_type for c in columns)})")
    text = io.StringIO()
    kept_id, kept = [], []
    for i, row in enumerate(rows):
        values = [row[j] if row[j] != "NA" else "" for j in index]
        text.write(f"{i}," + ",".join(values) + "\n")
        if all(values):
            kept_id.append(i)
            kept.append([float(v) for v in values])
    text.seek(0)
    cur.copy_expert(f"COPY {table} FROM STDIN (FORMAT csv)", text)
    return np.array(kept_id), np.array(kept)


def load_bunch(cur, table, bunch):
    """The same for a data set that comes with scikit-learn."""
    columns = [n.replace(" ", "_").replace("/", "_") for n in bunch.feature_names]
    cur.execute(f"CREATE TABLE {table} (id int, {', '.join(c + ' float8' for c in columns)})")
    text = io.StringIO("".join(f"{i}," + ",".join(map(repr, row)) + "\n" for i, row in enumerate(bunch.data.tolist())))
    cur.copy_expert(f"COPY {table} FROM STDIN (FORMAT csv)", text)
    return columns, np.arange(len(bunch.data)), bunch.data


def sql_array(m):
    return "ARRAY[" + ",".join("[" + ",".join(repr(float(v)) for v in r) + "]" for r in m) + "]::float8[]"


def compare(cur, table, columns, ids, x, k, max_iter, standardize, ties_per_100k):
    name = f"{table}{' standardized' if standardize else ''}, k = {k}"
    rng = np.random.RandomState(k)
    z = StandardScaler().fit_transform(x) if standardize else x
    # Means of five rows each, not rows: between integer rows (digits) exact ties are
    # common, and which way a tie falls is chance in a floating-point expansion.
    first = rng.choice(len(x), 5 * k, replace=False).reshape(k, 5)
    sk = KMeans(k, init=z[first].mean(1), n_init=1, max_iter=max_iter, tol=0, algorithm="lloyd").fit(z)

    opts = f"centroids => {sql_array(x[first].mean(1))}, max_iter => {max_iter}, tol => 0, standardize => {standardize}"
    cols = "{" + ",".join(columns) + "}"
    cur.execute(f"SELECT t.id, l.cluster FROM kmeans_labels('{table}', '{cols}', {k}, {opts}) l "
                f"JOIN {table} t ON t.ctid = l.ctid AND t.tableoid = l.tableoid WHERE l.cluster IS NOT NULL ORDER BY t.id")
    got = np.array(cur.fetchall())
    ok(len(got) == len(x) and (got[:, 0] == ids).all(), f"{name}: the same {len(x)} rows are used")
    labels = got[:, 1]
    cur.execute(f"SELECT i.inertia, i.iterations, (SELECT array_agg(c.centroid ORDER BY c.cluster) FROM kmeans_centroids(m) c) "
                f"FROM (SELECT kmeans_fit('{table}', '{cols}', {k}, {opts}) m) f, kmeans_info(f.m) i")
    inertia, iterations, centroids = cur.fetchone()

    differ = np.flatnonzero(labels != sk.labels_)
    # A difference must be a tie: both distances (float64, to scikit-learn's centroids) within 1e-6.
    worst = 0.0
    for i in differ:
        a = np.sqrt(((z[i] - sk.cluster_centers_[labels[i]]) ** 2).sum())
        b = np.sqrt(((z[i] - sk.cluster_centers_[sk.labels_[i]]) ** 2).sum())
        worst = max(worst, abs(a - b) / max(a, b))
    ok(len(differ) <= len(x) * ties_per_100k / 100000 and worst <= 1e-6,
       f"{name}: {len(differ)} of {len(x)} labels differ from scikit-learn's (worst tie {worst:.1e})")
    rel = abs(inertia - sk.inertia_) / sk.inertia_
    ok(rel <= 1e-6, f"{name}: inertia {inertia:.6f}, relative difference {rel:.1e}")
    c = np.array(centroids)
    if standardize:
        c = (c - x.mean(0)) / x.std(0)
    far = np.abs(c - sk.cluster_centers_).max() / np.abs(z).max()
    ok(far <= 1e-6, f"{name}: centroids within {far:.1e} of the largest value")
    if len(differ) == 0:
        ok(iterations == sk.n_iter_, f"{name}: {iterations} iterations, scikit-learn {sk.n_iter_}")


def seeding(cur, table, columns, x, k, init):
    cols = "{" + ",".join(columns) + "}"
    ours = []
    for seed in range(10):
        cur.execute(f"SELECT (kmeans_info(kmeans_fit('{table}', '{cols}', {k}, init => '{init}', seed => {seed}, "
                    f"max_iter => 300))).inertia")
        ours.append(cur.fetchone()[0])
    theirs = min(KMeans(k, n_init=1, random_state=s).fit(x).inertia_ for s in range(10))
    ok(min(ours) <= theirs * 1.01,
       f"{table}, k = {k}, {init}: best of 10 seeds {min(ours):.4f}, scikit-learn {theirs:.4f}, ratio {min(ours) / theirs:.4f}")


def rows_by(cur, table, sql):
    """Rows of a function of (tableoid, ctid), with the table's id in place of both."""
    cur.execute(f"SELECT t.id, f.* FROM ({sql}) f JOIN {table} t ON t.tableoid = f.tableoid AND t.ctid = f.ctid")
    names = [c.name for c in cur.description]
    return [dict(zip(names, row)) for row in cur.fetchall()]


def after_the_fit(cur, table, columns, ids, x, k):
    """What is asked of a model: distances, medoids, anomalies, explanation, new rows."""
    name = f"{table}, k = {k}"
    cols = "{" + ",".join(columns) + "}"
    point = "ARRAY[" + ",".join(columns) + "]"
    cur.execute(f"CREATE TABLE model_{table} AS SELECT kmeans_fit('{table}', '{cols}', {k}, tol => 0) AS m")
    cur.execute(f"SELECT array_agg(centroid ORDER BY cluster), array_agg(size ORDER BY cluster), array_agg(inertia ORDER BY cluster) "
                f"FROM model_{table}, kmeans_centroids(m)")
    centroids, sizes, inertia = (np.array(v, dtype=float) for v in cur.fetchone())
    sk = KMeans(k, init=centroids, n_init=1, max_iter=1).fit(x)
    sk.cluster_centers_ = centroids.copy()
    far = sk.transform(x)

    cur.execute(f"SELECT kmeans_transform(m, {point}), kmeans_memberships(m, {point}) FROM model_{table}, {table} "
                f"WHERE id = ANY (%s) ORDER BY id", (ids.tolist(),))
    ours = cur.fetchall()
    worst = np.abs(np.array([r[0] for r in ours]) - far).max() / far.max()
    ok(worst <= 1e-6, f"{name}: kmeans_transform within {worst:.1e} of KMeans.transform")
    shares = 1 / ((far[:, :, None] / np.maximum(far, 1e-300)[:, None, :]) ** 2).sum(2)
    worst = np.abs(np.array([r[1] for r in ours]) - shares).max()
    ok(worst <= 1e-5, f"{name}: kmeans_memberships within {worst:.1e} of fuzzy c-means")

    cur.execute(f"SELECT (SELECT array_agg(n.cluster) FROM kmeans_nearest(m, {point}, 2) n), kmeans_normalized_distance(m, {point}) "
                f"FROM model_{table}, {table} WHERE id = ANY (%s) ORDER BY id", (ids.tolist(),))
    ours = cur.fetchall()
    order = np.argsort(far, 1, kind="stable")[:, :2]
    near = np.take_along_axis(far, np.array([r[0] for r in ours]), 1)
    ok((np.diff(near, axis=1) >= 0).all() and np.abs(near / np.maximum(np.take_along_axis(far, order, 1), 1e-300) - 1).max() <= 1e-6,
       f"{name}: kmeans_nearest gives the 2 nearest of KMeans.transform")
    normalized = far.min(1) / np.sqrt(inertia / sizes)[far.argmin(1)]
    worst = np.abs(np.array([r[1] for r in ours]) - normalized).max()
    ok(worst <= 1e-5, f"{name}: kmeans_normalized_distance within {worst:.1e} of numpy's")

    place = {int(i): n for n, i in enumerate(ids)}
    medoid = pairwise_distances_argmin(centroids, x)
    got = rows_by(cur, table, f"SELECT d.* FROM model_{table}, kmeans_medoids('{table}', m) d")
    near = max(far[place[r["id"]], r["cluster"]] / max(far[medoid[r["cluster"]], r["cluster"]], 1e-300) for r in got)
    ok(len(got) == k and near <= 1 + 1e-6, f"{name}: medoids are the rows of pairwise_distances_argmin")

    count = int(np.ceil(0.05 * len(x)))
    got = rows_by(cur, table, f"SELECT a.* FROM model_{table}, kmeans_anomalies('{table}', m, 0.05) a")
    worst = np.abs(np.sort([r["normalized_distance"] for r in got])[::-1] / np.sort(normalized)[::-1][:count] - 1).max()
    ok(len(got) == count and worst <= 1e-5, f"{name}: the {count} anomalies are numpy's, within {worst:.1e}")

    quantile = np.quantile(normalized, (len(x) - count) / (len(x) - 1), method="nearest")
    least = min(r["normalized_distance"] for r in got)
    ok(abs(least / quantile - 1) <= 1e-5, f"{name}: the least of them is numpy's quantile {quantile:.6f}")

    cur.execute(f"SELECT e.cluster, e.feature, e.share FROM model_{table}, kmeans_explain(m) e")
    apart = (centroids - x.mean(0)) ** 2
    apart /= apart.sum(1, keepdims=True)
    worst = max(abs(share - apart[c, columns.index(f)]) for c, f, share in cur.fetchall())
    ok(worst <= 1e-5, f"{name}: shares of kmeans_explain within {worst:.1e} of numpy's")

    # new rows, one after the other, move the mean of what their centroid has seen
    fresh = x[::3] * 1.01
    mean, seen = centroids.copy(), sizes.copy()
    for row, c in zip(fresh, ((fresh[:, None] - centroids) ** 2).sum(2).argmin(1)):
        seen[c] += 1
        mean[c] += (row - mean[c]) / seen[c]
    cur.execute(f"SELECT (SELECT array_agg(centroid ORDER BY cluster) FROM kmeans_centroids(u)), "
                f"(SELECT array_agg(size ORDER BY cluster) FROM kmeans_centroids(u)) FROM "
                f"(SELECT kmeans_update(m, p) AS u FROM model_{table}, (SELECT array_agg(e ORDER BY o) AS p "
                f"FROM unnest(%s::float8[]) WITH ORDINALITY t (e, o) GROUP BY (o - 1) / {x.shape[1]}) r) f", (fresh.tolist(),))
    c, n = cur.fetchone()
    worst = np.abs(np.array(c) - mean).max() / np.abs(x).max()
    ok(worst <= 1e-6 and (np.array(n) == seen).all(), f"{name}: kmeans_update within {worst:.1e} of the running means, and their counts")

    # two batches from the same centroids, without rows so far and without random reassignment
    half = int(ids[len(ids) // 2])
    mini = MiniBatchKMeans(k, init=centroids, n_init=1, reassignment_ratio=0)
    mini.partial_fit(x[ids < half])
    mini.partial_fit(x[ids >= half])
    cur.execute(f"SELECT (SELECT array_agg(centroid ORDER BY cluster) FROM kmeans_centroids(two)), "
                f"(SELECT array_agg(size ORDER BY cluster) FROM kmeans_centroids(two)) FROM "
                f"(SELECT kmeans_update(first, {point}) AS two FROM {table}, "
                f"(SELECT kmeans_update(kmeans_forget(m, 0), {point}) AS first FROM model_{table}, {table} WHERE id < {half}) a WHERE id >= {half}) b")
    c, n = cur.fetchone()
    worst = np.abs(np.array(c) - mini.cluster_centers_).max() / np.abs(x).max()
    ok(worst <= 1e-6 and (np.array(n) == mini._counts).all(),
       f"{name}: kmeans_update within {worst:.1e} of MiniBatchKMeans.partial_fit, and its counts")


def missing_values(cur, table, bunch, k, share):
    """Holes at random places, filled with means: labels of SimpleImputer, then KMeans."""
    rng = np.random.default_rng(1)
    table = f"holes_{table}_{round(share * 100)}"
    columns = [f"f{j}" for j in range(bunch.data.shape[1])]
    x = np.where(rng.random(bunch.data.shape) < share, np.nan, bunch.data)
    cur.execute(f"CREATE TABLE {table} (id int, {', '.join(c + ' float8' for c in columns)})")
    text = "".join(f"{i}," + ",".join("" if np.isnan(v) else repr(v) for v in row) + "\n" for i, row in enumerate(x.tolist()))
    cur.copy_expert(f"COPY {table} FROM STDIN (FORMAT csv)", io.StringIO(text))
    cur.execute(f"CREATE TABLE means_{table} AS SELECT "
                + ", ".join(f"(feature_sum({c}))[1] / count({c}) AS {c}" for c in columns) + f" FROM {table}")
    cur.execute(f"CREATE TABLE filled_{table} AS SELECT id, "
                + ", ".join(f"coalesce(t.{c}, m.{c}) AS {c}" for c in columns) + f" FROM {table} t, means_{table} m")

    filled = SimpleImputer(strategy="mean").fit_transform(x)
    start = filled[rng.choice(len(filled), k, replace=False)]
    theirs = KMeans(k, init=start, n_init=1, tol=0, max_iter=300, algorithm="lloyd").fit(filled)
    cur.execute(f"SELECT f.id, l.cluster FROM kmeans_labels('filled_{table}', '{{{','.join(columns)}}}', {k}, "
                f"centroids => {sql_array(start)}, tol => 0, max_iter => 300) l JOIN filled_{table} f ON f.ctid = l.ctid ORDER BY 1")
    labels = np.array([r[1] for r in cur.fetchall()])
    ok(len(labels) == len(x) and (labels == theirs.labels_).all(),
       f"{table}, k = {k}: labels are those of SimpleImputer and KMeans")

    # the option does the same, and its model to new rows
    call = f"'{table}', '{{{','.join(columns)}}}', {k}, centroids => {sql_array(start)}, tol => 0, max_iter => 300, nulls => 'mean'"
    cur.execute(f"CREATE TEMP TABLE m_{table} AS SELECT kmeans_fit({call}) AS m")
    cur.execute(f"SELECT t.id, l.cluster, kmeans_predict(m, {', '.join('t.' + c for c in columns)}), fill FROM m_{table}, kmeans_info(m), "
                f"kmeans_labels({call}) l JOIN {table} t ON t.ctid = l.ctid ORDER BY 1")
    rows = cur.fetchall()
    imputer = SimpleImputer(strategy="mean").fit(x)
    ok([r[1] for r in rows] == theirs.labels_.tolist() and [r[2] for r in rows] == theirs.labels_.tolist(),
       f"{table}, k = {k}: so are those of nulls => 'mean', of the fit and of its model")
    ok(np.allclose(rows[0][3], imputer.statistics_, rtol=1e-13, atol=0), f"{table}: the means are those of SimpleImputer")
    partial(cur, table, x, start)


def partial(cur, table, x, start):
    """Distances over the features that a row has: Lloyd's iterations by nan_euclidean_distances in float64."""
    k = len(start)
    columns = [f"f{j}" for j in range(x.shape[1])]
    call = f"'{table}', '{{{','.join(columns)}}}', {k}, centroids => {sql_array(start)}, tol => 0, max_iter => 300, nulls => 'partial'"
    cur.execute(f"SELECT t.id, l.cluster, l.distance FROM kmeans_labels({call}) l JOIN {table} t ON t.ctid = l.ctid "
                "WHERE l.cluster IS NOT NULL ORDER BY 1")
    rows = cur.fetchall()
    cur.execute(f"SELECT centroid, inertia FROM kmeans({call}) ORDER BY cluster")
    found = cur.fetchall()
    centroids, inertia = np.array([r[0] for r in found]), sum(r[1] for r in found)
    x = x[[r[0] for r in rows]]
    here = ~np.isnan(x)
    weight = x.shape[1] / here.sum(axis=1)
    c, before = start.copy(), None
    while True:
        distance = nan_euclidean_distances(x, c)
        label = distance.argmin(axis=1)
        if before is not None and (label == before).all():
            break
        before = label
        for i in range(k):
            mass = (weight[:, None] * here)[label == i].sum(axis=0)
            total = np.nansum(weight[:, None] * x * (label == i)[:, None], axis=0)
            c[i] = np.where(mass > 0, total / np.where(mass > 0, mass, 1), c[i])
    theirs = (distance.min(axis=1) ** 2).sum()
    distance = nan_euclidean_distances(x, centroids)
    mine = np.array([r[2] for r in rows])
    ok(abs(inertia - theirs) <= 1e-6 * theirs, f"{table}, k = {k}: nulls => 'partial' has inertia {inertia}, iterations by nan_euclidean_distances {theirs}")
    ok(np.allclose(mine, distance[np.arange(len(rows)), [r[1] for r in rows]], rtol=1e-5)
       and (mine <= distance.min(axis=1) * (1 + 1e-5)).all(), f"{table}, k = {k}: its distances are those of nan_euclidean_distances")


def main():
    con = psycopg2.connect("")
    con.autocommit = True
    cur = con.cursor()
    cur.execute("SET client_min_messages = warning; DROP SCHEMA IF EXISTS compare_sklearn CASCADE; "
                "CREATE SCHEMA compare_sklearn; SET search_path = compare_sklearn, public; "
                "CREATE EXTENSION IF NOT EXISTS gkmeans SCHEMA public")
    sets = []
    for table, name, columns, ks in [
            ("iris", "iris.csv", None, (2, 3, 5)),
            ("penguins", "penguins.csv", ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"], (3, 5)),
            ("digits", "digits.csv.gz", None, (10, 20)),
            ("flights", "flights.csv.gz", ["dep_delay", "arr_delay", "air_time", "distance"], (4, 8))]:
        if columns is None:
            columns = [c for c in read(name)[0] if c not in ("species", "target", "digit", "class", "label")]
        ids, x = load(cur, table, name, columns, "float8")
        sets.append((table, columns, ids, x, ks))
    for table, columns, ids, x, ks in sets:
        for k in ks:
            compare(cur, table, columns, ids, x, k, 50, False, 1 if table == "flights" else 0)
        if table in ("iris", "penguins"):
            compare(cur, table, columns, ids, x, ks[0], 50, True, 0)
    for table, columns, ids, x, ks in sets:
        seeding(cur, table, columns, x, ks[-1], "k-means++")
    for table, columns, ids, x, ks in sets[:3]:
        after_the_fit(cur, table, columns, ids, x, ks[-1])
    for table, bunch in ("wine", load_wine()), ("breast_cancer", load_breast_cancer()):
        after_the_fit(cur, table, *load_bunch(cur, table, bunch), 4)
    for table, bunch, k in (("iris", load_iris(), 3), ("wine", load_wine(), 3),
                            ("breast_cancer", load_breast_cancer(), 2), ("digits", load_digits(), 10)):
        for share in 0, 0.1, 0.3, 0.5:
            missing_values(cur, table, bunch, k, share)
    seeding(cur, sets[2][0], sets[2][1], sets[2][3], 20, "k-means||")
    cur.execute("DROP SCHEMA compare_sklearn CASCADE")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
