-- gkmeans_progress: what can be seen without another session (test/t/060_progress.pl has one)
-- why it is empty, said once: only where there is no shared memory (test/t/060_progress.pl)
SET client_min_messages = warning;
-- no job runs: no row, preloaded or not, and anyone may look
SELECT count(*) FROM gkmeans_progress;
CREATE ROLE regress_gkmeans_progress;
SET ROLE regress_gkmeans_progress;
SELECT count(*) FROM gkmeans_progress;
RESET ROLE;
DROP ROLE regress_gkmeans_progress;
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_attribute a WHERE attrelid = 'gkmeans_progress'::regclass AND attnum > 0 ORDER BY attnum;
-- a failed job leaves none
CREATE TABLE progress_nan (x float8);
INSERT INTO progress_nan VALUES ('NaN');
SELECT kmeans('progress_nan', '{x}', 2);
SELECT count(*) FROM gkmeans_progress_info();
DROP TABLE progress_nan;
