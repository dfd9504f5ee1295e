"""bench/results/gpu.md: the newest run of gpu_kernels, with gpu_peers.py's rows beside it."""
import glob
import json
import os

from about import OWN_PAGES, RESULTS


def newest():
    """All rows of the newest file that has rows of gpu_kernels."""
    files = []
    for name in glob.glob(os.path.join(RESULTS, "gpu", "*.jsonl")):
        if any(part in name for part in OWN_PAGES):
            continue
        with open(name, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.strip()]
        if any(r["suite"] == "gpu_kernels" for r in rows):
            files.append((max(r["date"] for r in rows), name, rows))
    return max(files)[2] if files else []


def page():
    rows = newest()
    if not rows:
        return "# Benchmarks: the GPU\n\nMissing: no results of a GPU.\n"
    own = [r for r in rows if r["suite"] == "gpu_kernels"]
    peers = {}
    for r in rows:
        if r["suite"] == "gpu_peers":
            peers.setdefault(r["what"], {})[r["case"]] = r["ms"]
    first = own[0]
    out = ["# Benchmarks: the GPU", "",
           "Made by `bench/run report` from the newest file in bench/results/gpu, the output of `bench/gpu/gpu_kernels.cu` and `bench/gpu/gpu_peers.py`; do not edit.", "",
           f"{first['gpu']}, driver {first['driver']}, {first['date']}; the commit of each row stands in it. "
           f"Measured ceilings in the first row's run: read {first['read_gbs']:.0f} GB/s, float32 {first['fp32_tflops']:.1f} TFLOP/s, "
           f"upload from pinned memory {first['upload_gbs']:.1f} GB/s.", "",
           "Milliseconds per iteration (assign and update), median of several runs, points resident on the GPU. "
           "`wall` is the engine's clock, host update included; `device` is by CUDA events. "
           "`of read` is one read of the points over the time and the ceiling. gkmeans computes exact sums and canonical "
           "float32 labels: the same bits in every run and on every device. flash-kmeans computes float32 input in TF32."
           + (" Rows with a * were copied from what the program printed." if any(r.get("printed") for r in own) else ""), ""]
    names = sorted(peers)
    head = ["n", "d", "k", "wall", "device", "target", "of read"] + names + ["commit"]
    out += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in own:
        if r["what"] != "gkmeans":
            continue
        share = 100.0 * r["n"] * r["d"] * 4 / r["ms"] / 1e6 / r["read_gbs"]
        cells = [f"{r['n']:,}", r["d"], r["k"], f"{r['ms']:.4f}", f"{r['device_ms']:.4f}", f"{r['target_ms']:.3f}", f"{share:.0f} %"]
        for p in names:
            ms = peers[p].get(r["case"])
            cells.append("-" if ms is None else f"{ms:.3f}")
        cells.append(r["commit"] + (" *" if r.get("printed") else ""))
        out.append("| " + " | ".join(str(c) for c in cells) + " |")
    ways = {w: {r["case"]: r for r in own if r["what"] == w} for w in ("distances left out from the start", "all distances")}
    on, off = ways.values()
    if on:
        out += ["", "## Distances left out", "",
                "With up to four features the points are sorted into boxes once that pays; an iteration then computes only the distances that a box leaves open "
                "(`src/gpu/gk_gpu_filter.cu`). The table above shows what `auto` reaches after its first iterations. This one sorts from the start, or never, "
                "and includes all that the first iterations of a session cost.", "",
                "| n | d | k | sorted: ms | first iterations with the sorting | never: ms | the same iterations |", "|---|---|---|---|---|---|---|"]
        for case, r in on.items():
            o = off[case]
            out.append(f"| {r['n']:,} | {r['d']} | {r['k']} | {r['ms']:.4f} | {r['warm_up_ms']:.1f} ms | {o['ms']:.4f} | {o['warm_up_ms']:.1f} ms |")
    strategies = [r for r in own if r["case"] == "strategies"]
    if strategies:
        r = strategies[0]
        out += ["", f"## Strategies (Lutz et al. 2018), n = {r['n']:,}, d = {r['d']}, k = {r['k']}", "",
                "| strategy | ms | times single_pass |", "|---|---|---|"]
        for r in strategies:
            out.append(f"| {r['what']} | {r['ms']:.3f} | {r['ms'] / strategies[0]['ms']:.1f} |")
    for r in own:
        if r["case"] == "streamed":
            gbs = r["n"] * r["d"] * 4 * 0.9 / r["ms"] / 1e6
            out += ["", f"With a tenth of the points resident and the rest streamed in every iteration: {r['ms']:.1f} ms, "
                    f"{gbs:.1f} GB/s, {100 * gbs / r['upload_gbs']:.0f} % of the upload ceiling. Opening the session, with pinning the points in main memory, took {r['open_ms']:.0f} ms."]
    commands = sorted({r["command"] for r in rows})
    out += ["", "## Commands", "", "```", *commands, "```"]
    return "\n".join(out) + "\n"
