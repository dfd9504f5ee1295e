"""kmeans_mixed() on numbers of the random tables and categories beside them: costs and labels by numpy, the same by all settings."""
import json

import numpy as np

from fuzz_common import literal
from problem_attack import PLAIN, campaign, problem

# of every length that dictionaries treat in a way of its own, some alike but for a byte; a few KB is stored out of line
CATEGORIES = ["a", "b", "B", "", " ", "ab", "a\tb", "\"q\"", "ü", "x" * 300, "{}", "null", "'", "abcd", "abce", "abcdefg", "abcdefh",
              "abcdefgh", "abcdefgi", "abcdefgha", "abcdefghb", "日本", "y" * 9000, "y" * 8999 + "z"]
TYPES = ["text", "varchar", "name", "text"]


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
    # rows with a NULL anywhere are left out of the fit
    holes = [(a.rng.randint(0, len(x) - 1), a.rng.randint(0, d + c - 1)) for _ in range(a.rng.choice([0, 0, 1, 20]))]
    columns = [[None if (i, j) in holes else v for i, v in enumerate(column)] for j, column in enumerate([*x.T.tolist(), *words])]
    types = ["float8"] * d + [a.rng.choice(TYPES if max(len(v.encode()) for v in w) < 64 else ["text", "varchar"]) for w in words]
    arrays = [values(column, type_name) for column, type_name in zip(columns, types)]
    kept = [i for i in range(len(x)) if i not in {i for i, _ in holes}]
    x, words = x[kept], [[w[i] for i in kept] for w in words]
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
        if not kept:
            a.check(expected.value is None, f"kmeans_mixed_fit without rows: {expected}")
        else:
            check_model(a, x, words, names, d, expected.value)
    a.s.run("ROLLBACK")


def check_model(a, x, words, names, d, model):
    """Labels of the fit's rows, and of rows with categories that it has not seen: these differ from all modes."""
    c = len(words)
    labels = a.s.run(f"SELECT kmeans_mixed_predict({literal(model)}, {', '.join(names)}) FROM mixed_rows")
    if not (campaign.sane(labels, a.s) and a.check(labels.ok, f"kmeans_mixed_predict: {labels}")):
        return
    found = [r[0] for r in labels.rows if r[0] is not None]
    if a.check(len(found) == len(x), f"{len(found)} labels of {len(x)} rows"):
        check(a, x, np.array(words, dtype=object).T.reshape(len(x), c), json.loads(model), np.array([int(v) for v in found]))
    if c:
        unknown = a.rng.choice(["unknown", "", "é", "abcdefgi" * 2, "z" * 9000])
        seen = {w for column in words for w in column}
        numbers, others = [n for n in names[:d]], [f"{literal(unknown)}::text"] * c
        labels = a.s.run(f"SELECT kmeans_mixed_predict({literal(model)}, {', '.join(numbers + others)}) FROM mixed_rows "
                         f"WHERE NOT ({' OR '.join(f'{n} IS NULL' for n in names)})")
        if unknown not in seen and campaign.sane(labels, a.s) and a.check(labels.ok, f"kmeans_mixed_predict, unknown categories: {labels}"):
            nearest(a, x, np.full((len(x), c), unknown, dtype=object), json.loads(model), np.array([int(r[0]) for r in labels.rows]))


def costs(x, words, model):
    """Of each row in each cluster by numpy, and what rounding may make of it."""
    clusters = model["clusters"]
    numbers = [q for q in model["columns"] if q["number"]]
    # as the engine prepares them, but for its rounding to float32
    prepared = np.array([(x[:, i] - q["center"]) * q["scale"] for i, q in enumerate(numbers)]).T.reshape(len(x), len(numbers))
    means = np.array([q["means"] for q in clusters], dtype=float)
    modes = np.array([q["modes"] for q in clusters], dtype=object).reshape(len(clusters), -1)
    gap = prepared[:, None, :] - means[None]
    cost = (gap ** 2).sum(axis=2) + model["gamma"] * (words[:, None, :] != modes[None]).sum(axis=2)
    off = (np.abs(prepared).max() + np.abs(means).max()) * 2.0 ** -23 + np.abs(gap).max(axis=(1, 2)) * 2.0 ** -22 if numbers else 0
    slack = 8 * off * (np.abs(gap).sum(axis=2).max(axis=1) + off) + cost.max(axis=1) * 2.0 ** -20
    return cost, slack


def nearest(a, x, words, model, label):
    cost, slack = costs(x, words, model)
    mine = cost[np.arange(len(x)), label]
    a.check((mine <= cost.min(axis=1) + slack).all(), "a row costs less in another cluster")
    return mine, slack


def check(a, x, words, model, label):
    clusters = model["clusters"]
    size = np.array([q["size"] for q in clusters])
    if not a.check((np.bincount(label, minlength=len(size)) == size).all() and len(size) <= len(x), "sizes and kmeans_mixed_predict differ"):
        return
    mine, slack = nearest(a, x, words, model, label)
    a.check(abs(model["cost"] - mine.sum()) <= slack.sum() + 1e-6 * mine.sum(), lambda: f"cost {model['cost']}, numpy has {mine.sum()}")
    for i in range(words.shape[1]):
        for j, q in enumerate(clusters):
            shares = q["centroid"][f"c{i}"]["shares"]
            if size[j] == 0:
                continue
            share = {w: float((words[label == j, i] == w).sum()) / size[j] for w in set(words[label == j, i])}
            a.check(all(abs(shares[w] - share.get(w, -1)) <= 1e-6 for w in shares) and len(shares) == min(len(share), 10),
                    lambda: f"shares {shares}, counted {share}")
