#!/usr/bin/env python3
"""Write test/fuzz/corpus: what the attack on the readers of bytes begins with.

    test/with-cluster python3 test/fuzz/make_corpus.py

Models and states in their forms, options, questions and answers of kmeans_pass(): small ones, of
every kind. Only to be run when a format changes; the files stay as they are otherwise.
"""
import os
import struct

from fuzz_common import Campaign, TREE

DIR = os.path.join(TREE, "test", "fuzz", "corpus")
STATS, MOMENTS, STEP, FINISH, SEED, FAR, MEANS, SPREAD, SAMPLE = range(1, 10)

db = Campaign("corpus").session()


def value(query):
    outcome = db.run(query)
    assert outcome.ok, f"{query}: {outcome}"
    return outcome.rows[0][0]


def binary(query):
    return bytes.fromhex(value(query)[2:])


def write(name, data):
    with open(os.path.join(DIR, name), "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)


def question(kind, d=0, distance=0, centroids=(), seeds=(), use_d2=0, want=0, expo=3, raw=0, sizes=(), rows=0):
    q = b"kmp1" + struct.pack(">6i", 2, kind, d, distance, 0, 0)
    if kind == STATS:
        return q
    q += struct.pack(">4i", 0, 10, 8, 0)
    for _ in range(d):
        q += struct.pack(">ddi", 0.5 if distance == 0 else 0.0, 1.0, expo)
    if kind >= MEANS:
        q += struct.pack(">3i", raw, 6, len(centroids)) + b"".join(struct.pack(f">{d}d", *p) for p in centroids)
        q += b"".join(struct.pack(">q", n) + (struct.pack(f">{d}d", *p) if n else b"") for n, p in zip(sizes, centroids))
        return q + (struct.pack(">qi", rows, want) if kind == SAMPLE else b"")
    for points in (centroids, seeds):
        q += struct.pack(">i", len(points)) + b"".join(struct.pack(f">{d}f", *p) for p in points)
    return q + struct.pack(">qii", 42, use_d2, want)


os.makedirs(DIR, exist_ok=True)
db.run("CREATE EXTENSION gkmeans")
db.run("SET gkmeans.threads = 1; SET gkmeans.simd = scalar")
db.run("CREATE TABLE t (x float8, y float8, \"größe\" real, a float8[], w float8)")
db.run("INSERT INTO t SELECT i % 3 * 10 + i % 7 * 0.25, i % 5 - 2, i, ARRAY[i % 4, i % 3 - 1, 1], i % 4 * 0.5 "
       "FROM generate_series(1, 24) i")
# as many rows as readers_pass.c has, and from the same one on: a sample's answer depends on that
db.run("CREATE TABLE forty AS SELECT ARRAY[i % 4, i % 3 - 1, 1]::float8[] AS a FROM generate_series(1, 40) i")
MODELS = {
    "one": "kmeans_fit('t', '{x}', 1)",
    "plain": "kmeans_fit('t', '{x,y}', 3)",
    "names": "kmeans_fit('t', '{x,größe}', 2, standardize => true)",
    "array": "kmeans_fit('t', '{a}', 2, weight_column => 'w')",
    "cosine": "kmeans_fit('t', '{a}', 3, distance => 'cosine')",
    "given": "kmeans_fit('t', '{x,y}', 2, centroids => '{{0,0},{20,1}}')",
    "agg": "(SELECT kmeans_agg(a, 2) FROM t)",
    "spectral": "kmeans_spectral_fit('t', '{x,y}', 2, 8, neighbors => 2)",
    "fill": "kmeans_fit('t', '{x,y}', 3, nulls => 'mean')",
    "manhattan": "kmeans_fit('t', '{x,y}', 3, distance => 'manhattan')",
    "partial": "kmeans_fit('t', '{x,y}', 3, nulls => 'partial')",
}
for name, fit in MODELS.items():
    write(f"model-{name}.json", value(f"SELECT {fit}::text"))
    write(f"model-{name}.bin", binary(f"SELECT kmeans_model_send({fit})"))
write("model-jsonb.json", value(f"SELECT {MODELS['plain']}::text::jsonb::text"))
STATES = {
    "sum": "(SELECT feature_sum_partial(ARRAY[x, y]) FROM t)",
    "wide": "(SELECT feature_sum_partial(ARRAY[x * 1e300, -y * 1e-300]) FROM t)",
    "step": "(SELECT kmeans_step_partial(m, ARRAY[x, y]) FROM t, (SELECT {plain} AS m) s)",
    "far": "(SELECT kmeans_step_partial(m, ARRAY[x * 1e9, y]) FROM t, (SELECT {plain} AS m) s)",
    "weighted": "(SELECT kmeans_step_partial(m, a, w * 1e10 ^ x) FROM t, (SELECT {array} AS m) s WHERE w > 0)",
    "cosine": "(SELECT kmeans_step_partial(m, a) FROM t, (SELECT {cosine} AS m) s)",
    "rest": "(SELECT kmeans_step_partial(m, ARRAY[x]) FROM t, (SELECT {one} AS m) s)",
}
for name, query in STATES.items():
    query = query.format(**MODELS)
    write(f"state-{name}.bin", binary(f"SELECT kmeans_state_send({query})"))
    if name in ("sum", "rest"):
        write(f"state-{name}.txt", value(f"SELECT {query}::text"))
model = value(f"SELECT {MODELS['given']}::text")
write("options-defaults", "3\n\nk-means++\n\n\n1\n100\n1e-4\neuclidean\nf\n0\nerror\nauto\nskip\n")
write("options-all", "2\nw\nrandom\n\n1,2;3,4\n5\n7\n0\ncosine\nf\n-1\nskip\ncpu\nmean\n")
write("options-partial", "2\nw\nrandom\n\n1,2;3,4\n5\n7\n0\neuclidean\nt\n-1\nskip\ncpu\npartial\n")
write("options-warm", f"2\n\nk-means||\n{model}\n\n1\n1\n0.5\neuclidean\nt\n9\nerror\nauto\nskip\n")
C = [(0.0, 0.0, 0.0), (1.5, -2.0, 0.25)]
QUESTIONS = {
    "stats": question(STATS),
    "moments": question(MOMENTS, 3),
    "step": question(STEP, 3, centroids=C),
    "cosine": question(STEP, 3, distance=1, centroids=C, expo=0),
    "finish": question(FINISH, 3, centroids=C),
    "race": question(SEED, 3, seeds=C[:1], use_d2=1, want=3),
    "first": question(SEED, 3, want=1),
    "candidates": question(SEED, 3, centroids=C, seeds=C[:1], use_d2=1, want=2),
    "potential": question(SEED, 3, centroids=C, seeds=C),
    "far": question(FAR, 3, seeds=C),
    "means": question(MEANS, 3, centroids=C),
    "means-raw": question(MEANS, 3, centroids=C, raw=1),
    "means-cosine": question(MEANS, 3, distance=1, centroids=C, raw=1, expo=0),
    "spread": question(SPREAD, 3, centroids=C, sizes=(9, 15)),
    "spread-raw": question(SPREAD, 3, centroids=C, sizes=(24, 0), raw=1),
    "sample": question(SAMPLE, 3, centroids=C, rows=60, want=20),
    "sample-raw": question(SAMPLE, 3, centroids=C, rows=60, want=20, raw=1),
}
for name, q in QUESTIONS.items():
    write(f"pass-{name}", q)
    a = binary(f"SELECT kmeans_pass('{{{'forty' if name.startswith('sample') else 't'}}}', '{{a}}', '\\x{q.hex()}', first_rows => '{{5}}')")
    write(f"answer-{name}", struct.pack(">i", len(q)) + q + a)
