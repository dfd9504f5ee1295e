-- Predicting with a model: kmeans_predict, kmeans_distance, kmeans_transform.

-- Centroids (0,0), (10,0), (0,10).  The text is as an ordinary fit writes it:
-- points up to about 1000 are scaled by 2^40.
CREATE FUNCTION model(clusters jsonb, patch jsonb DEFAULT '{}') RETURNS kmeans_model LANGUAGE sql IMMUTABLE AS $$
    SELECT (jsonb_build_object('version', 1, 'k', jsonb_array_length(clusters), 'k_asked', jsonb_array_length(clusters),
        'd', jsonb_array_length(clusters->0), 'columns', '[]'::jsonb, 'columns_array', false,
        'distance', 'euclidean', 'standardize', false, 'init', 'random', 'seed', 0, 'rows_used', 0, 'rows_skipped', 0,
        'iterations', 0, 'converged', true, 'inertia', 0,
        'clusters', (SELECT jsonb_agg(jsonb_build_object('size', 1, 'inertia', 0, 'radius', 0, 'centroid', c) ORDER BY o)
                     FROM jsonb_array_elements(clusters) WITH ORDINALITY e (c, o)),
        'preparation', jsonb_build_object(
            'center', (SELECT jsonb_agg(0) FROM jsonb_array_elements(clusters->0)),
            'scale', (SELECT jsonb_agg(1099511627776) FROM jsonb_array_elements(clusters->0)),
            'expo', (SELECT jsonb_agg(50) FROM jsonb_array_elements(clusters->0)), 'unit_exp', 40),
        'history', '{"inertia": [], "shift": []}'::jsonb, 'device', 'cpu', 'strategy', 'single_pass',
        'load_ms', 0, 'seed_ms', 0, 'iterate_ms', 0, 'total_ms', 0) || patch)::text::kmeans_model
$$;
CREATE TABLE models (name text, m kmeans_model);
INSERT INTO models VALUES
    ('corners', model('[[0, 0], [10, 0], [0, 10]]')),
    ('named', model('[[0, 0], [10, 0], [0, 10]]', '{"columns": ["width", "height"]}')),
    ('line', model('[[0], [10]]')),
    ('cosine', model('[[1, 0], [0, 1]]', '{"distance": "cosine", "preparation": {"center": [0, 0],
        "scale": [1125899906842624, 1125899906842624], "expo": [50, 50], "unit_exp": 50}}'));
SELECT m::text AS m FROM models WHERE name = 'corners' \gset

SELECT kmeans_predict(m, x, y), kmeans_distance(m, x, y), kmeans_transform(m, x, y)
FROM models, (VALUES (0, 0), (4, 0), (5, 0), (6, 0), (5, 5), (0, 9), (-3, 4), (10, 7)) v (x, y) WHERE name = 'corners';
-- 1 - cosine
SELECT x::float8, y::float8, kmeans_predict(m, x, y), round(kmeans_distance(m, x, y)::numeric, 6) AS distance,
    (SELECT array_agg(round(t::numeric, 6)) FROM unnest(kmeans_transform(m, x, y)) t) AS transform
FROM models, (VALUES (1, 0), (5, 0), (1, 1), (1, 2), (-1, 0), (1e-300, 1e-300), (1e300, 1e299)) v (x, y) WHERE name = 'cosine';

-- every way to give a point
SELECT kmeans_predict(m, ARRAY[9, 1]) AS int4, kmeans_predict(m, ARRAY[9, 1]::smallint[]) AS int2,
    kmeans_predict(m, ARRAY[9, 1]::bigint[]) AS int8, kmeans_predict(m, ARRAY[9, 1.5]) AS num,
    kmeans_predict(m, ARRAY[9, 1]::real[]) AS float4, kmeans_predict(m, ARRAY[9, 1]::float8[]) AS float8,
    kmeans_predict(m, '{9,1}') AS literal, kmeans_predict(m, ' [0:1]={9,1}') AS bounds,
    kmeans_predict(m, VARIADIC ARRAY[9, 1]) AS variadic, kmeans_predict(m, VARIADIC '{9,1}'::numeric[]) AS variadic_num
FROM models WHERE name = 'corners' \gx
SELECT kmeans_predict(m, 9, 1) AS ints, kmeans_predict(m, 9.5, 1) AS num, kmeans_predict(m, 9::smallint, 1::bigint) AS ints2,
    kmeans_predict(m, 9::real, 1::float8) AS floats, kmeans_predict(m, '9', ' 1e0 ') AS literals, kmeans_predict(m, 9, '1') AS mixed
FROM models WHERE name = 'corners' \gx
SELECT kmeans_distance(m, '{3,4}') AS d1, kmeans_distance(m, 3, 4) AS d2, kmeans_distance(m, ARRAY[3, 4.0]) AS d3,
    kmeans_transform(m, '{3,4}') AS t1, kmeans_transform(m, 3, 4) AS t2, kmeans_transform(m, ARRAY[3, 4]) AS t3
FROM models WHERE name = 'corners' \gx
-- a text literal is a model too; one feature
SELECT kmeans_predict(:'m', 9, 1), kmeans_predict(:'m', '{9,1}'), kmeans_predict(:'m', ARRAY[9, 1]);
SELECT kmeans_predict(m, 7), kmeans_predict(m, 7.5), kmeans_predict(m, '7'), kmeans_predict(m, '{7}'), kmeans_predict(m, ARRAY[7])
FROM models WHERE name = 'line';
-- a literal as pgvector writes it, in its precision
SELECT kmeans_predict(m, '[9,1]'), kmeans_distance(m, E' [ 0.1 ,0\n] ') = kmeans_distance(m, '{0.1,0}'::real[]) AS as_real,
    kmeans_distance(m, '{0.1,0}') = kmeans_distance(m, '{0.1,0}'::float8[]) AS as_float8 FROM models WHERE name = 'corners';
-- domains; a type with a cast to real[], as pgvector's types have
CREATE DOMAIN metres AS float8;
CREATE DOMAIN place AS int[];
CREATE TYPE pair AS (a real, b real);
CREATE FUNCTION pair_to_real(pair) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN $1.a >= 0 THEN ARRAY[$1.a, $1.b] END';
CREATE CAST (pair AS real[]) WITH FUNCTION pair_to_real AS IMPLICIT;
SELECT kmeans_predict(m, 9::metres, 1::metres), kmeans_predict(m, ARRAY[9::metres, 1]), kmeans_predict(m, '{9,1}'::place),
    kmeans_predict(m, (9, 1)::pair), kmeans_predict(m, (-1, 1)::pair) IS NULL AS null_cast
FROM models WHERE name = 'corners';
REVOKE EXECUTE ON FUNCTION pair_to_real FROM public;
CREATE ROLE regress_gkmeans_predict;
GRANT SELECT ON models TO regress_gkmeans_predict;
SET ROLE regress_gkmeans_predict;
SELECT kmeans_predict(m, (9, 1)::pair) FROM models WHERE name = 'corners';
RESET ROLE;
DROP OWNED BY regress_gkmeans_predict;
DROP ROLE regress_gkmeans_predict;

-- NULLs
SELECT kmeans_predict(NULL, 1, 2) IS NULL, kmeans_predict(m, NULL) IS NULL, kmeans_predict(m, NULL::int[]) IS NULL,
    kmeans_predict(m, 1, NULL) IS NULL, kmeans_predict(m, ARRAY[1, NULL]) IS NULL, kmeans_predict(m, '{NULL,1}') IS NULL,
    kmeans_predict(m, ARRAY[NULL, 1.5]) IS NULL, kmeans_distance(m, '{1,NULL}') IS NULL, kmeans_transform(m, '{1,NULL}') IS NULL
FROM models WHERE name = 'corners';
-- what is refused
\set VERBOSITY sqlstate
SELECT kmeans_predict(m, 'NaN', 1) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 1) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 0, 0) FROM models WHERE name = 'cosine';
SELECT kmeans_predict(m, 'x'::text) FROM models WHERE name = 'corners';
\set VERBOSITY terse
SELECT kmeans_predict(m, ARRAY[1, 'NaN'::float8]) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY[1, 'NaN'::float8]) FROM models WHERE name = 'named';
SELECT kmeans_predict(m, 1, 'Infinity'::real) FROM models WHERE name = 'named';
SELECT kmeans_predict(m, '-Infinity'::float8, 1) FROM models WHERE name = 'named';
SELECT kmeans_predict(m, 1, 1e400) FROM models WHERE name = 'named';
SELECT kmeans_predict(m, 1, 'NaN'::numeric) FROM models WHERE name = 'named';
SELECT kmeans_distance(m, '{NaN,1}') FROM models WHERE name = 'named';
SELECT kmeans_transform(m, '{1,Infinity}') FROM models WHERE name = 'named';
SELECT kmeans_predict(m, '{1,1e400}') FROM models WHERE name = 'named';
SELECT kmeans_predict(m, 1) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 1, 2, 3) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '{}') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY[]::int[]) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '{1,2,NULL}') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY[[1, 2]]) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY(SELECT generate_series(1, 16385))) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '0', 0) FROM models WHERE name = 'cosine';
SELECT kmeans_predict(m, 'x', 'y') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 'x') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '{x,y}') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[x,y]') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[1,2') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[]') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[1,2,3]') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[1,NaN]') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, '[1e99,1]') FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 'x'::text) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY['1', '2']) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, 1, true) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, ARRAY[1, 2], ARRAY[3, 4]) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m, row(1, 2)) FROM models WHERE name = 'corners';
SELECT kmeans_predict(m) FROM models WHERE name = 'corners';
SELECT kmeans_predict('{}', 1, 2);
\set VERBOSITY default

-- far outside the fit's range
SELECT kmeans_predict(m, x, 0) BETWEEN 0 AND 2 AS label, kmeans_distance(m, x, 0) > 900 AS distance
FROM models, unnest(ARRAY[1e3, -1e3, 1e4]) x WHERE name = 'corners';
SELECT kmeans_predict(m, 1e100, 0) FROM models WHERE name = 'corners';
SELECT kmeans_distance(m, -1e308, 0) FROM models WHERE name = 'corners';
SELECT kmeans_transform(m, 1.7e308, 0) FROM models WHERE name = 'corners';

-- The kept model is the right one: models that change from row to row, stored in
-- line, out of line, compressed, and in PL/pgSQL, which keeps a call site while
-- its variables change.
CREATE TABLE many (id int, m kmeans_model);
INSERT INTO many SELECT i, model(CASE WHEN i % 2 = 0 THEN '[[0, 0], [10, 0]]' ELSE '[[10, 0], [0, 0]]' END::jsonb) FROM generate_series(1, 4) i;
INSERT INTO many SELECT 10 + i, model((SELECT jsonb_agg(jsonb_build_array(10 * ((i + g) % 100), 0) ORDER BY g) FROM generate_series(0, 99) g))
FROM generate_series(1, 4) i;
SELECT id < 10 AS in_line, pg_column_size(m) > 2000 AS large FROM many GROUP BY 1, 2 ORDER BY 1, 2;
SELECT id, kmeans_predict(m, 9, 1) AS nine, kmeans_predict(m, 51, 1) AS fifty
FROM many, generate_series(1, 2) g ORDER BY g, id;
SELECT id, kmeans_predict(m, 9, 1) AS nine, kmeans_predict(m, 51, 1) AS fifty
FROM (SELECT * FROM many ORDER BY id OFFSET 0) many, generate_series(1, 2) g ORDER BY id, g;
CREATE TABLE compressed (LIKE many);
ALTER TABLE compressed ALTER m SET STORAGE MAIN;
INSERT INTO compressed SELECT id, m::text::kmeans_model FROM many;
SELECT id < 10 AS small, avg(pg_column_size(m) / pg_column_size(m::text::kmeans_model)::float8) < 0.9 AS compressed
FROM compressed GROUP BY 1 ORDER BY 1;
SELECT id, count(*), array_agg(DISTINCT kmeans_predict(c.m, 9, 1) - kmeans_predict(m.m, 9, 1)) AS difference
FROM compressed c JOIN many m USING (id), generate_series(1, 2) g GROUP BY id ORDER BY id;
SELECT count(*), count(DISTINCT kmeans_predict((SELECT m FROM many WHERE id = 11), g, 0)) FROM generate_series(1, 2000) g;
CREATE FUNCTION labels() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    model kmeans_model;
    labels text := '';
BEGIN
    FOR model IN SELECT m FROM many ORDER BY id LOOP
        labels := labels || ' ' || kmeans_predict(model, 9, 1);
    END LOOP;
    RETURN labels;
END $$;
SELECT labels();
PREPARE prepared (kmeans_model, float8[]) AS SELECT kmeans_predict($1, $2), kmeans_predict($1, $2[1], $2[2]);
SELECT a.m::text AS a, b.m::text AS b FROM many a, many b WHERE a.id = 1 AND b.id = 2 \gset
SET plan_cache_mode = force_generic_plan;
EXECUTE prepared (:'a', '{9,1}');
EXECUTE prepared (:'b', '{9,1}');
RESET plan_cache_mode;

-- the same label as the definition: smallest distance, ties to the lowest number
CREATE TABLE points AS SELECT g AS id, (g * 7919 % 2003) / 100.0::float8 AS x, (g * 104729 % 1999) / 100.0::float8 AS y FROM generate_series(1, 2000) g;
SELECT count(*) AS points, count(*) FILTER (WHERE kmeans_predict(m, x, y) = array_position(t, least) - 1) AS labels,
    count(*) FILTER (WHERE kmeans_distance(m, x, y) = least) AS distances,
    count(*) FILTER (WHERE abs(t[2] - sqrt((x - 10) ^ 2 + y ^ 2)) < 1e-5) AS near
FROM (SELECT m, x, y, t, (SELECT min(u) FROM unnest(t) u) AS least
      FROM points, models, kmeans_transform(m, x, y) t WHERE name = 'corners') s;

-- in a generated column, an index, and parallel workers
CREATE TABLE generated (x float8, y float8);
INSERT INTO generated SELECT x, y FROM points;
SELECT format('ALTER TABLE generated ADD label int GENERATED ALWAYS AS (kmeans_predict(%L::kmeans_model, x, y)) STORED', :'m') \gexec
CREATE INDEX ON generated (label);
SELECT count(*), count(*) FILTER (WHERE label = kmeans_predict(:'m', x, y)) AS equal FROM generated;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        RETURN QUERY SELECT substring(line FROM '(Gather|Parallel Seq Scan|Partial Aggregate)');
    END LOOP;
END $$;
SELECT plan FROM plan(format('SELECT sum(kmeans_predict(%L::kmeans_model, x, y)) FROM points', :'m')) WHERE plan IS NOT NULL;
SELECT sum(kmeans_predict(:'m'::kmeans_model, x, y)) = (SELECT sum(label) FROM generated) AS equal FROM points;

DROP TABLE models, many, compressed, points, generated;
DROP CAST (pair AS real[]);
DROP FUNCTION model, labels, plan, pair_to_real;
DROP TYPE pair;
DROP DOMAIN metres, place;

-- points so far out that float32 has no distance for them: an error, everywhere alike
CREATE TABLE narrow (a float8);
INSERT INTO narrow VALUES (0), (1);
CREATE TABLE wide AS SELECT * FROM (VALUES (0::float8), (1e18), (1e20)) v (a);
SELECT kmeans_fit('narrow', '{a}', 2) AS far \gset
SELECT kmeans_fit('narrow', '{a}', 2, distance => 'manhattan') AS away \gset
SELECT kmeans_fit('narrow', '{a}', 2, max_iter => 0, centroids => '{{0},{1e25}}') AS apart \gset
SELECT kmeans_predict(:'far', 1e18), round(kmeans_distance(:'far', 1e18) / 1e18) AS d, kmeans_predict(:'away', 1e37);
SELECT kmeans_predict(:'far', 1e20);
SELECT kmeans_distance(:'far', -1e20);
SELECT kmeans_normalized_distance(:'far', 1e20);
SELECT kmeans_transform(:'apart', 1);
SELECT kmeans_memberships(:'apart', 1);
SELECT * FROM kmeans_nearest(:'apart', 1::float8, 1);
SELECT * FROM kmeans_nearest(:'apart', 1::float8, 2);
SELECT kmeans_distance(:'away', 1e39);
SELECT count(*) FROM kmeans_labels('wide', :'far'::kmeans_model);
SELECT count(*) FROM kmeans_labels('wide', :'away'::kmeans_model);
SELECT count(*) FROM kmeans_anomalies('wide', :'far'::kmeans_model);
SET gkmeans.strategy = 'scan';
SELECT count(*) FROM kmeans_labels('wide', :'far'::kmeans_model);
RESET gkmeans.strategy;
DELETE FROM wide WHERE a > 1e18;
SELECT count(*) FROM kmeans_labels('wide', :'far'::kmeans_model);
-- one number that is NULL, where the model has a mean for it
INSERT INTO narrow VALUES (NULL);
SELECT a, kmeans_predict(m, a), n.* FROM narrow, kmeans_fit('narrow', '{a}', 2, nulls => 'mean') m, kmeans_nearest(m, a, 1) n ORDER BY a;
DROP TABLE narrow, wide;
