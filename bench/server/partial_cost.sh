#!/usr/bin/env bash
# What nulls => 'partial' costs beside k-means of complete rows: test/with-cluster bench/server/partial_cost.sh
# ROWS= rows (default 1000000), ROUNDS= rounds (default 5)
#
# 16 features, k = 16, from the same centroids; iterate_ms of the models on complete rows, by both ways, and on
# rows of which a third of the values is gone; load_ms of those likewise, and filled with the mean. Every round
# runs all sides once, one after the other. Medians of the rounds, and of the rounds' ratios.
set -euo pipefail

rows=${ROWS:-1000000} rounds=${ROUNDS:-5}
columns=$(seq -s, -f 'f%g' 16)

# side NAME TABLE NULLS: the runs of one side in a round
side() {
	echo "INSERT INTO runs SELECT $round, '$1', i.load_ms, i.iterate_ms, i.iterations FROM kmeans_info(kmeans_fit('$2',
		'{$columns}', 16, centroids => :'start', max_iter => 10, tol => 0, device => 'cpu', nulls => '$3')) i;"
}

psql -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 <<SQL
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS gkmeans;
CREATE TABLE whole AS SELECT $(for j in $(seq 16); do
	echo "(random() + i % $((j + 1)))::real AS f$j$([ "$j" = 16 ] || echo ,)"; done) FROM generate_series(1, $rows) i;
CREATE TABLE holes AS SELECT $(for j in $(seq 16); do
	echo "CASE WHEN random() > 0.33 THEN f$j END AS f$j$([ "$j" = 16 ] || echo ,)"; done) FROM whole;
VACUUM ANALYZE;
SELECT array_agg(ARRAY[$columns]) AS start FROM (SELECT * FROM whole LIMIT 16) p \gset
CREATE TABLE runs (round int, side text, load float8, iterate float8, iterations int);
$(for ((round = 0; round <= rounds; round++)); do
	side skip whole skip
	side partial whole partial
	side holes holes partial
	side mean holes mean
done)
SELECT '$rows x 16, k = 16,', max(iterations), 'iterations', s.side, 'load',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s.load)::numeric, 1), 'ms, iterate',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s.iterate)::numeric, 1), 'ms, ratios to skip',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s.load / e.load)::numeric, 2),
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s.iterate / e.iterate)::numeric, 2)
FROM runs s JOIN (SELECT round, load, iterate FROM runs WHERE side = 'skip') e USING (round)
WHERE s.round > 0 GROUP BY s.side ORDER BY array_position(ARRAY['skip', 'partial', 'holes', 'mean'], s.side);
SQL
