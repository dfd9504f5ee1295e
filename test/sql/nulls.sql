-- Rows with a NULL feature: left out, or filled with the column's mean by a view.

CREATE SCHEMA gaps;
SET search_path = gaps, public;
SET extra_float_digits = 1;

CREATE TABLE measured (id int, a float8, b float8, c int);
INSERT INTO measured
SELECT i, CASE WHEN i % 5 <> 0 THEN i % 3 * 10 + sin(i) END, CASE WHEN i % 7 <> 0 THEN i % 3 * 7 + cos(i) END,
       CASE WHEN i % 11 <> 0 THEN i % 3 * 4 END
FROM generate_series(1, 3000) i;

-- left out
SELECT rows_used, rows_skipped FROM kmeans_info(kmeans_fit('measured', '{a,b,c}', 3, seed => 1));

-- means that do not depend on the order of the rows, nor on workers
CREATE VIEW means AS
SELECT (feature_sum(a))[1] / count(a) AS a, (feature_sum(b))[1] / count(b) AS b, (feature_sum(c))[1] / count(c) AS c FROM measured;
CREATE TABLE kept AS TABLE means;
CREATE VIEW filled AS
SELECT id, coalesce(m.a, k.a) AS a, coalesce(m.b, k.b) AS b, coalesce(m.c, k.c) AS c FROM measured m, kept k;
CREATE TABLE stored AS TABLE filled;

CREATE FUNCTION answer(rel regclass) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c::text, ' ' ORDER BY cluster) || i.inertia || ' ' || i.rows_used
    FROM (SELECT kmeans_fit(rel, '{a,b,c}', 3, seed => 1, device => 'cpu') AS model OFFSET 0) f,
         kmeans_info(model) i, kmeans_centroids(model) c
    GROUP BY i.inertia, i.rows_used $$;
SELECT answer('filled') AS filled \gset
SELECT rows_used, rows_skipped FROM kmeans_info(kmeans_fit('filled', '{a,b,c}', 3, seed => 1));
SELECT answer('stored') = :'filled' AS same_bits_stored;
SET gkmeans.reader = heap;
SELECT answer('stored') = :'filled' AS same_bits_pages;
SET gkmeans.threads = 1;
SELECT answer('stored') = :'filled' AS same_bits_one_thread;
SET gkmeans.workers = 2;
SET gkmeans.threads = 3;
SELECT answer('stored') = :'filled' AS same_bits_workers;
RESET gkmeans.threads;
RESET gkmeans.workers;
RESET gkmeans.reader;
BEGIN;
CREATE TABLE before AS TABLE means;
UPDATE measured SET id = id WHERE id % 2 = 0;
SELECT before::text = means::text AS same_means_in_another_order FROM before, means;
ROLLBACK;

-- new rows: NULL without a fill, else as the rows of the fit
CREATE TABLE model AS SELECT kmeans_fit('filled', '{a,b,c}', 3, seed => 1) AS model;
SELECT kmeans_predict(model, NULL, 7.5, 4), kmeans_predict(model, coalesce(NULL, k.a), 7.5, 4) IS NOT NULL AS filled FROM model, kept k;
SELECT count(*) FILTER (WHERE l.cluster <> kmeans_predict(model, coalesce(m.a, k.a), coalesce(m.b, k.b), coalesce(m.c, k.c))) AS differ,
       count(*) AS rows
FROM model, kept k, measured m JOIN stored s USING (id), LATERAL (SELECT kmeans_predict(model, s.a, s.b, s.c) AS cluster) l;

-- a column without a value has no mean; NaN is not missing
CREATE TABLE empty (a float8, b float8);
INSERT INTO empty SELECT i, NULL FROM generate_series(1, 10) i;
SELECT (feature_sum(b))[1] / nullif(count(b), 0) AS mean FROM empty;
SELECT * FROM kmeans_query('SELECT a, coalesce(b, (SELECT (feature_sum(b))[1] / nullif(count(b), 0) FROM empty)) AS b FROM empty', 2);
INSERT INTO measured VALUES (0, 'NaN', 1, 1);
SELECT * FROM means;
SELECT * FROM kmeans('filled', '{a,b,c}', 3);

SET client_min_messages = warning;
DROP SCHEMA gaps CASCADE;
