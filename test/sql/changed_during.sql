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

-- another column of the same type
CREATE TABLE same (id int, x numeric, y numeric, z numeric, lab int, other int);
CREATE TABLE same_too () INHERITS (same);
INSERT INTO same SELECT i, i, i, -i FROM generate_series(1, 100) i;
INSERT INTO same_too SELECT i, i, i, -i FROM generate_series(1, 100) i;
SET cd.act = 'ALTER TABLE cd.same RENAME x TO w; ALTER TABLE cd.same RENAME z TO x';
SELECT kmeans_fit('same', '{x,y}', 2, centroid_table => 'centroids');
SET cd.act = 'ALTER TABLE cd.same RENAME x TO w; ALTER TABLE cd.same RENAME z TO x';
SELECT kmeans_fit('same', '{id,y}', 2, centroid_table => 'centroids', weight_column => 'x');
SET cd.act = 'ALTER TABLE cd.same RENAME lab TO w; ALTER TABLE cd.same RENAME other TO lab';
SELECT * FROM kmeans('same', '{x,y}', 2, 'lab', centroid_table => 'centroids');
SELECT count(lab) AS lab, count(other) AS other FROM same;
SET cd.act = 'ALTER TABLE cd.same RENAME id TO w; ALTER TABLE cd.same RENAME other TO id';
SELECT * FROM kmeans_label_table('same', '{x,y}', 2, 'made', '{id}', centroid_table => 'centroids');
CREATE VIEW keys AS SELECT cd.act() + x AS x, y, id AS k, -id AS other FROM t;
SET gkmeans.memory_limit = '64kB';
SET cd.act = 'ALTER VIEW cd.keys RENAME k TO w; ALTER VIEW cd.keys RENAME other TO k';
SELECT count(*) FROM kmeans_grouped('keys', '{k}', '{x,y}', 1);
RESET gkmeans.memory_limit;
-- a table that is rewritten has no rows that the statement's snapshot sees
SET cd.act = 'ALTER TABLE cd.same ALTER x TYPE numeric(9,3)';
SELECT kmeans_fit('same', '{x,y}', 2, centroid_table => 'centroids');
SET cd.act = 'ALTER TABLE cd.same_too ADD added float8 DEFAULT random()';
SELECT * FROM kmeans_label_table('same', '{x,y}', 2, 'made', '{id}', centroid_table => 'centroids');
-- what has come is read, if the snapshot sees it
SET cd.act = 'CREATE TABLE cd.same_new () INHERITS (cd.same); INSERT INTO cd.same_new VALUES (1, 1, 1)';
SELECT sum(size) FROM kmeans('same', '{x,y}', 2, centroid_table => 'centroids');
-- the view goes with its first row
CREATE VIEW gone AS SELECT cd.act() + x AS x, y FROM t;
SET cd.act = 'DROP VIEW cd.gone';
SELECT kmeans_fit('gone', '{x,y}', 2);
RESET cd.act;

-- while a query is parsed: a domain's check
CREATE FUNCTION ok(int) RETURNS bool LANGUAGE sql AS 'SELECT cd.act() = 0';
CREATE DOMAIN d AS int CHECK (ok(VALUE));
SET cd.act = :'swap';
SELECT kmeans_query_fit('SELECT x, y FROM cd.t WHERE ''{1}''::cd.d[] IS NOT NULL', 2);
RESET cd.act;

-- while it is planned: a function that says it is immutable, in a policy; other tables inherit then, or are partitions
CREATE FUNCTION all_rows() RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN cd.act() = 0; END';
CREATE TABLE r (id int, x numeric, y numeric, lab int);
CREATE TABLE r1 () INHERITS (r);
CREATE TABLE r2 (id int, x bigint, y numeric, lab int);
CREATE TABLE q (id int, x numeric, y numeric) PARTITION BY RANGE (id);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (1000);
CREATE TABLE q2 (id int, x bigint, y numeric);
INSERT INTO r1 SELECT i, i, i FROM generate_series(1, 100) i;
INSERT INTO r2 SELECT i, 12345678, i FROM generate_series(1, 100) i;
INSERT INTO q SELECT i, i, i FROM generate_series(1, 100) i;
INSERT INTO q2 SELECT i, 12345678, i FROM generate_series(1, 100) i;
CREATE POLICY p ON r USING (cd.all_rows());
CREATE POLICY p ON q USING (cd.all_rows());
ALTER TABLE r ENABLE ROW LEVEL SECURITY;
ALTER TABLE r FORCE ROW LEVEL SECURITY;
ALTER TABLE q ENABLE ROW LEVEL SECURITY;
ALTER TABLE q FORCE ROW LEVEL SECURITY;
CREATE ROLE cd_owner;
GRANT USAGE, CREATE ON SCHEMA cd TO cd_owner;
ALTER TABLE r OWNER TO cd_owner;
ALTER TABLE r1 OWNER TO cd_owner;
ALTER TABLE r2 OWNER TO cd_owner;
ALTER TABLE q OWNER TO cd_owner;
ALTER TABLE q1 OWNER TO cd_owner;
ALTER TABLE q2 OWNER TO cd_owner;
SET ROLE cd_owner;
\set inherit 'ALTER TABLE cd.r1 NO INHERIT cd.r; ALTER TABLE cd.r ALTER x TYPE bigint; ALTER TABLE cd.r2 INHERIT cd.r'
\set attach 'ALTER TABLE cd.q DETACH PARTITION cd.q1; ALTER TABLE cd.q ALTER x TYPE bigint; ALTER TABLE cd.q ATTACH PARTITION cd.q2 FOR VALUES FROM (0) TO (1000)'
SELECT count(*) FROM kmeans('r', '{x,y}', 2);
SET cd.act = :'inherit';
SELECT kmeans_fit('r', '{x,y}', 2);
SET cd.act = :'inherit';
SET gkmeans.reader = executor;
SELECT kmeans_fit('r', '{x,y}', 2);
RESET gkmeans.reader;
SET cd.act = :'inherit';
SELECT * FROM kmeans_mixed('r', '{x,y}', 2);
SET cd.act = :'inherit';
SELECT * FROM kmeans_grouped('r', '{lab}', '{x,y}', 2);
SET cd.act = :'inherit';
SELECT * FROM kmeans_grouped('r', '{y}', '{x}', 2);
SET cd.act = :'attach';
SELECT kmeans_fit('q', '{x,y}', 2);
SET cd.act = 'ALTER TABLE cd.q ALTER x TYPE numeric(9,3)';
SELECT kmeans_fit('q', '{x,y}', 2);
RESET cd.act;
RESET ROLE;

-- a table that inherits may have NULLs in a column that its parent has NOT NULL: they are a group as any other
CREATE TABLE parent (k int NOT NULL, x float8);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent VALUES (1, 1);
INSERT INTO child VALUES (1, 2);
DO $$ BEGIN
	ALTER TABLE child ALTER k DROP NOT NULL;
	INSERT INTO child VALUES (NULL, 3);
EXCEPTION WHEN invalid_table_definition THEN
	RAISE DEBUG 'PostgreSQL 18 and newer keep it NOT NULL';
END $$;
SELECT count(*) = (current_setting('server_version_num')::int < 180000)::int AS has_null FROM parent WHERE k IS NULL;
SELECT (grp->>'k')::int AS k, size FROM kmeans_grouped('parent', '{k}', '{x}', 1)
EXCEPT SELECT k, count(*) FROM parent GROUP BY k;
SELECT count(*) = (SELECT count(DISTINCT coalesce(k, 0)) FROM parent) AS all_groups FROM kmeans_grouped('parent', '{k}', '{x}', 1);

-- sizes of a table of centroids are read by its name, too
CREATE SCHEMA cd_a;
CREATE SCHEMA cd_b;
CREATE FUNCTION swap_measures() RETURNS int LANGUAGE sql AS 'SELECT cd.act()';
CREATE VIEW cd_a.m AS SELECT cd.swap_measures() + g AS cluster, ARRAY[g, g]::float8[] AS centroid, 3::bigint AS size, 1::float8 AS inertia, 1::float8 AS radius FROM generate_series(0, 1) g;
CREATE TABLE cd_b.m AS SELECT g AS cluster, ARRAY[g, g]::float8[] AS centroid, 'a text'::text AS size, 1::float8 AS inertia, 1::float8 AS radius FROM generate_series(0, 1) g;
SET cd.act = 'ALTER SCHEMA cd_a RENAME TO cd_c; ALTER SCHEMA cd_b RENAME TO cd_a';
SELECT kmeans_from_table('cd_a.m', '{x,y}');
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
DROP SCHEMA cd, cd_now, cd_new, cd_a, cd_b CASCADE;
DROP ROLE cd_user, cd_none, cd_owner;
