#!/usr/bin/env python3
"""Every name in the SQL that the extension sends or installs is qualified.

usage: test/check_sql.py [FILE...]       default: src/ without the engine and sql/*.sql; ends with 'N passed, N failed'

A caller's search_path may begin with another role's schema, and an operator there may fit
better than that of pg_catalog. So in queries
  - operators are OPERATOR(pg_catalog.x), functions, types and relations schema.name;
  - what looks up an operator without naming it (IN, LIKE, BETWEEN, IS DISTINCT FROM, NULLIF,
    CASE x WHEN, USING, NATURAL) is not used;
  - no value or name is put between quotes: quote_literal_cstr(), quote_identifier() and
    quote_qualified_identifier() write their own, and dollar quotes end where a name says so.

Of C, every file is looked at that quotes names, runs a query or has a string that begins as a
statement does, and there every string that is not a message's. Of a script, what runs later: bodies of functions and views. CREATE EXTENSION
looks for all else in pg_catalog first, and then in the extension's schema.
"""
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

TOKEN = re.compile(r"""
    (?P<space>\s+|--[^\n]*) | (?P<string>[eE]?'(?:[^']|'')*'?) | (?P<dollar>\$\w*\$) | (?P<param>\$\d+)
  | (?P<name>(?:[^\W\d]\w*|"(?:[^"]|"")*")) | (?P<number>\d[\d.]*(?:e[-+]?\d+)?)
  | (?P<format>%(?:\d+\$)?(?:[sdILcu]|l+[du]|\.\d+f)) | (?P<cast>::) | (?P<point>[][(),;.])
  | (?P<operator>[-+*/<>=~!@\#%^&|`?:]+) | (?P<other>.)""", re.X)

# What may stand before "(", or after "::", and is no name: PostgreSQL's grammar
GRAMMAR = set("""array as and or not in on by from select where values with cast coalesce greatest least exists row any all
    operator over filter group distinct returning table into set then else when using limit offset union order
    int integer bigint smallint real float double boolean decimal numeric""".split())
LOOKS_UP = {"in", "like", "ilike", "similar", "between", "nullif", "natural", "using", "isnull", "notnull", "overlaps"}
BEFORE_RELATION = {"from", "join", "update", "into", "table"}
SENDS = re.compile(r"\b(SPI_execute|SPI_prepare|pg_parse_query|quote_(identifier|qualified_identifier|literal_cstr))")
STATEMENT = re.compile(r'\s*(SELECT|UPDATE|INSERT INTO|DELETE FROM|MERGE|WITH|ALTER|CREATE|DROP|LOCK|TRUNCATE|COPY|EXPLAIN|DECLARE|EXECUTE|SET)\s')

ENGINE = ("src/core", "src/cpu", "src/gpu")  # sends no SQL
SOURCES = sorted(f for f in glob.glob("src/**/*.[ch]", recursive=True) if not f.startswith(ENGINE)) + glob.glob("sql/*.sql")


def complaints(sql):
    """What is wrong with a query, or a piece of one."""
    all_tokens = [(m.lastgroup, m.group()) for m in TOKEN.finditer(sql) if m.lastgroup != "space"]
    tokens = [(kind, text.lower() if kind == "name" and text[0] != '"' else text) for kind, text in all_tokens]

    def at(i):
        return tokens[i] if 0 <= i < len(tokens) else ("", "")

    for i, (kind, text) in enumerate(tokens):
        before, after = at(i - 1), at(i + 1)
        bare = kind == "name" and before[1] != "."
        if kind == "operator":
            star = text == "*" and before[1] in ("(", ",", ".", "select", "")
            assign = text == "=" and at(i - 2)[1] == "set" or text == "=" and at(i - 3)[1] == "set" and at(i - 2)[1] == "."
            qualified = [t for _, t in tokens[max(i - 4, 0):i]] == ["operator", "(", "pg_catalog", "."]
            if not star and not assign and not qualified:
                yield f"operator {text}"
        elif kind == "string" and re.search(r"%(\d+\$)?[sd]", text) or kind == "dollar":
            yield f"a value between quotes: {text}"
        elif bare and text in LOOKS_UP:
            yield f"{text.upper()} looks up an operator"
        elif bare and (text == "is" and "distinct" in (after[1], at(i + 2)[1])):
            yield "IS DISTINCT FROM looks up an operator"
        elif bare and text == "case" and after[1] not in ("when", ""):
            yield "CASE x WHEN looks up an operator"
        elif bare and after[1] == "(" and text not in GRAMMAR and at(i - 1)[1] != "as":
            yield f"function {text}()"
        elif kind == "cast" or text == "as" and "cast" in [t for _, t in tokens[max(i - 6, 0):i]]:
            if after[0] == "name" and at(i + 2)[1] != "." and after[1] not in GRAMMAR - {"numeric"}:
                yield f"type {after[1]}"
        elif bare and text in BEFORE_RELATION and not (text == "from" and before[1] == "distinct"):
            if after[0] == "name" and at(i + 2)[1] not in (".", "(") and after[1] not in GRAMMAR:
                yield f"relation {after[1]}"


# ---- C ----

C_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|\'(?:[^\'\\]|\\.)+\'|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<name>\w+)|(?P<other>\S)', re.S)
MESSAGES = {"errmsg", "errmsg_internal", "errmsg_plural", "errdetail", "errdetail_plural", "errhint", "elog", "gk_fail",
            "PreventCommandIfReadOnly"}


def c_strings(source):
    """(line, text) of the strings, pieces side by side as one, %s for macros between them."""
    text, line, calls, word = None, 0, [], ""
    source = re.sub(r"(?m)^#include.*", "", source)
    source = re.sub(r"(?m)^#(?:.*\\\n)*.*", r"\g<0>;", source)  # a macro ends there
    for m in C_TOKEN.finditer(source):
        if m["string"]:
            if text is None:
                text, line = "", source.count("\n", 0, m.start()) + 1
            text += re.sub(r"\\(.)", lambda e: {"n": "\n", "t": "\t"}.get(e[1], e[1]), m["string"][1:-1])
        elif m["name"] and text is not None:
            text += " %s "
        elif m["other"]:
            if text is not None and m["other"] in ",;)}:?":
                if not MESSAGES & set(calls):
                    yield line, text
                text = None
            if m["other"] == "(":
                calls.append(word)
            elif m["other"] == ")" and calls:
                calls.pop()
        word = m["name"] or ""
    if text is not None:
        yield line, text


def c_queries(source):
    strings = list(c_strings(source))
    return strings if SENDS.search(source) or any(STATEMENT.match(s) for _, s in strings) else []


# ---- install scripts ----

BODY = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\b[^;]*?\bAS\s+(\$\w*\$)(?P<f>.*?)\1"
                  r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:MATERIALIZED\s+)?VIEW\s+[^;]*?\bAS\b(?P<v>[^;]*);", re.S | re.I)
OWN = re.compile(r"^CREATE\s+(?:FUNCTION|VIEW|TYPE|AGGREGATE)\s+(\w+)", re.M)


def script_queries(source):
    """The extension's own names are found by CREATE EXTENSION, in views: those are kept as they were understood."""
    own = "|".join(sorted(set(OWN.findall(source)), key=len, reverse=True))
    for m in BODY.finditer(source):
        text = m["f"] if m["f"] is not None else re.sub(rf"\b(?<!\.)({own})\b(?=\()", r"own.\1", m["v"])
        yield source.count("\n", 0, m.start("f" if m["f"] is not None else "v")) + 1, text


# ---- the check of the check ----

GOOD = ['SELECT %s, x FROM %s', "a OPERATOR(pg_catalog.>) 1.5e-3", "UPDATE %s AS t SET %s = %s() WHERE %s(t.tableoid, t.ctid)", "::pg_catalog.float8[]",
        "SELECT a OPERATOR(pg_catalog.<>) 'x' FROM pg_catalog.pg_class c WHERE pg_catalog.length(c.relname) IS NULL",
        "SELECT count, *, pg_catalog.count(*) FROM a.b ORDER BY x", "SELECT coalesce(a, ARRAY[1, 2]::pg_catalog.int8[])",
        "CASE WHEN a IS NULL THEN 1 ELSE 2 END", "ALTER TABLE %s ADD COLUMN %s pg_catalog.int4", "FROM pg_catalog.f($1, %1$L)"]
BAD = ["SELECT 1 FROM pg_catalog.pg_class WHERE oid = $1", "a <> 'n'", "SELECT upper(x) FROM %s", "x::float8", "x::text[]", "CAST(x AS text)",
       "SELECT 1 FROM pg_class", "UPDATE pg_class SET x = 1", "SELECT '%s'", "$gkmeans$%1$s$gkmeans$", "a IN (1, 2)", "a LIKE 'x'", "a || b", "- a",
       "a IS DISTINCT FROM b", "a IS NOT DISTINCT FROM b", "CASE a WHEN 1 THEN 2 END", "NULLIF(a, b)", "a BETWEEN 1 AND 2", "a JOIN b.c USING (x)",
       "a OPERATOR(public.=) b", "a = ANY ($1)", "x::numeric", "SELECT * FROM own.a NATURAL JOIN b.c", "a * b", "INSERT INTO log SELECT 1"]
BAD_C = ['x("SELECT %s " y, "FROM t");', 'f("SELECT 1 "\n  "WHERE a = b");', '#define Q(n) "lower(" n ")"\nf("SELECT " Q("x"));',
         'f("SELECT "); g("\'%s\'");', 'SPI_execute(sql); f("WHERE a = b");']
GOOD_C = ['f("lower(x)");', 'f("SELECT %s"); errmsg("a = b");', 'f("SELECT a.b"); /* "a = b" */']
BAD_SCRIPT = ["CREATE FUNCTION f(a text) RETURNS int AS $$ SELECT a::int + 1 $$;", "CREATE VIEW v AS SELECT relid::regclass FROM a.b;",
              "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $body$ BEGIN RETURN length('x'); END $body$;"]
GOOD_SCRIPT = ["CREATE FUNCTION f(a text) RETURNS text AS 'MODULE_PATHNAME' LANGUAGE C;\nCREATE VIEW v AS SELECT 1 FROM f();"]


def wrong(pairs):
    return [(line, what) for line, sql in pairs for what in complaints(sql)]


def main():
    counts = {True: 0, False: 0}

    def ok(good, name):
        counts[bool(good)] += 1
        if not good or not name.startswith("finds"):
            print(f"{'ok' if good else 'not ok'} - {name}")

    for expected, cases, queries in ((True, BAD, lambda s: [(1, s)]), (False, GOOD, lambda s: [(1, s)]), (True, BAD_C, c_queries),
                                     (False, GOOD_C, c_queries), (True, BAD_SCRIPT, script_queries), (False, GOOD_SCRIPT, script_queries)):
        for case in cases:
            ok(bool(wrong(queries(case))) == expected, f"finds {'what is wrong' if expected else 'nothing wrong'} with {case}")
    found = 0
    for name in sys.argv[1:] or SOURCES:
        with open(name, encoding="utf-8") as f:
            source = f.read()
        queries = list(script_queries(source) if name.endswith(".sql") else c_queries(source))
        found += len(queries)
        if queries:
            for line, what in wrong(queries):
                print(f"{name}:{line}: {what}")
            ok(not wrong(queries), f"{name}: {len(queries)} pieces of SQL")
    ok(found > 0, "there is SQL")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return counts[False] > 0


if __name__ == "__main__":
    sys.exit(main())
