-- k-medians: distance 'manhattan'. Good and bad input.
SET client_min_messages = warning;

CREATE TABLE l1 AS
SELECT i AS id, (i * 7919 % 1009 + CASE WHEN i % 3 = 0 THEN 3000 ELSE 0 END)::int AS x,
       (i * 104729 % 997 - CASE WHEN i % 3 = 1 THEN 2500 ELSE 0 END)::real AS y
FROM generate_series(1, 20000) i;

-- a centroid is percentile_disc(0.5) of its rows, the inertia the sum of their distances
SET gkmeans.threads = 2;
CREATE TABLE l1_label AS SELECT r.id, r.x, r.y, l.cluster, l.distance
FROM l1 r JOIN kmeans_labels('l1', '{x,y}', 5, distance => 'manhattan', tol => 0, max_iter => 1000) l
ON (r.tableoid, r.ctid) = (l.tableoid, l.ctid);
CREATE TABLE l1_model AS SELECT kmeans_fit('l1', '{x,y}', 5, distance => 'manhattan', tol => 0, max_iter => 1000) AS m;
SELECT count(*) AS clusters, bool_and(c.size = o.size) AS sizes, bool_and(c.centroid = ARRAY[o.x, o.y]) AS medians,
       bool_and(abs(c.inertia - o.inertia) <= 1e-6 * o.inertia) AS inertias, bool_and(c.radius = o.radius) AS radii
FROM l1_model, kmeans_centroids(m) c JOIN
     (SELECT cluster, count(*) AS size, percentile_disc(0.5) WITHIN GROUP (ORDER BY x)::float8 AS x,
             percentile_disc(0.5) WITHIN GROUP (ORDER BY y)::float8 AS y, sum(distance) AS inertia,
             max(distance) AS radius
      FROM l1_label GROUP BY cluster) o USING (cluster);
-- distances, and no centroid is nearer
SELECT bool_and(l.distance = abs(l.x - c.centroid[1]) + abs(l.y - c.centroid[2])) AS distances
FROM l1_label l, l1_model, kmeans_centroids(m) c WHERE c.cluster = l.cluster;
SELECT count(*) AS nearer FROM l1_label l, l1_model, kmeans_centroids(m) c
WHERE abs(l.x - c.centroid[1]) + abs(l.y - c.centroid[2]) < l.distance;

-- a model knows its distance
SELECT k, distance, converged, split_part(device, ' ', 1) AS device, strategy FROM l1_model, kmeans_info(m);
SELECT bool_and(kmeans_predict(m, l.x, l.y) = l.cluster AND kmeans_distance(m, l.x, l.y) = l.distance
                AND (kmeans_transform(m, l.x, l.y))[l.cluster + 1] = l.distance) AS same
FROM l1_label l, l1_model;
SELECT count(*) AS differ FROM l1_model, kmeans_labels('l1', m) a JOIN l1 r ON (r.tableoid, r.ctid) = (a.tableoid, a.ctid)
JOIN l1_label l ON l.id = r.id WHERE (a.cluster, a.distance) IS DISTINCT FROM (l.cluster, l.distance);
SELECT n.cluster = kmeans_predict(m, '{100,-50}') AS nearest, n.distance = kmeans_distance(m, '{100,-50}') AS distance
FROM l1_model, kmeans_nearest(m, '{100,-50}'::float8[], 1) n;
SELECT m::text::kmeans_model::text = m::text AS round_trip FROM l1_model;

-- the same bits by one thread, plain kernels, another order of the rows with given centroids
CREATE FUNCTION answer(t regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(c::text, ' ') FROM kmeans(t, '{x,y}', 3, distance => 'manhattan',
    centroids => '{{0,0},{3000,0},{0,-2500}}') c $$;
CREATE TABLE l1_turned AS SELECT * FROM l1 ORDER BY id DESC;
CREATE TABLE l1_answer AS SELECT answer('l1') AS a;
SELECT answer('l1_turned') = a AS turned FROM l1_answer;
SET gkmeans.threads = 1;
SELECT answer('l1') = a AS one_thread FROM l1_answer;
SET gkmeans.simd = 'scalar';
SELECT answer('l1') = a AS scalar FROM l1_answer;
RESET gkmeans.simd;
RESET gkmeans.threads;

-- small ones: an even number of values has the lower median
CREATE TABLE l1_small (x int, y int);
INSERT INTO l1_small VALUES (1, 10), (2, 20), (3, 30), (100, 40);
SELECT * FROM kmeans('l1_small', '{x,y}', 1, distance => 'manhattan');
SELECT * FROM kmeans('l1_small', '{x,y}', 9, distance => 'manhattan', init => 'random');
SELECT cluster, size, centroid FROM kmeans('l1_small', '{x,y}', 2, distance => 'manhattan', standardize => true);
SELECT cluster, size, centroid, inertia FROM kmeans('l1_small', '{x,y}', 2, distance => 'manhattan', warm_start =>
  kmeans_fit('l1_small', '{x,y}', 2, distance => 'manhattan'));

-- what k-medians cannot do
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhatten');
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan', device => 'gpu');
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan', weight_column => 'x');
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan', init => 'k-means||');
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan', init => 'hierarchical');
SELECT kmeans('l1', '{x,y}', 5, warm_start => m) FROM l1_model;
SELECT kmeans_grouped('l1', '{id}', '{x,y}', 3, distance => 'manhattan');
SELECT kmeans_agg(ARRAY[x, y], 2, kmeans_options(distance => 'manhattan')) FROM l1_small;
SELECT kmeans_scan('l1', '{x,y}', 2, 3, distance => 'manhattan');
SELECT kmeans_spectral('l1', '{x,y}', 3, distance => 'manhattan');
SELECT kmeans_evaluate(m, 'l1') FROM l1_model;
SELECT kmeans_memberships(m, 1, 2) FROM l1_model;
SELECT kmeans_step(m, x, y) FROM l1_model, l1 GROUP BY m::text;
SELECT kmeans_svg(m, 'l1') FROM l1_model;
SET gkmeans.strategy = 'scan';
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan');
RESET gkmeans.strategy;
SET gkmeans.memory_limit = '64kB';
SELECT kmeans('l1', '{x,y}', 3, distance => 'manhattan');
RESET gkmeans.memory_limit;
DROP TABLE l1, l1_label, l1_model, l1_turned, l1_answer, l1_small;
DROP FUNCTION answer;
