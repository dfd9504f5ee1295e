-- Vectors of pgvector are read as they are stored: the same bits as of real[], by every road.
-- Here its types are stand-ins of the same layout, whose text is their bytes; see vectors_pgvector.sql.

CREATE SCHEMA vectors;
SET search_path = vectors, public;
SET client_min_messages = error;
SET extra_float_digits = 1;
CREATE TYPE vector;
CREATE FUNCTION vector_in(cstring) RETURNS vector LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
CREATE FUNCTION vector_out(vector) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, STORAGE = external);
CREATE TYPE halfvec;
CREATE FUNCTION halfvec_in(cstring) RETURNS halfvec LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
CREATE FUNCTION halfvec_out(halfvec) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
CREATE TYPE halfvec (INPUT = halfvec_in, OUTPUT = halfvec_out, STORAGE = external);
CREATE TYPE sparsevec;
CREATE FUNCTION sparsevec_in(cstring) RETURNS sparsevec LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
CREATE FUNCTION sparsevec_out(sparsevec) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
CREATE TYPE sparsevec (INPUT = sparsevec_in, OUTPUT = sparsevec_out, STORAGE = external);
CREATE DOMAIN embedding AS vector;

-- numbers as a little-endian machine has them
CREATE FUNCTION le(big bytea) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT string_agg(encode(substr(big, i, 1), 'hex'), '' ORDER BY i DESC) FROM generate_series(1, length(big)) i $$;
-- the bits of a half, of numbers that it has exactly; of 0, infinity and NaN, too
CREATE FUNCTION half(x real) RETURNS int2 LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN bits < 0 THEN -32768 ELSE 0 END +
            CASE WHEN x IN ('Infinity', '-Infinity', 'NaN') THEN 31744 + (x = 'NaN')::int
                 WHEN abs(x) < 2.0 ^ -14 THEN (abs(x) * 2.0 ^ 24)::int
                 ELSE ((bits & 2147483647) >> 13) - (112 << 10) END)::int2
    FROM (SELECT ('x' || encode(float4send(x), 'hex'))::bit(32)::int) v (bits)
$$;
CREATE FUNCTION vec(a real[]) RETURNS vector LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT format('\x%s0000%s', le(int2send(cardinality(a)::int2)), (SELECT string_agg(le(float4send(x)), '' ORDER BY i) FROM unnest(a) WITH ORDINALITY u (x, i)))::vector $$;
CREATE FUNCTION halves(a real[]) RETURNS halfvec LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT format('\x%s0000%s', le(int2send(cardinality(a)::int2)), (SELECT string_agg(le(int2send(half(x))), '' ORDER BY i) FROM unnest(a) WITH ORDINALITY u (x, i)))::halfvec $$;
CREATE FUNCTION sparse(a real[]) RETURNS sparsevec LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT format('\x%s%s00000000%s%s', le(int4send(cardinality(a))), le(int4send(count(*)::int)), string_agg(le(int4send(i::int - 1)), '' ORDER BY i), string_agg(le(float4send(x)), '' ORDER BY i))::sparsevec
       FROM unnest(a) WITH ORDINALITY u (x, i) WHERE x <> 0 $$;

-- What comes out of one road: the model but for its times and its columns' names, and all labels; or the error.
CREATE FUNCTION road(reader text, workers int, threads int, rel regclass, cols text[], weight text, dist text, bad text, std bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE model kmeans_model; result text; detail text;
BEGIN
    PERFORM set_config('gkmeans.reader', reader, true), set_config('gkmeans.workers', workers::text, true), set_config('gkmeans.threads', threads::text, true);
    model := kmeans_fit(rel, cols, 3, weight_column => weight, distance => dist, nonfinite => bad, standardize => std, device => 'cpu');
    SELECT format('%s used, %s skipped|%s', i.rows_used, i.rows_skipped, to_jsonb(i) - '{columns,device,load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[])
    INTO result FROM kmeans_info(model) i;
    result := result || (SELECT string_agg(c::text, ' ' ORDER BY c.cluster) FROM kmeans_centroids(model) c);
    IF (SELECT relkind IN ('r', 'm', 'p') FROM pg_class WHERE oid = rel) THEN
        result := result || (SELECT string_agg(format('%s %s %s', l.ctid, l.cluster, l.distance), ' ')
            FROM kmeans_labels(rel, cols, 3, weight_column => weight, distance => dist, nonfinite => bad, standardize => std, device => 'cpu') l);
    END IF;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws('; ', SQLSTATE, SQLERRM, nullif(detail, ''));
END $$;
-- The same by all roads as by the executor, and as of other columns.
CREATE FUNCTION roads(rel regclass, cols text[], expected text DEFAULT NULL, weight text DEFAULT NULL, dist text DEFAULT 'euclidean', bad text DEFAULT 'skip', std bool DEFAULT false)
RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN expected IS NOT NULL AND one IS DISTINCT FROM road('executor', 0, 1, rel, string_to_array(expected, ' '), weight, dist, bad, std)
                THEN 'NOT AS ' || expected || ': ' || left(one, 150)
           WHEN heap LIKE '%can only be read by the executor%' THEN 'executor only: ' || split_part(one, '|', 1)
           WHEN one IS DISTINCT FROM heap THEN concat('HEAP: ', left(one, 150), ' / ', left(heap, 150))
           WHEN one IS DISTINCT FROM threads THEN concat('THREADS: ', left(one, 150), ' / ', left(threads, 150))
           WHEN one IS DISTINCT FROM workers THEN concat('WORKERS: ', left(one, 150), ' / ', left(workers, 150))
           ELSE 'same: ' || split_part(one, '|', 1) END
    FROM road('executor', 0, 1, rel, cols, weight, dist, bad, std) one, road('heap', 0, 1, rel, cols, weight, dist, bad, std) heap,
         road('heap', 0, 3, rel, cols, weight, dist, bad, std) threads, road('heap', 3, 1, rel, cols, weight, dist, bad, std) workers
$$;

-- a type is known by its extension, not by its name: now these are nobody's
CREATE TABLE few AS SELECT vec(r) AS v, halves(r) AS h, sparse(r) AS s, r FROM (VALUES ('{1,2}'::real[]), ('{5,0}')) t (r);
SELECT * FROM kmeans('few', '{v}', 1);
SELECT * FROM kmeans('few', '{h}', 1);
SELECT * FROM kmeans('few', '{s}', 1);
CREATE FUNCTION reals(vector) RETURNS real[] LANGUAGE sql IMMUTABLE AS $$ SELECT '{3,4}'::real[] $$;
CREATE CAST (vector AS real[]) WITH FUNCTION reals(vector);
SELECT centroid FROM kmeans('few', '{v}', 1);
SELECT roads('few', '{v}');
-- now they are pgvector's
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
    SELECT oid, 'vector', nspowner, oid, true, '0.8.0' FROM pg_namespace WHERE nspname = 'vectors';
INSERT INTO pg_depend SELECT 'pg_type'::regclass, t, 0, 'pg_extension'::regclass, 'vectors'::regnamespace, 0, 'e' FROM unnest('{vector,halfvec,sparsevec}'::regtype[]) t;
RESET allow_system_table_mods;
SELECT centroid FROM kmeans('few', '{v}', 1);
SELECT centroid FROM kmeans('few', '{h}', 1);
SELECT centroid FROM kmeans('few', '{s}', 1);
SELECT * FROM kmeans('few', '{v,h}', 1);
SELECT * FROM kmeans('few', '{r}', 1, weight_column => 'v');

-- every half there is
CREATE TABLE all_halves AS
SELECT format('\x01000000%s', le(int2send(i::int2)))::halfvec AS h,
       CASE WHEN i & 31744 <> 31744 THEN ARRAY[((CASE WHEN i < 0 THEN -1 ELSE 1 END) *
            CASE WHEN i & 31744 = 0 THEN (i & 1023) * 2.0 ^ -24 ELSE (1024 + (i & 1023)) * 2.0 ^ ((i & 31744) / 1024 - 25) END)::real] END AS r
FROM generate_series(-32768, 32767) i;
SELECT roads('all_halves', '{h}'), road('heap', 0, 1, 'all_halves', '{h}', NULL, 'euclidean', 'skip', false) LIKE '%"inertia"%';
DELETE FROM all_halves WHERE r IS NULL;
SELECT roads('all_halves', '{h}', 'r');

-- inline, with short and long headers; NULL; more than a page of them
CREATE TABLE pts (id int, w int, f1 real, f2 real, f3 real, f4 real, f5 real, r real[], v vector, h halfvec, s sparsevec, b bit(5), e embedding, label int);
INSERT INTO pts (id, w, r) SELECT i, i % 4, ARRAY[i % 3 - 1, (i % 7) * 0.5, CASE WHEN i % 5 = 0 THEN i % 64 ELSE 0 END, 0.25 * (i % 11), i % 2] FROM generate_series(1, 2000) i;
UPDATE pts SET r = NULL WHERE id % 97 = 0;
UPDATE pts SET f1 = r[1], f2 = r[2], f3 = r[3], f4 = r[4], f5 = r[5], v = vec(r), h = halves(r), s = sparse(r), e = vec(r), b = (id % 32)::bit(5);
VACUUM pts;
SELECT col, roads('pts', ARRAY[col], 'r'), roads('pts', ARRAY[col], 'f1 f2 f3 f4 f5') FROM unnest('{r,v,h,s,e}'::text[]) col;
SELECT col, roads('pts', ARRAY[col], 'r', weight => 'w'), roads('pts', ARRAY[col], 'r', dist => 'cosine'), roads('pts', ARRAY[col], 'r', std => true) FROM unnest('{v,h,s}'::text[]) col;
ALTER TABLE pts ADD bits real[];
UPDATE pts SET bits = string_to_array(b::text, NULL)::real[];
SELECT roads('pts', '{b}', 'bits'), roads('pts', '{b}', 'bits', weight => 'w', dist => 'cosine');
CREATE VIEW seen AS SELECT v, r FROM pts WHERE id % 2 = 0;
SELECT roads('seen', '{v}', 'r');
-- in their order before and after: an UPDATE may fill other pages first
CREATE INDEX by_id ON pts (id);
CLUSTER pts USING by_id;
SELECT sum(size) FROM kmeans('pts', '{v}', 3, 'label');
CLUSTER pts;
SELECT count(*) FROM kmeans_labels('pts', '{r}', 3) l JOIN pts p ON p.ctid = l.ctid AND p.label IS DISTINCT FROM l.cluster;
SET gkmeans.strategy = scan;
SELECT roads('pts', '{v}', 'r');
RESET gkmeans.strategy;

-- by functions: as a point
CREATE FUNCTION same_point(col text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE got text[]; expected text[]; c text;
BEGIN
    FOREACH c IN ARRAY ARRAY[col, 'r'] LOOP
        expected := got;
        EXECUTE format($q$ WITH m AS (SELECT kmeans_fit('pts', '{r}', 3) AS model) SELECT ARRAY[
            (SELECT string_agg(format('%%s %%s %%s', kmeans_predict(model, %1$I), kmeans_distance(model, %1$I), kmeans_transform(model, %1$I)), ' ' ORDER BY id) FROM pts),
            (SELECT array_agg(c)::text FROM (SELECT kmeans_step(model, %1$I) AS s FROM pts) s, kmeans_centroids(s) c), (SELECT feature_sum(%1$I)::text FROM pts),
            (SELECT array_agg(c)::text FROM kmeans_centroids((SELECT kmeans_agg(%1$I, 3) FROM pts)) c),
            (SELECT string_agg(c::text, ' ' ORDER BY id) FROM (SELECT id, kmeans(%1$I, 3) OVER (PARTITION BY w) AS c FROM pts) o),
            (SELECT string_agg(g::text, ' ' ORDER BY grp::text, cluster) FROM kmeans_grouped('pts', '{w}', '{%1$s}', 2) g)] FROM m $q$, c) INTO got;
    END LOOP;
    RETURN (SELECT array_agg(got[i] = expected[i]) FROM generate_subscripts(got, 1) i);
END $$;
SELECT col, same_point(col) FROM unnest('{v,h,s,e}'::text[]) col;

-- out of line: in the order of the rows and in others, and in every form that PostgreSQL has for it
CREATE TABLE far (id int, r real[], v vector, h halfvec, s sparsevec) WITH (autovacuum_enabled = off, toast_tuple_target = 128);
CREATE TABLE waves AS SELECT i AS id, (SELECT array_agg(((i * j) % 101 - 50) * 0.25 ORDER BY j) FROM generate_series(1, 600) j)::real[] AS r FROM generate_series(1, 80) i;
ALTER TABLE far ALTER r SET STORAGE external;
INSERT INTO far SELECT id, r, vec(r), halves(r), sparse(r) FROM waves;
SELECT col, roads('far', ARRAY[col], 'r') FROM unnest('{r,v,h,s}'::text[]) col;
VACUUM far;
SELECT col, roads('far', ARRAY[col], 'r', dist => 'cosine'), roads('far', ARRAY[col], 'r', std => true) FROM unnest('{r,v,h,s}'::text[]) col;
-- rows and values in different orders
UPDATE far SET id = -id WHERE id % 3 = 0;
UPDATE far SET v = vec(r), s = NULL WHERE id % 7 = 0;
INSERT INTO far SELECT id, r, v, h, s FROM far WHERE id % 5 = 0 ORDER BY id DESC;
SELECT col, roads('far', ARRAY[col], CASE WHEN col <> 's' THEN 'r' END) FROM unnest('{r,v,h,s}'::text[]) col;
-- deleted rows, aborted transactions, rows of this transaction, and others in their places
BEGIN;
INSERT INTO far SELECT id, r, vec(r), halves(r) FROM waves WHERE id <= 20;
DELETE FROM far WHERE id % 4 = 0;
SAVEPOINT one;
INSERT INTO far SELECT id, r, vec(r), halves(r) FROM waves WHERE id > 60;
UPDATE far SET v = vec('{1,2}');
ROLLBACK TO one;
INSERT INTO far SELECT id, r, vec(r), halves(r) FROM waves WHERE id BETWEEN 15 AND 30;
SELECT col, roads('far', ARRAY[col], 'r') FROM unnest('{r,v,h}'::text[]) col;
ROLLBACK;
SELECT col, roads('far', ARRAY[col], 'r') FROM unnest('{r,v,h}'::text[]) col;
DELETE FROM far WHERE id % 2 = 0;
VACUUM far;
INSERT INTO far SELECT id, r, vec(r), halves(r) FROM waves WHERE id % 2 = 0;
SELECT col, roads('far', ARRAY[col], 'r') FROM unnest('{r,v,h}'::text[]) col;
-- another table's TOAST, after a rewrite; compressed there and in the row; not compressed in the row
VACUUM FULL far;
SELECT col, roads('far', ARRAY[col], 'r') FROM unnest('{r,v,h}'::text[]) col;
CREATE TABLE packed (r real[], v vector, h halfvec, s sparsevec);
ALTER TABLE packed ALTER r SET STORAGE extended, ALTER v SET STORAGE extended, ALTER h SET STORAGE extended;
INSERT INTO packed SELECT r, vec(r), halves(r), sparse(r) FROM (SELECT array_fill((i % 5)::real, ARRAY[600]) || array_fill((i % 3)::real, ARRAY[100]) FROM generate_series(1, 20) i) t (r);
INSERT INTO packed SELECT r, vec(r), halves(r), sparse(r) FROM (SELECT (SELECT array_agg((i * j) % 3 ORDER BY j) FROM generate_series(1, 700) j)::real[] FROM generate_series(1, 20) i) t (r);
SELECT min(pg_column_size(v)) < 1000 AS packed, max(pg_column_size(r)) < 2800 AS packed FROM packed;
SELECT col, roads('packed', ARRAY[col], 'r') FROM unnest('{r,v,h,s}'::text[]) col;
CREATE TABLE packed_far (LIKE packed);
ALTER TABLE packed_far ALTER v SET STORAGE extended;
ALTER TABLE packed_far SET (toast_tuple_target = 128);
INSERT INTO packed_far (r, v) SELECT r, vec(r) FROM (SELECT (SELECT array_agg(CASE WHEN j % 4 = 0 THEN sin(i * j) ELSE i % 3 END ORDER BY j) FROM generate_series(1, 1500) j)::real[] FROM generate_series(1, 20) i) t (r);
SELECT pg_relation_size(reltoastrelid) > 0 AS far, (SELECT max(pg_column_size(v)) < 5000 AS packed FROM packed_far) FROM pg_class WHERE oid = 'packed_far'::regclass;
SELECT col, roads('packed_far', ARRAY[col], 'r') FROM unnest('{r,v}'::text[]) col;
CREATE TABLE near (v vector, r real[]);
ALTER TABLE near ALTER v SET STORAGE plain;
INSERT INTO near SELECT vec(r), r FROM waves;
SELECT roads('near', '{v}', 'r');
-- more of them with a NULL on a page than there is room for
CREATE TABLE gaps (r real[]) WITH (toast_tuple_target = 128);
ALTER TABLE gaps ALTER r SET STORAGE external;
INSERT INTO gaps SELECT r FROM waves;
INSERT INTO gaps SELECT r[:599] || NULL::real FROM waves, generate_series(1, 5);
INSERT INTO gaps SELECT r FROM waves;
SELECT roads('gaps', '{r}');
-- partitions and temporary tables; more tables than one
CREATE TABLE part (id int, v vector, r real[]) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (40);
CREATE TABLE part_2 (r real[], gone int, id int, v vector);
ALTER TABLE part_2 DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES FROM (40) TO (1000);
INSERT INTO part SELECT id, vec(r), r FROM waves;
SELECT roads('part', '{v}', 'r');
CREATE TEMP TABLE mine AS SELECT * FROM part;
SELECT roads('mine', '{v}', 'r');

-- bad values: the same errors by all roads, with the row; the exception undoes the table
CREATE PROCEDURE try(col text, value text) LANGUAGE plpgsql AS $$
BEGIN
    CREATE TABLE bad AS SELECT id, vec(r) AS v, halves(r) AS h, sparse(r) AS s FROM (SELECT id, r[:6] FROM waves) t (id, r);
    EXECUTE format('INSERT INTO bad (id, %I) VALUES (200, %s), (201, %s)', col, value, value);
    RAISE EXCEPTION '% | %', roads('bad', ARRAY[col], bad => 'error'), road('heap', 0, 1, 'bad', ARRAY[col], NULL, 'cosine', 'error', false);
END $$;
\set VERBOSITY terse
CALL try('v', $$vec('{1,2,3}')$$);
CALL try('v', $$vec('{1,2,3,4,5,6,7}')$$);
CALL try('v', $$vec('{1,2,NaN,4,5,6}')$$);
CALL try('v', $$vec('{1,2,3,4,5,-Infinity}')$$);
CALL try('v', $$vec('{0,0,0,0,0,0}')$$);
CALL try('v', $$'\x'$$);
CALL try('v', $$'\x0600'$$);
CALL try('v', $$'\x06000000'$$);
CALL try('v', $$'\x00000000'$$);
CALL try('v', $$'\xffff0000'$$);
CALL try('v', $$overlay(vec('{1,2,3,4,5,6}')::text PLACING '01' FROM 7)::vector$$);
CALL try('v', $$overlay(vec('{1,2,3,4,5,6}')::text PLACING '07' FROM 3)::vector$$);
CALL try('v', $$(vec('{1,2,3,4,5,6}')::text || '00')::vector$$);
CALL try('h', $$halves('{1,2,NaN,4,5,6}')$$);
CALL try('h', $$halves('{1,2,3,4,5,Infinity}')$$);
CALL try('h', $$halves('{1,2}')$$);
CALL try('h', $$overlay(halves('{1,2,3,4,5,6}')::text PLACING '05' FROM 3)::halfvec$$);
CALL try('s', $$sparse('{0,1}')$$);
CALL try('s', $$sparse('{0,0,NaN,0,1,0}')$$);
CALL try('s', $$'\x0600000001000000'$$);
CALL try('s', $$'\x0600000001000000010000000000000000000000'$$);
CALL try('s', $$'\x0600000001000000000000000600000000000000'$$);
CALL try('s', $$'\x060000000100000000000000ffffffff00000000'$$);
CALL try('s', $$'\x06000000020000000000000002000000020000000000000000000000'$$);
CALL try('s', $$'\x06000000ffffff7f00000000'$$);
CALL try('s', $$'\xffffff7f0000000000000000'$$);
-- a vector out of line that is another's length, or not what it says; all zero, which has no direction
CREATE TABLE odd AS SELECT id, vec(r) AS v FROM waves;
INSERT INTO odd VALUES (200, vec(array_fill(1.0::real, ARRAY[601])));
SELECT roads('odd', '{v}', bad => 'error'), road('heap', 0, 1, 'odd', '{v}', NULL, 'euclidean', 'error', false);
UPDATE odd SET v = (v::text || '00')::vector WHERE id = 200;
SELECT roads('odd', '{v}', bad => 'error'), road('heap', 0, 1, 'odd', '{v}', NULL, 'euclidean', 'error', false);
UPDATE odd SET v = vec(array_fill(0::real, ARRAY[600])) WHERE id = 200;
SELECT roads('odd', '{v}'), roads('odd', '{v}', dist => 'cosine'), roads('odd', '{v}', dist => 'cosine', bad => 'error');
-- a first row says nothing: of 0 features, of too many
SELECT kmeans_agg(B'', 1);
SELECT kmeans_agg('\xffffff7f0000000000000000'::sparsevec, 1);
SELECT kmeans_predict(kmeans_fit('few', '{v}', 1), '\x0200'::vector), 1;
SELECT kmeans_predict(kmeans_fit('few', '{v}', 1), vec('{1,2,3}')), 1;
SELECT kmeans_predict(kmeans_fit('few', '{v}', 1), B'01'), 1;

SET allow_system_table_mods = on;
DELETE FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND refobjid = 'vectors'::regnamespace;
DELETE FROM pg_extension WHERE extname = 'vector';
RESET allow_system_table_mods;
SET client_min_messages = error;
DROP SCHEMA vectors CASCADE;
