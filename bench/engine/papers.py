#!/usr/bin/env python3
"""The papers' experiments on the CPU, by the engine and without a server:
make -C bench, then

    bench/engine/papers.py [--smoke] [--full] [GROUP ...]     groups: see GROUPS

bench/gpu/gpu_papers.cu is the same on a GPU; bench/report/papers.json has the papers' own figures.
Sizes are the papers', but for one: Lutz et al.'s 2 GB are 64 MB, without --full.  Points
are Lutz et al.'s, made by the engine; those of He et al.'s tables 3 and 4 are made here as they describe them.
Times are medians.  Without GROUPs, and unless --smoke, bench/results/papers-cpu.json
is written.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

from engine import engine

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import about, write  # noqa: E402

SMOKE = {"divide": 1000, "cap": 1000}
THREADS = len(os.sched_getaffinity(0))
STRATEGIES = ("cluster_merge", "partitioned_features", "delta")


class Run:
    def __init__(self, smoke, full):
        self.smoke, self.full, self.rows = smoke, full, []

    def n(self, n):
        return max(n // SMOKE["divide"], min(n, SMOKE["cap"])) if self.smoke else n

    def add(self, **row):
        self.rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    def step(self, paper, table, n, d, k, threads, iterations=10, rounds=3, strategy=None, **more):
        """Passes without skipping, median."""
        n = self.n(n)
        k = min(k, n)
        if self.smoke:
            iterations, rounds = 3, 1
        given = ("-f", strategy) if strategy else ()
        r = engine("step", n, d, k, "-i", iterations, "-r", rounds, *given, threads=threads)
        assert r["ms"] > 0 and 0 < r["best_ms"] <= r["ms"], r
        self.add(paper=paper, table=table, n=n, d=d, k=k, threads=threads, what=strategy or "auto", ms=r["ms"],
                 best_ms=r["best_ms"], strategy=r["strategy"], read_gbs=r["read_gbs"], fma_gflops=r["fma_gflops"], **more)
        return r


def lutz(run):
    values = 2 ** 29 if run.full else 2 ** 24
    for d in (2, 4, 8, 16, 32, 64, 128, 256):
        for k in (4, 64):
            for strategy in STRATEGIES:
                run.step("000", "1", values // d, d, k, THREADS, 5, 1, strategy)
    for k in (2, 4, 8, 16, 32, 64, 128, 256):
        for strategy in STRATEGIES[:2]:
            run.step("000", "4", values // 4, 4, k, THREADS, 5, 1, strategy)
    for mb in (1, 4, 16, 64, 256) + ((1024, 4096) if run.full else ()):
        for k in (4, 64):
            run.step("000", "7", mb * 65536, 4, k, THREADS, 5, 1)


def zechner(run):
    for n in (500, 5000, 50000, 500000):
        for d in (2, 20, 200):
            for k in (2, 4, 8, 16, 32, 64, 128):
                run.step("001", "6", n, d, k, 1, 5, 2)


def blog(run):
    for n in (100, 100000):
        for threads in sorted({1, THREADS}):
            run.step("002", "table", n, 2, 5, threads, 300, 3)
            r = engine("small", n, 2, 5, "-i", 300, "-r", 3, threads=threads)
            assert r["converged"] and r["inertia"] > 0, r
            run.add(paper="002", table="fit", n=n, d=2, k=5, threads=threads, what="until nothing moves",
                    ms=r["prepare_ms"] + r["fit_ms"], iterations=r["iterations"])


def mohiuddin(run):
    rows = [("Table 1", 10000, 128, 80), ("Table 1", 50000, 128, 800), ("Table 1", 125000, 128, 2000),
            ("Table 1", 250000, 128, 4000), ("Table 1", 500000, 128, 4000),
            ("Table 5", 50000, 32, 34), ("Table 5", 500000, 32, 34), ("Table 5", 500000, 128, 2000),
            ("Table 5", 1000000, 128, 4000), ("Table 1", 1000000, 128, 8000)]
    for table, n, d, k in rows:
        slow = n * d * k > 3e10
        run.step("003", table, n, d, k, THREADS, 2 if slow else 5, 1 if slow else 3)


def he_points(path, n):
    """Four balls of radius 9 in four dimensions, uniform, row i in ball i mod 4."""
    centres = np.array([(40, 40, 60, 60), (40, 60, 60, 40), (60, 40, 40, 60), (60, 60, 40, 40)], np.float64)
    rng = np.random.default_rng(2022)
    with open(path, "wb") as f:
        for first in range(0, n, 1 << 20):
            some = min(1 << 20, n - first)
            x = rng.normal(size=(some, 4))
            x *= (9 * rng.random(some) ** 0.25 / np.sqrt((x * x).sum(1)))[:, None]
            (x + centres[np.arange(first, first + some) % 4]).astype(np.float32).tofile(f)
    return centres


def package_error(x, centres, packages):
    """Mean error of the centroids when float32 numbers are added up one by one in packages."""
    errors = []
    for c in range(4):
        own = x[c::4]
        size = len(own) // packages
        for j in range(4):
            part = np.cumsum(np.ascontiguousarray(own[:size * packages, j]).reshape(packages, size), axis=1, dtype=np.float32)[:, -1]
            total = np.cumsum(part, dtype=np.float32)[-1]
            errors.append(abs(float(total) / (size * packages) - centres[c, j]))
    return float(np.mean(errors))


def he_accuracy(run):
    n = run.n(50000000)
    with tempfile.TemporaryDirectory() as directory:
        points, first, last = (os.path.join(directory, name) for name in ("points", "first", "last"))
        centres = he_points(points, n)
        x = np.memmap(points, np.float32, "r", shape=(n, 4))
        for seed in range(20):              # the first random rows that aren't trapped, as theirs
            x[np.random.default_rng(seed).choice(n, 4, replace=False)].tofile(first)
            for threads in sorted({1, THREADS}):
                r = engine("fit", points, n, 4, 4, first, "-i", 100, "-r", 1, "-o", last, threads=threads)
                found = np.fromfile(last).reshape(4, 4)
                nearest = np.abs(found[:, None] - centres[None]).sum(2).argmin(0)
                error = float(np.abs(found[nearest] - centres).mean())
                if error < 1:
                    run.add(paper="004", table="Table 3", n=n, d=4, k=4, threads=threads, what="gkmeans", error=error,
                            iterations=r["iterations"], ms=r["iterate_ms"] / r["iterations"])
            if error < 1:
                break
        assert error < (1 if run.smoke else 0.005), error
        means = [x[c::4].mean(0, dtype=np.float64) for c in range(4)]
        run.add(paper="004", table="Table 3", n=n, d=4, k=4, what="sums in double, added in pairs", precision="double", packages=1,
                error=float(np.abs(np.array(means) - centres).mean()))
        for packages in (1, 10, 100, 1000):
            run.add(paper="004", table="Table 3", n=n, d=4, k=4, what="sums in single, one by one", precision="single",
                    packages=packages, error=package_error(x, centres, packages))
        del x


def he_real(run):
    """Points of the real sets' n and d: the sets themselves are not to be had here."""
    for n, d, k in ((2049280, 4, 4), (2049280, 7, 4), (2458285, 68, 16), (2458285, 68, 64), (2458285, 68, 256)):
        for threads in sorted({1, THREADS}):
            run.step("004", "real", n, d, k, threads, 5 if k > 100 else 10, 1 if k > 20 else 3)


GROUPS = {"lutz": lutz, "zechner": zechner, "blog": blog, "mohiuddin": mohiuddin, "he_accuracy": he_accuracy, "he_real": he_real}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a thousandth of the rows, nothing written")
    parser.add_argument("--full", action="store_true", help="2 GB, which take long on few cores")
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[[]] + list(GROUPS), help=" ".join(GROUPS))
    args = parser.parse_args()
    head = about("bench/engine/papers.py" + (" --full" if args.full else ""), "median of the passes of 1 to 3 runs", threads=THREADS,
                 lutz_mb=2048 if args.full else 64)
    run = Run(args.smoke, args.full)
    for name in args.groups or GROUPS:
        GROUPS[name](run)
    if not args.smoke and not args.groups:
        write("papers-cpu.json", head, run.rows)
    print(f"papers: {len(run.rows)} rows")


if __name__ == "__main__":
    main()
