-- kmeans_update(), kmeans_forget(): a model and the rows that came since.

SET client_min_messages = warning;
SET extra_float_digits = 0;
CREATE TABLE pts AS SELECT i AS id, ((i * 7919) % 1009)::real AS x, ((i * 104729) % 997) / 8.0::real AS y FROM generate_series(1, 4000) i;
CREATE TABLE models AS SELECT kmeans_fit('pts', '{x,y}', 6) AS m;
CREATE TABLE fresh AS SELECT i AS id, ((i * 31) % 1201)::real AS x, ((i * 1009) % 1511) / 8.0::real AS y FROM generate_series(1, 3000) i;
CREATE TABLE updated AS SELECT kmeans_update(m, f.x, f.y) AS u FROM models, fresh f;

-- a centroid is the mean of its old rows, as the model knows it, and the new ones
CREATE TABLE expected AS
SELECT c.cluster, c.size + count(f.n) AS size, CASE WHEN count(f.n) = 0 THEN c.centroid ELSE
    ARRAY[c.centroid[1] + (avg(f.x) - c.centroid[1]) * (count(f.n)::float8 / (c.size + count(f.n))),
          c.centroid[2] + (avg(f.y) - c.centroid[2]) * (count(f.n)::float8 / (c.size + count(f.n)))] END AS centroid,
    c.inertia + coalesce(sum(f.distance ^ 2), 0) AS inertia, greatest(c.radius, max(f.distance)) AS radius
FROM models, kmeans_centroids(m) c LEFT JOIN (SELECT 1 AS n, x, y, kmeans_predict(m, x, y) AS cluster, kmeans_distance(m, x, y) AS distance FROM fresh, models) f USING (cluster)
GROUP BY c.cluster, c.size, c.centroid, c.inertia, c.radius;
SELECT count(*), bool_and(u.size = e.size) AS size, bool_and(abs(u.centroid[1] - e.centroid[1]) < 1e-9 * 1e3 AND abs(u.centroid[2] - e.centroid[2]) < 1e-9 * 1e3) AS centroid,
    bool_and(abs(u.inertia / e.inertia - 1) < 1e-6) AS inertia, bool_and(u.radius = e.radius) AS radius
FROM updated, kmeans_centroids(u) u JOIN expected e USING (cluster);
SELECT i.k, i.columns, i.rows_used, i.rows_skipped, i.strategy, i.iterations = o.iterations AS same_iterations FROM updated, kmeans_info(u) i, models, kmeans_info(m) o;

-- the same bits in any order, with parallel workers, in parts, row by row, and of a relation
CREATE FUNCTION told(m kmeans_model) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(concat(c.size, float8send(c.inertia), float8send(c.radius), (SELECT string_agg(float8send(e)::text, '' ORDER BY o) FROM unnest(c.centroid) WITH ORDINALITY u (e, o))), '|' ORDER BY cluster)
    FROM kmeans_centroids(m) c $$;
SELECT told(u) = told((SELECT kmeans_update(m, f.x, f.y ORDER BY f.id DESC) FROM models, fresh f)) AS backwards,
    told(u) = told((SELECT kmeans_update(m, ARRAY[f.x, f.y]) FROM models, fresh f)) AS array,
    told(u) = told((SELECT kmeans_update(m, ARRAY[f.x, f.y]::numeric[]) FROM models, fresh f)) AS numerics,
    told(u) = told((SELECT kmeans_update_finish(kmeans_combine(part)) FROM (SELECT kmeans_step_partial(m, f.x, f.y) AS part FROM models, fresh f GROUP BY id % 7) p)) AS parts,
    told(u) = told((SELECT kmeans_update_finish(kmeans_combine(part)) FROM (SELECT kmeans_step_partial(m, f.x, f.y) AS part FROM models, fresh f GROUP BY id) p)) AS row_by_row,
    told(u) = told((SELECT kmeans_update_finish(kmeans_step('fresh', '{x,y}', m)) FROM models)) AS relation
FROM updated;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT m AS model FROM models \gset
SELECT told(u) = told((SELECT kmeans_update(:'model'::kmeans_model, f.x, f.y) FROM fresh f)) AS workers FROM updated;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- a cluster without new rows stays, and none moves to the farthest point
CREATE TABLE line AS SELECT unnest('{0,1,10,11,20,21}'::int[]) AS x;
CREATE TABLE lines AS SELECT kmeans_fit('line', '{x}', 3, centroids => '{{0},{10},{20}}', tol => 0) AS m;
SELECT c.* FROM lines, LATERAL (SELECT kmeans_update(m, v) AS u FROM unnest('{2,3.5,NULL,9}'::float8[]) v) n, kmeans_centroids(u) c;
SELECT rows_used, rows_skipped FROM lines, LATERAL (SELECT kmeans_update(m, v) AS u FROM unnest('{2,3.5,NULL,9}'::float8[]) v) n, kmeans_info(u);

-- two days, one after the other: where the labels are the same, the means of all rows
SELECT bool_and(a.size = b.size AND abs(a.centroid[1] - b.centroid[1]) < 1e-12) AS same, count(*)
FROM lines, LATERAL (SELECT kmeans_update(m, v) AS at_once FROM unnest('{2,1,9,12,22,8}'::float8[]) v) o,
    LATERAL (SELECT kmeans_update(m, v) AS one FROM unnest('{2,9,22}'::float8[]) v) d, LATERAL (SELECT kmeans_update(one, v) AS two FROM unnest('{1,12,8}'::float8[]) v) e,
    kmeans_centroids(at_once) a JOIN kmeans_centroids(two) b USING (cluster);

-- forgetting
SELECT c.* FROM lines, kmeans_centroids(kmeans_forget(m, 0.5)) c;
SELECT rows_used, inertia FROM lines, kmeans_info(kmeans_forget(m, 0.5));
SELECT told(kmeans_forget(m, 1)) = told(m) FROM models;
-- a part of few rows is one at least, so that clusters keep their width: distances in units of it stay what they are
SELECT keep, c.size, c.inertia, i.rows_used, i.inertia AS total, kmeans_normalized_distance(f, 4) AS normalized
FROM lines, unnest('{1,0.5,0.001,0}'::float8[]) keep, LATERAL (SELECT kmeans_forget(m, keep) AS f) l, kmeans_centroids(f) c, kmeans_info(f) i
WHERE c.cluster = 0 ORDER BY keep DESC;
-- sizes that together are more rows than a model may have: no value that could not be read again
SELECT kmeans_forget((jsonb_set(m::text::jsonb, '{clusters}', (SELECT jsonb_agg(c || '{"size": 1099511627776}') FROM jsonb_array_elements(m::text::jsonb -> 'clusters') c))
    || '{"rows_used": 1099511627776}')::text::kmeans_model, 1) IS NULL AS nothing FROM lines LIMIT 1;
-- all forgotten: the means of the new rows alone, as kmeans_step() makes them
SELECT bool_and(a.centroid = b.centroid AND a.size = b.size) FROM models, LATERAL (SELECT kmeans_update(kmeans_forget(m, 0), x, y) AS u, kmeans_step(m, x, y) AS s FROM pts) n,
    kmeans_centroids(u) a JOIN kmeans_centroids(s) b USING (cluster);
-- values of it can be stored, dumped, read back
SELECT told(u) = told(u::text::kmeans_model) FROM updated;

-- no rows
SELECT kmeans_update(m, x) IS NULL FROM lines, line WHERE false GROUP BY ();
SELECT kmeans_update(m, NULL::int) IS NULL FROM lines;
SELECT kmeans_update(NULL, x) IS NULL FROM line;
SELECT kmeans_forget(m, NULL) IS NULL, kmeans_forget(NULL, 1) IS NULL FROM lines;

-- what is refused
\set VERBOSITY default
SELECT kmeans_update(kmeans_fit('pts', '{x,y}', 2, distance => 'cosine', nonfinite => 'skip'), 1, 2);
CREATE TABLE heavy AS SELECT kmeans_fit('pts', '{x,y}', 2, weight_column => 'id') AS m;
SELECT kmeans_update(m, 1, 2) FROM heavy;
SELECT kmeans_update_finish(kmeans_step_partial(m, ARRAY[1, 2], 3)) FROM models;
SELECT kmeans_update_finish(feature_sum_partial(1, 2));
SELECT kmeans_update(m, 1) FROM models;
SELECT kmeans_update(m, 1, 'NaN'::float8) FROM models;
SELECT kmeans_update(m, 1, 1e300) FROM models;
SELECT kmeans_update(m, 1, 'x'::text) FROM models;
SELECT kmeans_update(CASE WHEN id = 1 THEN m ELSE kmeans_forget(m, 0.5) END, x, y) FROM models, pts;
SELECT kmeans_forget(m, 1.5) FROM models;
SELECT kmeans_forget(m, -1) FROM models;
SELECT kmeans_forget(m, 'NaN') FROM models;

DROP TABLE pts, models, fresh, updated, expected, line, lines, heavy;
DROP FUNCTION told;
