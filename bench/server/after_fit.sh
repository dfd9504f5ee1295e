#!/usr/bin/env bash
# What follows a fit, each beside what it should cost: test/with-cluster bench/server/after_fit.sh
# ROWS= rows of the table (default 10000000), POINTS= points of 768 features for kmeans_nearest() (default 2000)
#
#   kmeans_update     over all rows, beside kmeans_step()
#   kmeans_nearest    10 of 1,000 clusters of 768 features, beside kmeans_predict()
#   kmeans_anomalies  of all rows, beside kmeans_labels() with the model; and how often it reads the table
#   kmeans_query      of two expressions, beside kmeans() of a view of them
#
# Every round runs both sides once, one after the other. Medians of the rounds, and the median
# of the rounds' ratios.
set -euo pipefail

rows=${ROWS:-10000000} points=${POINTS:-2000} rounds=${ROUNDS:-5}
here=$(cd "$(dirname "$0")/../.." && pwd)

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

# The small model is a constant; the text of the large one would take longer to read than the points
prelude="SET client_min_messages = error; SELECT model AS small FROM models WHERE name = 'small' \\gset"

# both NAME STATEMENT STATEMENT: times of the two in one session, after one more of each
both() {
	local name=$1
	{
		echo "$prelude"
		echo "$2"; echo "$3"
		echo '\timing on'
		for ((i = 0; i < rounds; i++)); do echo "$2"; echo "$3"; done
	} | sql | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | paste - - |
		awk '{ print $1 > "'"$times"'.a"; print $2 > "'"$times"'.b"; print $1 / $2 > "'"$times"'.r" }'
	printf '%-18s %12.1f %12.1f %8.2f\n' "$name" "$(median <"$times.a")" "$(median <"$times.b")" "$(median <"$times.r")"
}
times=$(mktemp)
trap 'rm -f "$times"*' EXIT

sql >/dev/null <<-SQL
	SET client_min_messages = error;
	CREATE EXTENSION gkmeans;
	SELECT setseed(0.5);
	CREATE TABLE items AS
	SELECT i AS id, (i % 10 + random())::real AS a, (i % 7 + random())::real AS b, random()::real AS c, random()::real AS d
	FROM generate_series(1, $rows) i;
	CREATE VIEW seen AS SELECT ln(a + 1) AS a, b * 2 AS b FROM items;
	CREATE TABLE points AS SELECT i AS id, array_agg(random()::real) AS e FROM generate_series(1, greatest($points, 1000)) i, generate_series(1, 768) j GROUP BY i;
	VACUUM ANALYZE items, points;
	CREATE TABLE models (name text, model kmeans_model);
	INSERT INTO models SELECT 'small', kmeans_fit('items', '{a,b,c,d}', 10, max_iter => 5);
	INSERT INTO models SELECT 'large', kmeans_fit('points', '{e}', 1000, init => 'random', max_iter => 2);
SQL

echo "command: ROWS=$rows POINTS=$points ROUNDS=$rounds test/with-cluster bench/server/after_fit.sh"
echo "commit:  $("$here/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "ms, medians of $rounds; ratio: median of the rounds'; $rows rows of 4 features; $points points of 768"
printf '%-18s %12s %12s %8s\n' '' 'it' 'the other' 'ratio'
both kmeans_update \
	"SELECT (kmeans_info(kmeans_update(:'small'::kmeans_model, a, b, c, d))).rows_used FROM items;" \
	"SELECT (kmeans_info(kmeans_step(:'small'::kmeans_model, a, b, c, d))).rows_used FROM items;"
both kmeans_nearest \
	"SELECT sum(n.cluster) FROM models, points, kmeans_nearest(model, e, 10) n WHERE name = 'large' AND id <= $points;" \
	"SELECT sum(kmeans_predict(model, e)) FROM models, points WHERE name = 'large' AND id <= $points;"
both kmeans_anomalies \
	"SELECT count(*) FROM kmeans_anomalies('items', :'small');" \
	"SELECT count(*) FROM kmeans_labels('items', :'small'::kmeans_model);"
both kmeans_query \
	"SELECT count(*) FROM kmeans_query('SELECT ln(a + 1) AS a, b * 2 AS b FROM items', 10, max_iter => 5);" \
	"SELECT count(*) FROM kmeans('seen', '{a,b}', 10, max_iter => 5);"
# threads and workers count their pages elsewhere
reads=$({
	echo "$prelude"
	echo 'SET gkmeans.workers = 0; SET gkmeans.threads = 1;'
	echo "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT count(*) FROM kmeans_anomalies('items', :'small');"
} | sql | awk -F: '/"Shared (Hit|Read) Blocks"/ && n++ < 2 { pages += $2 } END { print pages }')
echo "kmeans_anomalies reads $reads pages of a table of $(sql -c "SELECT relpages FROM pg_class WHERE relname = 'items'")"
