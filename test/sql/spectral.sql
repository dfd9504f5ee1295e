-- kmeans_spectral() and kmeans_spectral_fit()
CREATE SCHEMA spectral;
SET search_path = spectral, public;
CREATE TABLE rings AS
SELECT i AS id, i % 2 AS truth,
       (1 + i % 2 * 2 + 0.1 * sin(i * 7.3)) * cos(i * 0.37) AS x,
       (1 + i % 2 * 2 + 0.1 * sin(i * 7.3)) * sin(i * 0.37) AS y
FROM generate_series(1, 2000) i;

-- k is found; k-means cannot do it
SELECT cluster, size FROM kmeans_spectral('rings', '{x,y}', representatives => 100, label_column => 'label');
SELECT truth, label, count(*) FROM rings GROUP BY 1, 2 ORDER BY 1, 2;
-- in their order again: from PostgreSQL 16 on an UPDATE may fill other pages first
CREATE INDEX by_id ON rings (id);
CLUSTER rings USING by_id;
SELECT cluster, size FROM kmeans_spectral('rings', '{x,y}', 2, 100);
SELECT cluster, size, inertia > 0 AS inertia, radius < 1 AS radius FROM kmeans_spectral('rings', '{x,y}', 2, 100, laplacian => 'random_walk');
SELECT cluster, size FROM kmeans_spectral('rings', '{x,y}', 2, 100, laplacian => 'unnormalized', affinity => 'rbf', gamma => 20);
SELECT cluster, size FROM kmeans_spectral('rings', '{x,y}', 2, 100, affinity => 'RBF');

-- the model: labels, predictions, distances
CREATE TABLE spectral_model AS SELECT kmeans_spectral_fit('rings', '{x,y}', NULL, 100) AS m;
SELECT k, d, columns, rows_used, representatives, array_length(eigenvalues, 1) AS eigenvalues, array_length(gaps, 1) AS gaps,
       eigenvalues[1] AS first, eigenvalues[2] AS second, eigenvalues[3] > 0 AS third, k_by, gap_strength, components, cut_off,
       graph_ms >= 0 AND eigen_ms >= 0 AND embed_ms >= 0 AS times
FROM spectral_model, kmeans_info(m);
SELECT cluster, size, array_length(centroid, 1) AS d FROM spectral_model, kmeans_centroids(m);
SELECT t.cluster, t.size = c.size AS size, (t.centroid->>'x')::float8 = c.centroid[1] AS x
FROM spectral_model, kmeans_table(m, 17) t JOIN kmeans_centroids((SELECT m FROM spectral_model)) c USING (cluster);
SELECT e.cluster, e.feature, e.value = c.centroid[CASE feature WHEN 'x' THEN 1 ELSE 2 END] AS value
FROM spectral_model, kmeans_explain(m) e JOIN kmeans_centroids((SELECT m FROM spectral_model)) c USING (cluster) ORDER BY 1, 2;
SELECT count(*) FILTER (WHERE kmeans_predict(m, x, y) = label) AS predicted,
       count(*) FILTER (WHERE kmeans_distance(m, x, y) = (SELECT min(t) FROM unnest(kmeans_transform(m, x, y)) t)) AS distances
FROM spectral_model, rings;
SELECT count(*), count(*) FILTER (WHERE l.cluster = r.label) AS same
FROM spectral_model, kmeans_labels('rings', m) l JOIN rings r ON r.ctid = l.ctid AND r.tableoid = l.tableoid;
SELECT cluster, array_length(kmeans_transform(m, 1, 0), 1) AS clusters FROM spectral_model, kmeans_nearest(m, ARRAY[1, 0], 5) ORDER BY distance;
SELECT k, rows, inertia, silhouette < 0.5 AS silhouette FROM spectral_model, kmeans_evaluate(m, 'rings');

-- its text and back, a generated column
SELECT m::text::kmeans_model::text = m::text AS text, m::text::jsonb->'spectral' ? 'eigenvalues' AS spectral FROM spectral_model;
SELECT m::text::jsonb::text::kmeans_model::text = m::text AS jsonb FROM spectral_model;
SELECT current_setting('data_directory') || '/gkmeans_spectral.bin' AS file \gset
COPY spectral_model TO :'file' (FORMAT binary);
CREATE TABLE spectral_copy (m kmeans_model);
COPY spectral_copy FROM :'file' (FORMAT binary);
SELECT c.m::text = o.m::text AS binary FROM spectral_copy c, spectral_model o;
SELECT m FROM spectral_model \gset
CREATE TABLE points (x float8, y float8, label int GENERATED ALWAYS AS (kmeans_predict(:'m'::kmeans_model, x, y)) STORED);
INSERT INTO points (x, y) VALUES (1, 0), (0, -3);
SELECT p.x, p.y, p.label = (SELECT r.label FROM rings r ORDER BY (r.x - p.x) ^ 2 + (r.y - p.y) ^ 2 LIMIT 1) AS nearest FROM points p;

-- the same by all roads
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.spectral_of(OUT t text) LANGUAGE sql AS
$$ SELECT string_agg(cluster || ':' || size || ':' || centroid::text, ' ') FROM kmeans_spectral('rings', '{x,y}', 7, 150) $$;
CREATE TEMP TABLE roads AS SELECT 'default' AS road, t FROM pg_temp.spectral_of();
SET gkmeans.simd = scalar;
INSERT INTO roads SELECT 'scalar', t FROM pg_temp.spectral_of();
RESET gkmeans.simd;
SET gkmeans.threads = 3;
INSERT INTO roads SELECT 'threads', t FROM pg_temp.spectral_of();
SET gkmeans.threads = 1;
INSERT INTO roads SELECT 'one thread', t FROM pg_temp.spectral_of();
RESET gkmeans.threads;
SET gkmeans.strategy = scan;
INSERT INTO roads SELECT 'scan', t FROM pg_temp.spectral_of();
SELECT count(*) FROM kmeans_spectral('rings', '{x,y}', 2, 100, label_column => 'scanned');
SELECT count(*) FILTER (WHERE scanned = label) AS scanned FROM rings;
CLUSTER rings;
RESET gkmeans.strategy;
SELECT count(*), count(DISTINCT t) FROM roads;
RESET client_min_messages;

-- centroids are means by weights, directions under cosine, as those of kmeans(): by the call, the model, and on all roads
CREATE TABLE heavy AS SELECT * FROM (VALUES (0, 1), (1, 9)) v (x, w);
CREATE TABLE heavier AS SELECT x, 1e308::float8 AS w FROM generate_series(0, 2) x;
SELECT size, centroid FROM kmeans_spectral('heavy', '{x}', 1, weight_column => 'w');
-- weights whose sum is out of range
SELECT centroid FROM kmeans_spectral('heavier', '{x}', 1, weight_column => 'w');
SELECT c.centroid, t.centroid AS "table" FROM kmeans_spectral_fit('heavy', '{x}', 1, weight_column => 'w') m, kmeans_centroids(m) c, kmeans_table(m) t;
CREATE TABLE corner AS SELECT * FROM (VALUES (1, 0), (0, 1)) v (x, y);
SELECT centroid FROM kmeans_spectral('corner', '{x,y}', 1, distance => 'cosine');
-- without a direction together, the first representative's
CREATE TABLE opposite AS SELECT * FROM (VALUES (1, 0), (-1, 0)) v (x, y);
SELECT size, centroid FROM kmeans_spectral('opposite', '{x,y}', 1, distance => 'cosine');
CREATE TABLE weighed AS SELECT i, cos(i) + i % 3 AS x, sin(i * 1.7) + i % 2 AS y, 1 + i % 7 AS w FROM generate_series(1, 1000) i;
CREATE FUNCTION near(a float8[], b float8[]) RETURNS bool LANGUAGE sql AS 'SELECT bool_and(abs(x - y) < 1e-6) FROM unnest(a, b) v (x, y)';
CREATE TABLE roads_of AS SELECT distance, weight, kmeans_spectral_fit('weighed', '{x,y}', 1, 20, weight_column => weight, distance => distance, tol => 0) AS m
FROM unnest('{euclidean,cosine}'::text[]) distance, unnest('{NULL,w}'::text[]) weight;
SELECT distance, weight, near(c.centroid, k.centroid) AS as_kmeans
FROM roads_of, kmeans_centroids(m) c, kmeans('weighed', '{x,y}', 1, weight_column => weight, distance => distance) k ORDER BY 1, 2;
SELECT near(centroid, ARRAY[(SELECT sum(w * x) / sum(w) FROM weighed), (SELECT sum(w * y) / sum(w) FROM weighed)]) AS as_sql
FROM kmeans_spectral('weighed', '{x,y}', 1, 20, weight_column => 'w');
SET gkmeans.strategy = scan;
SELECT bool_and(centroid = c) AS scan FROM roads_of, LATERAL (SELECT centroid AS c FROM kmeans_centroids(m)) c, kmeans_spectral('weighed', '{x,y}', 1, 20, weight_column => weight, distance => distance, tol => 0);
RESET gkmeans.strategy;
-- weights in a model's text and bytes; an early model has none
SELECT bool_and(m::text::kmeans_model::text = m::text) AS text, count(m::text::jsonb #> '{spectral,weights}') AS weights FROM roads_of;
COPY (SELECT m FROM roads_of ORDER BY distance, weight) TO :'file' (FORMAT binary);
TRUNCATE spectral_copy;
COPY spectral_copy FROM :'file' (FORMAT binary);
SELECT count(*) FROM spectral_copy c JOIN roads_of r ON c.m::text = r.m::text;
SELECT c.centroid FROM kmeans_spectral_fit('heavy', '{x}', 1, weight_column => 'w') m, kmeans_centroids((m::text::jsonb #- '{spectral,weights}')::text::kmeans_model) c;
SELECT jsonb_set(m::text::jsonb, '{spectral,weights}', '[1]')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,weights}', '[1, -2]')::text::kmeans_model FROM kmeans_spectral_fit('heavy', '{x}', 1, weight_column => 'w') m;
SELECT jsonb_set(m::text::jsonb, '{spectral,weights}', '[17, 1]')::text::kmeans_model FROM kmeans_spectral_fit('heavy', '{x}', 1, weight_column => 'w') m;

-- no structure: weak
CREATE TABLE noise AS SELECT (i * 0.6180339887) % 1 AS x, (i * 0.7548776662) % 1 AS y FROM generate_series(1, 3000) i;
SELECT count(*) > 1 AS some FROM kmeans_spectral('noise', '{x,y}', representatives => 300);

-- components: fewer asked for than there are, more than there can be
CREATE TABLE islands AS SELECT i % 4 * 100 + cos(i) AS x, sin(i * 1.7) AS y FROM generate_series(1, 2000) i;
SELECT cluster, size FROM kmeans_spectral('islands', '{x,y}', representatives => 100);
SELECT cluster, size FROM kmeans_spectral('islands', '{x,y}', 3, 100);
SELECT cluster, size FROM kmeans_spectral('islands', '{x,y}', 8, 8, neighbors => 100);
-- outliers are cut off, and go with their nearest
CREATE TABLE outliers AS SELECT i % 2 * 50 + cos(i) AS x, sin(i * 1.7) AS y FROM generate_series(1, 2000) i;
INSERT INTO outliers VALUES (1000000, 0), (1010000, 0);
SELECT cluster, size FROM kmeans_spectral('outliers', '{x,y}', representatives => 6, neighbors => 1);
SELECT cluster, size FROM kmeans_spectral('outliers', '{x,y}', 2, 6, neighbors => 1, label_column => 'label');
SELECT count(DISTINCT label) AS labels, min(label) = max(label) AS together FROM outliers WHERE x > 40;

-- few rows, equal rows, none, NULL and NaN
CREATE TABLE few (x float8, y float8);
SELECT * FROM kmeans_spectral('few', '{x,y}', 2);
SELECT kmeans_spectral_fit('few', '{x,y}') IS NULL AS null_model;
INSERT INTO few VALUES (1, 1);
SELECT * FROM kmeans_spectral('few', '{x,y}');
INSERT INTO few VALUES (1, 1), (1, 1);
SELECT * FROM kmeans_spectral('few', '{x,y}', 2);
INSERT INTO few VALUES (1, 2), (9, 9), (9, 8);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 2, neighbors => 1);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 6);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 2, affinity => 'rbf');
INSERT INTO few VALUES (NULL, 2);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 2, neighbors => 1, label_column => 'label');
SELECT * FROM few ORDER BY x, y;
INSERT INTO few VALUES ('NaN', 2);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 2);
SELECT cluster, size FROM kmeans_spectral('few', '{x,y}', 2, neighbors => 1, nonfinite => 'skip');

-- bad options
SELECT kmeans_spectral_fit('rings', '{x,y}', 0);
SELECT kmeans_spectral_fit('rings', '{x,y}', 1001);
SELECT kmeans_spectral_fit('rings', '{x,y}', representatives => 1);
SELECT kmeans_spectral_fit('rings', '{x,y}', representatives => 5001);
SELECT kmeans_spectral_fit('rings', '{x,y}', representatives => NULL);
SELECT kmeans_spectral_fit('rings', '{x,y}', neighbors => 0);
SELECT kmeans_spectral_fit('rings', '{x,y}', affinity => 'cosine');
SELECT kmeans_spectral_fit('rings', '{x,y}', gamma => 1);
SELECT kmeans_spectral_fit('rings', '{x,y}', affinity => 'rbf', gamma => 0);
SELECT kmeans_spectral_fit('rings', '{x,y}', affinity => 'rbf', gamma => 'NaN');
SELECT kmeans_spectral_fit('rings', '{x,y}', laplacian => 'graph');
SELECT kmeans_spectral_fit(NULL, '{x,y}');
SELECT kmeans_spectral_fit('rings', NULL);

-- a spectral model where only a plain one makes sense
SELECT kmeans_fit('rings', '{x,y}', 100, warm_start => m) FROM spectral_model;
SELECT kmeans_step('rings', '{x,y}', m) FROM spectral_model;

-- how many clusters: of rings, of islands, with fewer than components, of nothing
SELECT k, round(eigenvalue::numeric, 3) AS eigenvalue, round(gap::numeric, 3) AS gap, round(strength::numeric, 2) AS strength,
       round(silhouette::numeric, 3) AS silhouette, suggested
FROM spectral_model, kmeans_spectral_scan(m, 1, 5);
SELECT k, gap > 0 AS gap, silhouette BETWEEN -1 AND 1 AS silhouette, suggested
FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit('islands', '{x,y}', 2, 100)), k_max => 6);
SELECT count(*), max(k), count(suggested) FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit('noise', '{x,y}', 4, 100, affinity => 'rbf')));
SELECT k, gap IS NULL AS last, round(silhouette::numeric, 3) AS silhouette FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit('few', '{x,y}', 2, nonfinite => 'skip')));
SELECT * FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit('few', '{x,y}', 2, nonfinite => 'skip')), 50, 60);
SELECT count(*) FROM spectral_model, kmeans_spectral_scan(m, 90);
-- the same numbers as in kmeans_info()
SELECT s.k, i.k_by, (i.gaps)[s.k] = s.gap AS gap, (i.eigenvalues)[s.k] = s.eigenvalue AS eigenvalue
FROM spectral_model, kmeans_spectral_scan(m, 2, 3) s, kmeans_info(m) i;

-- the picture: a mark for each eigenvalue and representative, a number for each cluster
CREATE FUNCTION svg_count(svg text, what text) RETURNS int LANGUAGE sql IMMUTABLE AS
$$ SELECT (length(svg) - length(replace(svg, what, ''))) / length(what) $$;
SELECT svg_count(s, '<circle') AS circles, array_length(i.eigenvalues, 1) + 100 AS marks, svg_count(s, 'class="number"') AS numbers,
       svg_count(s, '>k = 2</text>') AS k, svg_count(s, '>eigenvector 2</text>') AS axis, s ~ 'nan|inf' AS nan
FROM spectral_model, kmeans_info(m) i, kmeans_spectral_svg(m) s;
SELECT svg_count(s, 'class="cluster"') AS clusters, svg_count(s, 'principal component') AS axes, s ~ 'nan|inf' AS nan,
       svg_count(s, '<title>a &lt; b</title>') AS title
FROM kmeans_spectral_svg((SELECT kmeans_spectral_fit('islands', '{x,y}', 3, 100)), 400, 300, 'a < b') s;
SELECT svg_count(s, 'class="number"') AS numbers, s ~ 'nan|inf' AS nan
FROM kmeans_spectral_svg((SELECT kmeans_spectral_fit('few', '{x,y}', 1, 2, nonfinite => 'skip'))) s;
CREATE TABLE one AS SELECT 1 AS x;
SELECT svg_count(s, 'class="number"') AS numbers, s ~ 'nan|inf' AS nan FROM kmeans_spectral_svg((SELECT kmeans_spectral_fit('one', '{x}'))) s;
SELECT * FROM kmeans_spectral_scan((SELECT kmeans_spectral_fit('one', '{x}')), 1);
SELECT count(DISTINCT kmeans_spectral_svg(m)) FROM spectral_model, generate_series(1, 3);

-- what they refuse
SELECT kmeans_spectral_scan(NULL);
SELECT kmeans_spectral_scan(m, 0) FROM spectral_model;
SELECT kmeans_spectral_scan(m, 4, 3) FROM spectral_model;
SELECT kmeans_spectral_scan(m, 2, 5001) FROM spectral_model;
SELECT kmeans_spectral_scan(kmeans_fit('rings', '{x,y}', 3));
SELECT kmeans_spectral_svg(NULL);
SELECT kmeans_spectral_svg(m, 10) FROM spectral_model;
SELECT kmeans_spectral_svg(kmeans_fit('rings', '{x,y}', 3));

-- damaged models
SELECT jsonb_set(m::text::jsonb, '{spectral,k}', '0')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,k}', '101')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,clusters}', '[0]')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,clusters,3}', '2')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,affinity}', '"none"')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,laplacian}', '"none"')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,choice}', '"none"')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral,eigenvalues,0}', '-1')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral}', '{}')::text::kmeans_model FROM spectral_model;
SELECT jsonb_set(m::text::jsonb, '{spectral}', '3')::text::kmeans_model FROM spectral_model;

SET client_min_messages = warning;
DROP SCHEMA spectral CASCADE;
