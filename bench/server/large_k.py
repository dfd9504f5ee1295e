#!/usr/bin/env python3
"""Very many clusters of wide points: time, memory, progress, and how fast a cancel is.

    CONF="shared_preload_libraries = 'gkmeans'" test/with-cluster python3 bench/server/large_k.py
        [--rows N] [--dim D] [--k K] [--max-iter I] [--init INIT] [--devices DEVICE,...]

A table of vector(D), or of real[] where pgvector is not installed: points around as many centres as there are
clusters to find; a table `points` with that many rows is taken as it is. kmeans() puts its rows into a table, and new rows are labelled by that (centroid_table).
Memory is the server process's RssAnon, the highest of samples every 100 ms: what it has allocated itself,
without shared buffers (VmRSS, with them, where the kernel does not tell). Progress is what another session sees in gkmeans_progress.

Then the same call is cancelled from another session, --cancels times in each phase, and the time from
pg_cancel_backend() to the error is taken. --limit is gkmeans.memory_limit in MB. --devices: all of that on each of
these (gkmeans.device), and whether they gave the same clusters. It needs numpy and psycopg.
"""
import argparse
import datetime
import os
import statistics
import struct
import sys
import threading
import time

import numpy
import psycopg

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import commit, machine  # noqa: E402

PHASES = ("load", "seed", "iterate")


def fill(db, rows, d, centres, vector):
    """COPY BINARY of points around centres, some thousand at a time: the id, and the point."""
    rng = numpy.random.default_rng(1)
    centre = rng.standard_normal((centres, d), numpy.float32)
    # of a vector: its dimensions in 2 bytes, 2 unused ones; of an array: dimensions, no NULLs, real, length, first index
    head = struct.pack(">HH", d, 0) if vector else struct.pack(">iiiii", 1, 0, 700, d, 1)
    value = numpy.dtype([("at", ">f4")] if vector else [("length", ">i4"), ("at", ">f4")])
    width = len(head) + d * value.itemsize
    row = numpy.dtype([("fields", ">i2"), ("id_length", ">i4"), ("id", ">i4"), ("length", ">i4"),
                       ("head", f"S{len(head)}"), ("x", value, (d,))])
    with db.cursor().copy("COPY points FROM STDIN (FORMAT binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for first in range(0, rows, 20000):
            n = min(20000, rows - first)
            block = numpy.zeros(n, row)
            block["fields"], block["id_length"], block["id"], block["length"] = 2, 4, numpy.arange(first, first + n), width
            block["head"] = numpy.frombuffer(head, f"S{len(head)}")[0]
            block["x"]["at"] = centre[rng.integers(0, centres, n)] + 0.5 * rng.standard_normal((n, d), numpy.float32)
            if not vector:
                block["x"]["length"] = 4
            copy.write(fixed(block, head, row))
        copy.write(struct.pack(">h", -1))


def points(db, rows, d, centres, kind):
    """The table, unless it is there with as many rows."""
    db.execute(f"CREATE UNLOGGED TABLE IF NOT EXISTS points (id int, e {kind})")
    if db.execute("SELECT count(*) FROM points").fetchone()[0] != rows:
        db.execute("TRUNCATE points")
        fill(db, rows, d, centres, kind.startswith("vector"))
        db.execute("VACUUM ANALYZE points")


def fixed(block, head, row):
    """The bytes of the rows: numpy drops zeros at the end of a string, so its head is put in as it is."""
    raw = bytearray(block.tobytes())
    at = numpy.frombuffer(raw, numpy.uint8).reshape(len(block), row.itemsize)
    at[:, row.fields["head"][1]:row.fields["head"][1] + len(head)] = numpy.frombuffer(head, numpy.uint8)
    return bytes(raw)


class Watch(threading.Thread):
    """The highest RssAnon of a process in MB, and the times at which another session saw a new phase."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.peak, self.stop, self.seen = pid, 0, False, []

    def run(self):
        start = time.perf_counter()
        with psycopg.connect(autocommit=True) as db:
            while not self.stop:
                with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
                    # RssAnon comes after VmRSS, which is all that some kernels have
                    self.peak = max(self.peak, [int(line.split()[1]) for line in f if line.startswith(("VmRSS", "RssAnon"))][-1] / 1024)
                row = db.execute("SELECT phase, iteration, rows_done FROM gkmeans_progress WHERE pid = %s", (self.pid,)).fetchone()
                if row and (not self.seen or self.seen[-1][1] != row[0] or row[0] == "iterate" and self.seen[-1][2] != row[1]):
                    self.seen.append((time.perf_counter() - start, *row))
                time.sleep(0.1)


def session(limit, device="auto"):
    db = psycopg.connect(autocommit=True)
    db.execute(f"SET client_min_messages = error; SET gkmeans.memory_limit = '{limit}MB'; SET gkmeans.device = '{device}'")
    return db


def watched(db, statement):
    watch = Watch(db.info.backend_pid)
    watch.start()
    start = time.perf_counter()
    db.execute(statement)
    seconds = time.perf_counter() - start
    watch.stop = True
    watch.join()
    return seconds, watch


def cancel(limit, device, call, phase, after):
    """Milliseconds from pg_cancel_backend() to the error; None: the phase was over, or none."""
    error = []

    def run():
        try:
            db.execute(call)
        except psycopg.errors.QueryCanceled:
            error.append(time.perf_counter())

    with session(limit, device) as db, psycopg.connect(autocommit=True) as other:
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            row = other.execute("SELECT phase FROM gkmeans_progress WHERE pid = %s", (db.info.backend_pid,)).fetchone()
            if row and PHASES.index(row[0]) >= PHASES.index(phase):
                break
            time.sleep(0.01)
        if row and row[0] == phase:
            time.sleep(after)
        start = time.perf_counter()
        other.execute("SELECT pg_cancel_backend(%s)", (db.info.backend_pid,))
        thread.join()
        # random seeds, say, are there before a phase of theirs can be seen
        return (error[0] - start) * 1e3 if error and row and row[0] == phase else None


def cancels(args, device, call):
    for phase in PHASES:
        ms = [cancel(args.limit, device, call, phase, args.after * (i + 1) / args.cancels) for i in range(args.cancels)]
        ms = [m for m in ms if m is not None]
        if ms:
            print(f"cancel in {phase:8} {statistics.median(ms):8.1f} ms, the longest of {len(ms)} {max(ms):8.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--k", type=int, default=100_000)
    parser.add_argument("--max-iter", type=int, default=1)
    parser.add_argument("--init", default="random")
    parser.add_argument("--limit", type=int, default=4096)
    parser.add_argument("--cancels", type=int, default=3)
    parser.add_argument("--after", type=float, default=3.0, help="seconds from the beginning of a phase to the last cancel in it")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--new", type=int, default=10_000, help="rows to label by the table of centroids")
    args = parser.parse_args()

    print(f"command: CONF=\"shared_preload_libraries = 'gkmeans'\" test/with-cluster python3 bench/server/large_k.py {' '.join(sys.argv[1:])}".rstrip())
    print(f"commit:  {commit()}, {datetime.date.today()}")
    with session(args.limit) as db:
        vector = db.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'").fetchone()[0] == 1
        kind = f"vector({args.dim})" if vector else "real[]"
        print(f"machine: {machine()}, {os.cpu_count()} CPUs, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB,"
              f" load {os.getloadavg()[0]:.2f}, PostgreSQL {db.execute('SHOW server_version').fetchone()[0]}")
        print(f"{args.rows} rows of {kind}, k = {args.k}, init => '{args.init}', max_iter => {args.max_iter},"
              f" gkmeans.memory_limit {args.limit} MB; a model would need {27 * args.k * args.dim / 2**20:.0f} MB as text", flush=True)
        db.execute("CREATE EXTENSION IF NOT EXISTS gkmeans")
        if vector:
            db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        start = time.perf_counter()
        points(db, args.rows, args.dim, args.k, kind)
        print(f"the table was filled in {time.perf_counter() - start:.0f} s, "
              f"{db.execute('SELECT pg_table_size(%s::regclass)', ('points',)).fetchone()[0] / 2**20:.0f} MB", flush=True)

    call = f"SELECT * FROM kmeans('points', '{{e}}', {args.k}, init => '{args.init}', max_iter => {args.max_iter})"
    devices = args.devices.split(",")
    for device in devices:
        print(f"gkmeans.device = {device}:", flush=True)
        cancels(args, device, call)
        fit(args, device, call, vector)
    with psycopg.connect() as db:
        for device in devices[1:]:
            # as text, which has all bits: -0 is not 0 there
            other = db.execute(f"SELECT count(*) FROM many_{devices[0]} a FULL JOIN many_{device} b USING (cluster) "
                               "WHERE a::text IS DISTINCT FROM b::text").fetchone()[0]
            print(f"{other} clusters of {devices[0]} and {device} differ in a bit")


def fit(args, device, call, vector):
    """Clusters into a table, and new rows labelled by it."""
    many = f"many_{device}"
    with session(args.limit, device) as db:
        seconds, watch = watched(db, f"CREATE UNLOGGED TABLE {many} AS SELECT cluster, size, inertia, centroid::real[] AS centroid FROM ({call}) c")
        for at, phase, iteration, rows in watch.seen:
            print(f"{at:9.1f} s  {phase}{f', iteration {iteration}' if iteration is not None else ''}, {rows} rows")
        k, n, inertia, size = db.execute(f"SELECT count(*), sum(size)::bigint, sum(inertia), max(size) FROM {many}").fetchone()
        table = db.execute("SELECT pg_table_size(%s::regclass)", (many,)).fetchone()[0]
        print(f"{seconds:9.1f} s  {k} clusters of {n} rows, the largest {size}, inertia {inertia:.6g}; {watch.peak:.0f} MB, of which "
              f"the points {4 * args.rows * args.dim / 2**20:.0f}, {table / 2**20:.0f} MB of centroids in the table", flush=True)
    with session(args.limit, device) as db:
        seconds, watch = watched(db, f"SELECT FROM kmeans_query('SELECT e FROM points WHERE id < {args.new}', {k}, "
                                     f"centroid_table => '{many}', max_iter => 0)")
        print(f"{seconds:9.1f} s  {args.new} rows labelled by the table of centroids, {watch.peak:.0f} MB", flush=True)
        if vector:
            statement = f"SELECT cluster FROM {many} ORDER BY centroid::vector <-> (SELECT e FROM points WHERE id = 7) LIMIT 1"
            db.execute(statement)
            start = time.perf_counter()
            db.execute(statement)
            print(f"{time.perf_counter() - start:9.2f} s  one row's nearest by pgvector, of the table")


if __name__ == "__main__":
    main()
