-- centroid_table, and max_iter => 0: labels by rows of centroids, and fits that begin with them
\set VERBOSITY terse
CREATE EXTENSION IF NOT EXISTS gkmeans;
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE TABLE pts AS SELECT i, sin(i) + i % 20 AS x, cos(i * 1.7) + i % 3 * 5 AS y FROM generate_series(1, 2000) i;
ALTER TABLE pts ADD e float8[];
UPDATE pts SET e = ARRAY[x, y];
VACUUM pts;

-- what kmeans() returns gives the same labels, sizes, inertia and radii, on every road
CREATE TABLE many AS SELECT * FROM kmeans('pts', '{e}', 60, label_column => 'label');
SELECT count(*) FILTER (WHERE l.cluster IS DISTINCT FROM p.label) AS differ, count(DISTINCT l.cluster) AS clusters
FROM pts p JOIN kmeans_labels('pts', '{e}', 60, centroid_table => 'many', max_iter => 0) l ON l.tableoid = p.tableoid AND l.ctid = p.ctid;
CREATE FUNCTION differences(options text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE 'SELECT count(*) FROM (SELECT * FROM kmeans(''pts'', ''{e}'', 60, max_iter => 0' || options || ') EXCEPT TABLE many) d' INTO n;
    RETURN n;
END $$;
SELECT differences(', centroid_table => ''many''') AS by_table,
       differences(', centroids => (SELECT array_agg(centroid ORDER BY cluster) FROM many)') AS by_array,
       differences(', warm_start => (SELECT kmeans_fit(''pts'', ''{e}'', 60, max_iter => 0, centroid_table => ''many''))') AS by_model,
       differences(', centroid_table => ''many'', n_init => 3, tol => 0, init => ''random'', fit_sample => 100') AS more_options;
SET gkmeans.strategy = 'scan';
SELECT differences(', centroid_table => ''many''') AS scan;
RESET gkmeans.strategy;
SET gkmeans.memory_limit = '64kB';
SELECT differences(', centroid_table => ''many''') AS file;
RESET gkmeans.memory_limit;
SELECT (SELECT array_agg(c ORDER BY cluster)::text FROM kmeans_query('SELECT e FROM pts', 60, centroid_table => 'many', max_iter => 0) c) = (SELECT array_agg(m ORDER BY cluster)::text FROM many m) AS query,
       (SELECT array_agg(c ORDER BY cluster)::text FROM kmeans_centroids(kmeans_query_fit('SELECT e FROM pts', 60, centroid_table => 'many', max_iter => 0)) c) = (SELECT array_agg(m ORDER BY cluster)::text FROM many m) AS query_fit;
SELECT bool_and(c = m) AS label_table FROM kmeans_label_table('pts', '{e}', 60, 'labels', '{i}', centroid_table => 'many', max_iter => 0) c JOIN many m USING (cluster);
SELECT count(*) AS differ FROM labels JOIN pts USING (i) WHERE labels.cluster <> label;
-- directions stay as they are, too, by all roads
CREATE TABLE directions AS SELECT * FROM kmeans('pts', '{e}', 60, distance => 'cosine');
CREATE VIEW stayed AS
SELECT 'table' AS road, c.* FROM kmeans('pts', '{e}', 60, distance => 'cosine', centroid_table => 'directions', max_iter => 0) c
UNION ALL
SELECT 'array', c.* FROM kmeans('pts', '{e}', 60, distance => 'cosine', centroids => (SELECT array_agg(centroid ORDER BY cluster) FROM directions), max_iter => 0) c
UNION ALL
SELECT 'model', c.* FROM kmeans('pts', '{e}', 60, distance => 'cosine', warm_start => kmeans_fit('pts', '{e}', 60, distance => 'cosine'), max_iter => 0) c
UNION ALL
SELECT 'from table', c.* FROM kmeans_centroids(kmeans_from_table('directions', distance => 'cosine')) c;
SELECT road, count(*) AS clusters, count(*) FILTER (WHERE s.centroid <> d.centroid) AS moved FROM stayed s JOIN directions d USING (cluster) GROUP BY road ORDER BY road;

-- the order is that of the numbers, of any width and type; a view will do
CREATE VIEW turned AS SELECT (59 - cluster)::smallint AS cluster, centroid FROM many ORDER BY size;
SELECT bool_and(c.size = m.size AND c.centroid = m.centroid) AS turned
FROM kmeans('pts', '{e}', 60, centroid_table => 'turned', max_iter => 0) c JOIN many m ON m.cluster = 59 - c.cluster;
CREATE TABLE "Two" (cluster bigint, centroid real[]);
INSERT INTO "Two" VALUES (1, '{100,100}'), (0, '{5,5}'), (2, '{3,3}');
-- few rows, and a cluster without any, which stays where it is
SELECT cluster, size, centroid FROM kmeans_query('SELECT 4, 4 UNION ALL SELECT 6, 4', 3, centroid_table => '"Two"', max_iter => 0);
SELECT cluster, size, centroid FROM kmeans_query('SELECT 4, 4 UNION ALL SELECT 6, 4', 3, centroids => '{{5,5},{100,100},{3,3}}', max_iter => 0, distance => 'manhattan');
SELECT cluster, size, round(centroid[1]::numeric, 6) AS c FROM kmeans_query('SELECT 4, 4 UNION ALL SELECT 6, 4', 3, centroid_table => '"Two"', max_iter => 0, distance => 'cosine');
SELECT cluster, size, centroid FROM kmeans_query('SELECT 4, NULL::int UNION ALL SELECT 6, 4', 3, centroid_table => '"Two"', max_iter => 0, nulls => 'partial');
-- with iterations it is a start, as centroids are
SELECT (SELECT array_agg(c) FROM kmeans('pts', '{x,y}', 60, centroid_table => 'turned', max_iter => 3) c)
     = (SELECT array_agg(c) FROM kmeans('pts', '{x,y}', 60, centroids => (SELECT array_agg(centroid ORDER BY cluster) FROM turned), max_iter => 3) c) AS start;
SELECT i.init, i.k, i.iterations, i.converged FROM kmeans_info(kmeans_fit('pts', '{e}', 60, centroid_table => 'many', max_iter => 0)) i;

-- errors
SELECT kmeans('pts', '{e}', 3, max_iter => 0);
SELECT kmeans_balanced('pts', '{e}', 3, max_iter => 0, centroids => '{{1,1},{2,2},{3,3}}');
SELECT kmeans_spectral_fit('pts', '{e}', 3, max_iter => 0);
SELECT kmeans_scan('pts', '{e}', 2, 3, max_iter => 0);
SELECT kmeans_grouped('pts', '{label}', '{e}', 2, max_iter => 0, centroids => '{{1,1},{2,2}}');
SELECT kmeans_agg(e, 2, kmeans_options(max_iter => 0, centroids => '{{1,1},{2,2}}')) FROM pts;
SELECT kmeans('pts', '{e}', 3, max_iter => -1);
SELECT kmeans('pts', '{e}', 50, centroid_table => 'many');
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"', centroids => '{{1,1},{2,2},{3,3}}');
SELECT kmeans('pts', '{x}', 3, centroid_table => '"Two"');
SELECT kmeans('pts', '{x}', 3, centroid_table => 'pts');
SELECT kmeans('pts', '{x}', 3, centroid_table => 0);
SELECT kmeans('pts', '{x}', 3, centroid_table => 'missing');
BEGIN;
UPDATE "Two" SET cluster = 3 WHERE cluster = 2;
SAVEPOINT s;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
ROLLBACK TO s;
UPDATE "Two" SET cluster = 0 WHERE cluster = 3;
SAVEPOINT s;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
ROLLBACK;
BEGIN;
UPDATE "Two" SET centroid = NULL WHERE cluster = 2;
SAVEPOINT s;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
ROLLBACK TO s;
UPDATE "Two" SET centroid = '{1,NaN}' WHERE cluster = 2;
SAVEPOINT s;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
ROLLBACK TO s;
UPDATE "Two" SET centroid = '{0,0}' WHERE cluster = 2;
SAVEPOINT s;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"', distance => 'cosine');
ROLLBACK TO s;
UPDATE "Two" SET centroid = '{1,2,3}' WHERE cluster = 2;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
ROLLBACK;
-- the rights are the caller's
CREATE ROLE regress_centroids;
GRANT SELECT ON pts TO regress_centroids;
SET ROLE regress_centroids;
SELECT kmeans('pts', '{e}', 3, centroid_table => '"Two"');
RESET ROLE;
DROP OWNED BY regress_centroids;
DROP ROLE regress_centroids;
DROP VIEW turned, stayed;
DROP TABLE pts, many, directions, "Two", labels;
DROP FUNCTION differences;
