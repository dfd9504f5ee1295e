#!/usr/bin/env python3
"""The chain of He et al. (kmeans_spectral) phase by phase, and beside k-means.

    test/with-cluster python3 bench/server/spectral.py [--smoke] [--iterations N] [--sizes NAME...]

The tables have the sizes of the paper's three data sets and its numbers of clusters, their points
in as many balls (the paper's synthetic set; of the others only the sizes are the paper's).  "ten"
is 10,000,000 x 16, uniform in a cube, so that the graph does not fall apart.  Each call is made in a
process of its own; times are kmeans_info()'s, of labels those of the call around it.  "ten" is
compared: with kmeans() of the same k and iterations, and with the k-means of its representatives
alone.  Memory is the most that the process allocated itself, over what it had before.  It needs
numpy and psycopg.
"""
import argparse
import datetime
import sys
import time

try:
    import numpy as np
    import psycopg
except ImportError as e:
    sys.exit(f"skipped: {e}")

from memory import Memory, commit, machine
from roundtrip import copy_in

REPRESENTATIVES = 1000
SIZES = {"synthetic": (50_000_000, 4, 4), "household": (2_049_280, 7, 4), "census": (2_458_285, 68, 16), "ten": (10_000_000, 16, 10)}
SETTINGS = "SET client_min_messages = error; SET gkmeans.device = cpu; SET gkmeans.memory_limit = '8GB'; SET gkmeans.workers = 0"
ROWS_A_COPY = 1_000_000


def make_table(db, rows, d, k, balls):
    """Uniform in balls of radius 9, or in a cube."""
    rng = np.random.default_rng(d)
    centers = rng.random((k, d)) * 80 + 10
    columns = [f"c{j}" for j in range(d)]
    db.execute("DROP TABLE IF EXISTS points")
    db.execute(f"CREATE UNLOGGED TABLE points ({', '.join(c + ' float4' for c in columns)})")
    record = np.dtype([("n", ">i2"), ("v", [("len", ">i4"), ("x", ">f4")], d)])
    for first in range(0, rows, ROWS_A_COPY):
        n = min(ROWS_A_COPY, rows - first)
        x = rng.standard_normal((n, d)) if balls else rng.random((n, d))
        if balls:
            x *= 9 * rng.random((n, 1)) ** (1 / d) / np.linalg.norm(x, axis=1, keepdims=True)
            x += centers[rng.integers(k, size=n)]
        out = np.zeros(n, record)
        out["n"], out["v"]["len"], out["v"]["x"] = d, 4, x
        copy_in(db, "points", out)
    db.execute("VACUUM ANALYZE points")
    return columns


def measure(call):
    """Seconds, the first row, and MB of a call in a process of its own."""
    with psycopg.connect(autocommit=True) as db:
        db.execute(SETTINGS)
        db.execute("SELECT count(*) FROM points")
        memory = Memory(db.info.backend_pid)
        before = memory.now()
        with memory:
            start = time.perf_counter()
            row = db.execute(call).fetchone()
            seconds = time.perf_counter() - start
        return seconds, row, memory.peak - before


def line(what, value, digits=2):
    print(f"{what:<58}{value:12.{digits}f}", flush=True)


def phases(columns, k, options):
    info = ("load_ms", "seed_ms", "iterate_ms", "graph_ms", "eigen_ms", "embed_ms", "iterations", "k", "representatives")
    seconds, row, mb = measure(f"SELECT {', '.join(info)} FROM kmeans_info(kmeans_spectral_fit('points', '{columns}', {k}, {REPRESENTATIVES}, {options}))")
    assert row[-2] == k and row[-1] == REPRESENTATIVES, row
    for name, ms in zip(("load", "representatives: k-means++", f"representatives: {row[6]} iterations", "graph", "eigenvectors", "k-means of the embedding"), row):
        line(name + ", s", ms / 1e3, 3)
    line("kmeans_spectral_fit(), s", seconds)
    line("memory, MB", mb, 0)
    return seconds, mb


def compare(columns, k, options):
    spectral, _, _ = measure(f"SELECT sum(size) FROM kmeans_spectral('points', '{columns}', {k}, {REPRESENTATIVES}, {options})")
    plain, _, _ = measure(f"SELECT sum(size) FROM kmeans('points', '{columns}', {k}, {options})")
    own, _, own_mb = measure(f"SELECT sum(size) FROM kmeans('points', '{columns}', {REPRESENTATIVES}, {options})")
    _, mb = phases(columns, k, options)
    line("kmeans_spectral(), s", spectral)
    line(f"kmeans(), k = {k}, s", plain)
    line(f"kmeans(), k = {REPRESENTATIVES}, s", own)
    line(f"kmeans(), k = {REPRESENTATIVES}: memory, MB", own_mb, 0)
    line("kmeans_spectral / both kmeans (target: at most 3)", spectral / (plain + own))
    line("its memory / that of kmeans (target: at most 1.1)", mb / own_mb)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a thousandth of the rows")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    args = parser.parse_args()
    print(f"command: test/with-cluster python3 bench/server/spectral.py --iterations {args.iterations} --sizes {' '.join(args.sizes)}")
    print(f"commit:  {commit()}, {datetime.date.today()}")
    with psycopg.connect(autocommit=True) as db:
        db.execute(SETTINGS + "; CREATE EXTENSION IF NOT EXISTS gkmeans")
        print(f"machine: {machine()}, PostgreSQL {db.execute('SHOW server_version').fetchone()[0]}")
        print("note:    one run of each call")
        for name in args.sizes:
            rows, d, k = SIZES[name]
            rows = rows // 1000 if args.smoke else rows
            columns = "{" + ",".join(make_table(db, rows, d, k, name != "ten")) + "}"
            print(f"\n{name}: {rows:,} x {d}, k = {k}, {REPRESENTATIVES:,} representatives, {args.iterations} iterations")
            (compare if name == "ten" else phases)(columns, k, f"max_iter => {args.iterations}, tol => 0")


if __name__ == "__main__":
    main()
