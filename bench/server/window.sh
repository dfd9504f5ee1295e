#!/usr/bin/env bash
# The window form beside what any window costs, and beside PostGIS, on a private server:
# test/with-cluster bench/server/window.sh
# ROWS=... (default 10,000,000) in 1,000 partitions, POINTS=... (default 1,000,000) for
# PostGIS (five overlapping normal clusters), which is left out where it is not installed. Run it on an otherwise idle machine.
#
# One process without parallel workers; THREADS=... (default 1) are the engine's. Each
# round runs every query in a session of its own, twice, so that a busy moment hits all of
# them; medians of ROUNDS=... (default 3), after one round more. The second run counts; the
# first one, "new session", also loads libraries and maps the buffers. The floor is row_number(), for which the
# server sorts numbers; sum() of one feature is what any function costs for which it
# sorts rows and goes back to the start of a partition. kmeans() has a plan node of its own,
# KmeansWindow, which does neither; "by WindowAgg" is without it (gkmeans.enable_window_scan),
# as every other window function is executed. Where the query wants a further column, the
# node, too, has to keep rows.
#
# Beside PostGIS a point is a stored value of one column on both sides: a geometry, a
# float8[]. What WindowAgg costs is count(point): what is left is the functions' own.
# PostGIS iterates until nothing moves, so kmeans() is timed with tol => 0, too.
set -euo pipefail

rows=${ROWS:-10000000} points=${POINTS:-1000000} rounds=${ROUNDS:-3} threads=${THREADS:-1}
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

sql <<-SQL
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	SELECT setseed(0.5);
	CREATE TABLE points AS SELECT i % 1000 AS p, (i / 1000 % 3 * 5 + random())::real AS a, random()::real AS b
		FROM generate_series(0, $rows - 1) i;
	VACUUM ANALYZE points;
SQL
postgis=
if sql -c "SELECT 1 FROM pg_available_extensions WHERE name = 'postgis'" | grep -q 1; then
	postgis=$(sql -c "CREATE EXTENSION postgis; SELECT extversion FROM pg_extension WHERE extname = 'postgis'" 2>/dev/null)
	sql <<-SQL >/dev/null
		SELECT setseed(0.5);
		CREATE TABLE plane AS SELECT x, y, ST_MakePoint(x, y) AS geom FROM
			(SELECT 3 * cos(i % 5 * 0.4 * pi()) + r * cos(w) AS x, 3 * sin(i % 5 * 0.4 * pi()) + r * sin(w) AS y FROM
			(SELECT i, sqrt(-2 * ln(1 - random())) AS r, 2 * pi() * random() AS w FROM generate_series(1, $points) i) n) o;
		CREATE TABLE plane_geom AS SELECT geom FROM plane;
		CREATE TABLE plane_array AS SELECT ARRAY[x, y] AS point FROM plane;
		VACUUM ANALYZE plane, plane_geom, plane_array;
	SQL
fi

settings="SET gkmeans.threads = $threads; SET client_min_messages = error; SET work_mem = '1GB'; SET maintenance_work_mem = '1GB'
	; SET max_parallel_workers_per_gather = 0; SET gkmeans.workers = 0; SET gkmeans.device = cpu"
off='SET gkmeans.enable_window_scan = off'
declare -A before=([windowagg]=$off [giswindowagg]=$off) query=(
	[floor]='SELECT count(r) FROM (SELECT row_number() OVER (PARTITION BY p) AS r FROM points) o'
	[sum]='SELECT count(r) FROM (SELECT sum(a) OVER (PARTITION BY p) AS r FROM points) o'
	[window]='SELECT count(r) FROM (SELECT kmeans(ARRAY[a, b], 3) OVER (PARTITION BY p) AS r FROM points) o'
	[keptfloor]='SELECT count(r), count(b) FROM (SELECT b, row_number() OVER (PARTITION BY p) AS r FROM points) o'
	[kept]='SELECT count(r), count(b) FROM (SELECT b, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY p) AS r FROM points) o'
	[gisfloor]='SELECT count(r) FROM (SELECT count(point) OVER () AS r FROM plane_array) o'
	[gis]='SELECT count(r) FROM (SELECT ST_ClusterKMeans(geom, 5) OVER () AS r FROM plane_geom) o'
	[giswindow]='SELECT count(r) FROM (SELECT kmeans(point, 5) OVER () AS r FROM plane_array) o'
	[gisbuilt]='SELECT count(r) FROM (SELECT kmeans(ARRAY[x, y], 5) OVER () AS r FROM plane) o'
	[giskmeans]="SELECT count(*) FROM kmeans('plane', '{x,y}', 5)"
	[gisexact]="SELECT count(*) FROM kmeans('plane', '{x,y}', 5, tol => 0)"
)
query[windowagg]=${query[window]} query[giswindowagg]=${query[giswindow]}
declare -A t=() new=()
names=(floor sum window windowagg keptfloor kept ${postgis:+gisfloor gis giswindow giswindowagg gisbuilt giskmeans gisexact})
for ((round = 0; round <= rounds; round++)); do
	for name in "${names[@]}"; do
		ms=$(sql -c "$settings" -c "${before[$name]-}" -c '\timing on' -c "${query[$name]}" -c "${query[$name]}" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p')
		[ "$round" -eq 0 ] || { new[$name]+="${ms%%$'\n'*}"$'\n' t[$name]+="${ms##*$'\n'}"$'\n'; }
	done
done
for name in "${names[@]}"; do
	t[$name]=$(printf %s "${t[$name]}" | median)
	t[$name new]=$(printf %s "${new[$name]}" | median)
done

line() { printf '%-62s %10.1f ms\n' "$1" "${t[$2]}"; }
ratio() { awk -v n="$1" -v a="${t[$2]}" -v b="${t[$3]}" 'BEGIN { printf "%-62s %10.2f\n", n, a / b }'; }
# sum of squared distances to the means of the labelled points
inertia() {
	sql -c "$settings" -c "WITH l AS MATERIALIZED (SELECT $1 OVER () AS l, x, y FROM plane),
			m AS (SELECT l, avg(x) AS mx, avg(y) AS my FROM l GROUP BY l)
		SELECT sum((x - mx) ^ 2 + (y - my) ^ 2) FROM l JOIN m USING (l)"
}
echo "command: ROWS=$rows POINTS=$points ROUNDS=$rounds THREADS=$threads test/with-cluster bench/server/window.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "$rows rows in 1,000 partitions, 2-D, k = 3"
line 'row_number(): the floor' floor
line 'sum() of one feature' sum
line 'kmeans() of two real columns' window
line 'kmeans() by WindowAgg' windowagg
line 'row_number() and a further column' keptfloor
line 'kmeans() and a further column' kept
ratio 'kmeans / row_number (target: at most 2.5)' window floor
ratio 'the same with a further column' kept keptfloor
ratio 'kmeans / sum' window sum
ratio 'kmeans by WindowAgg / row_number' windowagg floor
ratio 'kmeans by WindowAgg / sum' windowagg sum
if [ -z "$postgis" ]; then
	echo 'PostGIS: left out, it is not installed (Debian: apt-get install postgresql-15-postgis-3)'
	exit
fi
echo "PostGIS $postgis: $points points, 2-D, k = 5, one partition"
line 'ST_ClusterKMeans' gis
line 'count() as a window function: what WindowAgg costs' gisfloor
line 'kmeans() as a window function, stored float8[]' giswindow
line 'the same by WindowAgg' giswindowagg
line 'kmeans() as a window function, ARRAY[x, y] made for each row' gisbuilt
line 'kmeans() on the table' giskmeans
line 'kmeans() on the table, tol => 0: until nothing moves' gisexact
ratio 'ST_ClusterKMeans / window form (target: at least 3)' gis giswindow
ratio 'ST_ClusterKMeans / count(): the most that WindowAgg can reach' gis gisfloor
ratio 'ST_ClusterKMeans / window form by WindowAgg' gis giswindowagg
awk -v n='the same, without what WindowAgg costs' -v a="${t[gis]}" -v b="${t[giswindowagg]}" -v f="${t[gisfloor]}" \
	'BEGIN { printf "%-62s %10.2f\n", n, (a - f) / (b - f) }'
ratio 'ST_ClusterKMeans / kmeans() (target: at least 15)' gis giskmeans
ratio 'ST_ClusterKMeans / kmeans(), tol => 0' gis gisexact
line 'new session: ST_ClusterKMeans' 'gis new'
line 'new session: kmeans() as a window function, stored float8[]' 'giswindow new'
line 'new session: kmeans() on the table' 'giskmeans new'
ratio 'new session: ST_ClusterKMeans / window form' 'gis new' 'giswindow new'
ratio 'new session: ST_ClusterKMeans / kmeans()' 'gis new' 'giskmeans new'
printf 'inertia, in order: ST_ClusterKMeans, window form, kmeans(), kmeans() with tol => 0\n'
inertia 'ST_ClusterKMeans(geom, 5)'
inertia 'kmeans(ARRAY[x, y], 5)'
sql -c "$settings" -c "SELECT sum(inertia) FROM kmeans('plane', '{x,y}', 5)"
sql -c "$settings" -c "SELECT sum(inertia) FROM kmeans('plane', '{x,y}', 5, tol => 0)"
