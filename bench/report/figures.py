"""What several pages show: the GPU's rows, ratios, notes, and the conditions of a run."""
import glob
import json
import os

from about import OWN_PAGES, RESULTS, ROOT, number

PAPERS, NOTES = (json.load(open(os.path.join(ROOT, "bench", "report", name), encoding="utf-8")) for name in ("papers.json", "notes.json"))


class Gpu:
    """Rows of the newest run of each case."""

    def __init__(self):
        self.rows = {}
        for name in sorted(glob.glob(os.path.join(RESULTS, "gpu", "*.jsonl"))):
            if any(part in name for part in OWN_PAGES):
                continue
            for line in open(name, encoding="utf-8"):
                r = json.loads(line)
                key = r["suite"], r["case"], r["what"], r["n"], r["d"], r["k"]
                if key not in self.rows or r["date"] >= self.rows[key]["date"]:
                    self.rows[key] = r

    def all(self, suite, case=None, what=None, **where):
        return [r for r in self.rows.values() if r["suite"] == suite and case in (None, r["case"]) and what in (None, r["what"])
                and all(r[key] == value for key, value in where.items())]

    def papers(self, case, what=None, **where):
        return self.all("gpu_papers", case, what, **where)

    def ms(self, case, what=None, **where):
        """The one row's time; the fastest, where strategies are not told apart."""
        found = [r["ms"] for r in self.papers(case, what, **where) if r["ms"] > 0]
        return min(found) if found else None

    def shape(self, n, d, k):
        """An iteration as gkmeans chooses it."""
        found = [r for r in self.rows.values() if (r["n"], r["d"], r["k"]) == (n, d, k) and r["ms"] > 0 and
                 (r["suite"], r["what"]) == ("gpu_kernels", "gkmeans") or
                 (r["n"], r["d"], r["k"]) == (n, d, k) and r["case"] in ("vectors", "real", "blog")]
        return max(found, key=lambda r: r["date"]) if found else None


def floor_ms(r):
    """One read of the points, or the multiply-adds, at the rates of the same run."""
    return max(4e-6 * r["n"] * r["d"] / r["read_gbs"], 2e-9 * r["n"] * r["d"] * r["k"] / r["fp32_tflops"])


def share(r):
    return f"{100 * floor_ms(r) / r['ms']:.0f} %" if r else "-"


def why(*keys):
    """The first note there is for one of the keys."""
    for key in keys:
        for kind in NOTES.values():
            if key in kind:
                return kind[key]
    return ""


def amount(v, unit):
    """A time in a unit that shows it."""
    return f"{number(v)} {unit}" if unit != "s" or v >= 0.1 else f"{number(v * 1e3)} ms" if v >= 1e-4 else f"{number(v * 1e6)} µs"


def ratio(paper, own):
    if own is None or paper is None:
        return "-"
    return f"{number(paper / own)}" if paper >= own else f"**{number(paper / own)}, slower**"


def conditions(about):
    load = about["load"]
    return (f"{about['machine']}, {about['cpus']} CPUs, {about['memory_gb']:.0f} GB, {about['date']}, commit {about['commit']}, {about['compiler']}"
            + (f", PostgreSQL {about['settings']['postgresql']}" if "postgresql" in about["settings"] else "")
            + f"; repetitions: {about['repetitions']}; load average {load[0]:.1f} at the start and {load[-1]:.1f} at the end"
            + (" (**other jobs were running: the CPU's times are too long and noisy**)" if max(load) > 1.5 * about["cpus"] else "") + ".")
