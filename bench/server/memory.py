#!/usr/bin/env python3
"""Points above gkmeans.memory_limit: time and memory beside the cached run.

    test/with-cluster python3 bench/server/memory.py [--rows N] [--rounds N]

Each table has --values numbers in --features columns of float4. A run is kmeans() with 20
iterations, from given centroids and from k-means++. "cached" has a limit that holds
all points; "limited" has a twentieth of their 4 bytes per value, so nearly all of them
go through the temporary file in every pass, which fits the page cache here. Each round runs
both, in turns; medians. Memory is the server process's RssAnon (what it has allocated
itself, without shared buffers), the highest of samples every 2 ms; "before" is the same process
after a small call. The results have to be equal to the last bit. It needs psycopg.
"""
import argparse
import datetime
import os
import statistics
import sys
import threading
import time

import psycopg

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import commit, machine  # noqa: E402

K = 8


class Memory:
    """The highest RssAnon of a process, in MB, while the block runs."""

    def __init__(self, pid):
        self.pid, self.peak, self.stop = pid, 0, False

    def now(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return [int(line.split()[1]) for line in f if line.startswith("RssAnon")][0] / 1024

    def watch(self):
        while not self.stop:
            self.peak = max(self.peak, self.now())
            time.sleep(0.002)

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()


def run(call, limit):
    """Milliseconds, result, RssAnon before and at most: in a process of its own."""
    with psycopg.connect(autocommit=True) as db:
        db.execute("SET client_min_messages = error; SET max_parallel_workers_per_gather = 0")
        db.execute("SELECT count(*) FROM kmeans('small', '{c0}', 2)")
        db.execute(f"SET gkmeans.memory_limit = '{limit}kB'")
        memory = Memory(db.info.backend_pid)
        before = memory.now()
        with memory:
            start = time.perf_counter()
            result = db.execute(call).fetchall()
            ms = (time.perf_counter() - start) * 1e3
        return ms, result, before, memory.peak


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    print(f"command: test/with-cluster python3 bench/server/memory.py --values {args.values} --rounds {args.rounds}")
    print(f"commit:  {commit()}, {datetime.date.today()}")
    print(f"machine: {machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    print(f"{'table, seeding':28} {'points MB':>9} {'limit MB':>8} {'cached ms':>9} {'limited ms':>10} {'ratio':>6}"
          f" {'before MB':>9} {'cached MB':>9} {'limited MB':>10}")
    with psycopg.connect(autocommit=True) as db:
        db.execute("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gkmeans")
        db.execute("CREATE TABLE small AS SELECT random()::float4 AS c0 FROM generate_series(1, 1000)")
        for d in (2, 4, 16, 64):
            n = args.values // d
            columns = ", ".join(f"random()::float4 AS c{j}" for j in range(d))
            db.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT {columns} FROM generate_series(1, {n})")
            db.execute("VACUUM ANALYZE t")
            names = "{" + ",".join(f"c{j}" for j in range(d)) + "}"
            given = "{" + ",".join("{" + ",".join(f"{(c * 7 + j * 3) % 11 / 11:.3f}" for j in range(d)) + "}" for c in range(K)) + "}"
            for seeding in (f"centroids => '{given}'", "seed => 1"):
                call = f"SELECT * FROM kmeans('t', '{names}', {K}, max_iter => 20, tol => 0, {seeding})"
                limits = {"cached": 8 << 20, "limited": args.values * 4 // 20 // 1024}
                got = {"cached": [], "limited": []}
                for i in range(args.rounds):
                    for name in sorted(limits, reverse=i % 2 == 1):
                        got[name].append(run(call, limits[name]))
                assert all(g[1] == got["cached"][0][1] for g in got["cached"] + got["limited"]), "results differ"
                ms = {name: statistics.median(g[0] for g in got[name]) for name in got}
                peak = {name: max(g[3] for g in got[name]) for name in got}
                what = f"{n} x {d}, " + ("given" if "centroids" in seeding else "k-means++")
                print(f"{what:28} {args.values * 4 / 2**20:9.1f} {limits['limited'] / 1024:8.1f} {ms['cached']:9.1f} {ms['limited']:10.1f}"
                      f" {ms['limited'] / ms['cached']:6.2f} {got['limited'][0][2]:9.1f} {peak['cached']:9.1f} {peak['limited']:10.1f}", flush=True)


if __name__ == "__main__":
    main()
