#!/usr/bin/env python3
"""Clustering a table by what a database user has at hand, end to end.

    test/with-cluster python3 bench/server/rivals.py [--smoke] [--rounds N]

The task is a new table of (id, label), from points that are in a table.  All that can be
told begin at the same centroids and do the same 20 iterations.  Seconds are the client's,
medians; each round runs all of them once, the first is not counted; what takes over
LONG seconds runs once.  Memory is the most that the server process (or the client)
allocated itself, over what it had before.  The inertia is computed from the labels by SQL.
Rivals that are not there are named with the reason.  It needs psycopg and numpy, and
scikit-learn for the round trip.  Writes bench/results/rivals.json.
"""
import argparse
import inspect
import json
import os
import statistics
import sys
import time

import psycopg

from memory import Memory

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import about, write  # noqa: E402

try:
    import roundtrip
except ImportError as e:
    sys.exit(f"skipped: {e}")

ITERATIONS = roundtrip.ITERATIONS
PYTHON_LINES = sum("steps" not in line and "DROP" not in line for line in inspect.getsource(roundtrip.way_out).splitlines())
LONG = 15.0
TASKS = ((1_000_000, 2, 5), (200_000, 8, 10))      # rows, features, k


class Skipped(Exception):
    """Says why a rival is missing."""


def matrix(start):
    return "{" + ",".join("{" + ",".join(repr(float(v)) for v in row) + "}" for row in start) + "}"


def own(columns, k, start, extra=""):
    names = ",".join(columns)
    given = f", centroids => '{matrix(start)}', max_iter => {ITERATIONS}, tol => 0" if start is not None else ""
    return [f"CREATE TABLE labels AS SELECT id, kmeans_predict((SELECT kmeans_fit('points', '{{{names}}}', {k}{given}{extra})), "
            f"{', '.join(columns)}) AS label FROM points"]


def given(db, columns, k, start):
    return own(columns, k, start)


def default(db, columns, k, start):
    return own(columns, k, None)


def window(db, columns, k, start):
    array = "ARRAY[" + ", ".join(columns) + "]"
    return [f"CREATE TABLE labels AS SELECT id, kmeans({array}, {k}, '{matrix(start)}') OVER () AS label FROM points"]


def available(db, name):
    return db.execute("SELECT count(*) FROM pg_available_extensions WHERE name = %s", (name,)).fetchone()[0] > 0


def postgis(db, columns, k, start):
    if not available(db, "postgis"):
        raise Skipped("the extension postgis is not installed")
    if len(columns) > 3:
        raise Skipped("ST_ClusterKMeans clusters points of two or three dimensions")
    db.execute("CREATE EXTENSION IF NOT EXISTS postgis")
    return [f"CREATE TABLE labels AS SELECT id, ST_ClusterKMeans(ST_MakePoint({', '.join(columns)}), {k}) OVER () AS label FROM points"]


def pure_sql(db, columns, k, start):
    """One row per centroid; the nearest by ORDER BY ... LIMIT 1, the means by avg()."""
    values = ", ".join(f"({i}, " + ", ".join(f"{float(v)!r}::float8" for v in row) + ")" for i, row in enumerate(start))
    distance = " + ".join(f"(p.{c} - c.{c}) * (p.{c} - c.{c})" for c in columns)
    nearest = f"CROSS JOIN LATERAL (SELECT c.id FROM centroids c ORDER BY {distance} LIMIT 1) nearest"
    means = ", ".join(f"avg(p.{c}::float8) AS {c}" for c in columns)
    return [f"CREATE TABLE centroids (id, {', '.join(columns)}) AS VALUES {values}",
            f"""DO $$ BEGIN FOR i IN 1..{ITERATIONS} LOOP
                UPDATE centroids c SET {', '.join(f'{c} = m.{c}' for c in columns)}
                FROM (SELECT nearest.id, {means} FROM points p {nearest} GROUP BY 1) m WHERE m.id = c.id;
            END LOOP; END $$""",
            f"CREATE TABLE labels AS SELECT p.id, nearest.id AS label FROM points p {nearest}"]


def madlib(db, columns, k, start):
    raise Skipped("MADlib is in neither Debian nor PyPI (Debian's libmadlib is a mesh library)")


def pgxn(db, columns, k, start):
    raise Skipped("PGXN's extension kmeans is in neither Debian nor PyPI")


def run_sql(db, statements):
    for statement in statements:
        db.execute(statement)


RIVALS = {"gkmeans, given centroids": given, "gkmeans, its defaults": default, "gkmeans, window function": window,
          "round trip through scikit-learn": None, "PostGIS ST_ClusterKMeans": postgis, "pure SQL": pure_sql,
          "MADlib": madlib, "PGXN kmeans": pgxn}
NOTES = {"gkmeans, its defaults": "k-means++, until nothing moves or 100 iterations",
         "gkmeans, window function": "until nothing moves",
         "PostGIS ST_ClusterKMeans": "seeds of its own (far points), until nothing moves"}


def once(name, columns, k, start):
    """Seconds, memory of the server process and of the client, statements."""
    with psycopg.connect(autocommit=True) as db:
        db.execute("SET client_min_messages = error; SET maintenance_work_mem = '1GB'; SET gkmeans.device = cpu")
        db.execute("DROP TABLE IF EXISTS labels, labels_out, centroids; CHECKPOINT")
        if RIVALS[name] is None:
            statements = ["COPY", "CREATE TABLE", "COPY"]
            code = f"{PYTHON_LINES} lines of Python"

            def job():
                roundtrip.way_out(db, columns, start, 0)
        else:
            statements, code = RIVALS[name](db, columns, k, start), ""

            def job():
                run_sql(db, statements)
        server, client = Memory(db.info.backend_pid), Memory(os.getpid())
        before = server.now(), client.now()
        with server, client:
            t0 = time.perf_counter()
            job()
            seconds = time.perf_counter() - t0
        if RIVALS[name] is None:
            db.execute("ALTER TABLE labels_out RENAME TO labels")
        return {"seconds": seconds, "server_mb": max(server.peak - before[0], 0), "statements": len(statements), "code": code,
                "client_mb": max(client.peak - before[1], 0), "inertia": inertia(db, columns)}


def inertia(db, columns):
    parts = " + ".join(f"var_pop({c}::float8)" for c in columns)
    return db.execute(f"SELECT sum(s) FROM (SELECT count(*) * ({parts}) AS s FROM points JOIN labels USING (id) GROUP BY label) x").fetchone()[0]


def task(rows, d, k, rounds):
    roundtrip.K = k
    with psycopg.connect(autocommit=True) as db:
        db.execute("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gkmeans")
        columns, start = roundtrip.make_table(db, rows, d)
    runs = {name: [] for name in RIVALS}
    skipped = {}
    for i in range(rounds + 1):
        for name, own_runs in runs.items():
            if name in skipped or (own_runs and own_runs[0]["seconds"] > LONG):
                continue
            try:
                own_runs.append(once(name, columns, k, start))
            except Skipped as why:
                skipped[name] = str(why)
    for name, own_runs in runs.items():
        row = {"rival": name, "rows": rows, "features": d, "k": k, "note": NOTES.get(name, f"{ITERATIONS} iterations, same first centroids")}
        if name in skipped:
            row["skipped"] = skipped[name]
        else:
            counted = own_runs[1:] or own_runs
            row |= {"seconds": statistics.median(r["seconds"] for r in counted), "runs": [round(r["seconds"], 4) for r in counted],
                    "server_mb": max(r["server_mb"] for r in own_runs), "client_mb": max(r["client_mb"] for r in own_runs),
                    **{key: own_runs[0][key] for key in ("statements", "code", "inertia")}}
        print(json.dumps(row), file=sys.stderr, flush=True)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a hundredth of the rows, nothing written")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    head = about(f"test/with-cluster python3 bench/server/rivals.py --rounds {args.rounds}", args.rounds, iterations=ITERATIONS)
    with psycopg.connect() as db:
        head["settings"]["postgresql"] = db.execute("SHOW server_version").fetchone()[0]
    rows = [row for rows, d, k in TASKS for row in task(rows // (100 if args.smoke else 1), d, k, 1 if args.smoke else args.rounds)]
    # what does the same iterations from the same centroids has to find the same clusters
    for first in (row for row in rows if row["rival"] == "gkmeans, given centroids"):
        for row in rows:
            if row["rows"] == first["rows"] and row["features"] == first["features"] and row["note"] == first["note"] and "skipped" not in row:
                assert abs(row["inertia"] / first["inertia"] - 1) < 1e-5, (first, row)
    if not args.smoke:
        write("rivals.json", head, rows)
    done = [row for row in rows if "skipped" not in row]
    print(f"rivals: {len(done)} rows")
    for row in rows:
        if "skipped" in row:
            print(f"skipped: {row['rival']}, {row['features']} features: {row['skipped']}")


if __name__ == "__main__":
    main()
