"""bench/results/engine.md: rooflines, iterations, seeding and whole fits, from engine.json."""
import json
import math
import os
import sys

from about import RESULTS, ROOT, number, table

sys.path.append(os.path.join(ROOT, "bench", "engine"))
from engine import ENOUGH, GRID_D, GRID_K, LONG_ITER, LONG_WANTED, MAX_ITER, PATIENCE, WIDE_ITER, WIDE_WANTED, WIDE_WANTED_AVX2, fastest_peer, wanted  # noqa: E402


def load_of(rows):
    loads = sorted(r["load"] for r in rows)
    busy = loads[len(loads) // 2] > 3
    return (f"Load average while it ran: {loads[0]:.1f} to {loads[-1]:.1f}, median {loads[len(loads) // 2]:.1f}. "
            + ("**The machine was busy with other work: times are too long and vary, ratios are rough.** Run it again on an idle one."
               if busy else ""))


def peer_time(row, name):
    if name in row["ms"]:
        return number(row["ms"][name])
    over = row.get("over_ms", {}).get(name)
    return f"over {number(over)}" if over else "-"


def read(name="engine.json"):
    with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
        return json.load(f)


def wide_fits(rows, names, target, missed):
    """A table of fits of wide points; what missed its target goes to `missed`."""
    lines = []
    for r in rows:
        best = fastest_peer(r)
        gain = r["ms"][best] / r["ms"]["gkmeans"]
        if gain < target:
            missed.append(f"{r['what']} fit n = {r['n']:,}, d = {r['d']}, k = {r['k']}: {gain:.2f} times the fastest peer ({best}), wanted {target}")
        lines.append([r["d"], r["k"], f"{r['n']:,}", r["iterations"], f"**{number(r['ms']['gkmeans'])}**",
                      *[peer_time(r, name) for name in names], f"{gain:.2f}" + ("" if gain >= target else " missed")])
    return table(["d", "k", "n", "iterations", "gkmeans", *names, f"times the fastest (wanted {target})"], lines)


def wide_points(name, heading, note="", target=WIDE_WANTED):
    """Fits of points like embeddings, measured on a machine of their own, and what was missed."""
    data = read(name)
    about, rows = data["about"], data["rows"]
    names = sorted({name for r in rows for name in [*r["ms"], *r.get("over_ms", ())]} - {"gkmeans"})
    few, many = ([r for r in rows if r["what"] == what] for what in ("wide", "long"))
    missed = []
    out = ["", f"## {heading}", "",
           f"Made points like embeddings (feature j is normal with variance 1 / (j + 1)), {WIDE_ITER} iterations at most, otherwise as above. {about['machine']}, "
           f"{about['threads']} threads, {about['date']}; "
           + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + f". {load_of(rows)}".rstrip() + note, "",
           *wide_fits(few, names, target, missed)]
    if many:
        out += ["", f"{LONG_ITER} iterations at most:", "", *wide_fits(many, names, LONG_WANTED, missed)]
    return out + ["", "```", *sorted({f"{r['commit']}: {r['command']}" for r in rows}), "```"], [f"{m} ({heading.split(', ')[1]}, {about['machine']})" for m in missed]


def page():
    """The page, and what was missed."""
    data = read()
    about, rows = data["about"], data["rows"]
    roof = about["roofline"]
    missed = []
    out = ["# Benchmarks: the CPU", "",
           "Made by `bench/run report` from engine.json, which `bench/engine/engine.py` (`make -C bench cpu`) wrote without a server; do not edit.", "",
           f"{about['machine']}, {about['cpus']} CPUs, {about['threads']} threads, {about['date']}, "
           f"commit {about['commit']}, {about['compiler']}; "
           + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".", "",
           load_of(rows), "",
           f"Rooflines: read {roof['read_gbs_1']:.1f} GB/s with one thread, {roof['read_gbs']:.1f} with {roof['threads']}; "
           f"float32 multiply-adds " + ", ".join(
               f"{s} {roof[s + '_1']:.0f} and {roof[s]:.0f} GFLOP/s" for s in ("avx512", "avx2", "scalar") if roof[s]) + ".", ""]

    out += ["## Iterations", "",
            "One iteration (assign, sums, new centroids) with no point skipped, of the first 10 of three runs. "
            "The roofline is measured between the runs: the larger of the points' bytes over the read "
            "bandwidth and 2nkd over the rate of multiply-adds. Share is the best roofline over the best iteration. "
            "Each iteration computes all distances. With 4 clusters of few features, and with 16 features or more, an iteration "
            "updates the sums of the one before, once few points change their cluster. The best iterations do that, the first "
            "one of a run does not.", ""]
    lines = []
    for r in rows:
        if r["what"] != "step":
            continue
        met = r["share"] >= r["target"]
        if not met:
            missed.append(f"iteration n = {r['n']:,}, d = {r['d']}, k = {r['k']}: {100 * r['share']:.0f} % of the roofline, "
                          f"wanted {100 * r['target']:.0f} %")
        lines.append([f"{r['n']:,}", r["d"], r["k"], number(r["first_ms"]) if "first_ms" in r else "-",
                      number(r["ms"]), number(r["best_ms"]), number(r["memory_ms"]), number(r["compute_ms"]),
                      f"{100 * r['share']:.0f} %", f"{100 * r['target']:.0f} %" + ("" if met else " missed")])
    out += table(["n", "d", "k", "first ms", "median ms", "best ms", "memory ms", "compute ms", "share", "target"], lines)
    for r in rows:
        if r["what"] == "small":
            met = r["fit_ms"] <= r["target_ms"]
            if not met:
                missed.append(f"small fit: {r['fit_ms']:.2f} ms, wanted {r['target_ms']:.0f}")
            out += ["", f"A small problem, n = {r['n']:,}, d = {r['d']}, k = {r['k']}: {r['iterations']} iterations "
                    f"{'to convergence ' if r['converged'] else ''}in {r['fit_ms']:.2f} ms in all (target {r['target_ms']:.0f} ms)."]
        if r["what"] == "accuracy":
            met = r["ms"] <= r["peer_ms"] and r["error_sums"] <= 1e-13
            if not met:
                missed.append(f"He et al.: {r['ms']:.1f} ms, error {r['error']:.2g}")
            out += ["", "## He et al. 2022, Table 3", "",
                    f"n = {r['n']:,}, d = {r['d']}, k = {r['k']}: {r['ms']:.1f} ms per iteration with {r['threads']} threads "
                    f"(theirs: {r['peer_ms']} ms on 20 cores). Largest error of a centroid's coordinate against sums in long "
                    f"double: {r['error_sums']:.2g} from summing, {r['error']:.2g} with the rounding of the points to "
                    f"float32 before it (theirs with packages: {r['peer_error']:.2g}; plain float32 sums here: "
                    f"{r['error_float_sums']:.2g})."]

    lines = [[r["d"], r["k"], f"{r['n']:,}", number(r["ms"]), number(r["plain_ms"]), f"**{number(r['seed_ms'])}**",
              number(r["plain_ms"] / r["ms"]), number(r["seed_ms"] / r["ms"]),
              number(r["peer_ms"]) if r["peer_ms"] else "-", number(r["peer_ms"] / r["seed_ms"]) if r["peer_ms"] else "-"]
             for r in rows if r["what"] == "seed"]
    if lines:
        out += ["", "## Seeding", "",
                "k-means++ with 2 + ln k candidates a round, in milliseconds and in iterations (from the seeds, no point skipped). "
                "\"without\" makes no sorted copy of the points, as with `gkmeans.skip_points = off`; the other column is the default. "
                "scikit-learn: `kmeans_plusplus()` with the same number of candidates.", ""]
        out += table(["d", "k", "n", "iteration ms", "without ms", "gkmeans ms", "without, iterations", "iterations",
                      "scikit-learn ms", "times as fast"], lines)

    grid = [r for r in rows if r["what"] == "grid"]
    names = sorted({name for r in grid for name in [*r["ms"], *r.get("over_ms", ())]} - {"gkmeans"})
    out += ["", "## Whole fits", "",
            f"From the same first centroids (k of the points), tolerance 0, until nothing moves or {MAX_ITER} iterations; peers are given "
            "gkmeans's number of iterations, and may need fewer. Milliseconds, best of up to three (of what fits into "
            f"{ENOUGH} s); a peer is stopped (over) when it takes {PATIENCE} times as long as another. gkmeans: preparing the points, iterating and the final statistics; peers: `fit()` "
            "or `train()` of an array in memory. gkmeans computes exact sums, the same bits on every machine.", ""]
    lines = []
    for r in grid:
        best = fastest_peer(r)
        gain = r["ms"][best] / r["ms"]["gkmeans"] if best else math.nan
        if best and gain < wanted(r["d"]):
            missed.append(f"fit n = {r['n']:,}, d = {r['d']}, k = {r['k']}: {gain:.2f} times the fastest peer ({best}), "
                          f"wanted {wanted(r['d'])}")
        lines.append([r["d"], r["k"], f"{r['n']:,}", r["iterations"], f"**{number(r['ms']['gkmeans'])}**",
                      *[peer_time(r, name) for name in names],
                      f"{gain:.1f}" + ("" if gain >= wanted(r["d"]) else " missed"), f"{wanted(r['d']):.1f}"])
    out += table(["d", "k", "n", "iterations", "gkmeans", *names, "times the fastest", "wanted"], lines)
    absent = len(GRID_D) * len(GRID_K) - len(grid)
    if absent:
        missed.append(f"{absent} of the {len(GRID_D) * len(GRID_K)} fits of the grid were not run")
    worse = [r for r in grid for name, v in r["peer_inertia"].items() if abs(v / r["inertia"] - 1) > 1e-3]
    if worse:
        out += ["", f"In {len(worse)} comparisons a peer's inertia differs by more than a thousandth "
                "(other sums and ties, and SuperKMeans's own first centroids, lead other ways)."]

    superkmeans = (" SuperKMeans takes no first centroids: it begins with other rows. With more than 256 clusters it "
                   "leaves distances out by an estimate, which may be wrong for some.")
    for wide, wide_missed in (
            wide_points("wide-epyc.json", "Wide points, with VNNI on AMD (Zen 5)", superkmeans),
            wide_points("wide-zen4.json", "Wide points, with VNNI on AMD (Zen 4)", superkmeans),
            wide_points("wide-superkmeans.json", "Wide points, with VNNI on Intel", superkmeans),
            wide_points("wide.json", "Wide points, with AMX"),
            wide_points("wide-avx512f.json", "Wide points, with AVX-512 without VNNI", superkmeans +
                        " This processor has VNNI, which gkmeans was told not to use; the others do what they do.", WIDE_WANTED_AVX2),
            wide_points("wide-avx2.json", "Wide points, with AVX2", superkmeans, WIDE_WANTED_AVX2)):
        out += wide
        missed += wide_missed
    out += ["", "## What was missed", ""] + ([f"- {m}" for m in missed] or ["Nothing."])
    out += ["", "## Command", "", "```", about["command"], "```", ""]
    return "\n".join(out), missed
