"""What every result file says about its run, and where such files lie."""
import datetime
import json
import os

from engine import HERE, first_line, machine

RESULTS = os.path.join(HERE, "results")


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
    changed = first_line("git", "status", "--porcelain", "-uno", "--", ".", ":!bench/results", ":!bench/results-gpu", ":!docs")
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
