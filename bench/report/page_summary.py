"""docs/benchmarks.md: the best and the worst figure of every benchmark, and what was missed.

Every figure is taken from the result files, with machine, date, commit and command beside it.
"""
import os
import re

import page_engine
import page_gpu
import page_gpu_grid
import page_gpu_products
import page_gpu_several
import page_load
import page_roundtrip
import page_spectral
from about import RESULTS, number, read, table
from figures import PAPERS

TABLES = "../bench/results/"


def link(page, text=None):
    return f"[{text or page}]({TABLES}{page})"


def shape(r):
    return f"n = {r['n']:,}, d = {r['d']}, k = {r['k']}"


def times(v):
    return f"{number(v)} times"


def extremes(found, form, low_is_best=False):
    """Best and worst of (value, where) as two cells."""
    found = sorted(found, key=lambda f: f[0], reverse=not low_is_best)
    cells = [f"{form(v)} ({where})" for v, where in (found[0], found[-1])]
    return cells if len(found) > 1 else [cells[0], ""]


def percent(v):
    return f"{100 * v:.0f} %"


class Printed:
    """What a script printed: its head, and numbers by the text before them."""

    def __init__(self, name):
        self.name, self.head, self.lines, self.text = name, {}, [], ""
        with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
            for line in f:
                self.text += line
                head = re.match(r"(command|commit|machine):\s+(.*)", line)
                if head:
                    self.head[head[1]] = head[2]
                found = re.match(r"(.+?)\s{2,}([\d.]+)", line)
                if found:
                    self.lines.append((found[1], float(found[2])))
        self.commit, _, self.date = self.head["commit"].rpartition(", ")

    def value(self, start):
        return next(v for text, v in self.lines if text.startswith(start))

    def missed(self):
        """The lines that say a target which their number does not reach."""
        for text, v in self.lines:
            aim = re.search(r"\(target: at (most|least) ([\d.]+)\)", text)
            if aim and (v > float(aim[2]) if aim[1] == "most" else v < float(aim[2])):
                yield f"{text}: {number(v)} ({self.name})"

    def run(self, page):
        return [link(page), self.head["machine"], self.date, self.commit, f"`{self.head['command']}`"]


def about_run(page, about):
    machine = f"{about['machine']}, {about['cpus']} CPUs" + (f", PostgreSQL {about['settings']['postgresql']}" if "postgresql" in about.get("settings", {}) else "")
    return [link(page), machine, about["date"][:10], about["commit"], f"`{about['command']}`"]


def named(where):
    """'003, Table 5: ...' with the paper's authors and year."""
    name = PAPERS["papers"][where[:3]]
    authors = name.split(":")[0].split(", ")
    return (authors[0] + " et al." if len(authors) > 2 else " and ".join(authors)) + " " + name[-4:] + where[3:]


def paper_rows(summary, device):
    """(ratio, where) of the papers' rows for one device."""
    for name, its_device, _, _, text, *_ in summary:
        if its_device.startswith(device) and text != "-":
            yield float(re.sub(r"[*,]|slower", "", text)), named(name)


def page(gpu, summary, engine_missed):
    engine = page_engine.read()
    rivals_about, rivals = read("rivals.json")
    papers_about, _ = read("papers-cpu.json")
    growth_about, _ = read("growth.json")
    roundtrip = page_roundtrip.read()
    grouped, window, scan, labels, spectral = (Printed(name) for name in ("grouped.txt", "window.txt", "scan.txt", "labels.txt", "spectral.txt"))
    kernels = [r for r in page_gpu.newest() if r["suite"] == "gpu_kernels" and r["what"] == "gkmeans" and r["d"] <= 16]
    products = page_gpu_products.compared()
    loads = [page_load.Loads(name) for name in page_load.FILES]

    rows, missed = [], []

    def add(what, best, worst, page_name):
        rows.append([what, best, worst, link(page_name)])

    grid = [(r["ms"][page_engine.fastest_peer(r)] / r["ms"]["gkmeans"], f"d = {r['d']}, k = {r['k']}")
            for r in engine["rows"] if r["what"] == "grid" and page_engine.fastest_peer(r)]
    add("CPU, whole fits: the fastest of scikit-learn, faiss-cpu and scikit-learn-intelex over gkmeans", *extremes(grid, times), "engine.md")
    add("CPU, k-means++: scikit-learn over gkmeans", *extremes(
        [(r["peer_ms"] / r["seed_ms"], f"d = {r['d']}, k = {r['k']}") for r in engine["rows"] if r["what"] == "seed" and r["peer_ms"]], times), "engine.md")
    add("CPU, an iteration: share of what memory and arithmetic allow", *extremes(
        [(r["share"], shape(r)) for r in engine["rows"] if r["what"] == "step"], percent), "engine.md")
    for device, title in (("CPU", "CPU, the papers' tables: their time over gkmeans's"), ("GPU", "GPU, the papers' tables: their time over gkmeans's")):
        add(title, *extremes(paper_rows(summary, device), times), "papers.md")
    for peer, title in (("flash-kmeans", "flash-kmeans"), ("pytorch", "PyTorch")):
        # (newer figures of wide points are in gpu_products.md)
        own = {r["case"]: r["ms"] for r in gpu.all("gpu_kernels", what="gkmeans") if (r["n"], r["d"], r["k"]) not in page_gpu_products.shapes()}
        found = [(r["ms"] / own[r["case"]], shape(r)) for r in gpu.all("gpu_peers") if r["what"].startswith(peer) and r["case"] in own]
        if found:
            add(f"GPU, an iteration: {title} over gkmeans", *extremes(found, times), "peers.md")
            missed += [f"GPU, {shape(r)}: {title} takes {number(r['ms'])} ms, gkmeans {number(own[r['case']])} ms ({link('peers.md')})"
                       for r in gpu.all("gpu_peers") if r["what"].startswith(peer) and r["case"] in own and own[r["case"]] > r["ms"]]
    if kernels:
        add("GPU, an iteration: its target over its time", *extremes([(r["target_ms"] / r["ms"], shape(r)) for r in kernels], times), "gpu.md")
        missed += [f"GPU, {shape(r)}: {number(r['ms'])} ms, target {number(r['target_ms'])} ms ({link('gpu.md')})" for r in kernels if r["ms"] > r["target_ms"] * 1.005]
    if products:
        rivals_of = [(min(r["peers"].values()) / r["later"], shape(r)) for r in products if r["peers"]]
        add("GPU, wide points, later iterations: the fastest of flash-kmeans and flashlib, float16 included, over gkmeans", *extremes(rivals_of, times), "gpu_products.md")
        missed += [f"GPU, {shape(r)}, {r['points']}: {number(r['later'])} ms, target {number(r['target'])} ms ({link('gpu_products.md')})"
                   for r in products if 0 < r["target"] * 1.005 < r["later"]]
        missed += [f"GPU, {shape(r)}, {r['points']}: {name} takes {number(ms)} ms, gkmeans {number(r['later'])} ms ({link('gpu_products.md')})"
                   for r in products for name, ms in r["peers"].items() if ms < r["later"]]
    fits = [(min(ms for ms, _ in r["peers"].values()) / r["ms"], f"{shape(r)}, {r['points']}") for r in page_gpu_products.fits()]
    if fits:
        add("GPU, wide points, whole fits: the fastest of flash-kmeans and flashlib, float16 included, over gkmeans", *extremes(fits, times), "gpu_products.md")
        missed += [f"GPU, a whole fit, {where}: {times(t)} the fastest of flash-kmeans and flashlib, wanted 3 ({link('gpu_products.md')})" for t, where in fits if t < 2.995]
    several = page_gpu_several.compared()
    for gpus in sorted({gpus for gpus, *_ in several}):
        add(f"{gpus} GPUs, iterations of 1 ms and more: times one GPU", *extremes([(t, where) for g, t, _, where in several if g == gpus], times), "gpu_several.md")
    missed += [f"2 GPUs, {where}: {times(t)} one GPU's speed, wanted {wanted} ({link('gpu_several.md')})"
               for gpus, t, wanted, where in several if gpus == 2 and t < wanted - 0.005]
    for start, title in (("round trip", "a round trip through scikit-learn"), ("PostGIS", "PostGIS"), ("pure SQL", "k-means in SQL")):
        found = [(r["seconds"] / next(o["seconds"] for o in rivals if o["rows"] == r["rows"] and o["rival"] == "gkmeans, given centroids"),
                  f"{r['rows']:,} rows of {r['features']}") for r in rivals if r["rival"].startswith(start) and "seconds" in r]
        add(f"Database, a table of labels: {title} over gkmeans", *extremes(found, times), "peers.md")
    found = [(r["way out"]["total"] / r["label table"]["total"], f"{r['rows']:,} rows of {r['features']}") for r in roundtrip["results"]]
    add("Database, `kmeans_label_table()`: binary COPY out, scikit-learn, COPY back over gkmeans", *extremes(found, times), "roundtrip.md")
    for tab in ("real4", "real68"):
        found = [(v, f"{re.search('[0-9]+ CPUs', load.about['machine'])[0]}, {load.rows[0]['device'].upper()}, `count(*)` with {workers} workers")
                 for load in loads for workers in sorted({r["workers"] for r in load.rows}) if (v := load.ratio(tab, workers, "default"))]
        add(f"Reading a table, {page_load.TABLES[tab]}: the load over `count(*)`", *extremes(found, times, low_is_best=True), "load.md")
    add("Groups of 100: `kmeans_agg()` over `kmeans_grouped()`", times(grouped.value("kmeans_agg / kmeans_grouped")), "", "groups.md")
    add("Window function: its time over `row_number()`", times(window.value("kmeans / row_number")), "", "groups.md")
    add("Window function: PostGIS over gkmeans", times(window.value("ST_ClusterKMeans / window form (target")),
        f"{times(window.value('new session: ST_ClusterKMeans / window form'))} (new session)", "groups.md")
    add("`label_column`: its time over `UPDATE t SET label = 1`", times(labels.value("kmeans() with label_column") / labels.value("UPDATE")), "", "labels.txt")
    add("`kmeans_scan()`, k = 2 to 20: its time over the fits and one load", times(scan.value("kmeans_scan / (fits")), "", "scan.txt")
    add("Spectral clustering, 10,000,000 rows of 16, 1,000 representatives: its time over `kmeans()` and the k-means of the representatives",
        times(spectral.value("kmeans_spectral / both")), "", "spectral.md")
    add("Spectral clustering: share of graph, eigenvectors and embedding in its time", *extremes(page_spectral.shares(), lambda v: f"{100 * v:.2g} %", low_is_best=True), "spectral.md")

    for name, device, paper, ours, text, _, note in summary:
        if "slower" in text:
            missed.append(f"{device}, {named(name)}: {ours}, the paper {paper}" + (f"; {note}" if note else "") + f" ({link('papers.md')})")
    for printed in (grouped, window, scan, spectral):
        missed += printed.missed()
    per_group = [float(v) for v in re.findall(r"; index, .*?([0-9.]+) times that of kmeans_agg", grouped.text)]
    missed.append(f"One `kmeans()` per group over an index should take at least 20 times as long as `kmeans_agg()`: it takes {number(min(per_group))} to {number(max(per_group))} times "
                  f"({link('groups.md')})")
    for load in loads:
        over = [f"{page_load.TABLES[r['table']]} with {r['workers']} workers {ratio:.2f} (aim {aim})" for r in load.rows
                if (aim := page_load.AIMS.get(r["table"])) and (ratio := load.ratio(r["table"], r["workers"], "default")) > aim]
        if over:
            missed.append(f"Reading over `count(*)`, {load.name}: " + "; ".join(over) + f" ({link('load.md')})")
    claims = [row[0] for row in summary if row[1] == "" and row[4].startswith("**")]
    missed.append(f"{len(claims)} of the papers' quotients between strategies are smaller here, each with its reason ({link('papers.md#summary', 'papers.md')})")
    on_grid = [(min(ms.values()) / first, f"n = {n:,}, d = {d}, k = {k}") for (n, d, k), first, ms in page_gpu_grid.compared()]
    if on_grid:
        add("GPU, a grid of shapes, first iterations: the fastest of flash-kmeans and flashlib over gkmeans", *extremes(on_grid, times), "gpu_grid.md")
        missed += [f"GPU, {where}: {times(ratio)} the speed of the fastest of flash-kmeans and flashlib ({link('gpu_grid.md')})" for ratio, where in on_grid if ratio < 1]
    missing = [row[0] for row in summary if row[3] == "missing"]
    missed.append(f"{len(missing)} of the papers' {len(summary)} rows were not measured ({link('papers.md#summary', 'papers.md')})")
    missed += [f"CPU, {m} ({link('engine.md')})" for m in engine_missed]

    runs = [about_run("papers.md", papers_about), about_run("engine.md", {**engine["about"], "settings": {}}), about_run("peers.md", rivals_about)]
    for page_of, own in (("gpu.md", kernels[:1]), ("gpu_products.md", page_gpu_products.rows() + page_gpu_products.newest("fits")), ("gpu_grid.md", page_gpu_grid.rows()), ("papers.md", gpu.all("gpu_papers")), ("peers.md", gpu.all("gpu_peers"))):
        runs += [[link(page_of), g.replace("GPU 0: ", ""), date, commit, f"`{command}`"]
                 for g, date, commit, command in sorted({(r["gpu"], r["date"], r["commit"], r["command"]) for r in own})]
    runs.append([link("roundtrip.md"), f"{roundtrip['machine']}, PostgreSQL {roundtrip['postgresql']}", roundtrip["date"], roundtrip["commit"], f"`{roundtrip['command']}`"])
    runs += [[link("load.md"), a["machine"], a["date"][:10], a["commit"], f"`{a['command']}`"] for a in (load.about for load in loads)]
    runs += [grouped.run("groups.md"), window.run("groups.md"), labels.run("labels.txt"), scan.run("scan.txt"), spectral.run("spectral.md"), ["[planning.md](planning.md)", *about_run("", growth_about)[1:]]]

    return "\n".join([
        "# Benchmarks", "",
        "Written by `bench/run report` from the files in bench/results; do not edit.", "",
        "This page shows the best and the worst figure of each benchmark. The last column leads to the whole table. gkmeans labels every point with its nearest centroid in "
        "float32 and computes exact sums: the same bits on every device.", "",
        "The papers' machines are up to fifteen years older: a ratio says what a reader of the paper gets today, not which program is better.", "",
        "## Best and worst", "",
        *table(["what", "best", "worst", "table"], rows), "",
        "## What was missed", "", *[f"- {m}" for m in missed], "",
        "## Where and when", "",
        "Commands are as they were at that commit; scripts have moved since.", "",
        *table(["table", "machine", "date", "commit", "command"], runs), "",
        "More results: " + ", ".join([
            f"[the GPU in a server]({TABLES}gpu_server.md) ([threads]({TABLES}gpu_server-threads.md), [2026-11-22]({TABLES}gpu_server-2026-11-22.md))",
            link("citus.txt", "Citus"), link("strategy_scan.txt", "strategy scan"), link("instructions.tsv", "instructions per point"),
            "[planning for a billion rows](planning.md)"]) + ".", "",
        "## Run them yourself", "",
        "```sh",
        "bench/run engine          # the engine, without a server",
        "bench/run server          # on a private server; bench/run server/load for one program",
        "bench/run gpu             # on a GPU",
        "bench/run report          # these pages, from the results that are there",
        "bench/run engine --smoke  # small tables, nothing is kept",
        "```", ""])
