#!/usr/bin/env python3
"""The shape of src/: who uses whom, how long files and functions are, what comments name, and how kernels begin.

usage: test/check_source.py [--list] [FOLDER...]       ends with 'N passed, N failed'

A unit is a source file with its header. One unit uses another when it includes its header or
names, in a function, a function of the project that the other alone defines. These fail:
  - a circle of units that lie in more than one folder;
  - a folder that uses one which it must not know (BELOW), but for functions that a header of its own declares;
  - a file of more than MAX_FILE lines, a function of more than MAX_FUNCTION (kernels included);
  - a comment that names a function, type, macro or file which exists nowhere;
  - a kernel launched by gk_follow() that does not begin with gk_await_previous(): it would read what is not there yet.
--list prints, for each unit (of the FOLDERs), the units it uses.
"""
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

MAX_FILE = 700
MAX_FUNCTION = 120
# What a folder and all below it may not use. PostgreSQL stays out of the engine, and its
# parts know nothing of the parts that are built on them.
BELOW = {
    "src/core": ["src/pg", "src/relation", "src/rescan", "src/types", "src/functions", "src/groups", "src/window", "src/svg", "src/gpu", "src/cpu"],
    "src/cpu": ["src/pg", "src/relation", "src/rescan", "src/types", "src/functions", "src/groups", "src/window", "src/svg", "src/gpu"],
    "src/gpu": ["src/pg", "src/relation", "src/rescan", "src/types", "src/functions", "src/groups", "src/window", "src/svg", "src/cpu"],
    "src/pg": ["src/relation", "src/rescan", "src/functions", "src/groups", "src/window", "src/svg"],
    "src/types": ["src/relation", "src/rescan", "src/functions", "src/groups", "src/window", "src/svg"],
    "src/relation": ["src/rescan", "src/functions", "src/groups", "src/window", "src/svg"],
    "src/rescan": ["src/functions", "src/groups", "src/window", "src/svg"],
    "src/functions": ["src/groups", "src/window", "src/svg"],
    "src/groups": ["src/window", "src/svg"],
    "src/window": ["src/svg"],
}
ALLOWED = {
    ("src/core/gk_registry", "src/cpu/gk_cpu"),  # the table of backends
}

SOURCES = sorted(f for f in glob.glob("src/**/*", recursive=True) if f.endswith((".c", ".h", ".cu", ".cuh")))
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'")
# A function's name stands at the beginning of a line, its body between two lines of one brace
FUNCTION = re.compile(r"^(\w+)\([^;{}]*\)\s*\n\{\n(.*?)^\}", re.S | re.M)

failed = 0


def wrong(what):
    global failed
    failed += 1
    print("not ok - " + what)


def unit(path):
    return os.path.splitext(path)[0]


def blank(match):
    return "\n" * match.group(0).count("\n")


text, code = {}, {}
for path in SOURCES:
    with open(path, encoding="utf-8") as f:
        text[path] = f.read()
    code[path] = STRING.sub('""', COMMENT.sub(blank, re.sub(r'#\s*include[^\n]*', "", text[path])))

# ---- who uses whom ----

headers = {path[4:]: path for path in SOURCES if path.endswith((".h", ".cuh"))}
headers.update({os.path.basename(path): path for path in SOURCES if path.startswith("src/gpu/")})
defined = {}  # function -> units that define it
for path in SOURCES:
    for match in FUNCTION.finditer(code[path]):
        before = code[path][:match.start()].rstrip("\n").rsplit("\n", 1)[-1]
        if not before.startswith("static"):
            defined.setdefault(match.group(1), set()).add(unit(path))
declared = {}  # function -> headers that declare it: core's are implemented by a backend, some of them
for path in SOURCES:
    if path.endswith((".h", ".cuh")):
        for name in re.findall(r"\b((?:gk|km|g?kmeans)_\w+)\(", FUNCTION.sub("", code[path])):
            declared.setdefault(name, set()).add(path)
uses = {unit(path): {} for path in SOURCES}  # unit -> unit -> the names that tie them
for path in SOURCES:
    for name in re.findall(r'#\s*include\s+"([^"]+)"', text[path]):
        if name in headers and unit(headers[name]) != unit(path):
            uses[unit(path)].setdefault(unit(headers[name]), set()).add(os.path.basename(name))
    called = re.findall(r"\b((?:gk|km|g?kmeans)_\w+)\b", "".join(m.group(2) for m in FUNCTION.finditer(code[path])))
    for name in set(called):
        owners = defined.get(name, ())
        if len(owners) == 1 and unit(path) not in owners:
            uses[unit(path)].setdefault(*owners, set()).add(name)


def circles():
    """Strongly connected sets of more than one unit (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(u):
        index[u] = low[u] = len(index)
        stack.append(u)
        for v in sorted(uses[u]):
            if v not in index:
                visit(v)
            if v in stack:
                low[u] = min(low[u], low[v])
        if low[u] == index[u]:
            at = stack.index(u)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for u in sorted(uses):
        if u not in index:
            visit(u)
    return found


if "--list" in sys.argv:
    folders = [f.rstrip("/") for f in sys.argv[1:] if f != "--list"] or ["src"]
    for u in sorted(uses):
        if any(u.startswith(f + "/") for f in folders):
            print(u + "".join(f"\n    {v}: {', '.join(sorted(names))}" for v, names in sorted(uses[u].items())))
    sys.exit()

for circle in circles():
    ties = [f"    {u} -> {v}: {', '.join(sorted(uses[u][v]))}" for u in circle for v in sorted(uses[u]) if v in circle]
    if len({os.path.dirname(u) for u in circle}) > 1:
        wrong("a circle across folders:\n" + "\n".join(ties))
for u in sorted(uses):
    forbidden = [f for folder, names in BELOW.items() if u.startswith(folder + "/") for f in names]
    for v in sorted(uses[u]):
        names = [n for n in sorted(uses[u][v]) if not any(h.split("/")[1] == u.split("/")[1] for h in declared.get(n, ()))]
        if any(v.startswith(f + "/") for f in forbidden) and (u, v) not in ALLOWED and names:
            wrong(f"{u} must not use {v}: {', '.join(names)}")

# ---- lengths ----

for path in SOURCES:
    lines = text[path].count("\n")
    if lines > MAX_FILE:
        wrong(f"{path} has {lines} lines, at most {MAX_FILE} are allowed")
    for match in FUNCTION.finditer(code[path]):
        lines = match.group(0).count("\n") + 1
        if lines > MAX_FUNCTION:
            wrong(f"{path}: {match.group(1)}() has {lines} lines, at most {MAX_FUNCTION} are allowed")

# ---- names in comments ----

NAME = re.compile(r"\b([\w/]+\.(?:cuh?|[ch])|(?:gk|km|kmeans)_\w*[a-z0-9]|(?:Gk|Km|Kmeans)[A-Z]\w+|(?:GK|KM)_\w*[A-Z0-9])\b(?![\w*/]|_\*)")
known = {os.path.basename(p) for p in glob.glob("src/**/*", recursive=True) + glob.glob("test/**/*", recursive=True)}
for path in SOURCES:
    known.update(os.path.basename(name) for name in re.findall(r'#\s*include\s+["<]([^">]+)', text[path]))
for path in SOURCES + glob.glob("sql/*.sql") + glob.glob("test/**/*", recursive=True) + glob.glob("bench/**/*", recursive=True):
    if os.path.isfile(path) and os.path.splitext(path)[1] in (".c", ".h", ".cu", ".cuh", ".sql", ".pl", ".py", ""):
        try:
            with open(path, encoding="utf-8") as f:
                known.update(re.findall(r"\w+", COMMENT.sub(" ", f.read())))
        except UnicodeDecodeError:
            pass
for path in SOURCES:
    for comment in COMMENT.finditer(text[path]):
        for name in NAME.findall(comment.group(0)):
            line = text[path].count("\n", 0, comment.start()) + 1
            if os.path.basename(name) not in known:
                wrong(f"{path}:{line}: a comment names {name}, which exists nowhere")

# ---- kernels that may begin before the one before has ended (gk_gpu_device.cuh) ----

AWAITS = re.compile(r"\n(\w+_kernel)\([^{;]*\)\s*\{\s*gk_await_previous\(\);")
for path in SOURCES:
    awaiting = set(AWAITS.findall(code[path]))
    for launch in re.findall(r"gk_follow\(s, [^;]*;", code[path]):
        for name in set(re.findall(r"\w+_kernel\b", launch)) - awaiting:
            wrong(f"{path}: {name}() is launched by gk_follow(), so it must begin with gk_await_previous()")
    # Products are chosen from tables, and launched elsewhere
    if re.search(r"^GkGemmKernel\n", code[path], re.M) and code[path].count("__global__") != code[path].count("gk_await_previous();"):
        wrong(f"{path}: a kernel of products does not call gk_await_previous()")

# Five checks: circles, folders, lengths, comments, kernels
print(f"{0 if failed else 5} passed, {failed} failed")
sys.exit(failed > 0)
