"""bench/results/peers.md: other programs on a GPU, on the CPU and in a database."""
import json
import os

import page_gpu_products
from about import RESULTS, number, read, table
from figures import conditions, ratio, share, why


def machines(gpu):
    """What was run where, of the rows that the table shows."""
    own = gpu.all("gpu_peers") + gpu.all("gpu_kernels", what="gkmeans")
    return [f"- {g}, driver {driver}, {date}, commit {commit}, `{command}`"
            for g, driver, date, commit, command in sorted({(r["gpu"], r["driver"], r["date"], r["commit"], r["command"]) for r in own})] + [""]


def peers(gpu):
    found = gpu.all("gpu_peers")
    if not found:
        return ["Missing: " + why("gpu"), ""]
    lines = []
    for r in sorted(found, key=lambda r: (r["what"], r["d"], r["k"])):
        own = [o for o in gpu.all("gpu_kernels", what="gkmeans") if o["case"] == r["case"]]
        if own and (r["n"], r["d"], r["k"]) not in page_gpu_products.shapes():
            slower = own[0]["ms"] > r["ms"]
            lines.append([r["what"], f"{r['n']:,}", r["d"], r["k"], number(r["ms"]), number(own[0]["ms"]), ratio(r["ms"], own[0]["ms"]), share(own[0]),
                          why(r["what"].split("-")[0].split()[0]) if slower else ""])
    return table(["peer", "n", "d", "k", "its ms", "gkmeans ms", "ratio", "share of the limit", ""], lines) + ["", "Wide points: [gpu_products.md](gpu_products.md).", ""]


def engine_peers():
    try:
        with open(os.path.join(RESULTS, "engine.json"), encoding="utf-8") as f:
            data = json.load(f)
    except FileNotFoundError:
        return ["Missing: bench/engine/engine.py hasn't run to the end here.", ""]
    about, lines = data["about"], []
    for r in (r for r in data["rows"] if r["what"] == "grid"):
        rest = {name: ms for name, ms in r["ms"].items() if name != "gkmeans"}
        if rest:
            best = min(rest, key=rest.get)
            lines.append([r["d"], r["k"], f"{r['n']:,}", number(r["ms"]["gkmeans"]), best, number(rest[best]), ratio(rest[best], r["ms"]["gkmeans"])])
    return ["Whole fits in milliseconds beside the fastest of scikit-learn (lloyd, elkan), faiss-cpu and scikit-learn-intelex; all of them are in "
            "[engine.md](engine.md). On a machine that is busy, programs whose threads spin while they wait lose more than gkmeans: "
            "large ratios here are partly that.", "",
            f"{about['machine']}, {about['cpus']} CPUs, {about['threads']} threads, {about['date']}, commit {about['commit']}, `{about['command']}`.", "", *table(["d", "k", "n", "gkmeans", "fastest peer", "its ms", "ratio"], lines), ""]


def rivals():
    about, rows = read("rivals.json")
    if not rows:
        return ["Missing: bench/server/rivals.py hasn't run.", ""]
    out = ["From points in a table to a new table of (id, label), everything counted. " + conditions(about) + f" `{about['command']}`.", ""]
    for task in sorted({(r["rows"], r["features"], r["k"]) for r in rows}, reverse=True):
        own = [r for r in rows if (r["rows"], r["features"], r["k"]) == task]
        first = own[0]
        least = min(r["inertia"] for r in own if "inertia" in r)
        lines = []
        for r in own:
            if "skipped" in r:
                lines.append([r["rival"], "missing", "", "", "", "", "", r["skipped"]])
            else:
                lines.append([r["rival"], number(r["seconds"]), "1" if r is first else ratio(r["seconds"], first["seconds"]), number(r["server_mb"]),
                              number(r["client_mb"]) if r["client_mb"] > 1 else "0", f"{r['statements']}" + (f" + {r['code']}" if r["code"] else ""),
                              f"{r['inertia']:.6g}" + ("" if r["inertia"] <= least * (1 + 1e-6) else f" (+{100 * (r['inertia'] / least - 1):.2g} %)"), r["note"]])
        out += [f"{task[0]:,} rows, {task[1]} features, k = {task[2]}:", "", *table(
            ["", "seconds", "times gkmeans's", "MB of the server process", "MB of the client", "statements", "inertia", ""], lines), ""]
    return out + [why("sql"), ""]


def page(gpu):
    return "\n".join([
        "# Benchmarks: other programs", "",
        "Made by `bench/run report` from gpu/*.jsonl, engine.json and rivals.json; do not edit. A ratio is the other program's time over gkmeans's: above 1 gkmeans is "
        "faster, **bold** where it is not.", "",
        "## On a GPU", "", *machines(gpu), *peers(gpu), "## On the CPU", "", *engine_peers(), "## In the database", "", *rivals()])
