-- Settings, and that no result depends on them.
LOAD 'gkmeans';

SELECT name, setting, unit, min_val, max_val, enumvals, context FROM pg_settings
WHERE name LIKE 'gkmeans.%' ORDER BY name COLLATE "C";
SET gkmeans.device = 'tpu';
SET gkmeans.feature_sum = 'none';
SET gkmeans.gpu_devices = '';
SET gkmeans.gpu_devices = '0,';
SET gkmeans.gpu_devices = '0;1';
SET gkmeans.gpu_devices = '0,16';
SET gkmeans.gpu_devices = '0, 1';
RESET gkmeans.gpu_devices;
SET gkmeans.mass_sum = 'none';
SET gkmeans.simd = 'sse9';
SET gkmeans.skip_points = 'sometimes';
SET gkmeans.strategy = 'none';
SET gkmeans.threads = -1;
-- PostgreSQL's words for these are not the same in all versions
\set VERBOSITY sqlstate
SET gkmeans.chunk_size = '63kB';
SET gkmeans.memory_limit = -2;
-- an unknown one is refused since PostgreSQL 15
DO $$ BEGIN
    SET gkmeans.nosuch = 1;
    IF current_setting('server_version_num')::int >= 150000 THEN RAISE 'there is a setting gkmeans.nosuch'; END IF;
EXCEPTION WHEN invalid_name THEN
END $$;
\set VERBOSITY default

-- 20,000 points, three features, one of them not exact in float32, some weights, some NULLs
CREATE TABLE pts AS
SELECT (i * 7919 % 1000) * 0.37::float8 AS a, (i * 104729 % 997)::real AS b, i * 31 % 101 AS c,
       CASE WHEN i % 500 = 0 THEN NULL ELSE 1 + i % 3 END AS w
FROM generate_series(1, 20000) i;

CREATE FUNCTION fingerprint(m kmeans_model) RETURNS text LANGUAGE sql AS
$$ SELECT md5((m::text::jsonb - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms,device,strategy}'::text[])::text) $$;
CREATE FUNCTION fits(OUT job text, OUT fingerprint text) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT 'plus' , fingerprint(kmeans_fit('pts', '{a,b,c}', 7))
    UNION ALL SELECT 'parallel', fingerprint(kmeans_fit('pts', '{a,b,c}', 7, init => 'k-means||', seed => 3))
    UNION ALL SELECT 'hierarchical', fingerprint(kmeans_fit('pts', '{a,b,c}', 300, init => 'hierarchical', max_iter => 2))
    UNION ALL SELECT 'random', fingerprint(kmeans_fit('pts', '{a,b,c}', 7, init => 'random', n_init => 2))
    UNION ALL SELECT 'weights', fingerprint(kmeans_fit('pts', '{a,b,c}', 7, weight_column => 'w'))
    UNION ALL SELECT 'standardize', fingerprint(kmeans_fit('pts', '{a,b,c}', 7, standardize => true))
    UNION ALL SELECT 'cosine', fingerprint(kmeans_fit('pts', '{a,b,c}', 7, distance => 'cosine'))
    UNION ALL SELECT 'labels', md5(string_agg(l.ctid || ' ' || cluster || ' ' || distance, ',' ORDER BY l.ctid))
              FROM kmeans_labels('pts', '{a,b,c}', 7) l
$$;
SET client_min_messages = warning;
CREATE TABLE expected AS SELECT * FROM fits();
SELECT count(*), count(DISTINCT fingerprint) FROM expected;

SET gkmeans.threads = 1;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SET gkmeans.threads = 7;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.threads;
SET gkmeans.chunk_size = '64kB';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SET gkmeans.chunk_size = '1GB';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.chunk_size;
SET gkmeans.simd = 'scalar';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SELECT device LIKE 'cpu (scalar,%' AS scalar FROM kmeans_info((SELECT kmeans_fit('pts', '{a,b,c}', 7)));
RESET gkmeans.simd;
-- with hardly any memory points are streamed from a temporary file
SET gkmeans.memory_limit = '100kB';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SET gkmeans.memory_limit = 0;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
-- -1: maintenance_work_mem
SET gkmeans.memory_limit = -1;
SET maintenance_work_mem = '1MB';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET maintenance_work_mem;
-- memory that the last call left, and new memory
\set VERBOSITY sqlstate
SET gkmeans.keep_memory = -2;
SET gkmeans.keep_memory = '-1MB';
\set VERBOSITY default
SET gkmeans.keep_memory = 0;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.keep_memory;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
-- the limit on temporary files ends the call, and leaves nothing behind
SET gkmeans.memory_limit = '64kB';
SET temp_file_limit = '64kB';
\set VERBOSITY sqlstate
SELECT kmeans_fit('pts', '{a,b,c}', 7);
SELECT count(*) FROM pg_ls_tmpdir();
RESET gkmeans.memory_limit;
-- also when it is reached by the labels, in the middle of the engine's work
SET work_mem = '64kB';
SELECT count(*) FROM kmeans_labels('pts', '{a,b,c}', 7);
SELECT count(*) FROM kmeans('pts', '{a,b,c}', 7, label_column => 'label');
\set VERBOSITY default
SELECT count(*) FROM pg_ls_tmpdir();
SELECT count(*) FROM pg_attribute WHERE attrelid = 'pts'::regclass AND attname = 'label';
RESET work_mem;
RESET temp_file_limit;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SET gkmeans.skip_points = on;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
SET gkmeans.skip_points = off;
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.skip_points;
SET gkmeans.strategy = 'multi_pass';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.strategy;
SET gkmeans.feature_sum = 'cluster_merge';
SET gkmeans.mass_sum = 'partitioned_local';
SELECT * FROM fits() EXCEPT SELECT * FROM expected;
RESET gkmeans.feature_sum;
RESET gkmeans.mass_sum;

-- what this CPU does not have is an error that says so: no CPU has all of them
CREATE FUNCTION try_simd(level text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('gkmeans.simd', level, true);
    PERFORM kmeans_fit('pts', '{a,b,c}', 7);
    RETURN 'works';
EXCEPTION WHEN feature_not_supported THEN
    RETURN CASE WHEN SQLERRM = format('gkmeans.simd = "%s" is not usable on this machine', level) THEN 'not here' ELSE SQLERRM END;
END $$;
SELECT DISTINCT try_simd(level) FROM unnest('{auto,scalar}'::text[]) level;
SELECT DISTINCT try_simd(level) FROM unnest('{avx512,avx512_amx,avx512_vnni,avx512f,avx2,neon}'::text[]) level
EXCEPT SELECT 'works';

-- devices
SET gkmeans.device = 'cpu';
SELECT device LIKE 'cpu%' AS cpu FROM kmeans_info((SELECT kmeans_fit('pts', '{a,b,c}', 7)));
RESET gkmeans.device;
SELECT backend, usable, reason IS NULL AS no_reason, memory > 0 AS memory FROM gkmeans_devices() WHERE backend = 'cpu';
SELECT bool_and(usable = (reason IS NULL)) AS reasons, count(DISTINCT backend) AS backends FROM gkmeans_devices();

-- one version everywhere
SELECT gkmeans_version() = extversion AS same, gkmeans_version() FROM pg_extension WHERE extname = 'gkmeans';
-- every function has a comment
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'gkmeans'
WHERE obj_description(p.oid, 'pg_proc') IS NULL;

DROP TABLE pts, expected;
DROP FUNCTION fits, fingerprint, try_simd;
