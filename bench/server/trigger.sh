#!/usr/bin/env bash
# What the label of a new row costs by a trigger that reads the model from a table, and by a
# generated column with the model as a constant: test/with-cluster bench/server/trigger.sh
# K=, D= clusters and features of the model (default 100 and 768). BATCH= rows of one INSERT,
# SINGLES= single ones in each session.
#
# Every round does each INSERT once: BATCH rows in one statement, and single rows in
# transactions of their own. Medians of the rounds; the table without labels is the floor.
set -euo pipefail

k=${K:-100} d=${D:-768} rows=${BATCH:-1000} rounds=${ROUNDS:-5} singles=${SINGLES:-50}
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
# inserts TABLE STATEMENTS ROWS: the median time of these INSERTs in one session, in ms a row, after one more
inserts() {
	{
		echo "\\timing on"
		for ((i = 0; i <= $2; i++)); do echo "INSERT INTO $1 SELECT id, e FROM points WHERE id <= $3;"; done
	} | sql | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n +2 | median | awk -v rows="$3" '{ print $1 / rows }'
}

sql >/dev/null <<-SQL
	SET client_min_messages = error;
	CREATE EXTENSION gkmeans;
	SELECT setseed(0.5);
	CREATE TABLE points AS SELECT i AS id, array_agg(random()::real) AS e FROM generate_series(1, greatest($rows, $k)) i, generate_series(1, $d) j GROUP BY i;
	ALTER TABLE points ADD PRIMARY KEY (id);
	VACUUM ANALYZE points;
	CREATE TABLE models (name text PRIMARY KEY, model kmeans_model);
	INSERT INTO models SELECT 'points', kmeans_fit('points', '{e}', $k, init => 'random', max_iter => 2);
	CREATE TABLE plain (id int, e real[], list int);
	CREATE TABLE by_trigger (LIKE plain);
	CREATE FUNCTION label() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		NEW.list := kmeans_predict((SELECT model FROM models WHERE name = 'points'), NEW.e);
		RETURN NEW;
	END \$\$;
	CREATE TRIGGER label BEFORE INSERT ON by_trigger FOR EACH ROW EXECUTE FUNCTION label();
	SELECT model FROM models \\gset
	CREATE TABLE generated (id int, e real[], list int GENERATED ALWAYS AS (kmeans_predict(:'model'::kmeans_model, e)) STORED);
SQL

declare -A many=() one=()
for ((round = 0; round < rounds; round++)); do
	for table in plain by_trigger generated; do
		sql -c "TRUNCATE $table"
		many[$table]+="$(inserts $table 1 "$rows")"$'\n'
		one[$table]+="$(inserts $table "$singles" 1)"$'\n'
	done
done
different=$(sql -c "SELECT count(*) FROM by_trigger, models WHERE list IS DISTINCT FROM kmeans_predict(model, e)")
[ "$different" -eq 0 ] || { echo "trigger.sh: $different labels are wrong" >&2; exit 1; }

echo "command: K=$k D=$d BATCH=$rows ROUNDS=$rounds test/with-cluster bench/server/trigger.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "ms a row, medians of $rounds; a model of $k x $d, $(sql -c 'SELECT length(model::text) FROM models') characters as text"
printf '%-44s %16s %16s\n' '' "$rows in one INSERT" 'an INSERT each'
for table in plain by_trigger generated; do
	printf '%-44s %16.3f %16.3f\n' "$table" "$(printf %s "${many[$table]}" | median)" "$(printf %s "${one[$table]}" | median)"
done
