-- kmeans_query(), kmeans_query_fit(): a SELECT instead of a relation; and which types are features.

SET client_min_messages = warning;
CREATE TABLE visitors AS
SELECT i AS id, (i * 7919) % 101 AS visits, ((i * 104729) % 97)::numeric / 4 AS spent, i % 3 AS w,
    i % 2 = 0 AS vip, timestamptz '2026-01-01 00:00+00' + i * interval '1 hour' AS since,
    timestamp '2026-01-01 00:00' + i * interval '1 hour' AS local, date '2026-01-01' + i AS day, time '00:00' + i * interval '1 minute' AS at,
    i * interval '1 minute 30 seconds' AS age, ((i * 13) % 29)::numeric::money AS paid, point(i % 10, i % 7) AS loc,
    format('%s', i) AS digits, ARRAY[i % 5, i % 11]::real[] AS a
FROM generate_series(1, 300) i;
CREATE VIEW logs AS SELECT ln(visits + 1) AS ln, spent FROM visitors;

-- what comes out of a model, but for its times and names
CREATE FUNCTION told(m kmeans_model) RETURNS text LANGUAGE sql AS $$
    SELECT md5((to_jsonb(i) - '{columns,device,load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[])::text || (SELECT string_agg(c::text, '' ORDER BY c.cluster) FROM kmeans_centroids(m) c))
    FROM kmeans_info(m) i $$;

-- a query is what a view of it is, to the last bit
SELECT told(kmeans_query_fit('SELECT ln(visits + 1), spent FROM visitors', 5)) = told(kmeans_fit('logs', '{ln,spent}', 5)) AS as_view,
    told(kmeans_query_fit('SELECT visits, spent FROM visitors', 5)) = told(kmeans_fit('visitors', '{visits,spent}', 5)) AS as_table,
    told(kmeans_query_fit('SELECT a FROM visitors', 5)) = told(kmeans_fit('visitors', '{a}', 5)) AS as_array,
    told(kmeans_query_fit('SELECT visits, spent, w FROM visitors', 5, weight_column => 'w')) = told(kmeans_fit('visitors', '{visits,spent}', 5, weight_column => 'w')) AS as_weighted,
    told(kmeans_query_fit('SELECT w, visits AS "1", spent AS "1" FROM visitors', 5, 'w', standardize => true)) = told(kmeans_fit('visitors', '{visits,spent}', 5, 'w', standardize => true)) AS weight_first;
SELECT (SELECT array_agg(q ORDER BY cluster) FROM kmeans_query('SELECT visits, spent FROM visitors', 5, init => 'random', seed => 3, n_init => 2) q) =
    (SELECT array_agg(t ORDER BY cluster) FROM kmeans('visitors', '{visits,spent}', 5, init => 'random', seed => 3, n_init => 2) t) AS as_kmeans;
SET gkmeans.strategy = scan;
SELECT told(kmeans_query_fit('SELECT visits, spent FROM visitors', 5)) = told(kmeans_fit('visitors', '{visits,spent}', 5)) AS rows_read_again;
RESET gkmeans.strategy;
-- a plain SELECT is read from the pages
SET gkmeans.reader = heap;
SELECT size FROM kmeans_query('SELECT visits FROM visitors', 2);
RESET gkmeans.reader;

-- any SELECT: comments, an end, WITH, VALUES, TABLE, UNION, ORDER BY, LIMIT, joins, aggregates
SELECT size, centroid FROM kmeans_query('VALUES (1), (2), (9), (10)', 2);
SELECT size FROM kmeans_query($$ WITH v AS (SELECT visits FROM visitors ORDER BY id LIMIT 10) SELECT visits FROM v UNION ALL SELECT 500; -- the end$$, 2);
SELECT sum(size) FROM kmeans_query('SELECT w, avg(spent), count(*) FROM visitors GROUP BY w', 2);
SELECT sum(size) FROM kmeans_query('SELECT a.visits - b.visits FROM visitors a JOIN visitors b ON a.id = b.id + 1', 2);
CREATE TABLE numbers AS SELECT visits, spent FROM visitors;
SELECT sum(size) FROM kmeans_query('TABLE numbers', 2);
-- names of the columns are the model's; kmeans_labels() finds them in a table
SELECT columns FROM kmeans_info(kmeans_query_fit('SELECT ln(visits + 1), spent AS "Money" FROM visitors', 2));
SELECT count(*), count(DISTINCT cluster) FROM kmeans_labels('numbers', kmeans_query_fit('SELECT visits, spent FROM visitors WHERE vip', 3));
-- in a function, with what it knows
CREATE FUNCTION sizes(first int) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN RETURN QUERY SELECT size FROM kmeans_query(format('SELECT visits FROM visitors WHERE id >= %L', first), 2); END $$;
SELECT sum(sizes) FROM sizes(101);
RESET client_min_messages;
SELECT * FROM kmeans_query('SELECT visits FROM visitors WHERE false', 2);
SELECT kmeans_query_fit('SELECT NULL::int', 2) IS NULL;

-- types that mean a number: of a relation and of a query, as if cast
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT name, told(kmeans_query_fit(format('SELECT visits, %I FROM visitors', name), 4)) = told(kmeans_query_fit(format('SELECT visits, %s FROM visitors', number), 4)) AS query,
    told(kmeans_fit('visitors', ARRAY['visits', name], 4)) = told(kmeans_query_fit(format('SELECT visits, %s FROM visitors', number), 4)) AS relation
FROM (VALUES ('vip', 'CASE WHEN vip THEN 1 ELSE 0 END'), ('since', 'extract(epoch FROM since)::float8'), ('local', 'extract(epoch FROM local)::float8'),
    ('day', '(day - date ''1970-01-01'') * 86400'), ('at', 'extract(epoch FROM at)::float8'), ('age', 'id * 90'), ('paid', '(id * 13) % 29')) v (name, number);
SELECT told(kmeans_fit('visitors', '{loc}', 4)) = told(kmeans_query_fit('SELECT id % 10, id % 7 FROM visitors', 4)) AS point,
    told(kmeans_query_fit('SELECT loc FROM visitors', 4)) = told(kmeans_query_fit('SELECT ARRAY[id % 10, id % 7] FROM visitors', 4)) AS point_of_query;
-- labels of a table with such columns, and a weight
SELECT count(*), count(DISTINCT cluster) FROM kmeans_labels('visitors', kmeans_fit('visitors', '{vip,age}', 3));
SELECT sum(size) FROM kmeans('visitors', '{loc}', 3, weight_column => 'vip');
-- what has no number
SELECT size FROM kmeans_query('SELECT timestamp ''infinity'' UNION ALL SELECT now()::timestamp', 1, nonfinite => 'skip');
SELECT size FROM kmeans_query('SELECT point(1, ''NaN'') UNION ALL SELECT point(1, 2) UNION ALL SELECT NULL', 1, nonfinite => 'skip');

-- PostGIS: a stand-in, whose points are those of PostgreSQL; a type is known by its extension
CREATE SCHEMA "Gis";
CREATE DOMAIN "Gis".coords AS point;
CREATE TYPE "Gis".geometry AS (x float8, y float8, z float8);
CREATE FUNCTION "Gis".st_x("Gis".geometry) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT $1.x';
CREATE FUNCTION "Gis".st_y("Gis".geometry) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT $1.y';
CREATE FUNCTION "Gis".st_z("Gis".geometry) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT $1.z';
CREATE TYPE "Gis".geography AS (g "Gis".geometry);
CREATE FUNCTION "Gis".geometry("Gis".geography) RETURNS "Gis".geometry LANGUAGE sql IMMUTABLE AS 'SELECT $1.g';
CREATE CAST ("Gis".geography AS "Gis".geometry) WITH FUNCTION "Gis".geometry("Gis".geography);
CREATE TABLE places AS SELECT ROW(i % 10, i % 7, NULL)::"Gis".geometry AS g, ROW(i % 10, i % 7, i % 3)::"Gis".geometry AS g3,
    ROW(ROW(i % 10, i % 7, NULL)::"Gis".geometry)::"Gis".geography AS geo, ROW(1, 2, nullif(i, 1))::"Gis".geometry AS both
FROM generate_series(1, 300) i;
\set VERBOSITY terse
SELECT size FROM kmeans('places', '{g}', 2);
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
    SELECT oid, 'postgis', nspowner, oid, true, '3' FROM pg_namespace WHERE nspname = 'Gis';
INSERT INTO pg_depend SELECT 'pg_type'::regclass, t, 0, 'pg_extension'::regclass, '"Gis"'::regnamespace, 0, 'e' FROM unnest('{"\"Gis\".geometry","\"Gis\".geography"}'::regtype[]) t;
RESET allow_system_table_mods;
SELECT told(kmeans_fit('places', '{g}', 4)) = told(kmeans_fit('visitors', '{loc}', 4)) AS geometry,
    told(kmeans_fit('places', '{geo}', 4)) = told(kmeans_fit('visitors', '{loc}', 4)) AS geography,
    told(kmeans_query_fit('SELECT g3 FROM places', 4)) = told(kmeans_query_fit('SELECT id % 10, id % 7, id % 3 FROM visitors', 4)) AS three;
SELECT size FROM kmeans('places', '{both}', 2);
SET allow_system_table_mods = on;
DELETE FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND refobjid = '"Gis"'::regnamespace;
DELETE FROM pg_extension WHERE extname = 'postgis';
RESET allow_system_table_mods;

-- what is refused, with the statement that works
\set VERBOSITY default
SELECT size FROM kmeans('visitors', '{visits,digits}', 2);
SELECT size FROM kmeans_query('SELECT visits, digits FROM visitors', 2);
SELECT size FROM kmeans('visitors', '{loc,visits}', 2);
SELECT kmeans_predict(kmeans_fit('visitors', '{visits,vip}', 2), 1, true);
SELECT kmeans_predict(kmeans_fit('visitors', '{visits,since}', 2), 1, now());
SELECT kmeans_predict(kmeans_fit('visitors', '{visits,spent}', 2), 1, 'x'::text);
SELECT size FROM kmeans_query('', 2);
SELECT size FROM kmeans_query(' -- nothing', 2);
SELECT size FROM kmeans_query('SELECT 1; SELECT 2', 2);
SELECT size FROM kmeans_query('UPDATE visitors SET visits = 1 RETURNING visits', 2);
SELECT size FROM kmeans_query('WITH d AS (SELECT 1) DELETE FROM visitors', 2);
SELECT size FROM kmeans_query('DROP TABLE visitors', 2);
SELECT size FROM kmeans_query('visitors', 2);
SELECT size FROM kmeans_query('SELECT visits FROM vistors', 2);
SELECT size FROM kmeans_query('SELECT vists FROM visitors', 2);
SELECT size FROM kmeans_query('WITH d AS (DELETE FROM visitors RETURNING visits) SELECT visits FROM d', 2);
SELECT size FROM kmeans_query('SELECT visits INTO copied FROM visitors', 2);
SELECT size FROM kmeans_query('SELECT visits FROM visitors FOR UPDATE', 2);
SELECT size FROM kmeans_query('SELECT FROM visitors', 2);
SELECT size FROM kmeans_query('SELECT w FROM visitors', 2, weight_column => 'w');
SELECT size FROM kmeans_query('SELECT visits FROM visitors', 2, weight_column => 'w');
SELECT size FROM kmeans_query('SELECT visits, w, id AS w FROM visitors', 2, weight_column => 'w');
SELECT size FROM kmeans_query('SELECT visits, digits FROM visitors', 2, weight_column => 'digits');
SELECT size FROM kmeans_query('SELECT visits, a FROM visitors', 2);
SELECT size FROM kmeans_query('SELECT $1 FROM visitors', 2);
SELECT size FROM kmeans_query('SELECT 1 / (visits - visits) FROM visitors', 2);
SELECT size FROM kmeans_query('SELECT CASE WHEN id = 7 THEN ''NaN'' ELSE spent END FROM visitors', 2);
SELECT size FROM kmeans_query((SELECT 'SELECT ' || string_agg('1', ',') FROM generate_series(1, 1601)), 2);
\set VERBOSITY terse
SELECT size FROM kmeans_query(NULL, 2);
SELECT size FROM kmeans_query('SELECT 1', 0);
SELECT kmeans_query_fit('SELECT 1', NULL);

-- what a query calls writes nothing either; afterwards the transaction writes as before
CREATE SEQUENCE counter;
CREATE FUNCTION wipe() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM visitors; RETURN 1; END $$;
CREATE FUNCTION wipe_anyway() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET LOCAL transaction_read_only = off; DELETE FROM visitors; RETURN 1; END $$;
SELECT size FROM kmeans_query('SELECT wipe()', 1);
SELECT size FROM kmeans_query('SELECT wipe_anyway()', 1);
SELECT size FROM kmeans_query('SELECT nextval(''counter'')', 1);
-- nor does what runs while it is parsed, a domain's check, and only the first time
CREATE FUNCTION wipe_once(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
    IF set_config('wipe.once', (coalesce(nullif(current_setting('wipe.once', true), ''), '0')::int + 1)::text, false) = '1' THEN DELETE FROM visitors; END IF;
    RETURN true;
END $$;
CREATE DOMAIN wiping AS int CHECK (wipe_once(VALUE));
SELECT size FROM kmeans_query('SELECT id FROM visitors WHERE ''{1}''::wiping[] IS NOT NULL', 1);
SELECT sum(size) FROM kmeans_query('SELECT id FROM visitors', 1);
BEGIN;
SELECT size FROM kmeans_query('SELECT 1', 1);
SHOW transaction_read_only;
SAVEPOINT s;
SELECT size FROM kmeans_query('SELECT wipe()', 1);
ROLLBACK TO s;
SHOW transaction_read_only;
INSERT INTO numbers VALUES (1, 1);
COMMIT;

DROP DOMAIN wiping;
DROP TABLE visitors, numbers, places CASCADE;
DROP SCHEMA "Gis" CASCADE;
DROP SEQUENCE counter;
DROP FUNCTION told, sizes, wipe, wipe_anyway, wipe_once;
