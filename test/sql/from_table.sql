-- kmeans_from_table(): a model of the rows of a table of centroids
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE TABLE pts AS SELECT *, ARRAY[x, y] AS e FROM (SELECT i, sin(i) + i % 20 AS x, cos(i * 1.7) + i % 3 * 5 AS y FROM generate_series(1, 2000) i) p;
CREATE TABLE many AS SELECT * FROM kmeans('pts', '{e}', 60, label_column => 'label');

-- what kmeans() returned, and its labels
SELECT (SELECT array_agg(c ORDER BY cluster)::text FROM kmeans_centroids(kmeans_from_table('many')) c) = (SELECT array_agg(m ORDER BY cluster)::text FROM many m) AS rows,
       (SELECT count(*) FROM pts, kmeans_from_table('many') model WHERE kmeans_predict(model, e) <> label) AS by_array,
       (SELECT count(*) FROM pts, kmeans_from_table('many') model WHERE kmeans_predict(model, x, y) <> label) AS by_numbers,
       (SELECT count(*) FROM pts, kmeans_from_table('many') model, kmeans_nearest(model, e, 1) n WHERE n.cluster <> label) AS nearest;
SELECT cluster, round(distance::numeric, 6) AS distance FROM kmeans_from_table('many') model, kmeans_nearest(model, '{3,4}', 3);
SELECT k, d, columns, rows_used, iterations, converged, round(inertia) AS inertia, init, distance, standardize, nulls, device, total_ms
FROM kmeans_info(kmeans_from_table('many', '{x,y}'));
SELECT model = again AS same FROM (SELECT kmeans_from_table('many')::text AS model, kmeans_from_table('many')::text AS again) m;

-- points are prepared as those of a fit to the centroids
SELECT distance, bool_and(t.model -> 'preparation' = f.model -> 'preparation') AS preparation,
       bool_and((SELECT jsonb_agg(c -> 'centroid') FROM jsonb_array_elements(t.model -> 'clusters') c) =
                (SELECT jsonb_agg(c -> 'centroid') FROM jsonb_array_elements(f.model -> 'clusters') c)) AS centroids
FROM unnest('{euclidean,cosine,manhattan}'::text[]) distance,
    LATERAL (SELECT kmeans_from_table('many', distance => distance)::text::jsonb AS model) t,
    LATERAL (SELECT kmeans_fit('many', '{centroid}', 60, centroid_table => 'many', max_iter => 0, distance => distance)::text::jsonb AS model) f
GROUP BY distance ORDER BY distance;

-- the columns that points are in: one, or one for each feature
SELECT e.k, e.rows, round(e.inertia::numeric, 6) = (SELECT round(inertia::numeric, 6) FROM kmeans_info(kmeans_from_table('many'))) AS inertia,
       e.silhouette = v.silhouette AS silhouette, e.davies_bouldin = v.davies_bouldin AS davies_bouldin
FROM kmeans_evaluate(kmeans_from_table('many', '{x,y}'), 'pts') e, kmeans_evaluate(kmeans_from_table('many', columns => '{e}'), 'pts') v;
SELECT count(*) FILTER (WHERE l.cluster <> p.label) AS differ, count(*) AS rows
FROM kmeans_labels('pts', kmeans_from_table('many', '{e}')) l JOIN pts p ON p.tableoid = l.tableoid AND p.ctid = l.ctid;
SELECT count(*) FROM kmeans_anomalies('pts', kmeans_from_table('many', '{e}'), 0.01);

-- rows of anyone's, of any types, by a view of any names; their order is that of the numbers
CREATE SCHEMA "Other";
CREATE TABLE "Other"."Rows" ("Id" smallint, vector real[], size text);
INSERT INTO "Other"."Rows" VALUES (2, '{100,100}'), (1, '{5,5}'), (3, '{3,3}');
CREATE VIEW "Other".named AS SELECT "Id" - 1 AS cluster, vector AS centroid, size FROM "Other"."Rows";
SELECT cluster, size, centroid FROM kmeans_centroids(kmeans_from_table('"Other".named')) ORDER BY cluster;
SELECT kmeans_predict(model, 4, 4.5), kmeans_predict(model, 60, 60) FROM kmeans_from_table('"Other".named') model;
SELECT kmeans_predict(model, 4, 4.5), kmeans_distance(model, 60, 60)::numeric(8,6) FROM kmeans_from_table('"Other".named', distance => 'cosine') model;
SELECT round(inertia) AS inertia, rows FROM kmeans_evaluate(kmeans_from_table('"Other".named', '{e}'), 'pts');
-- such a model has seen no rows
SELECT feature, cluster, value, round(overall) AS overall, round(difference) AS difference FROM kmeans_explain(kmeans_from_table('"Other".named')) WHERE cluster = 1;
SELECT kmeans_distance(model, 5, 4) AS distance, kmeans_normalized_distance(model, 5, 4) AS normalized, kmeans_normalized_distance(model, 5, 5) AS at_the_centroid
FROM kmeans_from_table('"Other".named') model;
SELECT cluster, size, centroid FROM kmeans_centroids((SELECT kmeans_update(model, p) FROM kmeans_from_table('"Other".named') model, (VALUES (ARRAY[6, 7]), ('{8,9}')) v (p)));
CREATE DOMAIN small AS smallint;
CREATE VIEW line AS SELECT n::small AS cluster, 10.0 - n AS centroid FROM generate_series(0, 10) n;
SELECT cluster, centroid FROM kmeans_centroids(kmeans_from_table('line')) WHERE cluster > 8;
CREATE VIEW numerals AS SELECT n::text AS cluster, 10.0 - n AS centroid FROM generate_series(0, 10) n;
CREATE VIEW fractions AS SELECT n / 2.0 AS cluster, 10.0 - n AS centroid FROM generate_series(0, 1) n;
CREATE TABLE one AS SELECT 0 AS cluster, '{1e30,-7}'::float8[] AS centroid;
SELECT kmeans_predict(model, 1e30, 5) AS label, kmeans_distance(model, 1e30, -3) AS distance FROM kmeans_from_table('one') model;
DELETE FROM one;
INSERT INTO one VALUES (0, '{1,2}'), (1, '{1,2}'), (2, '{1,5}');
SELECT kmeans_predict(model, 0, 2) AS ties_to_the_first, kmeans_predict(model, 70, 4) AS third FROM kmeans_from_table('one') model;

-- what kmeans() says of each cluster, if it is there: numbers, or NULL
CREATE TABLE measured AS SELECT 0 AS cluster, '{1,2}'::float8[] AS centroid, 5::bigint AS size, NULL::float8 AS inertia, 3::float8 AS radius;
SELECT size, inertia, radius FROM kmeans_centroids(kmeans_from_table('measured'));
UPDATE measured SET size = -1;
SELECT kmeans_from_table('measured');
UPDATE measured SET size = NULL, radius = 'NaN';
SELECT kmeans_from_table('measured');

-- a view that has other rows each time: they are counted, then the centroids are read, then their sizes
CREATE FUNCTION next_count() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    counts int[] := current_setting('test.counts');
BEGIN
    PERFORM set_config('test.counts', counts[2:]::text, false);
    RETURN counts[1];
END $$;
CREATE VIEW changing AS SELECT n - 1 AS cluster, ARRAY[CASE WHEN n < 4 THEN n END]::float8[] AS centroid, 7::bigint AS size, 1::float8 AS inertia, 1::float8 AS radius
FROM generate_series(1, next_count()) n;
CREATE FUNCTION sizes_of(counts int[]) RETURNS bigint[] LANGUAGE sql AS $$
    SELECT set_config('test.counts', counts::text, false);
    SELECT array_agg(size) FROM kmeans_centroids(kmeans_from_table('changing'));
$$;
SELECT sizes_of('{2,2,2}');
SELECT sizes_of('{2,2,1}');
SELECT sizes_of('{2,1,2}');
SELECT sizes_of('{2,0,2}');
SELECT sizes_of('{2,3,2}');
SELECT sizes_of('{4,4,4}');
SET test.counts = '{2,3}';
SELECT size FROM kmeans('pts', '{x}', 2, centroid_table => 'changing');

-- a statement reads its own snapshot of the table, the next one the rows that there are then
PREPARE label AS SELECT kmeans_predict(kmeans_from_table('one'), 0, 2);
EXECUTE label;
UPDATE one SET cluster = 2 - cluster;
EXECUTE label;
-- PL/pgSQL keeps the call site from statement to statement, and what was undone was never there
CREATE FUNCTION label_of(p float8[]) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RETURN kmeans_predict(kmeans_from_table('one'), p);
END $$;
DO $$
BEGIN
    FOR i IN 1..3 LOOP
        RAISE NOTICE 'step %: %', i, label_of('{0,2}');
        UPDATE one SET cluster = (cluster + 1) % 3;
    END LOOP;
    BEGIN
        UPDATE one SET cluster = (cluster + 1) % 3;
        RAISE NOTICE 'before it is undone: %', label_of('{0,2}');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        RAISE NOTICE 'and after: %', label_of('{0,2}');
    END;
    ALTER TABLE one RENAME centroid TO other;
    ALTER TABLE one ADD centroid real[];
    UPDATE one SET centroid = ARRAY[cluster * 10, 2];
    RAISE NOTICE 'another column: %', label_of('{11,2}');
    TRUNCATE one;
    INSERT INTO one (cluster, centroid) VALUES (0, '{9}');
    RAISE NOTICE 'another row: %', label_of('{11}');
    DELETE FROM one;
    RAISE NOTICE 'none: %', label_of('{11}');
END $$;
DO $$
BEGIN
    CREATE TEMP TABLE fresh AS SELECT 0 AS cluster, 7 AS centroid;
    FOR i IN 1..2 LOOP
        RAISE NOTICE '%', kmeans_distance(kmeans_from_table('fresh'), 10);
        TRUNCATE fresh;
    END LOOP;
END $$;
CREATE FUNCTION all_labels() RETURNS TABLE (n bigint, "from" text, label int) LANGUAGE plpgsql AS $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT * FROM unnest('{many,"\"Other\".named",many,many}'::regclass[], '{euclidean,cosine,cosine,euclidean}'::text[]) WITH ORDINALITY u (rel, dist, n) LOOP
        n := t.n; "from" := t.rel || ' ' || t.dist; label := kmeans_predict(kmeans_from_table(t.rel, distance => t.dist), 4, 3); RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM all_labels();
SELECT bool_and((i.columns IS NULL) = (c IS NULL) AND coalesce(i.columns = c, true)) AS columns, count(*)
FROM (VALUES (NULL::text[]), ('{x,y}'), ('{e}'), ('{x,y}'), (NULL)) v (c), kmeans_info(kmeans_from_table('many', c)) i;
SELECT count(*) FILTER (WHERE kmeans_predict(kmeans_from_table('many'), e) <> label) AS differ FROM pts;
-- other rows at the same places, and other columns of the same rows, are others
CREATE TABLE place AS SELECT 0 AS cluster, 1.0 AS centroid, 9.0 AS other UNION ALL SELECT 1, 9.0, 1.0;
SELECT kmeans_predict(kmeans_from_table('place'), 8);
ALTER TABLE place RENAME centroid TO first;
ALTER TABLE place RENAME other TO centroid;
SELECT kmeans_predict(kmeans_from_table('place'), 8);
DELETE FROM place;
VACUUM place;
INSERT INTO place VALUES (0, NULL, 1.0), (1, NULL, 9.0);
SELECT kmeans_predict(kmeans_from_table('place'), 8);
BEGIN;
UPDATE place SET cluster = 1 - cluster;
SELECT kmeans_predict(kmeans_from_table('place'), 8);
ROLLBACK;
SELECT kmeans_predict(kmeans_from_table('place'), 8);
-- how often the table is scanned: for the versions of its rows and, if the session has not kept the model, for the numbers, the
-- centroids and the sizes; a view, which may compute, for each row
CREATE VIEW again AS TABLE many;
CREATE FUNCTION scans(query text, OUT labels bigint, OUT scans bigint) LANGUAGE plpgsql AS $$
DECLARE
    before bigint := pg_stat_get_xact_numscans('many'::regclass);
BEGIN
    EXECUTE query INTO labels;
    scans := pg_stat_get_xact_numscans('many'::regclass) - before;
END $$;
SELECT q, labels, scans FROM unnest(ARRAY[
    $$SELECT count(kmeans_predict(model, e)) FROM pts, kmeans_from_table('many') model$$,
    $$SELECT count(kmeans_predict((SELECT kmeans_from_table('again')), e)) FROM pts$$,
    $$SELECT count(kmeans_predict(kmeans_from_table('many'), e)) FROM pts$$,
    $$SELECT count(kmeans_predict(kmeans_from_table('again'), e)) FROM pts WHERE i <= 5$$,
    $$SELECT sum(n) FROM pts, LATERAL (SELECT count(*) AS n FROM kmeans_nearest(kmeans_from_table('many', '{e}', 'cosine'), e, 3)) n$$]) q, scans(q);
-- without memory to keep models in, a statement has them nonetheless
SET gkmeans.keep_memory = 0;
SELECT q, labels, scans FROM unnest(ARRAY[
    $$SELECT count(kmeans_predict(kmeans_from_table('many'), e)) FROM pts$$,
    $$SELECT count(kmeans_predict(kmeans_from_table('many'), e)) FROM pts$$,
    $$SELECT sum((kmeans_predict(kmeans_from_table('many'), e) = kmeans_predict(kmeans_from_table('many', '{e}'), e))::int + kmeans_predict(kmeans_from_table('place'), 8) - 1) FROM pts$$]) q, scans(q);
RESET gkmeans.keep_memory;
-- parallel workers get the model from the leader
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*) AS differ FROM pts WHERE kmeans_predict((SELECT kmeans_from_table('many')), e) <> label;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- errors, side by side
CREATE ROLE regress_from_table;
CREATE FUNCTION try(call text) RETURNS TABLE (state text, message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT ' || call;
    RETURN QUERY SELECT 'none', call, '';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
CREATE FUNCTION try_rows(rows text) RETURNS TABLE (state text, message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'CREATE OR REPLACE TEMP VIEW given AS SELECT column1::int AS cluster, column2::float8[] AS centroid FROM (VALUES ' || rows || ') v';
    RETURN QUERY SELECT * FROM try('kmeans_from_table(''given'', distance => ''cosine'')');
END $$;
CREATE TABLE empty (cluster int, centroid real[]);
CREATE TABLE words (cluster int, centroid text);
INSERT INTO words VALUES (0, 'a');
CREATE INDEX pts_i ON pts (i);
CREATE SEQUENCE numbers;
\pset format unaligned
SELECT t.* FROM unnest(ARRAY[
    $$kmeans_from_table('missing')$$, $$kmeans_from_table(0)$$, $$kmeans_from_table(NULL)$$, $$kmeans_from_table('pts_i')$$,
    $$kmeans_from_table('numbers')$$, $$kmeans_from_table('pts')$$, $$kmeans_from_table('"Other"."Rows"')$$, $$kmeans_from_table('empty')$$,
    $$kmeans_from_table('words')$$, $$kmeans_from_table('numerals')$$, $$kmeans_from_table('fractions')$$, $$kmeans_from_table('many', '{}')$$, $$kmeans_from_table('many', '{x,y,i}')$$, $$kmeans_from_table('many', '{x,NULL}')$$,
    $$kmeans_from_table('many', distance => 'euclid')$$, $$kmeans_from_table('many', distance => NULL)$$,
    $$kmeans_predict(kmeans_from_table('many'), '{1,2,3}')$$, $$kmeans_predict(kmeans_from_table('many'), 1, 'NaN'::float8)$$,
    $$kmeans_evaluate(kmeans_from_table('many'), 'pts')$$, $$kmeans_evaluate(kmeans_from_table('many', '{z}'), 'pts')$$,
    $$kmeans_evaluate(kmeans_from_table('many', '{i}'), 'pts')$$]) WITH ORDINALITY c (call, o), try(call) t ORDER BY o;
SELECT t.* FROM unnest(ARRAY[
    $$(0, '{1,2}'), (2, '{3,4}')$$, $$(1, '{1,2}'), (2, '{3,4}')$$, $$(0, '{1,2}'), (0, '{3,4}'), (2, '{5,6}')$$, $$(0, '{1,2}'), (NULL, '{3,4}')$$,
    $$(-1, '{1,2}'), (0, '{3,4}')$$, $$(0, '{1,2}'), (1, NULL)$$, $$(0, '{1,2}'), (1, '{3,NULL}')$$, $$(0, '{1,2}'), (1, '{3,NaN}')$$,
    $$(0, '{1,2}'), (1, '{-Infinity,4}')$$, $$(0, '{1,2}'), (1, '{0,0}')$$, $$(0, '{1,2}'), (1, '{3,4,5}')$$, $$(0, '{}')$$,
    $$(0, '{{1,2},{3,4}}')$$]) WITH ORDINALITY c (rows, o), try_rows(rows) t ORDER BY o;
SET ROLE regress_from_table;
SELECT * FROM try($$kmeans_from_table('many')$$);
RESET ROLE;
-- what another role has read at this place stays its own
DO $$
DECLARE
    label int;
BEGIN
    FOR i IN 1..2 LOOP
        label := kmeans_predict(kmeans_from_table('many'), '{3,4}');
        RAISE NOTICE '%: %', current_user = 'regress_from_table', label;
        SET LOCAL ROLE regress_from_table;
    END LOOP;
END $$;
GRANT SELECT (cluster, centroid) ON many TO regress_from_table;
SET ROLE regress_from_table;
SELECT * FROM try($$kmeans_from_table('many')$$);
RESET ROLE;
GRANT SELECT ON many TO regress_from_table;
ALTER TABLE many ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON many USING (cluster < 7);
SET ROLE regress_from_table;
SELECT k FROM kmeans_info(kmeans_from_table('many'));
RESET ROLE;
-- a schema that the role may not use, known by its number: also where the session has the model
CREATE SCHEMA closed;
CREATE TABLE closed.few AS SELECT n AS cluster, ARRAY[n, 1.0] AS centroid FROM generate_series(0, 2) n;
GRANT SELECT ON closed.few TO regress_from_table;
DO $$
DECLARE
    few oid := 'closed.few'::regclass;
    k int;
BEGIN
    FOR i IN 1..2 LOOP
        SELECT i.k INTO k FROM kmeans_info(kmeans_from_table(few)) i;
        RAISE NOTICE '%: %', current_user = 'regress_from_table', k;
        SET LOCAL ROLE regress_from_table;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE '%', sqlerrm;
END $$;
-- no more than a value holds
CREATE TABLE one_wide (centroid real[]);
ALTER TABLE one_wide ALTER centroid SET STORAGE EXTERNAL;
INSERT INTO one_wide SELECT array_fill(0.5::real, '{16384}');
CREATE VIEW wide AS SELECT n AS cluster, centroid FROM one_wide, generate_series(0, 2499) n;
SELECT * FROM try($$kmeans_from_table('wide')$$);
CREATE VIEW long AS SELECT n AS cluster, 1 AS centroid FROM generate_series(0, 1000000) n;
SELECT * FROM try($$kmeans_from_table('long')$$);
\pset format aligned
DROP OWNED BY regress_from_table;
DROP ROLE regress_from_table;
DROP SCHEMA "Other", closed CASCADE;
DROP VIEW again, line, numerals, fractions, wide, long, given, changing;
DROP DOMAIN small;
DROP TABLE pts, many, one, place, empty, words, one_wide;
DROP SEQUENCE numbers;
DROP FUNCTION label_of, all_labels, scans, try, try_rows, next_count, sizes_of;
