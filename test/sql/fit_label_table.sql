-- kmeans_label_table(): labels into a new table.

CREATE TABLE pts (id int PRIMARY KEY, x float8, note text);
INSERT INTO pts SELECT i, CASE WHEN i % 10 = 0 THEN NULL ELSE (i % 3) * 100 + i % 5 END, 'n' || i FROM generate_series(1, 30) i;

-- the result is that of kmeans(); rows that are left out have NULL
SELECT * FROM kmeans_label_table('pts', '{x}', 3, 'labels', '{id}')
EXCEPT SELECT * FROM kmeans('pts', '{x}', 3);
SELECT l.cluster, count(*), min(x), max(x) FROM labels l JOIN pts USING (id) GROUP BY 1 ORDER BY 1;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'labels'::regclass AND attnum > 0;
-- in the order of the table
SELECT array_agg(id) FROM (SELECT id FROM labels) l;
-- the labels are those of label_column
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
SELECT count(*) FROM pts JOIN labels l USING (id) WHERE l.cluster IS NOT DISTINCT FROM pts.cluster;

-- the table exists
SELECT * FROM kmeans_label_table('pts', '{x}', 3, 'labels', '{id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 3, 'pts', '{id}');
-- rolled back with its transaction
BEGIN;
DROP TABLE labels;
SELECT count(*) FROM kmeans_label_table('pts', '{x}', 3, 'labels', '{note,id}', seed => 5);
SELECT count(cluster), min(note), count(*) FROM labels;
ROLLBACK;
SELECT count(cluster), min(id), count(*) FROM labels;
-- twice in one statement
SELECT count(*) FROM kmeans_label_table('pts', '{x}', 3, 'l1', '{id}') a, kmeans_label_table('pts', '{x}', 2, 'l2', '{id}') b;
SELECT (SELECT count(DISTINCT cluster) FROM l1), (SELECT count(DISTINCT cluster) FROM l2);

-- options, in particular those that leave rows out
SELECT cluster, size, centroid FROM kmeans_label_table('pts', '{x}', 2, 'weighted', '{id}', weight_column => 'id', centroids => '{{200},{0}}');
SELECT cluster, count(*) FROM weighted GROUP BY 1 ORDER BY 1;
CREATE TABLE nan AS SELECT i AS id, CASE WHEN i = 3 THEN 'NaN' ELSE (i / 4 * 100)::float8 END AS x FROM generate_series(0, 7) i;
SELECT cluster, size FROM kmeans_label_table('nan', '{x}', 2, 'skipped', '{id}', nonfinite => 'skip');
SELECT cluster, array_agg(id) FROM skipped GROUP BY 1 ORDER BY 1;
SELECT cluster, size FROM kmeans_label_table('nan', '{x}', 2, 'not_skipped', '{id}');
SELECT to_regclass('not_skipped');
-- no usable rows, and no rows
CREATE TABLE empty (id int, x int);
SELECT * FROM kmeans_label_table('empty', '{x}', 2, 'labels_of_none', '{id}');
INSERT INTO empty VALUES (1), (2);
SELECT * FROM kmeans_label_table('empty', '{x}', 2, 'labels_of_null', '{id}');
SELECT (SELECT count(*) FROM labels_of_none), (SELECT count(*) FROM labels_of_null), (SELECT count(cluster) FROM labels_of_null);
-- no points are kept
SET gkmeans.strategy = scan;
SELECT count(*) FROM kmeans_label_table('pts', '{x}', 3, 'scanned', '{id}');
RESET gkmeans.strategy;
SELECT count(*) FROM scanned s JOIN labels l USING (id) WHERE s.cluster IS DISTINCT FROM l.cluster;
DROP TABLE scanned;

-- types of the id columns stay; more rows, and wider ones, than are written at once
CREATE DOMAIN number AS numeric(10,2);
CREATE TABLE wide (a bigint, b text COLLATE "C", c number, d varchar(9), e text, x real, gone int);
ALTER TABLE wide ALTER e SET STORAGE external, DROP gone;
INSERT INTO wide SELECT i, CASE WHEN i % 7 > 0 THEN repeat('b', i) END, i / 4.0, i, CASE WHEN i < 4 THEN repeat(i::text, 10000) END, i % 4 FROM generate_series(1, 3000) i;
ALTER TABLE wide ADD added int DEFAULT 5;
DELETE FROM wide WHERE a % 100 = 0;
UPDATE wide SET x = 3 - x WHERE a % 50 = 1;
SELECT size, centroid FROM kmeans_label_table('wide', '{x}', 4, 'wide_labels', '{e,d,c,b,a,added}', centroids => '{{0},{1},{2},{3}}');
SELECT count(*), count(*) FILTER (WHERE x = cluster) AS same,
       count(*) FILTER (WHERE (w.b, w.c, w.d, w.e, w.added) IS NOT DISTINCT FROM (l.b, l.c, l.d, l.e, l.added)) AS same_ids
FROM wide w FULL JOIN wide_labels l USING (a);
SELECT attname, format_type(atttypid, atttypmod), collname FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation
WHERE attrelid = 'wide_labels'::regclass AND attnum > 0 ORDER BY attnum;

-- the same by the executor
SET gkmeans.reader = executor;
SELECT size FROM kmeans_label_table('wide', '{x}', 4, 'wide_executor', '{e,d,c,b,a,added}', centroids => '{{0},{1},{2},{3}}');
RESET gkmeans.reader;
SELECT count(*) FROM wide_labels w1 JOIN wide_executor w2 ON w1.ctid = w2.ctid AND w1::text = w2::text;
DROP TABLE wide_executor;

-- partitions and children; a materialized view
CREATE TABLE part (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE part_b (x int, id int);
ALTER TABLE part ATTACH PARTITION part_b FOR VALUES FROM (10) TO (20);
CREATE TABLE part_a PARTITION OF part FOR VALUES FROM (0) TO (10);
INSERT INTO part SELECT i, i % 2 * 50 FROM generate_series(5, 14) i;
SELECT cluster, size FROM kmeans_label_table('part', '{x}', 2, 'part_labels', '{id}', centroids => '{{0},{50}}');
SELECT count(*), count(*) FILTER (WHERE cluster = id % 2) FROM part_labels;
CREATE TABLE parent (x int);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent SELECT i % 2 * 50 FROM generate_series(1, 5) i;
INSERT INTO child SELECT (i + 1) % 2 * 50 FROM generate_series(1, 5) i;
SELECT cluster, size FROM kmeans_label_table('parent', '{x}', 2, 'child_labels', '{x}', centroids => '{{0},{50}}');
SELECT cluster, x, count(*) FROM child_labels GROUP BY 1, 2 ORDER BY 1;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM pts;
SELECT count(*) FROM kmeans_label_table('mv', '{x}', 3, 'mv_labels', '{id}');
SELECT count(*) FROM mv_labels JOIN labels USING (id, cluster);

-- names: quotes, a schema, a temporary table
CREATE TABLE "T 1" ("i""d" int, "x""y" int);
INSERT INTO "T 1" VALUES (1, 1), (2, 9);
CREATE SCHEMA "s 1";
SELECT cluster, size FROM kmeans_label_table('"T 1"', ARRAY['x"y'], 2, '"s 1"."L ""1"', ARRAY['i"d']);
TABLE "s 1"."L ""1";
SELECT cluster, size FROM kmeans_label_table('"T 1"', ARRAY['x"y'], 2, 'pg_temp.Labels', ARRAY['i"d']);
SELECT relpersistence FROM pg_class WHERE oid = 'pg_temp.labels'::regclass;
TABLE pg_temp.labels;
SET search_path = "s 1", public;
SELECT cluster, size FROM kmeans_label_table('"T 1"', ARRAY['x"y'], 2, 'labels', ARRAY['i"d']);
RESET search_path;
TABLE "s 1".labels;

-- bad input
SELECT * FROM kmeans_label_table('pts', '{x}', 2, NULL, '{id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, '', '{id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'a.b.c', '{id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'nowhere.new', '{id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', NULL);
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id,NULL}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id,no_such}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id,id}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id,cluster}');
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{ctid}');
SELECT * FROM kmeans_label_table('pts', '{x}', 0, 'new', '{id}');
CREATE VIEW v AS SELECT * FROM pts;
SELECT * FROM kmeans_label_table('v', '{x}', 2, 'new', '{id}');
BEGIN READ ONLY;
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
ROLLBACK;
SELECT to_regclass('new');

-- row-level security: rows of one's own, also where an index puts them in another order
CREATE TABLE mine (id int, owner name, x int);
INSERT INTO mine SELECT 1000 - i, CASE WHEN i % 4 = 0 THEN 'someone' ELSE 'label_table_user' END, CASE WHEN i % 5 > 0 THEN i % 3 * 10 END FROM generate_series(1, 1000) i;
CREATE INDEX ON mine (id) WHERE owner = 'label_table_user';
CREATE ROLE label_table_user;
GRANT SELECT ON mine, pts TO label_table_user;
ALTER TABLE mine ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON mine USING (owner = current_user AND id >= 0);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET ROLE label_table_user;
SELECT cluster, size FROM kmeans_label_table('mine', '{x}', 3, 'pg_temp.mine_labels', '{id}', centroids => '{{0},{10},{20}}');
-- no right to create a table there
SELECT * FROM kmeans_label_table('mine', '{x}', 3, '"s 1".mine_labels', '{id}');
RESET ROLE;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*), count(cluster), count(*) FILTER (WHERE x = cluster * 10) AS same FROM pg_temp.mine_labels JOIN mine USING (id);

-- an event trigger that changes new tables
CREATE FUNCTION change_table() RETURNS event_trigger LANGUAGE plpgsql AS
$$ BEGIN EXECUTE format(current_setting('test.change'), (SELECT objid::regclass FROM pg_event_trigger_ddl_commands() LIMIT 1)); END $$;
CREATE EVENT TRIGGER change ON ddl_command_end WHEN tag IN ('CREATE TABLE AS') EXECUTE FUNCTION change_table();
SET client_min_messages = error;
SET test.change = 'COMMENT ON TABLE %s IS ''seen''';
SELECT cluster, size FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SELECT obj_description('new'::regclass), count(*) FROM new;
DROP TABLE new;
SET test.change = 'ALTER TABLE %s ADD PRIMARY KEY (id)';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'ALTER TABLE %s ENABLE ROW LEVEL SECURITY';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'ALTER TABLE %s ALTER id TYPE bigint';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'ALTER TABLE %s ADD more int';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'ALTER TABLE %s ADD CHECK (cluster < 1)';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'CREATE TRIGGER t BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
SET test.change = 'DROP TABLE %s';
SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'new', '{id}');
RESET client_min_messages;
DROP EVENT TRIGGER change;

DROP OWNED BY label_table_user;
DROP ROLE label_table_user;
DROP FUNCTION change_table;
DROP TABLE pg_temp.labels;
DROP SCHEMA "s 1" CASCADE;
DROP VIEW v;
DROP MATERIALIZED VIEW mv;
DROP TABLE pts, labels, l1, l2, weighted, nan, skipped, empty, labels_of_none, labels_of_null, wide, wide_labels, part, part_labels, parent, child, child_labels, mv_labels, mine, "T 1";
DROP DOMAIN number;
