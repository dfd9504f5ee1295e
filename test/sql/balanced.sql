-- kmeans_balanced() and kmeans_balanced_fit()
CREATE SCHEMA balanced;
SET search_path = balanced, public;
CREATE TABLE pts AS
SELECT i AS id, (i * 7919 % 1000) / 1000.0 + (i % 10 > 6)::int * 3 AS x, (i * 104729 % 1000) / 1000.0 AS y, 1 + i % 3 AS w
FROM generate_series(1, 1000) i;

-- sizes within bounds, and without
SELECT cluster, size FROM kmeans('pts', '{x,y}', 4);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 4);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 4, max_size => 260);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 4, min_size => 240);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 4, 250, 250);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 3, 300, 400, n_init => 3);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 1, 1000, 1000);

-- without bounds that matter it is kmeans()
SELECT (SELECT array_agg(c::text) FROM kmeans('pts', '{x,y}', 4) c) = (SELECT array_agg(c::text) FROM kmeans_balanced('pts', '{x,y}', 4, 1, 1000) c) AS same;
SELECT (SELECT array_agg(c::text) FROM kmeans('pts', '{x,y}', 4, weight_column => 'w', standardize => true) c) =
       (SELECT array_agg(c::text) FROM kmeans_balanced('pts', '{x,y}', 4, weight_column => 'w', standardize => true) c) AS weighted;
SELECT (SELECT array_agg(c::text) FROM kmeans('pts', '{x,y,w}', 4, init => 'k-means||', distance => 'cosine') c) =
       (SELECT array_agg(c::text) FROM kmeans_balanced('pts', '{x,y,w}', 4, init => 'k-means||', distance => 'cosine') c) AS cosine;
SELECT (SELECT array_agg(c::text) FROM kmeans('pts', '{x,y}', 4, init => 'hierarchical') c) =
       (SELECT array_agg(c::text) FROM kmeans_balanced('pts', '{x,y}', 4, init => 'hierarchical') c) AS hierarchical;

-- labels, which belong to the sizes; the model
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 4, 200, 300, label_column => 'label');
SELECT label, count(*) FROM pts GROUP BY 1 ORDER BY 1;
-- in their order again: from PostgreSQL 16 on an UPDATE may fill other pages first
CREATE INDEX by_id ON pts (id);
CLUSTER pts USING by_id;
CREATE TABLE m AS SELECT kmeans_balanced_fit('pts', '{x,y}', 4, 200, 300) AS m;
SELECT k, rows_used, converged, strategy, inertia > 0 AS inertia FROM m, kmeans_info(m);
SELECT cluster, size FROM m, kmeans_centroids(m);
SELECT cluster, size FROM m, kmeans_balanced('pts', '{x,y}', 4, 200, 300, warm_start => m);
SELECT cluster, size FROM kmeans_balanced('pts', '{x,y}', 3, 333, 334, centroids => '{{0,0},{0,0},{1e30,0}}');

-- duplicates, NULLs, few rows
CREATE TABLE few (x float8);
INSERT INTO few VALUES (1), (1), (1), (1), (5), (NULL);
SELECT * FROM kmeans_balanced('few', '{x}', 2, max_size => 3);
SELECT * FROM kmeans_balanced('few', '{x}', 3, max_size => 3);
SELECT * FROM kmeans_balanced('few', '{x}', 2, max_size => 3, nulls => 'mean');
SELECT * FROM kmeans_balanced('few', '{x}', 9);
SELECT * FROM kmeans_balanced('few', '{x}', 3, max_size => 2);
SELECT * FROM kmeans_balanced('few', '{x}', 3, max_size => 2, centroids => '{{1},{1},{5}}');
TRUNCATE few;
SELECT * FROM kmeans_balanced('few', '{x}', 3, max_size => 2);
SELECT kmeans_balanced_fit('few', '{x}', 3) IS NULL AS no_model;

-- the same by all roads
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.road_of(OUT t text) LANGUAGE sql AS
$$ SELECT string_agg(c::text, ' ') FROM kmeans_balanced('pts', '{x,y}', 7, 130, 150, weight_column => 'w') c $$;
CREATE TEMP TABLE roads AS SELECT 'default' AS road, t FROM pg_temp.road_of();
SET gkmeans.simd = scalar;
INSERT INTO roads SELECT 'scalar', t FROM pg_temp.road_of();
RESET gkmeans.simd;
SET gkmeans.threads = 3;
INSERT INTO roads SELECT 'threads', t FROM pg_temp.road_of();
SET gkmeans.threads = 1;
INSERT INTO roads SELECT 'one thread', t FROM pg_temp.road_of();
RESET gkmeans.threads;
CREATE VIEW seen AS SELECT x, y, w FROM pts ORDER BY id;
INSERT INTO roads SELECT 'executor', string_agg(c::text, ' ') FROM kmeans_balanced('seen', '{x,y}', 7, 130, 150, weight_column => 'w') c;
CREATE TABLE turned AS SELECT x, y, w FROM pts ORDER BY id DESC;
SELECT count(*), count(DISTINCT t) AS answers FROM roads;
SELECT (SELECT array_agg(c::text) FROM kmeans_balanced('pts', '{x,y}', 3, 333, 334, centroids => '{{0,0},{1,1},{3,1}}') c) =
       (SELECT array_agg(c::text) FROM kmeans_balanced('turned', '{x,y}', 3, 333, 334, centroids => '{{0,0},{1,1},{3,1}}') c) AS turned;
RESET client_min_messages;

-- what cannot be
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, max_size => 249);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, min_size => 251);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, 30, 20);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, 0);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, max_size => 0);
SELECT kmeans_balanced_fit('pts', '{x,y}', 4, -1, 20);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, device => 'gpu');
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, distance => 'manhattan');
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, nulls => 'zero');
SELECT * FROM kmeans_balanced('pts', '{x,y}', NULL);
SELECT * FROM kmeans_balanced(NULL, '{x,y}', 4);
SET gkmeans.strategy = scan;
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4);
RESET gkmeans.strategy;
SET gkmeans.memory_limit = '64kB';
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4);
RESET gkmeans.memory_limit;
\set VERBOSITY sqlstate
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, max_size => 249);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 4, 30, 20);
SELECT * FROM kmeans_balanced('pts', '{x,y}', 1000);
SET client_min_messages = warning;
DROP SCHEMA balanced CASCADE;
