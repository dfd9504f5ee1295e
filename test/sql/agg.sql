-- kmeans_agg: one model per group, the same for any plan

\set VERBOSITY terse

CREATE TABLE ag (id int, g int, a float8, b float8);
INSERT INTO ag SELECT i, i % 7, (i % 3) * 5 + (hashint4(i) % 1009) / 2000.0,
    (i % 3) * (i % 3) + (hashint4(i + 100000) % 1009) / 3000.0 FROM generate_series(1, 3500) i;
ANALYZE ag;

CREATE FUNCTION brief(m kmeans_model) RETURNS text LANGUAGE sql AS
    'SELECT array_agg((cluster, size, centroid, inertia, radius) ORDER BY cluster)::text FROM kmeans_centroids(m)';

SELECT g, (kmeans_info(m)).k, (kmeans_info(m)).rows_used AS rows, (kmeans_info(m)).converged,
    (SELECT array_agg(size ORDER BY cluster) FROM kmeans_centroids(m)) AS sizes
FROM (SELECT g, kmeans_agg(ARRAY[a, b], 3) AS m FROM ag GROUP BY g) o ORDER BY g;

-- the model is one of the points, whatever their order; and a good one
SELECT brief(kmeans_agg(ARRAY[a, b], 3)) AS m FROM ag \gset
SELECT count(*), bool_and(brief(m) = :'m') AS same FROM (
    SELECT kmeans_agg(ARRAY[a, b], 3 ORDER BY id DESC) AS m FROM ag UNION ALL
    SELECT kmeans_agg(ARRAY[a, b], 3 ORDER BY md5(id::text)) FROM ag UNION ALL
    SELECT kmeans_agg(ARRAY[a, b], 3 ORDER BY b) FROM ag UNION ALL
    SELECT kmeans_agg(ARRAY[a, b], 3, NULL) FROM ag UNION ALL
    SELECT kmeans_agg(ARRAY[a, b], 3, kmeans_options()) FROM ag) o;
SELECT i.inertia <= j.inertia * 1.000001 AS good
FROM (SELECT kmeans_agg(ARRAY[a, b], 3) AS m FROM ag) o, kmeans_info(m) i, kmeans_info(kmeans_fit('ag', '{a,b}', 3)) j;

-- with initial centroids it is kmeans_fit()'s, bit for bit
SELECT brief(kmeans_agg(ARRAY[a, b], 3, kmeans_options(centroids => '{{0,0},{5,1},{10,4}}'))) =
    brief(kmeans_fit('ag', '{a,b}', 3, centroids => '{{0,0},{5,1},{10,4}}')) AS same FROM ag;
SELECT brief(kmeans_agg(ARRAY[a, b], 3, kmeans_options(centroids => '{{0,1},{5,1},{10,4}}', distance => 'cosine'))) =
    brief(kmeans_fit('ag', '{a,b}', 3, centroids => '{{0,1},{5,1},{10,4}}', distance => 'cosine')) AS cosine FROM ag WHERE a <> 0 OR b <> 0;
SELECT (kmeans_info(m)).standardize, (kmeans_info(m)).init, (kmeans_info(m)).seed, (kmeans_info(m)).iterations <= 2 AS two
FROM (SELECT kmeans_agg(ARRAY[a, b], 3, kmeans_options(standardize => true, init => 'random', seed => 42, max_iter => 2)) AS m FROM ag) o;

-- parallel, and hash aggregation that spills
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
ALTER TABLE ag SET (parallel_workers = 2);
SET enable_sort = off;
EXPLAIN (COSTS off) SELECT g, kmeans_agg(ARRAY[a, b], 3) FROM ag GROUP BY g;
SELECT brief(kmeans_agg(ARRAY[a, b], 3)) = :'m' AS same FROM ag;
SELECT brief(kmeans_agg(ARRAY[a, b], 3, kmeans_options(seed => 0))) = :'m' AS options_travel FROM ag;
SET max_parallel_workers_per_gather = 0;
SET work_mem = '64kB';
SELECT count(*), sum((kmeans_info(m)).rows_used) FROM (SELECT id % 500, kmeans_agg(ARRAY[a, b], 2) AS m FROM ag GROUP BY 1) o;
RESET enable_sort;
RESET work_mem;
RESET max_parallel_workers_per_gather;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- other kinds of points, NULLs, few points
SELECT (kmeans_info(kmeans_agg(p, 2))).d FROM (VALUES (ARRAY[1, 2]), ('{3,4}')) v (p);
SELECT (kmeans_info(kmeans_agg(p, 2))).inertia FROM (VALUES (ARRAY[1, 2.5]::real[]), ('{3,4}')) v (p);
SELECT (kmeans_info(kmeans_agg(p, 2))).d FROM (VALUES (ARRAY[1.5, 2]), ('{3,4}')) v (p);
SELECT i.k, i.rows_used, i.rows_skipped FROM (SELECT kmeans_agg(p, 5) AS m
    FROM (VALUES (ARRAY[1.0, 2]), (NULL), ('{1,2}'), ('{3,NULL}'), ('{3,4}')) v (p)) o, kmeans_info(m) i;
SELECT kmeans_agg(p, 5) IS NULL AS no_points FROM (VALUES (NULL::float8[])) v (p);
SELECT kmeans_agg(ARRAY[a], 5) IS NULL AS no_rows FROM ag WHERE false;
SELECT i.rows_used, i.rows_skipped FROM (SELECT kmeans_agg(ARRAY[x], 1, kmeans_options(nonfinite => 'skip')) AS m
    FROM (VALUES (1::float8), ('NaN'), ('infinity'), (3)) v (x)) o, kmeans_info(m) i;
-- stored out of line, compressed, or not flat yet
CREATE TABLE wide (p float8[], c float8[]);
ALTER TABLE wide ALTER p SET STORAGE EXTERNAL;
INSERT INTO wide SELECT array_agg(sin(i * g) ORDER BY i), array_agg(g::float8) FROM generate_series(1, 2000) i, generate_series(1, 4) g GROUP BY g;
SELECT pg_relation_size(reltoastrelid) > 0 AS toasted FROM pg_class WHERE oid = 'wide'::regclass;
SELECT kmeans_predict(m, p) = 0 AS near, kmeans_distance(m, p) = 0 AS at FROM (SELECT kmeans_agg(p, 1) AS m FROM wide WHERE p[1] = sin(2)) o, wide ORDER BY 2;
SELECT c.size, c.centroid[2000] FROM (SELECT kmeans_agg(w.c, 4) AS m FROM wide w) o, kmeans_centroids(m) c ORDER BY 2;
SELECT c.centroid FROM (SELECT kmeans_agg(ARRAY[x] || 1::float8, 3) AS m FROM unnest('{1,2,3}'::float8[]) x) o, kmeans_centroids(m) c ORDER BY 1;
DROP TABLE wide;

-- bad input
SELECT kmeans_agg(ARRAY[a, b], 0) FROM ag;
SELECT kmeans_agg(ARRAY[a, b], NULL) FROM ag;
SELECT kmeans_agg(ARRAY[a, b], 2000000) FROM ag;
SELECT kmeans_agg(ARRAY[a, b], id) FROM ag WHERE id < 3;
SELECT kmeans_agg(ARRAY[x], 1) FROM (VALUES (1::float8), ('NaN')) v (x);
SELECT kmeans_agg(ARRAY[]::float8[], 1);
SELECT kmeans_agg(ARRAY[[1.0, 2]], 1);
SELECT kmeans_agg(p, 1) FROM (VALUES (ARRAY[1.0, 2]), ('{1}')) v (p);
SELECT kmeans_agg(ARRAY[a], 2, kmeans_options(init => 'best')) FROM ag;
SELECT kmeans_agg(ARRAY[a], 2, kmeans_options(max_iter => 0)) FROM ag;
SELECT kmeans_agg(ARRAY[a], 2, kmeans_options(centroids => '{{1,2},{3,4}}')) FROM ag;
SELECT kmeans_agg(ARRAY[a], 2, ROW('w', 'random', NULL, NULL, 1, 1, 0, 'euclidean', false, 0, 'error', NULL, 'skip')::kmeans_options) FROM ag;
SELECT kmeans_agg(ARRAY[0.0, 0], 1, kmeans_options(distance => 'cosine'));

DROP TABLE ag;
DROP FUNCTION brief;
