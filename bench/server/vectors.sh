#!/usr/bin/env bash
# Times of loading vectors beside a plain aggregate over them: test/with-cluster bench/server/vectors.sh
# or on any server by its superuser, with the PG* variables set. Run it on an idle machine.
#
# ROWS=... rows of each table (default 100,000), ROUNDS=... (5), WORKERS="0 2": how many
# parallel workers the queries and the load have; TABLES="vector halfvec": only these; DIM=... (768).
#
# load is load_ms of kmeans_info() in a new session, again that of the session's next load, which
# has the memory of the first (gkmeans.keep_memory). sum is sum(vector_norm(v)), or
# sum(l2_norm(v)), or sum(v[1]) of arrays; count is count(*). floor is what no such reader can beat:
# bench/server/load_floor.c, with as many threads. Types of pgvector need it installed.
# cpu is the time on the CPU of this session's process for each of these, without workers only:
# on a busy machine it says more than the time that has passed.
#
# Tables are cached and vacuumed. Each round runs every query once in a new session, after
# one that is not counted; medians of all, and of the rounds' ratios.
set -euo pipefail

rows=${ROWS:-100000} dim=${DIM:-768} rounds=${ROUNDS:-5} workers=${WORKERS:-0 2}
here=$(cd "$(dirname "$0")/../.." && pwd)
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
[ "$(sql -c "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'")" -eq 1 ] || { echo 'skipped: pgvector is not installed: vectors'; exit; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"${CC:-cc}" -O3 -fopenmp -o "$tmp/floor" "$here/bench/server/load_floor.c"

declare -A type=([vector]="vector($dim)" [plain]="vector($dim)" [halfvec]="halfvec($dim)" [half2]="halfvec($((dim * 2)))" [real]='real[]')
declare -A what=([vector]="vector($dim)" [plain]="vector($dim), storage plain" [halfvec]="halfvec($dim)" [half2]="halfvec($((dim * 2)))" [real]="real[$dim], storage external")
declare -A norm=([vector]='vector_norm(v)' [plain]='vector_norm(v)' [halfvec]='l2_norm(v)' [half2]='l2_norm(v)' [real]='v[1]')

# "ms cpu_ms" of a statement, or of load and again: measure JOB TABLE WORKERS
measure() {
	local settings="SET client_min_messages = error; SET max_parallel_workers_per_gather = $3; SET gkmeans.workers = $3;
		SET gkmeans.threads = $(($3 + 1)); SET maintenance_work_mem = '16GB'; SET gkmeans.device = cpu"
	local load="SELECT load_ms FROM kmeans_info((SELECT kmeans_fit('$2', '{v}', 1, init => 'random', max_iter => 1)))"
	local cpu="SELECT split_part(s, ' ', 14)::int + split_part(s, ' ', 15)::int FROM pg_read_file('/proc/self/stat') s"
	case $1 in
	floor) "$tmp/floor" "$bytes" $((rows * features)) $(($3 + 1)) | head -1 ;;
	load) sql -c "$settings" -c "SELECT FROM kmeans('warm', '{x}', 1)" -c "$cpu" -c "$load" -c "$cpu" -c "$load" -c "$cpu" | tr '\n' ' ' ;;
	*)
		sql -c "$settings" -c "SELECT FROM kmeans('warm', '{x}', 1)" -c "$cpu" -c '\timing on' -c '\o /dev/null' -c "SELECT $4 FROM $2" -c '\o' -c '\timing off' -c "$cpu" |
			sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p; /^[0-9]*$/p' | tr '\n' ' '
		;;
	esac
}
median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.2f", (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

sql -c 'SET client_min_messages = error' -c 'CREATE EXTENSION IF NOT EXISTS gkmeans' -c 'CREATE EXTENSION IF NOT EXISTS vector' \
	-c 'DROP TABLE IF EXISTS warm, source' -c 'CREATE TABLE warm AS SELECT 1::real AS x' \
	-c "CREATE UNLOGGED TABLE source AS SELECT i AS id, (SELECT array_agg((random() - 0.5)::real) FROM generate_series(1, $dim) WHERE i > 0) AS r FROM generate_series(1, least($rows, 5000)) i"
echo "command: ROWS=$rows DIM=$dim ROUNDS=$rounds WORKERS='$workers'${TABLES:+ TABLES='$TABLES'} bench/server/vectors.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version'), pgvector $(sql -c "SELECT extversion FROM pg_extension WHERE extname = 'vector'")"
echo "medians of $rounds in ms, $rows rows; cpu: the process's own, in steps of 10 ms"
printf '%-24s %7s %8s %8s %8s %8s %8s %8s %8s %9s %10s %9s %13s\n' table workers count sum load again floor 'cpu sum' load again load/sum again/sum cpu/sum
for table in ${TABLES:-vector plain halfvec half2 real}; do
	features=$([ "$table" = half2 ] && echo $((dim * 2)) || echo "$dim")
	sql -c 'SET client_min_messages = error' -c "DROP TABLE IF EXISTS t_$table" -c "CREATE UNLOGGED TABLE t_$table (id int, v ${type[$table]})"
	case $table in plain) sql -c 'ALTER TABLE t_plain ALTER v SET STORAGE plain' ;; real) sql -c 'ALTER TABLE t_real ALTER v SET STORAGE external' ;; esac
	sql -c "INSERT INTO t_$table SELECT i, (r$([ "$table" != half2 ] || echo ' || r'))::${type[$table]} FROM generate_series(0, $(((rows - 1) / 5000))) s, source, LATERAL (SELECT s * 5000 + id) n (i) WHERE i <= $rows" \
		-c "VACUUM ANALYZE t_$table"
	bytes=$(sql -c "SELECT pg_table_size('t_$table')")
	for n in $workers; do
		sql -c "ALTER TABLE t_$table SET (parallel_workers = $n)"
		: >"$tmp/rounds"
		for ((round = 0; round <= rounds; round++)); do
			read -r cpu0 count cpu1 <<<"$(measure count "t_$table" "$n" 'count(*)')"
			read -r cpu0 sum cpu1 <<<"$(measure sum "t_$table" "$n" "sum(${norm[$table]})")"
			read -r at0 load at1 again at2 <<<"$(measure load "t_$table" "$n")"
			floor=$(measure floor "t_$table" "$n")
			[ "$round" -eq 0 ] || echo "$count $sum $load $again $floor $(((cpu1 - cpu0) * 10)) $(((at1 - at0) * 10)) $(((at2 - at1) * 10))" >>"$tmp/rounds"
		done
		column() { awk "{ print ($1) }" "$tmp/rounds" | median; }
		printf '%-24s %7d %8s %8s %8s %8s %8s %8s %8s %9s %10s %9s %13s\n' "${what[$table]}" "$n" "$(column '$1')" "$(column '$2')" "$(column '$3')" "$(column '$4')" "$(column '$5')" \
			"$(column '$6')" "$(column '$7')" "$(column '$8')" "$(column '$3 / $2')" "$(column '$4 / $2')" \
			"$([ "$n" -gt 0 ] && echo - || echo "$(column '$6 > 0 ? $7 / $6 : 0') $(column '$6 > 0 ? $8 / $6 : 0')")"
	done
	sql -c "DROP TABLE t_$table"
done
sql -c 'DROP TABLE warm, source'
