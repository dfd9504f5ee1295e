"""bench/results/gpu_products.md: points of 17 and more features on a Hopper GPU, beside others."""
import glob
import json
import os

from about import RESULTS

# by whether the name of a case ends with s
SHAPES = {False: "around ten centres", True: "normal, column j's variance 1 / j"}


def rows():
    """All rows of the newest file of products."""
    files = sorted(glob.glob(os.path.join(RESULTS, "gpu", "*-products-*.jsonl")))
    if not files:
        return []
    with open(files[-1], encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def compared():
    """One row of the table each: the shape, first and later iterations, target, and the others' times."""
    all_rows = rows()
    later = {r["case"]: r["ms"] for r in all_rows if r["what"] == "later iterations"}
    peers = {}
    for r in all_rows:
        if r["suite"] == "gpu_peers":
            peers.setdefault((r["n"], r["d"], r["k"]), {})[r["what"]] = r["ms"]
    out = []
    for r in all_rows:
        if r["what"] != "gkmeans":
            continue
        spectrum = r["case"].endswith("s")
        out.append({"n": r["n"], "d": r["d"], "k": r["k"], "points": SHAPES[spectrum], "first": r["ms"], "later": later[r["case"]],
                    "target": r["target_ms"], "peers": peers.get((r["n"], r["d"], r["k"]), {})})
    return out


def page():
    all_rows = rows()
    if not all_rows:
        return "# Benchmarks: wide points on a GPU\n\nMissing: no results.\n"
    first = next(r for r in all_rows if r["suite"] == "gpu_kernels")
    table = compared()
    names = sorted({name for r in table for name in r["peers"]})
    out = ["# Benchmarks: wide points on a GPU", "",
           "Made by `bench/run report` from the newest file `*-products-*` in bench/results/gpu, the output of `bench/gpu/gpu_kernels.cu` and "
           "`bench/gpu/gpu_peers.py`; do not edit.", "",
           f"{first['gpu']}, driver {first['driver']}, {first['date']}. Milliseconds per iteration (assign and update), median, points resident on the GPU, "
           "the host's update included. `first` is the mean of the first 5 or 10 iterations from given centroids, with sorting the points where it is done; "
           "`later` is that of those which follow. Labels are exact and sums the same bits in every run. flash-kmeans and flashlib float32 compute in TF32, "
           "flashlib float16 in float16: their labels are not always those of the nearest centroid. Their time does not depend on the data; it was measured in "
           "the same run on points around ten centres. `target` is the goal of later iterations.", "",
           "| n | d | k | points | first | later | target | " + " | ".join(names) + " |", "|" + "---|" * (7 + len(names))]
    for r in table:
        cells = [f"{r['n']:,}", r["d"], f"{r['k']:,}", r["points"], f"{r['first']:.2f}", f"{r['later']:.2f}", f"{r['target']:.2f}"]
        cells += [f"{r['peers'][name]:.2f}" if name in r["peers"] else "-" for name in names]
        out.append("| " + " | ".join(str(c) for c in cells) + " |")
    commands = sorted({f"{r['commit']}: {r['command']}" for r in all_rows})
    out += ["", "## Commands", "", "```", *commands, "```"]
    return "\n".join(out) + "\n"
