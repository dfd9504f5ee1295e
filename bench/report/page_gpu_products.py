"""bench/results/gpu_products.md: points of 17 and more features on a Hopper GPU, beside others."""
import glob
import json
import os

from about import RESULTS

# FLOP/s of an H100's or H200's tensor cores in float16, without sparsity, as NVIDIA states it; none of them reaches it
PEAK = 989.4e12

# by whether the name of a case ends with s
SHAPES = {False: "around ten centres", True: "normal, column j's variance 1 / j"}


def newest(what):
    """All rows of the newest file of what."""
    files = sorted(glob.glob(os.path.join(RESULTS, "gpu", f"*-{what}-*.jsonl")))
    if not files:
        return []
    with open(files[-1], encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def rows():
    return newest("products")


def compared():
    """One row of the table each: the shape, first and later iterations, target, and the others' times."""
    all_rows = rows()
    # whatever takes longer, the device or the host: one may be ahead of the other
    later = {r["case"]: max(r["ms"], r["device_ms"]) for r in all_rows if r["what"] == "later iterations"}
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


def shapes():
    """What this page has beside others."""
    return {(r["n"], r["d"], r["k"]) for r in compared()}


def fits():
    """Whole fits: a row each for gkmeans, with the others' (milliseconds, inertia as a multiple of gkmeans's)."""
    all_rows = newest("fits")
    return [{**own, "points": SHAPES[own["case"].endswith("s")],
             "peers": {r["what"]: (r["ms"], r["inertia"]) for r in all_rows if r["case"] == own["case"] and "inertia" in r}}
            for own in all_rows if own["what"] == "gkmeans"]


def floor(r):
    """Milliseconds of a fit's products at the nominal rate."""
    return 2e3 * r["n"] * r["d"] * r["k"] * r["iterations"] / PEAK


def fits_section():
    table = fits()
    if not table:
        return []
    names = sorted({name for r in table for name in r["peers"]})
    out = ["", "## Whole fits", "",
           "From the same points, on the GPU already, and the same k of them as centroids, until centroids do not move any more, after 100 iterations at most; the "
           "others for as many iterations. Milliseconds, median of three, by `bench/gpu/fits.sh`. In brackets the inertia of the last centroids as a multiple "
           f"of gkmeans's: fits that take another turn once may end higher or lower. {table[0]['gpu']}, {table[0]['date']}. `floor`: what the product of all points "
           "and all centroids takes at the nominal 989 TFLOP/s in float16, once an iteration. It binds where no part of it is left out. Tiles of centroids that are far away are, "
           "rows that bounds settle, and, of more than 256 features, the tails of rows where centroids have short ones.", "",
           "| n | d | k | points | iterations | gkmeans | floor | " + " | ".join(names) + " | the fastest of them over gkmeans |", "|" + "---|" * (8 + len(names))]
    for r in table:
        out.append("| " + " | ".join([f"{r['n']:,}", str(r["d"]), f"{r['k']:,}", r["points"], f"{r['iterations']:.0f}", f"{r['ms']:.1f}", f"{floor(r):.1f}",
                                      *(f"{r['peers'][name][0]:.1f} ({r['peers'][name][1]:.4f})" if name in r["peers"] else "-" for name in names),
                                      f"{min(ms for ms, _ in r['peers'].values()) / r['ms']:.2f}"]) + " |")
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
           "the host's update included: the device's time or the host's, whichever is longer. `first` is the mean of the first 5 or 10 iterations from given centroids, with sorting the points where it is done; "
           "`later` is that of those which follow. Labels are exact and sums the same bits in every run. flash-kmeans and flashlib float32 compute in TF32, "
           "flashlib float16 in float16: their labels are not always those of the nearest centroid. Their time does not depend on the data; it was measured on "
           f"{', '.join(sorted({r['date'] for r in all_rows if r['suite'] == 'gpu_peers'}))} on points around ten centres. `target` is the goal of later iterations.", "",
           "| n | d | k | points | first | later | target | " + " | ".join(names) + " |", "|" + "---|" * (7 + len(names))]
    for r in table:
        cells = [f"{r['n']:,}", r["d"], f"{r['k']:,}", r["points"], f"{r['first']:.2f}", f"{r['later']:.2f}", f"{r['target']:.2f}" if r["target"] > 0 else "-"]
        cells += [f"{r['peers'][name]:.2f}" if name in r["peers"] else "-" for name in names]
        out.append("| " + " | ".join(str(c) for c in cells) + " |")
    out += fits_section()
    commands = sorted({f"{r['commit']}: {r['command']}" for r in all_rows + newest("fits")})
    out += ["", "## Commands", "", "```", *commands, "```"]
    return "\n".join(out) + "\n"
