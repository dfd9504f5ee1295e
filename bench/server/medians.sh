#!/usr/bin/env bash
# k-medians beside k-means, the same number of iterations: test/with-cluster bench/server/medians.sh
# ROWS= rows (default 1000000), ROUNDS= pairs (default 5)
#
# 4 features, k = 16, from the same centroids; iterate_ms of the models. Every round runs both sides once, one
# after the other. Medians of the rounds, and the median of the rounds' ratios.
set -euo pipefail

rows=${ROWS:-1000000} rounds=${ROUNDS:-5}

psql -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 <<SQL
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS gkmeans;
CREATE TABLE points AS SELECT (random() + i % 4)::real AS a, (random() * 2 + i % 3)::real AS b,
	(random() + i % 5)::real AS c, (random() * 3)::real AS d FROM generate_series(1, $rows) i;
VACUUM ANALYZE points;
SELECT array_agg(ARRAY[a, b, c, d]) AS start FROM (SELECT * FROM points LIMIT 16) p \gset
CREATE TABLE runs (round int, distance text, ms float8, iterations int);
$(for ((i = 0; i <= rounds; i++)); do for distance in euclidean manhattan; do
	echo "INSERT INTO runs SELECT $i, '$distance', i.iterate_ms, i.iterations FROM kmeans_info(kmeans_fit('points',
		'{a,b,c,d}', 16, centroids => :'start', max_iter => 20, tol => 0, distance => '$distance')) i;"
done; done)
SELECT '$rows x 4, k = 16,', max(iterations), 'iterations: euclidean',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY e.ms)::numeric, 1), 'ms, manhattan',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY m.ms)::numeric, 1), 'ms, ratio',
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY m.ms / e.ms)::numeric, 2)
FROM (SELECT round, ms, iterations FROM runs WHERE distance = 'euclidean' AND round > 0) e
JOIN (SELECT round, ms FROM runs WHERE distance = 'manhattan') m USING (round);
SQL
