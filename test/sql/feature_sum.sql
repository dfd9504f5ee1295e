-- feature_sum: exact sums in any order, as an ordinary aggregate, in windows, in parts

\set VERBOSITY terse

-- every kind of point
SELECT feature_sum(ARRAY[1.5, x]::float8[]) AS float8, feature_sum(ARRAY[1.5, x]::real[]) AS real,
    feature_sum(ARRAY[1, x]) AS int, feature_sum(ARRAY[1, x]::bigint[]) AS bigint,
    feature_sum(ARRAY[1, x]::smallint[]) AS smallint, feature_sum(ARRAY[1.5, x]) AS numeric,
    feature_sum(1.5, x) AS columns
FROM generate_series(1, 10) x;
SELECT feature_sum(x::numeric, x::int2, x::int8, x::float4, x::float8, x::int4) FROM generate_series(1, 4) x;
SELECT feature_sum(x) AS one FROM generate_series(1, 4) x;

-- exact where a running float8 sum is not, and the same in any order
CREATE TABLE fs (id int, x float8);
INSERT INTO fs SELECT i, sin(i) * 10.0 ^ (i % 40 - 20) FROM generate_series(1, 1000) i;
INSERT INTO fs SELECT i + 1000, -x FROM fs, LATERAL (SELECT id AS i) y;
INSERT INTO fs VALUES (0, 1e-300), (5000, 4.9e-324);
SELECT feature_sum(x) FROM fs;
SELECT count(DISTINCT s) FROM (
    SELECT feature_sum(x ORDER BY id) AS s FROM fs UNION ALL
    SELECT feature_sum(x ORDER BY id DESC) FROM fs UNION ALL
    SELECT feature_sum(x ORDER BY abs(x)) FROM fs UNION ALL
    SELECT feature_sum(x ORDER BY md5(id::text)) FROM fs) o;
SELECT feature_sum(x) FROM (VALUES (1e308::float8), (1e308), (-1e308), (-1e308), (3)) v (x);

-- correctly rounded: 0.1 is not 1/10
SELECT feature_sum(x) = ARRAY[(SELECT sum(x::numeric)::float8 FROM generate_series(1, 1000) i, LATERAL (SELECT i::float8 * 0.5 AS x) y)] AS same
FROM generate_series(1, 1000) i, LATERAL (SELECT i::float8 * 0.5 AS x) y;
SELECT feature_sum(0.1::float8) AS ten_times_0_1, sum(0.1::float8) AS rounded_each_time FROM generate_series(1, 10);
SELECT feature_sum(x) FROM (VALUES (1::float8), (1.1102230246251565e-16)) v (x);
SELECT feature_sum(x) FROM (VALUES (1::float8), (1.1102230246251565e-16), (4.9e-324)) v (x);

-- NULLs: a row with one is left out; no rows, no sum
SELECT feature_sum(x, y) FROM (VALUES (1, 2), (NULL, 3), (4, NULL), (5, 6)) v (x, y);
SELECT feature_sum(p) FROM (VALUES (ARRAY[1, 2]), (NULL), (ARRAY[3, NULL]), ('{5,6}')) v (p);
SELECT feature_sum(x) IS NULL AS all_null FROM (VALUES (NULL::float8), (NULL)) v (x);
SELECT feature_sum(x) IS NULL AS no_rows FROM fs WHERE false;
SELECT g, feature_sum(x, y) FROM (VALUES (1, 1, 2), (2, NULL, 3), (1, 3, 4)) v (g, x, y) GROUP BY g ORDER BY g;

-- weights: products are exact too
SELECT feature_sum(ARRAY[x, 2], w) FROM (VALUES (1, 3), (10, 0), (100, NULL), (1000, 0.5)) v (x, w);
SELECT feature_sum(ARRAY[x], w) FROM (VALUES
    (1.0000000000000002::float8, 1.0000000000000002::float8), (-1.0000000000000004, 1)) v (x, w);
SELECT feature_sum(ARRAY[x]::real[], 2) FROM generate_series(1, 4) x;

-- windows: rows that leave the frame are taken out exactly
SELECT x, sum(x) OVER w AS float8_sum, feature_sum(x) OVER w AS feature_sum
FROM (VALUES (1, 1e20::float8), (2, 1), (3, NULL), (4, 2), (5, -1e20), (6, 3), (7, NULL), (8, NULL), (9, 7)) v (id, x)
WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW);
SELECT feature_sum(ARRAY[x], w) OVER (ORDER BY x ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
FROM (VALUES (1::float8, 0.1::float8), (2, 0.2), (3, NULL), (4, 0.4), (5, 0)) v (x, w);
SELECT count(*) AS different FROM (
    SELECT feature_sum(x) OVER w AS moving,
        (SELECT feature_sum(b.x) FROM fs b WHERE b.id BETWEEN a.id - 3 AND a.id + 3) AS fresh
    FROM fs a WINDOW w AS (ORDER BY id RANGE BETWEEN 3 PRECEDING AND 3 FOLLOWING)) o
WHERE moving IS DISTINCT FROM fresh;

-- a frame whose earlier points, of another length, have all left
SELECT id, feature_sum(p) OVER w AS feature_sum, feature_sum(p, 1) OVER w AS weighted
FROM (VALUES (1, '{1,2}'::float8[]), (2, NULL), (3, '{1,2,3}'), (4, NULL), (5, '{7}')) v (id, p) WINDOW w AS (ORDER BY id ROWS 1 PRECEDING);
SELECT feature_sum(p) OVER (ORDER BY id ROWS 1 PRECEDING) FROM (VALUES (1, '{1,2}'::float8[]), (2, '{1,2,3}')) v (id, p);

-- parts: any split gives the same state, and states go through text and binary
CREATE TABLE fs_parts AS SELECT id % 7 AS g, feature_sum_partial(x, -x) AS s FROM fs GROUP BY 1;
SELECT feature_sum_finish(kmeans_combine(s::text::kmeans_state)) = (SELECT feature_sum(x, -x) FROM fs) AS same FROM fs_parts;
SELECT kmeans_combine(s)::text = (SELECT feature_sum_partial(x, -x)::text FROM fs) AS same_bytes FROM fs_parts;
SELECT current_setting('data_directory') || '/gkmeans_state.bin' AS file \gset
COPY fs_parts TO :'file' (FORMAT binary);
CREATE TABLE fs_back (LIKE fs_parts);
COPY fs_back FROM :'file' (FORMAT binary);
SELECT count(*), bool_and(a.s::text = b.s::text) AS same FROM fs_parts a JOIN fs_back b USING (g);
COPY (SELECT WHERE false) TO :'file';
SELECT feature_sum_partial(x) FROM (VALUES (2::float8), (1), (-3)) v (x);
SELECT feature_sum_partial(x) FROM (VALUES (2::float8), (1), (-4)) v (x);
SELECT feature_sum_finish(kmeans_combine(s)) FROM (SELECT feature_sum_partial(ARRAY[x], x) AS s FROM generate_series(1, 9) x
    UNION ALL SELECT NULL UNION ALL SELECT feature_sum_partial(x) FROM fs WHERE false) o;
SELECT feature_sum_finish(kmeans_state_combine(a.s, b.s)) = feature_sum_finish(kmeans_state_combine(b.s, a.s)) AS either_way,
    a.s::text = a_before AS untouched
FROM fs_parts a, fs_parts b, LATERAL (SELECT a.s::text AS a_before) o WHERE a.g = 1 AND b.g = 2;

-- parallel
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
ALTER TABLE fs SET (parallel_workers = 2);
EXPLAIN (COSTS off) SELECT feature_sum(x) FROM fs;
SELECT feature_sum(x) FROM fs;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- bad input
SELECT feature_sum(x) FROM (VALUES (1::float8), ('NaN')) v (x);
SELECT feature_sum(1, x) FROM (VALUES (1::float8), ('infinity')) v (x);
SELECT feature_sum(1e400);
SELECT feature_sum(x) FROM (VALUES (1e308::float8), (1e308)) v (x);
SELECT feature_sum(p) FROM (VALUES (ARRAY[1, 2]), (ARRAY[1])) v (p);
SELECT feature_sum(ARRAY[]::float8[]);
SELECT feature_sum(ARRAY[[1, 2]]);
SELECT feature_sum('a'::text);
SELECT feature_sum(ARRAY[1.0], -1);
SELECT feature_sum(ARRAY[1.0], 'NaN'::float8);
SELECT feature_sum(ARRAY[1e200], 1e200);
SELECT feature_sum_add(NULL, 1);
SELECT kmeans_combine(s) FROM (SELECT feature_sum_partial(1) AS s UNION ALL SELECT feature_sum_partial(1, 2)) o;

-- damaged states
SELECT ''::kmeans_state;
SELECT 'abc'::kmeans_state;
SELECT '\x6b'::kmeans_state;
SELECT '\x6b6d73'::kmeans_state;
SELECT '\x6b6d7331zz'::kmeans_state;
SELECT '\x000000000000000100000001000000010000000000000005'::kmeans_state;
SELECT replace(feature_sum_partial(3)::text, '7331000000010', '7331000000020')::kmeans_state FROM fs WHERE id = 0;
SELECT left(feature_sum_partial(3)::text, -2)::kmeans_state;
SELECT (feature_sum_partial(3)::text || '00')::kmeans_state;
SELECT overlay(feature_sum_partial(3)::text PLACING '00004001' FROM 27)::kmeans_state;
SELECT overlay(feature_sum_partial(3)::text PLACING '00000009' FROM 19)::kmeans_state;
SELECT overlay(feature_sum_partial(3)::text PLACING 'ff' FROM 35)::kmeans_state;
SELECT overlay(feature_sum_partial(3)::text PLACING '000000ff' FROM 59)::kmeans_state;
SELECT overlay(feature_sum_partial(3)::text PLACING 'ffffff' FROM 67)::kmeans_state;
SELECT kmeans_finish(feature_sum_partial(3));

DROP TABLE fs, fs_parts, fs_back;
