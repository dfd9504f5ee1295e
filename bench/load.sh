#!/usr/bin/env bash
# Times of the load phase beside count(*), on a private server: test/with-cluster bench/load.sh
# ROWS=... rows of each table (default 4,000,000). Run it on an otherwise idle machine.
#
# load is load_ms of kmeans_info(): reading the rows into the store. Everything runs
# in one process without parallel workers (the engine's threads are what
# gkmeans.threads says: THREADS=..., default 0, all CPUs), on a table that is cached.
# Each round runs every query once, so that a busy moment hits all of them; the
# median of the rounds counts. The first round is not counted.
set -euo pipefail

rows=${ROWS:-4000000} rounds=${ROUNDS:-5} threads=${THREADS:-0}
here=$(cd "$(dirname "$0")/.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

sql <<-SQL
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	CREATE TABLE real4 AS SELECT i AS id, random()::real AS a, random()::real AS b, random()::real AS c,
		random()::real AS d FROM generate_series(1, $rows) i;
	CREATE TABLE double4 AS SELECT id, random() AS a, random() AS b, random() AS c, random() AS d FROM real4;
	CREATE TABLE int4s AS SELECT id, (id * 7919::bigint % 1000)::int AS a, id % 77 AS b, id % 91 AS c, id % 1013 AS d FROM real4;
	CREATE TABLE nulls4 AS SELECT id, CASE WHEN random() < 0.9 THEN a END AS a, b, c, d FROM real4;
	CREATE TABLE text4 AS SELECT id, 'note ' || id % 1000 AS note, a, b, c, d FROM real4;
	CREATE TABLE array4 AS SELECT id, ARRAY[a, b, c, d] AS v FROM real4;
	VACUUM ANALYZE;
SQL

# the milliseconds of: count TABLE, sum TABLE COLUMNS, load TABLE COLUMNS ROAD
measure() {
	local settings="SET max_parallel_workers_per_gather = 0; SET maintenance_work_mem = '8GB'; SET client_min_messages = error; SET gkmeans.threads = $threads"
	case $1 in
	count) sql -c "$settings" -c '\timing on' -c "SELECT count(*) FROM $2" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' ;;
	sum) sql -c "$settings" -c '\timing on' -c "SELECT sum(a), sum(b), sum(c), sum(d) FROM $2" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' ;;
	load) sql -c "$settings; SET gkmeans.reader = '$4'" -c "SELECT load_ms FROM kmeans_info((SELECT kmeans_fit('$2', '{$3}', 1, init => 'random', max_iter => 1, device => 'cpu')))" ;;
	esac
}
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

echo "command: ROWS=$rows ROUNDS=$rounds THREADS=$threads test/with-cluster bench/load.sh"
echo "commit:  $(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "medians of $rounds in ms, $rows rows"
printf '%-28s %9s %9s %9s %9s %14s %11s\n' table 'count(*)' 'four sums' executor pages pages/count 'pages GB/s'
while read -r table columns what; do
	declare -A times=()
	for ((round = 0; round <= rounds; round++)); do
		for job in count sum executor auto; do
			case $job in
			count) t=$(measure count "$table") ;;
			sum) [ "$columns" = v ] && t=0 || t=$(measure sum "$table") ;;
			*) t=$(measure load "$table" "$columns" "$job") ;;
			esac
			[ "$round" -eq 0 ] || times[$job]+="$t"$'\n'
		done
	done
	bytes=$(sql -c "SELECT pg_relation_size('$table')")
	for job in count sum executor auto; do times[$job]=$(printf %s "${times[$job]}" | median); done
	awk -v what="$what" -v c="${times[count]}" -v s="${times[sum]}" -v e="${times[executor]}" -v h="${times[auto]}" -v b="$bytes" \
		'BEGIN { printf "%-28s %9.1f %9s %9.1f %9.1f %14.2f %11.2f\n", what, c, (s > 0 ? sprintf("%.1f", s) : "-"), e, h, h / c, b / h / 1e6 }'
done <<-TABLES
	real4 a,b,c,d int, 4 real
	double4 a,b,c,d int, 4 double precision
	int4s a,b,c,d int, 4 integer
	nulls4 a,b,c,d int, 4 real, 10 % NULLs
	text4 a,b,c,d int, text, 4 real
	array4 v int, real[4]
TABLES
