-- What a call reads is found by name, and user code may run in it: a view's function, a policy, a trigger.  When the
-- names stand for something else meanwhile, that is an error; nothing is read as what it was before.
CREATE SCHEMA cd;
SET search_path = cd, public;
\set SHOW_CONTEXT never
-- Once, what cd.act says.
CREATE FUNCTION act() RETURNS int LANGUAGE plpgsql AS $$
DECLARE a text = current_setting('cd.act', true);
BEGIN
  PERFORM set_config('cd.act', '', false);
  IF a <> '' THEN EXECUTE a; END IF;
  RETURN 0;
END $$;
CREATE VIEW centroids AS SELECT cd.act() + g AS cluster, ARRAY[g, g]::float8[] AS centroid FROM generate_series(0, 1) g;
CREATE TABLE t (id int, x numeric, y numeric, x2 bigint, y2 bigint, lab int);
INSERT INTO t SELECT i, i, i, 12345678, 12345678 FROM generate_series(1, 100) i;
\set swap 'ALTER TABLE cd.t RENAME x TO z; ALTER TABLE cd.t RENAME x2 TO x;'

-- nothing happens
SELECT count(*) FROM kmeans('t', '{x,y}', 2, centroid_table => 'centroids');

-- a column of another type
SET cd.act = :'swap';
SELECT kmeans_fit('t', '{x,y}', 2, centroid_table => 'centroids');
SET cd.act = :'swap';
SELECT * FROM kmeans('t', '{x,y}', 2, 'lab', centroid_table => 'centroids');
SET cd.act = :'swap';
SELECT * FROM kmeans_labels('t', '{x,y}', 2, centroid_table => 'centroids');
SET cd.act = :'swap';
SELECT * FROM kmeans_label_table('t', '{x,y}', 2, 'made', '{id}', centroid_table => 'centroids');
SET cd.act = 'ALTER TABLE cd.t ALTER x TYPE bigint';
SELECT kmeans_fit('t', '{x,y}', 2, centroid_table => 'centroids', weight_column => 'x2');
SET cd.act = 'ALTER TABLE cd.t ALTER x TYPE bigint';
SELECT kmeans_query_fit('SELECT x, y FROM t', 2, centroid_table => 'centroids');

-- the column, or the table, goes
SET cd.act = 'ALTER TABLE cd.t DROP COLUMN lab';
SELECT * FROM kmeans('t', '{x,y}', 2, 'lab', centroid_table => 'centroids');
SET cd.act = 'DROP TABLE cd.t';
SELECT * FROM kmeans('t', '{x,y}', 2, 'lab', centroid_table => 'centroids');
SET cd.act = 'DROP TABLE cd.t';
SELECT kmeans_fit('t', '{x,y}', 2, centroid_table => 'centroids');

-- a query is planned when it runs: an index that its plan would use may go
CREATE INDEX t_x ON t (x);
SET enable_seqscan = off;
SET cd.act = 'DROP INDEX cd.t_x';
SELECT count(*) FROM kmeans_query('SELECT x, y FROM t WHERE x < 50', 2, centroid_table => 'centroids');
RESET enable_seqscan;

-- between two reads of a view
CREATE VIEW v AS SELECT cd.act() + x AS x, y, x2, y2 FROM t;
SET cd.act = 'ALTER VIEW cd.v RENAME y TO z; ALTER VIEW cd.v RENAME y2 TO y';
SELECT kmeans_fit('v', '{x,y}', 2, nulls => 'mean');
SET cd.act = 'ALTER VIEW cd.v RENAME y TO z; ALTER VIEW cd.v RENAME y2 TO y';
SET gkmeans.strategy = scan;
SELECT kmeans_fit('v', '{x,y}', 2);
RESET gkmeans.strategy;
SET cd.act = 'ALTER VIEW cd.v RENAME y TO z; ALTER VIEW cd.v RENAME y2 TO y';
SET gkmeans.memory_limit = '64kB';
INSERT INTO t SELECT i, i, i, i, i FROM generate_series(1, 20000) i;
SELECT count(*) FROM kmeans_grouped('v', '{x2}', '{x,y}', 1);
RESET gkmeans.memory_limit;
RESET cd.act;

-- schemas are swapped while the rows are read: no lock of a table keeps another session from that, and here a policy does it
CREATE SCHEMA cd_new;
CREATE SCHEMA cd_now;
CREATE TABLE cd_now.p AS SELECT i AS id, i::numeric AS x, NULL::int AS lab FROM generate_series(1, 100) i;
CREATE TABLE cd_new.p AS SELECT i AS id, i::numeric AS x, NULL::int AS lab FROM generate_series(1, 10) i;
CREATE ROLE cd_user;
GRANT USAGE, CREATE ON SCHEMA cd, cd_now, cd_new TO cd_user;
ALTER TABLE cd_now.p OWNER TO cd_user;
ALTER TABLE cd_new.p OWNER TO cd_user;
CREATE FUNCTION act_as_owner() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT cd.act()';
CREATE POLICY all_rows ON cd_now.p USING (cd.act_as_owner() = 0);
ALTER TABLE cd_now.p ENABLE ROW LEVEL SECURITY;
ALTER TABLE cd_now.p FORCE ROW LEVEL SECURITY;
SET ROLE cd_user;
\set swap_schemas 'ALTER SCHEMA cd_now RENAME TO cd_old; ALTER SCHEMA cd_new RENAME TO cd_now;'
SET cd.act = :'swap_schemas';
SELECT * FROM kmeans('cd_now.p', '{x}', 2, 'lab');
SET cd.act = :'swap_schemas';
SELECT * FROM kmeans('cd_now.p', '{x}', 2, 'new_lab');
SET cd.act = :'swap_schemas';
SELECT * FROM kmeans_label_table('cd_now.p', '{x}', 2, 'made', '{id}');
SET cd.act = :'swap_schemas';
SELECT kmeans_fit('cd_now.p', '{x}', 2, nulls => 'mean');
RESET cd.act;
SELECT count(lab) FROM cd_now.p;
SELECT count(lab) FROM cd_new.p;
RESET ROLE;

-- who may not read or write it does not lock it for others
CREATE ROLE cd_none;
SELECT 't'::regclass::oid AS t \gset
GRANT USAGE ON SCHEMA cd TO cd_none;
GRANT SELECT ON centroids TO cd_none;
BEGIN;
SET LOCAL ROLE cd_none;
SAVEPOINT s;
SELECT * FROM kmeans(:t, '{x,y}', 2, 'lab', centroid_table => 'centroids');
ROLLBACK TO s;
SELECT * FROM kmeans(:t, '{x,y}', 2, 'new_lab', centroid_table => 'centroids');
ROLLBACK TO s;
SELECT kmeans_fit(:t, '{x,y}', 2, centroid_table => 'centroids');
ROLLBACK TO s;
SELECT * FROM kmeans_mixed(:t, '{x,y}', 2);
ROLLBACK TO s;
COMMIT;
SET client_min_messages = warning;
DROP SCHEMA cd, cd_now, cd_new CASCADE;
DROP ROLE cd_user, cd_none;
