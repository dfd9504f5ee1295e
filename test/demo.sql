-- What gkmeans does, shown on two real data sets. make demo runs this on a private
-- server; psql -f test/demo.sql, from the top of the tree, runs it on yours (it makes
-- the tables flights and penguins in the schema gkmeans_demo and drops them again).
\set ON_ERROR_STOP on
\set QUIET on
\pset pager off
\pset footer off
\pset border 1
\pset linestyle unicode
\pset null '-'
\encoding UTF8

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS gkmeans;
DROP SCHEMA IF EXISTS gkmeans_demo CASCADE;
CREATE SCHEMA gkmeans_demo;
SELECT set_config('search_path', 'gkmeans_demo, ' || current_setting('search_path'), false) \g /dev/null

CREATE TABLE flights (
    month int, day int, carrier text, origin text, dest text,
    dep_delay int, arr_delay int, air_time int, distance int, hour int
);
CREATE TABLE penguins (
    species text, island text, bill_length_mm float8, bill_depth_mm float8,
    flipper_length_mm float8, body_mass_g float8, sex text, year int
);
\copy flights FROM PROGRAM 'gzip -dc test/data/flights.csv.gz' (FORMAT csv, HEADER)
\copy penguins FROM 'test/data/penguins.csv' (FORMAT csv, HEADER)
ANALYZE flights, penguins;
SET client_min_messages = notice;

\echo
\echo '━━━ 1. Every flight that left New York in 2013: 336,776 rows ━━━━━━━━━━━━━━━━━━━━━━━'
\echo
\echo '  SELECT * FROM kmeans(''flights'', ''{dep_delay,arr_delay,air_time,distance}'', 8,'
\echo '                       standardize => true);'
\echo
\timing on
CREATE TEMP TABLE result AS
SELECT * FROM kmeans('flights', '{dep_delay,arr_delay,air_time,distance}', 8, standardize => true);
\timing off
\echo
SELECT cluster, size AS flights,
       round(centroid[1]) AS "dep. delay", round(centroid[2]) AS "arr. delay",
       round(centroid[3]) AS "min in air", round(centroid[4]) AS miles,
       repeat('█', greatest(1, round(30.0 * size / max(size) OVER ())::int)) AS "size"
FROM result ORDER BY cluster;

\echo 'A model is a value: kept in a table, asked later.'
\echo
\echo '  CREATE TABLE model AS SELECT kmeans_fit(''flights'', ..., 8, standardize => true) AS m;'
\echo '  SELECT (kmeans_info(m)).* FROM model;'
\echo
SET client_min_messages = warning;
CREATE TEMP TABLE model AS
SELECT kmeans_fit('flights', '{dep_delay,arr_delay,air_time,distance}', 8, standardize => true) AS m;
\pset expanded on
SELECT rows_used, rows_skipped, iterations, converged, device, strategy,
       round(load_ms::numeric, 1) AS load_ms, round(seed_ms::numeric, 1) AS seed_ms,
       round(iterate_ms::numeric, 1) AS iterate_ms, round(total_ms::numeric, 1) AS total_ms
FROM model, kmeans_info(m);
\pset expanded off
\echo

\echo 'Who flies late? Share of each airline''s flights in the clusters more than an hour late,'
\echo 'by kmeans_predict(m, dep_delay, arr_delay, air_time, distance):'
\echo
WITH late AS (
    SELECT cluster FROM model, kmeans_centroids(m) WHERE centroid[2] > 60
), labelled AS MATERIALIZED (
    SELECT carrier, kmeans_predict(m, dep_delay, arr_delay, air_time, distance) AS cluster
    FROM flights, model
), share AS (
    SELECT carrier, count(*) AS flights,
           100.0 * count(*) FILTER (WHERE cluster IN (SELECT cluster FROM late)) / count(*) AS pct
    FROM labelled WHERE cluster IS NOT NULL GROUP BY carrier HAVING count(*) > 1000
)
SELECT carrier, flights, round(pct, 1) AS "% late", repeat('█', round(pct * 2)::int) AS " "
FROM share ORDER BY pct DESC;

\echo '━━━ 2. 344 penguins, measured on three islands ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━'
\echo
\echo '  SELECT * FROM kmeans(''penguins'','
\echo '      ''{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}'', 3,'
\echo '      label_column => ''cluster'', standardize => true);'
\echo
SET client_min_messages = notice;
CREATE TEMP TABLE penguin_result AS
SELECT * FROM kmeans('penguins', '{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}', 3,
                     label_column => 'cluster', standardize => true);
SET client_min_messages = warning;
\echo
SELECT cluster, size AS penguins,
       round(centroid[1]::numeric, 1) AS "bill length", round(centroid[2]::numeric, 1) AS "bill depth",
       round(centroid[3]::numeric, 1) AS flipper, round(centroid[4]) AS "mass, g"
FROM penguin_result ORDER BY cluster;

\echo 'The species were not told, and are found (rows: truth, columns: cluster):'
\echo
SELECT species, count(*) FILTER (WHERE cluster = 0) AS "0", count(*) FILTER (WHERE cluster = 1) AS "1",
       count(*) FILTER (WHERE cluster = 2) AS "2", count(*) FILTER (WHERE cluster IS NULL) AS "not measured"
FROM penguins GROUP BY species ORDER BY species;

\echo 'Bill length (right) and flipper length (up); the digit is the cluster:'
\echo
\pset tuples_only on
\pset border 0
WITH binned AS (
    SELECT floor((flipper_length_mm - 172) / 3)::int AS y, floor((bill_length_mm - 31) / 0.45)::int AS x,
           mode() WITHIN GROUP (ORDER BY cluster)::text AS digit
    FROM penguins GROUP BY 1, 2
), lines AS (
    SELECT y, lpad(CASE WHEN y % 5 = 0 THEN (172 + 3 * y)::text ELSE '' END, 4) || ' │'
              || string_agg(coalesce(digit, ' '), '' ORDER BY x) AS line
    FROM generate_series(0, 20) y CROSS JOIN generate_series(0, 64) x LEFT JOIN binned USING (x, y)
    GROUP BY y
    UNION ALL VALUES (-1, '     └' || repeat('─', 65)), (-2, '      31 mm          38             45             51             58')
)
SELECT line FROM lines ORDER BY y DESC;
\pset tuples_only off
\pset border 1

\echo 'Some of the labels, as they now stand in the table:'
\echo
SELECT species, island, bill_length_mm AS bill, flipper_length_mm AS flipper, body_mass_g AS mass, cluster
FROM (SELECT *, row_number() OVER (PARTITION BY species ORDER BY bill_length_mm) AS nth FROM penguins) p
WHERE nth IN (20, 40, 60) ORDER BY species, bill_length_mm;

\echo '━━━ 3. Pictures, and how many clusters? ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━'
\echo
SELECT k, round(inertia) AS inertia, round(silhouette::numeric, 3) AS silhouette,
       repeat('█', round(60 * silhouette)::int) AS " ", coalesce(suggested, '') AS suggested
FROM kmeans_scan('penguins', '{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}', 2, 8,
                 standardize => true, n_init => 10);
\! mkdir -p build
\pset format unaligned
\pset tuples_only on
SELECT kmeans_svg(kmeans_fit('penguins', '{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}', 3, standardize => true),
                  'penguins', 'bill_length_mm', 'flipper_length_mm', title => 'Penguins') \g build/penguins.svg
SELECT kmeans_scan_svg('penguins', '{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}', 2, 12,
                       standardize => true, n_init => 10) \g build/penguins_scan.svg
\pset tuples_only off
\pset format aligned
\echo 'To open in a browser: build/penguins.svg (kmeans_svg) and build/penguins_scan.svg (kmeans_scan_svg)'
\echo

\echo 'What computes here (gkmeans.device = auto takes the GPU for jobs that gain from it):'
\echo
SELECT * FROM gkmeans_devices();

SET client_min_messages = warning;
DROP SCHEMA gkmeans_demo CASCADE;
