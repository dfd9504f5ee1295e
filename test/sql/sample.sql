-- init_sample and fit_sample: centroids from some of the rows, everything else from all of them

\set VERBOSITY default
SET extra_float_digits = 1;
SET client_min_messages = warning;

CREATE TABLE pts AS
SELECT i, ((i * 7919) % 13) * 10 + sin(i) AS x, ((i * 104729) % 7) * 10 + cos(i * 3) AS y, (i % 5) AS w
FROM generate_series(1, 6000) i;
CREATE TEMP TABLE models (name text PRIMARY KEY, m kmeans_model);
CREATE FUNCTION same(a kmeans_model, b kmeans_model) RETURNS bool LANGUAGE sql AS $$
    SELECT to_jsonb(array_agg(x ORDER BY x.cluster)) = (SELECT to_jsonb(array_agg(y ORDER BY y.cluster)) FROM kmeans_centroids(b) y)
        AND (kmeans_info(a)).inertia = (kmeans_info(b)).inertia AND (kmeans_info(a)).iterations = (kmeans_info(b)).iterations
    FROM kmeans_centroids(a) x
$$;

INSERT INTO models VALUES
    ('all', kmeans_fit('pts', '{x,y}', 20)),
    ('share', kmeans_fit('pts', '{x,y}', 20, fit_sample => 0.1)),
    ('rows', kmeans_fit('pts', '{x,y}', 20, fit_sample => 600)),
    ('seed', kmeans_fit('pts', '{x,y}', 20, fit_sample => 600, seed => 1)),
    ('init', kmeans_fit('pts', '{x,y}', 20, init_sample => 600)),
    ('init again', kmeans_fit('pts', '{x,y}', 20, init_sample => 0.1)),
    ('enough', kmeans_fit('pts', '{x,y}', 20, fit_sample => 6000, init_sample => 1e15)),
    ('few', kmeans_fit('pts', '{x,y}', 20, fit_sample => 1e-9)),
    ('both', kmeans_fit('pts', '{x,y}', 20, fit_sample => 600, init_sample => 0.5));

-- all rows are counted and measured
SELECT name, (i).rows_used, (i).k, (SELECT sum(size) FROM kmeans_centroids(m)) AS sizes,
       (i).inertia < 1.3 * (SELECT (kmeans_info(m)).inertia FROM models WHERE name = 'all') AS near_enough
FROM (SELECT *, kmeans_info(m) AS i FROM models) f ORDER BY name;

-- a share is a number of rows; more than there are is all; seed chooses others
SELECT a.name, b.name, same(a.m, b.m) FROM models a, models b
WHERE (a.name, b.name) IN (('share', 'rows'), ('init', 'init again'), ('all', 'enough'), ('rows', 'seed'), ('rows', 'all'), ('rows', 'both'), ('all', 'init'))
ORDER BY 1, 2;

-- labels, sizes, inertia and radius are those of the nearest centroids for every row
SELECT name, bool_and(size = n) AS sizes, bool_and(abs(inertia - own) <= 1e-9 * own) AS inertia, bool_and(abs(radius - far) < 1e-5) AS radius
FROM models, kmeans_centroids(m) c,
    LATERAL (SELECT count(*) AS n, sum(kmeans_distance(m, x, y) ^ 2) AS own, max(kmeans_distance(m, x, y)) AS far
             FROM pts WHERE kmeans_predict(m, x, y) = c.cluster) p
WHERE name IN ('rows', 'both', 'few') GROUP BY name ORDER BY name;
SELECT count(*), bool_and(l.cluster = kmeans_predict(m, x, y)) AS labels, bool_and(l.distance = kmeans_distance(m, x, y)) AS distances
FROM models, pts JOIN kmeans_labels('pts', '{x,y}', 20, fit_sample => 600) l ON l.tableoid = pts.tableoid AND l.ctid = pts.ctid
WHERE name = 'rows';
SELECT bool_and(c.size = f.size AND c.centroid = f.centroid AND c.inertia = f.inertia) AS rows
FROM models, kmeans_centroids(m) c JOIN kmeans('pts', '{x,y}', 20, label_column => 'label', fit_sample => 600) f USING (cluster) WHERE name = 'rows';
SELECT bool_and(label = kmeans_predict(m, x, y)) AS written FROM pts, models WHERE name = 'rows';
-- in their order again: from PostgreSQL 16 on an UPDATE may fill other pages first
CREATE INDEX by_i ON pts (i);
CLUSTER pts USING by_i;
SELECT bool_and(c.size = f.size AND c.centroid = f.centroid AND c.inertia = f.inertia) AS label_table
FROM models, kmeans_centroids(m) c JOIN kmeans_label_table('pts', '{x,y}', 20, 'labels', '{i}', fit_sample => 600) f USING (cluster) WHERE name = 'rows';
SELECT count(*), bool_and(label = cluster) AS the_same FROM pts JOIN labels USING (i);

-- the same sample, and the same bits of it, by any way to read and to compute
CREATE FUNCTION of_ways(sample float8) RETURNS TABLE (way text, same bool) LANGUAGE plpgsql AS $$
DECLARE
    first kmeans_model;
    this kmeans_model;
    setting text[];
BEGIN
    FOREACH setting SLICE 1 IN ARRAY ARRAY[['gkmeans.threads', '1'], ['gkmeans.threads', '3'], ['gkmeans.workers', '0'], ['gkmeans.workers', '2'],
        ['gkmeans.memory_limit', '64kB'], ['gkmeans.chunk_size', '64kB'], ['gkmeans.simd', 'scalar'], ['gkmeans.simd', 'auto']] LOOP
        PERFORM set_config(setting[1], setting[2], true);
        this := kmeans_fit('pts', '{x,y}', 20, weight_column => 'w', standardize => true, fit_sample => sample, init_sample => 0.5);
        first := coalesce(first, this);
        way := setting[1] || ' ' || setting[2];
        same := same(first, this);
        RETURN NEXT;
    END LOOP;
    this := kmeans_fit('pts_view', '{x,y}', 20, weight_column => 'w', standardize => true, fit_sample => sample, init_sample => 0.5);
    RETURN QUERY SELECT 'view', same(first, this);
    this := kmeans_query_fit('SELECT x, y, w FROM pts ORDER BY i', 20, weight_column => 'w', standardize => true, fit_sample => sample, init_sample => 0.5);
    RETURN QUERY SELECT 'query', same(first, this);
END $$;
CREATE VIEW pts_view AS SELECT x, y, w FROM pts ORDER BY i;
SELECT sample, bool_and(same) AS same, array_agg(way) FILTER (WHERE NOT same) FROM unnest('{0.3,100}'::float8[]) sample, of_ways(sample) GROUP BY 1;

-- weights go along: rows of weight 0 are in no sample, and a weight counts
CREATE TABLE heavy AS SELECT g::float8 AS x, w FROM generate_series(0, 1) g, unnest('{1,3}'::int[]) w, generate_series(1, 500) UNION ALL SELECT 50, 0 FROM generate_series(1, 500);
SELECT cluster, size, centroid, inertia FROM kmeans('heavy', '{x}', 2, weight_column => 'w', fit_sample => 100);
SELECT abs(centroid[1] - 0.5) < 0.2 AS mean, abs(inertia - 1000) < 50 AS inertia, size FROM kmeans('heavy', '{x}', 1, weight_column => 'w', fit_sample => 400);
SELECT distance, (i).k, (i).rows_used FROM unnest('{euclidean,cosine}'::text[]) distance,
    LATERAL (SELECT kmeans_info(kmeans_fit('pts', '{x,y}', 5, distance => distance, fit_sample => 0.2, n_init => 3)) AS i OFFSET 0) f;

-- every start; given centroids keep their order
SELECT init, (i).k, (i).init FROM unnest('{k-means++,k-means||,random,hierarchical}'::text[]) init,
    LATERAL (SELECT kmeans_info(kmeans_fit('pts', '{x,y}', 20, init => init, fit_sample => 500, init_sample => 100)) AS i OFFSET 0) f;
SELECT cluster, round(centroid[1]) AS x, size FROM kmeans('pts', '{x}', 3, centroids => '{{120},{0},{60}}', fit_sample => 100, init_sample => 10);

SELECT kmeans_query('SELECT x FROM pts', 1, fit_sample => 200) = kmeans('pts', '{x}', 1, fit_sample => 200) AS query;
-- a share is rounded up, but 0.07 of 100 rows are 7, though the product is above that
SELECT kmeans_query(q, 2, fit_sample => 0.07) = kmeans_query(q, 2, fit_sample => 7) AS seven, kmeans_query(q, 2, fit_sample => 0.071) = kmeans_query(q, 2, fit_sample => 8) AS eight
FROM (VALUES ('SELECT sin(i) FROM generate_series(1, 100) i')) AS v(q);

-- bad values
SELECT kmeans_query('SELECT x FROM pts', 5, fit_sample => 4);
SELECT kmeans_fit('pts', '{x,y}', 5, fit_sample => 0);
SELECT kmeans_fit('pts', '{x,y}', 5, fit_sample => -0.5);
SELECT kmeans_fit('pts', '{x,y}', 5, init_sample => 'NaN');
SELECT kmeans_fit('pts', '{x,y}', 5, init_sample => 'Infinity');
SELECT kmeans('pts', '{x,y}', 5, fit_sample => 10.5);
SELECT kmeans_labels('pts', '{x,y}', 5, fit_sample => 4);
SELECT kmeans_label_table('pts', '{x,y}', 5, 'no_table', '{i}', init_sample => 4);
SET gkmeans.strategy = 'scan';
SELECT kmeans_fit('pts', '{x,y}', 5, fit_sample => 0.5);
RESET gkmeans.strategy;
DELETE FROM pts;
SELECT kmeans_fit('pts', '{x,y}', 5, fit_sample => 0.5) IS NULL AS no_rows;

DROP VIEW pts_view;
DROP TABLE pts, labels, heavy;
DROP FUNCTION of_ways, same;
