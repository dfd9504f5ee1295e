-- kmeans_scan: choosing k
SET client_min_messages = notice;
SET gkmeans.device = cpu;

-- five groups, well apart
CREATE TABLE scan_five AS
SELECT i, (i % 5) * 10 + sin(i) AS x, (i * 7 % 5) * 10 + cos(i * 1.7) AS y, 1 + i % 3 AS w
FROM generate_series(1, 1000) i;
SELECT k, round(inertia::numeric, 1) AS inertia, round(silhouette::numeric, 6) AS silhouette,
       round(simplified_silhouette::numeric, 6) AS simplified, round(davies_bouldin::numeric, 6) AS davies_bouldin,
       round(calinski_harabasz::numeric) AS calinski_harabasz, converged, suggested
FROM kmeans_scan('scan_five', '{x,y}', 1, 9, n_init => 4);

-- each row is what the fit and the evaluation of that k alone give
SELECT s.k, s.inertia = i.inertia AS inertia, s.iterations = i.iterations AS iterations,
       abs(s.silhouette - e.silhouette) < 1e-7 AS silhouette,
       abs(s.simplified_silhouette - e.simplified_silhouette) < 1e-7 AS simplified,
       abs(s.davies_bouldin / e.davies_bouldin - 1) < 1e-6 AS davies_bouldin,
       abs(s.calinski_harabasz / e.calinski_harabasz - 1) < 1e-6 AS calinski_harabasz
FROM kmeans_scan('scan_five', '{x,y}', 2, 8, 3, seed => 7, standardize => true) s,
     LATERAL (SELECT kmeans_fit('scan_five', '{x,y}', s.k, seed => 7, standardize => true) AS m) f,
     LATERAL kmeans_info(f.m) i, LATERAL kmeans_evaluate(f.m, 'scan_five') e ORDER BY s.k;

-- nothing changes with threads, chunks and memory
SET gkmeans.threads = 1;
CREATE TEMP TABLE scan_one AS SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 4, weight_column => 'w', sample => 100);
SET gkmeans.threads = 3;
SET gkmeans.chunk_size = '64kB';
SET gkmeans.memory_limit = '64kB';
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 4, weight_column => 'w', sample => 100) EXCEPT SELECT * FROM scan_one;
RESET gkmeans.threads;
RESET gkmeans.chunk_size;
RESET gkmeans.memory_limit;

-- no sample, no silhouette; two points have no elbow; steps may miss k_max
SELECT k, silhouette, suggested FROM kmeans_scan('scan_five', '{x,y}', 2, 8, 4, sample => 0);
-- arrays, cosine
CREATE VIEW scan_array AS SELECT ARRAY[x + 20, y + 20] AS v FROM scan_five;
SELECT k, suggested FROM kmeans_scan('scan_array', '{v}', 2, 5, distance => 'cosine', n_init => 3);

-- fewer distinct points than k: the scan ends there
CREATE TABLE scan_few (x int);
INSERT INTO scan_few SELECT i % 3 FROM generate_series(1, 30) i;
SELECT k, inertia, silhouette, suggested FROM kmeans_scan('scan_few', '{x}', 1, 10);
-- no rows
CREATE TABLE scan_empty (x int);
INSERT INTO scan_empty VALUES (NULL);
SELECT * FROM kmeans_scan('scan_empty', '{x}', 2, 3);
-- not converged
SELECT k, converged FROM kmeans_scan('scan_five', '{x,y}', 3, 4, max_iter => 1);

-- bad input
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 0, 3);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 3, 2);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 1000001);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 3, 0);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', NULL, 3);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, NULL);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 3, NULL);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 3, sample => -5);
SELECT * FROM kmeans_scan(NULL, '{x,y}', 2, 3);
SELECT * FROM kmeans_scan('scan_five', '{x,z}', 2, 3);
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 3, distance => 'chebyshev');
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 2, centroids => '{{1,2},{3,4}}');
SELECT * FROM kmeans_scan('scan_five', '{x,y}', 2, 2, warm_start => kmeans_fit('scan_five', '{x,y}', 2));

DROP VIEW scan_array;
DROP TABLE scan_five, scan_one, scan_few, scan_empty;
