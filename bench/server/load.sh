#!/usr/bin/env bash
# Times of the load phase beside count(*), on a private server: test/with-cluster bench/server/load.sh
# or on any server by its superuser, with the PG* variables set. Run it on an idle machine.
#
# ROWS=... rows of each table (default 4,000,000), ROUNDS=... (5), WORKERS="0 2": how many
# parallel workers count(*), the sums and the load have; RESULT=... a file for one JSON
# object per line; TABLES="real4 real68": only these; DEVICE=gpu: rows go to the GPU (cpu).
#
# load is load_ms of kmeans_info(): reading the rows into the store and preparing them,
# with gkmeans.threads = workers + 1, so that both sides have the same number of CPUs.
# default is the same with default settings: without workers, but with a thread for each
# CPU, where the table is in the cache or the CPUs are fewer than 4. Of both, again is the
# session's next load of the table, which has the memory of the one before
# (gkmeans.keep_memory).
# floor is what no such reader can beat: bench/server/load_floor.c, with as many threads as load,
# in a new process, and again with its memory at hand.
# fit is the time of a whole kmeans() with k = 4 and 20 iterations, random seeds.
# Tables are cached and vacuumed. Each round runs every query once in a new session after
# one that is not counted, so that a busy moment hits all of them; the medians count.
set -euo pipefail

device=${DEVICE:-cpu} rows=${ROWS:-4000000} rounds=${ROUNDS:-5} workers=${WORKERS:-0 2} result=${RESULT:-/dev/null}
here=$(cd "$(dirname "$0")/../.." && pwd)
commit=$("$here/bench/report/commit")
names=$(seq -s, 1 68 | sed 's/[0-9]*/f&/g')
random=$(seq -s, 1 68 | sed 's/[0-9]*/random()::real AS f&/g')

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

all="real4 double4 int4s nulls4 text4 array4 array8 real68"
declare -A columns=([array4]=v [array8]=v [real68]=$names) create=(
	[real4]="SELECT i AS id, random()::real AS a, random()::real AS b, random()::real AS c, random()::real AS d FROM generate_series(1, $rows) i"
	[double4]="SELECT i AS id, random() AS a, random() AS b, random() AS c, random() AS d FROM generate_series(1, $rows) i"
	[int4s]="SELECT i AS id, (i * 7919::bigint % 1000)::int AS a, i % 77 AS b, i % 91 AS c, i % 1013 AS d FROM generate_series(1, $rows) i"
	[nulls4]="SELECT i AS id, CASE WHEN random() < 0.9 THEN random()::real END AS a, random()::real AS b, random()::real AS c, random()::real AS d FROM generate_series(1, $rows) i"
	[text4]="SELECT i AS id, 'note ' || i % 1000 AS note, random()::real AS a, random()::real AS b, random()::real AS c, random()::real AS d FROM generate_series(1, $rows) i"
	[array4]="SELECT i AS id, ARRAY[random(), random(), random(), random()]::real[] AS v FROM generate_series(1, $rows) i"
	[array8]="SELECT i AS id, ARRAY[random(), random(), random(), random()] AS v FROM generate_series(1, $rows) i"
	[real68]="SELECT $random FROM generate_series(1, $((rows / 8))) i"
) what=([real4]='int, 4 real' [double4]='int, 4 double precision' [int4s]='int, 4 integer' [nulls4]='int, 4 real, 10 % NULLs'
	[text4]='int, text, 4 real' [array4]='int, real[4]' [array8]='int, double precision[4]' [real68]='68 real, 1/8 of the rows')

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"${CC:-cc}" -O3 -fopenmp -o "$tmp/floor" "$here/bench/server/load_floor.c"

# the milliseconds of a job: measure JOB TABLE WORKERS
measure() {
	local list=${columns[$2]:-a,b,c,d} timed=
	local settings="SET client_min_messages = error; SET max_parallel_workers_per_gather = $3; SET gkmeans.workers = $3;
		SET gkmeans.threads = $(($3 + 1)); SET maintenance_work_mem = '16GB'; SET gkmeans.device = $device"
	case $1 in
	floor) "$tmp/floor" "$bytes" $((points * 4)) $(($3 + 1)); return ;;
	count) timed="SELECT count(*) FROM $2" ;;
	sum) [ "$list" = a,b,c,d ] || { echo 0; return; }; timed="SELECT sum(a), sum(b), sum(c), sum(d) FROM $2" ;;
	fit) timed="SELECT count(*) FROM kmeans('$2', '{$list}', 4, init => 'random', max_iter => 20, tol => 0)" ;;
	*)
		[ "$1" = default ] && settings+='; RESET gkmeans.workers; RESET gkmeans.threads'
		[ "$1 $3" = 'executor 0' ] || [ "$1" != executor ] || { echo 0; return; }
		# a GPU's context is made by a session's first call
		timed="SELECT load_ms FROM kmeans_info((SELECT kmeans_fit('$2', '{$list}', 1, init => 'random', max_iter => 1)))"
		sql -c "$settings; SET gkmeans.reader = ${1/default/auto}" -c "SELECT FROM kmeans('warm', '{x}', 1, max_iter => 1)" \
			-c "$timed" -c "$([ "$1" = executor ] || echo "$timed")"
		return
		;;
	esac
	sql -c "$settings" -c "SELECT FROM kmeans('warm', '{x}', 1, max_iter => 1)" -c '\timing on' -c "$timed" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'
}
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

sql -c 'SET client_min_messages = error' -c 'CREATE EXTENSION IF NOT EXISTS gkmeans' -c 'CREATE TABLE warm AS SELECT 1::real AS x'
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
command="DEVICE=$device ROWS=$rows ROUNDS=$rounds WORKERS='$workers'${TABLES:+ TABLES='$TABLES'} bench/server/load.sh"
echo "command: $command"
echo "commit:  $commit, $(date -u +%F)"
echo "machine: $machine"
echo "medians of $rounds in ms, $rows rows"
echo "{\"what\": \"machine\", \"date\": \"$(date -u +%FT%TZ)\", \"commit\": \"$commit\", \"machine\": \"$machine\", \"rounds\": $rounds, \"shared_buffers\": \"$(sql -c 'SHOW shared_buffers')\", \"command\": \"$command\"}" >"$result"
printf '%-26s %7s %9s %9s %9s %9s %9s %9s %9s %9s %11s %9s %11s %13s %11s %9s %8s\n' table workers 'count(*)' 'four sums' executor pages again default again floor 'floor again' 'kmeans()' pages/count default/count again/count fit/sums GB/s
for table in ${TABLES:-$all}; do
	sql -c "SET client_min_messages = error" -c "DROP TABLE IF EXISTS $table" -c "CREATE UNLOGGED TABLE $table AS ${create[$table]}"
	sql -c "VACUUM ANALYZE $table"
	bytes=$(sql -c "SELECT pg_relation_size('$table')")
	features=$([ "$table" = real68 ] && echo 68 || echo 4)
	points=$(sql -c "SELECT count(*) * $features FROM $table")
	for n in $workers; do
		sql -c "ALTER TABLE $table SET (parallel_workers = $n)"
		declare -A times=()
		for ((round = 0; round <= rounds; round++)); do
			for job in count sum executor auto default floor fit; do
				t=$(measure $job "$table" "$n")
				[ "$round" -gt 0 ] || continue
				case $job in auto | default | floor) times[${job}_again]+="${t#*$'\n'}"$'\n' ;; esac
				times[$job]+="${t%%$'\n'*}"$'\n'
			done
		done
		for job in count sum executor auto auto_again default default_again floor floor_again fit; do times[$job]=$(printf %s "${times[$job]}" | median); done
		echo "{\"what\": \"load\", \"table\": \"$table\", \"device\": \"$device\", \"workers\": $n, \"bytes\": $bytes, \"count_ms\": ${times[count]}, \"sum_ms\": ${times[sum]}, \"executor_ms\": ${times[executor]}, \"pages_ms\": ${times[auto]}, \"pages_again_ms\": ${times[auto_again]}, \"default_ms\": ${times[default]}, \"again_ms\": ${times[default_again]}, \"floor_ms\": ${times[floor]}, \"floor_again_ms\": ${times[floor_again]}, \"fit_ms\": ${times[fit]}}" >>"$result"
		awk -v what="${what[$table]}" -v n="$n" -v c="${times[count]}" -v s="${times[sum]}" -v e="${times[executor]}" -v h="${times[auto]}" -v a="${times[default]}" -v p="${times[auto_again]}" -v g="${times[default_again]}" -v f="${times[fit]}" -v l="${times[floor]}" -v m="${times[floor_again]}" -v b="$bytes" '
			function some(x) { return x > 0 ? sprintf("%.1f", x) : "-" }
			BEGIN { printf "%-26s %7d %9.1f %9s %9s %9.1f %9.1f %9.1f %9.1f %9.1f %11.1f %9.1f %11.2f %13.2f %11.2f %9s %8.2f\n", what, n, c, some(s), some(e), h, p, a, g, l, m, f, h / c, a / c, g / c, (s > 0 ? sprintf("%.2f", f / s) : "-"), b / h / 1e6 }'
	done
	[ -n "${KEEP:-}" ] || sql -c "DROP TABLE $table"
done
sql -c 'DROP TABLE warm'
