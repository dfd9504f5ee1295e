"""bench/results/gpu_grid.md: many shapes on a GPU, beside others."""
import glob
import json
import os

from about import RESULTS

HEAD = """# Benchmarks: grids of shapes on a GPU

Made by `bench/run report` from the newest file `*-grid-*` in bench/results/gpu: what `bench/gpu/gpu_kernels.cu` and
`bench/gpu/gpu_peers.py` measured of the cases of `bench/gpu/grid.py`, which says how n is chosen; do not edit.

A cell has milliseconds per iteration of gkmeans (assign and update, points around ten centres and resident, mean of the first
five iterations from rows of the data / median of later ones) and in brackets how many times longer the fastest of the others
takes than either. A cell whose first iterations lose is **bold**; one without brackets was not measured beside others. Some of the
others were measured on another day or host with the same GPU, as the commands say. The labels of gkmeans are exact; flash-kmeans
and flashlib float32 compute in TF32, flashlib float16 in float16.
"""


def rows():
    """All rows of the newest file of grids."""
    files = sorted(glob.glob(os.path.join(RESULTS, "gpu", "*-grid-*.jsonl")))
    if not files:
        return []
    with open(files[-1], encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def shape(row):
    return row["n"], row["d"], row["k"]


def own(all_rows, what):
    return {shape(r): r["ms"] for r in all_rows if r["what"] == what}


def others(all_rows):
    """The others' times of each shape, by their names."""
    found = {}
    for r in all_rows:
        if r["suite"] == "gpu_peers":
            found.setdefault(shape(r), {})[r["what"]] = r["ms"]
    return found


def compared():
    """(n, d, k), milliseconds of the first iterations, the others' by name."""
    all_rows = rows()
    first = own(all_rows, "gkmeans")
    return [(s, first[s], ms) for s, ms in others(all_rows).items() if s in first]


def table(all_rows, chosen):
    """Lines of the table of `chosen` shapes: features down, clusters across."""
    first = own(all_rows, "gkmeans")
    later = own(all_rows, "later iterations")
    rivals = others(all_rows)
    chosen = [s for s in chosen if s in first]
    clusters = sorted({k for _, _, k in chosen})
    out = ["| d \\ k | " + " | ".join(f"{k:,}" for k in clusters) + " |", "|" + "---|" * (1 + len(clusters))]
    for d in sorted({d for _, d, _ in chosen}):
        line = [f"{d:,}"]
        for k in clusters:
            here = [s for s in chosen if s[1:] == (d, k)]
            if not here:
                line.append("-")
                continue
            cell = f"{first[here[0]]:.3f} / {later[here[0]]:.3f}"
            if here[0] in rivals:
                fastest = min(rivals[here[0]].values())
                cell += f" ({fastest / first[here[0]]:.1f} / {fastest / later[here[0]]:.1f})"
                cell = cell if fastest >= first[here[0]] else f"**{cell}**"
            line.append(cell)
        out.append("| " + " | ".join(line) + " |")
    return out


def page():
    all_rows = rows()
    if not all_rows:
        return "# Benchmarks: grids of shapes on a GPU\n\nMissing: no results.\n"
    head = next(r for r in all_rows if r["suite"] == "gpu_kernels")
    names = sorted({r["what"] for r in all_rows if r["suite"] == "gpu_peers"})
    shapes = sorted({shape(r) for r in all_rows if r["what"] == "gkmeans"})
    narrow = [s for s in shapes if s[0] == (8000000 if s[1] <= 8 else 4000000) and s[1] <= 24]
    wide = [s for s in shapes if s not in narrow]
    dates = sorted({r["date"] for r in all_rows})
    out = [HEAD, f"{head['gpu']}, driver {head['driver']}, {dates[0]} to {dates[-1]}, commits below; the others: {', '.join(names)}.", "",
           "## Narrow points", "", "8,000,000 rows, from 12 features on 4,000,000; beside flash-kmeans only.", "", *table(all_rows, narrow), "",
           "## Wide points", "", *table(all_rows, wide)]
    commands = sorted({f"{r['date']}, {r['commit']}: {r['command'][:200]}" for r in all_rows})
    return "\n".join([*out, "", "## Commands", "", "```", *commands, "```"]) + "\n"
