-- kmeans_anomalies(), kmeans_medoids(), kmeans_memberships(), kmeans_normalized_distance(): distances to the centroids of a model.

SET client_min_messages = warning;
SET extra_float_digits = 0;
CREATE TABLE pts AS SELECT i AS id, ((i * 7919) % 1009)::real AS x, ((i * 104729) % 997)::real AS y, 1 + i % 3 AS w FROM generate_series(1, 5000) i;
INSERT INTO pts VALUES (5001, 5000, 5000, 1), (5002, -3000, 100, 1), (5003, NULL, 1, 1);
CREATE TABLE models AS
SELECT 'euclidean' AS name, kmeans_fit('pts', '{x,y}', 7) AS m
UNION ALL SELECT 'cosine', kmeans_fit('pts', '{x,y}', 4, distance => 'cosine', nonfinite => 'skip')
UNION ALL SELECT 'standardize', kmeans_fit('pts', '{x,y}', 9, standardize => true);

-- as SQL finds them, in order, from kmeans_labels()
CREATE FUNCTION by_hand(model kmeans_model, contamination float8) RETURNS TABLE (ctid tid, cluster int, distance float8, normalized float8) LANGUAGE sql AS $$
    SELECT l.ctid, l.cluster, l.distance, CASE WHEN l.distance = 0 THEN 0 WHEN unit = 0 THEN 'Infinity' ELSE l.distance / unit END AS normalized
    FROM kmeans_labels('pts', model, nonfinite => 'skip') l JOIN (
        SELECT c.cluster, CASE i.distance WHEN 'cosine' THEN c.inertia / c.size ELSE sqrt(c.inertia / c.size) END AS unit
        FROM kmeans_centroids(model) c, kmeans_info(model) i) u USING (cluster)
    ORDER BY normalized DESC, l.ctid LIMIT ceil(contamination::numeric * (SELECT rows_used FROM kmeans_info(model))) $$;
SELECT name, c, (SELECT count(*) FROM kmeans_anomalies('pts', m, c, 'skip')),
    (SELECT array_agg((a.ctid, a.cluster, a.distance, a.normalized_distance) ORDER BY o) FROM kmeans_anomalies('pts', m, c, 'skip') WITH ORDINALITY a (t, ctid, cluster, distance, normalized_distance, o)) =
    (SELECT array_agg((h.ctid, h.cluster, h.distance, h.normalized) ORDER BY o) FROM by_hand(m, c) WITH ORDINALITY h (ctid, cluster, distance, normalized, o)) AS same
FROM models, unnest('{0.0001,0.01,0.07,0.5}'::float8[]) c ORDER BY name COLLATE "C", c;
SELECT p.id, a.cluster, round(a.distance) AS distance, round(a.normalized_distance) AS normalized
FROM models, kmeans_anomalies('pts', m, 0.0004) a JOIN pts p ON p.tableoid = a.tableoid AND p.ctid = a.ctid
WHERE name = 'standardize' ORDER BY normalized_distance DESC;
SELECT count(*) FROM models, kmeans_anomalies('pts', m, 0) WHERE name = 'euclidean';
SELECT count(*) FROM models, kmeans_anomalies('pts', m) WHERE name = 'euclidean';
-- one thread or more, any reader
SET gkmeans.threads = 1;
SET gkmeans.reader = executor;
CREATE TABLE one AS SELECT a.ctid::text AS place, a.cluster, a.distance, a.normalized_distance FROM models, kmeans_anomalies('pts', m, 0.1) a WHERE name = 'euclidean';
RESET gkmeans.threads;
RESET gkmeans.reader;
SELECT count(*) FROM (SELECT * FROM one EXCEPT SELECT a.ctid::text, a.cluster, a.distance, a.normalized_distance FROM models, kmeans_anomalies('pts', m, 0.1) a WHERE name = 'euclidean') d;
-- new rows, by a model of others; a cluster of one row has no width
CREATE TABLE fresh (x real, y real);
INSERT INTO fresh VALUES (1, 1), (500, 500), (9000, 9000), (0, 0);
SELECT f.*, a.cluster FROM models, kmeans_anomalies('fresh', m, 0.25) a JOIN fresh f ON f.ctid = a.ctid WHERE name = 'euclidean';
CREATE TABLE three AS SELECT unnest('{1,2,9}'::int[]) AS x;
SELECT cluster, distance, normalized_distance FROM kmeans_anomalies('three', kmeans_fit('three', '{x}', 3), 0.5);
CREATE TABLE singles AS SELECT kmeans_fit('three', '{x}', 3) AS model;
INSERT INTO three VALUES (10), (3);
SELECT x, a.cluster, a.distance, a.normalized_distance
FROM (SELECT model FROM singles) s, kmeans_anomalies('three', model, 0.5) a JOIN three t ON t.ctid = a.ctid;

-- medoids: the nearest row of each cluster, the first of equal ones
SELECT name, (SELECT array_agg((d.cluster, d.ctid, d.distance) ORDER BY d.cluster) FROM kmeans_medoids('pts', m, 'skip') d) =
    (SELECT array_agg((f.cluster, f.ctid, f.distance) ORDER BY f.cluster) FROM (SELECT DISTINCT ON (l.cluster) l.* FROM kmeans_labels('pts', m, 'skip') l WHERE l.cluster IS NOT NULL ORDER BY l.cluster, l.distance, l.ctid) f) AS same
FROM models ORDER BY name COLLATE "C";
SELECT t.x, d.cluster, d.distance FROM kmeans_medoids('three', kmeans_fit('three', '{x}', 2)) d JOIN three t ON t.tableoid = d.tableoid AND t.ctid = d.ctid ORDER BY cluster;
-- a cluster without rows has none
SELECT d.cluster, count(*) OVER () FROM models, kmeans_medoids('fresh', m) d WHERE name = 'euclidean' ORDER BY 1;

-- memberships: those of fuzzy c-means, and where distances are 0 or infinite
SELECT name, bool_and(abs(f.u - w.u) < 1e-6) AS same, bool_and(abs(total - 1) < 1e-12) AS one
FROM models, (SELECT * FROM pts WHERE id <= 200 AND (x, y) <> (0, 0)) p, LATERAL (SELECT kmeans_memberships(m, x, y) AS u, kmeans_transform(m, x, y) AS t) v,
    LATERAL (SELECT sum(e) AS total FROM unnest(u) e) s, LATERAL unnest(u) WITH ORDINALITY f (u, o),
    LATERAL (SELECT 1 / sum((v.t[f.o] / d) ^ CASE name WHEN 'cosine' THEN 1 ELSE 2 END) AS u FROM unnest(t) d) w
GROUP BY name ORDER BY name COLLATE "C";
SELECT kmeans_memberships(m, 1), kmeans_memberships(m, 2), kmeans_memberships(m, '{1e18}'), kmeans_memberships(m, NULL::int), kmeans_memberships(m, 1.5) = kmeans_memberships(m, ARRAY[1.5]) AS array
FROM kmeans_fit('three', '{x}', 2, centroids => '{{1},{9}}', max_iter => 1) m0, LATERAL (SELECT kmeans_fit('three', '{x}', 2, centroids => '{{2},{10}}', tol => 1e9) AS m) n LIMIT 1;

-- one point: what kmeans_anomalies() says of its row, by any way of calling
SELECT count(*), bool_and(float8send(kmeans_normalized_distance(m, x, y)) = float8send(a.normalized_distance) AND
    kmeans_normalized_distance(m, ARRAY[x, y]) = a.normalized_distance) AS as_anomalies
FROM models, LATERAL kmeans_anomalies('pts', m, 0.5, 'skip') a JOIN pts p ON p.tableoid = a.tableoid AND p.ctid = a.ctid;
-- a threshold of the rows of the fit finds them again
SELECT (SELECT count(*) FROM pts WHERE kmeans_normalized_distance(m, x, y) >= t) AS found, (SELECT count(*) FROM kmeans_anomalies('pts', m, 0.02)) AS wanted
FROM models, LATERAL (SELECT min(normalized_distance) AS t FROM kmeans_anomalies('pts', m, 0.02)) t WHERE name = 'euclidean';
SELECT kmeans_normalized_distance(m, 1, NULL) IS NULL AND kmeans_normalized_distance(NULL, 1) IS NULL AS nulls FROM models WHERE name = 'euclidean';
SELECT kmeans_normalized_distance(model, 3), kmeans_normalized_distance(model, 4) FROM (SELECT kmeans_fit('three', '{x}', 3) AS model) s;

-- what is refused
SELECT kmeans_normalized_distance(m, 1, 'NaN'::float8) FROM models WHERE name = 'euclidean';
SELECT kmeans_normalized_distance(kmeans_spectral_fit('pts', '{x,y}', 2, representatives => 10), 1, 2);
SELECT count(*) FROM kmeans_anomalies('pts', kmeans_spectral_fit('pts', '{x,y}', 2, representatives => 10));
RESET client_min_messages;
\set VERBOSITY terse
SELECT count(*) FROM models, kmeans_anomalies('pts', m, 0.6);
SELECT count(*) FROM models, kmeans_anomalies('pts', m, -0.1);
SELECT count(*) FROM models, kmeans_anomalies('pts', m, 'NaN');
SELECT count(*) FROM models, kmeans_anomalies('pts', m, NULL);
SELECT count(*) FROM kmeans_anomalies('pts', NULL);
SELECT count(*) FROM models, kmeans_anomalies(NULL, m);
SELECT count(*) FROM models, kmeans_anomalies('three', m) WHERE name = 'euclidean';
SELECT count(*) FROM models, kmeans_medoids('three', m) WHERE name = 'euclidean';
SELECT count(*) FROM kmeans_medoids('pts', (SELECT kmeans_agg(ARRAY[x, y], 2) FROM pts));
SELECT count(*) FROM models, kmeans_medoids('pts', m, device => 'abacus') WHERE name = 'euclidean';
CREATE VIEW seen AS SELECT x, y FROM pts;
SELECT count(*) FROM models, kmeans_medoids('seen', m) WHERE name = 'euclidean';
INSERT INTO fresh VALUES ('NaN', 1);
SELECT count(*) FROM models, kmeans_anomalies('fresh', m) WHERE name = 'euclidean';
DELETE FROM fresh;
SELECT count(*) FROM models, kmeans_anomalies('fresh', m) WHERE name = 'euclidean';
SELECT kmeans_memberships(m, 1) FROM models WHERE name = 'euclidean';

DROP TABLE pts, models, one, fresh, three, singles CASCADE;
DROP FUNCTION by_hand;
