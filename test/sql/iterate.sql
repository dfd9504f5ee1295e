-- gkmeans.strategy = 'scan': nothing is kept, every pass reads the relation again, and
-- the answer has the same bits

\set VERBOSITY terse
SET client_min_messages = warning;

CREATE TABLE it (id int, a float8, b real, c int, w float8, p float8[], label int, g text);
INSERT INTO it SELECT i, 10 * (i % 5) + (hashint4(i) % 10007) / 5000.0,
    (i % 5) * (i % 5) + (hashint4(i + 100000) % 10007) / 3000.0, hashint4(i + 200000) % 1000,
    CASE WHEN i % 11 = 0 THEN 0 ELSE 1 + i % 7 * 0.3 END, ARRAY[i % 13, (i % 7) * 0.1, i % 3], i % 9, 'g' || i % 4
FROM generate_series(1, 20000) i;
UPDATE it SET b = NULL WHERE id % 1000 = 7;
UPDATE it SET a = 'NaN' WHERE id % 1000 = 8;
DELETE FROM it WHERE id % 17 = 3;
ANALYZE it;

-- all that a fit says, but how long it took and by what means
CREATE FUNCTION it_text(m kmeans_model) RETURNS text LANGUAGE sql AS $$
    SELECT (m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,context_ms,upload_ms,device,strategy}'::text[])::text
$$;
-- one fit, kept and read again
CREATE FUNCTION it_same(rel regclass, cols text[], k int, options text DEFAULT '') RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
    kept kmeans_model; again kmeans_model;
    call text := format('SELECT kmeans_fit(%L, %L, %s, nonfinite => ''skip'' %s)', rel, cols, k, options);
BEGIN
    SET LOCAL gkmeans.strategy = auto;
    EXECUTE call INTO kept;
    SET LOCAL gkmeans.strategy = scan;
    EXECUTE call INTO again;
    IF (kmeans_info(again)).strategy NOT LIKE 'scan, %' OR (kmeans_info(kept)).strategy LIKE 'scan%' THEN
        RAISE 'strategies are % and %', (kmeans_info(kept)).strategy, (kmeans_info(again)).strategy;
    END IF;
    RETURN it_text(kept) = it_text(again);
END $$;

SELECT o.options, it_same('it', '{a,b,c}', 6, o.options) FROM (VALUES
    (1, ''), (2, ', seed => 1'), (3, ', seed => 2, n_init => 3'),
    (4, ', init => ''random'''), (5, ', init => ''k-means||'''), (6, ', weight_column => ''w'''),
    (7, ', standardize => true'), (8, ', distance => ''cosine'''), (9, ', max_iter => 2, tol => 0'),
    (10, ', centroids => ''{{0,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}'''),
    (11, ', weight_column => ''w'', init => ''k-means||'', standardize => true'),
    (12, ', init => ''hierarchical'''), (13, ', weight_column => ''w'', init => ''hierarchical'', standardize => true'),
    (14, ', distance => ''cosine'', init => ''hierarchical''')) o (n, options) ORDER BY n;
SELECT it_same('it', '{p}', 5) AS array_column, it_same('it', '{c}', 40) AS one_column, it_same('it', '{w}', 50) AS few_distinct,
    it_same('it', '{a,b,c}', 1) AS one_cluster;
-- an empty cluster on the way
SELECT it_same('it', '{a,b,c}', 3, ', centroids => ''{{0,0,0},{1e6,1e6,1e6},{2e6,2e6,2e6}}''') AS repaired;

-- small memory: chunks of a few thousand rows
SET gkmeans.memory_limit = '256kB';
SELECT it_same('it', '{a,b,c}', 6) AS four, it_same('it', '{p}', 5, ', weight_column => ''w''') AS array_column;
RESET gkmeans.memory_limit;
SET gkmeans.threads = 1;
SELECT it_same('it', '{a,b,c}', 6) AS one_thread;
RESET gkmeans.threads;
SET gkmeans.reader = executor;
SELECT it_same('it', '{a,b,c}', 6) AS executor;
RESET gkmeans.reader;
-- many seeds: the distances to them are kept in a temporary file
SELECT o.options, it_same('it', '{a,b,c}', 120, o.options) FROM (VALUES (1, ', max_iter => 2'),
    (2, ', max_iter => 2, n_init => 2, weight_column => ''w'''),
    (3, ', max_iter => 2, init => ''k-means||''')) o (n, options) ORDER BY n;
SET temp_file_limit = '64kB';
SET gkmeans.strategy = scan;
\set VERBOSITY sqlstate
SELECT kmeans_fit('it', '{a,b,c}', 120, nonfinite => 'skip');
\set VERBOSITY terse
SELECT count(*) FROM kmeans('it', '{a,b,c}', 80, nonfinite => 'skip', max_iter => 2);
RESET gkmeans.strategy;
RESET temp_file_limit;
-- parallel workers read, anew in every pass
SET min_parallel_table_scan_size = 0;
SET gkmeans.workers = 3;
SELECT it_same('it', '{a,b,c}', 100, ', max_iter => 2') AS many_seeds;
SELECT it_same('it', '{a,b,c}', 6) AS workers,
    it_same('it', '{p}', 5, ', weight_column => ''w'', init => ''k-means||''') AS array_column;
SET gkmeans.memory_limit = '256kB';
SELECT it_same('it', '{a,b,c}', 6) AS workers_in_little_memory;
RESET gkmeans.memory_limit;
RESET gkmeans.workers;
RESET min_parallel_table_scan_size;

-- views, partitions
CREATE VIEW it_view AS SELECT a + 1 AS a1, c::numeric AS c1 FROM it WHERE g <> 'g2';
SELECT it_same('it_view', '{a1,c1}', 4) AS view;
CREATE TABLE it_parts (LIKE it) PARTITION BY RANGE (id);
CREATE TABLE it_p1 PARTITION OF it_parts FOR VALUES FROM (0) TO (5000);
CREATE TABLE it_p2 PARTITION OF it_parts FOR VALUES FROM (5000) TO (12001);
CREATE TABLE it_p3 PARTITION OF it_parts FOR VALUES FROM (12001) TO (50000);
INSERT INTO it_parts SELECT * FROM it ORDER BY id;
SELECT it_same('it_parts', '{a,b,c}', 6) AS partitions;
-- given centroids: the rows' order does not matter
\set start '{{0,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}'
SET gkmeans.strategy = scan;
SELECT it_text(kmeans_fit('it', '{a,b,c}', 6, centroids => :'start', nonfinite => 'skip')) =
    it_text(kmeans_fit('it_parts', '{a,b,c}', 6, centroids => :'start', nonfinite => 'skip')) AS partitions;

-- kmeans(), labels and label_column
SELECT count(*), sum(size) FROM kmeans('it', '{a,b,c}', 6, nonfinite => 'skip');
CREATE TEMP TABLE again AS SELECT tableoid AS rel, ctid AS tid, cluster, distance FROM kmeans_labels('it_parts', '{a,b,c}', 6, nonfinite => 'skip');
SET gkmeans.strategy = auto;
CREATE TEMP TABLE kept AS SELECT tableoid AS rel, ctid AS tid, cluster, distance FROM kmeans_labels('it_parts', '{a,b,c}', 6, nonfinite => 'skip');
SELECT count(*) = (SELECT count(*) FROM it) AS all_rows, count(*) FILTER (WHERE cluster IS NULL) AS left_out,
    (SELECT count(*) FROM (SELECT * FROM kept EXCEPT SELECT * FROM again) o) AS differ FROM again;
CREATE TABLE it_l1 AS SELECT * FROM it;
CREATE TABLE it_l2 AS SELECT * FROM it;
SELECT count(*) FROM kmeans('it_l1', '{a,b,c}', 6, 'label', nonfinite => 'skip');
SET gkmeans.strategy = scan;
SELECT count(*) FROM kmeans('it_l2', '{a,b,c}', 6, 'label', nonfinite => 'skip');
SELECT count(*) AS differ FROM (SELECT id, label FROM it_l1 EXCEPT SELECT id, label FROM it_l2) o;

-- NOTICEs and errors are those of any strategy
RESET client_min_messages;
SELECT cluster, size FROM kmeans('it', '{w}', 3, nonfinite => 'skip', max_iter => 1);
SELECT count(*) FROM kmeans('it', '{a,b}', 3);
CREATE TABLE it_empty (x int);
SELECT * FROM kmeans('it_empty', '{x}', 3);
INSERT INTO it_empty VALUES (1), (1), (NULL);
SELECT * FROM kmeans('it_empty', '{x}', 3);
SELECT kmeans_fit('it', '{p}', 2, centroids => '{{1,2},{3,4}}');
-- a view that returns other rows every time
CREATE SEQUENCE it_seq;
CREATE VIEW it_volatile AS SELECT (i * nextval('it_seq')) % 997 AS x FROM generate_series(1, 1000) i;
SELECT count(*) FROM kmeans('it_volatile', '{x}', 3, centroids => '{{0},{500},{900}}');
\set VERBOSITY default
SELECT setval('it_seq', 1);
CREATE VIEW it_shrinking AS SELECT i AS x FROM generate_series(1, 1000 - nextval('it_seq')) i;
SELECT count(*) FROM kmeans('it_shrinking', '{x}', 3);
\set VERBOSITY terse
-- more rows than have a distance in the file
SELECT setval('it_seq', 1);
CREATE VIEW it_growing AS SELECT i AS x FROM generate_series(1, 1000 + (nextval('it_seq') > 290)::int) i;
SELECT count(*) FROM kmeans('it_growing', '{x}', 320);
SET gkmeans.strategy = auto;
SELECT count(*) FROM kmeans('it_shrinking', '{x}', 3, centroids => '{{0},{500},{900}}');
DROP FUNCTION it_same, it_text;
