-- kmeans_evaluate: how good a model's clusters are
SET client_min_messages = notice;
SET gkmeans.device = cpu;

-- four points on a line, worked out by hand: clusters {0, 1} and {10, 13}
CREATE TABLE eval_four (x float8);
INSERT INTO eval_four VALUES (0), (1), (10), (13);
CREATE TABLE eval_model AS SELECT kmeans_fit('eval_four', '{x}', 2) AS m;
SELECT e.k, e.rows, e.sample_rows, e.inertia,
       -- a: 1, 1, 3, 3; b: 11.5, 10.5, 9.5, 12.5
       round(e.silhouette::numeric, 12) = round((10.5/11.5 + 9.5/10.5 + 6.5/9.5 + 9.5/12.5) / 4, 12) AS silhouette,
       -- means 0.5 and 11.5: a: 0.5, 0.5, 1.5, 1.5; b: 11.5, 10.5, 9.5, 12.5
       round(e.simplified_silhouette::numeric, 12) = round((11/11.5 + 10/10.5 + 8/9.5 + 11/12.5) / 4, 12) AS simplified,
       -- (0.5 + 1.5) / 11
       round(e.davies_bouldin::numeric, 12) = round(2.0 / 11, 12) AS davies_bouldin,
       -- between 4 * 5.5^2 = 121, within 5
       e.calinski_harabasz = 121 / (5.0 / 2) AS calinski_harabasz
FROM eval_model, kmeans_evaluate(m, 'eval_four') e;

-- on other rows than the model's: three of one cluster
CREATE TABLE eval_other (x int);
INSERT INTO eval_other VALUES (-1), (0), (3), (NULL);
SELECT e.* FROM eval_model, kmeans_evaluate(m, 'eval_other') e;

-- a sample is always the same rows; 0: no classical silhouette
CREATE TABLE eval_many AS
SELECT i, (i % 5) * 10 + sin(i) AS x, cos(i * 1.7) * 3 AS y, (i % 5) * 10 + sin(i) + 1e6 AS far FROM generate_series(1, 3000) i;
CREATE TABLE eval_m5 AS SELECT kmeans_fit('eval_many', '{x,y}', 5, n_init => 5) AS m;
SELECT e.sample_rows, e.silhouette IS NULL AS none, round(e.silhouette::numeric, 6) AS silhouette,
       round(e.simplified_silhouette::numeric, 6) AS simplified
FROM eval_m5, unnest('{0,2,500,2999,3000,100000}'::int[]) s, kmeans_evaluate(m, 'eval_many', s) e ORDER BY s;

-- nothing changes with threads, chunks and memory
SET gkmeans.threads = 1;
CREATE TEMP TABLE eval_one AS SELECT e.* FROM eval_m5, kmeans_evaluate(m, 'eval_many') e;
SET gkmeans.threads = 3;
SET gkmeans.chunk_size = '64kB';
SET gkmeans.memory_limit = '64kB';
SELECT e.* FROM eval_m5, kmeans_evaluate(m, 'eval_many') e EXCEPT SELECT * FROM eval_one;
RESET gkmeans.threads;
RESET gkmeans.chunk_size;
RESET gkmeans.memory_limit;

-- far from zero: nothing is lost but the data's own digits
SELECT abs(a.silhouette / b.silhouette - 1) < 1e-9 AS silhouette,
       abs(a.davies_bouldin / b.davies_bouldin - 1) < 1e-9 AS davies_bouldin,
       abs(a.calinski_harabasz / b.calinski_harabasz - 1) < 1e-9 AS calinski_harabasz
FROM kmeans_evaluate(kmeans_fit('eval_many', '{x}', 5, n_init => 5), 'eval_many') a,
     kmeans_evaluate(kmeans_fit('eval_many', '{far}', 5, n_init => 5), 'eval_many') b;

-- cosine: points of length 1; arrays; weights count once
CREATE VIEW eval_array AS SELECT ARRAY[x, y] AS v, 1 + i % 3 AS w FROM eval_many;
SELECT e.k, e.rows, e.silhouette > 0.5 AS silhouette,
       abs(e.inertia / (kmeans_info(m)).inertia - 1) < 1e-6 AS inertia
FROM (SELECT kmeans_fit('eval_array', '{v}', 3, distance => 'cosine') AS m) f, kmeans_evaluate(m, 'eval_array') e;
SELECT e.k, e.rows, e.sample_rows
FROM kmeans_evaluate(kmeans_fit('eval_array', '{v}', 3, weight_column => 'w'), 'eval_array') e;

-- not defined: one cluster; as many clusters as rows
SELECT e.* FROM kmeans_evaluate(kmeans_fit('eval_four', '{x}', 1), 'eval_four') e;
SELECT e.* FROM kmeans_evaluate(kmeans_fit('eval_four', '{x}', 4), 'eval_four') e;
-- no rows
CREATE TABLE eval_empty (x float8);
SELECT e.* FROM eval_model, kmeans_evaluate(m, 'eval_empty') e;

-- bad input
SELECT kmeans_evaluate(NULL, 'eval_four');
SELECT kmeans_evaluate(m, NULL) FROM eval_model;
SELECT kmeans_evaluate(m, 'eval_four', -1) FROM eval_model;
SELECT kmeans_evaluate(m, 'eval_four', NULL) FROM eval_model;
SELECT kmeans_evaluate(m, 'eval_four', 10, 'perhaps') FROM eval_model;
SELECT kmeans_evaluate(m, 'eval_array') FROM eval_model;
CREATE TABLE eval_text (x text);
SELECT kmeans_evaluate(m, 'eval_text') FROM eval_model;
CREATE TABLE eval_wide (v float8[]);
INSERT INTO eval_wide VALUES ('{1,2,3}');
SELECT kmeans_evaluate(m, 'eval_wide') FROM (SELECT kmeans_fit('eval_array', '{v}', 2) AS m) f;
INSERT INTO eval_four VALUES ('NaN');
SELECT kmeans_evaluate(m, 'eval_four') FROM eval_model;
SELECT e.k, e.rows FROM eval_model, kmeans_evaluate(m, 'eval_four', nonfinite => 'skip') e;
DELETE FROM eval_four WHERE x = 'NaN';
INSERT INTO eval_four VALUES (1e300);
SELECT kmeans_evaluate(m, 'eval_four') FROM eval_model;

-- rights are those of the caller
CREATE ROLE regress_gkmeans_eval;
GRANT SELECT ON eval_model TO regress_gkmeans_eval;
SET ROLE regress_gkmeans_eval;
SELECT kmeans_evaluate(m, 'eval_four') FROM eval_model;
RESET ROLE;
DROP VIEW eval_array;
DROP TABLE eval_four, eval_model, eval_other, eval_many, eval_m5, eval_one, eval_empty, eval_text, eval_wide;
DROP ROLE regress_gkmeans_eval;

-- one value far from the others leaves them their digits
CREATE TABLE ev_outlier (x float8);
INSERT INTO ev_outlier SELECT i % 100 FROM generate_series(0, 999) i UNION ALL SELECT 1000 + i % 100 FROM generate_series(0, 999) i;
INSERT INTO ev_outlier VALUES (999999999);
SELECT e.inertia, round(e.calinski_harabasz::numeric, -6) AS calinski_harabasz
FROM kmeans_fit('ev_outlier', '{x}', 3, max_iter => 0, centroids => '{{49.5},{1049.5},{999999999}}') m, kmeans_evaluate(m, 'ev_outlier') e;
SELECT inertia, round(calinski_harabasz::numeric, -8) AS calinski_harabasz FROM kmeans_scan('ev_outlier', '{x}', 3, 3, n_init => 5);
DROP TABLE ev_outlier;
