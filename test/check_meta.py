#!/usr/bin/env python3
"""META.json against the rules of the PGXN Meta Specification 1.0.0, and the CI files.

usage: test/check_meta.py        from anywhere; ends with 'N passed, N failed'

The rules are those of https://pgxn.org/meta/spec.txt: which keys there must and may be,
and what their values may look like. Of the workflows it is checked that they are YAML
(where PyYAML is installed), that each step does something, and that the scripts and make
targets that they name are there.
"""
import json
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
counts = {True: 0, False: 0, None: 0}


def ok(good, name, why=""):
    counts[bool(good)] += 1
    print(f"{'ok' if good else 'not ok'} - {name}" + (f": {why}" if not good and why else ""))


# ---- the specification ----

SEMVER = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([a-zA-Z-][0-9A-Za-z.-]*|-[0-9A-Za-z.-]+)?"
RANGE = rf"\s*(==|!=|>=|<=|>|<)?\s*({SEMVER}|0)\s*"
LICENSES = """agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1
    gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0
    ssleay sun zlib open_source restricted unrestricted unknown""".split()
PHASES = ["configure", "build", "runtime", "test", "develop"]
RELATIONS = ["requires", "recommends", "suggests", "conflicts"]


def text(v):
    return isinstance(v, str) and v.strip() != ""


def term(v):
    """A name: at least two characters, none of them a control, a blank, a slash or a backslash."""
    return isinstance(v, str) and len(v) >= 2 and not re.search(r"[\s/\\\x00-\x1f]", v)


def semver(v):
    return isinstance(v, str) and re.fullmatch(SEMVER, v) is not None


def version_range(v):
    return isinstance(v, (str, int)) and all(re.fullmatch(RANGE, p) for p in str(v).split(","))


def url(v):
    return isinstance(v, str) and re.fullmatch(r"[a-z][a-z0-9+.-]*://\S+", v) is not None


def path(v):
    return isinstance(v, str) and not v.startswith("/") and ".." not in v.split("/") and os.path.isfile(v)


def texts(v):
    return text(v) or (isinstance(v, list) and v != [] and all(map(text, v)))


def licenses(v):
    return (v in LICENSES if isinstance(v, str) else
            isinstance(v, list) and v != [] and all(x in LICENSES for x in v) or
            isinstance(v, dict) and v != {} and all(map(url, v.values())))


def tags(v):
    return isinstance(v, list) and v != [] and all(
        text(t) and len(t) <= 255 and not re.search(r"[/\\\x00-\x1f]", t) for t in v) and len(set(v)) == len(v)


def prereqs(v):
    return isinstance(v, dict) and all(
        (phase in PHASES or phase[:2].lower() == "x_") and isinstance(relations, dict) and all(
            (relation in RELATIONS or relation[:2].lower() == "x_") and isinstance(needs, dict) and needs != {} and
            all(term(n) and version_range(r) for n, r in needs.items())
            for relation, needs in relations.items())
        for phase, relations in v.items())


def resources(v):
    return isinstance(v, dict) and all(
        key[:2].lower() == "x_" or
        key == "homepage" and url(value) or
        key == "bugtracker" and isinstance(value, dict) and value != {} and set(value) <= {"web", "mailto"} or
        key == "repository" and isinstance(value, dict) and value != {} and set(value) <= {"url", "web", "type"}
        for key, value in v.items())


PROVIDED = {"file": (True, path), "version": (True, semver), "abstract": (False, text), "docfile": (False, path)}


def provides(v):
    return isinstance(v, dict) and v != {} and all(
        term(name) and isinstance(entry, dict) and
        all(rule[1](entry[key]) if key in entry else not rule[0] for key, rule in PROVIDED.items()) and
        all(key in PROVIDED or key[:2].lower() == "x_" for key in entry)
        for name, entry in v.items())


# key: (required, what its value has to be)
KEYS = {
    "name": (True, term),
    "version": (True, semver),
    "abstract": (True, text),
    "maintainer": (True, texts),
    "license": (True, licenses),
    "provides": (True, provides),
    "meta-spec": (True, lambda v: isinstance(v, dict) and re.fullmatch(r"1\.0\.\d+", str(v.get("version"))) and
                  ("url" not in v or url(v["url"])) and set(v) <= {"version", "url"}),
    "description": (False, text),
    "generated_by": (False, text),
    "release_status": (False, lambda v: v in ("stable", "testing", "unstable")),
    "tags": (False, tags),
    "prereqs": (False, prereqs),
    "resources": (False, resources),
    "no_index": (False, lambda v: isinstance(v, dict) and v != {} and set(v) <= {"file", "directory"}),
}


def check_spec(meta):
    """What is wrong with a META.json, by key."""
    wrong = [f"{key} is missing" for key, (required, _) in KEYS.items() if required and key not in meta]
    for key, value in meta.items():
        if key[:2].lower() == "x_":
            continue
        if key not in KEYS:
            wrong.append(f"there is no key {key}")
        elif not KEYS[key][1](value):
            wrong.append(f"{key} cannot be {json.dumps(value)}")
    return wrong


def once(pairs):
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"a key stands twice: {keys}")
    return dict(pairs)


with open("META.json", encoding="utf-8") as f:
    meta = json.load(f, object_pairs_hook=once)
wrong = check_spec(meta)
ok(not wrong, "META.json follows the specification", "; ".join(wrong))

# the checker itself: it has to see these
for key, value in [("name", "g"), ("name", "g means"), ("version", "1.0"), ("version", "01.0.0"), ("abstract", ""),
                   ("maintainer", []), ("license", "gpl"), ("license", {"mine": "no url"}), ("provides", {}),
                   ("provides", {"gkmeans": {"file": "sql/no_such_file.sql", "version": "1.0.0"}}),
                   ("provides", {"gkmeans": {"file": "README.md"}}), ("meta-spec", {"version": "2.0.0"}),
                   ("release_status", "alpha"), ("tags", "gpu"), ("tags", ["a/b"]), ("homepage", "https://x.example"),
                   ("prereqs", {"run": {"requires": {"PostgreSQL": "13.0.0"}}}),
                   ("prereqs", {"runtime": {"requires": {"PostgreSQL": "13"}}}),
                   ("resources", {"homepage": "x"}), ("no_index", {"files": []})]:
    ok(check_spec({**meta, key: value}), f"refused: {key} = {json.dumps(value)}")
for key in [k for k, (required, _) in KEYS.items() if required]:
    ok(check_spec({k: v for k, v in meta.items() if k != key}), f"refused: no {key}")

with open("gkmeans.control", encoding="utf-8") as f:
    control = dict(re.findall(r"^(\w+) *= *'(.*)'$", f.read(), re.M))
ok(meta["abstract"] == control["comment"], "META.json and gkmeans.control describe it alike")
with open("src/gkmeans.h", encoding="utf-8") as f:
    oldest = int(re.search(r"PG_VERSION_NUM < (\d+)0000", f.read())[1])
ok(all(p["requires"]["PostgreSQL"] == f"{oldest}.0.0" for p in meta["prereqs"].values()),
   f"META.json asks for the PostgreSQL that the sources ask for, {oldest}")

# ---- continuous integration ----

targets = set()
with open("Makefile", encoding="utf-8") as f:
    for line in f:
        if re.match(r"[\w-]+( [\w-]+)*:", line):
            targets |= set(line.split(":")[0].split())


def check_command(command):
    """Why a line of shell cannot work here, as far as that can be seen; None if it can."""
    if subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode:
        return "bash does not understand it"
    command = re.sub(r"\$\{\{.*?\}\}", "15", command)
    for part in re.split(r"&&|\|\||;", command):
        words = part.split()
        if words[:1] == ["bash"]:
            words = words[1:]
        if words and re.match(r"(test|\.ci|bench)/", words[0]) and not os.access(words[0], os.X_OK):
            return f"{words[0]} is not a program"
        if words[:1] == ["make"]:
            for word in words[1:]:
                if re.fullmatch(r"[a-z][\w-]*", word) and word not in targets:
                    return f"make has no target {word}"
    return None


ok(check_command("test/no_such_script") and check_command("make nothing") and check_command("if then"),
   "commands that cannot work are seen")
try:
    import yaml
except ImportError:
    yaml = None
    counts[None] += 1
    print("skipped: the workflows, as python3 has no yaml here")
for name in sorted(os.listdir(".github/workflows")) if yaml else []:
    with open(f".github/workflows/{name}", encoding="utf-8") as f:
        flow = yaml.safe_load(f)
    # YAML 1.1 reads the key "on" as true
    ok(isinstance(flow, dict) and flow.get("jobs") and (flow.get("on") or flow.get(True)), f"{name} is a workflow")
    for job, content in flow["jobs"].items():
        wrong = [] if "runs-on" in content and content.get("steps") else ["no runs-on, or no steps"]
        for step in content.get("steps", []):
            if ("run" in step) == ("uses" in step):
                wrong.append(f"a step has to run or to use something: {step}")
            for line in step.get("run", "").splitlines():
                why = check_command(line)
                if why:
                    wrong.append(f"{line}: {why}")
        ok(not wrong, f"{name}, job {job}", "; ".join(wrong))

print(f"{counts[True]} passed, {counts[False]} failed" + (f", {counts[None]} skipped" if counts[None] else ""))
sys.exit(1 if counts[False] else 0)
