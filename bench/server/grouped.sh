#!/usr/bin/env bash
# Times of the grouped-aggregate path, on a private server: test/with-cluster bench/server/grouped.sh
# ROWS=... rows of the table (default 10,000,000). Run it on an otherwise idle machine.
#
# Each query runs three times in one session, without parallel workers where the
# line does not say so; the best time counts. Windows are in window.sh.
#
# Instead of kmeans_agg one can call kmeans() once per group, in a loop on the server with
# a commit for each. kmeans() takes a relation, so a group has to be one: what that costs
# depends on how it is made, on an index, and on where the rows of a group are. 500 groups
# (3 without an index) are timed, and the time of one is divided by kmeans_agg's.
set -euo pipefail

rows=${ROWS:-10000000}
groups=$((rows / 100))
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }

sql <<-SQL
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	CREATE TABLE points AS SELECT i % $groups AS g, i % 1000 AS p, (i / $groups % 3 * 5 + random())::real AS a,
		random()::real AS b, (i / $groups % 3 * 2 + random())::real AS c, (1000 * random())::real AS d
		FROM generate_series(0, $rows - 1) i;
	VACUUM ANALYZE points;
	CREATE TABLE model AS SELECT kmeans_fit('points', '{a,b,c,d}', 4, max_iter => 1, device => 'cpu') AS m;
SQL

# ms NAME SETTINGS QUERY: prints and keeps the best of three
declare -A best
ms() {
	local t
	t=$(sql -c '\timing on' -c "SET max_parallel_workers_per_gather = 0; SET work_mem = '1GB'; SET maintenance_work_mem = '2GB'; $2" \
		-c "$3" -c "$3" -c "$3" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -3 | sort -n | head -1)
	best[$1]=$t
	printf '%-58s %10.1f ms\n' "$1" "$t"
}
ratio() { awk -v n="$1" -v a="${best[$2]}" -v b="${best[$3]}" 'BEGIN { printf "%-58s %10.2f\n", n, a / b }'; }

echo "command: ROWS=$rows test/with-cluster bench/server/grouped.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -A -t -c 'SHOW server_version')"
# psql -c prints results too; counts keep them short
ms 'four sums' '' 'SELECT sum(a), sum(b), sum(c), sum(d) FROM points'
ms 'kmeans_step, columns' '' 'SELECT length(kmeans_step((SELECT m FROM model), a, b, c, d)::text) FROM points'
ms 'kmeans_step, array per row' '' 'SELECT length(kmeans_step((SELECT m FROM model), ARRAY[a, b, c, d])::text) FROM points'
ms 'kmeans_step, columns, 2 workers' 'SET max_parallel_workers_per_gather = 2' 'SELECT length(kmeans_step((SELECT m FROM model), a, b, c, d)::text) FROM points'
ms 'kmeans_step of the relation, 1 thread' 'SET gkmeans.workers = 0; SET gkmeans.threads = 1' "SELECT length(kmeans_step('points', '{a,b,c,d}', m)::text) FROM model"
ms 'kmeans_step of the relation' '' "SELECT length(kmeans_step('points', '{a,b,c,d}', m)::text) FROM model"
ms 'feature_sum, columns' '' 'SELECT feature_sum(a, b, c, d) FROM points'
ratio 'step of columns / four sums (target: at most 1.5)' 'kmeans_step, columns' 'four sums'
ratio 'step of the relation, 1 thread / four sums' 'kmeans_step of the relation, 1 thread' 'four sums'
ratio 'step of arrays / four sums (target: at most 3)' 'kmeans_step, array per row' 'four sums'

ms 'kmeans_agg, groups of 100' '' 'SELECT count((kmeans_info(m)).k) FROM (SELECT kmeans_agg(ARRAY[a, b, c, d], 3) AS m FROM points GROUP BY g) o'
ms 'kmeans_grouped, groups of 100' 'SET max_parallel_workers_per_gather = 2' "SELECT count(*) FROM kmeans_grouped('points', '{g}', '{a,b,c,d}', 3)"
ratio 'kmeans_agg / kmeans_grouped (target: at least 10)' 'kmeans_agg, groups of 100' 'kmeans_grouped, groups of 100'

sql <<-SQL
	SET client_min_messages = warning;
	CREATE TABLE indexed AS SELECT * FROM points;
	CREATE INDEX ON indexed (g);
	CREATE TABLE ordered AS SELECT * FROM points ORDER BY g;
	CREATE INDEX ON ordered (g);
	VACUUM ANALYZE indexed, ordered;
	CREATE VIEW by_setting_points AS SELECT * FROM points WHERE g = current_setting('bench.g')::int;
	CREATE VIEW by_setting_indexed AS SELECT * FROM indexed WHERE g = current_setting('bench.g')::int;
	CREATE VIEW by_setting_ordered AS SELECT * FROM ordered WHERE g = current_setting('bench.g')::int;
SQL
ms 'kmeans_agg, rows of a group together' '' 'SELECT count((kmeans_info(m)).k) FROM (SELECT kmeans_agg(ARRAY[a, b, c, d], 3) AS m FROM ordered GROUP BY g) o'

# per_group NAME AGG COUNT BEFORE RELATION AFTER: AGG is the line to compare with, %s the group's number
per_group() {
	local t
	t=$(sql -A -t -c 'SET client_min_messages = error; SET max_parallel_workers_per_gather = 0' -c '\timing on' -c "DO \$\$ BEGIN
		FOR i IN 1..$3 LOOP
			EXECUTE replace(\$x\$ $4 \$x\$, '%s', i::text);
			PERFORM count(*) FROM kmeans(replace('$5', '%s', i::text)::regclass, '{a,b,c,d}', 3);
			EXECUTE replace(\$x\$ $6 \$x\$, '%s', i::text);
			COMMIT;
		END LOOP; END \$\$" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -1)
	awk -v name="$1" -v t="$t" -v n="$3" -v agg="${best[$2]}" -v groups="$groups" \
		'BEGIN { printf "%-58s %10.3f ms: %.1f times that of kmeans_agg\n", name, t / n, t / n / agg * groups }'
}
few=$((groups < 500 ? groups : 500))
echo 'one kmeans() per group (target: at least 20 times the time of kmeans_agg)'
for on in ordered indexed; do
	agg='kmeans_agg, groups of 100' where="index, rows spread"
	[ $on = indexed ] || { agg='kmeans_agg, rows of a group together' where="index, rows together"; }
	per_group "temporary table of the group; $where" "$agg" $few \
		"CREATE TEMP TABLE one AS SELECT a, b, c, d FROM $on WHERE g = %s" one 'DROP TABLE one'
	per_group "view of the group; $where" "$agg" $few \
		"CREATE TEMP VIEW one AS SELECT a, b, c, d FROM $on WHERE g = %s" one 'DROP VIEW one'
	per_group "one view of a setting; $where" "$agg" $few "SET bench.g = %s" by_setting_$on 'SELECT'
done
per_group 'temporary table of the group; no index' 'kmeans_agg, groups of 100' 3 \
	'CREATE TEMP TABLE one AS SELECT a, b, c, d FROM points WHERE g = %s' one 'DROP TABLE one'
per_group 'one view of a setting; no index' 'kmeans_agg, groups of 100' 3 'SET bench.g = %s' by_setting_points 'SELECT'
# only the calls: the relations are there already
sql -c "DO \$\$ BEGIN FOR i IN 1..$few LOOP EXECUTE format('CREATE TABLE group_%s AS SELECT a, b, c, d FROM ordered WHERE g = %s', i, i); END LOOP; END \$\$" -c 'VACUUM ANALYZE'
per_group 'tables of the groups, made before' 'kmeans_agg, rows of a group together' $few SELECT group_%s SELECT
# without the loop: one statement that calls it for the same table
ms '1,000 calls of kmeans() on 100 points' 'SET client_min_messages = error' "SELECT count(x) FROM generate_series(1, 1000) i, LATERAL (SELECT count(*) AS x FROM kmeans('group_1', '{a,b,c,d}', 3, seed => i)) y"
awk -v one="${best[1,000 calls of kmeans() on 100 points]}" -v agg="${best[kmeans_agg, groups of 100]}" -v n="$groups" \
	'BEGIN { printf "%-58s %10.2f\n", "one of these calls / kmeans_agg", one / 1000 * n / agg }'
