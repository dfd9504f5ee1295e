"""What every result file says about its run, where such files lie, and how pages show them."""
import datetime
import json
import os
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RESULTS = os.path.join(ROOT, "bench", "results")


# Files of results that have pages of their own: page_gpu_products.py, page_gpu_grid.py
OWN_PAGES = ("-products-", "-fits-", "-grid-")


def machine():
    name = "CPU"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return name


def first_line(*command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        return out.stdout.splitlines()[0] if out.stdout else "?"
    except OSError:
        return "?"


def about(command, repetitions, **settings):
    return {"command": command, "machine": machine(), "cpus": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"),
            "commit": commit(),
            "compiler": first_line(os.environ.get("CC", "cc"), "--version"),
            "driver": driver(), "repetitions": repetitions, "settings": settings,
            "load": [round(os.getloadavg()[0], 2)]}


def commit():
    """With -dirty where something other than results and pages has changed."""
    changed = first_line("git", "status", "--porcelain", "-uno", "--", ".", ":!bench/results", ":!docs")
    return first_line("git", "rev-parse", "--short", "HEAD") + ("" if changed == "?" else "-dirty")


def driver():
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii") as f:
            return f.readline().strip()
    except OSError:
        return "none"


def write(name, head, rows):
    head["load"].append(round(os.getloadavg()[0], 2))
    with open(os.path.join(RESULTS, name), "w", encoding="utf-8") as f:
        f.write('{"about": ' + json.dumps(head) + ',\n "rows": [\n  ')
        f.write(",\n  ".join(json.dumps(row) for row in rows))
        f.write("\n ]}\n")


def read(name):
    """The about and rows of a result file, or (None, [])."""
    try:
        with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
            data = json.load(f)
        return data["about"], data["rows"]
    except FileNotFoundError:
        return None, []


# ---- pages

def number(v):
    return f"{v:,.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}" if v >= 0.1 else f"{v:.3f}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + \
        ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
