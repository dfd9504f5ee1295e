"""docs/planning.md: what growth.json's measurements say of a billion rows."""
import math
import os

from about import RESULTS, number, read, table
import page_gpu_products
from figures import conditions
from svg import plot

BILLION = 1_000_000_000
PHASES = ("load_ms", "seed_ms", "iterate_ms", "memory_mb")
NAMES = {"load_ms": "load", "seed_ms": "seed (k-means++)", "iterate_ms": "20 iterations", "memory_mb": "memory"}
SHAPES = ((4, 4), (4, 64), (68, 64), (128, 4000))      # d, k: shapes that the GPU's programs measured
CLUSTERED = ((BILLION, 4, 4), (BILLION, 4, 64), (BILLION // 10, 768, 100), (BILLION // 10, 768, 1000))  # rows, d, k
NODES = 16
ANSWER_BYTES = 32                                      # of a number in an answer, at most
NETWORK_GBS = 1.25


def exponent(points):
    """Slope of log y over log x by least squares, and the spread of the points around it as a factor."""
    x, y = [math.log(p[0]) for p in points], [math.log(p[1]) for p in points]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)
    spread = max(abs(b - my - slope * (a - mx)) for a, b in zip(x, y))
    return slope, math.exp(spread)


def hours(ms):
    s = ms / 1000
    return f"{s / 3600:.1f} h" if s >= 5400 else f"{s / 60:.1f} min" if s >= 90 else f"{s:.1f} s" if s >= 1 else f"{ms:.0f} ms"


def fits(rows):
    """{series: {phase: (slope, spread)}} over n, d and k; memory does not depend on k enough to be a law."""
    out = {}
    for series in ("n", "d", "k"):
        own = [r for r in rows if r["series"] == series]
        # the few largest say how it grows; small ones are overheads
        own = [r for r in own if r[series] >= 8] if series != "n" else own
        out[series] = {p: exponent([(r[series], r[p]) for r in own]) for p in PHASES if all(r[p] > 0 for r in own)}
    return out


def predicted(rows, laws, phase, n, d, k):
    """From the largest table that was measured, each factor to its exponent."""
    ref = max((r for r in rows if r["series"] == "n"), key=lambda r: r["n"])
    if phase == "memory_mb":
        # the points, and what that table took beyond them for each row
        return n * (4 * d + max(ref[phase] * 2 ** 20 / ref["n"] - 4 * ref["d"], 0)) / 2 ** 20
    value = ref[phase]
    for name, factor in (("n", n / ref["n"]), ("d", d / ref["d"]), ("k", k / ref["k"])):
        if name == "k" and phase == "load_ms":
            continue
        # nothing grows less than the rows do: an exponent below 1 is overhead of the small tables
        value *= factor ** (max(laws[name][phase][0], 1) if name == "n" else laws[name][phase][0])
    return value


def measured(cpu, d, k):
    """The largest table of this d and k whose iterations papers.py has timed."""
    own = [r for r in cpu if (r["d"], r["k"]) == (d, k) and "ms" in r and r["what"] in ("auto", "cluster_merge", "gkmeans")]
    largest = max((r["n"] for r in own), default=None)
    return min((r for r in own if r["n"] == largest), key=lambda r: r["ms"], default=None)


def rescan(rows):
    """What reading the table again costs in a pass, and how many passes seeding makes."""
    scan = next(r for r in rows if r["series"] == "scan")
    kept = next(r for r in rows if r["series"] == "n" and r["n"] == scan["n"])
    ms = (scan["iterate_ms"] - kept["iterate_ms"]) / scan["iterations"]
    return {"n": scan["n"], "d": scan["d"], "k": scan["k"], "ms": ms, "seed_passes": (scan["seed_ms"] - kept["seed_ms"]) / ms}


def citus():
    """What bench/server/citus.sh printed, but for plans."""
    try:
        with open(os.path.join(RESULTS, "citus.txt"), encoding="utf-8") as f:
            lines = [line.rstrip() for line in f if line.startswith(("command", "commit", "machine", "citus", "options", "  "))
                     and "->" not in line and not line.startswith("    ") and "Aggregate" not in line]
    except FileNotFoundError:
        return []
    return ["### Distributed tables", "", "Two workers and a coordinator on one machine, so nothing says how it grows with machines:", "", "```text", *lines, "```", ""]


def page(gpu, cpu):
    about, rows = read("growth.json")
    head = ["# Planning for a billion rows", "",
            "Made by `bench/run report` from bench/results/growth.json and bench/results/gpu; do not edit. **Measured** was run on the machine that it names. "
            "**Computed** is arithmetic with those figures: it was not run.", ""]
    if not rows:
        return "\n".join(head + ["Missing: bench/server/growth.py hasn't run.", ""]), {}
    laws, plots = fits(rows), {}
    out = head + ["## Measured", "", conditions(about) + f" `{about['command']}`. `kmeans_fit()` of float4 columns in a cached table, k-means++ and "
                  f"{about['settings']['iterations']} iterations; uniform points, which take the most work. Milliseconds, and MB allocated by the server process.", ""]
    for series, title, others in (("n", "Rows", "d = 4, k = 8"), ("d", "Features", "n = 100,000, k = 16"), ("k", "Clusters", "n = 200,000, d = 8")):
        own = [r for r in rows if r["series"] == series]
        plots[f"growth-{series}.svg"] = plot(f"{title} ({others})", series, "ms", {NAMES[p]: [(r[series], r[p]) for r in own] for p in PHASES[:3]})
        out += [f"### {title}: {others}", "", f"![Time over {series}](images/growth-{series}.svg)", "", *table(
            [series] + [NAMES[p] for p in PHASES], [[f"{r[series]:,}"] + [number(r[p]) for p in PHASES] for r in own]), "",
            "Fitted exponents" + (" (from 8 on)" if series != "n" else "") + ", and the farthest point from the line: " + ", ".join(
                f"{NAMES[p]} {series}^{slope:.2f} (within a factor of {spread:.2f})" for p, (slope, spread) in laws[series].items()) + ".", ""]
    last = [r for r in rows if r["series"] == "n"][-1]

    def lines(series, key):
        return [[f"{r[key]:.3g}" if isinstance(r[key], float) else r[key]] + [number(r[p]) for p in PHASES] for r in rows if r["series"] == series]

    out += [f"### Threads, workers, memory: {last['n']:,} rows, d = 4", "", *table(["threads (k = 32)"] + [NAMES[p] for p in PHASES], lines("threads", "threads")), ""]
    if any(r["series"] == "workers" for r in rows):
        out += [*table(["`gkmeans.workers` (k = 8)"] + [NAMES[p] for p in PHASES], lines("workers", "workers")), ""]
    scan = next(r for r in rows if r["series"] == "scan")
    out += [*table(["`gkmeans.memory_limit`, share of the points (k = 8)"] + [NAMES[p] for p in PHASES], [["all"] + [number(last[p]) for p in PHASES]]
                   + lines("memory", "share") + [["none kept (`strategy` scan)"] + [number(scan[p]) for p in PHASES]]), "",
            "The temporary file was in the page cache: a disk that reads slower than memory adds the size of the points over its bandwidth to each pass.", ""]
    if gpu.all("gpu_papers", "sizes"):
        streamed = gpu.papers("sizes", "single_pass streamed", k=4)
        big = max(streamed, key=lambda r: r["n"])
        out += ["### Points beyond a GPU's memory", "", f"{big['gpu']}: {big['n']:,} rows, d = 4, k = 4, streamed in every iteration: {number(big['ms'])} ms, "
                f"{16e-6 * big['n'] / big['ms']:.1f} GB/s of the bus's {big['upload_gbs']:.1f}; resident {number(gpu.ms('sizes', 'single_pass resident', n=big['n'], k=4))} ms.", ""]

    out += citus()
    out += ["## Computed", "", f"{BILLION:,} rows, {about['settings']['iterations']} iterations.", "",
            f"### One node like this one ({about['cpus']} CPUs)", "",
            f"The largest table measured ({last['n']:,} rows, d = 4, k = 8), times each factor to its fitted exponent, for the rows at least 1: {BILLION / last['n']:.0f} times the rows. "
            f"Assumes that table and points are in memory. Where the points need more than this machine's {about['memory_gb']:.0f} GB, every pass reads the temporary "
            "file from a disk, and the size of the points over the disk's bandwidth comes on top.", ""]
    lines, together = [], {}
    for d, k in SHAPES:
        t = {p: predicted(rows, laws, p, BILLION, d, k) for p in PHASES}
        same = measured(cpu, d, k)
        each = same["ms"] * 20 * BILLION / same["n"] if same else 0
        together[d, k] = t["load_ms"] + t["seed_ms"] + max(t["iterate_ms"], each)
        lines.append([d, k, f"{BILLION * d * 4 / 1e9:.0f} GB", f"{t['memory_mb'] * 2 ** 20 / 1e9:.0f} GB", hours(t["load_ms"]), hours(t["seed_ms"]), hours(t["iterate_ms"]),
                      f"{hours(each)} ({same['n']:,})" if same else "-", hours(together[d, k])])
    out += [*table(["d", "k", "points", "memory, all kept", "load", "seed", "20 iterations", "the same from bench/engine/papers.py (its n)", "together"], lines), "",
            "\"The same\" is the time of an iteration of that d and k, measured on fewer rows and without skipping any point, in proportion to the rows; "
            "the longer of the two is counted. Farther from the measured sizes the exponents say less: k = 4000 lies outside their range. k-means++ takes about k passes; "
            "`init => 'k-means||'` takes a few, and `kmeans_fit()` of a sample with `warm_start` after it fewer still.", ""]

    lines = []
    for d, k in SHAPES:
        # of wide points the newest kernels' first iterations, of the points that take longer
        own = [r for r in page_gpu_products.rows() if r["what"] == "gkmeans" and r["d"] == d and abs(r["k"] - k) <= 0.03 * k] or \
            [r for r in gpu.rows.values() if (r["d"], r["k"]) == (d, k) and r["ms"] > 0 and (r["what"] == "gkmeans" or r["case"] in ("vectors", "real"))]
        if own:
            r = max(own, key=lambda r: (r["n"], r["ms"]))
            upload, each = BILLION * d * 4 / r["upload_gbs"] / 1e6, r["ms"] * BILLION / r["n"]
            load = predicted(rows, laws, "load_ms", BILLION, d, k)
            lines.append([d, k, f"{r['n']:,}, k = {r['k']}, {r['commit']}, {r['date']}", number(r["ms"]), f"{BILLION * d * 4 / 1e9:.0f} GB", hours(load), hours(upload), hours(20 * each),
                          hours(20 * max(each, upload)), hours(load + upload + 20 * each), hours(load + 20 * max(each, upload))])
    gpus = sorted({r["gpu"] for r in gpu.rows.values() if "upload_gbs" in r})
    out += ["### One GPU", ""] + ([f"{', '.join(gpus)}: the measured milliseconds of an iteration, in proportion to the rows (2nkd operations and one read per iteration); "
            "upload at the measured bandwidth of pinned memory. Points that don't fit the GPU's memory (`gkmeans_devices()` shows it) are streamed in every iteration, which then takes the longer of the two. "
            "The load is that of the node above: reading rows out of the table is the same with a GPU, and for few clusters most of the time. Seeding is not counted: [seeding.txt](../bench/results/gpu/seeding.txt) has some sizes.", "",
            *table(["d", "k", "measured: n, k, commit, date", "its ms", "points", "load", "upload", "20 iterations, resident", "20 iterations, streamed", "together, resident", "together, streamed"], lines), ""]
            if lines else ["Missing: no results of a GPU.", ""])

    lines = []
    ref = rescan(rows)
    for n, d, k in CLUSTERED:
        t = {p: predicted(rows, laws, p, n, d, k) / NODES for p in PHASES}
        same = measured(cpu, d, k)
        each = max(t["iterate_ms"], same["ms"] * 20 * n / same["n"] / NODES if same else 0)
        passes = about["settings"]["iterations"] + ref["seed_passes"] * k / ref["k"]
        wire = NODES * k * (d + 1) * ANSWER_BYTES / (NETWORK_GBS * 1e6)
        # a reading of the node's part, as bench/server/growth.py has it for points that are not kept
        reading = ref["ms"] * n / ref["n"] * (d / ref["d"]) ** laws["d"]["load_ms"][0] / NODES
        kept = t["load_ms"] + t["seed_ms"] + each + passes * wire
        lines.append([f"{n:,}", d, k, f"{4e-9 * n * d / NODES:.1f} GB", hours(t["load_ms"]), hours(t["seed_ms"]), hours(each), f"{passes:,.0f}", hours(wire),
                      hours(kept), hours(kept + passes * reading)])
    out += [f"### {NODES} nodes (Citus)", "", f"Rows are spread evenly, and each node is like the one above. It makes its part of every pass and answers with sums: k (d + 1) numbers of at most {ANSWER_BYTES} bytes, "
            f"which the coordinator takes from all nodes, one after the other, at {NETWORK_GBS} GB/s (assumed: a network of 10 Gbit/s). Times of a node are those of one with all rows by the fitted exponents, "
            f"divided by {NODES}: nodes are as fast as each other. The points stay in the nodes' memory between passes; the last column is for nodes without room for them, which read their part of the table again in each pass "
            f"(the difference between \"none kept\" and \"all\" above). k-means++ took {ref['seed_passes']:.0f} passes with k = {ref['k']}, and takes about k; with `init => 'k-means||'` there are fewer. "
            "d = 768 and k = 1000 lie outside of what the exponents were fitted to. [Distributed tables](distributed.md) says how to do it.", "",
            *table(["rows", "d", "k", "points of a node", "load", "seed", "20 iterations", "passes", "answers of a pass", "together", "none kept"], lines), "",
            "## What isn't known", "", "- More CPUs than this machine has: threads were measured up to "
            f"{about['cpus']}.", "- Several GPUs in one job are not computed: see [when several pay](gpu.md#several-gpus).", "- A table that isn't in the page cache: add its size over the disk's bandwidth to the load.", ""]
    return "\n".join(out), plots
