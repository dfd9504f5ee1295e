#!/usr/bin/env bash
# Times of the grouped-aggregate path, on a private server: test/with-cluster bench/grouped.sh
# ROWS=... rows of the table (default 10,000,000). Run it on an otherwise idle machine.
#
# Each query runs three times in one session, without parallel workers where the
# line does not say so; the best time counts. Windows are in window.sh.
set -euo pipefail

rows=${ROWS:-10000000}
groups=$((rows / 100))

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

sql -c "CREATE TABLE one AS SELECT a, b, c, d FROM points WHERE g = 7"
ms '1,000 calls of kmeans() on 100 points' 'SET client_min_messages = error' "SELECT count(x) FROM generate_series(1, 1000) i, LATERAL (SELECT count(*) AS x FROM kmeans('one', '{a,b,c,d}', 3, seed => i)) y"
awk -v one="${best[1,000 calls of kmeans() on 100 points]}" -v agg="${best[kmeans_agg, groups of 100]}" -v n="$groups" \
	'BEGIN { printf "%-58s %10.2f\n", "one kmeans() per group / kmeans_agg (target: at least 20)", one / 1000 * n / agg }'
