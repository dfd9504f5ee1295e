"""SQLsmith's random queries, by a role without privileges, over tables with columns of all our argument types.

A case is a run of 10,000 queries. The server must not crash, and no internal error (XX000) may come from
our code: the server's log has its file with every error. Skipped where SQLsmith is not installed.
"""
import os
import re
import shutil
import subprocess

from fuzz_common import Campaign

QUERIES = 10000
TIMEOUT = "200ms"
# Of PostgreSQL's functions, thousands, SQLsmith sees this share: its queries say pg_proc, which is a view of the role's
SHARE = 40

SETUP = f"""
CREATE EXTENSION gkmeans;
CREATE ROLE smith LOGIN;
CREATE SCHEMA seen;
CREATE VIEW seen.pg_proc AS SELECT oid, pronamespace, prorettype, proname, proretset, prokind, proargtypes FROM pg_catalog.pg_proc
p
WHERE has_function_privilege(oid, 'EXECUTE') AND (pronamespace = 'public'::regnamespace OR oid::bigint % {SHARE} = 0 AND
    NOT EXISTS (SELECT FROM pg_type t WHERE typtype = 'p' AND t.oid = ANY (proargtypes || prorettype)));
GRANT USAGE ON SCHEMA seen TO smith;
-- it writes NULLs of polymorphic types, too, which have to be of one type
CREATE VIEW seen.pg_type AS SELECT oid, typnamespace, typdelim, typrelid, typelem, typarray, CASE WHEN n IS NULL THEN typtype ELSE 'b' END AS typtype,
    coalesce(n, typname) AS typname
FROM pg_catalog.pg_type LEFT JOIN (VALUES ('anyrange', 'int4range'), ('anymultirange', 'int4multirange'), ('anyenum', 'text'),
    ('anycompatiblerange', 'int4range'), ('anycompatiblemultirange', 'int4multirange')) v (poly, n) ON typname = poly;
ALTER ROLE smith SET search_path = seen, pg_catalog, public;
ALTER ROLE smith SET statement_timeout = '{TIMEOUT}';
ALTER ROLE smith SET client_min_messages = error;
ALTER ROLE smith SET gkmeans.threads = 2;
CREATE TABLE points (id int, x float8, y float8, z real, a float8[], b real[], w float8, label int);
INSERT INTO points SELECT i, i % 7 - 1.5, i % 5 * 2, i, ARRAY[i % 4, i % 3 - 1, 0.5], ARRAY[i, -i], i % 3, i % 2
FROM generate_series(1, 100) i;
CREATE TABLE arguments (relation regclass, columns text[], one_column text[], k int, centroids float8[], document jsonb,
    word text, flag bool, seed bigint, tol float8, pass bytea, options kmeans_options);
INSERT INTO arguments VALUES
    ('points', '{{x,y}}', '{{a}}', 2, '{{{{0,0}},{{1,1}}}}', '{{"k": 2}}', 'random', true, 7, 0.5, '\\x6b6d7031000000010000000100000000000000000000000000000000',
     kmeans_options(init => 'random')),
    ('points', '{{a}}', '{{x}}', 3, NULL, NULL, 'cosine', false, -1, 0, '\\x', kmeans_options(distance => 'cosine')),
    (NULL, '{{}}', NULL, 0, '{{1,2}}', '[]', '', NULL, 0, 'NaN', NULL, NULL);
INSERT INTO arguments SELECT a.* FROM arguments a, generate_series(1, 30);
CREATE TABLE models AS SELECT 1 AS id, kmeans_fit('points', '{{x,y}}', 3) AS model, NULL::kmeans_state AS state
UNION ALL SELECT 2, kmeans_fit('points', '{{a}}', 2, distance => 'cosine'), (SELECT feature_sum_partial(a) FROM points)
UNION ALL SELECT 3, NULL, (SELECT kmeans_step_partial((SELECT kmeans_fit('points', '{{x}}', 2)), x) FROM points);
INSERT INTO models SELECT m.* FROM models m, generate_series(1, 30);
CREATE TABLE mixed AS SELECT x, y, z, a, b, w, label, g.*, model, state FROM points p
JOIN (SELECT row_number() OVER () AS id, * FROM arguments) g USING (id) JOIN (SELECT row_number() OVER () AS id, model, state FROM models) m USING (id);
-- a query that looks at a column of these calls us, wherever it stands
CREATE VIEW labelled AS SELECT id, x, y, kmeans(ARRAY[x, y], 3) OVER (PARTITION BY label) AS cluster FROM points;
CREATE VIEW predicted AS SELECT k, w, kmeans_predict(f, x, y) AS cluster, kmeans_distance(f, x, y) AS distance,
    kmeans_transform(f, ARRAY[x, y]) AS distances FROM mixed, (SELECT f FROM kmeans_fit('points', '{{x,y}}', 3) f) m;
CREATE VIEW grouped AS SELECT label, kmeans_agg(a, 2) AS model, feature_sum(a) AS total, feature_sum_partial(a, w) AS state,
    kmeans_step(m, x, y) AS step FROM points, kmeans_fit('points', '{{x,y}}', 3) m GROUP BY label;
CREATE VIEW clusters AS SELECT k AS wanted, c.* FROM generate_series(1, 3) k, kmeans('points', '{{x,y}}', k) c;
CREATE VIEW labels AS SELECT id, l.cluster, l.distance, w FROM points p JOIN kmeans_labels('points', '{{a}}', 3) l ON p.ctid = l.ctid;
CREATE VIEW centroids AS SELECT m.id, c.*, m.model::text AS document FROM models m, kmeans_centroids(m.model) c;
CREATE VIEW states AS SELECT k, kmeans_combine(state) AS state, count(*) FROM mixed WHERE k = 2 GROUP BY k;
GRANT SELECT ON ALL TABLES IN SCHEMA public, seen TO smith;
"""

# SQLsmith knows no arguments of type "any", and no defaults: the same calls with types that it has
WRAPPERS = [
    ("m kmeans_model, p float8[]", "int", "SELECT kmeans_predict(m, p)"),
    ("m kmeans_model, p float8[]", "float8", "SELECT kmeans_distance(m, p)"),
    ("m kmeans_model, p float8[]", "float8[]", "SELECT kmeans_transform(m, p)"),
    ("m kmeans_model, x float8, y real", "int", "SELECT kmeans_predict(m, x, y)"),
    ("r regclass, c text[], k int", "kmeans_model", "SELECT kmeans_fit(r, c, k)"),
    ("r regclass, c text[], m kmeans_model", "kmeans_state", "SELECT kmeans_step_partial(m, x, y) FROM points"),
    ("m kmeans_model, r regclass", "float8", "SELECT silhouette FROM kmeans_evaluate(m, r)"),
    ("m kmeans_model, r regclass", "text", "SELECT kmeans_svg(m, r)"),
    ("r regclass, c text[], k int", "kmeans_model", "SELECT kmeans_spectral_fit(r, c, k, 20)"),
    ("r regclass, c text[], k int", "kmeans_model", "SELECT kmeans_balanced_fit(r, c, k)"),
    ("d jsonb", "kmeans_model", "SELECT d::text::kmeans_model"),
    ("t text", "kmeans_state", "SELECT t::kmeans_state"),
    ("s kmeans_state", "text", "SELECT s::text"),
    ("m kmeans_model", "jsonb", "SELECT m::text::jsonb"),
    ("r regclass, c text[], p bytea", "bytea", "SELECT kmeans_pass(ARRAY[r], c, p)"),
    ("k int, o kmeans_options", "kmeans_model", "SELECT kmeans_agg(a, k, o) FROM points"),
    ("r regclass, c text[], k int", "bigint", "SELECT max(size) FROM kmeans(r, c, k)"),
]

campaign = Campaign("sqlsmith")
program = shutil.which("sqlsmith")
if program is None:
    print("skipped: sqlsmith is not installed")
    print("0 passed, 0 failed, 1 skipped")
    raise SystemExit(0)
session = campaign.session()
for name, value in (("log_line_prefix", "%e "), ("log_error_verbosity", "verbose"), ("track_functions", "all")):
    session.run(f"ALTER SYSTEM SET {name} = '{value}'")
session.run("SELECT pg_reload_conf()")
assert (made := session.run(SETUP)).ok, made
for i, (arguments, result, query) in enumerate(WRAPPERS):
    made = session.run(f"CREATE FUNCTION wrapper_{i}({arguments}) RETURNS {result} LANGUAGE sql AS '{query}'")
    assert made.ok, made


def log_size():
    return int(session.run("SELECT size FROM pg_stat_file('server.log')", remember=False).value)


def log_since(start):
    return session.run(f"SELECT pg_read_file('server.log', {start}, 1000000000)", remember=False).value


def internal_errors(log):
    """(message, place, statement) of each XX000."""
    blocks = re.split(r"(?m)^(?=\w{5} (?:ERROR|FATAL|PANIC|LOG|WARNING):)", log)
    for block in blocks:
        if re.match(r"XX\d{3} (ERROR|FATAL|PANIC)", block):
            place = re.search(r"LOCATION: +(.*)", block)
            statement = re.search(r"(?s)STATEMENT: +(.*?)(?=^\w{5} |\Z)", block, re.M)
            yield block.split("\n")[0], place.group(1) if place else "", statement.group(1) if statement else block


others = []
ran = slow = 0
for rng in campaign.cases():
    start, smith_seed = log_size(), rng.randrange(2 ** 24)
    command = [program, f"--target=host={os.environ['PGHOST']} port={os.environ['PGPORT']} dbname={os.environ['PGDATABASE']} user=smith",
               "--exclude-catalog", f"--max-queries={QUERIES}", f"--seed={smith_seed}", "--verbose"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=max(5, campaign.left()), errors="replace")
        output = run.stderr
    except subprocess.TimeoutExpired as e:  # the time is over; what ran counts
        output = (e.stderr or b"").decode(errors="replace")
    if session.lost or not session.run("SELECT 1", remember=False).ok:
        session = campaign.session()
    log = log_since(start)
    # it shows a dot for each query, or a letter for one that failed
    queries = sum(len(line) for line in re.findall(r"(?m)^[.etSC]+$", output))
    campaign.count(queries)
    failures = re.findall(r"(?m)^.*(?:terminated by signal|TRAP:).*$", log)
    campaign.check(not failures, f"SQLsmith seed {smith_seed}: {failures}", "\n".join(log.splitlines()[-200:]))
    for message, place, statement in internal_errors(log):
        if "gkmeans" in place or "gk_" in place:
            campaign.fail(f"SQLsmith seed {smith_seed}: {message} at {place}", statement)
        else:
            others.append(f"{message} at {place}"[:200])
    ran += queries
    if queries == 0 and "canceling statement due to statement timeout" in output:
        slow += 1   # a busy machine reads the catalogs for longer than one of its queries may take
    elif queries == 0 and not failures:
        campaign.fail(f"SQLsmith ran no query: {output[-500:]}")
campaign.check(ran > 0, "SQLsmith ran no query")
if slow:
    print(f"sqlsmith: {slow} times it could not read the catalogs in {TIMEOUT}")
calls = session.run("SELECT coalesce(sum(calls), 0), count(*) FROM pg_stat_user_functions f JOIN pg_proc p ON p.oid = f.funcid "
                    "JOIN pg_language l ON l.oid = p.prolang WHERE lanname = 'c'").rows[0]
print(f"sqlsmith: {calls[0]} calls of {calls[1]} functions of gkmeans; {len(others)} internal errors of PostgreSQL's own code")
for place in sorted(set(others)):
    print(f"sqlsmith:     {place}")
campaign.finish()
