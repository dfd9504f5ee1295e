#!/usr/bin/env python3
"""The objective of distance => 'manhattan' beside that of pyclustering's k-medians, from the same centroids:
test/with-cluster bench/server/medians_objective.py (needs numpy and pyclustering).

Both stop at a local minimum; of an even number of values pyclustering takes the mean of the two in the middle,
so the two may go different ways.  Sums of distances, and the ratio."""
import subprocess

import numpy
from pyclustering.cluster.kmedians import kmedians
from pyclustering.utils.metric import distance_metric, type_metric


def sql(text):
    done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"], input=text, text=True,
                          capture_output=True, check=True)
    return done.stdout


def points(seed):
    rng = numpy.random.default_rng(seed)
    centers = rng.uniform(0, 1000, (6, 3))
    return numpy.rint(centers[rng.integers(0, 6, 1501)] + rng.laplace(0, 60, (1501, 3)))


def literal(rows):
    return "{" + ",".join("{" + ",".join("%d" % v for v in row) + "}" for row in rows) + "}"


for seed in range(10):
    x = points(seed)
    start = x[:6]
    values = ",".join("(%d,%d,%d)" % tuple(row) for row in x)
    ours = float(sql(f"""SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gkmeans;
        CREATE TEMP TABLE p (a int, b int, c int); INSERT INTO p VALUES {values};
        SELECT sum(inertia) FROM kmeans('p', '{{a,b,c}}', 6, distance => 'manhattan', tol => 0, max_iter => 1000,
        centroids => '{literal(start)}');"""))
    other = kmedians(x.tolist(), start.tolist(), tolerance=0.0, itermax=1000, ccore=False,
                     metric=distance_metric(type_metric.MANHATTAN)).process().get_medians()
    theirs = numpy.abs(x[:, None, :] - numpy.array(other)[None]).sum(2).min(1).sum()
    print(f"seed {seed}: gkmeans {ours:.0f}, pyclustering {theirs:.0f}, ratio {ours / theirs:.5f}")
