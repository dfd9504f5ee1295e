-- kmeans() OVER by the plan node KmeansWindow: the same labels as by WindowAgg

\set VERBOSITY terse

CREATE TABLE ws (id int PRIMARY KEY, g int, t text, a float8, b real, p float8[], r real[], i int[], n numeric[]);
INSERT INTO ws SELECT i, nullif(i % 7, 3), CASE i % 3 WHEN 0 THEN 'x' WHEN 1 THEN 'X' END, v, w,
    ARRAY[v, w], ARRAY[w, v], ARRAY[v * 10, w * 10]::int[], ARRAY[v, w]::numeric[]
FROM (SELECT i, (i % 4) * 5 + (hashint4(i) % 1009) / 2000.0 AS v, (i % 3) * 2 + (hashint4(i + 100000) % 1009) / 3000.0 AS w
      FROM generate_series(1, 2100) i) o;
UPDATE ws SET a = NULL WHERE id % 97 = 0;
UPDATE ws SET p[2] = NULL, r = NULL WHERE id % 101 = 0;
-- a partition without a point
UPDATE ws SET p = NULL, a = NULL WHERE g = 5;
ANALYZE ws;

-- the plan
EXPLAIN (COSTS OFF) SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM ws;
EXPLAIN (COSTS OFF) SELECT kmeans(p, 3) OVER () FROM ws;
EXPLAIN (COSTS OFF) SELECT id, kmeans(p, 3) OVER w + kmeans(r, 2, '{{0,0},{1,1}}') OVER w AS sum
FROM ws WINDOW w AS (PARTITION BY g % 2, t) ORDER BY id;
-- a node above shows the label
EXPLAIN (COSTS OFF) SELECT id, kmeans(p, 3) OVER (PARTITION BY g) FROM ws ORDER BY 2;
CREATE FUNCTION by_node(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
    line text;
    plan text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (VERBOSE) ' || query LOOP plan := plan || line; END LOOP;
    RETURN plan LIKE '%KmeansWindow%' AND plan NOT LIKE '%WindowAgg%';
END $$;
-- how many rows a query has, and whether they are the same by both roads
CREATE FUNCTION roads(query text, OUT rows bigint, OUT same bool, OUT by_node bool) LANGUAGE plpgsql AS $$
DECLARE
    digest text := 'SELECT count(*), md5(coalesce(string_agg(o::text, '','' ORDER BY o::text), '''')) FROM (' || query || ') o';
    here text;
    there text;
BEGIN
    SET LOCAL gkmeans.enable_window_scan = on;
    by_node := by_node(query);
    EXECUTE digest INTO rows, here;
    SET LOCAL gkmeans.enable_window_scan = off;
    EXECUTE digest INTO rows, there;
    same := here = there;
    IF by_node(query) THEN RAISE 'the setting has no effect'; END IF;
END $$;

CREATE DOMAIN point2 AS float8[] CHECK (cardinality(VALUE) = 2);
CREATE DOMAIN coordinate AS float8;
CREATE VIEW labelled AS SELECT id, g, kmeans(ARRAY[a, b], 4) OVER (PARTITION BY g) AS label FROM ws;
CREATE INDEX ws_g ON ws (g);

SELECT roads.*, q FROM unnest(ARRAY[
    'SELECT kmeans(p, 3) OVER () FROM ws',
    'SELECT id, kmeans(p, 3) OVER () FROM ws',
    'SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM ws',
    'SELECT kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM ws',
    'SELECT g, kmeans(p, 3) OVER (PARTITION BY g) FROM ws',
    'SELECT *, kmeans(r, 3) OVER (PARTITION BY g, t) AS label FROM ws',
    'SELECT id, kmeans(i, 5) OVER (PARTITION BY g IS NULL) FROM ws',
    'SELECT id, kmeans(n, 5) OVER (PARTITION BY g, id % 2) FROM ws',
    'SELECT id, kmeans(ARRAY[b, id], 5) OVER (PARTITION BY g) FROM ws',
    'SELECT id, kmeans(ARRAY[g, id], 5) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(ARRAY[g::smallint, 2::smallint], 2) OVER () FROM ws',
    'SELECT id, kmeans(ARRAY[g::bigint, id], 2) OVER () FROM ws',
    'SELECT id, kmeans(ARRAY[a::numeric, b::numeric], 2) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(a, 2) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(p::point2, 2) OVER (PARTITION BY t) FROM ws WHERE p IS NOT NULL',
    'SELECT id, kmeans(ARRAY[a::coordinate, b], 2) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(''{1,2}'', 2) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(NULL::float8[], 2) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(p, 2, ''{{0,0},{10,4}}'') OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(p, 2, NULL) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(p, 1 + 1) OVER (PARTITION BY id) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY t COLLATE "C", t) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY (g, t)) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY p) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY 1) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY b::numeric) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g::smallint, id % 2 = 0, (id % 5)::bigint) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY date ''2026-01-01'' + g, timestamptz ''2026-01-01 00:00Z'' + id % 3 * interval ''1 day'') FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY (id % 3 - 1)::float8 * 0.0, g::oid) FROM ws',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g % 3, t ORDER BY id) FROM ws',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g % 3, t) FROM ws LIMIT 5000',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g % 3, t), g % 3 FROM ws',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws ORDER BY g, id',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws WHERE g = id % 7 ORDER BY id % 7',
    'SELECT DISTINCT kmeans(p, 3) OVER (PARTITION BY g) FROM ws',
    'SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws UNION SELECT kmeans(p, 5) OVER (PARTITION BY t) FROM ws',
    'SELECT generate_series(0, kmeans(p, 3) OVER (PARTITION BY g)) FROM ws',
    'SELECT array(SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws WHERE id < 50 ORDER BY 1), (SELECT max(l) FROM (SELECT kmeans(p, 3) OVER (PARTITION BY g) AS l FROM ws) o)',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g ORDER BY id DESC) FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM ws',
    'SELECT id, 2 * kmeans(p, 3) OVER w + 1, CASE WHEN kmeans(p, 3) OVER w > 0 THEN kmeans(r, 2) OVER w ELSE g END FROM ws WINDOW w AS (PARTITION BY g)',
    'SELECT kmeans(p, 3) OVER w, kmeans(p, 4) OVER w, kmeans(ARRAY[a], 3) OVER w, id + g FROM ws WINDOW w AS (PARTITION BY t)',
    'SELECT DISTINCT g, kmeans(p, 3) OVER (PARTITION BY g) FROM ws',
    'SELECT DISTINCT ON (g) g, kmeans(p, 3) OVER (PARTITION BY g) AS label FROM ws ORDER BY g, label, id',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g) FROM ws ORDER BY g, t, id LIMIT 100',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g) FROM ws ORDER BY 2, 1 LIMIT 100 OFFSET 20',
    'SELECT id, unnest(ARRAY[g, 8]), kmeans(p, 3) OVER (PARTITION BY g) FROM ws',
    'SELECT id, generate_series(0, kmeans(p, 3) OVER (PARTITION BY g)) FROM ws',
    'SELECT g, count(*), kmeans(ARRAY[avg(a), avg(b)], 2) OVER () FROM ws GROUP BY g',
    'SELECT g, t, kmeans(ARRAY[avg(a), avg(b)], 2) OVER (PARTITION BY t) FROM ws GROUP BY GROUPING SETS ((g, t), (g))',
    'SELECT g, kmeans(ARRAY[count(*)], 2) OVER (PARTITION BY sum(id) > 100000) + count(*) FROM ws GROUP BY g HAVING count(*) > 1',
    'SELECT l.*, s.t FROM labelled l JOIN ws s USING (id) WHERE label < 2',
    'SELECT label, count(*) FROM labelled WHERE g = 2 GROUP BY label',
    'SELECT count(*) FROM labelled WHERE label IN (0, 2) AND id < 1000',
    'WITH l AS MATERIALIZED (SELECT * FROM labelled) SELECT x.id, y.label FROM l x JOIN l y ON x.id = y.id + 1',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY g) FROM ws UNION ALL SELECT id, kmeans(p, 2) OVER (PARTITION BY g) FROM ws WHERE id < 100',
    'SELECT s.id, l.* FROM ws s LEFT JOIN labelled l ON l.id = s.id + 2000',
    'SELECT kmeans(ARRAY[x.a, y.a], 3) OVER (PARTITION BY x.g), x.id FROM ws x LEFT JOIN ws y ON y.id = x.id * 2',
    'SELECT * FROM generate_series(1, 5) h, LATERAL (SELECT id, kmeans(p, 3) OVER (PARTITION BY t) FROM ws WHERE g = h) o',
    'SELECT * FROM generate_series(0, 3) h, LATERAL (SELECT id, kmeans(p, h + 1) OVER (PARTITION BY g) FROM ws WHERE id < 200) o',
    'SELECT * FROM generate_series(1, 3) h, LATERAL (SELECT h, id, kmeans(ARRAY[a * h, b], 3) OVER (PARTITION BY g % h) FROM ws) o',
    'SELECT h, (SELECT sum(l * id) FROM (SELECT id, kmeans(p, 3) OVER () AS l FROM ws WHERE g = h) o) FROM generate_series(1, 6) h',
    'SELECT id FROM ws WHERE id IN (SELECT id FROM labelled WHERE label = 1)',
    'SELECT id FROM ws s WHERE EXISTS (SELECT FROM labelled WHERE label = 1 AND id = s.id)',
    'SELECT ctid, tableoid, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM ws',
    'SELECT ws, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY ws.g) FROM ws',
    'SELECT id, (SELECT x.t FROM ws x WHERE x.id = ws.id + 1), kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM ws WHERE id < 300',
    'SELECT id, (SELECT count(*) FROM ws x WHERE x.id < l), l FROM (SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) AS l FROM ws) o',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY x) FROM (SELECT *, coalesce(t, g::text) AS x FROM ws) o LEFT JOIN (SELECT 1 AS one, id AS other FROM ws) r ON r.other = id * 2',
    'SELECT s.id, kmeans(ARRAY[o.c, s.a], 3) OVER (PARTITION BY o.c) FROM ws s LEFT JOIN (SELECT id, 7 AS c FROM ws WHERE id % 2 = 0) o USING (id)',
    'SELECT id, kmeans(ARRAY[a, b], 2) OVER () FROM ws WHERE false',
    'SELECT id, kmeans(ARRAY[a, b], 0) OVER () FROM ws WHERE id < 0',
    'SELECT kmeans(ARRAY[1, 2], 1) OVER ()'
]) WITH ORDINALITY u (q, at), roads(q) ORDER BY at;

-- what is left to WindowAgg: k of the row, another function, another window, a frame with
-- offsets, volatile points, subqueries, and what would take more memory than is allowed
SELECT roads.*, q FROM unnest(ARRAY[
    'SELECT id, kmeans(p, id) OVER (PARTITION BY id) FROM ws',
    'SELECT id, kmeans(p, 2, CASE WHEN g = 1 THEN ARRAY[[0.0, 0], [1, 1]] END) OVER (PARTITION BY g) FROM ws',
    'SELECT id, kmeans(p, 3) OVER w, count(*) OVER w FROM ws WINDOW w AS (PARTITION BY g)',
    'SELECT id, kmeans(p, 3) OVER w, row_number() OVER (ORDER BY id) FROM ws WINDOW w AS (PARTITION BY g)',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY t), kmeans(p, 3) OVER () FROM ws',
    'SELECT id, kmeans(p, 3) OVER (PARTITION BY t ORDER BY id ROWS 1 PRECEDING) FROM ws',
    'SELECT id, kmeans(ARRAY[random() * 0], 3) OVER (PARTITION BY t) FROM ws',
    'SELECT id, kmeans(ARRAY[(SELECT a FROM ws x WHERE x.id = ws.id)], 3) OVER (PARTITION BY t) FROM ws',
    'SELECT g, kmeans(ARRAY[avg(id)], count(*)::int) OVER () FROM ws GROUP BY g',
    'SELECT g, kmeans(ARRAY[avg(id)], grouping(g) + 1) OVER () FROM ws GROUP BY CUBE (g, t)'
]) WITH ORDINALITY u (q, at), roads(q) ORDER BY at;
SELECT roads.* FROM roads('SELECT id, kmeans(p, (SELECT count(*)::int FROM ws WHERE id < 4)) OVER (PARTITION BY g) FROM ws');
-- labels and partitions have to fit, points need not; one partition takes what it takes in WindowAgg, too
SET gkmeans.memory_limit = 18;
SELECT by_node('SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws') AS labels,
    by_node('SELECT kmeans(p, 3) OVER () FROM ws') AS one_partition;
SET gkmeans.memory_limit = 22;
SELECT by_node('SELECT kmeans(p, 3) OVER (PARTITION BY g) FROM ws') AS labels,
    by_node('SELECT kmeans(p, 3) OVER w + kmeans(r, 3) OVER w FROM ws WINDOW w AS (PARTITION BY g)') AS two_labels,
    by_node('SELECT kmeans(p, 3) OVER (PARTITION BY id) FROM ws') AS partitions;
SET gkmeans.memory_limit = -1;

-- rescans: the inner side of a join, with and without parameters
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
SELECT roads.* FROM roads('SELECT h, label, count(*) FROM generate_series(1, 3) h LEFT JOIN labelled l ON l.id % h = 0 GROUP BY 1, 2');
RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material;
-- work_mem that holds few rows
SET work_mem = '64kB';
SELECT roads.* FROM roads('SELECT *, repeat(t, 100), kmeans(p, 3) OVER (PARTITION BY g) FROM ws');
SELECT roads.* FROM roads('SELECT h, label, count(*) FROM generate_series(1, 3) h LEFT JOIN labelled l ON l.id % h = 0 GROUP BY 1, 2');
RESET work_mem;
-- threads, and partitions that are large enough for all of them
CREATE TABLE wl AS SELECT i, i % 3 AS g, i / 1000 AS h, hashint4(i) % 700 AS r, sin(i) + i % 4 AS x, cos(i * 7) AS y FROM generate_series(1, 100000) i;
ANALYZE wl;
SET gkmeans.threads = 3;
SELECT roads.* FROM roads('SELECT g, x, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY g) FROM wl');
SELECT roads.* FROM roads('SELECT g, x, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY g, x > 1) FROM wl');
RESET gkmeans.threads;
-- points over the limit, of one call and of several, in partitions of which most, some or none are in a run
SET gkmeans.memory_limit = '2MB';
SELECT roads.*, q FROM unnest(ARRAY[
    'SELECT g, x, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY g) FROM wl',
    'SELECT x, kmeans(ARRAY[x, y], 4) OVER w, kmeans(ARRAY[y, x, x * y], 2) OVER w FROM wl WINDOW w AS (PARTITION BY h)',
    'SELECT x, kmeans(CASE WHEN x > 1 THEN ARRAY[x, y, 3, 4, 5, 6] END, 4) OVER (PARTITION BY r) FROM wl'
]) WITH ORDINALITY u (q, at), roads(q) ORDER BY at;
SELECT kmeans(CASE WHEN i < 99999 THEN ARRAY[x, y, 3, 4, 5, 6] ELSE ARRAY[x] END, 4) OVER (PARTITION BY g) FROM wl;
RESET gkmeans.memory_limit;
-- columns of numbers, texts and both, with NULLs, in a file and in memory, read once and again
DO $$ BEGIN
    EXECUTE 'CREATE TABLE wn AS SELECT i, x, y, nullif(i % 3, 1)::smallint AS s, nullif(x > 1, true) AS b, nullif(i::text, ''7'') AS t, '
        || (SELECT string_agg(format('nullif(i %% %s, 1) AS c%s', n + 2, n), ', ') FROM generate_series(1, 65) n) || ' FROM wl WHERE i <= 9000';
END $$;
CREATE FUNCTION columns(n int) RETURNS text LANGUAGE sql AS $$ SELECT string_agg('c' || n, ', ') FROM generate_series(1, $1) n $$;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
CREATE VIEW keeping AS SELECT what, roads.* FROM unnest(ARRAY['one', 'numbers', 'texts', 'rescan', '64', '65'], ARRAY[
    'SELECT i, kmeans(ARRAY[x, y], 4) OVER () FROM wn',
    'SELECT b, i, x, y, s, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY s) FROM wn',
    'SELECT i, t, s, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY s) FROM wn',
    'SELECT n, l, count(*), count(s), sum(i) FROM generate_series(1, 3) n LEFT JOIN (SELECT i, s, kmeans(ARRAY[x, y], 4) OVER () AS l FROM wn) o ON i % n = 0 GROUP BY n, l',
    'SELECT ' || columns(64) || ', kmeans(ARRAY[x, y], 4) OVER () FROM wn',
    'SELECT ' || columns(65) || ', kmeans(ARRAY[x, y], 4) OVER () FROM wn'
]) u (what, q), roads(q);
SET work_mem = '64kB';
SELECT * FROM keeping;
SET work_mem = '16MB';
SELECT * FROM keeping;
RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material; RESET work_mem;
DROP VIEW keeping;
DROP FUNCTION columns;
DROP TABLE wn;
-- compiled expressions, where the server can
SET jit = on; SET jit_above_cost = 0;
SELECT roads.* FROM roads('SELECT i, x, kmeans(ARRAY[x * 2, y], 4) OVER (PARTITION BY g % 2) + 1 FROM wl');
RESET jit; RESET jit_above_cost;
-- rows of a parallel scan, in any order
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SELECT roads.* FROM roads('SELECT g, x, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY g) FROM wl');
EXPLAIN (COSTS OFF) SELECT g, x, kmeans(ARRAY[x, y], 4) OVER (PARTITION BY g) FROM wl;
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;
DROP TABLE wl;

-- prepared, with k as a parameter
PREPARE labels(int, float8[]) AS SELECT id, kmeans(p, $1, $2) OVER (PARTITION BY g) FROM ws ORDER BY id LIMIT 3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE labels(2, NULL);
EXECUTE labels(2, NULL);
EXECUTE labels(2, '{{0,0},{9,9}}');
EXECUTE labels(2, '{{9,9},{0,0}}');
EXECUTE labels(0, NULL);
SET plan_cache_mode = force_custom_plan;
EXECUTE labels(2, '{{9,9},{0,0}}');
RESET plan_cache_mode;
DEALLOCATE labels;
-- a parameter that is k, a key and a column
PREPARE labels(int, float8[]) AS SELECT id, $1, kmeans(p, $1, $2) OVER (PARTITION BY $1, $2), $2 FROM ws LIMIT 2;
SET plan_cache_mode = force_generic_plan;
SELECT by_node($$EXECUTE labels(2, '{{9,9},{0,0}}')$$);
EXECUTE labels(2, '{{9,9},{0,0}}');
EXECUTE labels(2, NULL);
RESET plan_cache_mode;
DEALLOCATE labels;

-- cursors
BEGIN;
DECLARE plain CURSOR FOR SELECT id, kmeans(p, 3) OVER () FROM ws WHERE id <= 5;
FETCH 2 FROM plain;
FETCH 2 FROM plain;
SAVEPOINT here;
UPDATE ws SET id = id WHERE CURRENT OF plain;
ROLLBACK TO here;
CLOSE plain;
DECLARE scroll SCROLL CURSOR FOR SELECT id, kmeans(p, 3) OVER () FROM ws WHERE id <= 5;
FETCH 3 FROM scroll;
FETCH BACKWARD 2 FROM scroll;
FETCH LAST FROM scroll;
DECLARE held CURSOR WITH HOLD FOR SELECT id, kmeans(p, 3) OVER () FROM ws WHERE id <= 5;
FETCH 1 FROM held;
COMMIT;
FETCH ALL FROM held;
CLOSE held;

-- written to a table
CREATE TABLE written (id int, label int);
INSERT INTO written SELECT id, kmeans(p, 3) OVER (PARTITION BY g) FROM ws;
UPDATE written w SET label = o.l FROM (SELECT id, kmeans(p, 3) OVER (PARTITION BY g) + 0 AS l FROM ws) o
WHERE o.id = w.id AND o.l IS DISTINCT FROM w.label;
SELECT count(*), count(label), sum(label * id) = (SELECT sum(l * id) FROM (SELECT id, kmeans(p, 3) OVER (PARTITION BY g) AS l FROM ws) o) AS same
FROM written;

-- bad input, as by WindowAgg
SELECT kmeans(p, 0) OVER (PARTITION BY g) FROM ws;
SELECT kmeans(p, NULL) OVER (PARTITION BY g) FROM ws;
SELECT kmeans(ARRAY[a / 0], 1) OVER () FROM ws;
SELECT kmeans(ARRAY[CASE WHEN id = 7 THEN 'NaN' ELSE a END], 1) OVER (PARTITION BY g) FROM ws;
SELECT kmeans(ARRAY[CASE WHEN id = 7 THEN 1e400 ELSE 1 END], 1) OVER (PARTITION BY g) FROM ws;
SELECT kmeans(ARRAY[p], 1) OVER () FROM ws;
SELECT kmeans(CASE WHEN id < 9 THEN p END || 1.0::float8, 1) OVER () FROM ws WHERE id % 2 = 0 OR id < 5;
SELECT kmeans(p, 2, '{{1},{2}}') OVER (PARTITION BY g) FROM ws;
SELECT kmeans(p, 3, '{{1,2},{2,3}}') OVER (PARTITION BY g) FROM ws;
SELECT kmeans(t, 2) OVER (PARTITION BY g) FROM ws;
-- the number of features is that of the partition
SELECT kmeans(x, 1) OVER (PARTITION BY cardinality(x)) FROM (VALUES (ARRAY[1, 2]), (ARRAY[1]), (ARRAY[3])) v (x);
SELECT kmeans(x, 1) OVER () FROM (VALUES (ARRAY[1, 2]), (ARRAY[1])) v (x);

-- functions around it: not for the node
CREATE FUNCTION plain_kmeans("any", int) RETURNS int AS '$libdir/gkmeans', 'kmeans_window' LANGUAGE C IMMUTABLE WINDOW;
SELECT roads.* FROM roads('SELECT id, plain_kmeans(p, 3) OVER (PARTITION BY g) FROM ws');
DROP FUNCTION plain_kmeans;
DROP VIEW labelled;
DROP FUNCTION roads, by_node;
DROP TABLE ws, written;
DROP DOMAIN point2, coordinate;
