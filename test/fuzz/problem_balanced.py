"""kmeans_balanced() on the random tables: bounds held, the same by all settings, errors for impossible bounds."""
import re

import numpy as np

from problem_attack import PLAIN, campaign, floats, problem


@problem(2)
def balanced(a):
    if a.error or a.weighted or a.cosine or not len(a.x) or a.options.get("device") == "gpu" or \
            a.s.run("SHOW gkmeans.strategy", remember=False).value == "scan":
        return
    n = len(a.x)
    least = a.rng.choice([None, 1, n // a.k, n // (2 * a.k), a.rng.randint(0, n)])
    most = a.rng.choice([None, n, -(-n // a.k), -(-3 * n // (2 * a.k)), a.rng.randint(0, n)])
    bounds = f", {'NULL' if least is None else least}, {'NULL' if most is None else most}"
    got = a.s.run(a.call("kmeans_balanced", between=bounds))
    memory = got.state == "53400"
    a.settings({**PLAIN, "gkmeans.memory_limit": "64MB"})
    expected = a.s.run(a.call("kmeans_balanced", between=bounds))
    if memory:
        campaign.count()
    elif not a.same(got, expected, "kmeans_balanced under other settings"):
        return
    low, high = 1 if least is None else least, n if most is None else most
    # as in kmeans(), there may be no more clusters than distinct points
    clusters = re.match(r"(\d+) clusters of at (?:least|most) \d+ rows", expected.message or "")
    if not 1 <= low <= high or clusters:
        found = int(clusters[1]) if clusters else 0
        a.check(expected.state == "22023" and (found <= a.k and not found * low <= n <= found * high),
                f"bounds {bounds} of {n} rows in {a.k} clusters: {expected}")
        return
    if a.out_of_range(expected):
        return
    if not a.check(expected.ok, f"kmeans_balanced{bounds} of {n} rows: {expected}"):
        return
    size = np.array([int(r[1]) for r in expected.rows])
    a.check(size.sum() == n and (size <= high).all() and (size >= low).all() and len(size) <= a.k,
            f"sizes {size} of {n} rows between {low} and {high}")
    # every row at least as far away as from its nearest centroid
    distance, error = a.oracle.distances(np.array([floats(r[2]) for r in expected.rows]))
    value, slack, exponent = a.oracle.inertia(distance.min(axis=1), error.max(axis=1))
    with np.errstate(over="ignore"):
        total = sum(float(r[3]) for r in expected.rows)
        a.check(np.isinf(total) or total >= np.ldexp(value - slack, exponent), lambda: f"inertia {total}, the nearest have {value}")
