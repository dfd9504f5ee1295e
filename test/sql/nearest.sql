-- kmeans_nearest(): the m nearest clusters, in the order of kmeans_predict()'s rule.

SET client_min_messages = warning;
CREATE TABLE pts AS SELECT i, ARRAY[(i * 7919) % 101, (i * 104729) % 97, (i * 1299709) % 89]::real[] AS p
FROM generate_series(1, 500) i;
CREATE TABLE models AS
SELECT 'euclidean' AS name, 7 AS k, kmeans_fit('pts', '{p}', 7) AS m
UNION ALL SELECT 'cosine', 9, kmeans_fit('pts', '{p}', 9, distance => 'cosine', max_iter => 3)
UNION ALL SELECT 'standardize', 100, kmeans_fit('pts', '{p}', 100, standardize => true, max_iter => 3)
UNION ALL SELECT 'one', 1, kmeans_fit('pts', '{p}', 1);
RESET client_min_messages;
SELECT n.*
FROM models, kmeans_nearest(m, '{10,20,30}', 3) n WHERE name = 'euclidean';

-- all of kmeans_transform(), sorted; the first row is what kmeans_predict() and kmeans_distance() say
SELECT name, m_asked, count(*) AS points,
    bool_and(n.clusters = t.clusters[:m_asked] AND n.distances = t.distances[:m_asked]) AS as_transform,
    bool_and(n.clusters[1] = kmeans_predict(m, p) AND float8send(n.distances[1]) = float8send(kmeans_distance(m, p))) AS as_predict
FROM models, unnest('{1,2,3,7,8,50,99,100,2147483647}'::int[]) m_asked, pts,
    LATERAL (SELECT array_agg(cluster ORDER BY ordinality) AS clusters, array_agg(distance ORDER BY ordinality) AS distances
             FROM kmeans_nearest(m, p, m_asked) WITH ORDINALITY) n,
    LATERAL (SELECT array_agg((c - 1)::int ORDER BY d, c) AS clusters, array_agg(d ORDER BY d, c) AS distances
             FROM unnest(kmeans_transform(m, p)) WITH ORDINALITY u (d, c)) t
WHERE i <= 40 GROUP BY name, m_asked ORDER BY name COLLATE "C", m_asked;

-- every kind of point; in a select list, too
CREATE TYPE trio AS (a real, b real, c real);
CREATE FUNCTION trio_to_real(trio) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1.a, $1.b, $1.c]';
CREATE CAST (trio AS real[]) WITH FUNCTION trio_to_real AS IMPLICIT;
SELECT array_agg(a = b AND a = c AND a = d AND a = e AND a = f AND a = g) AS same
FROM (SELECT kmeans_nearest(m, '{10,20,30}', 3) AS a, kmeans_nearest(m, ARRAY[10, 20, 30], 3) AS b,
      kmeans_nearest(m, '{10,20,30}'::real[], 3::smallint) AS c, kmeans_nearest(m, '{10,20,30}'::float8[], '3') AS d,
      kmeans_nearest(m, '{10,20,30}'::numeric[], 3) AS e, kmeans_nearest(m, (10, 20, 30)::trio, 3) AS f,
      kmeans_nearest(point => ARRAY[10, 20, 30]::bigint[], m => 3, model => m) AS g
      FROM models WHERE name = 'euclidean') n;
CREATE TABLE line AS SELECT unnest('{0,10,30}'::float8[]) AS x;
SELECT n.* FROM kmeans_fit('line', '{x}', 3) m, kmeans_nearest(m, 12, 2) n;
-- ties go to the lowest number
SELECT n.* FROM kmeans_fit('line', '{x}', 3, centroids => '{{30},{10},{0}}') m, kmeans_nearest(m, 20, 2) n;

-- no rows for NULLs
SELECT (SELECT count(*) FROM kmeans_nearest(NULL, '{1,2,3}', 1)) AS model, (SELECT count(*) FROM kmeans_nearest(m, NULL, 1)) AS point,
    (SELECT count(*) FROM kmeans_nearest(m, '{1,NULL,3}', 1)) AS feature FROM models WHERE name = 'one';

-- what is refused
\set VERBOSITY sqlstate
SELECT n.* FROM models, kmeans_nearest(m, '{1,2,3}', 0) n WHERE name = 'one';
\set VERBOSITY terse
\set SHOW_CONTEXT never
SELECT n.* FROM models, kmeans_nearest(m, '{1,2,3}', -5) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, '{1,2,3}', NULL) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(NULL, NULL, NULL) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, '{1,2}', 1) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, '{1,2,NaN}', 1) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, ARRAY[1, 2, 'Infinity'::float8], 1) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, '{0,0,0}', 1) n WHERE name = 'cosine';
SELECT n.* FROM models, kmeans_nearest(m, 'x'::text, 1) n WHERE name = 'one';
SELECT n.* FROM models, kmeans_nearest(m, ARRAY[[1, 2, 3]], 1) n WHERE name = 'one';

-- far outside the range there is none
SELECT cluster, distance FROM models, kmeans_nearest(m, '{1e300,0,0}', 3) WHERE name = 'euclidean';

DROP TABLE pts, models, line;
DROP TYPE trio CASCADE;
