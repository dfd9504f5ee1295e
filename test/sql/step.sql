-- kmeans_step: one Lloyd iteration as an aggregate, the same bits as the engine's

\set VERBOSITY terse
SET client_min_messages = warning;

-- 20,000 points around five centres, float4 and int columns among them
CREATE TABLE st (id int, a float8, b real, c int, w int);
INSERT INTO st SELECT i, 10 * (i % 5) + (hashint4(i) % 10007) / 5000.0,
    (i % 5) * (i % 5) + (hashint4(i + 100000) % 10007) / 3000.0, hashint4(i + 200000) % 1000, 1 + i % 7
FROM generate_series(1, 20000) i;
ANALYZE st;
\set start '{{0,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}'

-- centroids of a model in one array
CREATE FUNCTION cents(m kmeans_model) RETURNS text LANGUAGE sql AS
    'SELECT array_agg(centroid ORDER BY cluster)::text FROM kmeans_centroids(m)';
SELECT kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', max_iter => 1, tol => 0) AS m \gset

-- the loop written in SQL against kmeans_fit stopped after as many iterations
CREATE FUNCTION loop_against_fit(steps int) RETURNS TABLE (iteration int, same bool) LANGUAGE plpgsql AS $$
DECLARE
    start float8[] := '{{0,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}';
    m kmeans_model := kmeans_fit('st', '{a,b,c}', 6, centroids => start, max_iter => 1, tol => 0);
    f kmeans_model;
BEGIN
    FOR i IN 2 .. steps LOOP
        SELECT kmeans_step(m, a, b, c) INTO m FROM st;
        f := kmeans_fit('st', '{a,b,c}', 6, centroids => start, max_iter => i, tol => 0);
        RETURN QUERY SELECT (kmeans_info(m)).iterations, cents(m) = cents(f);
    END LOOP;
END $$;
SELECT * FROM loop_against_fit(8);

-- run to convergence, it is what kmeans_fit converges to
CREATE FUNCTION run_loop(m kmeans_model) RETURNS kmeans_model LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT (kmeans_info(m)).converged LOOP
        SELECT kmeans_step(m, a, b, c) INTO m FROM st;
    END LOOP;
    RETURN m;
END $$;
SELECT run_loop(:'m') AS r \gset
SELECT kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', tol => 0) AS f \gset
SELECT cents(:'r') = cents(:'f') AS centroids, i.inertia = j.inertia AS inertia, i.converged, j.converged,
    i.iterations - j.iterations AS more, i.rows_used, i.strategy
FROM kmeans_info(:'r') i, kmeans_info(:'f') j;
SELECT count(*), bool_and(a.size = b.size AND a.inertia = b.inertia AND a.radius = b.radius) AS same_statistics
FROM kmeans_centroids(:'r') a JOIN kmeans_centroids(:'f') b USING (cluster);

-- any form of the point, any order, any number of workers, partitions, parts
SELECT kmeans_step(:'m', a, b, c) AS s FROM st \gset
CREATE TABLE st_parts (LIKE st) PARTITION BY RANGE (id);
CREATE TABLE st_p1 PARTITION OF st_parts FOR VALUES FROM (0) TO (5000);
CREATE TABLE st_p2 PARTITION OF st_parts FOR VALUES FROM (5000) TO (12001);
CREATE TABLE st_p3 PARTITION OF st_parts FOR VALUES FROM (12001) TO (50000);
INSERT INTO st_parts SELECT * FROM st ORDER BY md5(id::text);
ANALYZE st_parts;
SELECT bool_and(s::text = :'s') AS same FROM (
    SELECT kmeans_step(:'m', ARRAY[a, b, c]) AS s FROM st UNION ALL
    SELECT kmeans_step(:'m', ARRAY[a, b, c] ORDER BY id DESC) FROM st UNION ALL
    SELECT kmeans_step(:'m', a, b::float8, c::bigint ORDER BY md5(id::text)) FROM st UNION ALL
    SELECT kmeans_step(:'m', a, b, c) FROM st_parts) o;
SELECT kmeans_step(:'m', ARRAY[a, b, c]::real[])::text = kmeans_step(:'m', a::real, b, c::real)::text AS real,
    kmeans_step(:'m', ARRAY[a, b, c]::int[])::text = kmeans_step(:'m', a::int, b::int, c)::text AS int,
    kmeans_step(:'m', ARRAY[a, b, c]::bigint[])::text = kmeans_step(:'m', a::int, b::int, c)::text AS bigint,
    kmeans_step(:'m', ARRAY[a, b, c]::smallint[])::text = kmeans_step(:'m', a::int, b::int, c)::text AS smallint,
    kmeans_step(:'m', ARRAY[a, b, c]::numeric[])::text = kmeans_step(:'m', a::numeric, b::numeric, c)::text AS numeric
FROM st;

CREATE TABLE models AS SELECT :'m'::kmeans_model AS m;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
ALTER TABLE st SET (parallel_workers = 4);
SET max_parallel_workers_per_gather = 4;
EXPLAIN (COSTS off) SELECT kmeans_step(:'m', ARRAY[a, b, c]) FROM st;
SELECT kmeans_step(:'m', a, b, c)::text = :'s' AS four FROM st;
SELECT kmeans_step((SELECT m FROM models), a, b, c)::text = :'s' AS model_from_table FROM st;
SELECT kmeans_finish(kmeans_step('st', '{a,b,c}', :'m'::kmeans_model))::text = :'s' AS relation;
SET max_parallel_workers_per_gather = 2;
SELECT kmeans_step(:'m', a, b, c)::text = :'s' AS two FROM st;
SET max_parallel_workers_per_gather = 1;
SELECT kmeans_step(:'m', a, b, c)::text = :'s' AS one FROM st;
SET max_parallel_workers_per_gather = 0;
SELECT kmeans_step(:'m', a, b, c)::text = :'s' AS none FROM st;
SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS off) SELECT kmeans_step(:'m', a, b, c) FROM st_parts;
SELECT kmeans_step(:'m', a, b, c)::text = :'s' AS partitionwise FROM st_parts;
RESET enable_partitionwise_aggregate;
RESET max_parallel_workers_per_gather;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- parts of several tables, carried as text, stored, sent
CREATE TABLE st_states (n int, s kmeans_state);
INSERT INTO st_states SELECT 1, kmeans_step('st_p1', '{a,b,c}', :'m'::kmeans_model);
INSERT INTO st_states SELECT 2, kmeans_step('st_p2', '{a,b,c}', m)::text::kmeans_state FROM models;
INSERT INTO st_states SELECT 3, kmeans_step_partial(m, ARRAY[a, b, c]) FROM st_p3, models;
SELECT kmeans_finish(kmeans_combine(s))::text = :'s' AS same,
    kmeans_combine(s)::text = kmeans_step('st', '{a,b,c}', :'m'::kmeans_model)::text AS same_bytes,
    kmeans_combine(s ORDER BY n DESC)::text = kmeans_combine(s::text::kmeans_state)::text AS any_order
FROM st_states;
SELECT current_setting('data_directory') || '/gkmeans_state.bin' AS file \gset
COPY st_states TO :'file' (FORMAT binary);
CREATE TABLE st_back (LIKE st_states);
COPY st_back FROM :'file' (FORMAT binary);
SELECT count(*), bool_and(a.s::text = b.s::text) AS same FROM st_states a JOIN st_back b USING (n);
COPY (SELECT WHERE false) TO :'file';

-- the iteration by hand: assign, Feature Sum, Mass Sum
WITH sums AS (
    SELECT kmeans_predict(:'m', a, b, c) AS cluster, feature_sum(a, b, c) AS f, count(*) AS n
    FROM st GROUP BY 1), spread AS (
    SELECT ARRAY[max(a) - min(a), max(b) - min(b), max(c) - min(c)] AS r FROM st)
SELECT count(*) AS clusters, bool_and(s.n = c.size) AS sizes,
    bool_and(abs(s.f[1] / n - t.centroid[1]) <= 1e-6 * r[1] AND abs(s.f[2] / n - t.centroid[2]) <= 1e-6 * r[2] AND
        abs(s.f[3] / n - t.centroid[3]) <= 1e-6 * r[3]) AS centroids
FROM sums s JOIN kmeans_centroids(:'s') t USING (cluster) JOIN kmeans_centroids(:'s') c USING (cluster), spread;

-- weights, and the other ways of preparing points
SELECT kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', max_iter => 1, tol => 0, weight_column => 'w') AS mw \gset
SELECT cents(kmeans_step(:'mw', ARRAY[a, b, c], w)) =
    cents(kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', max_iter => 2, tol => 0, weight_column => 'w')) AS weighted FROM st;
SELECT kmeans_finish(kmeans_step('st', '{a,b,c}', :'mw'::kmeans_model, 'w'))::text = kmeans_step(:'mw', ARRAY[a, b, c], w)::text AS relation FROM st;
SELECT kmeans_finish(kmeans_combine(s::text::kmeans_state))::text = (SELECT kmeans_step(:'mw', ARRAY[a, b, c], w)::text FROM st) AS combined
FROM (SELECT kmeans_step_partial(:'mw', ARRAY[a, b, c], w) AS s FROM st GROUP BY id % 3) o;
SELECT kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', max_iter => 1, tol => 0, standardize => true) AS ms \gset
SELECT cents(kmeans_step(:'ms', a, b, c)) =
    cents(kmeans_fit('st', '{a,b,c}', 6, centroids => :'start', max_iter => 2, tol => 0, standardize => true)) AS standardized FROM st;
SELECT kmeans_fit('st', '{a,b,c}', 3, centroids => '{{1,0,0},{0,1,0},{0,0,1}}', max_iter => 1, tol => 0, distance => 'cosine', nonfinite => 'skip') AS mc \gset
SELECT cents(kmeans_step(:'mc', a, b, c)) =
    cents(kmeans_fit('st', '{a,b,c}', 3, centroids => '{{1,0,0},{0,1,0},{0,0,1}}', max_iter => 2, tol => 0, distance => 'cosine', nonfinite => 'skip')) AS cosine
FROM st WHERE a <> 0 OR b <> 0 OR c <> 0;

-- the state of a relation, read as a fit's, is that of the aggregate: any type of column,
-- odd rows, little memory, threads, workers, SIMD, either road, partitions
CREATE TABLE odd (id int, a float8, b real, c int, n numeric, p float8[], q real[], w real);
INSERT INTO odd SELECT id, a, b, c, a::numeric, ARRAY[a, b, c], ARRAY[a, b, c]::real[], (w * 0.37)::real FROM st;
UPDATE odd SET b = NULL, p = NULL, q[2] = NULL, w = NULL WHERE id % 1000 = 7;
UPDATE odd SET w = 0 WHERE id % 1000 = 8;
-- outside of the box that the model was prepared for
UPDATE odd SET a = a * 1000, p[1] = a * 1000, q[1] = a * 1000 WHERE id % 300 = 9;
DELETE FROM odd WHERE id % 17 = 3;
CREATE TABLE odd_parts (LIKE odd) PARTITION BY RANGE (id);
CREATE TABLE odd_p1 PARTITION OF odd_parts FOR VALUES FROM (0) TO (7000);
CREATE TABLE odd_p2 PARTITION OF odd_parts FOR VALUES FROM (7000) TO (50000);
INSERT INTO odd_parts SELECT * FROM odd ORDER BY md5(id::text);
CREATE VIEW odd_view AS SELECT a, b, c FROM odd WHERE id < 3000;
CREATE FUNCTION states() RETURNS TABLE (what text, state text) LANGUAGE sql AS $$
    SELECT what, s::text FROM (
        SELECT 'columns', kmeans_step('odd', '{a,b,c}', m) FROM models UNION ALL
        SELECT 'numeric', kmeans_step('odd', '{n,b,c}', m) FROM models UNION ALL
        SELECT 'array', kmeans_step('odd', '{p}', m) FROM models UNION ALL
        SELECT 'real array', kmeans_step('odd', '{q}', m) FROM models UNION ALL
        SELECT 'weights', kmeans_step('odd', '{a,b,c}', m, 'w') FROM models UNION ALL
        SELECT 'partitions', kmeans_step('odd_parts', '{a,b,c}', m) FROM models UNION ALL
        SELECT 'view', kmeans_step('odd_view', '{a,b,c}', m) FROM models) o (what, s)
$$;
CREATE TEMP TABLE wanted AS SELECT what, s::text AS state FROM (
    SELECT 'columns', kmeans_step_partial(m, a, b, c) FROM odd, models UNION ALL
    SELECT 'numeric', kmeans_step_partial(m, n, b, c) FROM odd, models UNION ALL
    SELECT 'array', kmeans_step_partial(m, p) FROM odd, models UNION ALL
    SELECT 'real array', kmeans_step_partial(m, q) FROM odd, models UNION ALL
    SELECT 'weights', kmeans_step_partial(m, ARRAY[a, b, c], w) FROM odd, models UNION ALL
    SELECT 'partitions', kmeans_step_partial(m, a, b, c) FROM odd_parts, models UNION ALL
    SELECT 'view', kmeans_step_partial(m, a, b, c) FROM odd_view, models) o (what, s);
SELECT what, a.state = b.state AS same FROM states() a JOIN wanted b USING (what) ORDER BY 1;
SELECT i.rows_used, i.rows_skipped FROM wanted, kmeans_info(kmeans_finish(state::kmeans_state)) i WHERE what = 'weights';
SET gkmeans.memory_limit = '64kB';
SET gkmeans.threads = 3;
SET gkmeans.simd = scalar;
SELECT count(*), bool_and(a.state = b.state) AS little_memory FROM states() a JOIN wanted b USING (what);
RESET gkmeans.memory_limit;
RESET gkmeans.threads;
RESET gkmeans.simd;
SET gkmeans.reader = executor;
SELECT count(*), bool_and(a.state = b.state) AS executor FROM states() a JOIN wanted b USING (what);
RESET gkmeans.reader;
SET min_parallel_table_scan_size = 0;
SET gkmeans.workers = 2;
SELECT count(*), bool_and(a.state = b.state) AS workers FROM states() a JOIN wanted b USING (what);
RESET gkmeans.workers;
RESET min_parallel_table_scan_size;
SELECT kmeans_step('odd', '{a,b,c}', :'mc'::kmeans_model, nonfinite => 'skip')::text = kmeans_step_partial(:'mc', a, b, c)::text AS cosine,
    kmeans_step('odd', '{a,b,c}', :'ms'::kmeans_model)::text = kmeans_step_partial(:'ms', a, b, c)::text AS standardized FROM odd;
UPDATE odd SET a = 'NaN' WHERE id = 77;
SELECT kmeans_step('odd', '{a,b,c}', m) FROM models;
SELECT kmeans_step('odd', '{a,b,c}', m, nonfinite => 'skip')::text =
    (SELECT kmeans_step_partial(:'m', nullif(a, 'NaN'), b, c)::text FROM odd) AS skipped FROM models;
SELECT kmeans_step('odd', '{a,b,c}', m, nonfinite => 'perhaps') FROM models;
SELECT kmeans_step('odd', '{a,b,c}', m, device => 'perhaps') FROM models;
UPDATE odd SET a = 1e30 WHERE id = 77;
SELECT kmeans_step('odd', '{a,b,c}', m) FROM models;
SELECT kmeans_step('odd', '{a,b,c}', m, 'id') FROM models;
UPDATE odd SET a = 1, w = -1 WHERE id = 77;
SELECT kmeans_step('odd', '{a,b,c}', m, 'w') FROM models;
UPDATE odd SET b = NULL;
SELECT s IS NULL AS null, kmeans_finish(s) IS NULL AS finished, i.rows_skipped
FROM models, kmeans_step('odd', '{a,b,c}', m) s, kmeans_info(kmeans_finish(kmeans_state_combine(s, kmeans_step('odd_p1', '{a,b,c}', m)))) i;
DELETE FROM odd;
SELECT kmeans_step('odd', '{a,b,c}', m) IS NULL AS no_rows FROM models;
DROP VIEW odd_view;
DROP TABLE odd, odd_parts, wanted;
DROP FUNCTION states;

-- a group's step, NULLs, rows left out
SELECT g, i.rows_used, i.rows_skipped, i.iterations FROM (
    SELECT id % 3 AS g, kmeans_step(:'m', CASE WHEN id % 10 = 0 THEN NULL ELSE a END, b, c) AS s FROM st GROUP BY 1) o,
    kmeans_info(s) i ORDER BY g;
SELECT i.rows_used, i.rows_skipped FROM (SELECT kmeans_step(:'m', p) AS s FROM
    (VALUES (ARRAY[1, 2, 3]), (NULL), (ARRAY[4, NULL, 6])) v (p)) o, kmeans_info(s) i;
SELECT i.rows_used, i.rows_skipped FROM (SELECT kmeans_step(:'m', ARRAY[x, 0, 0], w) AS s FROM
    (VALUES (1, 1.5), (2, 0), (3, NULL)) v (x, w)) o, kmeans_info(s) i;
SELECT kmeans_step(:'m', a, b, c) IS NULL AS no_rows FROM st WHERE false;
SELECT kmeans_step(:'m', NULL::float8[]) IS NULL AS no_points FROM st;
SELECT kmeans_step(NULL::kmeans_model, a, b, c) IS NULL AS no_model FROM st;
SELECT kmeans_step('st_p1', '{a,b,c}', :'m'::kmeans_model) IS NULL AS state, kmeans_finish(NULL) IS NULL AS finished;

-- a cluster without points goes to the farthest point, as in the engine
CREATE TABLE few (x float8);
INSERT INTO few VALUES (0), (1), (2), (10), (11), (30);
SELECT kmeans_fit('few', '{x}', 2, max_iter => 1) AS m2 \gset
SELECT regexp_replace(regexp_replace(:'m2', '"k": 2, "k_asked": 2', '"k": 3, "k_asked": 3'),
    '"clusters": \[', '"clusters": [{"size": 0, "inertia": 0, "radius": 0, "centroid": [1000]}, ') AS m3 \gset
SELECT cluster, size, centroid FROM (SELECT kmeans_step(:'m3', x) AS s FROM few) o, kmeans_centroids(s);
SELECT i.converged, i.iterations FROM (SELECT kmeans_step(:'m3', x) AS s FROM few) o, kmeans_info(s) i;

-- points far outside of the range that the model was prepared for are exact as well
SELECT cluster, size, centroid FROM (SELECT kmeans_step(:'m2', x * 4096) AS s FROM few) o, kmeans_centroids(s);

-- bad input
SELECT kmeans_step(:'m', 1, 2);
SELECT kmeans_step(:'m', ARRAY[1, 2, 3, 4]);
SELECT kmeans_step(:'m', 1, 2, 'a'::text);
SELECT kmeans_step(:'m', ARRAY['1', '2']);
SELECT kmeans_step(:'m', 1, 2, 'NaN'::float8);
SELECT kmeans_step(:'m', ARRAY[1, '-infinity', 2]::float8[]);
SELECT kmeans_step(:'m', ARRAY[1, 2, 3], -1);
SELECT kmeans_step(:'mc', 0, 0, 0);
SELECT kmeans_step(:'m', 1e30::float8, 2, 3);
SELECT kmeans_step(CASE WHEN id = 7 THEN :'mw' ELSE :'m' END::kmeans_model, a, b, c) FROM st;
SELECT kmeans_step('st', '{a,b}', :'m'::kmeans_model);
SELECT kmeans_step('st', '{a,b,nope}', :'m'::kmeans_model);
SELECT kmeans_step('st', NULL, :'m'::kmeans_model);
SELECT kmeans_step_add(NULL, :'m', 1, 2, 3);
SELECT feature_sum_finish(kmeans_step('st', '{a,b,c}', :'m'::kmeans_model));
SELECT kmeans_combine(s) FROM (SELECT kmeans_step('st', '{a,b,c}', :'m'::kmeans_model) AS s UNION ALL SELECT kmeans_step('few', '{x}', :'m2'::kmeans_model)) o;
SELECT kmeans_combine(s) FROM (SELECT kmeans_step('st', '{a,b,c}', :'m'::kmeans_model) AS s UNION ALL SELECT kmeans_step('st', '{a,b,c}', :'mw'::kmeans_model)) o;
SELECT kmeans_combine(s) FROM (SELECT kmeans_step('st', '{a,b,c}', :'mw'::kmeans_model) AS s UNION ALL SELECT kmeans_step('st', '{a,b,c}', :'mw'::kmeans_model, 'w')) o;
SELECT kmeans_combine(s) FROM (SELECT kmeans_step('st', '{a,b,c}', :'m'::kmeans_model) AS s UNION ALL SELECT feature_sum_partial(1, 2)) o;

-- the relation is read with the caller's rights
CREATE ROLE gkmeans_step_user;
CREATE TABLE st_rls AS SELECT id, a, b, c FROM st;
ALTER TABLE st_rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY half ON st_rls USING (id <= 10000);
SET ROLE gkmeans_step_user;
SELECT kmeans_step('st_rls', '{a,b,c}', :'m'::kmeans_model);
RESET ROLE;
GRANT SELECT ON st_rls TO gkmeans_step_user;
SET ROLE gkmeans_step_user;
SELECT (kmeans_info(kmeans_finish(kmeans_step('st_rls', '{a,b,c}', :'m'::kmeans_model)))).rows_used;
RESET ROLE;
DROP TABLE st_rls;
DROP ROLE gkmeans_step_user;

-- damaged states: another version, cut off, wrong k, d, counts
SELECT kmeans_step('few', '{x}', :'m2'::kmeans_model) AS t \gset
SELECT overlay(:'t' PLACING '00000002' FROM 11)::kmeans_state;
SELECT left(:'t', length(:'t') - 10)::kmeans_state;
SELECT left(:'t', 60)::kmeans_state;
SELECT (:'t' || '0000')::kmeans_state;
SELECT overlay(:'t' PLACING '00000002' FROM 27)::kmeans_state;
SELECT overlay(:'t' PLACING '00000000' FROM 27)::kmeans_state;
SELECT overlay(:'t' PLACING '00000003' FROM 51)::kmeans_state;
SELECT overlay(:'t' PLACING '7fffffff' FROM 51)::kmeans_state;
SELECT overlay(:'t' PLACING '00000002' FROM 59)::kmeans_state;
SELECT overlay(:'t' PLACING '7fffffff' FROM 67)::kmeans_state;
-- no byte of it crashes the server
CREATE FUNCTION damage(t text) RETURNS TABLE (tried int, refused int) LANGUAGE plpgsql AS $$
DECLARE
    bytes bytea := decode(substr(t, 3), 'hex');
    bad int := 0;
BEGIN
    FOR i IN 0 .. length(bytes) - 1 LOOP
        BEGIN
            PERFORM kmeans_finish(('\x' || encode(set_byte(bytes, i, get_byte(bytes, i) # 85), 'hex'))::kmeans_state);
        EXCEPTION WHEN others THEN
            bad := bad + 1;
        END;
    END LOOP;
    RETURN QUERY SELECT length(bytes), bad;
END $$;
SELECT tried > 300 AS tried, refused > 50 AS refused FROM damage(:'t');

DROP TABLE st, st_parts, st_states, st_back, models, few;
DROP FUNCTION cents, loop_against_fit, run_loop, damage;
