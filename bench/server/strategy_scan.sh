#!/usr/bin/env bash
# Memory and time of strategy "scan": test/with-cluster bench/server/strategy_scan.sh
# ROWS=... rows of two integer and two real columns (default 20,000,000).
#
# kmeans_fit() with gkmeans.memory_limit = 16MB: how much the resident memory of the
# server process grows over what it was before the first call, at its peak, and whether
# the model has the bits of one whose points are kept. The table is not in order.
set -euo pipefail

rows=${ROWS:-20000000}
psql -X -q -A -t -v ON_ERROR_STOP=1 -v rows="$rows" <<'SQL'
SET client_min_messages = error;
CREATE EXTENSION gkmeans;
CREATE UNLOGGED TABLE points AS
SELECT (i % 4) * 1000 + hashint4(i) % 500 AS a, (i % 3) * 1000 + hashint4(i + 1) % 500 AS b,
    (hashint4(i + 2) % 1000000)::real AS c, (hashint4(i + 3) % 1000)::real AS d
FROM generate_series(1, :rows) i;
VACUUM ANALYZE points;
SELECT format('%s rows, %s', :rows, pg_size_pretty(pg_table_size('points')));
CREATE TABLE models (how text, m kmeans_model);
\c
SET client_min_messages = error;
SELECT pg_backend_pid() AS pid \gset
\setenv PID :pid
\! echo 5 > /proc/$PID/clear_refs
\! echo "before:"; grep -E 'VmHWM|VmRSS|RssAnon|RssShmem' /proc/$PID/status
\timing on
SET gkmeans.memory_limit = '16MB';
SET gkmeans.strategy = scan;
INSERT INTO models SELECT 'scan', kmeans_fit('points', '{a,b,c,d}', 4, max_iter => 5);
\timing off
\! echo "after kmeans_fit(k => 4, max_iter => 5), scan, 16 MB:"; grep -E 'VmHWM|VmRSS|RssAnon|RssShmem' /proc/$PID/status
SELECT format('load %s ms, seed %s ms, iterate %s ms, %s', round(load_ms), round(seed_ms), round(iterate_ms), strategy)
FROM models, kmeans_info(m) WHERE how = 'scan';
\c
SET client_min_messages = error;
\timing on
SET maintenance_work_mem = '2GB';
SET gkmeans.memory_limit = '1GB';
INSERT INTO models SELECT 'kept', kmeans_fit('points', '{a,b,c,d}', 4, max_iter => 5);
\timing off
SELECT format('kept, 1 GB: load %s ms, seed %s ms, iterate %s ms, %s', round(load_ms), round(seed_ms), round(iterate_ms), strategy)
FROM models, kmeans_info(m) WHERE how = 'kept';
SELECT 'same bits: ' || (count(DISTINCT m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,context_ms,upload_ms,device,strategy}'::text[]) = 1)
FROM models;
SQL
