#!/usr/bin/env python3
"""kmeans_balanced() beside kmeans(), with the same number of iterations.

    test/with-cluster python3 bench/server/balanced.py [--smoke] [--rounds N]

A table of 100,000 x 16, k = 32, uniform and in blobs of different sizes.  Every round runs both once,
one after the other; tol is 0 and max_iter so low that neither ends before.  Medians, and the median of
the rounds' ratios.  It needs numpy and psycopg.
"""
import argparse
import statistics
import sys
import time

try:
    import numpy as np
    import psycopg
except ImportError as e:
    sys.exit(f"skipped: {e}")

from memory import commit, machine

K, D, ITERATIONS = 32, 16, 10


def make_table(db, x):
    db.execute("DROP TABLE IF EXISTS points")
    db.execute("CREATE UNLOGGED TABLE points (p float4[])")
    with db.cursor().copy("COPY points FROM STDIN") as copy:
        for p in x:
            copy.write_row(("{" + ",".join(map(str, p)) + "}",))
    db.execute("VACUUM ANALYZE points")


def seconds(db, call):
    start = time.monotonic()
    iterations = db.execute(f"SELECT iterations FROM kmeans_info({call})").fetchone()[0]
    return time.monotonic() - start, iterations


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--smoke", action="store_true")
    arguments.add_argument("--rounds", type=int, default=5)
    args = arguments.parse_args()
    n = 2000 if args.smoke else 100_000
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(20))
    tables = {"uniform": rng.random((n, D)),
              "blobs": rng.standard_normal((n, D)) + 6 * rng.random((20, D))[rng.choice(20, n, p=share)]}
    print(f"{machine()}\n{commit()}\n{n} x {D}, k = {K}, {ITERATIONS} iterations, {args.rounds} rounds\n")
    print(f"{'table':10s} {'sizes':>16s} {'kmeans s':>10s} {'balanced s':>10s} {'ratio':>8s}")
    with psycopg.connect(autocommit=True) as db:
        db.execute("SET client_min_messages = error")
        db.execute("CREATE EXTENSION IF NOT EXISTS gkmeans")
        db.execute("SET gkmeans.device = cpu; SET gkmeans.memory_limit = '1GB'")
        for name, x in tables.items():
            make_table(db, x)
            for low, high in ((n // K, -(-n // K)), (n // K // 2, 3 * n // K // 2)):
                rounds = []
                for i in range(args.rounds + 1):
                    tail = f"max_iter => {ITERATIONS}, tol => 0"
                    plain, a = seconds(db, f"kmeans_fit('points', '{{p}}', {K}, {tail})")
                    bounded, b = seconds(db, f"kmeans_balanced_fit('points', '{{p}}', {K}, {low}, {high}, {tail})")
                    if not args.smoke and (a, b) != (ITERATIONS, ITERATIONS):
                        sys.exit(f"{a} and {b} iterations")
                    if i > 0:
                        rounds.append((plain, bounded, bounded / plain))
                plain, bounded, ratio = (statistics.median(c) for c in zip(*rounds))
                print(f"{name:10s} {f'{low}..{high}':>16s} {plain:10.3f} {bounded:10.3f} {ratio:8.1f}", flush=True)


if __name__ == "__main__":
    main()
