#!/usr/bin/env python3
"""Clustering in the database beside the way out of it and back.

    test/with-cluster python3 bench/server/roundtrip.py [--rounds N] [--threads N] [--scale F] [--write]

The way out: binary COPY of id and features to the client, which makes a numpy array of
the bytes; KMeans of scikit-learn ("lloyd", float32, its BLAS), and binary COPY of (id, label)
into a new table. In the database: kmeans() for centroids only; kmeans_label_table() for
centroids and a new table of (id, label); CREATE TABLE AS with kmeans_labels() for one of
(ctid, label), and with kmeans_fit() and kmeans_predict() for one of (id, label). Beside
them the same new tables of a constant, below which no CREATE TABLE AS can come, and where
kmeans_fit() says that its time goes. Both begin at the same centroids and run the same 20
iterations (tol 0) on as many threads. Times are the client's, by the wall clock; each round runs all of them
once, the first round is not counted, medians. Processor time is that of the client and
the server process together, all threads: what a busy machine changes least (but threads that
wait for each other there spin, and count). The labels of both ways are compared.

--write keeps bench/results/roundtrip.json, for `bench/run report`. It needs numpy,
psycopg and scikit-learn.
"""
import argparse
import datetime
import json
import os
import statistics
import sys
import time

import numpy as np
import psycopg
import sklearn
import threadpoolctl
from sklearn.cluster import KMeans

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import RESULTS, commit, machine  # noqa: E402
from page_roundtrip import ITERATIONS, K, table  # noqa: E402

SIZES = ((1_000_000, 2), (1_000_000, 8), (200_000, 68))
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def make_table(db, rows, d):
    """Uniform in the unit cube: nothing converges within the iterations, on either way."""
    rng = np.random.default_rng(d)
    x = rng.random((rows, d), np.float32)
    columns = [f"c{j}" for j in range(d)]
    db.execute("DROP TABLE IF EXISTS points")
    db.execute(f"CREATE TABLE points (id int4, {', '.join(c + ' float4' for c in columns)})")
    record = np.dtype([("n", ">i2"), ("idlen", ">i4"), ("id", ">i4"), ("v", [("len", ">i4"), ("x", ">f4")], d)])
    out = np.zeros(rows, record)
    out["n"], out["idlen"], out["id"] = d + 1, 4, np.arange(rows)
    out["v"]["len"], out["v"]["x"] = 4, x
    copy_in(db, "points", out)
    db.execute("VACUUM ANALYZE points")
    return columns, x[rng.choice(rows, K, replace=False)].astype(np.float64)


def copy_in(db, table, records):
    with db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
        copy.write(COPY_HEADER)
        data = memoryview(records.tobytes())
        for at in range(0, len(data), 1 << 20):
            copy.write(data[at:at + (1 << 20)])
        copy.write(b"\xff\xff")


def processor_seconds(server):
    """Of this process and a server process, so far."""
    total = time.process_time()
    for task in os.listdir(f"/proc/{server}/task"):
        with open(f"/proc/{server}/task/{task}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0]) / 1e9
    return total


class Steps:
    """Milliseconds of the steps of one way: by the wall clock, and of processors."""

    def __init__(self, db):
        self.server, self.ms, self.cpu = db.info.backend_pid, {}, {}
        self.last = (time.perf_counter(), processor_seconds(self.server))

    def done(self, name):
        now = (time.perf_counter(), processor_seconds(self.server))
        self.ms[name], self.cpu[name] = ((b - a) * 1e3 for a, b in zip(self.last, now))
        self.last = now

    def result(self, **more):
        return {"steps": self.ms, "total": sum(self.ms.values()), "cpu": sum(self.cpu.values()), **more}


def way_out(db, columns, start, _threads):
    db.execute("DROP TABLE IF EXISTS labels_out")
    steps, d = Steps(db), len(columns)
    with db.cursor().copy(f"COPY (SELECT id, {', '.join(columns)} FROM points) TO STDOUT (FORMAT binary)") as copy:
        raw = b"".join(bytes(block) for block in copy)
    steps.done("COPY out")
    record = np.dtype([("n", ">i2"), ("idlen", ">i4"), ("id", ">i4"), ("v", [("len", ">i4"), ("x", ">f4")], d)])
    rows = np.frombuffer(raw, record, offset=len(COPY_HEADER), count=(len(raw) - len(COPY_HEADER) - 2) // record.itemsize)
    ids, x = rows["id"].astype(np.int32), np.ascontiguousarray(rows["v"]["x"], dtype=np.float32)
    steps.done("numpy array")
    fit = KMeans(K, init=start.astype(np.float32), n_init=1, max_iter=ITERATIONS, tol=0, algorithm="lloyd").fit(x)
    steps.done("scikit-learn")
    so_far = steps.result()
    out = np.zeros(len(ids), np.dtype([("n", ">i2"), ("l1", ">i4"), ("id", ">i4"), ("l2", ">i4"), ("label", ">i4")]))
    out["n"], out["l1"], out["l2"], out["id"], out["label"] = 2, 4, 4, ids, fit.labels_
    db.execute("CREATE TABLE labels_out (id int4, label int4)")
    copy_in(db, "labels_out", out)
    steps.done("COPY back")
    return steps.result(centroids=so_far["total"], centroids_cpu=so_far["cpu"], iterations=fit.n_iter_)


def call(function, columns, start):
    given = "{" + ",".join("{" + ",".join(repr(float(v)) for v in row) + "}" for row in start) + "}"
    return (f"{function}('points', '{{{','.join(columns)}}}', {K}, centroids => '{given}', "
            f"max_iter => {ITERATIONS}, tol => 0)")


def timed(db, name, *statements):
    steps = Steps(db)
    for statement in statements:
        result = db.execute(statement)
        if result.description:
            result.fetchall()
    steps.done(name)
    return steps.result()


def centroids(db, columns, start, _threads):
    return timed(db, "kmeans()", f"SELECT * FROM {call('kmeans', columns, start)}")


def labels_by_ctid(db, columns, start, _threads):
    db.execute("DROP TABLE IF EXISTS labels_ctid")
    return timed(db, "CREATE TABLE AS kmeans_labels()", "CREATE TABLE labels_ctid AS SELECT ctid AS place, cluster "
                 f"FROM {call('kmeans_labels', columns, start)}")


def labels_by_id(db, columns, start, _threads):
    db.execute("DROP TABLE IF EXISTS labels_id")
    return timed(db, "CREATE TABLE AS kmeans_predict()", "CREATE TABLE labels_id AS SELECT id, "
                 f"kmeans_predict((SELECT {call('kmeans_fit', columns, start)}), {', '.join(columns)}) AS label FROM points")


def label_table(db, columns, start, _threads):
    db.execute("DROP TABLE IF EXISTS labels_new")
    arguments = call("kmeans_label_table", columns, start).replace(f", {K}, ", f", {K}, 'labels_new', '{{id}}', ", 1)
    return timed(db, "kmeans_label_table()", f"SELECT * FROM {arguments}")


def floor(column):
    def way(db, _columns, _start, _threads):
        db.execute("DROP TABLE IF EXISTS labels_floor")
        return timed(db, "CREATE TABLE AS", f"CREATE TABLE labels_floor AS SELECT {column} AS row, 1 AS label FROM points")
    return way


def parts(db, columns, start, _threads):
    """Not a way: the milliseconds of kmeans_info()."""
    row = db.execute("SELECT load_ms, seed_ms, iterate_ms, iterations FROM "
                     f"kmeans_info((SELECT {call('kmeans_fit', columns, start)}))").fetchone()
    steps = dict(zip(("load", "seed", "iterate"), row))
    return {"steps": steps, "total": sum(steps.values()), "iterations": row[3]}


WAYS = {"way out": way_out, "centroids": centroids, "labels by ctid": labels_by_ctid, "labels by id": labels_by_id,
        "label table": label_table,
        "floor by ctid": floor("ctid"), "floor by id": floor("id"), "parts": parts}


def check(db, rows):
    """Rows with other labels than scikit-learn's; and whether both ways in the database agree."""
    same = db.execute("""SELECT count(*) FILTER (WHERE i.label = o.label),
            count(*) FILTER (WHERE i.label = c.cluster AND i.label = n.cluster)
        FROM points p JOIN labels_id i USING (id) JOIN labels_new n USING (id) JOIN labels_out o USING (id) JOIN labels_ctid c ON c.place = p.ctid""").fetchone()
    assert same[1] == rows, "kmeans_labels(), kmeans_label_table() and kmeans_predict() differ"
    return rows - same[0]


def bench(db, rows, d, rounds, threads):
    columns, start = make_table(db, rows, d)
    runs = {name: [] for name in WAYS}
    for i in range(rounds + 1):
        for name, way in WAYS.items():
            db.execute("CHECKPOINT")
            run = way(db, columns, start, threads)
            if i > 0:
                runs[name].append(run)
    result = {"rows": rows, "features": d, "other_labels": check(db, rows)}
    assert {run["iterations"] for run in runs["way out"] + runs["parts"]} == {ITERATIONS}, "not the same work: it converged"
    for name, own in runs.items():
        result[name] = {key: statistics.median(r[key] for r in own) for key in own[0] if key not in ("steps", "iterations")}
        result[name]["steps"] = {s: statistics.median(r["steps"][s] for r in own) for s in own[0]["steps"]}
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, for a quick look")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with psycopg.connect(autocommit=True) as db, threadpoolctl.threadpool_limits(args.threads):
        db.execute("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gkmeans")
        db.execute(f"SET gkmeans.threads = {args.threads}; SET maintenance_work_mem = '1GB'; SET gkmeans.device = cpu")
        blas = {f"{p['internal_api']} {p['version']}" for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"}
        report = {"command": "test/with-cluster python3 bench/server/roundtrip.py --rounds %d --threads %d%s" % (
                      args.rounds, args.threads, f" --scale {args.scale}" if args.scale != 1 else ""),
                  "commit": commit(), "date": str(datetime.date.today()), "machine": f"{machine()}, {os.cpu_count()} CPUs", "rounds": args.rounds,
                  "threads": args.threads, "postgresql": db.execute("SHOW server_version").fetchone()[0],
                  "sklearn": sklearn.__version__, "blas": ", ".join(sorted(blas)), "load": [os.getloadavg()[0]]}
        report["results"] = [bench(db, int(rows * args.scale), d, args.rounds, args.threads) for rows, d in SIZES]
        report["load"].append(os.getloadavg()[0])
    print(table(report))
    if args.write:
        with open(os.path.join(RESULTS, "roundtrip.json"), "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
