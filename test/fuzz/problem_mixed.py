"""kmeans_mixed() on numbers of the random tables and categories beside them: costs and labels by numpy, the same by all settings."""
import json

import numpy as np

from fuzz_common import literal
from problem_attack import PLAIN, campaign, problem

CATEGORIES = ["a", "b", "B", "", " ", "ab", "a\tb", "\"q\"", "ü", "x" * 300, "{}", "null", "'"]


def values(column, type_name):
    return "ARRAY[" + ",".join("NULL" if v is None else literal(v) if isinstance(v, str) else f"'{float(v)!r}'" for v in column) + f"]::{type_name}[]"


@problem()
def mixed(a):
    x = a.rows.x[np.isfinite(a.rows.x).all(axis=1)][:200, :4]
    if not len(x):
        return
    d, c = x.shape[1], a.rng.randint(0 if x.shape[1] else 1, 3)
    words = [[a.rng.choice(CATEGORIES[:a.rng.randint(1, len(CATEGORIES))]) for _ in x] for _ in range(c)]
    names = [f"n{i}" for i in range(d)] + [f"c{i}" for i in range(c)]
    k, standardize = a.rng.randint(1, 6), a.rng.random() < 0.7
    gamma = a.rng.choice([None, 0, 0.5, 3])
    arrays = [values(x[:, i], "float8") for i in range(d)] + [values(w, "text") for w in words]
    a.s.run("BEGIN")
    a.s.run(f"CREATE TABLE mixed_rows AS SELECT * FROM unnest({', '.join(arrays)}) AS r({', '.join(names)})")
    call = (f"SELECT kmeans_mixed_fit('mixed_rows', '{{{','.join(names)}}}', {k}, {'NULL' if gamma is None else gamma}, {standardize}, "
            f"{a.rng.randint(1, 3)}, {a.rng.choice([0, 1, 100])}, {a.rng.randint(0, 99)})")
    a.s.run("SAVEPOINT here")
    got = a.s.run(call)
    a.s.run("ROLLBACK TO here")
    a.settings(PLAIN)
    expected = a.s.run(call)
    if expected.state == "22003":
        a.check(got.state in ("22003", "53400") and "are too " in expected.message, f"kmeans_mixed_fit: {expected}, {got}")
    elif a.check(expected.ok and (got.state == "53400" or got.ok and got.value == expected.value), f"kmeans_mixed_fit under other settings: {expected}, {got}"):
        labels = a.s.run(f"SELECT kmeans_mixed_predict({literal(expected.value)}, {', '.join(names)}) FROM mixed_rows")
        if campaign.sane(labels, a.s) and a.check(labels.ok, f"kmeans_mixed_predict: {labels}"):
            check(a, x, np.array(words, dtype=object).T.reshape(len(x), c), json.loads(expected.value), np.array([int(r[0]) for r in labels.rows]))
    a.s.run("ROLLBACK")


def check(a, x, words, model, label):
    clusters = model["clusters"]
    size = np.array([q["size"] for q in clusters])
    if not a.check((np.bincount(label, minlength=len(size)) == size).all() and len(size) <= len(x), "sizes and kmeans_mixed_predict differ"):
        return
    numbers = [q for q in model["columns"] if q["number"]]
    # as the engine prepares them, but for its rounding to float32
    prepared = np.column_stack([(x[:, i] - q["center"]) * q["scale"] for i, q in enumerate(numbers)])
    means = np.array([q["means"] for q in clusters], dtype=float)
    modes = np.array([q["modes"] for q in clusters], dtype=object).reshape(len(clusters), -1)
    gap = prepared[:, None, :] - means[None]
    cost = (gap ** 2).sum(axis=2) + model["gamma"] * (words[:, None, :] != modes[None]).sum(axis=2)
    off = (np.abs(prepared).max() + np.abs(means).max()) * 2.0 ** -23 + np.abs(gap).max(axis=(1, 2)) * 2.0 ** -22
    slack = 8 * off * (np.abs(gap).sum(axis=2).max(axis=1) + off) + cost.max(axis=1) * 2.0 ** -20
    mine = cost[np.arange(len(x)), label]
    a.check((mine <= cost.min(axis=1) + slack).all(), "a row costs less in another cluster")
    a.check(abs(model["cost"] - mine.sum()) <= slack.sum() + 1e-6 * mine.sum(), lambda: f"cost {model['cost']}, numpy has {mine.sum()}")
    for i in range(words.shape[1]):
        for j, q in enumerate(clusters):
            shares = q["centroid"][f"c{i}"]["shares"]
            if size[j] == 0:
                continue
            share = {w: float((words[label == j, i] == w).sum()) / size[j] for w in set(words[label == j, i])}
            a.check(all(abs(shares[w] - share.get(w, -1)) <= 1e-6 for w in shares) and len(shares) == min(len(share), 10),
                    lambda: f"shares {shares}, counted {share}")
