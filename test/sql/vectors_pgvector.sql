-- pgvector itself, where it is installed: what vectors.sql has stand-ins for

SELECT NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS skip \gset
\if :skip
\echo 'skipped: pgvector is not installed'
\quit
\endif
SET client_min_messages = error;
CREATE EXTENSION vector;
SET extra_float_digits = 1;
SELECT typname, typstorage, typalign, typlen FROM pg_type WHERE typname IN ('vector', 'halfvec', 'sparsevec') ORDER BY 1;

-- everything that comes out of a column but its name and the times
CREATE FUNCTION result_of(rel regclass, col text, reader text, workers int, dist text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE model kmeans_model;
BEGIN
    PERFORM set_config('gkmeans.reader', reader, true), set_config('gkmeans.workers', workers::text, true);
    model := kmeans_fit(rel, ARRAY[col], 4, distance => dist, nonfinite => 'skip', device => 'cpu');
    RETURN (SELECT format('%s used, %s skipped|%s', i.rows_used, i.rows_skipped, to_jsonb(i) - '{columns,load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[]) FROM kmeans_info(model) i) ||
        (SELECT string_agg(c::text, ' ' ORDER BY c.cluster) FROM kmeans_centroids(model) c) ||
        (SELECT string_agg(l::text, ' ') FROM kmeans_labels(rel, model, nonfinite => 'skip') l);
END $$;

-- of few numbers, in the row; of many, and not
CREATE TABLE short AS SELECT i AS id, ARRAY[sin(i), cos(i * 3), i % 5]::real[] AS r FROM generate_series(1, 2000) i;
CREATE TABLE long AS SELECT i AS id, (SELECT array_agg(sin(i * j) ORDER BY j) FROM generate_series(1, 1100) j)::real[] AS r FROM generate_series(1, 300) i;
UPDATE short SET r = NULL WHERE id = 77;
ALTER TABLE short ADD v vector(3), ADD h halfvec(3), ADD s sparsevec, ADD hr real[];
ALTER TABLE long ADD v vector, ADD h halfvec, ADD s sparsevec(1100), ADD hr real[];
UPDATE short SET v = r::vector, h = r::halfvec, s = r::vector::sparsevec, hr = r::halfvec::real[];
UPDATE long SET v = r::vector, h = r::halfvec, s = r::vector::sparsevec, hr = r::halfvec::real[];
VACUUM short, long;
SELECT rel, col, of, dist, split_part(expected, '|', 1) AS rows, array_agg(result_of(rel, col, reader, workers, dist) = expected) AS same
FROM unnest('{short,long}'::regclass[]) rel, (VALUES ('v', 'r'), ('h', 'hr'), ('s', 'r')) c (col, of), unnest('{euclidean,cosine}'::text[]) dist,
    LATERAL result_of(rel, of, 'executor', 0, dist) expected, (VALUES ('executor', 0), ('heap', 0), ('heap', 2)) v (reader, workers)
GROUP BY rel, col, of, dist, expected ORDER BY rel::text, col, dist;
SELECT bool_and(kmeans_predict(m, v) = kmeans_predict(m, r)), bool_and(kmeans_predict(m, h) = kmeans_predict(m, hr)), bool_and(kmeans_predict(m, s) = kmeans_predict(m, r))
FROM long, (SELECT kmeans_fit('long', '{v}', 4) AS m) f;
-- tables of centroids
CREATE TABLE centres AS SELECT cluster, centroid::real[] AS r, centroid::vector AS v, centroid::halfvec AS h, centroid::halfvec::real[] AS hr FROM kmeans('long', '{v}', 4);
CREATE VIEW centres_r AS SELECT cluster, r AS centroid FROM centres;
CREATE VIEW centres_v AS SELECT cluster, v AS centroid FROM centres;
CREATE VIEW centres_h AS SELECT cluster, h AS centroid FROM centres;
CREATE VIEW centres_hr AS SELECT cluster, hr AS centroid FROM centres;
SELECT dist, kmeans_from_table('centres_v', distance => dist)::text = kmeans_from_table('centres_r', distance => dist)::text AS vector,
       kmeans_from_table('centres_h', distance => dist)::text = kmeans_from_table('centres_hr', distance => dist)::text AS halfvec
FROM unnest('{euclidean,cosine,manhattan}'::text[]) dist;
SELECT bool_and(kmeans_predict(m, v) = kmeans_predict(m, r)) AS predict,
       bool_and((SELECT array_agg(n) FROM kmeans_nearest(m, v, 3) n) = (SELECT array_agg(n) FROM kmeans_nearest(m, r, 3) n)) AS nearest
FROM long, kmeans_from_table('centres_v') m;
SELECT kmeans_evaluate(kmeans_from_table('centres_v', '{v}'), 'long') = kmeans_evaluate(kmeans_from_table('centres_r', '{r}'), 'long') AS evaluate;
\set VERBOSITY terse
INSERT INTO short (id, v, h, s) VALUES (3000, '[0,0,0]', '[0,0,0]', '{}/3');
SELECT * FROM kmeans('short', '{v}', 2, distance => 'cosine');
ALTER TABLE short ALTER v TYPE vector;
INSERT INTO short (id, v, s) VALUES (3001, '[1,2]', '{1:1}/4');
SELECT * FROM kmeans('short', '{v}', 2);
SELECT * FROM kmeans('short', '{s}', 2);
DROP VIEW centres_r, centres_v, centres_h, centres_hr;
DROP TABLE short, long, centres;
DROP FUNCTION result_of;
DROP EXTENSION vector;
