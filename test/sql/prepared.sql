-- Models that the session keeps prepared: calls with another one, out of line, in line and
-- compressed, by another role, and after it has changed, get the right one.

CREATE TABLE pts AS SELECT i, (SELECT array_agg(sin(i * j)::real ORDER BY j) FROM generate_series(1, 1000) j) AS p FROM generate_series(1, 150) i;
SET client_min_messages = warning;
-- each some 240 KB when prepared
CREATE TABLE models AS SELECT g AS n, (SELECT kmeans_fit('pts', '{p}', 60, seed => g, init => 'random', max_iter => 1)) AS m FROM generate_series(1, 80) g;
RESET client_min_messages;
CREATE TABLE compressed (LIKE models);
ALTER TABLE compressed ALTER m SET STORAGE MAIN;
INSERT INTO compressed SELECT n, m::text::kmeans_model FROM models WHERE n <= 3;
SELECT count(*), count(DISTINCT kmeans_transform(m, p)) AS different, bool_and(pg_column_size(m) > 8000) AS out_of_line FROM models, pts WHERE i = 1;

-- one call site for each row, as in a trigger
CREATE FUNCTION label(model_table regclass, n int, p real[]) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    r text;
BEGIN
    EXECUTE format('SELECT ROW(kmeans_predict(m, $2), kmeans_distance(m, $2), kmeans_transform(m, $2)) FROM %s WHERE n = $1', model_table) INTO r USING n, p;
    RETURN r;
END $$;
CREATE TABLE truth AS SELECT n, i, p, ROW(kmeans_predict(m, p), kmeans_distance(m, p), kmeans_transform(m, p))::text AS answer FROM models, pts WHERE i <= 3;
SELECT count(*), count(*) FILTER (WHERE label('models', n, p) = answer) AS right FROM truth;
SELECT count(*), count(*) FILTER (WHERE label('compressed', n, p) = answer) AS right FROM truth WHERE n <= 3;
-- not more is kept than 16 MB (from PostgreSQL 14 on it can be seen)
SELECT current_setting('server_version_num')::int >= 140000 AS seen, true AS ok \gset
\if :seen
SELECT sum(total_bytes) BETWEEN 8 * 1024 * 1024 AND 20 * 1024 * 1024 AS ok FROM pg_backend_memory_contexts WHERE name = 'kmeans_model prepared' \gset
\endif
\echo :ok

-- nothing is kept
SET gkmeans.keep_memory = 0;
SELECT count(*), count(*) FILTER (WHERE label('models', n, p) = answer) AS right FROM truth WHERE n <= 3;
RESET gkmeans.keep_memory;

-- a model that is replaced, and comes back in a rollback
BEGIN;
UPDATE models SET m = (SELECT m FROM models WHERE n = 2) WHERE n = 1;
SELECT bool_and(label('models', 1, p) = answer) AS new FROM truth WHERE n = 2;
ROLLBACK;
SELECT bool_and(label('models', 1, p) = answer) AS old FROM truth WHERE n = 1;
DO $$
BEGIN
    PERFORM label('models', 1, '{1,2}');
EXCEPTION WHEN data_exception THEN
    RAISE NOTICE '%', SQLERRM;
END $$;
SELECT bool_and(label('models', 1, p) = answer) AS after_an_error FROM truth WHERE n = 1;

-- kept for the role that made it alone
CREATE ROLE regress_gkmeans_prepared;
GRANT SELECT ON models, truth TO regress_gkmeans_prepared;
SET ROLE regress_gkmeans_prepared;
SELECT bool_and(label('models', n, p) = answer) AS as_another_role FROM truth WHERE i = 1 AND n > 70;
RESET ROLE;

DROP OWNED BY regress_gkmeans_prepared;
DROP ROLE regress_gkmeans_prepared;
DROP TABLE models, compressed, truth, pts;
DROP FUNCTION label;
