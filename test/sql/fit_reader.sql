-- The two roads that rows take give the same bits, and the same errors.

CREATE SCHEMA roads;
SET search_path = roads, public;
SET client_min_messages = error;
SET extra_float_digits = 1;

-- Everything that comes out of one road: the model but for its times, and all labels.
-- Pages are read without workers and with some.
CREATE FUNCTION road(reader text, workers int, rel regclass, cols text[], weight text, dist text, bad text) RETURNS text
LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE model kmeans_model; result text; detail text;
BEGIN
    PERFORM set_config('gkmeans.reader', reader, true), set_config('gkmeans.workers', workers::text, true);
    model := kmeans_fit(rel, cols, 4, weight_column => weight, distance => dist, nonfinite => bad, device => 'cpu');
    SELECT format('%s used, %s skipped|%s', i.rows_used, i.rows_skipped,
                  to_jsonb(i) - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[])
    INTO result FROM kmeans_info(model) i;
    result := result || (SELECT string_agg(c::text, ' ' ORDER BY c.cluster) FROM kmeans_centroids(model) c);
    IF (SELECT relkind IN ('r', 'm', 'p') FROM pg_class WHERE oid = rel) THEN
        result := result || (SELECT string_agg(l::text, ' ') FROM kmeans_labels(rel, cols, 4, weight_column => weight,
            distance => dist, nonfinite => bad, device => 'cpu') l);
        IF weight IS NULL THEN
            result := result || (SELECT string_agg(l::text, ' ') FROM kmeans_labels(rel, model, nonfinite => bad) l);
        END IF;
    END IF;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws('; ', SQLERRM, nullif(detail, ''));
END $$;

CREATE FUNCTION roads(rel regclass, cols text[], weight text DEFAULT NULL, dist text DEFAULT 'euclidean', bad text DEFAULT 'skip')
RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN by_heap LIKE '%can only be read by the executor' THEN 'executor only: ' || split_part(by_executor, '|', 1)
           WHEN by_executor IS DISTINCT FROM by_heap THEN concat('DIFFERENT: ', left(by_executor, 150), ' / ', left(by_heap, 150))
           WHEN by_executor IS DISTINCT FROM by_workers THEN concat('WORKERS: ', left(by_executor, 150), ' / ', left(by_workers, 150))
           ELSE 'same: ' || split_part(by_heap, '|', 1) END
    FROM road('executor', 0, rel, cols, weight, dist, bad) by_executor,
         road('heap', 0, rel, cols, weight, dist, bad) by_heap,
         road('heap', 3, rel, cols, weight, dist, bad) by_workers
$$;

-- types and places; more rows than are staged at a time
CREATE TABLE kinds (i2 int2, f8 float8, i4 int4, c "char", f4 float4, i8 int8, w int4, n numeric, note text, after_text float8);
INSERT INTO kinds
SELECT i % 7, sin(i), i % 1000, 'x', cos(i), i::int8 * 1000003 % 99991, i % 4, i % 5 + 0.5, repeat('n', i % 9), i % 11
FROM generate_series(1, 30000) i;
SELECT roads('kinds', '{i2,f8,i4,f4,i8}');
SELECT roads('kinds', '{f4}'), roads('kinds', '{i8,i2}');
SELECT roads('kinds', '{f4,f4,i2,f8,f4}');
SELECT roads('kinds', '{f8,after_text}');
SELECT roads('kinds', '{f8,f4}', weight => 'w'), roads('kinds', '{f8}', weight => 'after_text');
SELECT roads('kinds', '{f8,f4}', dist => 'cosine');
SET gkmeans.chunk_size = '64kB';
SET gkmeans.memory_limit = '64kB';
SELECT roads('kinds', '{i2,f8,i4,f4,i8}');
RESET gkmeans.chunk_size;
RESET gkmeans.memory_limit;

-- numeric has no fixed size: short and long ones, out of line, compressed, among other columns, as a weight
SELECT roads('kinds', '{n}'), roads('kinds', '{f8,n,i2,n}'), roads('kinds', '{f8,n}', weight => 'n');
CREATE TABLE numbers (id int, n numeric, m numeric, w numeric, x float8);
ALTER TABLE numbers ALTER m SET STORAGE EXTERNAL;
INSERT INTO numbers
SELECT i, nullif(i % 7, 3) + 0.1, CASE WHEN i % 50 = 0 THEN (i || '.' || repeat('56', 100))::numeric
    WHEN i % 49 = 0 THEN (i || '.' || repeat('5678', 1500))::numeric ELSE i * 0.25 END, i % 3, i % 11
FROM generate_series(1, 3000) i;
SELECT count(*) > 0 AS out_of_line FROM numbers WHERE pg_column_size(m) > 2000;
SELECT roads('numbers', '{n,m,x}'), roads('numbers', '{m}', weight => 'w'), roads('numbers', '{x}', weight => 'w');
-- out of the range of float8: infinite, which is said of the row or leaves it out, or 0
INSERT INTO numbers VALUES (3001, 1, '1e-400', 1, 1), (3002, '-1e-400', 1, 1, 1), (3003, '1e-400', '1e-400', 1, 0), (3004, 1, 1, '1e-400', 1);
SELECT roads('numbers', '{n,m,x}', bad => 'error'), roads('numbers', '{m,n,x}', dist => 'cosine', bad => 'error');
SELECT roads('numbers', '{n,m}', weight => 'w', bad => 'error');
INSERT INTO numbers VALUES (3005, 1, '-1e400', 1, 1), (3006, '1e400', 1, 1, 1), (3007, 1, 'NaN', 1, 1);
SELECT roads('numbers', '{n,m,x}'), roads('numbers', '{n,m,x}', bad => 'error');
INSERT INTO numbers VALUES (3008, 1, 1, '1e400', 1);
SELECT roads('numbers', '{x}', weight => 'w');
SELECT count(*) FROM kmeans('numbers', '{n,m}', 3, nulls => 'partial', nonfinite => 'skip');
CREATE TABLE late AS SELECT id FROM numbers;
ALTER TABLE late ADD n numeric DEFAULT 1e400, ADD m numeric DEFAULT 5;
SELECT roads('late', '{id,m}'), roads('late', '{id,n}', bad => 'error');

-- what only the executor can do
CREATE TABLE number_lists AS SELECT ARRAY[n, m, x::numeric] AS p FROM numbers;
SELECT roads('number_lists', '{p}'), roads('number_lists', '{p}', bad => 'error');
CREATE VIEW simple AS SELECT f8, f4 FROM kinds;
CREATE VIEW computed AS SELECT f8 + 1 AS f8, f4 FROM kinds;
CREATE VIEW filtered AS SELECT f8, f4 FROM kinds WHERE i2 > 3;
CREATE VIEW sorted AS SELECT f8, f4 FROM kinds ORDER BY f8;
CREATE VIEW two AS SELECT f8, f4 FROM kinds UNION ALL SELECT f4, f8 FROM kinds;
CREATE VIEW twice AS SELECT f8, f4 FROM kinds UNION ALL SELECT f8, f4 FROM kinds;
SELECT rel, roads(rel, '{f8,f4}') FROM unnest('{simple,computed,filtered,sorted,two,twice}'::regclass[]) rel;
SET gkmeans.reader = heap;
SELECT * FROM kmeans('number_lists', '{p}', 2);
RESET gkmeans.reader;
SELECT count(*) FROM kmeans('number_lists', '{p}', 2, nonfinite => 'skip');

-- NULLs: early and late ones, in columns that are read and in others, in the first rows too
CREATE TABLE holes (a int, b float8, c float4, d int8, e int);
INSERT INTO holes SELECT NULL, i, NULL, i, i FROM generate_series(1, 3) i;
INSERT INTO holes
SELECT nullif(i % 5, 0), nullif(i % 7, 0), i % 13, nullif(i % 11, 0), nullif(i % 3, 0) FROM generate_series(1, 3000) i;
SELECT roads('holes', '{c}'), roads('holes', '{b,c}'), roads('holes', '{a,b,c,d,e}');
SELECT roads('holes', '{c,d}', weight => 'e'), roads('holes', '{a,e}', weight => 'b');
CREATE TABLE nothing (a int, b float8);
SELECT roads('nothing', '{a,b}');
INSERT INTO nothing VALUES (NULL, 1);
SELECT roads('nothing', '{a,b}');

-- values that are left out, or that are errors: the same rows, the same message
CREATE TABLE odd (id int, x float8, y float4, w float8);
INSERT INTO odd SELECT i, i % 17, i % 19, 1 FROM generate_series(1, 2000) i;
SELECT roads('odd', '{x,y}', dist => 'cosine'), roads('odd', '{x,y}', dist => 'cosine', bad => 'error');
UPDATE odd SET x = 'NaN' WHERE id = 700;
UPDATE odd SET y = '-Infinity' WHERE id IN (5, 1400);
SELECT roads('odd', '{x,y}');
SELECT roads('odd', '{x,y}', bad => 'error');
SELECT roads('odd', '{id,y}', bad => 'error');
UPDATE odd SET w = NULL WHERE id = 5;
UPDATE odd SET w = 0 WHERE id IN (700, 1400);
SELECT roads('odd', '{x,y}', weight => 'w', bad => 'error');
UPDATE odd SET w = -1 WHERE id = 900;
SELECT roads('odd', '{x,y}', weight => 'w');
UPDATE odd SET w = 'Infinity' WHERE id = 900;
SELECT roads('odd', '{x,y}', weight => 'w');

-- columns side by side are turned in blocks of rows: any number of rows on the last page, and a
-- value that is not finite anywhere on it or on the page before
CREATE TABLE side (a real, b real, c real, d real, e real, f float8, g float8, h float8, pad text);
CREATE FUNCTION one_bad(rows int, bad int, col int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE side;
    INSERT INTO side SELECT v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], repeat('x', 900)
    FROM (SELECT array_agg(CASE WHEN i = bad AND j = col THEN 'Infinity' ELSE sin(i * j) END ORDER BY j) v
          FROM generate_series(1, rows) i, generate_series(1, 8) j GROUP BY i ORDER BY i) r;
    RETURN roads('side', '{a,b,c,d,e,f,g,h}');
END $$;
SELECT rows, bad, one_bad(rows, bad, 1 + bad * 3 % 8)
FROM generate_series(17, 24) rows, LATERAL (VALUES (rows - 8), (rows)) v (bad);

-- values of one type on pages with few rows wait until there are enough to be turned: a value that is
-- not finite, a point that is zero, a weight that is 0 among them or at either end; and without any
CREATE TABLE few (id int, a real, b real, w real, h float8, i float8, r real[], pad text);
ALTER TABLE few ALTER r SET STORAGE plain;
CREATE FUNCTION one_odd(rows int, odd int) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE few;
    INSERT INTO few SELECT i, v * sin(i), v * cos(i), 1, v, i, ARRAY[v * sin(i), v * cos(i), 0, v, v * (i % 7)], repeat('x', 1500)
    FROM generate_series(1, rows) i, LATERAL (SELECT (i <> odd)::int) o (v);
    RETURN NEXT roads('few', '{a,b}', dist => 'cosine');
    RETURN NEXT roads('few', '{r}', dist => 'cosine');
    TRUNCATE few;
    INSERT INTO few SELECT i, sin(i), cos(i), (i <> odd)::int, sin(i), v, ARRAY[sin(i), cos(i), i % 5, v, i % 7], repeat('x', 1500)
    FROM generate_series(1, rows) i, LATERAL (SELECT CASE WHEN i = odd THEN 'NaN'::float8 ELSE i % 9 END) o (v);
    RETURN NEXT roads('few', '{a,b}', weight => 'w');
    RETURN NEXT roads('few', '{a,b,w}');
    RETURN NEXT roads('few', '{r}');
    RETURN NEXT roads('few', '{h,i}');
    UPDATE few SET r = NULL, h = NULL WHERE id = odd;
    RETURN NEXT roads('few', '{r}');
    RETURN NEXT roads('few', '{h,i}');
END $$;
SELECT rows, odd, count(*), array_agg(DISTINCT r) FROM (VALUES (15, 1), (16, 15), (17, 16), (33, 17), (47, 32), (48, 48), (64, 0)) v (rows, odd), one_odd(rows, odd) r GROUP BY rows, odd ORDER BY rows;

-- columns added and dropped
CREATE TABLE changed (gone int, x float4, y float8);
INSERT INTO changed SELECT i, i % 10, i % 9 FROM generate_series(1, 500) i;
ALTER TABLE changed ADD COLUMN z int DEFAULT 3, ADD COLUMN z2 float8, ADD COLUMN z3 float8 DEFAULT 2.5;
INSERT INTO changed SELECT i, i % 10, i % 9, i % 8, i, i FROM generate_series(1, 500) i;
SELECT roads('changed', '{x,y,z}'), roads('changed', '{x,z2}'), roads('changed', '{z3,z}', weight => 'z');
ALTER TABLE changed DROP COLUMN gone;
INSERT INTO changed SELECT i % 10, i % 9, i % 8, i, i FROM generate_series(1, 500) i;
ALTER TABLE changed DROP COLUMN z;
INSERT INTO changed SELECT i % 10, i % 9, i, i FROM generate_series(1, 500) i;
SELECT roads('changed', '{x,y}'), roads('changed', '{y,z2,z3}');
CREATE TABLE generated (a float8, b float8 GENERATED ALWAYS AS (a * 2) STORED);
INSERT INTO generated SELECT i % 10 FROM generate_series(1, 100) i;
SELECT roads('generated', '{a,b}');
CREATE DOMAIN positive AS float4 CHECK (VALUE > 0);
CREATE TABLE domains (a positive, b float8);
INSERT INTO domains SELECT i % 10 + 1, i % 7 FROM generate_series(1, 100) i;
SELECT roads('domains', '{a,b}');

-- arrays: short, toasted, compressed; NULL, with NULLs
CREATE TABLE arrays (id int, v float8[], big float4[], packed int[]);
ALTER TABLE arrays ALTER big SET STORAGE EXTERNAL;
INSERT INTO arrays
SELECT i, ARRAY[i % 5, i % 3, NULLIF(i % 7, 0)],
       (SELECT array_agg((i * j) % 101) FROM generate_series(1, 1000) j), array_fill(i % 6, ARRAY[3000])
FROM generate_series(1, 60) i;
INSERT INTO arrays (id) VALUES (0);
SELECT roads('arrays', '{v}'), roads('arrays', '{big}'), roads('arrays', '{packed}');
ALTER TABLE arrays ADD COLUMN w int;
UPDATE arrays SET w = id % 4;
SELECT roads('arrays', '{v}', weight => 'w'), roads('arrays', '{big}', weight => 'w', dist => 'cosine');
UPDATE arrays SET v = '{1,2}' WHERE id = 40;
SELECT roads('arrays', '{v}');
SELECT pg_relation_size(reltoastrelid) > 0 AS toasted FROM pg_class WHERE oid = 'arrays'::regclass;

-- dead rows, updates in place and elsewhere, aborted transactions and subtransactions
CREATE TABLE busy (id int PRIMARY KEY, x float8, y float4, label int) WITH (fillfactor = 50, autovacuum_enabled = off);
INSERT INTO busy SELECT i, i % 10, i % 13 FROM generate_series(1, 3000) i;
VACUUM busy;
UPDATE busy SET x = x + 0.5 WHERE id % 3 = 0;
DELETE FROM busy WHERE id % 7 = 0;
BEGIN;
UPDATE busy SET x = 1e6;
DELETE FROM busy WHERE id % 2 = 0;
INSERT INTO busy SELECT i, -1e6, 0 FROM generate_series(10001, 10100) i;
ROLLBACK;
SELECT roads('busy', '{x,y}');
BEGIN;
DELETE FROM busy WHERE id % 5 = 0;
INSERT INTO busy SELECT i, 50, 0 FROM generate_series(20001, 20100) i;
SAVEPOINT one;
UPDATE busy SET y = -1000 WHERE id % 2 = 0;
ROLLBACK TO one;
UPDATE busy SET y = y + 1 WHERE id % 11 = 0;
SELECT roads('busy', '{x,y}');
COMMIT;
SELECT roads('busy', '{x,y}');
-- a row that the very statement brings is not seen by it
WITH new AS (INSERT INTO busy VALUES (0, 1e9, 0) RETURNING id) SELECT roads('busy', '{x,y}') FROM new;
SELECT roads('busy', '{x,y}');
VACUUM busy;
SELECT roads('busy', '{x,y}');

-- more than one table of more than one page each, and pages that are all visible or not
CREATE TABLE wide (id int, f float4[], a int8, b float4, c float4, d float4, e int2, g float8, h float8, i int4);
INSERT INTO wide SELECT x, ARRAY[x % 3, x % 7, x], x % 10, x % 3, x % 5, x / 7.0, x % 8, x % 2, x / 3.0, x FROM generate_series(1, 20000) x;
VACUUM wide;
UPDATE wide SET d = d + 1 WHERE id BETWEEN 9000 AND 9010;
DELETE FROM wide WHERE id BETWEEN 15000 AND 15500;
SELECT roads('wide', '{a,b,c,d,e,g,h,i}'), roads('wide', '{f}'), roads('wide', '{b,c,d}');
CREATE VIEW many AS SELECT b, c FROM wide UNION ALL SELECT d, b FROM wide UNION ALL SELECT b, c FROM wide;
SELECT roads('many', '{b,c}');
UPDATE wide SET g = 'NaN' WHERE id IN (3, 12345, 19999);
SELECT roads('wide', '{a,g}'), roads('wide', '{a,g}', bad => 'error');

-- labels: what one road has written, the other one finds to be right
SET gkmeans.reader = heap;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
CREATE TABLE written AS SELECT ctid AS tid, label FROM busy;
SET gkmeans.reader = executor;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
SELECT count(*) FROM busy LEFT JOIN written ON busy.ctid = tid AND busy.label = written.label WHERE tid IS NULL;
UPDATE busy SET label = NULL WHERE id % 4 = 0;
UPDATE busy SET label = -5 WHERE id % 9 = 0;
SET gkmeans.reader = heap;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
SELECT count(label), count(*) FROM busy;
CREATE TEMP TABLE rewritten AS SELECT ctid AS tid FROM busy;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
SELECT count(*) FROM busy WHERE ctid NOT IN (SELECT tid FROM rewritten);
RESET gkmeans.reader;

-- other kinds of tables
CREATE UNLOGGED TABLE unlogged AS SELECT id, x, y FROM busy;
CREATE TEMP TABLE temporary AS SELECT id, x, y FROM busy;
CREATE MATERIALIZED VIEW matview AS SELECT id, x, y FROM busy;
CREATE TABLE parent (id int, x float8, y float4);
CREATE TABLE child (extra text) INHERITS (parent);
INSERT INTO parent SELECT id, x, y FROM busy WHERE id % 2 = 0;
INSERT INTO child SELECT id, x, y, 'more' FROM busy WHERE id % 2 = 1;
CREATE TABLE part (g int, id int, x float8, y float4) PARTITION BY LIST (g);
CREATE TABLE part_other (y float4, gone text, x float8, id int, g int);
ALTER TABLE part_other DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_other FOR VALUES IN (2);
CREATE TABLE part_rest PARTITION OF part DEFAULT;
CREATE TABLE part_more PARTITION OF part FOR VALUES IN (0) PARTITION BY RANGE (id);
CREATE TABLE part_high PARTITION OF part_more FOR VALUES FROM (1000) TO (MAXVALUE);
CREATE TABLE part_low PARTITION OF part_more FOR VALUES FROM (MINVALUE) TO (1000);
INSERT INTO part SELECT id % 4, id, x, y FROM busy;
SELECT rel, roads(rel, '{x,y}')
FROM unnest('{unlogged,temporary,matview,parent,child,part,part_more,part_other}'::regclass[]) rel;
SELECT roads('pg_class', '{relpages,reltuples,relnatts}') LIKE 'same: % used%' AS catalog;
CREATE TABLE alone (LIKE part) PARTITION BY LIST (g);
SELECT roads('alone', '{x,y}');
CREATE TABLE alone_1 PARTITION OF alone FOR VALUES IN (1, 2, 3);
INSERT INTO alone SELECT id % 3 + 1, id, x, y FROM busy;
SELECT roads('alone', '{x,y}');

-- the rows that passes read again come the same way
SET gkmeans.strategy = scan;
SELECT roads('wide', '{a,b,c,d}'), roads('part', '{x,y}');
SET gkmeans.workers = 2;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
RESET gkmeans.strategy;
UPDATE busy SET label = 77;
SELECT sum(size) FROM kmeans('busy', '{x,y}', 4, 'label', centroids => '{{0,0},{5,5},{9,9},{50,0}}');
SELECT count(*) FROM kmeans_labels('busy', '{x,y}', 4, centroids => '{{0,0},{5,5},{9,9},{50,0}}') l JOIN busy b ON b.ctid = l.ctid AND b.label = l.cluster;
RESET gkmeans.workers;

-- a serializable transaction leaves the marks that any sequential scan does
BEGIN ISOLATION LEVEL SERIALIZABLE;
SET LOCAL gkmeans.reader = heap;
SELECT sum(size) FROM kmeans('unlogged', '{x,y}', 2);
SELECT mode FROM pg_locks WHERE relation = 'unlogged'::regclass AND pid = pg_backend_pid() AND mode = 'SIReadLock';
ROLLBACK;
