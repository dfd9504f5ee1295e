#!/usr/bin/env bash
# What kmeans_scan() costs beside the same fits one by one, on a private server:
# test/with-cluster bench/server/scan.sh
# Run it on an otherwise idle machine; THREADS=... (default 1), ROUNDS=... (default 5).
#
# The table is the flights of test/data, four features, k = 2 to 20. Each round runs
# the fits and the scans in turn, so that a busy moment hits all of them; medians.
# fits: seeding and iterations of 19 calls of kmeans_fit(); load: the shortest of
# their loads, as one read is needed. The silhouettes: kmeans_evaluate() of a sample.
set -euo pipefail

threads=${THREADS:-1} rounds=${ROUNDS:-5}
here=$(cd "$(dirname "$0")/../.." && pwd)
columns='{dep_delay,arr_delay,air_time,distance}'

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

sql <<-SQL
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	CREATE TABLE flights (month int, day int, carrier text, origin text, dest text, dep_delay float8,
		arr_delay float8, air_time float8, distance float8, hour int);
SQL
gzip -dc "$here/test/data/flights.csv.gz" | sql -c '\copy flights FROM stdin (FORMAT csv, HEADER)'
sql -c 'VACUUM ANALYZE flights'

settings="SET gkmeans.threads = $threads; SET client_min_messages = error; SET maintenance_work_mem = '1GB'; SET gkmeans.device = cpu"
fits() {
	sql -F ' ' -c "$settings" -c "SELECT min(load_ms), sum(seed_ms), sum(iterate_ms), sum(iterations)
		FROM (SELECT (kmeans_info(m)).* FROM
			(SELECT kmeans_fit('flights', '$columns', k) AS m FROM generate_series(2, 20) k OFFSET 0) f OFFSET 0) i"
}
elapsed() { sql -c "$settings" -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }

declare -A t=()
iterations=
for ((round = 0; round <= rounds; round++)); do
	read -r load seed iterate iterations <<<"$(fits)"
	scan=$(elapsed "SELECT count(*) FROM kmeans_scan('flights', '$columns', 2, 20)")
	plain=$(elapsed "SELECT count(*) FROM kmeans_scan('flights', '$columns', 2, 20, sample => 0)")
	[ "$round" -eq 0 ] && continue # warms up
	for name in load seed iterate scan plain; do t[$name]+="${!name}"$'\n'; done
done
for name in "${!t[@]}"; do t[$name]=$(printf %s "${t[$name]}" | median); done
sql -c "CREATE TABLE model AS SELECT kmeans_fit('flights', '$columns', 8) AS m" 2>/dev/null
for rows in 0 20000 100000; do
	t[s$rows]=$(elapsed "SELECT silhouette FROM model, kmeans_evaluate(m, 'flights', $rows)")
done

echo "command: THREADS=$threads ROUNDS=$rounds test/with-cluster bench/server/scan.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "medians of $rounds in ms; 327,346 rows, 4 features, k = 2 to 20, $iterations iterations"
awk -v load="${t[load]}" -v seed="${t[seed]}" -v it="${t[iterate]}" -v scan="${t[scan]}" -v plain="${t[plain]}" \
	-v s0="${t[s0]}" -v s1="${t[s20000]}" -v s2="${t[s100000]}" 'BEGIN {
	f = "%-56s %9.1f\n"; r = "%-56s %9.2f\n"
	printf f, "fits: iterations", it
	printf f, "fits: seeding", seed
	printf f, "one load", load
	printf f, "kmeans_scan", scan
	printf f, "kmeans_scan without a silhouette sample", plain
	printf r, "kmeans_scan / (fits + one load) (target: at most 1.2)", scan / (it + seed + load)
	printf r, "kmeans_scan / (iterations alone + one load)", scan / (it + load)
	printf f, "kmeans_evaluate, k = 8, without a sample", s0
	printf f, "kmeans_evaluate, sample of 20,000", s1
	printf f, "kmeans_evaluate, sample of 100,000", s2
}'
