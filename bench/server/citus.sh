#!/usr/bin/env bash
# What kmeans() costs on a distributed table of Citus, beside one server that keeps its points and
# has as many threads, and beside pulling every row through a view.
# usage: PGHOST=... PGPORT=... PGUSER=... PGDATABASE=... bench/server/citus.sh [ROWS [SHARDS...]]
# ROWS: default 3000000. SHARDS: default 2 8 32 128. ROUNDS: default 5.
#
# The connection is a superuser's to the coordinator of a running Citus that has gkmeans on all
# nodes; tables are made in a schema of their own, which goes away at the end. Each node
# gets one thread, and the one server as many as there are nodes with shards. All take turns, round
# after round; the figures are medians.
set -euo pipefail

rows=${1:-3000000} rounds=${ROUNDS:-5}
[ $# -eq 0 ] || shift
counts=("${@:-2}")
[ $# -gt 0 ] || counts=(2 8 32 128)
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { PGOPTIONS='-c client_min_messages=error -c search_path=gkmeans_bench,public' psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
# a node may not pass on what the coordinator asks it to change
on_nodes() {
	sql -c "SELECT result FROM run_command_on_workers(\$run\$DO 'BEGIN SET LOCAL citus.enable_ddl_propagation = off; $1; END'\$run\$) WHERE NOT success" >&2
}
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
bytes() { awk '$1 == "lo:" {print $2}' /proc/net/dev; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

database=$(sql -c 'SELECT quote_ident(current_database())')
nodes=$(sql -c "SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards AND isactive AND noderole = 'primary'")
cleanup() {
	sql -c 'DROP SCHEMA IF EXISTS gkmeans_bench CASCADE' || true
	on_nodes "ALTER DATABASE $database RESET gkmeans.threads" || true
}
trap cleanup EXIT
sql -c 'DROP SCHEMA IF EXISTS gkmeans_bench CASCADE' -c 'CREATE SCHEMA gkmeans_bench'
on_nodes "ALTER DATABASE $database SET gkmeans.threads = 1"
sql -c "CREATE TABLE here AS SELECT i AS id, (i % 5 + random())::real AS a, (i % 3 + random())::real AS b,
	(i % 7 + random())::real AS c, random()::real AS d, -1 AS label FROM generate_series(1, $rows) i"
tables=(here)
for n in "${counts[@]}"; do
	tables+=("shards_$n")
	sql -c "CREATE TABLE shards_$n (LIKE here)" -c "SET citus.shard_count = $n" \
		-c "SELECT create_distributed_table('shards_$n', 'id', colocate_with => 'none')" -c "INSERT INTO shards_$n SELECT * FROM here" >/dev/null
done
sql -c "CREATE VIEW pulled AS SELECT * FROM shards_${counts[-1]}"
tables+=(pulled)
sql -c 'VACUUM ANALYZE' -c CHECKPOINT
sql -c "SELECT FROM run_command_on_workers('CHECKPOINT')" >/dev/null

# total ms of a job and ms of one of its iterations
job() {
	sql -c "SET gkmeans.threads = $nodes" \
		-c "SELECT round(i.total_ms::numeric, 1) || ' ' || round((i.iterate_ms / i.iterations)::numeric, 2) FROM kmeans_info(kmeans_fit('$1', '{a,b,c,d}', 4, $2)) i"
}
given="centroids => '{{0,0,0,0},{2,2,2,0},{4,1,5,1},{1,1,6,0}}', tol => 0, max_iter => 20"
seeded='tol => 0, max_iter => 20'

echo "command: ROUNDS=$rounds bench/server/citus.sh $rows ${counts[*]}"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "citus $(sql -c "SELECT extversion FROM pg_extension WHERE extname = 'citus'"), $rows rows of 4 real, $nodes nodes with 1 thread each, the local table with $nodes threads; medians of $rounds"
for options in "$given" "$seeded"; do
	declare -A total=() iteration=()
	for ((round = 0; round < rounds; round++)); do
		for table in "${tables[@]}"; do
			read -r t i < <(job "$table" "$options")
			total[$table]+="$t"$'\n'
			iteration[$table]+="$i"$'\n'
		done
	done
	for table in "${tables[@]}"; do
		total[$table]=$(printf %s "${total[$table]}" | median)
		iteration[$table]=$(printf %s "${iteration[$table]}" | median)
	done
	echo "options: $options"
	for table in "${tables[@]}"; do
		printf '  %-11s whole %8.1f ms, %5.2f times the local one; an iteration %7.2f ms, %+7.2f\n' "$table" "${total[$table]}" \
			"$(ratio "${total[$table]}" "${total[here]}")" "${iteration[$table]}" \
			"$(awk -v a="${iteration[$table]}" -v b="${iteration[here]}" 'BEGIN { print a - b }')"
	done
done

before=$(bytes)
read -r _ _ < <(job "${tables[1]}" "$given")
echo "  bytes over this machine's loopback device for one job on ${tables[1]}, 20 iterations: $(($(bytes) - before)); its rows have $((rows * 16))"
before=$(bytes)
read -r _ _ < <(job "${tables[-2]}" "$given")
echo "  the same on ${tables[-2]}: $(($(bytes) - before))"

# labels of all rows, beside Citus' own UPDATE of one value; they take turns in being first
timed() { sql -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }
labelled=${tables[-2]} update='' labels='' fit=''
for ((round = 0; round < rounds; round++)); do
	for turn in 0 1; do
		if [ $(((round + turn) % 2)) -eq 0 ]; then
			update+="$(timed "UPDATE $labelled SET label = -1 - $round")"$'\n'
		else
			sql -c "UPDATE $labelled SET label = NULL" -c "VACUUM $labelled"
			fit+="$(timed "SELECT count(*) FROM kmeans('$labelled', '{a,b,c,d}', 4, $given)")"$'\n'
			labels+="$(timed "SELECT count(*) FROM kmeans('$labelled', '{a,b,c,d}', 4, label_column => 'label', $given)")"$'\n'
		fi
		sql -c "VACUUM $labelled"
		sql -c "SELECT FROM run_command_on_workers('CHECKPOINT')" >/dev/null
	done
done
update=$(printf %s "$update" | median) labels=$(printf %s "$labels" | median) fit=$(printf %s "$fit" | median)
echo "  $labelled: UPDATE of one value $update ms; kmeans() with label_column $labels ms, $(ratio "$labels" "$update") times; without $fit ms;" \
	"the labels alone $(awk -v a="$labels" -v b="$fit" -v c="$update" 'BEGIN { printf "%.2f", (a - b) / c }') times"

# measures of quality; of kept points, of a model, and of the rows through a view
sql -c "CREATE TABLE model AS SELECT kmeans_fit('here', '{a,b,c,d}', 4, $given) AS m"
declare -A scan=() evaluate=()
for ((round = 0; round < rounds; round++)); do
	for table in here "$labelled" pulled; do
		scan[$table]+="$(timed "SELECT count(*) FROM kmeans_scan('$table', '{a,b,c,d}', 2, 5, max_iter => 10, sample => 1000)")"$'\n'
		evaluate[$table]+="$(timed "SELECT kmeans_evaluate(m, '$table', sample => 1000) FROM model")"$'\n'
	done
done
for table in here "$labelled" pulled; do
	printf '  %-11s kmeans_scan() of k = 2 to 5 %8.1f ms; kmeans_evaluate() %8.1f ms\n' "$table" \
		"$(printf %s "${scan[$table]}" | median)" "$(printf %s "${evaluate[$table]}" | median)"
done

# many clusters of few rows: what a round of seeding costs
sql -c 'CREATE TABLE few (id int, a real, b real)' -c 'SET citus.shard_count = 32' \
	-c "SELECT create_distributed_table('few', 'id', colocate_with => 'none')" -c 'INSERT INTO few SELECT id, a, b FROM here LIMIT 2000' >/dev/null
for k in 200 1000; do
	times=''
	for ((round = 0; round < rounds; round++)); do
		times+="$(sql -c "SELECT round(total_ms) FROM kmeans_info(kmeans_fit('few', '{a,b}', $k))")"$'\n'
	done
	echo "  2000 rows in 32 shards, k = $k: $(printf %s "$times" | median) ms"
done
