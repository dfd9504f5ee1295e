#!/usr/bin/env python3
"""Clusters and index lists of real embeddings, beside pgvector's ivfflat, scikit-learn and faiss.

usage: test/with-cluster bench/server/embeddings.py [--rows N] [--lists K] [--rounds N] [--glosses | --made D] [--smoke]

The embeddings are the table of token vectors that the Python package wordllama ships (256
features); without it, with --smoke, and of D features with --made D, made ones: noise around topics of topics.
With --glosses they are those of 117,000 texts, 768 features: WordNet's glosses (Debian's package
wordnet-base), each as the means, the minima and the maxima of its tokens' vectors, by the Python
packages wordllama and tokenizers. These are concatenated power means (Rueckle et al., 2018).
QUERIES of them are held out. One run measures, in turn, for each number of lists:

  fit         kmeans_fit() with the cosine distance, by several options; and the table of rows
              by list with its index, which a search needs besides
  ivfflat     CREATE INDEX USING ivfflat with as many lists
  round trip  COPY BINARY to Python, a fit there by the library's defaults but for the
              number of iterations, and COPY of the labels back into a table

and then the recall: of the 10 nearest by the exact cosine, the share that a search in the
nearest 1, 2, 4, ... lists finds, with lists from each fit and with ivfflat's probes, the
time of a query by an index on the list or on the vector, and the share of all rows that are
in those lists. Lists are of different sizes, so the recall by that share follows, between two
numbers of probes on the line by the share's logarithm. pgvector has to be installed.
"""
import argparse
import glob
import importlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
import time

import numpy
import psycopg

VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
PROBES = (1, 2, 4, 8, 16, 32)
SHARES = (0.05, 0.1, 0.2, 0.4)
NEAREST = 10
# name, the options of kmeans_fit(); {sample}: the rows that ivfflat samples
FITS = (
    ("k-means++", ""),
    ("k-means++, 25 iterations", ", max_iter => 25"),   # as many as faiss
    ("hierarchical", ", init => 'hierarchical'"),
    ("hierarchical, 10 iterations", ", init => 'hierarchical', max_iter => 10"),
    ("k-means++, ivfflat's sample", ", fit_sample => {sample}"),
)


def shipped(pattern):
    """The files of the package wordllama that match."""
    spec = importlib.util.find_spec("wordllama")
    return glob.glob(os.path.join(os.path.dirname(spec.origin), pattern)) if spec else []


def wordllama():
    """The vectors of wordllama's vocabulary, or None."""
    files = shipped("weights/*.safetensors")
    if not files:
        return None
    with open(files[0], "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        tensors = {k: v for k, v in json.loads(file.read(size)).items() if k != "__metadata__"}
        (tensor,) = tensors.values()
        file.seek(8 + size + tensor["data_offsets"][0])
        kind = {"F16": numpy.float16, "F32": numpy.float32}[tensor["dtype"]]
        count = tensor["shape"][0] * tensor["shape"][1]
        return numpy.fromfile(file, kind, count).reshape(tensor["shape"]).astype(numpy.float32)


def glosses():
    """The glosses of WordNet, each text once, as means, minima and maxima of their tokens' vectors."""
    import tokenizers
    table = wordllama()
    texts = {}  # in the files' order
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"/usr/share/wordnet/data.{part}", encoding="utf-8") as file:
            texts.update((line.split("|", 1)[1].strip(), None) for line in file if "|" in line)
    tokenizer = tokenizers.Tokenizer.from_file(shipped("tokenizers/*.json")[0])
    tokens = [t.ids for t in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    x = numpy.empty((len(tokens), 3 * table.shape[1]), numpy.float32)
    lengths = numpy.array([len(t) for t in tokens])
    for n in numpy.unique(lengths):     # those of one length at once
        rows = numpy.flatnonzero(lengths == n)
        vectors = table[numpy.array([tokens[i] for i in rows])]
        x[rows] = numpy.concatenate([vectors.mean(axis=1), vectors.min(axis=1), vectors.max(axis=1)], axis=1)
    return x


def made(rows, d=32):
    """Directions around some thousand others, which are around some hundred."""
    rng = numpy.random.default_rng(1)
    centers = rng.normal(size=(200, d)).astype(numpy.float32)
    topics = centers[rng.integers(0, 200, 5000)] + 0.8 * rng.normal(size=(5000, d)).astype(numpy.float32)
    return topics[rng.integers(0, 5000, rows)] + 0.8 * rng.standard_normal((rows, d), numpy.float32)


def points(args):
    """All rows, and the queries, in an order of their own."""
    x = None if args.smoke or args.made else glosses() if args.glosses else wordllama()
    name = "made" if x is None else "glosses of WordNet" if args.glosses else "wordllama"
    x = made(args.rows + args.queries, args.made or 32) if x is None else x
    x = x[numpy.linalg.norm(x, axis=1) > 0]
    x = x[numpy.random.default_rng(0).permutation(len(x))]
    rows = min(args.rows, len(x) - args.queries)
    return name, x[:rows], x[rows:rows + args.queries]


def text(vector):
    return "[" + ",".join(repr(float(v)) for v in vector) + "]"


def load(db, x):
    """The table docs, as a user would have it."""
    db.execute(f"CREATE TABLE docs (id int PRIMARY KEY, embedding vector({x.shape[1]}))")
    with db.cursor().copy("COPY docs FROM STDIN") as copy:
        for i, row in enumerate(x):
            copy.write(f"{i}\t{text(row)}\n")
    db.execute("VACUUM ANALYZE docs")


def timed(run):
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def read_binary(db, d):
    """The embeddings, by COPY BINARY: two integers of 2 bytes before the big-endian floats of each."""
    data = bytearray()
    with db.cursor().copy("COPY (SELECT embedding FROM docs ORDER BY id) TO STDOUT (FORMAT binary)") as copy:
        for block in copy:
            data += block
    # a header of 19 bytes, for each row the number of fields, the length, and the value; a trailer
    row = 2 + 4 + 4 + 4 * d
    count = (len(data) - 19 - 2) // row
    raw = numpy.frombuffer(data, numpy.uint8, count * row, 19).reshape(count, row)
    return numpy.ascontiguousarray(raw[:, 10:]).view(">f4").astype(numpy.float32)


def write_labels(db, label):
    db.execute("DROP TABLE IF EXISTS labels")
    db.execute("CREATE TABLE labels (id int, list int)")
    with db.cursor().copy("COPY labels FROM STDIN") as copy:
        copy.write("".join(f"{i}\t{c}\n" for i, c in enumerate(label)))


def fit_sklearn(x, k):
    import sklearn.cluster
    model = sklearn.cluster.KMeans(k, n_init=1, random_state=0, max_iter=100, tol=1e-4).fit(x)
    return model.labels_


def fit_faiss(x, k):
    import faiss
    model = faiss.Kmeans(x.shape[1], k, niter=25, seed=0, spherical=True, max_points_per_centroid=len(x))
    model.train(x)
    return model.index.search(x, 1)[1][:, 0]


def round_trip(db, d, k, fit):
    def run():
        x = read_binary(db, d)
        x /= numpy.linalg.norm(x, axis=1, keepdims=True)
        write_labels(db, fit(x, k))
    return timed(run)[1]


def cosine_inertia(x, label, k):
    """The sum of 1 - cosine to the mean direction: what a fit by the cosine distance makes small."""
    unit = x.astype(numpy.float64) / numpy.linalg.norm(x, axis=1, keepdims=True)
    total = numpy.zeros((k, x.shape[1]))
    numpy.add.at(total, label, unit)
    return len(x) - numpy.linalg.norm(total, axis=1).sum()


def search_lists(db, model, probes, queries):
    """The ids that each query finds in its nearest lists, the time of a query, and the rows it looks at."""
    rows = [db.execute("SELECT count(*) FROM lists WHERE list = ANY (ARRAY(SELECT cluster FROM models,"
                       " kmeans_nearest(model, %s::vector, %s) WHERE name = %s))", (q, probes, model)).fetchone()[0] for q in queries]
    found, start = [], time.perf_counter()
    for q in queries:
        found.append([r[0] for r in db.execute(
            "SELECT id FROM lists WHERE list = ANY (ARRAY(SELECT cluster FROM models, kmeans_nearest(model, %s::vector, %s)"
            " WHERE name = %s)) ORDER BY embedding <=> %s::vector, id LIMIT %s", (q, probes, model, q, NEAREST))])
    return found, (time.perf_counter() - start) / len(queries) * 1000, rows


def search_ivfflat(db, probes, queries):
    db.execute(f"SET ivfflat.probes = {probes}")
    # without a limit the index returns all rows of the lists, and no others
    rows = [db.execute("SELECT count(*) FROM (SELECT FROM docs ORDER BY embedding <=> %s::vector OFFSET 0) d", (q,)).fetchone()[0] for q in queries]
    found, start = [], time.perf_counter()
    for q in queries:
        found.append([r[0] for r in db.execute(
            "SELECT id FROM docs ORDER BY embedding <=> %s::vector LIMIT %s", (q, NEAREST))])
    return found, (time.perf_counter() - start) / len(queries) * 1000, rows


def recall(found, truth):
    return sum(len(set(f) & set(t)) for f, t in zip(found, truth)) / truth.size


def make_lists(db, fit):
    """
    The rows by list, with an index: what CREATE INDEX USING ivfflat makes of its centroids. Vectors
    stay in their rows, as they do in that index; those of 2 kB would go to a table of their own.
    """
    db.execute("DROP TABLE IF EXISTS lists")
    db.execute("CREATE TABLE lists (LIKE docs, list int)")
    db.execute("ALTER TABLE lists ALTER embedding SET STORAGE PLAIN")
    db.execute("INSERT INTO lists SELECT id, embedding, cluster AS list FROM docs, models,"
               " kmeans_labels('docs', model) l WHERE name = %s AND docs.tableoid = l.tableoid AND docs.ctid = l.ctid ORDER BY list", (fit,))
    db.execute("CREATE INDEX ON lists (list)")
    db.execute("VACUUM ANALYZE lists")


def fits_of(db, k):
    """One fit by each of the options into the table models: {name: (seconds, model's info)}."""
    sample = max(50 * k, 10000)
    result = {}
    for name, options in FITS:
        db.execute("DELETE FROM models WHERE name = %s", (name,))
        _, seconds = timed(lambda: db.execute(
            f"INSERT INTO models SELECT %s, kmeans_fit('docs', '{{embedding}}', {k}, distance => 'cosine'{options.format(sample=sample)})", (name,)))
        info = db.execute("SELECT inertia, iterations, converged FROM models, kmeans_info(model) WHERE name = %s", (name,)).fetchone()
        result[name] = (seconds, *info)
    return result


def build_ivfflat(db, k):
    db.execute("DROP INDEX IF EXISTS docs_ivfflat")
    return timed(lambda: db.execute(
        f"CREATE INDEX docs_ivfflat ON docs USING ivfflat (embedding vector_cosine_ops) WITH (lists = {k})"))[1]


def median(values):
    return float(numpy.median(values))


def peers():
    """Name, version and fit of the libraries that there are."""
    found = []
    for name, module, fit in (("scikit-learn", "sklearn.cluster", fit_sklearn), ("faiss", "faiss", fit_faiss)):
        package = module.split(".")[0]
        if importlib.util.find_spec(package) and importlib.import_module(module):
            found.append((name, sys.modules[package].__version__, fit))
    return found


def builds(db, x, k, rounds, libraries):
    """Times of everything that makes lists, in turn, and what the fits found."""
    times, infos = {}, {}
    for _ in range(rounds):
        for name, (seconds, *info) in fits_of(db, k).items():
            times.setdefault(name, []).append(seconds)
            infos[name] = info
        times.setdefault("ivfflat", []).append(build_ivfflat(db, k))
        times.setdefault("table of lists, and its index", []).append(timed(lambda: make_lists(db, FITS[0][0]))[1])
        for name, _, fit in libraries:
            times.setdefault(name, []).append(round_trip(db, x.shape[1], k, fit))
            label = numpy.array([r[0] for r in db.execute("SELECT list FROM labels ORDER BY id")])
            infos[name] = (cosine_inertia(x, label, k), None, None)
    ours = median(times[FITS[0][0]])
    print(f"\nlists = k = {k}: seconds, median of {rounds}; times as long as {FITS[0][0]}; sum of 1 - cosine")
    for name, seconds in times.items():
        inertia, iterations, converged = infos.get(name, (None, None, None))
        note = f"{iterations} iterations{'' if converged else ', not converged'}" if iterations else "COPY out, fit, COPY back" if inertia else "fits a sample, writes the index" if name == "ivfflat" else "of a fit's labels"
        print(f"{name:32} {median(seconds):8.2f} {median(seconds) / ours:6.2f}  {f'{inertia:.1f}' if inertia else '':>12}  {note}")


def recalls(db, queries, truth, k, rows):
    print(f"\nlists = k = {k}: recall@{NEAREST}, ms a query, and share of the rows in the lists")
    probes = [p for p in PROBES if p <= k]
    print(f"{'probes':32} " + " ".join(f"{p:>20}" for p in probes))
    texts = [text(q) for q in queries]
    by_share = {}
    db.execute("SET enable_seqscan = off")
    for name in [f[0] for f in FITS] + ["ivfflat"]:
        if name != "ivfflat":
            make_lists(db, name)
        cells, shares, found = [], [], []
        for p in probes:
            ids, ms, seen = search_ivfflat(db, p, texts) if name == "ivfflat" else search_lists(db, name, p, texts)
            found.append(recall(ids, truth))
            shares.append(numpy.mean(seen) / rows)
            cells.append(f"{found[-1]:6.3f} {ms:7.2f} {shares[-1]:5.1%}")
        by_share[name] = [f"{numpy.interp(numpy.log(s), numpy.log(shares), found):6.3f}" if shares[0] <= s <= shares[-1] else "" for s in SHARES]
        print(f"{name:32} " + " ".join(f"{c:>20}" for c in cells))
    db.execute("RESET enable_seqscan")
    print(f"\n{'share of the rows':32} " + " ".join(f"{s:>6.0%}" for s in SHARES))
    for name, cells in by_share.items():
        print(f"{name:32} " + " ".join(f"{c:>6}" for c in cells))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--lists", type=int, nargs="+", default=[100, 316])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=300)
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--glosses", action="store_true")
    data.add_argument("--made", type=int)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.lists, args.rounds, args.queries = 3000, [20], 1, 20

    db = psycopg.connect(autocommit=True)
    if not db.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
        print("skipped: pgvector is not installed: embeddings")
        return
    db.execute("SET client_min_messages = error")
    db.execute("CREATE EXTENSION IF NOT EXISTS gkmeans")
    db.execute("CREATE EXTENSION IF NOT EXISTS vector")
    db.execute("CREATE TABLE models (name text PRIMARY KEY, model kmeans_model)")
    db.execute("SET maintenance_work_mem = '2GB'")
    db.execute("SET max_parallel_maintenance_workers = 2")

    name, x, queries = points(args)
    load(db, x)
    unit = x / numpy.linalg.norm(x, axis=1, keepdims=True)
    own = queries / numpy.linalg.norm(queries, axis=1, keepdims=True)
    truth = numpy.argsort(-(own @ unit.T), axis=1, kind="stable")[:, :NEAREST]

    here = os.path.dirname(os.path.abspath(__file__))
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    show = lambda what: db.execute(what).fetchone()[0]
    print(f"command: bench/server/embeddings.py {' '.join(sys.argv[1:])}")
    print(f"commit:  {subprocess.run([os.path.join(here, '../report/commit')], capture_output=True, text=True).stdout.strip()}, {time.strftime('%F', time.gmtime())}")
    print(f"machine: {cpu}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, PostgreSQL {show('SHOW server_version')},"
          f" pgvector {show(VERSION)}")
    libraries = peers()
    print(f"peers:   {', '.join(f'{name} {version}' for name, version, _ in libraries) or 'none'}")
    print(f"points:  {len(x)} x {x.shape[1]}, {name}; {len(queries)} queries, not among them")
    for k in args.lists:
        builds(db, x, k, args.rounds, libraries)
        recalls(db, queries, truth, k, len(x))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
