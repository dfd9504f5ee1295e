#!/usr/bin/env bash
# What a session's first call on a GPU takes beside a later one, since it opens the device: bench/gpu/first_call.sh
# with the PG* variables of a server that has gkmeans (of this tree) and its superuser.
# ROWS= of the table (20000000), SESSIONS= for each number of workers (7), and one more that is not counted.
# MEMORY= is gkmeans.memory_limit (1GB): rows wait in it until the device is open. COMMIT=: what is measured, where there
# is no git. DEVICE=cpu only shows that this script works. HOLD=1: another session has the device open all the time;
# where none has, opening takes longer.
#
# A session calls kmeans_fit() once, and three times more (warm); another one counts the rows once, and three times more.
# A process that reads shared buffers for the first time has to map them, whatever it reads them for: what that takes
# shows in the first count. Each has the same number of parallel workers, and kmeans_fit() as many threads and one. The
# last line is kmeans_fit() as it is by default. Milliseconds by psql's clock: medians of all sessions. load, context and
# upload are those of the first call, by kmeans_info().
set -euo pipefail
cd "$(dirname "$0")/../.."
rows=${ROWS:-20000000} sessions=${SESSIONS:-7} device=${DEVICE:-gpu} memory=${MEMORY:-1GB}
sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

sql >/dev/null <<SQL
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS gkmeans;
SELECT setseed(0.5);
DROP TABLE IF EXISTS first_call;
CREATE UNLOGGED TABLE first_call AS
SELECT (random() * 10 + i % 4)::real AS a, (random() * 8 - i % 3)::real AS b,
       (random() * 5)::real AS c, (random() * 3 + random() * 3)::real AS d
FROM generate_series(1, $rows) i;
VACUUM ANALYZE first_call;
SQL

call="SELECT load_ms, coalesce(context_ms, 0), coalesce(upload_ms, 0) FROM kmeans_info((SELECT kmeans_fit('first_call', '{a,b,c,d}', 4, init => 'random',
	max_iter => 20, tol => 0, device => '$device')));"

# timed WORKERS STATEMENT [default]: what the first of four gives, and then the milliseconds of all
timed() {
	sql <<-SQL | sed -En '1s/\|/ /gp; s/^Time: ([0-9.]*) ms.*/\1/p'
		SET client_min_messages = error;
		SET gkmeans.memory_limit = '$memory';
		SET max_parallel_workers_per_gather = $1;
		$([ $# -gt 2 ] || echo "SET gkmeans.workers = $1; SET gkmeans.threads = $(($1 + 1));")
		\timing on
		$2
		$2
		$2
		$2
	SQL
}
# session WORKERS [default]: load context upload first warm warm warm first-count count count count
session() {
	{ timed "$1" "$call" ${2+default}; timed "$1" 'SELECT count(*) FROM first_call;'; } | paste -sd' '
}
# of lines of session()
table_row() {
	python3 -c '
import statistics, sys
rows = [[float(v) for v in line.split()] for line in sys.stdin]
median = lambda *at: statistics.median(r[i] for r in rows for i in at)
first, warm = median(3), median(4, 5, 6)
print(f"{sys.argv[1]:>7} {median(7):9.1f} {median(8, 9, 10):9.1f} {warm:8.1f} {first:8.1f} {first / warm:10.2f} {median(0):9.1f} {median(1):9.1f} {median(2):8.1f}")' "$1"
}

if [ "${HOLD:-0}" = 1 ]; then
	sql -c "$call" -c 'SELECT pg_sleep(3600)' >/dev/null 2>&1 &
	trap 'sql -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '"'pg_sleep.3600'"' AND pid <> pg_backend_pid()" >/dev/null' EXIT
	sleep 5
fi

gpu='no GPU'
[ "$device" = cpu ] || gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
echo "$gpu, $(nproc) CPUs, $(date -u +%F), commit ${COMMIT:-$(bench/report/commit)}, bench/gpu/first_call.sh, $rows rows of 4 real columns, k = 4, 20 iterations, $sessions sessions, memory_limit $memory$([ "${HOLD:-0}" = 0 ] || echo ", another session has the device open")"
printf '%7s %9s %9s %8s %8s %10s %9s %9s %8s\n' workers '1st count' 'count(*)' warm first first/warm load context upload
for workers in 0 8; do
	sql -c "ALTER TABLE first_call SET (parallel_workers = $workers)"
	for i in $(seq 0 "$sessions"); do
		line=$(session "$workers")
		[ "$i" = 0 ] || echo "$line"
	done | table_row "$workers"
done
for i in $(seq 0 "$sessions"); do
	line=$(session 8 default)
	[ "$i" = 0 ] || echo "$line"
done | table_row default
sql -c 'DROP TABLE first_call'
