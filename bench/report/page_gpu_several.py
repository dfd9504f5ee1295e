"""bench/results/gpu_several.md: one, two, four, eight GPUs of one host, from what bench/gpu/several.sh printed."""
import os
import re

from about import RESULTS

WANTED = 1.9    # times, of two GPUs
WANTED_STREAMED = 1.8
LINE = re.compile(r"(\d+) x (\d+), (\d+)( streamed| falling)? +(\d+ GPUs?|1 GPU \+ CPU|CPU) +([\d.]+) +[\d.]+ +-?[\d.]+ +([\d.]+) ")
GPUS = re.compile(r"(\d+) GPUs")


def runs(name="several.txt"):
    """What was run, and milliseconds of each shape, (n, d, k, "" or a kind), by each way."""
    heads = []
    shapes = {}
    if not os.path.exists(os.path.join(RESULTS, "gpu", name)):
        return heads, shapes
    with open(os.path.join(RESULTS, "gpu", name), encoding="utf-8") as f:
        for line in f:
            m = LINE.match(line)
            if m:
                n, d, k, kind, way, iteration, fit = m.groups()
                shapes.setdefault((int(n), int(d), int(k), (kind or "").strip()), {})[way] = {"iteration": float(iteration), "fit": float(fit)}
            elif "commit" in line:
                heads.append(line.strip())
    return heads, shapes


def ways_of(shapes):
    """As many GPUs as any shape has."""
    return sorted({way for ways in shapes.values() for way in ways if GPUS.match(way)}, key=lambda way: int(way.split()[0]))


def suffix(kind):
    return ", " + kind if kind else ""


def compared():
    """(GPUs, times one, times wanted of two, which shape) of iterations that take one GPU 1 ms and more; the newest run of each."""
    newest = {}
    for name in ("several.txt", "several_two.txt"):
        for shape, ways in runs(name)[1].items():
            newest.update({(shape, way): ways["1 GPU"]["iteration"] / ways[way]["iteration"]
                           for way in ways if GPUS.match(way) and ways["1 GPU"]["iteration"] >= 1})
    return [(int(way.split()[0]), times, WANTED_STREAMED if kind == "streamed" else WANTED, f"n = {n:,}, d = {d}, k = {k}" + suffix(kind))
            for ((n, d, k, kind), way), times in newest.items()]


def ms(t):
    return f"{t:.3f}" if t < 1 else f"{t:.2f}" if t < 100 else f"{t:,.0f}"


def table(shapes, of, columns):
    """A row for each shape: one GPU's time, and how many times as fast the others are."""
    out = ["| n | d | k | 1 GPU, ms | " + " | ".join(f"{way}, ms | times | each" for way in columns) + " |", "|" + "---|" * (4 + 3 * len(columns))]
    for (n, d, k, kind), ways in shapes.items():
        cells = [f"{n:,}", d, f"{k:,}" + suffix(kind), ms(ways["1 GPU"][of])]
        for way in columns:
            if way not in ways:
                cells += ["-"] * 3
                continue
            times = ways["1 GPU"][of] / ways[way][of]
            cells += [ms(ways[way][of]), f"{times:.2f}", f"{100 * times / int(way.split()[0]):.0f} %"]
        out.append("| " + " | ".join(str(c) for c in cells) + " |")
    return out


def page():
    heads, shapes = runs()
    if not shapes:
        return "# Benchmarks: several GPUs\n\nMissing: no results.\n"
    columns = ways_of(shapes)
    out = ["# Benchmarks: several GPUs of one host", "",
           "Made by `bench/run report` from bench/results/gpu/several.txt and several_two.txt, the output of `bench/gpu/several.sh`; do not edit.", "",
           "; ".join(heads) + ". Uniform points; medians of three runs in turn. All ways of a shape had the same inertia, to the last bit. "
           "`times` is one GPU's time over that of several, `each` is that for each GPU.", "",
           "## Iterations", "",
           "After the first ten; `streamed`: the GPUs give memory for a tenth of the points, and the others come from main memory in each iteration.", ""]
    out += table(shapes, "iteration", columns)
    streamed = {shape: ways for shape, ways in shapes.items() if shape[3] == "streamed"}
    rates = {way: sorted(n * d * 4 / ways[way]["iteration"] / 1e6 for (n, d, _, _), ways in streamed.items() if way in ways) for way in ["1 GPU"] + columns}
    out += ["", "What keeps several from being as many times as fast as one:", "",
            "- What each does with all centroids, and not with its own rows: to round them, to compare them with each other, to make the next ones. It is the same with 2 or 8.",
            "- The slower of the GPUs: the others wait for it at the end of each iteration.",
            "- Meeting, and the sums of all: some 0.02 ms, and with 4,096 clusters of 768 features 50 MB that each reads from the others (half of that since copies of up to 8,388,544 rows have 64 bits a total; with four and more it adds up a slice, which it writes to them).",
            "- With thousands of wide clusters, what the host does beside it: it makes each iteration's centroids, too, and compares them."]
    if streamed:
        out += ["- Streamed points: main memory, or the links to it. All points over the time of an iteration: " +
                ", ".join(f"{way}: {', '.join(f'{r:.0f}' for r in rates[way])} GB/s" for way in rates) + "."]
    out += ["", "## Whole fits", "",
            "By k-means++ (streamed: k-means||) and 20 iterations, the points in main memory before, opened sessions; upload, seeding, joining and closing included.", ""]
    out += table(shapes, "fit", columns)
    heads, shapes = runs("several_two.txt")
    if shapes:
        out += ["", "## Iterations of two GPUs, later", "", "; ".join(heads) + ". As above, with the kernels of that day; streamed after the first 40; falling: normal, column j's variance 1 / j.", ""]
        out += table(shapes, "iteration", ways_of(shapes))
        same = [f"{2 * ways['2 GPUs']['iteration'] - ways['1 GPU']['iteration']:.2f} ms (n = {n:,}, d = {d}, k = {k:,}{suffix(kind)})"
                for (n, d, k, kind), ways in shapes.items() if kind != "streamed" and "2 GPUs" in ways]
        out += ["", "What a second GPU does not make shorter, twice the time of two less that of one: " + ", ".join(same) + "."]
    beside = {shape: ways for shape, ways in shapes.items() if "1 GPU + CPU" in ways and "CPU" in ways}
    if beside:
        out += ["", "## The CPU beside one GPU", "",
                "In the same runs: streamed points, after the first 40 iterations, since the CPU becomes faster for that long. What both could do is the sum of their rates.", "",
                "| n | d | k | GPU, ms | CPU, ms | both, ms | times the GPU | by the sum of rates |", "|---|---|---|---|---|---|---|---|"]
        for (n, d, k, _), ways in beside.items():
            gpu, cpu, both = (ways[way]["iteration"] for way in ("1 GPU", "CPU", "1 GPU + CPU"))
            out.append(f"| {n:,} | {d} | {k} | {gpu:.1f} | {cpu:.1f} | {both:.1f} | {gpu / both:.2f} | {1 + gpu / cpu:.2f} |")
    return "\n".join(out) + "\n"
