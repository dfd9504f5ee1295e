-- kmeans(..., label_column): labels written into the table.

CREATE TABLE pts (id int PRIMARY KEY, x float8, note text);
INSERT INTO pts SELECT i, CASE WHEN i % 10 = 0 THEN NULL ELSE (i % 3) * 100 + i % 5 END, 'n' || i FROM generate_series(1, 30) i;

-- the column is added when missing; rows that are left out stay NULL
SELECT cluster, size FROM kmeans('pts', '{x}', 3, 'cluster');
SELECT cluster, count(*), min(x), max(x) FROM pts GROUP BY 1 ORDER BY 1;
SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'pts'::regclass AND attname = 'cluster';

-- the same labels again: no row is written
CREATE TABLE before AS SELECT ctid AS was, xmin AS was_xmin, id FROM pts;
SELECT cluster, size FROM kmeans('pts', '{x}', 3, label_column => 'cluster');
SELECT count(*) FROM pts JOIN before USING (id) WHERE pts.ctid <> was OR pts.xmin <> was_xmin;
BEGIN;
SELECT pg_stat_get_xact_tuples_updated('pts'::regclass) AS updated \gset
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'cluster');
SELECT pg_stat_get_xact_tuples_updated('pts'::regclass) - :updated AS n_tup_upd;
COMMIT;
-- only rows whose label changes are written
UPDATE pts SET cluster = 7 WHERE id IN (4, 10, 11);
UPDATE pts SET cluster = NULL WHERE id = 5;
DROP TABLE before;
CREATE TABLE before AS SELECT ctid AS was, id FROM pts;
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'cluster');
SELECT array_agg(id ORDER BY id) FROM pts JOIN before USING (id) WHERE pts.ctid <> was;
SELECT cluster, count(*), min(x), max(x) FROM pts GROUP BY 1 ORDER BY 1;
-- cluster numbers that are kept keep the rows too
SELECT cluster, size, round(centroid[1]::numeric, 2) FROM kmeans('pts', '{x}', 3, label_column => 'cluster', centroids => '{{200},{100},{0}}');
SELECT cluster, count(*), min(x), max(x) FROM pts GROUP BY 1 ORDER BY 1;
-- no usable rows: labels become NULL
UPDATE pts SET x = NULL;
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'cluster');
SELECT cluster, count(*) FROM pts GROUP BY 1;
UPDATE pts SET x = (id % 3) * 100;

-- rolled back with its transaction
BEGIN;
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'other');
SELECT other, count(*) FROM pts GROUP BY 1 ORDER BY 1;
ROLLBACK;
SELECT other FROM pts;

-- types
ALTER TABLE pts ADD i2 smallint, ADD i8 bigint, ADD f8 float8, ADD t text, ADD gen int GENERATED ALWAYS AS (id + 1) STORED;
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'i2');
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'i8');
SELECT count(*) FROM pts WHERE i2 <> i8 OR i2 IS NULL;
UPDATE pts SET i8 = 9000000000 + id WHERE id <= 2;
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'i8');
SELECT count(*) FROM pts WHERE i2 <> i8;
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'f8');
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 't');
SELECT * FROM kmeans('pts', '{x}', 40000, label_column => 'i2');
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'gen');
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'ctid');
SELECT * FROM kmeans('pts', '{x}', 3, label_column => '');
-- a child has the column that is missing: rows that are left out lose its label
CREATE TABLE parent (id int, x float8);
CREATE TABLE child (seg int DEFAULT 7) INHERITS (parent);
INSERT INTO parent VALUES (1, 1), (2, NULL), (3, 9);
INSERT INTO child VALUES (4, 1), (5, NULL), (6, 10);
SELECT cluster, size FROM kmeans('parent', '{x}', 2, label_column => 'seg');
SELECT id, seg FROM parent ORDER BY id;
-- ... but not if it has another type there
ALTER TABLE child ADD grade text;
SELECT cluster, size FROM kmeans('parent', '{x}', 2, label_column => 'grade');
SET client_min_messages = warning;
DROP TABLE parent CASCADE;
RESET client_min_messages;
-- an event trigger that rewrites or renames the table when its column is added
BEGIN;
CREATE FUNCTION change_pts() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE change text := current_setting('test.change');
BEGIN
	PERFORM set_config('test.change', 'SELECT', true);
	EXECUTE change;
END $$;
CREATE EVENT TRIGGER change_pts ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION change_pts();
SAVEPOINT unchanged;
SET LOCAL test.change = 'ALTER TABLE pts ALTER note TYPE varchar(9)';
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'added');
ROLLBACK TO unchanged;
SET LOCAL test.change = 'ALTER TABLE pts RENAME TO were_pts';
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'added');
ROLLBACK TO unchanged;
SET LOCAL test.change = 'DROP TABLE pts';
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'added');
ROLLBACK TO unchanged;
SET LOCAL test.change = 'SELECT';
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => 'added');
ROLLBACK;
-- a name that is too long is cut as ALTER TABLE cuts it, in the first call and the second
BEGIN;
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => repeat('a', 64));
SELECT count(*) FROM kmeans('pts', '{x}', 3, label_column => repeat('a', 64));
SELECT format('SELECT count(DISTINCT %I) FROM pts', repeat('a', 63)) \gexec
ROLLBACK;
SELECT * FROM kmeans('pts', '{x,cluster}', 3, label_column => 'cluster');
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'id', weight_column => 'id');
CREATE DOMAIN small_label AS int CHECK (VALUE < 2);
ALTER TABLE pts ADD dom small_label;
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'dom');
SELECT count(*) FROM pts WHERE dom IS NOT NULL;
SELECT cluster, size FROM kmeans('pts', '{x}', 2, label_column => 'dom');

-- relations without rows of their own to update
CREATE VIEW v AS SELECT * FROM pts;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM pts;
SELECT * FROM kmeans('v', '{x}', 3, label_column => 'cluster');
SELECT * FROM kmeans('mv', '{x}', 3, label_column => 'cluster');
-- nor may anything be written here
BEGIN READ ONLY;
SELECT * FROM kmeans('pts', '{x}', 3, label_column => 'cluster');
ROLLBACK;
-- but to the rows of a temporary table
CREATE TEMP TABLE own AS SELECT x, NULL::int AS cluster FROM pts;
BEGIN READ ONLY;
SELECT cluster, size FROM kmeans('own', '{x}', 3, label_column => 'cluster');
SELECT cluster, count(*) FROM own GROUP BY 1 ORDER BY 1;
SELECT cluster, size FROM kmeans('own', '{x}', 3, label_column => 'another');
ROLLBACK;
DROP TABLE own;

-- triggers, generated columns, constraints: as in any UPDATE
CREATE TABLE log (id int, old int, new int);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO log VALUES (NEW.id, OLD.label, NEW.label); RETURN NEW; END $$;
CREATE TABLE watched (id int PRIMARY KEY, x int, label int, doubled int GENERATED ALWAYS AS (2 * label) STORED);
INSERT INTO watched SELECT i, i / 4 * 10 FROM generate_series(0, 11) i;
CREATE TRIGGER t BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION note_change();
SELECT cluster, size FROM kmeans('watched', '{x}', 3, label_column => 'label');
SELECT new, count(*), count(old) FROM log GROUP BY 1 ORDER BY 1;
SELECT label, doubled, count(*) FROM watched GROUP BY 1, 2 ORDER BY 1;
TRUNCATE log;
SELECT count(*) FROM kmeans('watched', '{x}', 3, label_column => 'label');
SELECT count(*) FROM log;
ALTER TABLE watched ADD CHECK (label < 2) NOT VALID;
UPDATE watched SET x = 20 - x, label = NULL;
SELECT * FROM kmeans('watched', '{x}', 3, label_column => 'label');
SELECT count(label) FROM watched;

-- partitions and children; the same ctid in both
CREATE TABLE part (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE part_a PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE TABLE part_b PARTITION OF part FOR VALUES FROM (10) TO (20);
INSERT INTO part SELECT i, i % 2 * 50 FROM generate_series(5, 14) i;
SELECT * FROM kmeans('part_a', '{x}', 2, label_column => 'cluster');
SELECT cluster, size FROM kmeans('part', '{x}', 2, label_column => 'cluster');
SELECT tableoid::regclass, cluster, count(*), count(DISTINCT x) FROM part GROUP BY 1, 2 ORDER BY 1, 2;
CREATE TABLE parent (x int);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent SELECT i % 2 * 50 FROM generate_series(1, 5) i;
INSERT INTO child SELECT (i + 1) % 2 * 50 FROM generate_series(1, 5) i;
SELECT cluster, size, centroid FROM kmeans('parent', '{x}', 2, label_column => 'cluster');
SELECT tableoid::regclass, cluster, x, count(*) FROM parent GROUP BY 1, 2, 3 ORDER BY 1, 2;

-- names that need quotes
CREATE TABLE "T 1" ("x""y" int);
INSERT INTO "T 1" VALUES (1), (9);
SELECT cluster, size FROM kmeans('"T 1"', ARRAY['x"y'], 2, label_column => 'the "label"');
TABLE "T 1";
-- what the UPDATE asks is for nobody else
SELECT gkmeans_new_label(tableoid, ctid) FROM pts LIMIT 1;
SELECT gkmeans_has_new_label(tableoid, ctid) FROM pts LIMIT 1;

-- heap-only tuples where there is room on the page, as in any UPDATE of a column without index
CREATE TABLE hot (id int PRIMARY KEY, x int, label int) WITH (fillfactor = 40, autovacuum_enabled = false);
INSERT INTO hot SELECT i, i % 2 * 10 FROM generate_series(1, 1000) i;
BEGIN;
SELECT count(*) FROM kmeans('hot', '{x}', 2, label_column => 'label');
SELECT pg_stat_get_xact_tuples_updated('hot'::regclass) AS updated, pg_stat_get_xact_tuples_hot_updated('hot'::regclass) AS hot;
COMMIT;

-- a trigger of the UPDATE that labels another table, and one for the statement
CREATE TABLE other (x int, label int);
INSERT INTO other VALUES (1), (2), (31), (32);
CREATE TABLE statements (op text, rows bigint);
CREATE FUNCTION label_other() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.id = 500 THEN PERFORM kmeans('other', '{x}', 2, 'label'); END IF; RETURN NEW; END $$;
CREATE FUNCTION note_statement() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO statements SELECT TG_OP, count(*) FROM changed; RETURN NULL; END $$;
CREATE TRIGGER t BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION label_other();
CREATE TRIGGER s AFTER UPDATE ON hot REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_statement();
SELECT cluster, size FROM kmeans('hot', '{x}', 2, label_column => 'label', centroids => '{{10},{0}}');
SELECT label, count(*), min(x), max(x) FROM hot GROUP BY 1 ORDER BY 1;
TABLE other ORDER BY x;
TABLE statements;
-- a trigger that writes to a row that the UPDATE comes to: its usual error
CREATE OR REPLACE FUNCTION label_other() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.id = 1 THEN UPDATE hot SET x = 11 WHERE id = 900; END IF; RETURN NEW; END $$;
SELECT * FROM kmeans('hot', '{x}', 2, label_column => 'label', centroids => '{{0},{10}}');
SELECT label, count(*), min(x), max(x) FROM hot GROUP BY 1 ORDER BY 1;

-- row-level security that makes the UPDATE come along in the order of an index
CREATE TABLE mine (id int, owner name, x int, label int);
INSERT INTO mine SELECT 1000 - i, CASE WHEN i % 4 = 0 THEN 'someone' ELSE 'label_user' END, CASE WHEN i % 5 > 0 THEN i % 3 * 10 END, CASE WHEN i % 5 = 0 THEN 7 END FROM generate_series(1, 1000) i;
CREATE INDEX ON mine (id) WHERE owner = 'label_user';
CREATE ROLE label_user;
GRANT SELECT, UPDATE ON mine TO label_user;
ALTER TABLE mine ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON mine USING (owner = 'label_user' AND id >= 0);
SET ROLE label_user;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT cluster, size, centroid FROM kmeans('mine', '{x}', 3, label_column => 'label', centroids => '{{0},{10},{20}}');
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET ROLE;
SELECT owner, label, count(*), min(x), max(x) FROM mine GROUP BY 1, 2 ORDER BY 1, 2;

-- more changes than work_mem holds, rows left out among them, in partitions
SET work_mem = '64kB';
CREATE TABLE many (id int, x int, label int) PARTITION BY LIST (id);
CREATE TABLE many_a (label int, x int, id int);
ALTER TABLE many ATTACH PARTITION many_a FOR VALUES IN (0);
CREATE TABLE many_b PARTITION OF many FOR VALUES IN (1);
INSERT INTO many SELECT i % 2, CASE WHEN i % 7 > 0 THEN i % 3 * 10 END, CASE WHEN i % 7 = 0 THEN 1 END FROM generate_series(1, 40000) i;
SELECT cluster, size FROM kmeans('many', '{x}', 3, label_column => 'label', centroids => '{{0},{10},{20}}');
SELECT tableoid::regclass, label, x, count(*) FROM many GROUP BY 1, 2, 3 ORDER BY 1, 2;
RESET work_mem;

-- what the same statement has changed before the call is clustered and labelled, as by any volatile function
CREATE TABLE changed (id int PRIMARY KEY, x int, label int);
INSERT INTO changed SELECT i, i % 3 * 10 FROM generate_series(1, 30) i;
WITH u AS (UPDATE changed SET label = 7 RETURNING 1)
SELECT (SELECT count(*) FROM u) AS updated, (SELECT sum(size) FROM kmeans('changed', '{x}', 3, label_column => 'label', centroids => '{{0},{10},{20}}')) AS rows;
SELECT label, x, count(*) FROM changed GROUP BY 1, 2 ORDER BY 1, 2;
UPDATE changed SET x = 20, label = 7 WHERE id = 3
RETURNING (SELECT sum(size) FROM kmeans('changed', '{x}', 3, label_column => 'label', centroids => '{{0},{10},{20}}')) AS rows;
SELECT label, x, count(*) FROM changed GROUP BY 1, 2 ORDER BY 1, 2;
WITH d AS (DELETE FROM changed WHERE x = 20 RETURNING 1)
SELECT (SELECT count(*) FROM d) AS deleted, (SELECT sum(size) FROM kmeans('changed', '{x}', 2, label_column => 'label', centroids => '{{10},{0}}')) AS rows;
SELECT label, x, count(*) FROM changed GROUP BY 1, 2 ORDER BY 1, 2;
BEGIN ISOLATION LEVEL REPEATABLE READ;
WITH u AS (UPDATE changed SET label = 7 RETURNING 1)
SELECT (SELECT count(*) FROM u) AS updated, (SELECT sum(size) FROM kmeans('changed', '{x}', 2, label_column => 'label', centroids => '{{10},{0}}')) AS rows;
SELECT label, x, count(*) FROM changed GROUP BY 1, 2 ORDER BY 1, 2;
COMMIT;
-- a row that the statement changes afterwards is its error
UPDATE changed SET x = x + 1 FROM (SELECT sum(size) AS rows FROM kmeans('changed', '{x}', 2, label_column => 'label', centroids => '{{0},{10}}')) k WHERE k.rows > 0;
SELECT label, x, count(*) FROM changed GROUP BY 1, 2 ORDER BY 1, 2;

-- the table is in use by the same statement
SELECT * FROM pts, kmeans('pts', '{x}', 3, label_column => 'brand_new') LIMIT 1;

DROP VIEW v;
DROP MATERIALIZED VIEW mv;
DROP TABLE pts, before, log, watched, part, parent, child, "T 1", hot, other, statements, mine, many, changed;
DROP FUNCTION note_change, label_other, note_statement;
DROP ROLE label_user;
DROP DOMAIN small_label;
