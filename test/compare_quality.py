#!/usr/bin/env python3
"""The measures of kmeans_evaluate and kmeans_scan beside scikit-learn's.

silhouette_score, davies_bouldin_score and calinski_harabasz_score of the same
labels on iris, penguins and digits: kmeans_evaluate within 1e-9 relative, from
plain features, from features standardized by the model's own scale (it is within
1e-7 of StandardScaler's) and from points of length 1. scikit-learn's own distances
lose half their digits between near points, so silhouette_score gets exact ones.
kmeans_scan measures the float32 points that it clusters: within 1e-7 relative.
Prints the largest differences. Connects by the PG* environment.
"""
import json
import os
import sys

try:
    import numpy as np
    import psycopg2
    from scipy.spatial.distance import cdist
    from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score
    from sklearn.preprocessing import StandardScaler, normalize
except ImportError as e:
    print(f"skipped: {e.name} is not installed")
    sys.exit(0)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_sklearn
from compare_sklearn import load, ok, read

SCORES = [("silhouette", lambda z, labels: silhouette_score(cdist(z, z), labels, metric="precomputed")), ("davies_bouldin", davies_bouldin_score),
          ("calinski_harabasz", calinski_harabasz_score)]


def simplified(z, labels):
    """Silhouette with distances to the clusters' means."""
    means = np.array([z[labels == c].mean(0) for c in range(labels.max() + 1)])
    dist = np.sqrt(((z[:, None, :] - means[None]) ** 2).sum(2))
    own = dist[np.arange(len(z)), labels]
    dist[np.arange(len(z)), labels] = np.inf
    other = dist.min(1)
    single = np.bincount(labels)[labels] == 1
    return np.where(single | (own == other), 0, (other - own) / np.maximum(own, other)).mean()


def compare(cur, table, columns, x, k, kind, worst):
    opts = {"plain": "", "standardized": ", standardize => true", "cosine": ", distance => 'cosine'"}[kind]
    cols = "{" + ",".join(columns) + "}"
    cur.execute(f"DROP TABLE IF EXISTS m; CREATE TEMP TABLE m AS SELECT kmeans_fit('{table}', '{cols}', {k}{opts}) AS m")
    if kind == "standardized":
        cur.execute("SELECT m::text FROM m")
        p = json.loads(cur.fetchone()[0])["preparation"]
        z = (x - np.array(p["center"])) * np.array(p["scale"]) * 0.5 ** p["unit_exp"]
        constant = x.std(0) == 0
        z[:, constant] = 0
        far = np.abs(z - z.mean(0) - StandardScaler().fit_transform(x)).max() / np.abs(z).max()
        ok(far <= 1e-7, f"{table}, k = {k}: standardized features within {far:.1e} (of the largest) of StandardScaler's")
    else:
        z = x if kind == "plain" else normalize(x)
    cur.execute(f"SELECT l.cluster FROM m, kmeans_labels('{table}', m) l JOIN {table} t ON t.ctid = l.ctid "
                f"WHERE l.cluster IS NOT NULL ORDER BY t.id")
    labels = np.array([r[0] for r in cur.fetchall()])
    want = [score(z, labels) for _, score in SCORES] + [simplified(z, labels)]
    names = ", ".join([n for n, _ in SCORES] + ["simplified_silhouette"])
    for what, call, bound in (("evaluate", f"m, kmeans_evaluate(m, '{table}')", 1e-9),
                              ("scan", f"kmeans_scan('{table}', '{cols}', {k}, {k}{opts}, sample => 100000)", 1e-7)):
        cur.execute(f"SELECT {names} FROM {call}")
        got = cur.fetchone()
        rel = max(abs(g / w - 1) for g, w in zip(got, want))
        worst[what] = max(worst[what], rel)
        ok(rel <= bound, f"{table} {kind}, k = {k}, kmeans_{what}: within {rel:.1e} of scikit-learn")
    cur.execute(f"SELECT e.inertia, (kmeans_info(m)).inertia FROM m, kmeans_evaluate(m, '{table}') e")
    mine, fit = cur.fetchone()
    ok(abs(mine / fit - 1) <= 1e-6, f"{table} {kind}, k = {k}: inertia {mine:.6f}, the fit's differs by {abs(mine / fit - 1):.1e}")


def main():
    con = psycopg2.connect("")
    con.autocommit = True
    cur = con.cursor()
    cur.execute("SET client_min_messages = warning; DROP SCHEMA IF EXISTS compare_quality CASCADE; "
                "CREATE SCHEMA compare_quality; SET search_path = compare_quality, public; "
                "CREATE EXTENSION IF NOT EXISTS gkmeans SCHEMA public")
    worst = {"evaluate": 0.0, "scan": 0.0}
    for table, name, columns, ks in [
            ("iris", "iris.csv", None, (2, 3, 5, 20)),
            ("penguins", "penguins.csv", ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"], (2, 3, 7)),
            ("digits", "digits.csv.gz", None, (2, 10, 30))]:
        if columns is None:
            columns = [c for c in read(name)[0] if c not in ("species", "target", "digit", "class", "label")]
        _, x = load(cur, table, name, columns, "float8")
        for k in ks:
            for kind in ("plain", "standardized", "cosine"):
                compare(cur, table, columns, x, k, kind, worst)
    cur.execute("DROP SCHEMA compare_quality CASCADE")
    print(f"largest relative difference: kmeans_evaluate {worst['evaluate']:.1e}, kmeans_scan {worst['scan']:.1e}")
    print(f"{compare_sklearn.passed} passed, {compare_sklearn.failed} failed")
    return 1 if compare_sklearn.failed else 0


if __name__ == "__main__":
    sys.exit(main())
