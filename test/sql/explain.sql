-- kmeans_table() and kmeans_explain(): a model to read.

SET extra_float_digits = 0;
CREATE TABLE flowers AS SELECT i % 4 AS petals, (i % 4) * 100 + i % 7 AS "Stem length", i % 3 AS leaves, 1e6 + i % 4 AS big FROM generate_series(1, 84) i;
SELECT * FROM kmeans_table(kmeans_fit('flowers', '{petals,"Stem length",leaves,big}', 2));
SELECT * FROM kmeans_table(kmeans_fit('flowers', '{petals,"Stem length",leaves,big}', 2), 2);
-- one column a feature
SELECT t.cluster, f.* FROM kmeans_table(kmeans_fit('flowers', '{petals,leaves}', 2)) t, json_to_record(centroid) f (petals float8, leaves float8);
-- names of arrays' elements, and of no columns at all; awkward names and numbers
CREATE TABLE bands AS SELECT ARRAY[i % 2, i % 2 * 1e-7, -i % 2 * 1e20] AS b, i % 2 AS "q""{\,:é" FROM generate_series(1, 10) i;
SELECT * FROM kmeans_table(kmeans_fit('bands', '{b}', 2));
SELECT * FROM kmeans_table((SELECT kmeans_agg(b, 2) FROM bands));
SELECT * FROM kmeans_table(kmeans_fit('bands', ARRAY['q"{\,:é'], 2));
SELECT cluster, key, value FROM kmeans_table(kmeans_fit('bands', ARRAY['q"{\,:é'], 2)), json_each_text(centroid);
-- all digits read back as the same numbers
SELECT bool_and((SELECT array_agg(value::text::float8 ORDER BY o) FROM json_each(t.centroid) WITH ORDINALITY j (key, value, o)) = c.centroid)
FROM kmeans_fit('flowers', '{petals,"Stem length",leaves}', 5, seed => 3) m, kmeans_table(m, 17) t JOIN kmeans_centroids(m) c USING (cluster);
-- all digits before the point stay, of numbers below 2^53
CREATE TABLE keys AS SELECT o - 1 AS cluster, ARRAY[c] AS centroid
FROM unnest('{1234567890123456,9007199254740991,-9007199254740991,9007199254740992}'::float8[]) WITH ORDINALITY v (c, o);
SELECT cluster, t.centroid FROM kmeans_table(kmeans_from_table('keys'), 3) t;

-- the difference to the mean of all rows, and the share of each feature, as SQL computes them
CREATE FUNCTION same(a float8, b float8) RETURNS bool LANGUAGE sql AS 'SELECT abs(a - b) <= 1e-6 * (abs(a) + abs(b) + 1e-3)';
WITH m AS (SELECT kmeans_fit('flowers', '{petals,"Stem length",leaves}', 5, tol => 0) AS m),
c AS (SELECT cluster, (ARRAY['petals', 'Stem length', 'leaves'])[j] AS feature, centroid[j] AS value,
        CASE j WHEN 1 THEN (SELECT avg(petals) FROM flowers) WHEN 2 THEN (SELECT avg("Stem length") FROM flowers) ELSE (SELECT avg(leaves) FROM flowers) END AS overall
      FROM m, kmeans_centroids(m), generate_subscripts(centroid, 1) j)
SELECT count(*), bool_and(e.value = c.value) AS value, bool_and(same(e.overall, c.overall)) AS overall, bool_and(same(e.difference, c.value - c.overall)) AS difference,
    bool_and(same(e.share, (c.value - c.overall) ^ 2 / (SELECT sum((d.value - d.overall) ^ 2) FROM c d WHERE d.cluster = c.cluster))) AS share, count(e.deviations) AS deviations
FROM m, kmeans_explain(m) e JOIN c USING (cluster, feature);
-- with standardize in standard deviations
SELECT count(*), bool_and(same(e.deviations, e.difference / CASE feature WHEN 'petals' THEN p WHEN 'Stem length' THEN s ELSE l END)) AS deviations
FROM (SELECT stddev_pop(petals) AS p, stddev_pop("Stem length") AS s, stddev_pop(leaves) AS l FROM flowers) sd,
    kmeans_explain(kmeans_fit('flowers', '{petals,"Stem length",leaves}', 5, standardize => true)) e;
SELECT cluster, feature, round(share::numeric, 3) AS share FROM kmeans_explain(kmeans_fit('flowers', '{petals,"Stem length",leaves}', 2, standardize => true));
-- one cluster is what all are; numbers at the ends of double precision
SELECT * FROM kmeans_explain(kmeans_fit('flowers', '{petals}', 1));
CREATE TABLE ends AS SELECT 1e150 * (i % 2) AS huge, 1e-150 * (i % 2) AS tiny, 0 AS nothing FROM generate_series(1, 4) i;
SELECT cluster, feature, share FROM kmeans_explain(kmeans_fit('ends', '{huge,tiny,nothing}', 2));
SELECT cluster, feature, share FROM kmeans_explain(kmeans_fit('ends', '{tiny}', 2));
SELECT round(sum(share)::numeric, 6) FROM kmeans_explain(kmeans_fit('flowers', '{petals,"Stem length",big}', 3, distance => 'cosine')) WHERE cluster = 0;

-- Manhattan's distances are sums of differences, not of squares: shares are those of 3 and 1, overall is the mean of the medians
CREATE TABLE blocks AS SELECT i / 3 * 6 AS x, i / 3 * 2 + i % 3 / 2 * 9 AS y FROM generate_series(0, 5) i;
SELECT * FROM kmeans_explain(kmeans_fit('blocks', '{x,y}', 2, distance => 'manhattan', centroids => '{{0,0},{6,2}}'));
-- of 'partial' all rows of a cluster count, those without the feature, too
CREATE TABLE holes AS SELECT * FROM (VALUES (0, 0), (0, NULL), (0, NULL), (10, 8)) v (x, y);
SELECT cluster, feature, value, overall, difference FROM kmeans_explain(kmeans_fit('holes', '{x,y}', 2, nulls => 'partial')) ORDER BY 1, 2;

-- a model does not tell weights: by sizes, (1 * 0 + 2 * 9) / 3, not by weights
CREATE TABLE heavy AS SELECT * FROM (VALUES (0, 8), (9, 1), (9, 1)) v (x, w);
SELECT cluster, value, overall FROM kmeans_explain(kmeans_fit('heavy', '{x}', 2, weight_column => 'w'));
\set VERBOSITY terse
-- what is refused
SELECT * FROM kmeans_table(kmeans_fit('flowers', '{petals}', 2), 0);
SELECT * FROM kmeans_table(kmeans_fit('flowers', '{petals}', 2), 18);
SELECT count(*) FROM kmeans_table(NULL);
SELECT count(*) FROM kmeans_explain(NULL);

DROP TABLE flowers, bands, ends, keys, blocks, holes, heavy;
DROP FUNCTION same;
