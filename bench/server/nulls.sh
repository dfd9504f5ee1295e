#!/usr/bin/env bash
# What nulls => 'mean' costs, on a private server: test/with-cluster bench/server/nulls.sh
# Run it on an otherwise idle machine; ROWS=... (default 2,000,000), ROUNDS=... (7).
#
# The tables have four real columns without a NULL, or 10 % of one NULL, or the latter as real[4].
# skip, mean: load_ms of kmeans_info(), by one thread. view: the load from a view that fills in
# means which are known, and means: the statement that takes them. Each round runs all in turn; medians.
set -euo pipefail

rows=${ROWS:-2000000} rounds=${ROUNDS:-7}
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

sql <<-SQL
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	SELECT setseed(0.5);
	CREATE TABLE whole AS SELECT i AS id, random()::real AS a, random()::real AS b, random()::real AS c, random()::real AS d FROM generate_series(1, $rows) i;
	CREATE TABLE holes AS SELECT id, CASE WHEN random() < 0.9 THEN a END AS a, b, c, d FROM whole;
	CREATE TABLE arrays AS SELECT id, ARRAY[a, b, c, d] AS v FROM holes;
	CREATE TABLE means AS SELECT (feature_sum(a))[1] / count(a) AS a, (feature_sum(b))[1] / count(b) AS b,
		(feature_sum(c))[1] / count(c) AS c, (feature_sum(d))[1] / count(d) AS d FROM holes;
	CREATE VIEW filled AS SELECT coalesce(t.a, m.a) AS a, coalesce(t.b, m.b) AS b, coalesce(t.c, m.c) AS c, coalesce(t.d, m.d) AS d FROM holes t, means m;
SQL
sql -c 'VACUUM ANALYZE'

settings="SET client_min_messages = error; SET gkmeans.threads = 1; SET gkmeans.workers = 0; SET max_parallel_workers_per_gather = 0;
	SET maintenance_work_mem = '4GB'; SET gkmeans.device = cpu"
load() {
	sql -c "$settings" -c "SELECT FROM kmeans_fit('$1', '{$2}', 1, init => 'random', max_iter => 1, nulls => '$3')" \
		-c "SELECT load_ms FROM kmeans_info(kmeans_fit('$1', '{$2}', 1, init => 'random', max_iter => 1, nulls => '$3'))" | tail -1
}
elapsed() { sql -c "$settings" -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }

declare -A t=()
for ((round = 0; round <= rounds; round++)); do
	for words in skip mean; do
		t[whole_$words]+="$(load whole a,b,c,d $words)"$'\n'
		t[holes_$words]+="$(load holes a,b,c,d $words)"$'\n'
		t[arrays_$words]+="$(load arrays v $words)"$'\n'
	done
	t[view]+="$(load filled a,b,c,d skip)"$'\n'
	t[means]+="$(elapsed 'SELECT (feature_sum(a))[1] / count(a), (feature_sum(b))[1] / count(b), (feature_sum(c))[1] / count(c), (feature_sum(d))[1] / count(d) FROM holes')"$'\n'
	[ "$round" -gt 0 ] || t=() # warms up
done
for name in "${!t[@]}"; do t[$name]=$(printf %s "${t[$name]}" | median); done

echo "command: ROWS=$rows ROUNDS=$rounds test/with-cluster bench/server/nulls.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "medians of $rounds in ms; $rows rows, 4 real, one thread"
for table in whole holes arrays; do
	awk -v what="$table" -v s="${t[${table}_skip]}" -v m="${t[${table}_mean]}" 'BEGIN { printf "%-8s skip %9.1f  mean %9.1f  ratio %6.2f\n", what, s, m, m / s }'
done
awk -v v="${t[view]}" -v s="${t[means]}" -v m="${t[holes_mean]}" 'BEGIN {
	printf "%-8s means %8.1f  load %9.1f  ratio of both to the option %6.2f\n", "view", s, v, (v + s) / m }'
