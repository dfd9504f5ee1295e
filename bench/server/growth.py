#!/usr/bin/env python3
"""Time and memory against the number of rows, features, clusters, threads and workers,
and with points beyond the memory limit.

    test/with-cluster python3 bench/server/growth.py [--smoke] [--rounds N]

Each run is kmeans_fit() of a cached table in a process of its own: k-means++ and 20
iterations (tol 0) on the CPU; the phases' times are kmeans_info()'s, medians.  Memory is the
most that the process allocated itself, over what it had before.  Writes
bench/results/growth.json, from which `bench/run report` fits exponents and makes
docs/planning.md.  It needs psycopg, numpy and scikit-learn (for roundtrip.py's tables).
"""
import argparse
import json
import os
import statistics
import sys

import psycopg

from memory import Memory

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import about, write  # noqa: E402

try:
    import roundtrip
except ImportError as e:
    sys.exit(f"skipped: {e}")

ITERATIONS = 20
SETTINGS = "SET client_min_messages = error; SET maintenance_work_mem = '2GB'; SET gkmeans.device = cpu"
PHASES = ("load_ms", "seed_ms", "iterate_ms", "total_ms")


def fit(k, settings, columns, rounds):
    """Medians of the phases and the highest memory of runs in sessions of their own."""
    runs, peak = [], 0
    for _ in range(rounds):
        with psycopg.connect(autocommit=True) as db:
            db.execute(SETTINGS)
            for name, value in settings.items():
                db.execute(f"SET gkmeans.{name} = '{value}'")
            db.execute("SELECT count(*) FROM points")
            memory = Memory(db.info.backend_pid)
            before = memory.now()
            with memory:
                info = db.execute(f"""SELECT {', '.join(PHASES)}, iterations, strategy, device FROM kmeans_info((
                    SELECT kmeans_fit('points', '{{{','.join(columns)}}}', {k}, seed => 1, max_iter => {ITERATIONS}, tol => 0)))""").fetchone()
            runs.append(info)
            peak = max(peak, memory.peak - before)
    row = {name: statistics.median(r[i] for r in runs) for i, name in enumerate(PHASES)}
    return row | {"runs": [round(r[3], 2) for r in runs], "iterations": runs[0][4], "strategy": runs[0][5], "memory_mb": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a hundredth of the rows, nothing written")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rounds, divide = (1, 100) if args.smoke else (args.rounds, 1)
    head = about(f"test/with-cluster python3 bench/server/growth.py --rounds {args.rounds}", args.rounds, iterations=ITERATIONS)
    rows = []

    def add(series, n, d, k, settings, columns, **more):
        row = {"series": series, "n": n, "d": d, "k": k, **more, **fit(k, settings, columns, rounds)}
        assert row["total_ms"] > 0 and 0 < row["iterations"] <= ITERATIONS, row
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    with psycopg.connect(autocommit=True) as db:
        db.execute(SETTINGS + "; CREATE EXTENSION IF NOT EXISTS gkmeans")
        head["settings"]["postgresql"] = db.execute("SHOW server_version").fetchone()[0]
        for n in (100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000):
            columns, _ = roundtrip.make_table(db, n // divide, 4)
            add("n", n // divide, 4, 8, {}, columns)
        # that last table once more, with less memory than its points need, and read again in every pass
        points_kb = n // divide * 16 // 1024
        for share in (2, 8, 32):
            add("memory", n // divide, 4, 8, {"memory_limit": f"{max(points_kb // share, 64)}kB"}, columns, share=1 / share)
        add("scan", n // divide, 4, 8, {"strategy": "scan"}, columns)
        for threads in range(1, len(os.sched_getaffinity(0)) + 1):
            add("threads", n // divide, 4, 32, {"threads": threads}, columns, threads=threads)
        if db.execute("SELECT count(*) FROM pg_settings WHERE name = 'gkmeans.workers'").fetchone()[0]:
            for workers in (0, 1, 2):
                add("workers", n // divide, 4, 8, {"workers": workers}, columns, workers=workers)
        for d in (2, 4, 8, 16, 32, 64, 128):
            columns, _ = roundtrip.make_table(db, 100_000 // divide, d)
            add("d", 100_000 // divide, d, 16, {}, columns)
        columns, _ = roundtrip.make_table(db, 200_000 // divide, 8)
        for k in (2, 4, 8, 16, 32, 64, 128, 256):
            add("k", 200_000 // divide, 8, k, {}, columns)
    if not args.smoke:
        write("growth.json", head, rows)
    print(f"growth: {len(rows)} rows")


if __name__ == "__main__":
    main()
