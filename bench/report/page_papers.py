"""bench/results/papers.md: what the papers reported, and what gkmeans does, with plots."""
import statistics

from about import number, read, table
from figures import PAPERS, amount, conditions, ratio, share, why
from svg import plot

SECONDS = {"s": 1000.0, "ms": 1.0}


class Images(dict):
    """name -> SVG; add() returns the lines that show it."""

    def add(self, name, alt, *args):
        self[name] = plot(*args)
        return [f"![{alt}](images/{name})", ""]


# ---- claims: what the papers say in words, id -> our value

def quotients(over, under, keep):
    pairs = {(r["n"], r["d"], r["k"]): r["ms"] for r in under}
    return {(r["n"], r["d"], r["k"]): r["ms"] / pairs[r["n"], r["d"], r["k"]] for r in over
            if (r["n"], r["d"], r["k"]) in pairs and keep(r)}


def claims(gpu, cpu):
    def cpu_rows(experiment, what=None, **where):
        return [r for r in cpu if r["paper"] == "000" and r["table"] == experiment and what in (None, r["what"])
                and all(r[key] == value for key, value in where.items())]

    def case(name, over, under, keep=lambda r: True):
        return list(quotients(gpu.papers(name, over), gpu.papers(name, under), keep).values())

    def add(key, values, choose):
        if values:
            out[key] = choose(values)

    out = {}
    merge, features = "multi_pass cluster_merge", "multi_pass partitioned_features"
    add("000-1", case("feature_sum", merge, features), max)
    add("000-1-cpu", list(quotients(cpu_rows("1", "cluster_merge"), cpu_rows("1", "partitioned_features"), lambda r: True).values()),
        statistics.median)
    few = lambda r: r["k"] <= 64    # noqa: E731
    add("000-2", case("mass_sum", "partitioned_local", "partitioned_private", few), max)
    add("000-2-global", case("mass_sum", "partitioned_global", "partitioned_local", few), statistics.median)
    four = lambda r: r["k"] == 4    # noqa: E731
    add("000-3-multi-cross", case("clusters", "cross_processing", "multi_pass", four), max)
    add("000-3-single-multi", case("clusters", "multi_pass", "single_pass", four), max)
    add("000-3-single-cross", case("clusters", "cross_processing", "single_pass", four), max)
    add("000-3-cpu", list(quotients(cpu_rows("4", "partitioned_features"), cpu_rows("4", "cluster_merge"), four).values()), max)
    add("000-4", case("clusters", "multi_pass", "single_pass", lambda r: r["k"] <= 16), max)
    add("000-4-k128", case("clusters", "cross_processing", "single_pass", lambda r: r["k"] == 128), max)
    add("000-5", case("features", "multi_pass", "single_pass", lambda r: r["d"] < 32), statistics.median)
    moved = [(16e-6 * r["n"] / r["ms"], r) for r in gpu.papers("transfers", "transfer")]
    if moved:
        best, r = max(moved, key=lambda m: m[0])
        out["000-6-transfer"], out["000-6-share"] = best, 100 * best / r["upload_gbs"]
        out["000-6-pipeline"] = max(16e-6 * r["n"] / r["ms"] for r in gpu.papers("transfers", "memcpy, transfer, execute"))
    for k in (4, 64):
        streamed = gpu.papers("sizes", "single_pass streamed", k=k)
        add(f"000-7-{k}", [100 * 16e-6 * r["n"] / r["ms"] / r["upload_gbs"] for r in streamed], max)
        pairs = {r["n"]: r["ms"] for r in cpu_rows("7", k=k)}
        add(f"000-7-cpu-{k}", [pairs[r["n"]] / r["ms"] for r in streamed if r["n"] in pairs], max)
    core = [r for r in cpu if r["paper"] == "001"]
    faster = quotients(core, gpu.papers("hybrid", "cross_processing"), lambda r: True)
    add("001-speedup", list(faster.values()), max)
    add("001-small", [v for (n, _, _), v in faster.items() if n == 500], max)
    add("001-gflops", [operations(r) / r["ms"] / 1e6 for r in gpu.papers("hybrid", "cross_processing", n=500000, d=200, k=128)], max)
    return out


def operations(r):
    """Zechner and Granitzer's count of an iteration."""
    return r["n"] * r["k"] * (3 * r["d"] + 2) + r["d"] * (r["n"] + r["k"])


# ---- the papers' tables

def best_of(figures, names):
    """The paper's best time of the columns named; a list in the list is added up."""
    if not names:
        return None
    times = []
    for name in [names] if isinstance(names, str) else names:
        parts = [figures.get(part) for part in (name if isinstance(name, list) else [name])]
        if None not in parts:
            times.append(sum(parts))
    return min(times) if times else None


def cpu_ms(t, row, cpu, threads=None):
    """Ours of the same paper's size, with the number of threads that is fastest or given."""
    found = [r for r in cpu if r["paper"] == t["paper"] and (r["n"], r["d"], r["k"]) == (row["n"], row["d"], row["k"]) and
             r["table"] != "fit" and "ms" in r and r["what"] == "auto" and threads in (None, r["threads"])]
    return min(r["ms"] for r in found) if found else None


def paper_table(t, cpu, gpu, summary):
    whole = 300 if t["paper"] == "002" else 1
    unit = SECONDS[t["unit"]]
    columns = list(dict.fromkeys(name for row in t["rows"] for name in row["figures"]))
    lines = []
    for row in t["rows"]:
        own, g = cpu_ms(t, row, cpu), gpu.shape(row["n"], row["d"], row["k"])
        own = own * whole / unit if own else None
        own_gpu = g["ms"] * whole / unit if g else None
        # table 5 adds the phases up
        cpu_names = [t["cpu"]] if t["table"] == "Table 5" and t["paper"] == "003" else t["cpu"]
        paper_cpu, paper_gpu = best_of(row["figures"], cpu_names), best_of(row["figures"], t["gpu"])
        lines.append([f"{row['n']:,}", row["d"], row["k"]] + [amount(row["figures"][c], t["unit"]) if c in row["figures"] else "-" for c in columns]
                     + [amount(own, t["unit"]) if own else "-", amount(own_gpu, t["unit"]) if own_gpu else "-", ratio(paper_cpu, own), ratio(paper_gpu, own_gpu), share(g)])
        one = cpu_ms(t, row, cpu, 1) if "one" in t else None
        paper_one = best_of(row["figures"], t.get("one"))
        if "one" in t:
            lines[-1].insert(3 + len(columns), amount(one, t["unit"]) if one else "-")
        name = f"{t['paper']}, {t['table']}: {row['n']:,} x {row['d']}, k = {row['k']}"
        for device, paper, ours, g_row in (("CPU, 1 thread", paper_one, one, None), ("CPU", paper_cpu, own, None), ("GPU", paper_gpu, own_gpu, g)):
            if paper is None:
                continue
            note = ""
            if ours is None:
                note = why("gpu") if device == "GPU" and not gpu.rows else "not in the newest run of bench/engine/papers.py" if device != "GPU" \
                    else "not in the newest run of the GPU's programs"
            elif ours > paper:
                note = why("one" if device == "CPU, 1 thread" else "cpu")
            summary.append([name, device, amount(paper, t["unit"]), amount(ours, t["unit"]) if ours else "missing",
                            ratio(paper, ours), share(g_row), note])
    head = ["n", "d", "k"] + columns + ["gkmeans CPU, 1 thread"] * ("one" in t) + ["gkmeans CPU", "gkmeans GPU", "CPU ratio", "GPU ratio", "GPU share of the limit"]
    return [f"### {t['table'][0].upper() + t['table'][1:]}: {t['title']}", "", *table(head, lines), ""]


def accuracy_summary(cpu, gpu):
    """He et al.'s tables 3 and 4 in three rows: the error that summing adds, and times at full accuracy."""
    theirs = PAPERS["accuracy"]["rows"]
    own = [r for r in cpu if r["table"] == "Table 3" and r["what"] == "gkmeans"]
    exact = [r["error"] for r in cpu if r["table"] == "Table 3" and r.get("precision") == "double"]
    add = abs(next(r["error"] for r in theirs if r["packages"] == 100) - next(r["error"] for r in theirs if r["precision"] == "double"))
    name = "004, {}: 50,000,000 x 4, k = 4"
    out = [[name.format("Table 3") + ": error beyond that of sums in double", "CPU", f"{add:.1e}", f"{abs(own[0]['error'] - exact[0]):.1e}" if own and exact else "missing",
            "-", "-", "sums are exact" if own else "bench/engine/papers.py hasn't run"]]
    shape = gpu.shape(50000000, 4, 4)
    for table_name, device, ours, g in (("Table 3", "CPU, 1 thread", [r["ms"] for r in own if r["threads"] == 1], None), ("Table 3", "CPU", [r["ms"] for r in own], None),
                                        ("Table 4", "GPU", [shape["ms"]] if shape else [], shape)):
        paper = min(r["ms"] for r in theirs if r["table"] == table_name and r["error"] < 0.001 and (device != "CPU, 1 thread" or r["who"] == "1 thread"))
        mine = min(ours, default=None)
        out.append([name.format(table_name) + ", single precision at that accuracy", device, f"{number(paper)} ms", f"{number(mine)} ms" if mine else "missing",
                    ratio(paper, mine), share(g), why("gpu") if mine is None else why("cpu") if mine > paper else ""])
    return out


def accuracy(cpu):
    own = [r for r in cpu if r["table"] == "Table 3"]
    lines = [[r["table"], r["who"], r["precision"], r["packages"], f"{r['error']:.6f}", r["iterations"], number(r["ms"])]
             for r in PAPERS["accuracy"]["rows"]]
    for r in own:
        lines.append(["**here**", f"gkmeans, {r['threads']} thread{'s' * (r['threads'] > 1)}" if r["what"] == "gkmeans" else r["what"],
                      r.get("precision", "points single, sums exact"), r.get("packages", "-"), f"{r['error']:.6f}", r.get("iterations", "-"),
                      number(r["ms"]) if "ms" in r else "-"])
    return ["### Tables 3 and 4: numerical error", "",
            f"50,000,000 points, d = 4, k = 4, uniform in four balls (here: {own[0]['n']:,} of them). The error is the mean distance of a "
            "centroid's coordinate from its ball's centre; what remains with exact sums is that the means of random points "
            "aren't the centres. gkmeans has no packages: its sums are exact. The rows of sums \"here\" are of one update of the final clusters." if own else
            "Missing here: bench/engine/papers.py hasn't run.", "",
            *table(["table", "who", "precision", "packages", "error", "iterations", "ms per iteration"], lines), ""]


# ---- sections

def lutz(gpu, cpu, images):
    out = []
    for case, x, title, of in (("clusters", "k", "d = 4, 2 GB of points", "Lutz et al., experiment 4"),
                               ("features", "d", "k = 4, 2 GB of points", "Lutz et al., experiment 5")):
        series = {}
        for r in gpu.papers(case):
            series.setdefault(r["what"], []).append((r[x], r["ms"]))
        if series:
            out += images.add(f"{case}.svg", f"Milliseconds per iteration over {x}", f"GPU: {title} ({of})", x, "ms per iteration", series)
    series = {}
    for r in gpu.papers("feature_sum"):
        series.setdefault(f"{r['what'].split()[1]}, k={r['k']}", []).append((r["d"], r["ms"]))
    if series:
        out += images.add("feature-sum.svg", "Feature Sum strategies over d", "GPU: Feature Sum (experiment 1)", "d", "ms per iteration", series)
    series = {}
    for r in gpu.papers("mass_sum"):
        series.setdefault(r["what"], []).append((r["k"], r["ms"]))
    if series:
        out += images.add("mass-sum.svg", "Mass Sum strategies over k", "GPU: Mass Sum (experiment 2)", "k", "ms per iteration", series)
    series = {}
    for r in gpu.papers("transfers"):
        series.setdefault(r["what"], []).append((r["n"] * 16 / 2 ** 20, 16e-6 * r["n"] / r["ms"]))
    if series:
        series["the bus"] = bus(gpu, series)
        out += images.add("transfers.svg", "Bandwidth over the size of a chunk", "Transfers (experiment 6)", "MB of a chunk", "GB/s", series)
    series = {}
    for r in gpu.papers("sizes"):
        if r["k"] == 4:
            series.setdefault("GPU " + r["what"], []).append((r["n"] * 16 / 2 ** 20, 16e-6 * r["n"] / r["ms"]))
    for r in cpu:
        if r["paper"] == "000" and r["table"] == "7" and r["k"] == 4:
            series.setdefault("CPU", []).append((r["n"] * 16 / 2 ** 20, 16e-6 * r["n"] / r["ms"]))
    if gpu.papers("sizes"):
        series["the bus"] = bus(gpu, series)
    if series:
        out += images.add("sizes.svg", "Bandwidth over the size of the points", "d = 4, k = 4 (experiment 7)", "MB of points", "GB/s", series)
    return out


def bus(gpu, series):
    x = [p[0] for points in series.values() for p in points]
    rate = gpu.papers("transfers")[0]["upload_gbs"] if gpu.papers("transfers") else gpu.papers("sizes")[0]["upload_gbs"]
    return [(min(x), rate), (max(x), rate)]


def zechner(gpu, cpu, images):
    out, ks = [], (2, 4, 8, 16, 32, 64, 128)
    core = {(r["n"], r["d"], r["k"]): r["ms"] for r in cpu if r["paper"] == "001"}
    for what, title in (("cross_processing", "Hybrid (cross_processing) over one CPU core, times as fast"),
                        ("auto", "gkmeans's own choice on the GPU over one CPU core, times as fast")):
        own = {(r["n"], r["d"], r["k"]): r for r in gpu.papers("hybrid", what)}
        if not own or not core:
            return ["Missing: " + why("gpu"), ""]
        rows = sorted({key[:2] for key in own})
        out += [f"### {title}", "", *table(["n", "d"] + [f"k = {k}" for k in ks], [[f"{n:,}", d] + [
            (lambda v: f"{number(v)}" if v >= 1 else f"**{number(v)}**")(core[n, d, k] / own[n, d, k]["ms"]) if (n, d, k) in own and (n, d, k) in core
            else "-" for k in ks] for n, d in rows]), ""]
        if what == "cross_processing":
            out += images.add("hybrid.svg", "Speed-up over one CPU core", "Hybrid over one core, n = 500,000", "k", "times as fast",
                         {f"d = {d}": [(k, core[500000, d, k] / own[500000, d, k]["ms"]) for k in ks] for d in (2, 20, 200)})
        else:
            out += ["### GFLOP/s of gkmeans's own choice, by the paper's count nk(3d+2) + d(n+k)", "", *table(
                ["n", "d"] + [f"k = {k}" for k in ks], [[f"{n:,}", d] + [number(operations(own[n, d, k]) / own[n, d, k]["ms"] / 1e6)
                                                                      if (n, d, k) in own else "-" for k in ks] for n, d in rows]), ""]
    return out


def page(gpu):
    """The page, its images, and the rows of its summary."""
    about, cpu = read("papers-cpu.json")
    summary, tables, images = [], {}, Images()
    own = claims(gpu, cpu)
    for c in PAPERS["claims"]:
        v = own.get(c["id"])
        note = "" if v is not None and (c["paper"] is None or v >= c["paper"] * 0.95) else why(c["id"], *([] if gpu.rows else ["gpu"]))
        value = "missing" if v is None else f"{number(v)} {c['unit']}"
        times = "-" if v is None or c["paper"] is None else f"{number(v / c['paper'])}" if v >= c["paper"] else f"**{number(v / c['paper'])}**"
        summary.append([f"{c['where']}: {c['what']}", "", "not in the text" if c["paper"] is None else f"{number(c['paper'])} {c['unit']}", value, times, "-", note])
    for t in PAPERS["tables"]:
        tables.setdefault(t["paper"], []).extend(paper_table(t, cpu, gpu, summary))
    summary += accuracy_summary(cpu, gpu)
    machines = sorted({(r["gpu"], r["driver"], r["date"], r["commit"]) for r in gpu.rows.values() if "read_gbs" in r})

    out = ["# Benchmarks: the papers", "",
           "Made by `bench/run report` from papers-cpu.json, gpu/*.jsonl and the papers' figures (bench/report/papers.json); do not edit. "
           "What the papers reported, and what gkmeans does. Its labels are those of the nearest centroid in float32 "
           "and its sums are exact, on every device the same bits.", "",
           "- CPU: " + conditions(about) if about else "- CPU: missing, bench/engine/papers.py hasn't run",
           *[f"- GPU: {g}, driver {d}, {date}, commit {c}" for g, d, date, c in machines],
           "- Papers' machines: " + "; ".join(f"{p}: {m}" for p, m in PAPERS["machines"].items()), "",
           "A ratio is the paper's time over ours: above 1 gkmeans is faster, **bold** where it is not. The papers' machines are up to fifteen years older, so a "
           "ratio says what a reader of the paper gets today, not which program is better. The GPU's limit is one read of the points at the "
           "measured bandwidth, or 2nkd float32 operations at the measured rate, whichever takes longer. The CPU's rows and the GPU's come from different machines.", "",
           "## Summary", "",
           "Each figure and each row of the papers. Where a paper states a quotient in words, the table has our value of it, and the ratio is ours over theirs. "
           "Curves (000: figures 6 to 14, 001: 5 to 13, 003: 6 to 9, 004: 2 to 9) can be compared only where the text names a value.", "",
           *table(["experiment", "device", "paper", "gkmeans", "ratio", "share of the limit", ""], summary), ""]
    names = PAPERS["papers"]
    out += [f"## {names['000']}", "", "Ten normal clouds, d features, 2 GB of points (on the CPU "
            f"{about['settings']['lutz_mb'] if about else '?'} MB); the paper's curves are pictures, so only what its text says can be compared.", "", *lutz(gpu, cpu, images)]
    out += [f"## {names['001']}", "", *zechner(gpu, cpu, images)]
    for paper in ("002", "003", "004"):
        out += [f"## {names[paper]}", ""] + (accuracy(cpu) if paper == "004" else [])
        if paper == "003":
            out += ["Their vectors are SIFT features; ours are normal clouds of the same n and d. Times of gkmeans are of whole iterations: labels and "
                    "means are not separated. These columns are of one GPU; [two H100 beside one](gpu/several_papers.txt) on shapes of tables 1 and 4.", ""]
        if paper == "004":
            out += ["The two real data sets were not available: the points are normal clouds of the same n and d, so iterations until "
                    "convergence are not compared. gkmeans's times are of float32 points with exact sums.", ""]
        if paper == "002":
            out += ["Seconds of 300 iterations, all of them computed; fits of gkmeans end when nothing moves: " + "; ".join(
                f"n = {r['n']:,}, {r['threads']} thread{'s' * (r['threads'] > 1)}: {r['iterations']} iterations, {r['ms'] / 1000:.6f} s"
                for r in cpu if r["table"] == "fit") + ".", ""]
        out += tables.get(paper, [])
    out += ["## Commands", "", "```text", *sorted({about["command"] if about else "bench/engine/papers.py"} | {r["command"] for r in gpu.rows.values() if "command" in r}), "```", ""]
    return "\n".join(out), images, summary
