#!/usr/bin/env python3
"""Benchmark of the CPU engine: rooflines, passes, whole fits beside scikit-learn (lloyd
and elkan), faiss-cpu, scikit-learn-intelex and superkmeans, of wide points ten iterations; k-means++ beside scikit-learn's.  Same points, same first centroids
(superkmeans takes none, and begins with random rows as well), same number of iterations, same threads, float32.

    make -C bench smoke               small problems, a few seconds, writes nothing
    make -C bench cpu                 all: bench/results/engine.json
    bench/run report                  the page bench/results/engine.md from it

--only PATTERN runs the cases whose name matches ("step", "grid .* 68 ") and keeps the
results of the others (--most, --rounds: a shorter run).  Peers that are not installed are left
out, slow ones are stopped: only the fastest one counts.
"""
import argparse
import datetime
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from about import RESULTS, ROOT, first_line, machine  # noqa: E402

ENGINE = os.path.join(ROOT, "build", "bench", "engine")
RESULT = os.path.join(RESULTS, "engine.json")
SIMD = []                               # the engine's arguments for other kernels than it would choose

# n, d, k, share of the roofline that an iteration should reach
PASSES = [(134217728, 4, 4, 0.85), (50000000, 4, 4, 0.85), (2049280, 7, 4, 0.80),
          (2458285, 68, 16, 0.70), (2458285, 68, 64, 0.70), (2458285, 68, 256, 0.70),
          (1000000, 128, 1024, 0.70)]
SMALL = (100000, 2, 5, 300, 10.0)       # n, d, k, iterations, ms
HE = (50000000, 4, 4, 52.4, 7.4e-4)     # ... their ms on 20 cores and their error
GRID_D = [2, 4, 8, 16, 32, 68, 128, 256]
GRID_K = [4, 16, 64, 256, 1024]
WIDE_D = [128, 384, 768, 1536]          # points like embeddings
WIDE_K = [256, 1000, 4096]
WIDE_ROWS, WIDE_ITER = 20000, 10
WIDE_WANTED = 2.0                       # times the fastest peer, where the CPU has instructions for products of integers, ...
WIDE_WANTED_AVX2 = 1.5                  # ... and where it has AVX2
LONG = [(128, 1000), (768, 256), (768, 1000), (768, 4096)]   # d and k of fits with as many iterations as LONG_ITER
LONG_ITER, LONG_WANTED = 100, 3.0
SEEDS = [(1000000, 2), (1000000, 4), (1000000, 8), (400000, 16), (200000, 68)]    # n, d
SEED_K = [16, 64, 256]
MAX_ITER = 300
ROUNDS = 3
ENOUGH = 1.5                            # seconds: after that a fit is not repeated
PATIENCE = 1.5                          # times the fastest peer's time: a slower one is stopped
LONGEST = 60.0                          # seconds: the first peer, too


def grid_rows(d, k, most):
    return max(20000, min(most, 2 ** 30 // (d * k) // 1000 * 1000))


def wanted(d):
    """How many times faster than the fastest peer."""
    return 5.0 if d <= 16 else 1.5


def fastest_peer(row):
    rest = {name: ms for name, ms in row["ms"].items() if name != "gkmeans"}
    return min(rest, key=rest.get) if rest else None


def engine(*args, threads):
    out = subprocess.run([ENGINE, *map(str, args), "-t", str(threads), *SIMD],
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"engine {' '.join(map(str, args))}: {out.stderr.strip()}")
    return json.loads(out.stdout)


# ---- peers: name -> function(points, centroids, iterations, threads) -> (seconds, inertia, iterations)

def sklearn_fit(cls, algorithm):
    def run(x, c, iterations, threads):
        from threadpoolctl import threadpool_limits
        with threadpool_limits(threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            km = cls(n_clusters=len(c), init=c, n_init=1, max_iter=iterations, tol=0.0, algorithm=algorithm)
            t0 = time.perf_counter()
            km.fit(x)
            return time.perf_counter() - t0, float(km.inertia_), int(km.n_iter_)
    return run


def sklearn_seed(x, c, _, threads):
    """len(c) seeds, with as many candidates a round as gkmeans."""
    from sklearn.cluster import kmeans_plusplus
    from threadpoolctl import threadpool_limits
    with threadpool_limits(threads):
        t0 = time.perf_counter()
        kmeans_plusplus(x, len(c), random_state=1, n_local_trials=2 + int(math.log(len(c))))
        return time.perf_counter() - t0, 0.0, 1


def faiss_fit(faiss):
    # Newer versions end as soon as their float32 objective does not fall any more, others do not.
    all_of_them = {"early_stop_threshold": -1.0} if hasattr(faiss.ClusteringParameters(), "early_stop_threshold") else {}

    def run(x, c, iterations, threads):
        faiss.omp_set_num_threads(threads)
        km = faiss.Kmeans(x.shape[1], len(c), niter=iterations, nredo=1, seed=1,
                          min_points_per_centroid=1, max_points_per_centroid=len(x) + 1, **all_of_them)
        t0 = time.perf_counter()
        km.train(x, init_centroids=c)
        return time.perf_counter() - t0, float(km.obj[-1]), len(km.obj)
    return run


def superkmeans_fit(cls):
    """All rows, no early end; which of them it begins with it chooses itself."""
    def run(x, c, iterations, threads):
        km = cls(len(c), x.shape[1], hierarchical=False, iters=iterations, sampling_fraction=1.0,
                 n_threads=threads, seed=1, early_termination=False)
        t0 = time.perf_counter()
        km.train(x)
        return time.perf_counter() - t0, float(km.iteration_stats[-1].objective), len(km.iteration_stats)
    return run


def peers():
    found, versions = {}, {}
    try:
        import sklearn
        from sklearn.cluster import KMeans
        versions["scikit-learn"] = sklearn.__version__
        found["lloyd"] = sklearn_fit(KMeans, "lloyd")
        found["elkan"] = sklearn_fit(KMeans, "elkan")
    except ImportError:
        pass
    try:
        import faiss
        versions["faiss-cpu"] = faiss.__version__
        found["faiss"] = faiss_fit(faiss)
    except ImportError:
        pass
    try:
        import logging
        logging.getLogger("sklearnex").setLevel(logging.ERROR)
        from sklearnex.cluster import KMeans as OneKMeans
        import importlib.metadata
        versions["scikit-learn-intelex"] = importlib.metadata.version("scikit-learn-intelex")
        found["oneDAL"] = sklearn_fit(OneKMeans, "lloyd")
    except ImportError:
        pass
    try:
        import superkmeans
        versions["superkmeans"] = superkmeans.__version__
        found["SuperKMeans"] = superkmeans_fit(superkmeans.SuperKMeans)
    except ImportError:
        pass
    return found, versions


# ---- cases

def blobs(n, d, seed=1):
    """Lutz et al.'s points: 10 centres uniform in [-100, 100]^d, standard deviation 10."""
    import numpy as np
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-100, 100, (10, d))
    return (centres[rng.integers(0, 10, n)] + rng.normal(0, 10, (n, d))).astype(np.float32)


def embeddings(n, d, seed=1):
    """Normal, with a variance of 1 / (j + 1) in feature j."""
    import numpy as np
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) / np.sqrt(1 + np.arange(d))).astype(np.float32)


def repeat(fit, args, rounds, out):
    """Send what fit() returns, as often as it is to be measured, to the pipe `out`."""
    x, _, _, threads = args
    fit(x[:1000], x[:4].copy(), 2, threads)     # libraries load much at their first call
    out.send(None)
    spent = 0.0
    for _ in range(rounds):
        result = fit(*args)
        out.send(result)
        spent += result[0]
        if spent > ENOUGH:
            break
    out.close()


def measure(fit, args, rounds, limit):
    """
    The fastest (seconds, inertia, iterations) of a peer; None when it takes more than
    `limit` seconds.  A process of its own can be stopped; it is forked from this one,
    which has the libraries and the points, but has never started a thread of theirs.
    """
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    process = fork.Process(target=repeat, args=(fit, args, rounds, send))
    best = None
    process.start()
    send.close()
    try:
        receive.recv()
        while receive.poll(limit):
            result = receive.recv()
            best = min(best or result, result)
    except EOFError:
        pass
    process.kill()
    process.join()
    return best


def whole_fit(n, d, k, found, threads, directory, rounds, what="grid", points=blobs, most=MAX_ITER):
    import numpy as np
    x = points(n, d)
    c = x[np.random.default_rng(k).choice(n, k, replace=False)].copy()
    files = [os.path.join(directory, name) for name in ("points", "centroids")]
    x.tofile(files[0])
    c.tofile(files[1])
    own = engine("fit", files[0], n, d, k, files[1], "-i", most, "-r", rounds, threads=threads)
    row = {"what": what, "n": n, "d": d, "k": k, "iterations": own["iterations"],
           "converged": own["converged"], "inertia": own["inertia"], "strategy": own["strategy"],
           "ms": {"gkmeans": own["prepare_ms"] + own["fit_ms"]}, "peer_inertia": {}, "peer_iterations": {}, "over_ms": {}}
    limit = LONGEST
    for name in list(found):
        best = measure(found[name], (x, c, own["iterations"], threads), rounds, limit)
        if best is None:
            row["over_ms"][name] = limit * 1000
            continue
        row["ms"][name] = best[0] * 1000
        row["peer_inertia"][name] = best[1]
        row["peer_iterations"][name] = best[2]
        limit = min(limit, PATIENCE * best[0])
    # In the next row they take their turns in this order, so that the slow ones are stopped early.
    for name in sorted(found, key=lambda name: row["ms"].get(name, math.inf)):
        found[name] = found.pop(name)
    return row


def seeding(n, d, k, found, threads, directory, rounds):
    x = blobs(n, d)
    name = os.path.join(directory, "points")
    x.tofile(name)
    row = dict(engine("seed", name, n, d, k, "-r", rounds, threads=threads), peer_ms=None)
    best = measure(sklearn_seed, (x, x[:k].copy(), 1, threads), rounds, LONGEST) if "lloyd" in found else None
    if best:
        row["peer_ms"] = best[0] * 1000
    return row


def run_cases(found, only, smoke, threads, most, rounds, keep):
    shrink = 200 if smoke else 1
    cases = []
    for n, d, k, target in PASSES:
        cases.append((f"step {n} {d} {k}", lambda n=n, d=d, k=k, target=target: dict(
            engine("step", max(n // shrink, 4 * k), d, k, "-r", 1 if smoke else ROUNDS, threads=threads), target=target)))
    small, (iterations, limit) = SMALL[:3], SMALL[3:]
    cases.append(("small", lambda: dict(
        engine("small", *small, "-i", iterations, "-r", 10, threads=threads), target_ms=limit)))
    he, (ms, error) = HE[:3], HE[3:]
    cases.append(("accuracy", lambda: dict(
        engine("accuracy", he[0] // shrink, *he[1:], threads=threads), peer_ms=ms, peer_error=error)))
    with tempfile.TemporaryDirectory() as directory:
        for d in GRID_D:
            for k in GRID_K:
                if smoke and (d not in (2, 68) or k not in (4, 64)):
                    continue
                rows = 20000 if smoke else grid_rows(d, k, most)
                cases.append((f"grid {d} {k}", lambda rows=rows, d=d, k=k: whole_fit(
                    rows, d, k, found, threads, directory, 1 if smoke else rounds)))
        for d in WIDE_D:
            for k in WIDE_K:
                if not smoke or (d, k) == (128, 256):
                    cases.append((f"wide {d} {k}", lambda d=d, k=k: whole_fit(
                        WIDE_ROWS // (10 if smoke else 1), d, k, found, threads, directory, 1 if smoke else rounds,
                        "wide", embeddings, WIDE_ITER)))
        for d, k in [] if smoke else LONG:
            cases.append((f"long {d} {k}", lambda d=d, k=k: whole_fit(
                WIDE_ROWS, d, k, found, threads, directory, rounds, "long", embeddings, LONG_ITER)))
        for n, d in SEEDS:
            for k in SEED_K:
                if smoke and k != 16:
                    continue
                cases.append((f"seed {d} {k}", lambda n=n, d=d, k=k: seeding(
                    n // shrink, d, k, found, threads, directory, 1 if smoke else rounds)))
        for name, case in cases:
            if only and not re.search(only, name):
                continue
            row = dict(case(), name=name, load=os.getloadavg()[0])
            print(json.dumps(row), file=sys.stderr, flush=True)
            keep(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--output", default=RESULT, help="of another machine's results, which one file does not mix")
    parser.add_argument("--simd", help="kernels of gkmeans, as gkmeans.simd names them: of a processor that this one is not")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--most", type=int, default=200000, help="rows of a whole fit, at most")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times that a whole fit is measured")
    args = parser.parse_args()
    # the rows name this commit, so its engine is measured, and not what was built last
    subprocess.run(["make", "-s", "-C", os.path.join(ROOT, "bench"), "all"], check=True,
                   env={**os.environ, "MAKEFLAGS": f"-j{multiprocessing.cpu_count()}"})
    if args.simd:
        SIMD.extend(["-s", args.simd])
    found, versions = peers()
    data = {"about": None, "rows": []}
    if args.only and os.path.exists(args.output):
        with open(args.output, encoding="utf-8") as f:
            data = json.load(f)
    data["about"] = {
        "machine": machine(), "cpus": len(os.sched_getaffinity(0)), "threads": args.threads,
        "date": datetime.date.today().isoformat(), "commit": first_line("git", "rev-parse", "--short", "HEAD"),
        "compiler": first_line(os.environ.get("CC", "cc"), "--version"), "versions": versions,
        "roofline": engine("roofline", threads=args.threads),
        "command": "make -C bench cpu" if len(sys.argv) == 1 else " ".join(["bench/engine/engine.py", *map(repr, sys.argv[1:])])}

    def keep(row):
        # the others may be of another run
        row.update({what: data["about"][what] for what in ("commit", "command")})
        old = [i for i, r in enumerate(data["rows"]) if r["name"] == row["name"]]
        if old:
            data["rows"][old[0]] = row
        else:
            data["rows"].append(row)
        if not args.smoke:
            with open(args.output, "w", encoding="utf-8") as f:
                json.dump(data, f, indent=1)
                f.write("\n")

    run_cases(found, args.only, args.smoke, args.threads, args.most, args.rounds, keep)


if __name__ == "__main__":
    main()
