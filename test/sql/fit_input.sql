-- Relations and columns of every kind.

CREATE TABLE base (id int, g text, x float8);
INSERT INTO base SELECT i, 'g' || i % 2, (i % 3) * 100 + i % 5 FROM generate_series(1, 30) i;

-- kinds of relations: the same rows, the same clusters
CREATE VIEW v AS SELECT x, id FROM base;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM base;
CREATE TABLE part (id int, g text, x float8) PARTITION BY LIST (g);
CREATE TABLE part_0 PARTITION OF part FOR VALUES IN ('g0');
-- columns in another order
CREATE TABLE part_1 (x float8, gone text, g text, id int);
ALTER TABLE part_1 DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES IN ('g1');
INSERT INTO part SELECT * FROM base;
CREATE TABLE parent (id int, x float8);
CREATE TABLE child (extra text) INHERITS (parent);
INSERT INTO parent SELECT id, x FROM base WHERE id <= 15;
INSERT INTO child SELECT id, x, 'more' FROM base WHERE id > 15;
CREATE TEMP TABLE tmp AS SELECT * FROM base;
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM base;
CREATE TABLE "Odd ""Name" ("X y" float8, "select" int);
INSERT INTO "Odd ""Name" SELECT x, id FROM base;

SELECT rel, cluster, size, centroid, inertia
FROM unnest('{base,v,mv,part,part_0,parent,child,tmp,unlogged}'::regclass[]) rel,
     kmeans(rel, '{x}', 3, centroids => '{{0},{100},{200}}') ORDER BY rel::text, cluster;
SELECT cluster, size, centroid FROM kmeans('"Odd ""Name"', ARRAY['X y', 'select'], 2, centroids => '{{0,0},{200,0}}');
SELECT columns FROM kmeans_info((SELECT kmeans_fit('"Odd ""Name"', ARRAY['X y', 'select'], 2)));

-- a foreign table gets as far as its wrapper, which cannot do anything
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE ft (x float8) SERVER nowhere;
SELECT * FROM kmeans('ft', '{x}', 2);

-- relations that have no rows
CREATE INDEX base_x ON base (x);
CREATE SEQUENCE seq;
CREATE TYPE comp AS (x float8);
CREATE INDEX part_x ON part (x);
SELECT * FROM kmeans('base_x', '{x}', 2);
SELECT * FROM kmeans('part_x', '{x}', 2);
SELECT * FROM kmeans('seq', '{last_value}', 2);
SELECT * FROM kmeans('comp', '{x}', 2);
SELECT * FROM kmeans('nosuch', '{x}', 2);
SELECT * FROM kmeans(0, '{x}', 2);
SELECT * FROM kmeans('base', '{x}'::text[], 2) WHERE false;

-- columns
SELECT * FROM kmeans('base', '{nosuch}', 2);
SELECT * FROM kmeans('base', '{X}', 2);
SELECT * FROM kmeans('part_1', '{gone}', 2);
SELECT * FROM kmeans('part_1', '{"........pg.dropped.2........"}', 2);
SELECT * FROM kmeans('base', '{x,g}', 2);
SELECT * FROM kmeans('base', '{ctid}', 2);
SELECT * FROM kmeans('base', '{}', 2);
SELECT * FROM kmeans('base', '{x,NULL}', 2);
SELECT * FROM kmeans('base', '{{x},{id}}', 2);
SELECT * FROM kmeans('base', array_fill('x'::text, ARRAY[1601]), 2);
SELECT cluster, size, centroid FROM kmeans('base', '{x,x}', 3, centroids => '{{0,0},{100,100},{200,200}}');

-- types: one value in each, and arrays of each
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN exact AS numeric(10, 2);
CREATE DOMAIN vec AS float8[];
CREATE DOMAIN exact_vec AS numeric[];
CREATE TABLE types (i2 smallint, i4 int, i8 bigint, f4 real, f8 float8, nu numeric, dp positive, de exact,
    a2 smallint[], a4 int[], a8 bigint[], af4 real[], af8 float8[], anu numeric[], av vec, aev exact_vec,
    t text, b bool, d date, at text[], aa float8[]);
INSERT INTO types
SELECT v, v, v, v, v, v, v + 4, v, ARRAY[v, 1], ARRAY[v, 1], ARRAY[v, 1], ARRAY[v, 1], ARRAY[v, 1], ARRAY[v, 1],
    ARRAY[v, 1], ARRAY[v, 1], v, v > 0, 'today', ARRAY[v], ARRAY[ARRAY[v, 1]]
FROM unnest('{-3,-2,1,2}'::int[]) v;
SELECT col, cluster, size, centroid, inertia
FROM unnest('{i2,i4,i8,f4,f8,nu,de}'::text[]) col, kmeans('types', ARRAY[col], 2, centroids => '{{-2},{2}}') ORDER BY 1, 2;
SELECT cluster, centroid FROM kmeans('types', '{dp}', 2, centroids => '{{-2},{2}}');
SELECT col, cluster, size, centroid, inertia
FROM unnest('{a2,a4,a8,af4,af8,anu,av,aev}'::text[]) col, kmeans('types', ARRAY[col], 2, centroids => '{{-2,1},{2,1}}') ORDER BY 1, 2;
SELECT cluster, centroid FROM kmeans('types', '{i2,i4,i8,f4,f8,nu,i4,i2}', 1);
SELECT columns, d FROM kmeans_info((SELECT kmeans_fit('types', '{af8}', 2)));
SELECT * FROM kmeans('types', '{t}', 2);
SELECT * FROM kmeans('types', '{b}', 2);
SELECT size, centroid[1]::int % 86400 AS midnight FROM kmeans('types', '{d}', 1);
SELECT * FROM kmeans('types', '{at}', 2);
SELECT * FROM kmeans('types', '{aa}', 2);
SELECT * FROM kmeans('types', '{af8,af4}', 2);
SELECT * FROM kmeans('types', '{i4,af4}', 2);
-- a type with a cast to real[], as pgvector's
CREATE TYPE vectorlike AS (p float8, q float8);
CREATE FUNCTION to_reals(vectorlike) RETURNS real[] IMMUTABLE LANGUAGE sql AS 'SELECT ARRAY[$1.p, $1.q]::real[]';
CREATE CAST (vectorlike AS real[]) WITH FUNCTION to_reals(vectorlike) AS ASSIGNMENT;
CREATE TABLE embeddings AS SELECT ROW(i % 2, 2 * (i % 2))::vectorlike AS e FROM generate_series(1, 10) i;
SELECT cluster, size, centroid FROM kmeans('embeddings', '{e}', 2);
-- extremes of the integers, exactly representable ones and others
CREATE TABLE extremes (v bigint);
INSERT INTO extremes VALUES (9223372036854775807), (-9223372036854775808);
SELECT cluster, size, centroid FROM kmeans('extremes', '{v}', 2);

-- NULL features: left out
CREATE TABLE nulls (id int, x float8, a float8[]);
INSERT INTO nulls VALUES (1, 1, '{1,2}'), (2, NULL, NULL), (3, 3, '{3,NULL}'), (NULL, 4, '{4,5}'), (5, 8, NULL);
SELECT * FROM kmeans('nulls', '{x}', 1);
SELECT * FROM kmeans('nulls', '{id,x}', 1);
SELECT * FROM kmeans('nulls', '{a}', 1);
SELECT rows_used, rows_skipped FROM kmeans_info((SELECT kmeans_fit('nulls', '{a}', 1)));

-- arrays: ragged, empty, nonfinite, long
CREATE TABLE ragged (a float8[]);
INSERT INTO ragged VALUES (NULL), ('{1,2}'), ('{1,2,3}');
SELECT * FROM kmeans('ragged', '{a}', 1);
SELECT * FROM kmeans_labels('ragged', '{a}', 1);
TRUNCATE ragged;
INSERT INTO ragged VALUES ('{1,2}'), ('{}');
SELECT * FROM kmeans('ragged', '{a}', 1);
TRUNCATE ragged;
INSERT INTO ragged VALUES ('{1,2}'), ('{1,NaN}');
SELECT * FROM kmeans('ragged', '{a}', 1);
SELECT * FROM kmeans('ragged', '{a}', 1, nonfinite => 'skip');
-- subscripts may start anywhere
TRUNCATE ragged;
INSERT INTO ragged VALUES ('[5:6]={1,2}'), ('{3,4}');
SELECT * FROM kmeans('ragged', '{a}', 1);
SELECT * FROM kmeans('ragged', '{a}', 2, centroids => '{{1},{2}}');
TRUNCATE ragged;
INSERT INTO ragged SELECT array_fill(v::float8, ARRAY[16384]) FROM unnest('{1,3}'::int[]) v;
SELECT cluster, size, array_length(centroid, 1) AS d, centroid[1], centroid[16384], inertia FROM kmeans('ragged', '{a}', 1);
TRUNCATE ragged;
INSERT INTO ragged SELECT array_fill(1.0::float8, ARRAY[16385]);
SELECT * FROM kmeans('ragged', '{a}', 1);

-- elements of a domain
CREATE TABLE domains (a exact[], b positive[]);
INSERT INTO domains VALUES ('{1,2.5}', '{1,2}'), ('{3,4}', '{5,2}');
SELECT centroid FROM kmeans('domains', '{a}', 1);
SELECT centroid FROM kmeans_query('SELECT b FROM domains', 1);
SELECT feature_sum(a) FROM domains;
SELECT feature_sum(a::numeric[]) FROM domains;
DROP TABLE domains;

-- an error inside the relation's own query comes through
CREATE VIEW broken AS SELECT 1 / (id - 7) AS x FROM base;
SELECT * FROM kmeans('broken', '{x}', 1);

-- the settings that keep the order of the rows are put back
SHOW synchronize_seqscans;
SHOW enable_indexscan;
SHOW jit;

DROP VIEW v, broken;
DROP MATERIALIZED VIEW mv;
DROP SERVER nowhere CASCADE;
DROP FOREIGN DATA WRAPPER nothing;
DROP SEQUENCE seq;
DROP TABLE base, part, parent, child, tmp, unlogged, "Odd ""Name", types, embeddings, extremes, nulls, ragged;
DROP TYPE comp;
DROP TYPE vectorlike CASCADE;
DROP DOMAIN positive, exact, vec, exact_vec;
