-- kmeans_grouped: many small clusterings in one call

\set VERBOSITY terse

CREATE TABLE gr (id int, g int, t text, d date, a float8, b numeric, w int, p real[]);
INSERT INTO gr SELECT i, i % 50, CASE WHEN i % 11 <> 0 THEN 'name ' || i % 2 END, '2024-01-01'::date + i % 2, (i % 3) * 5 + (hashint4(i) % 1009) / 2000.0,
    (i % 3) * (i % 3) + (hashint4(i + 100000) % 1009) / 3000.0, 1 + i % 4, NULL FROM generate_series(1, 10000) i;
UPDATE gr SET p = ARRAY[a, b];

SELECT * FROM kmeans_grouped('gr', '{g}', '{a}', 2) ORDER BY grp, cluster LIMIT 2;
SELECT count(*), count(DISTINCT grp), sum(size) FROM kmeans_grouped('gr', '{g}', '{a,b}', 3);

-- each group's clusters are those of kmeans_agg()
CREATE VIEW by_agg AS
    SELECT g, c.cluster, c.size, c.centroid, c.inertia, c.radius
    FROM (SELECT g, kmeans_agg(ARRAY[a, b::float8], 3) AS m FROM gr GROUP BY g) o, kmeans_centroids(m) c;
SELECT count(*), bool_and(x.size = y.size AND x.centroid = y.centroid AND x.inertia = y.inertia AND x.radius = y.radius) AS same
FROM kmeans_grouped('gr', '{g}', '{a,b}', 3) x FULL JOIN by_agg y ON (x.grp ->> 'g')::int = y.g AND x.cluster = y.cluster;
-- threads make no difference, nor does memory that holds a few groups only
SET gkmeans.threads = 1;
SELECT count(*), bool_and(x.size = y.size AND x.centroid = y.centroid AND x.inertia = y.inertia) AS same
FROM kmeans_grouped('gr', '{g}', '{a,b}', 3) x FULL JOIN by_agg y ON (x.grp ->> 'g')::int = y.g AND x.cluster = y.cluster;
SET gkmeans.threads = 7;
SET gkmeans.memory_limit = '64kB';
SELECT count(*), bool_and(x.size = y.size AND x.centroid = y.centroid AND x.inertia = y.inertia) AS same
FROM kmeans_grouped('gr', '{g}', '{a,b}', 3) x FULL JOIN by_agg y ON (x.grp ->> 'g')::int = y.g AND x.cluster = y.cluster;
RESET gkmeans.threads;
RESET gkmeans.memory_limit;

-- several columns, NULL is a group
SELECT grp, sum(size) FROM kmeans_grouped('gr', '{t,d}', '{a,b}', 2) GROUP BY grp ORDER BY grp;
SET gkmeans.memory_limit = '64kB';
SELECT grp, sum(size) FROM kmeans_grouped('gr', '{t,d}', '{a,b}', 2) GROUP BY grp ORDER BY grp;
RESET gkmeans.memory_limit;

-- array column, options, weights, one large group
SELECT count(*), count(DISTINCT grp) FROM kmeans_grouped('gr', '{g}', '{p}', 3, init => 'random', seed => 7, n_init => 2);
SELECT count(*), count(DISTINCT grp) FROM kmeans_grouped('gr', '{g}', '{p}', 3, init => 'hierarchical', seed => 7);
CREATE VIEW gr_even AS SELECT * FROM gr WHERE d = '2024-01-01';
SELECT count(*), bool_and(x.centroid = y.centroid AND x.inertia = y.inertia AND x.size = y.size) AS weighted
FROM kmeans_grouped('gr', '{d}', '{a,b}', 3, weight_column => 'w', centroids => '{{0,0},{5,1},{10,4}}') x
JOIN kmeans('gr_even', '{a,b}', 3, weight_column => 'w', centroids => '{{0,0},{5,1},{10,4}}') y USING (cluster)
WHERE x.grp = '{"d": "2024-01-01"}';
CREATE TABLE gr_large AS SELECT 1 AS one, i % 1000 AS x FROM generate_series(1, 300000) i;
SELECT grp, cluster, size, centroid FROM kmeans_grouped('gr_large', '{one}', '{x}', 2, centroids => '{{0},{900}}');

-- rows left out
INSERT INTO gr VALUES (0, 100, NULL, NULL, NULL, 1, 1, NULL), (0, 101, NULL, NULL, 'NaN', 1, 1, NULL), (0, 0, NULL, NULL, 1, 1, 0, NULL);
SELECT count(DISTINCT grp) FROM kmeans_grouped('gr', '{g}', '{a,b}', 3, weight_column => 'w', nonfinite => 'skip');
SELECT count(*) FROM kmeans_grouped('gr', '{g}', '{p}', 3);
SELECT * FROM kmeans_grouped('gr', '{g}', '{p}', 3) WHERE grp = '{"g": 101}';
CREATE TABLE gr_empty (g int, x int);
SELECT * FROM kmeans_grouped('gr_empty', '{g}', '{x}', 3);

-- one column of whole numbers has a road of its own: the same groups and clusters, whatever
-- comes in between (NULL is a group, keys beyond 2^53, views, NULL and other features)
CREATE TABLE gr_key (s smallint NOT NULL, i int, l bigint, m bigint, t text, x real, y float8, z numeric, w real);
INSERT INTO gr_key SELECT i % 7 - 3, NULLIF(i % 40, 5) - 20, 9007199254740995 - i % 10, 1000000000000 * (i % 9), i % 7 - 3,
    (i % 3) * 5 + (hashint4(i) % 1009) / 2000.0, (hashint4(i + 1) % 1009) / 3000.0, NULLIF((i % 5) * 0.1, 0.3), 1 + i % 3 FROM generate_series(1, 20000) i;
CREATE VIEW gr_key_view AS SELECT s, x, y, z FROM gr_key WHERE y > 0;
CREATE DOMAIN gr_number AS int CHECK (VALUE > 0);
ALTER TABLE gr_key ADD dom gr_number DEFAULT 3;
CREATE FUNCTION same(relation regclass, key text, columns text[], VARIADIC options text[] DEFAULT '{}') RETURNS TABLE (clusters bigint, groups bigint, rows numeric, same bool)
LANGUAGE plpgsql AS $$
BEGIN
    /* two columns are the other road's */
    RETURN QUERY EXECUTE format('WITH one AS (SELECT * FROM kmeans_grouped(%1$L, ARRAY[%2$L], %3$L, 3 %4$s)),
        two AS (SELECT * FROM kmeans_grouped(%1$L, ARRAY[%2$L, %2$L], %3$L, 3 %4$s))
        SELECT count(*), count(DISTINCT one.grp), sum(one.size), bool_and(one.size = two.size AND one.centroid = two.centroid
            AND one.inertia = two.inertia AND one.radius = two.radius)
        FROM one FULL JOIN two ON one.grp = two.grp AND one.cluster = two.cluster', relation, key, columns,
        (SELECT string_agg(', ' || o, '') FROM unnest(options) o));
END $$;
SELECT * FROM same('gr_key', 's', '{x,y}');
SELECT * FROM same('gr_key', 'i', '{x,y}');
SELECT * FROM same('gr_key', 'l', '{x}');
SELECT * FROM same('gr_key', 'm', '{x,y}');
SELECT * FROM same('gr_key', 's', '{x,z}');
SELECT * FROM same('gr_key', 's', '{y,s,i}', 'init => ''random''', 'n_init => 3', 'seed => 5');
SELECT * FROM same('gr_key', 's', '{x,y}', 'weight_column => ''w''', 'standardize => true');
SELECT * FROM same('gr_key', 's', '{x,y}', 'distance => ''cosine''');
SELECT * FROM same('gr_key_view', 's', '{x,y,z}');
SELECT * FROM same('gr_key', 't', '{x,y}');
SELECT grp, sum(size) FROM kmeans_grouped('gr_key', '{dom}', '{x,y}', 2) GROUP BY grp;
SELECT DISTINCT grp FROM kmeans_grouped('gr_key', '{l}', '{x}', 1) WHERE grp = '{"l": 9007199254740993}';
-- its key is the same jsonb
SELECT count(*), bool_and(grp::text = to_jsonb(k)::text) FROM kmeans_grouped('gr_key', '{s}', '{x}', 1) JOIN (SELECT DISTINCT s FROM gr_key) k ON grp = to_jsonb(k);
SELECT count(*), bool_and(grp::text = to_jsonb(k)::text) FROM kmeans_grouped('gr_key', '{m}', '{x}', 1) JOIN (SELECT DISTINCT m FROM gr_key) k ON grp = to_jsonb(k);
SELECT count(*) FROM kmeans_grouped('gr_key', '{s}', '{x}', 3, centroids => '{{1,2},{3,4},{5,6}}');
INSERT INTO gr_key (s, x) VALUES (1, 'infinity');
SELECT count(*) FROM kmeans_grouped('gr_key', '{s}', '{x}', 3);
SELECT * FROM same('gr_key', 's', '{x}', 'nonfinite => ''skip''');
-- rows are put out while threads cluster, but for what waits for a large group: the same ones
-- in the same order, however many threads; and what goes wrong then leaves nothing behind
CREATE TABLE gr_mixed AS SELECT CASE WHEN i % 2 = 0 THEN 7 ELSE i % 3000 END AS g, i % 1013 AS x, i % 17 AS y FROM generate_series(1, 80000) i;
SELECT * FROM same('gr_mixed', 'g', '{x,y}');
CREATE TABLE gr_rows AS SELECT 1 AS threads, *, 0::bigint AS n FROM kmeans_grouped('gr_mixed', '{g}', '{x,y}', 3) LIMIT 0;
SET gkmeans.threads = 1;
INSERT INTO gr_rows SELECT 1, * FROM kmeans_grouped('gr_mixed', '{g}', '{x,y}', 3) WITH ORDINALITY;
SET gkmeans.threads = 5;
INSERT INTO gr_rows SELECT 5, * FROM kmeans_grouped('gr_mixed', '{g}', '{x,y}', 3) WITH ORDINALITY;
SELECT count(*), count(DISTINCT a.grp), bool_and((a.grp, a.cluster, a.size, a.centroid, a.inertia, a.radius) IS NOT DISTINCT FROM
    (b.grp, b.cluster, b.size, b.centroid, b.inertia, b.radius)) AS same
FROM (SELECT * FROM gr_rows WHERE threads = 1) a FULL JOIN (SELECT * FROM gr_rows WHERE threads = 5) b USING (n);
SET work_mem = '64kB';
SET temp_file_limit = '64kB';
\set VERBOSITY sqlstate
SELECT count(*) FROM kmeans_grouped('gr_mixed', '{g}', '{x,y}', 3);
\set VERBOSITY terse
RESET temp_file_limit;
SELECT count(*) FROM kmeans_grouped('gr_mixed', '{g}', '{x,y}', 3);
RESET work_mem;
RESET gkmeans.threads;

-- row-level security and privileges are the caller's
CREATE ROLE gkmeans_grouped_user;
CREATE TABLE gr_rls AS SELECT i % 2 AS g, i AS x FROM generate_series(1, 100) i;
ALTER TABLE gr_rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY only_0 ON gr_rls USING (g = 0);
SET ROLE gkmeans_grouped_user;
SELECT * FROM kmeans_grouped('gr_rls', '{g}', '{x}', 1);
RESET ROLE;
GRANT SELECT ON gr_rls TO gkmeans_grouped_user;
SET ROLE gkmeans_grouped_user;
SELECT grp, size FROM kmeans_grouped('gr_rls', '{g}', '{x}', 1);
RESET ROLE;

-- bad input
SELECT * FROM kmeans_grouped('gr', '{nope}', '{a}', 3);
SELECT * FROM kmeans_grouped('gr', '{g}', '{nope}', 3);
SELECT * FROM kmeans_grouped('gr', '{g}', '{t}', 3);
SELECT * FROM kmeans_grouped('gr', '{}', '{a}', 3);
SELECT * FROM kmeans_grouped('gr', NULL, '{a}', 3);
SELECT * FROM kmeans_grouped('gr', '{g}', '{a}', 0);
SELECT * FROM kmeans_grouped('gr', '{g}', '{a,b}', 3);
SELECT * FROM kmeans_grouped('gr', '{g}', '{a}', 2, centroids => '{{1,2},{3,4}}');
SELECT * FROM kmeans_grouped('gr', '{g}', '{a}', 2, init => 'best');
ALTER TABLE gr ADD pt point;
SELECT * FROM kmeans_grouped('gr', '{pt}', '{b}', 2);
UPDATE gr SET w = -1 WHERE id = 5;
SELECT * FROM kmeans_grouped('gr', '{g}', '{b}', 2, weight_column => 'w');

DROP VIEW by_agg, gr_even;
DROP FUNCTION same;
DROP VIEW gr_key_view;
DROP TABLE gr, gr_large, gr_empty, gr_rls, gr_key, gr_mixed, gr_rows;
DROP DOMAIN gr_number;
DROP ROLE gkmeans_grouped_user;
