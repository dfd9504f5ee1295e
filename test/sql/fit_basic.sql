-- kmeans() and kmeans_fit(): what comes back, and how clusters are numbered.

CREATE TABLE pts (id int PRIMARY KEY, x float8, y float8);
-- three groups of 8, 6 and 2 points, far from each other; all means are short binary fractions
INSERT INTO pts
SELECT i, (i % 4) * 0.5, (i % 2) * 0.25 FROM generate_series(0, 7) i
UNION ALL SELECT 10 + i, 40 + (i % 3) * 0.25, (i % 2) * 0.5 FROM generate_series(0, 5) i
UNION ALL SELECT 20 + i, i * 0.5, 80 - i * 0.25 FROM generate_series(0, 1) i;

SELECT * FROM kmeans('pts', '{x,y}', 3);

-- every way of seeding finds the same groups; cluster 0 is the largest
SELECT init, cluster, size, centroid
FROM unnest('{k-means++,k-means||,hierarchical,random}'::text[]) init,
     kmeans('pts', '{x,y}', 3, init => init, n_init => 10)
ORDER BY init COLLATE "C", cluster;

-- centroid, inertia and radius are those of the labels
WITH c AS (SELECT * FROM kmeans('pts', '{x,y}', 3)),
     l AS (SELECT p.*, k.cluster, k.distance FROM kmeans_labels('pts', '{x,y}', 3) k JOIN pts p
           ON p.ctid = k.ctid AND p.tableoid = k.tableoid)
SELECT c.cluster, c.size = count(*) AS size,
       abs(c.centroid[1] - avg(x)) < 1e-12 AND abs(c.centroid[2] - avg(y)) < 1e-12 AS centroid,
       abs(c.inertia - sum(distance ^ 2)) < 1e-6 AS inertia,
       abs(c.inertia - (var_pop(x) + var_pop(y)) * count(*)) < 1e-6 AS inertia_too,
       abs(c.radius - max(distance)) < 1e-12 AS radius
FROM c JOIN l USING (cluster) GROUP BY c.cluster, c.size, c.centroid, c.inertia, c.radius
ORDER BY 1;

-- the model says the same as kmeans()
SELECT (kmeans_centroids(m)).* FROM kmeans_fit('pts', '{x,y}', 3) m
EXCEPT SELECT * FROM kmeans('pts', '{x,y}', 3);
SELECT k, d, columns, rows_used, rows_skipped, converged, round(inertia::numeric, 6) AS inertia,
       seed, init, distance, standardize, device LIKE 'cpu%' AS cpu,
       context_ms, upload_ms, load_ms >= 0 AND seed_ms >= 0 AND iterate_ms >= 0 AS times,
       total_ms >= load_ms + seed_ms + iterate_ms AS total
FROM kmeans_info((SELECT kmeans_fit('pts', '{x,y}', 3, seed => 7)));

-- named and positional arguments, one cluster, one column, a cluster per point
SELECT * FROM kmeans(k => 1, columns => ARRAY['y'], relation => 'pts');
SELECT cluster, size, centroid, inertia, radius FROM kmeans('pts', '{id}', 16) WHERE cluster IN (0, 15);

-- ties of size are numbered by centroid
CREATE TABLE ties (v int);
INSERT INTO ties VALUES (30), (10), (20), (10), (20), (30);
SELECT cluster, size, centroid FROM kmeans('ties', '{v}', 3);

-- fewer distinct points than k
SELECT cluster, size, centroid, inertia FROM kmeans('ties', '{v}', 5);
SELECT cluster, size FROM kmeans('ties', '{v}', 5, init => 'k-means||');
SELECT cluster, size FROM kmeans('ties', '{v}', 5, init => 'random');
SELECT cluster, size FROM kmeans('ties', '{v}', 5, init => 'hierarchical');
CREATE TABLE one_row AS SELECT 3 AS v;
SELECT * FROM kmeans('one_row', '{v}', 1);
SELECT * FROM kmeans('one_row', '{v}', 3);
-- far fewer rows than k, and no memory for the rest
CREATE TABLE wide AS SELECT array_fill(i::real, ARRAY[16384]) AS a FROM generate_series(1, 2) i;
SELECT k, d, rows_used FROM kmeans_info((SELECT kmeans_fit('wide', '{a}', 1000000)));

-- no usable rows
CREATE TABLE empty_table (v int, a float8[]);
SELECT * FROM kmeans('empty_table', '{v}', 3);
SELECT kmeans_fit('empty_table', '{v}', 3) IS NULL AS is_null;
SELECT kmeans_fit('empty_table', '{a}', 3) IS NULL AS is_null;
SELECT * FROM kmeans_labels('empty_table', '{v}', 3);
INSERT INTO empty_table VALUES (NULL, NULL), (NULL, '{1,NULL}');
SELECT * FROM kmeans('empty_table', '{v}', 3);
SELECT * FROM kmeans('empty_table', '{a}', 3);

-- in a list of results, in a subquery, in a function, in a cursor, in CREATE TABLE AS
SELECT kmeans('one_row', '{v}', 1);
SELECT count(*) FROM (SELECT kmeans('pts', '{x,y}', 3) LIMIT 2) s;
CREATE FUNCTION groups(rel regclass) RETURNS bigint[] LANGUAGE plpgsql AS
$$ BEGIN RETURN ARRAY(SELECT size FROM kmeans(rel, '{x,y}', 3) ORDER BY cluster); END $$;
SELECT groups('pts');
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT cluster, size FROM kmeans('pts', '{x,y}', 3);
FETCH LAST FROM c;
FETCH FIRST FROM c;
COMMIT;
CREATE TABLE models AS SELECT s AS seed, kmeans_fit('pts', '{x,y}', 3, seed => s) AS m
FROM generate_series(1, 3) s;
SELECT seed, (kmeans_info(m)).seed = seed AS recorded FROM models ORDER BY 1;

-- what this transaction did is seen, what the statement itself does is not
BEGIN;
INSERT INTO ties VALUES (40);
SELECT count(*) FROM kmeans('ties', '{v}', 4);
ROLLBACK;
WITH more AS (INSERT INTO ties VALUES (40) RETURNING v)
SELECT count(*) FROM more, kmeans('ties', '{v}', 3);

DROP FUNCTION groups;
DROP TABLE pts, ties, one_row, wide, empty_table, models;
