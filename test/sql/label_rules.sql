-- kmeans(..., label_column) on tables with ON UPDATE rules: the rules' actions run in
-- executor states of their own, before the UPDATE, and ask for the same labels.

-- row i has label i % 3 in the end, and NULL if it is left out
CREATE FUNCTION label(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN i % 10 <> 0 THEN i % 3 END';
CREATE FUNCTION write_labels(relation regclass) RETURNS TABLE (cluster int, size bigint) LANGUAGE sql AS $$
	SELECT cluster, size FROM kmeans(relation, '{x}', 3, 'cluster', centroids => '{{0},{100},{200}}') $$;
CREATE TABLE pts (id int PRIMARY KEY, x float8, cluster int);
INSERT INTO pts SELECT i, CASE WHEN label(i) IS NOT NULL THEN label(i) * 100 + i * 0.001 END, 7 FROM generate_series(1, 3000) i;
CREATE TABLE log (id int, new int, old int);

-- an action that asks for labels, and many others between it and the UPDATE
CREATE RULE l AS ON UPDATE TO pts DO ALSO INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
DO $$ BEGIN
	FOR i IN 1 .. 20 LOOP
		EXECUTE format('CREATE RULE z%s AS ON UPDATE TO pts DO ALSO NOTIFY channel%1$s', i);
	END LOOP;
END $$;
SELECT * FROM write_labels('pts');
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong,
       count(*) FILTER (WHERE old IS DISTINCT FROM 7) AS wrong_old FROM log;

-- only rows whose label changes are updated, and logged
TRUNCATE log;
SELECT count(*) FROM write_labels('pts');
SELECT count(*) FROM log;
UPDATE pts SET cluster = 5 WHERE id % 7 = 0;
TRUNCATE log;
SELECT count(*) FROM write_labels('pts');
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT count(*), count(*) FILTER (WHERE id % 7 <> 0) AS others, count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log;
DO $$ BEGIN FOR i IN 1 .. 20 LOOP EXECUTE format('DROP RULE z%s ON pts', i); END LOOP; END $$;
DROP RULE l ON pts;

-- joined with another table, in that one's order
CREATE TABLE other AS SELECT i AS id, label(i) AS cluster, NULL::int AS got FROM generate_series(3000, 1, -1) i;
CREATE RULE l AS ON UPDATE TO pts DO ALSO INSERT INTO log SELECT new.id, new.cluster, o.cluster FROM other o WHERE o.id = new.id;
UPDATE pts SET cluster = 7;
TRUNCATE log;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE INDEX ON pts (id DESC);
SELECT count(*) FROM write_labels('pts');
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT count(*), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log;
UPDATE pts SET cluster = 7;
TRUNCATE log;
SELECT count(*) FROM write_labels('pts');
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT count(*), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log;
DROP RULE l ON pts;

-- with a condition on the label; actions that update and delete
CREATE RULE l AS ON UPDATE TO pts WHERE new.cluster = 1 DO ALSO INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
CREATE RULE u AS ON UPDATE TO pts DO ALSO UPDATE other SET got = new.cluster WHERE id = old.id;
CREATE RULE z AS ON UPDATE TO pts WHERE new.cluster = 2 DO ALSO DELETE FROM other WHERE id = old.id;
UPDATE pts SET cluster = 7;
UPDATE other SET got = 9;
TRUNCATE log;
INSERT INTO other SELECT i, label(i), 9 FROM generate_series(1, 3000) i ON CONFLICT DO NOTHING;
DELETE FROM other o USING other p WHERE o.id = p.id AND o.ctid > p.ctid;
SELECT count(*) FROM write_labels('pts');
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT new, count(*), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log GROUP BY 1;
SELECT got, count(*), count(*) FILTER (WHERE got IS DISTINCT FROM label(id)) AS wrong FROM other GROUP BY 1 ORDER BY 1;
DROP TABLE pts;

-- a rule with INSTEAD takes the UPDATE away, from some rows or from all: nothing is written
CREATE TABLE pts (id int PRIMARY KEY, x float8, cluster int);
INSERT INTO pts SELECT i, label(i) * 100, 7 FROM generate_series(1, 30) i;
CREATE RULE r AS ON UPDATE TO pts DO INSTEAD NOTHING;
\set VERBOSITY sqlstate
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
\set VERBOSITY default
-- not even the column is added
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'brand_new');
SELECT count(*) FROM pg_attribute WHERE attrelid = 'pts'::regclass AND attname = 'brand_new';
-- what does not write works
SELECT count(*) FROM kmeans_labels('pts', '{x}', 3);
SELECT count(*) FROM kmeans_label_table('pts', '{x}', 3, 'labels', '{id}');
-- a condition that no row meets
CREATE OR REPLACE RULE r AS ON UPDATE TO pts WHERE new.cluster > 100 DO INSTEAD NOTHING;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
CREATE OR REPLACE RULE r AS ON UPDATE TO pts WHERE new.cluster = 1 DO INSTEAD INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
SELECT DISTINCT cluster FROM pts;
-- rules that do not fire: disabled, of a replica, of another command
ALTER TABLE pts DISABLE RULE r;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster', centroids => '{{0},{100},{200}}');
SELECT count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
UPDATE pts SET cluster = 7;
ALTER TABLE pts ENABLE REPLICA RULE r;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster', centroids => '{{0},{100},{200}}');
SELECT count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SET session_replication_role = replica;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
ALTER TABLE pts ENABLE RULE r;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
RESET session_replication_role;
ALTER TABLE pts ENABLE ALWAYS RULE r;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
DROP RULE r ON pts;
CREATE RULE r AS ON INSERT TO pts DO INSTEAD NOTHING;
UPDATE pts SET cluster = 7;
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster', centroids => '{{0},{100},{200}}');
SELECT count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
DROP TABLE pts;

-- partitions: an UPDATE of the whole table has the whole table's rules, no partition's
CREATE TABLE pts (id int, x float8, cluster int) PARTITION BY RANGE (id);
CREATE TABLE pts_a PARTITION OF pts FOR VALUES FROM (0) TO (1000);
CREATE TABLE pts_b (cluster int, x float8, id int);
ALTER TABLE pts ATTACH PARTITION pts_b FOR VALUES FROM (1000) TO (4000);
INSERT INTO pts SELECT i, label(i) * 100, 7 FROM generate_series(1, 3000) i;
CREATE RULE l AS ON UPDATE TO pts DO ALSO INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
CREATE RULE i AS ON UPDATE TO pts_a DO INSTEAD NOTHING;
TRUNCATE log;
SELECT * FROM write_labels('pts');
SELECT count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts;
SELECT count(*), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log;
SELECT count(*) FROM write_labels('pts_a');
CREATE RULE l AS ON UPDATE TO pts_b DO ALSO INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
UPDATE pts SET cluster = 7;
TRUNCATE log;
SELECT count(*) FROM write_labels('pts_b');
SELECT tableoid::regclass, count(*), count(*) FILTER (WHERE cluster IS DISTINCT FROM label(id)) AS wrong FROM pts GROUP BY 1 ORDER BY 1;
SELECT count(*), count(*) FILTER (WHERE new IS DISTINCT FROM label(id)) AS wrong FROM log;
DROP TABLE pts;

-- an action that changes the table itself, by a trigger: the rows' labels would be lost
CREATE TABLE pts (id int, x float8, cluster int, note text);
INSERT INTO pts SELECT i, label(i) * 100, NULL FROM generate_series(1, 30) i;
CREATE FUNCTION change_pts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() = 1 THEN UPDATE pts SET note = 'changed' WHERE id = new.id; END IF;
    RETURN new;
END $$;
CREATE TRIGGER t AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION change_pts();
CREATE RULE l AS ON UPDATE TO pts DO ALSO INSERT INTO log VALUES (new.id, new.cluster, old.cluster);
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
SELECT count(*) FILTER (WHERE note IS NULL AND cluster IS NULL) AS untouched FROM pts;
-- rows that the transaction has changed before, and that an action adds
DROP TRIGGER t ON log;
BEGIN;
UPDATE pts SET note = 'before';
CREATE RULE a AS ON UPDATE TO pts WHERE new.id = 1 DO ALSO INSERT INTO pts VALUES (31, 500);
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster', centroids => '{{0},{100},{200}}');
SELECT id > 30 AS added, count(*), count(*) FILTER (WHERE cluster = label(id)) AS labelled FROM pts GROUP BY 1 ORDER BY 1;
ROLLBACK;
-- an action that asks for rows of what is no table, for a row that is none, of another table
DROP RULE l ON pts;
CREATE TABLE asked (label bool);
CREATE RULE v AS ON UPDATE TO pts WHERE new.id = 1 DO ALSO
    INSERT INTO asked SELECT gkmeans_has_new_label(o, t::tid) FROM unnest(ARRAY['pg_stat_activity', 'asked', 'pts']::regclass[]) o, unnest('{"(0,1)","(0,200)"}'::text[]) t;
CREATE RULE n AS ON UPDATE TO pts WHERE new.id = 2 DO ALSO INSERT INTO asked SELECT gkmeans_has_new_label(1, '(0,1)');
SELECT count(*) FROM kmeans('pts', '{x}', 3, 'cluster');
SELECT label, count(*) FROM asked GROUP BY 1 ORDER BY 1;
CREATE TABLE parted (id int, x float8, cluster int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
INSERT INTO parted SELECT i, i % 3 FROM generate_series(1, 30) i;
CREATE RULE p AS ON UPDATE TO parted DO ALSO INSERT INTO asked SELECT gkmeans_has_new_label('parted'::regclass, '(0,1)');
SELECT count(*) FROM kmeans('parted', '{x}', 3, 'cluster');
SELECT count(*) FROM parted WHERE cluster IS NULL;
DROP TABLE parted;
-- an action that asks for places where no row is, and for that of a row
CREATE TABLE places (id int, x float8, cluster int);
INSERT INTO places SELECT i, i % 3 FROM generate_series(1, 30) i;
TRUNCATE asked;
CREATE RULE a AS ON UPDATE TO places DO ALSO INSERT INTO asked SELECT gkmeans_new_label(o, t::tid) IS NOT NULL
    FROM unnest(ARRAY[0, 'places'::regclass]) o, unnest('{"(0,0)","(7,0)","(0,200)","(0,65535)","(99999,1)","(4294967295,1)","(4294967295,0)"}'::text[]) t;
CREATE RULE b AS ON UPDATE TO places WHERE new.id = 1 DO ALSO INSERT INTO asked SELECT gkmeans_new_label('places'::regclass, '(0,1)') IS NOT NULL;
SELECT count(*) FROM kmeans('places', '{x}', 3, 'cluster', centroids => '{{0},{1},{2}}');
SELECT count(*) FILTER (WHERE cluster = x) AS labelled, pg_relation_size('places') / current_setting('block_size')::int AS pages FROM places;
SELECT label, count(*) FROM asked GROUP BY 1 ORDER BY 1;
DROP TABLE places;
-- a cancel while the labels are sorted, and a function that goes on
CREATE TABLE sorted (id int, x float8, cluster int);
INSERT INTO sorted SELECT i, i % 3 FROM generate_series(1, 5000) i;
CREATE FUNCTION ask_backwards() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    PERFORM gkmeans_has_new_label('sorted'::regclass, '(9,1)');
    PERFORM pg_cancel_backend(pg_backend_pid()) AND gkmeans_has_new_label('sorted'::regclass, '(0,1)');
EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'canceled';
END $$;
CREATE RULE a AS ON UPDATE TO sorted WHERE new.id = 1 DO ALSO SELECT ask_backwards();
SELECT count(*) FROM kmeans('sorted', '{x}', 3, 'cluster', centroids => '{{0},{1},{2}}');
SELECT count(*) FILTER (WHERE cluster = x) AS labelled FROM sorted;
DROP TABLE sorted;
DROP FUNCTION ask_backwards;
DROP FUNCTION change_pts;
DROP TABLE pts, log, other, labels, asked;
DROP FUNCTION label, write_labels;
