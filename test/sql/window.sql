-- kmeans(point, k) OVER: labels as a window function

\set VERBOSITY terse

CREATE TABLE wi (id int, g int, a float8, b float8);
INSERT INTO wi SELECT i, i % 7, (i % 3) * 5 + (hashint4(i) % 1009) / 2000.0,
    (i % 3) * (i % 3) + (hashint4(i + 100000) % 1009) / 3000.0 FROM generate_series(1, 3500) i;

SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM wi ORDER BY id LIMIT 5;

-- labels are those of kmeans_agg()'s model, for every row, whatever the window's order
WITH labels AS (
    SELECT id, g, a, b, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) AS l,
        kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g ORDER BY id DESC) AS l2,
        kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g ORDER BY md5(id::text) ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS l3 FROM wi),
models AS (SELECT g, kmeans_agg(ARRAY[a, b], 3) AS m FROM wi GROUP BY g)
SELECT count(*), bool_and(l = kmeans_predict(m, a, b)) AS agg, bool_and(l = l2 AND l = l3) AS any_order
FROM labels JOIN models USING (g);

-- and those of kmeans_labels() with the same start
SELECT count(*), bool_and(w.l = k.cluster) AS same
FROM (SELECT ctid, kmeans(ARRAY[a, b], 3, '{{0,0},{5,1},{10,4}}') OVER () AS l FROM wi) w
JOIN kmeans_labels('wi', '{a,b}', 3, centroids => '{{0,0},{5,1},{10,4}}') k USING (ctid);

-- centroids per partition: the order of the clusters is theirs
SELECT x, kmeans(ARRAY[x], 2, '{{10},{0}}') OVER () FROM unnest('{1,2,9,10,11}'::float8[]) x;
SELECT g, x, kmeans(ARRAY[x], 2, CASE g WHEN 1 THEN ARRAY[[0.0], [10]] ELSE ARRAY[[10.0], [0]] END) OVER (PARTITION BY g)
FROM generate_series(1, 2) g, unnest('{1,2,9}'::float8[]) x ORDER BY g, x;
SELECT x, kmeans(ARRAY[x], 2, NULL) OVER () FROM unnest('{1,2,9}'::float8[]) x;
SELECT g, count(DISTINCT l) FROM (SELECT g, kmeans(ARRAY[a, b], g + 1) OVER (PARTITION BY g) AS l FROM wi) o GROUP BY g ORDER BY g;

-- NULLs, empty and small partitions, other types
SELECT g, x, kmeans(ARRAY[x], 2) OVER (PARTITION BY g)
FROM (VALUES (1, 1::float8), (1, NULL), (1, 9), (1, 1), (2, NULL), (3, 4)) v (g, x) ORDER BY g, x;
SELECT kmeans(p, 2) OVER () FROM (VALUES (ARRAY[1, 2]), (NULL), (ARRAY[3, NULL]), (ARRAY[5, 6])) v (p);
SELECT kmeans(p, 2) OVER () FROM (VALUES (ARRAY[1, 2]::real[]), (ARRAY[5, 6])) v (p);
SELECT kmeans(p, 2) OVER () FROM (VALUES (ARRAY[1, 2]::numeric[]), (ARRAY[5, 6])) v (p);
SELECT kmeans(ARRAY[a], 2) OVER () FROM wi WHERE false;

-- over any query
SELECT l, count(*) FROM (SELECT kmeans(ARRAY[avg(a), avg(b)], 3) OVER () AS l FROM wi GROUP BY id % 21) o GROUP BY 1 ORDER BY 1;

-- bad input
SELECT kmeans(ARRAY[a], 0) OVER () FROM wi;
SELECT kmeans(ARRAY[a], NULL) OVER () FROM wi;
SELECT kmeans(ARRAY[x], 1) OVER () FROM (VALUES (1::float8), ('NaN')) v (x);
SELECT kmeans(ARRAY[[a]], 1) OVER () FROM wi;
SELECT kmeans(ARRAY[]::float8[], 1) OVER () FROM wi;
SELECT kmeans(p, 1) OVER () FROM (VALUES (ARRAY[1, 2]), (ARRAY[1])) v (p);
SELECT kmeans(ARRAY[a], 2, '{{1,2},{3,4}}') OVER () FROM wi;
SELECT kmeans(ARRAY[a], 2, '{{1}}') OVER () FROM wi;
SELECT kmeans(ARRAY[a], 2) FROM wi;

DROP TABLE wi;

-- points of other types are read as they are; a number alone is a point
SELECT id, kmeans(ARRAY[id, id]::int[], 2) OVER () AS i, kmeans(ARRAY[id, id]::real[], 2) OVER () AS r,
    kmeans(ARRAY[id, id]::numeric[], 2) OVER () AS n, kmeans(id, 2) OVER () AS one, kmeans(id::smallint, 2) OVER () AS s,
    kmeans('{1,2}', 2) OVER () AS same FROM unnest('{1,2,9}'::int[]) id;
SELECT kmeans(ARRAY['1'], 2) OVER ();
SELECT kmeans('a'::text, 2) OVER ();
