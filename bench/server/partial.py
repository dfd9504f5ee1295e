#!/usr/bin/env python3
"""nulls => 'partial' beside mean imputation and scikit-learn, on data whose holes are known:
test/with-cluster bench/server/partial.py [--smoke] (needs numpy and scikit-learn).

A share of the values is taken away at random (no row loses all), each method sees what is left, and the true
values judge what it has found: `labels` is the sum of squares of the true values about the means of the
clusters, `centroids` that of the true rows to the nearest of its centroids.  Both have 10 restarts.  Printed are
medians over the draws of the ratio to scikit-learn after SimpleImputer(strategy="mean"), below 1 is better, and
in how many draws it is at most 1.001."""
import subprocess
import sys
import warnings

import numpy
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.impute import SimpleImputer

DRAWS = 1 if "--smoke" in sys.argv else 20
DATA = {
    "iris, 150 x 4, k = 3": (load_iris().data, 3),
    "digits, 1797 x 64, k = 10": (load_digits().data, 10),
    "blobs, 2000 x 8, k = 6": (make_blobs(2000, 8, centers=6, cluster_std=2.0, random_state=1)[0], 6),
    "blobs that touch, 2000 x 8, k = 6": (make_blobs(2000, 8, centers=6, cluster_std=6.0, random_state=1)[0], 6),
}
warnings.filterwarnings("ignore")


def sql(text):
    done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"], input=text, text=True,
                          capture_output=True, check=True)
    return done.stdout


def with_holes(x, share, seed):
    rng = numpy.random.default_rng(seed)
    holes = rng.random(x.shape) < share
    # the column that stays is as likely to be any
    holes[numpy.arange(len(x)), rng.integers(0, x.shape[1], len(x))] &= ~holes.all(axis=1)
    return numpy.where(holes, numpy.nan, x)


def gkmeans(x, k, seed, nulls):
    d = x.shape[1]
    columns = ",".join(f"f{j}" for j in range(d))
    lines = "\n".join(f"{i}," + ",".join("" if v != v else repr(float(v)) for v in row) for i, row in enumerate(x))
    options = f"n_init => 10, max_iter => 300, seed => {seed}, nulls => '{nulls}'"
    out = sql(f"""SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gkmeans;
CREATE TEMP TABLE p (id int, {",".join(f"f{j} float8" for j in range(d))});
COPY p FROM STDIN (FORMAT csv);
{lines}
\\.
CREATE TEMP TABLE m AS SELECT kmeans_fit('p', '{{{columns}}}', {k}, {options}) AS m;
SELECT 'c,' || array_to_string(centroid, ',') FROM m, kmeans_centroids(m);
SELECT 'l,' || id || ',' || kmeans_predict(m, {columns}) FROM m, p ORDER BY id;""").split("\n")
    centroids = [[float(v) for v in line.split(",")[1:]] for line in out if line.startswith("c")]
    label = [int(line.split(",")[2]) for line in out if line.startswith("l")]
    return numpy.array(label), numpy.array(centroids)


def sklearn(x, k, seed):
    # a column without a value would be dropped
    model = KMeans(k, n_init=10, random_state=seed).fit(SimpleImputer(strategy="mean", keep_empty_features=True).fit_transform(x))
    return model.labels_, model.cluster_centers_


def judge(x, label, centroids):
    by_label = sum(((x[label == c] - x[label == c].mean(axis=0)) ** 2).sum() for c in numpy.unique(label))
    return by_label, ((x[:, None, :] - centroids[None]) ** 2).sum(2).min(1).sum()


for name, (x, k) in DATA.items():
    print(name)
    for share in (0.0, 0.1, 0.3, 0.5):
        ratios = {"partial": [], "mean": []}
        for seed in range(DRAWS):
            holed = with_holes(x, share, seed)
            theirs = judge(x, *sklearn(holed, k, seed))
            for nulls, found in ratios.items():
                ours = judge(x, *gkmeans(holed, k, seed, nulls))
                found.append((ours[0] / theirs[0], ours[1] / theirs[1]))
        line = f"  {share * 100:3.0f} % holes:"
        for nulls, found in ratios.items():
            r = numpy.array(found)
            line += (f"  '{nulls}' labels {numpy.median(r[:, 0]):.4f} ({(r[:, 0] <= 1.001).sum()} of {DRAWS}),"
                     f" centroids {numpy.median(r[:, 1]):.4f} ({(r[:, 1] <= 1.001).sum()} of {DRAWS});")
        print(line.rstrip(";"), flush=True)
