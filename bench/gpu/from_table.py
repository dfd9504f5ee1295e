#!/usr/bin/env python3
"""Embeddings of a table clustered on a GPU, from the first page to labels in another table, beside the round trip
through flash-kmeans: COPY BINARY out, its fit on the same GPU, COPY back.

    bench/gpu/from_table.py [--rows N] [--dim D] [--centres C] [--k K] [--iterations I] [--sessions S]

with the PG* variables of a server that has gkmeans (of this tree) and its superuser. The table has ids and real[D],
points around C centres, stored as PostgreSQL stores them (real[768] is toasted); large_k.py takes the same table.
Both begin from k random rows and make I iterations. Milliseconds by the client's clock, medians of S sessions: a
session's first call opens the device (cold), its second finds it open (warm). Where a call's time went is said by
kmeans_info(), of a fit of its own. It needs numpy and psycopg, and torch and flash-kmeans for the round trip.
"""
import argparse
import datetime
import os
import statistics
import subprocess
import sys
import time

import numpy
import psycopg

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path += [os.path.join(ROOT, "report"), os.path.join(ROOT, "server")]
from about import commit, machine  # noqa: E402
from large_k import points  # noqa: E402

STEPS = ("load_ms", "context_ms", "upload_ms", "seed_ms", "iterate_ms", "total_ms")


class Clock:
    """Milliseconds of steps, by name, in their order."""

    def __init__(self):
        self.ms = {}

    def time(self, name, what):
        start = time.perf_counter()
        result = what()
        self.ms.setdefault(name, []).append((time.perf_counter() - start) * 1e3)
        return result

    def table(self, title):
        print(f"\n{title}")
        for name, ms in self.ms.items():
            print(f"{name:58} {statistics.median(ms):9.1f}  ({min(ms):.1f} to {max(ms):.1f})", flush=True)


def session():
    db = psycopg.connect(autocommit=True)
    db.execute("SET client_min_messages = error; SET gkmeans.device = 'gpu'; SET gkmeans.memory_limit = '8GB'")
    return db


def gkmeans(args, clock):
    """Labels of all rows into a table, twice in a session; then where the time goes."""
    options = f"init => 'random', max_iter => {args.iterations}, tol => 0, seed => 1"
    labels = f"SELECT cluster FROM kmeans_label_table('points', '{{e}}', {args.k}, 'labels', '{{id}}', {options})"
    with session() as db:
        for name in ("count(*)", "count(*) again"):
            clock.time(name, lambda: db.execute("SELECT count(*) FROM points").fetchone())
        for name in ("labels into a table, first call", "labels into a table, second call"):
            db.execute("DROP TABLE IF EXISTS labels")
            clock.time(name, lambda: db.execute(labels).fetchall())
    with session() as db:
        for call in ("first", "second"):
            fit = f"SELECT {', '.join(STEPS)}, device, iterations FROM kmeans_info((SELECT kmeans_fit('points', '{{e}}', {args.k}, {options})))"
            row = clock.time(f"kmeans_fit(), {call} call", lambda: db.execute(fit).fetchone())
            for step, ms in zip(STEPS, row):
                clock.ms.setdefault(f"    {call}: {step}", []).append(ms or 0.0)
    return row[len(STEPS)], row[len(STEPS) + 1]


def copied(args):
    """The points by COPY BINARY, through a pipe as a driver would have them."""
    with subprocess.Popen(["psql", "-XqAt", "-c", "COPY (SELECT e FROM points) TO STDOUT (FORMAT binary)"], stdout=subprocess.PIPE) as psql:
        raw = psql.stdout.read()
    if psql.returncode != 0:
        sys.exit("from_table.py: COPY failed")
    value = numpy.dtype([("length", ">i4"), ("at", ">f4")])
    row = numpy.dtype([("fields", ">i2"), ("length", ">i4"), ("head", "V20"), ("x", value, (args.dim,))])
    return numpy.frombuffer(raw, row, args.rows, 19)


def round_trip(args, clock, fit):
    import torch

    rows = clock.time("COPY BINARY to a client", lambda: copied(args))
    x = clock.time("to an array of float32", lambda: rows["x"]["at"].astype(numpy.float32))
    del rows

    def upload():
        there = torch.from_numpy(x).cuda()
        torch.cuda.synchronize()
        return there

    on_gpu = clock.time("to the GPU", upload)

    def cluster():
        label = fit(on_gpu, args.k, args.iterations)
        torch.cuda.synchronize()
        return label.to(torch.int32).cpu().numpy()

    labels = clock.time("flash-kmeans, and labels back from the GPU", cluster)

    def store():
        # id and label, 4 bytes each, after their number and their lengths
        block = numpy.zeros(args.rows, numpy.dtype([("fields", ">i2"), ("l0", ">i4"), ("id", ">i4"), ("l1", ">i4"), ("label", ">i4")]))
        block["fields"], block["l0"], block["l1"], block["id"], block["label"] = 2, 4, 4, numpy.arange(args.rows), labels
        with session() as db:
            db.execute("DROP TABLE IF EXISTS copied; CREATE UNLOGGED TABLE copied (id int, label int)")
            with db.cursor().copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + block.tobytes() + b"\xff\xff")

    clock.time("COPY BINARY into a table", store)


def flash():
    """A fit by flash-kmeans: points, k, iterations to labels; and its name."""
    import importlib.metadata

    import torch
    from flash_kmeans import batch_kmeans_Euclid

    def fit(x, k, iterations):
        first = x[torch.randperm(len(x), device=x.device)[:k]]
        return batch_kmeans_Euclid(x[None], n_clusters=k, max_iters=iterations, tol=-1.0, init_centroids=first[None])[0][0]

    return fit, "flash-kmeans " + importlib.metadata.version("flash-kmeans")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--centres", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=3)
    args = parser.parse_args()
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    with session() as db:
        print(f"command: bench/gpu/from_table.py {' '.join(sys.argv[1:])}".rstrip())
        print(f"commit:  {commit()}, {datetime.date.today()}")
        print(f"machine: {gpu}; {machine()}, {os.cpu_count()} CPUs, PostgreSQL {db.execute('SHOW server_version').fetchone()[0]}", flush=True)
        db.execute("CREATE EXTENSION IF NOT EXISTS gkmeans")
        points(db, args.rows, args.dim, args.centres, "real[]")
        size = db.execute("SELECT pg_table_size('points')").fetchone()[0]
    print(f"points:  {args.rows} x {args.dim} around {args.centres} centres, real[], {size / 2**20:.0f} MB; k = {args.k}, {args.iterations} iterations, medians of {args.sessions} sessions")
    ours = Clock()
    for _ in range(args.sessions):
        device, iterations = gkmeans(args, ours)
    ours.table(f"gkmeans, {device}, {iterations} iterations, ms")
    theirs = Clock()
    fit, name = flash()
    for i in range(args.sessions + 1):
        if i == 1:
            theirs = Clock()    # the first one compiled its kernels
        round_trip(args, theirs, fit)
    theirs.table(f"the round trip through {name}, whose kernels are compiled, ms")
    whole = sum(statistics.median(ms) for ms in theirs.ms.values())
    print(f"{'together':58} {whole:9.1f}, {whole / statistics.median(ours.ms['labels into a table, second call']):.1f} times the second call, "
          f"{whole / statistics.median(ours.ms['labels into a table, first call']):.1f} times the first")


if __name__ == "__main__":
    main()
