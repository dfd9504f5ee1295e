-- <options>: each one good and bad.

CREATE TABLE pts (id int, x float8, y float8, w float8);
INSERT INTO pts
SELECT i, (i % 4) * 0.5, (i % 2) * 0.25, 1 + i % 2 FROM generate_series(0, 7) i
UNION ALL SELECT 10 + i, 40 + (i % 3) * 0.25, (i % 2) * 0.5, 1 FROM generate_series(0, 5) i
UNION ALL SELECT 20 + i, i * 0.5, 80 - i * 0.25, 3 FROM generate_series(0, 1) i;

-- two models are the same but for the time that they took
CREATE FUNCTION same(a kmeans_model, b kmeans_model) RETURNS bool LANGUAGE sql AS
$$ SELECT a::text::jsonb - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms,device,strategy}'::text[]
        = b::text::jsonb - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms,device,strategy}'::text[] $$;

-- numbers that are no short binary fractions
CREATE FUNCTION rounded(a float8[]) RETURNS numeric[] LANGUAGE sql AS
$$ SELECT array_agg(round(v::numeric, 3) ORDER BY i) FROM unnest(a) WITH ORDINALITY u (v, i) $$;

-- k
SELECT * FROM kmeans('pts', '{x,y}', 0);
SELECT * FROM kmeans('pts', '{x,y}', -3);
SELECT * FROM kmeans('pts', '{x,y}', 1000001);
SELECT count(*) FROM kmeans('pts', '{id}', 1000000);
SELECT * FROM kmeans('pts', '{x,y}', NULL::int);
SELECT kmeans_fit('pts', '{x,y}', 0);
SELECT * FROM kmeans_labels('pts', '{x,y}', 0);
SELECT * FROM kmeans(NULL, '{x,y}', 2);
SELECT * FROM kmeans('pts', NULL, 2);

-- weight_column: like so many rows
CREATE TABLE repeated AS SELECT x, y FROM pts, generate_series(1, w::int);
SELECT a.cluster, a.size AS points, b.size AS repeated, rounded(a.centroid) = rounded(b.centroid) AS centroid,
       abs(a.inertia - b.inertia) < 1e-4 AS inertia, abs(a.radius - b.radius) < 1e-4 AS radius
FROM kmeans('pts', '{x,y}', 3, weight_column => 'w', centroids => '{{0,0},{40,0},{0,80}}') a
JOIN kmeans('repeated', '{x,y}', 3, centroids => '{{0,0},{40,0},{0,80}}') b USING (cluster);
SELECT * FROM kmeans('pts', '{x,y}', 3, weight_column => 'nosuch');
CREATE TABLE weights (v int, w real, n numeric, t text, a float8[]);
INSERT INTO weights VALUES (1, 1, 2.5, '1', '{1}'), (2, 0, 2.5, '1', '{1}'), (3, NULL, 2.5, '1', '{1}'), (9, 2, 5, '1', '{1}');
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'w');
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'n');
SELECT cluster, size, rounded(centroid) FROM kmeans('weights', '{v}', 2, weight_column => 'v');
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 't');
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'a');
UPDATE weights SET w = -1 WHERE v = 3;
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'w');
UPDATE weights SET w = 'NaN' WHERE v = 3;
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'w');
UPDATE weights SET w = 'Infinity' WHERE v = 3;
SELECT * FROM kmeans('weights', '{v}', 2, weight_column => 'w');
-- a row without weight is ignored, whatever is in it
UPDATE weights SET w = 0, n = 'NaN' WHERE v = 3;
SELECT cluster, size FROM kmeans('weights', '{n}', 1, weight_column => 'w');

-- init
SELECT (kmeans_info(kmeans_fit('pts', '{x,y}', 3, init => w))).init
FROM unnest('{k-means++,k-means||,hierarchical,random,K-Means++}'::text[]) w;
SELECT * FROM kmeans('pts', '{x,y}', 3, init => 'kmeans++');
SELECT * FROM kmeans('pts', '{x,y}', 3, init => NULL);

-- centroids: their order is kept
SELECT cluster, size, centroid FROM kmeans('pts', '{x,y}', 3, centroids => '{{0,80},{0,0},{40,0}}');
SELECT init, seed FROM kmeans_info((SELECT kmeans_fit('pts', '{x,y}', 3, centroids => '{{0,80},{0,0},{40,0}}', n_init => 5)));
SELECT * FROM kmeans('pts', '{x,y}', 2, centroids => '{{0,80},{0,0},{40,0}}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{{0},{1},{2}}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{0,80,0}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{{0,80},{0,NULL},{40,0}}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{{0,80},{0,NaN},{40,0}}');
SELECT * FROM kmeans('pts', '{x,y}', 3, centroids => '{{0,80},{0,0},{40,-Infinity}}');
SELECT * FROM kmeans('pts', '{x,y}', 2, centroids => '{{0,80},{0,0}}', distance => 'cosine');

-- warm_start: numbers are kept, although sizes change
CREATE TABLE nightly AS SELECT kmeans_fit('pts', '{x,y}', 3, centroids => '{{0,80},{0,0},{40,0}}') AS m;
INSERT INTO pts SELECT 100 + i, 40, i, 1 FROM generate_series(0, 9) i;
SELECT cluster, size, rounded(centroid) FROM nightly, kmeans('pts', '{x,y}', 3, warm_start => m);
SELECT i.init, i.iterations FROM nightly, kmeans_fit('pts', '{x,y}', 3, warm_start => m) f, kmeans_info(f) i;
SELECT * FROM nightly, kmeans('pts', '{x,y}', 4, warm_start => m);
SELECT * FROM nightly, kmeans('pts', '{x,y,w}', 3, warm_start => m);
SELECT * FROM nightly, kmeans('pts', '{x,y}', 3, warm_start => m, distance => 'cosine');
SELECT * FROM nightly, kmeans('pts', '{x,y}', 3, warm_start => m, centroids => '{{0,80},{0,0},{40,0}}');
DELETE FROM pts WHERE id >= 100;

-- n_init: the best of the restarts
SELECT every((kmeans_info(ten)).inertia <= (kmeans_info(one)).inertia) AS best
FROM generate_series(1, 5) s,
     LATERAL (SELECT kmeans_fit('pts', '{x,y}', 4, init => 'random', seed => s, n_init => 10) AS ten,
                     kmeans_fit('pts', '{x,y}', 4, init => 'random', seed => s) AS one) f;
SELECT * FROM kmeans('pts', '{x,y}', 3, n_init => 0);
SELECT * FROM kmeans('pts', '{x,y}', 3, n_init => NULL);

-- max_iter
SELECT i.iterations, i.converged FROM kmeans_info((SELECT kmeans_fit('pts', '{id}', 3, centroids => '{{0},{1},{2}}', max_iter => 2, tol => 0))) i;
SELECT * FROM kmeans('pts', '{x,y}', 3, max_iter => 0);
SELECT * FROM kmeans('pts', '{x,y}', 3, max_iter => NULL);

-- tol: 0 runs until nothing moves, a huge one stops after the first iteration
SELECT i.iterations, i.converged FROM kmeans_info((SELECT kmeans_fit('pts', '{id}', 3, centroids => '{{0},{1},{2}}', tol => 1e6))) i;
SELECT i.iterations > 1 AS more, i.converged FROM kmeans_info((SELECT kmeans_fit('pts', '{id}', 3, centroids => '{{0},{1},{2}}', tol => 0))) i;
SELECT * FROM kmeans('pts', '{x,y}', 3, tol => -0.1);
SELECT * FROM kmeans('pts', '{x,y}', 3, tol => 'NaN');
SELECT * FROM kmeans('pts', '{x,y}', 3, tol => 'Infinity');
SELECT * FROM kmeans('pts', '{x,y}', 3, tol => NULL);

-- distance: cosine groups by direction, whatever the length
CREATE TABLE rays (x int, y int);
INSERT INTO rays SELECT 3 * i, 4 * i FROM generate_series(1, 4) i UNION ALL SELECT -4 * i, 3 * i FROM generate_series(1, 3) i;
SELECT cluster, size, round(centroid[1]::numeric, 6) AS x, round(centroid[2]::numeric, 6) AS y,
       round(inertia::numeric, 6) AS inertia, round(radius::numeric, 6) AS radius
FROM kmeans('rays', '{x,y}', 2, distance => 'cosine');
SELECT (kmeans_info(kmeans_fit('rays', '{x,y}', 2, distance => 'Cosine'))).distance;
-- 1 - cosine of the angle to the mean direction
SELECT cluster, round(distance::numeric, 6) AS distance
FROM kmeans_labels('rays', '{x,y}', 1, distance => 'cosine') ORDER BY ctid;
INSERT INTO rays VALUES (0, 0);
SELECT * FROM kmeans('rays', '{x,y}', 2, distance => 'cosine');
SELECT cluster, size FROM kmeans('rays', '{x,y}', 2, distance => 'cosine', nonfinite => 'skip');
SELECT cluster, size FROM kmeans('rays', '{x,y}', 2) ORDER BY 1;
SELECT * FROM kmeans('rays', '{x,y}', 2, distance => 'chebyshev');
SELECT * FROM kmeans('rays', '{x,y}', 2, distance => NULL);

-- standardize: the small feature decides, results are in original units
CREATE TABLE scales (small float8, large float8);
INSERT INTO scales SELECT (i % 2) * 0.001, 1000 * (i / 2) FROM generate_series(0, 19) i;
SELECT cluster, size, round(centroid[1]::numeric, 4) AS small, centroid[2] AS large FROM kmeans('scales', '{small,large}', 2);
SELECT cluster, size, rounded(centroid)
FROM kmeans('scales', '{small,large}', 2, standardize => true, centroids => '{{0,5000},{0.001,5000}}');
SELECT standardize FROM kmeans_info((SELECT kmeans_fit('scales', '{small,large}', 2, standardize => true)));
SELECT * FROM kmeans('scales', '{small,large}', 2, standardize => true, distance => 'cosine');
SELECT * FROM kmeans('scales', '{small,large}', 2, standardize => NULL);

-- seed: the same one gives the same model, NULL another one each time
SELECT same(kmeans_fit('pts', '{x,y}', 5, seed => 42), kmeans_fit('pts', '{x,y}', 5, seed => 42)) AS same;
SELECT count(DISTINCT (kmeans_info(kmeans_fit('pts', '{x,y}', 5, seed => NULL))).seed) FROM generate_series(1, 4);
SELECT (kmeans_info(kmeans_fit('pts', '{x,y}', 5))).seed;
SELECT (kmeans_info(kmeans_fit('pts', '{x,y}', 5, seed => -9223372036854775808))).seed;

-- nonfinite
CREATE TABLE nonfinite (id int, a float8, b real, n numeric);
INSERT INTO nonfinite VALUES (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 'NaN', 'NaN'), (4, 'Infinity', 4, 4), (5, 5, '-Infinity', 5);
SELECT * FROM kmeans('nonfinite', '{id,a}', 1);
SELECT * FROM kmeans('nonfinite', '{id,b}', 1);
SELECT * FROM kmeans('nonfinite', '{n}', 1);
SELECT * FROM kmeans('nonfinite', '{id,a,b}', 1, nonfinite => 'skip');
SELECT rows_used, rows_skipped FROM kmeans_info((SELECT kmeans_fit('nonfinite', '{id,a,b}', 1, nonfinite => 'skip')));
SELECT * FROM kmeans('nonfinite', '{id}', 1, nonfinite => 'ignore');
SELECT * FROM kmeans('nonfinite', '{id}', 1, nonfinite => NULL);

-- device
SELECT count(*) FROM kmeans('pts', '{x,y}', 3, device => 'cpu');
SELECT count(*) FROM kmeans('pts', '{x,y}', 3, device => 'AUTO');
SELECT * FROM kmeans('pts', '{x,y}', 3, device => 'tpu');
-- with a usable GPU it is used, without one the probe's reason is told
DO $$
DECLARE
    device text;
    why text;
    solution text;
BEGIN
    SELECT i.device INTO device FROM kmeans_fit('pts', '{x,y}', 3, device => 'gpu') m, kmeans_info(m) i;
    IF device NOT LIKE 'gpu%' THEN RAISE 'device is %', device; END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL, solution = PG_EXCEPTION_HINT;
    IF why <> (SELECT reason FROM gkmeans_devices() WHERE backend = 'gpu' LIMIT 1) OR solution = '' THEN
        RAISE 'detail is "%", hint is "%"', why, solution;
    END IF;
END $$;

DROP FUNCTION same, rounded;
DROP TABLE pts, repeated, weights, nightly, rays, scales, nonfinite;
