#!/usr/bin/env bash
# What writing labels costs beside a plain UPDATE: test/with-cluster bench/server/labels.sh
# ROWS=... rows of the table (default 10,000,000). Run it on an otherwise idle machine.
#
# Every round makes two new, equal tables and writes all rows of both: one by
# UPDATE t SET label = 1, one by kmeans(..., label_column) from given centroids, 20
# iterations. They take turns in being first. Then kmeans() again, which has nothing to
# write, and kmeans() without labels. No autovacuum meanwhile. Medians of the rounds.
set -euo pipefail

rows=${ROWS:-10000000} rounds=${ROUNDS:-3}
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
timed() { sql -c "SET client_min_messages = error; SET maintenance_work_mem = '8GB'" -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

fit="'t_fit', '{a,b,c,d}', 4, max_iter => 20, tol => 0, centroids => '{{0,0,0,0},{1,1,1,1},{0,1,0,1},{1,0,1,0}}'"
job() {
	case $1 in
	update) timed 'UPDATE t_update SET label = 1' ;;
	labels) timed "SELECT count(*) FROM kmeans($fit, label_column => 'label')" ;;
	again) timed "SELECT count(*) FROM kmeans($fit, label_column => 'label')" ;;
	kmeans) timed "SELECT count(*) FROM kmeans($fit)" ;;
	esac
}

sql -c 'CREATE EXTENSION gkmeans'
declare -A times=()
written=
for ((round = 0; round < rounds; round++)); do
	sql <<-SQL
		SET client_min_messages = warning;
		DROP TABLE IF EXISTS t_update, t_fit;
		CREATE TABLE t_update WITH (autovacuum_enabled = false) AS SELECT i AS id, random()::real AS a, random()::real AS b,
			random()::real AS c, random()::real AS d, -1 AS label FROM generate_series(1, $rows) i;
		CREATE TABLE t_fit WITH (autovacuum_enabled = false) AS TABLE t_update;
		VACUUM ANALYZE t_update, t_fit;
		CHECKPOINT;
	SQL
	order='update labels'
	[ $((round % 2)) -eq 0 ] || order='labels update'
	for name in $order; do
		times[$name]+="$(job "$name")"$'\n'
		sql -c CHECKPOINT
	done
	for name in again kmeans; do times[$name]+="$(job "$name")"$'\n'; done
	sleep 1 # statistics are on their way
	written=$(sql -c "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 't_fit'")
	[ "$written" -eq "$rows" ] || { echo "labels.sh: $written rows were written, not $rows" >&2; exit 1; }
done

echo "command: ROWS=$rows ROUNDS=$rounds test/with-cluster bench/server/labels.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "medians of $rounds in ms, $rows rows, all of them written once"
for name in update labels again kmeans; do times[$name]=$(printf %s "${times[$name]}" | median); done
awk -v u="${times[update]}" -v l="${times[labels]}" -v a="${times[again]}" -v k="${times[kmeans]}" 'BEGIN {
	printf "%-44s %9.1f\n", "UPDATE t SET label = 1", u
	printf "%-44s %9.1f  %.2f times the UPDATE\n", "kmeans() with label_column", l, l / u
	printf "%-44s %9.1f  no row written\n", "the same again", a
	printf "%-44s %9.1f\n", "kmeans() without label_column", k }'
