#!/usr/bin/env python3
"""Time other GPU k-means on the shapes of gpu_kernels.cu: one iteration (assign and
update), points resident, float32 input, CUDA events, median.

    bench/gpu/gpu_peers.py [--json FILE] [--commit ID] [--seconds S] [--only LIBRARY] [case ...]
    bench/gpu/gpu_peers.py [--json FILE] [--commit ID] --fit FOLDER --iterations I case

A case is a name of gpu_kernels.cu's table or a shape, as there, like those of grid.py. After
S seconds no other case begins; --only takes the libraries whose name has that text.

--fit FOLDER: I iterations from the points and centroids that gpu_kernels --fit left there,
the median of three after one to warm up, and the inertia that the last centroids give to
all points, beside that of gkmeans's.

flash-kmeans (Triton) multiplies float32 input in TF32 inside, flashlib in TF32 or,
given float16, in float16, so their labels are not always those of the nearest
centroid.  "pytorch" is what one would write in a
few lines: cdist-like distances in blocks by a matrix product (TF32 off), argmin,
index_add_.  Neither gives the same sums twice; gkmeans does.
"""
import argparse
import datetime
import json
import statistics
import time

import torch

CASES = {
    "2gb4": (134217728, 4, 4), "2gb64": (134217728, 4, 64), "50m": (50000000, 4, 4),
    "small": (2049280, 7, 4), "tiny": (100000, 2, 5), "census16": (2458285, 68, 16),
    "census64": (2458285, 68, 64), "census256": (2458285, 68, 256), "10m": (10000000, 32, 256),
    "1m4096": (1000000, 128, 4096), "8m1024": (8388608, 128, 1024), "768": (1000000, 768, 1000),
}

ITERATIONS = 5      # of a call, where a library offers no single ones

def points(n, d, spectrum=False):
    """Lutz et al.'s data: ten centres uniform in [-100, 100]^d, normal around them; or
    normal, the variance of column j being 1 / j."""
    g = torch.Generator(device="cuda").manual_seed(1)
    if spectrum:
        return torch.randn((n, d), device="cuda", generator=g) / torch.arange(1, d + 1, device="cuda").sqrt()
    centres = torch.rand((10, d), device="cuda", generator=g) * 200 - 100
    x = torch.randn((n, d), device="cuda", generator=g) * 10
    step = 1 << 22
    for i in range(0, n, step):
        m = min(step, n - i)
        x[i:i + m] += centres[torch.randint(0, 10, (m,), device="cuda", generator=g)]
    return x


def inertia(x, c):
    """The sum of squared distances to the nearest centroid, in float64 from float32 labels."""
    torch.backends.cuda.matmul.allow_tf32 = False
    half = (c * c).sum(1) * 0.5
    total = 0.0
    for i in range(0, len(x), 1 << 16):
        part = x[i:i + (1 << 16)]
        label = (half - part @ c.T).argmin(1)
        total += (part.double() - c[label].double()).square().sum().item()
    return total


def fits(peers, args, record):
    name, folder = args.cases[0], args.fit
    n, d, k = map(int, name.rstrip("s").split("x"))

    def read(what, rows):
        return torch.from_file(f"{folder}/{what}", size=rows * d, dtype=torch.float32).view(rows, d).cuda()

    x, first = read("points", n), read("first", k)
    ours = inertia(x, read("last", k))
    print(f"{name:24} {'gkmeans':28} inertia {ours:.9g}")
    for library, prepare, iterate, iterations in peers:
        def whole():
            c = first.clone()
            if iterations == 1:
                for _ in range(args.iterations):
                    c = iterate(state, c)
                return c
            return iterate(state, c, args.iterations)
        try:
            state = prepare(x)
            times = []
            for i in range(4):
                torch.cuda.synchronize()
                begin = time.monotonic()
                c = whole()
                torch.cuda.synchronize()
                times.append((time.monotonic() - begin) * 1e3)
            ms, theirs = statistics.median(times[1:]), inertia(x, c.float().view(k, d))
        except Exception as e:      # a peer that fails is a result too
            print(f"{name:24} {library:28} failed: {str(e)[:120]}")
            continue
        print(f"{name:24} {library:28} {ms:10.3f} ms, {args.iterations} iterations, inertia {theirs / ours:.6f} of gkmeans's", flush=True)
        record("gpu_fits", name, library, n, d, k, ms, {"iterations": args.iterations, "inertia": theirs / ours})
        del state


def flash_iteration():
    from flash_kmeans.kmeans_triton_impl import _euclid_iter
    import importlib.metadata

    def prepare(x):
        x = x[None]
        x_sq = torch.empty(x.shape[:2], device=x.device)
        for i in range(0, x.shape[1], 1 << 20):
            x_sq[:, i:i + (1 << 20)] = (x[:, i:i + (1 << 20)] ** 2).sum(-1)
        return x, x_sq

    def iterate(state, c):
        x, x_sq = state
        return _euclid_iter(x, x_sq, c[None])[0][0]

    return "flash-kmeans " + importlib.metadata.version("flash-kmeans"), prepare, iterate, 1


def flashlib_iteration(dtype):
    from flashlib.primitives.kmeans.impl import flash_kmeans
    import importlib.metadata

    def iterate(x, c, iterations=ITERATIONS):
        return flash_kmeans(x, c.shape[0], max_iters=iterations, init_centroids=c.to(x.dtype))[1]

    name = f"flashlib {importlib.metadata.version('flashlib')} {str(dtype).split('.')[1]}"
    return name, lambda x: x.to(dtype), iterate, ITERATIONS


def torch_iteration():
    torch.backends.cuda.matmul.allow_tf32 = False

    def iterate(x, c):
        k, d = c.shape
        sums = torch.zeros_like(c)
        counts = torch.zeros(k, device=x.device)
        half = (c * c).sum(1) * 0.5
        step = max(1, (1 << 28) // k)
        for i in range(0, len(x), step):
            part = x[i:i + step]
            label = (half - part @ c.T).argmin(1)
            sums.index_add_(0, label, part)
            counts.index_add_(0, label, torch.ones(len(part), device=x.device))
        return torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), c)

    return "pytorch " + torch.__version__, lambda x: x, iterate, 1


def median_ms(iterate, state, c, most_s=6.0):
    times = []
    for i in range(9):
        a = torch.cuda.Event(enable_timing=True)
        b = torch.cuda.Event(enable_timing=True)
        a.record()
        c = iterate(state, c)
        b.record()
        b.synchronize()
        if i >= 2:
            times.append(a.elapsed_time(b))
        if sum(times) > most_s * 1e3:
            break
    return statistics.median(times)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--json")
    ap.add_argument("--commit", default="unknown")
    ap.add_argument("--driver", default="unknown")
    ap.add_argument("--seconds", type=float, default=1e9)
    ap.add_argument("--only", default="")
    ap.add_argument("--fit")
    ap.add_argument("--iterations", type=int)
    ap.add_argument("cases", nargs="*")
    args = ap.parse_args()
    peers = []
    makers = [flash_iteration, lambda: flashlib_iteration(torch.float32), lambda: flashlib_iteration(torch.float16),
              torch_iteration]
    for make in makers:
        try:
            peers.append(make())
        except ImportError as e:
            print(f"left out: {e}")
    peers = [p for p in peers if args.only in p[0]]
    shown = args.cases[:8] + ["..."] if len(args.cases) > 8 else args.cases

    def record(suite, name, library, n, d, k, ms, more):
        if not args.json:
            return
        fit = ["--fit", "FOLDER", "--iterations", str(args.iterations)] if args.fit else []
        row = {"suite": suite, "case": name, "what": library, "n": n, "d": d, "k": k, "ms": round(ms, 6), **more,
               "gpu": torch.cuda.get_device_name(), "driver": args.driver,
               "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
               "commit": args.commit, "command": " ".join(["gpu_peers.py", *fit, *shown])}
        with open(args.json, "a") as f:
            f.write(json.dumps(row) + "\n")

    if args.fit:
        fits([p for p in peers if not p[0].startswith("pytorch")], args, record)
        return
    begin = time.monotonic()
    for name in args.cases or CASES:
        if time.monotonic() - begin > args.seconds:
            print(f"left out for lack of time: {name} and those after it")
            break
        n, d, k = CASES[name] if name in CASES else map(int, name.rstrip("s").split("x"))
        x = points(n, d, name.endswith("s"))
        start = x[torch.randperm(min(n, 1 << 20), device="cuda")[:k]].clone()
        for library, prepare, iterate, iterations in peers:
            try:
                ms = median_ms(iterate, prepare(x), start.clone()) / iterations
            except Exception as e:      # a peer that fails is a result too
                print(f"{name:10} {library:28} failed: {str(e)[:120]}")
                continue
            print(f"{name:10} {library:28} {ms:10.4f} ms", flush=True)
            record("gpu_peers", name, library, n, d, k, ms, {})
        del x


if __name__ == "__main__":
    main()
