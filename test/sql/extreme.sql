-- Features near the ends of double precision: one rule for an inertia that has no number, and
-- pictures without NaN or infinity

\set VERBOSITY terse

CREATE TABLE ex_huge AS SELECT i AS id, i % 2 AS g, i % 7 * 1e155 + i * 1e150 AS x, i % 3 * 1e155::float8 AS y FROM generate_series(1, 50) i;
CREATE TABLE ex_small AS SELECT i AS id, (i % 7)::float8 AS x, (i % 3)::float8 AS y FROM generate_series(1, 50) i;
CREATE TABLE ex_model AS SELECT kmeans_fit('ex_small', '{x,y}', 3) AS m;

-- the same error from all
SELECT cluster, inertia FROM kmeans('ex_huge', '{x,y}', 3);
SELECT kmeans_fit('ex_huge', '{x,y}', 3) IS NULL;
SELECT count(*) FROM kmeans_labels('ex_huge', '{x,y}', 3);
SELECT kmeans_agg(ARRAY[x, y], 3) IS NULL FROM ex_huge;
SELECT cluster, inertia FROM kmeans_grouped('ex_huge', '{g}', '{x,y}', 3);
SELECT k, inertia FROM kmeans_scan('ex_huge', '{x,y}', 1, 5);
SELECT kmeans_scan_svg('ex_huge', '{x,y}', 1, 5) IS NULL;
SELECT count(*) FROM (SELECT kmeans(ARRAY[x, y], 3) OVER () AS c FROM ex_huge) o WHERE c = 0;
SET gkmeans.enable_window_scan = off;
SELECT count(*) FROM (SELECT kmeans(ARRAY[x, y], 3) OVER () AS c FROM ex_huge) o WHERE c = 0;
RESET gkmeans.enable_window_scan;
SET gkmeans.strategy = scan;
SELECT cluster, inertia FROM kmeans('ex_huge', '{x,y}', 3);
RESET gkmeans.strategy;
-- a model of which a part is far, and rows that are far from a model
CREATE TABLE ex_far AS SELECT x * 1e155 AS x, y FROM ex_small;
SELECT inertia FROM kmeans_evaluate((SELECT m FROM ex_model), 'ex_far');
SELECT kmeans_finish(kmeans_step('ex_far', '{x,y}', m)) IS NULL FROM ex_model;
-- a model whose inertia is 0, and rows between its centroids
CREATE TABLE ex_two AS SELECT x FROM (VALUES (0::float8), (1e160)) AS t(x);
CREATE TABLE ex_between AS SELECT 0.3e160::float8 AS x;
SELECT inertia FROM kmeans_evaluate((SELECT kmeans_fit('ex_two', '{x}', 2)), 'ex_between');
SELECT kmeans_finish(kmeans_step('ex_between', '{x}', kmeans_fit('ex_two', '{x}', 2))) IS NULL;
SELECT kmeans_finish(kmeans_step_partial(m, x)) IS NULL FROM ex_between, (SELECT kmeans_fit('ex_two', '{x}', 2) AS m OFFSET 0) o;
SELECT kmeans_step(m, x) IS NULL FROM ex_between, (SELECT kmeans_fit('ex_two', '{x}', 2) AS m OFFSET 0) o;
-- with standardize the inertia is that of the standardized columns
SELECT cluster, size, inertia < 'infinity' AS finite FROM kmeans('ex_huge', '{x,y}', 3, standardize => true);
SELECT (kmeans_info(kmeans_fit('ex_huge', '{x,y}', 50))).inertia;

-- pictures
CREATE FUNCTION ex_numbers(svg text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN svg ~ 'NaN|Infinity' THEN 'not numbers' ELSE 'numbers' END
$$;
CREATE TABLE ex_ends (x float8, y float8, z float8);
CREATE FUNCTION ex_pictures(columns text[]) RETURNS TABLE (rows text, model text, scan text) LANGUAGE plpgsql AS $$
DECLARE
    row_set text;
BEGIN
    FOREACH row_set IN ARRAY ARRAY[
        '(1.7e308, -1.7e308, 1.7e308), (-1.7e308, 1.7e308, -1.7e308)',
        '(1e154, -1e154, 0), (-1e153, 1e153, 1), (0, 0, 0), (1, 2, 3)',
        '(5e-324, 0, 0), (1e-323, 5e-324, 0), (0, 0, 5e-324), (0, 1e-323, 1.5e-323)',
        '(1e-300, 3e-300, 0), (2e-300, 0, 1e-300), (0, 0, 0)',
        '(1e300, 1e300, 1), (1e300, 1e300, 2), (1e300, 1e300, 3)',
        '(1e300, 1e-300, 1), (1e300, 2e-300, 2), (1e300, 0, 3)',
        '(1, 1, 1), (1, 1, 1)',
        '(0, 0, 0), (0, 0, 0)']
    LOOP
        TRUNCATE ex_ends;
        EXECUTE 'INSERT INTO ex_ends VALUES ' || row_set;
        rows := row_set;
        BEGIN
            model := ex_numbers(kmeans_svg(kmeans_fit('ex_ends', columns, 2), 'ex_ends'));
        EXCEPTION WHEN numeric_value_out_of_range THEN model := SQLSTATE;
        END;
        BEGIN
            scan := ex_numbers(kmeans_scan_svg('ex_ends', columns, 1, 3));
        EXCEPTION WHEN numeric_value_out_of_range THEN scan := SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
SET client_min_messages = warning;
SELECT * FROM ex_pictures('{x}');
SELECT * FROM ex_pictures('{x,y}');
SELECT * FROM ex_pictures('{x,y,z}');
SELECT ex_numbers(kmeans_svg(m, 'ex_huge')), ex_numbers(kmeans_svg(m, 'ex_far')) FROM ex_model;
TRUNCATE ex_ends;
INSERT INTO ex_ends VALUES (1.7e308, -1.7e308, 1.7e308), (-1.7e308, 1.7e308, -1.7e308), (1, 2, 3);
SELECT ex_numbers(kmeans_svg(kmeans_fit('ex_ends', '{x,y,z}', 2, distance => 'cosine'), 'ex_ends'));
RESET client_min_messages;

DROP FUNCTION ex_pictures, ex_numbers;
DROP TABLE ex_two, ex_between, ex_huge, ex_small, ex_model, ex_far, ex_ends;

-- numeric out of the range of float8 is infinite, or 0, on every road: nonfinite decides, and an error names the row
\set VERBOSITY default
CREATE DOMAIN ex_exact AS numeric;
CREATE DOMAIN ex_list AS numeric[];
CREATE TABLE ex_numeric (id int, g int, n numeric, m ex_exact, p numeric[], q ex_list);
INSERT INTO ex_numeric SELECT i, i % 2, v, v, ARRAY[i, v], ARRAY[i, v]
FROM unnest('{1,2,1e-400,4,-1e-400,1e400,7,-1e400,9}'::numeric[]) WITH ORDINALITY o (v, i);
CREATE VIEW ex_view AS SELECT id, g, n + 0 AS n, p || '{}' AS p FROM ex_numeric;
SELECT * FROM kmeans('ex_numeric', '{id,n}', 2);
SELECT * FROM kmeans('ex_numeric', '{m}', 2);
SELECT * FROM kmeans('ex_numeric', '{p}', 2);
SELECT * FROM kmeans('ex_numeric', '{q}', 2);
SELECT * FROM kmeans('ex_view', '{n}', 2);
SELECT * FROM kmeans('ex_view', '{p}', 2);
SELECT * FROM kmeans_query('SELECT n, id FROM ex_numeric ORDER BY id DESC', 2);
SELECT * FROM kmeans_grouped('ex_numeric', '{g}', '{n}', 2);
SELECT * FROM kmeans_grouped('ex_view', '{g}', '{p}', 2);
SELECT * FROM kmeans_labels('ex_numeric', '{n}', 2);
SELECT * FROM kmeans('ex_numeric', '{id}', 2, weight_column => 'n');
SELECT * FROM kmeans_mixed('ex_numeric', '{n}', 2);
SELECT * FROM kmeans_spectral_fit('ex_numeric', '{n}', 2);
SELECT kmeans_agg(n, 2) FROM ex_numeric;
SELECT kmeans_fit('ex_numeric', '{id,n}', 2, nonfinite => 'skip') AS m \gset
SELECT * FROM kmeans_labels('ex_numeric', :'m');
SELECT kmeans_step('ex_numeric', '{id,n}', :'m'::kmeans_model);
\set VERBOSITY terse
SET client_min_messages = warning;
SELECT what, rows_used, rows_skipped, (SELECT array_agg(centroid[cardinality(centroid)] ORDER BY cluster) FROM kmeans_centroids(m)) AS centroids
FROM (VALUES
    ('column', kmeans_fit('ex_numeric', '{n}', 2, nonfinite => 'skip')),
    ('domain', kmeans_fit('ex_numeric', '{m}', 2, nonfinite => 'skip')),
    ('array', kmeans_fit('ex_numeric', '{p}', 2, nonfinite => 'skip')),
    ('domain of arrays', kmeans_fit('ex_numeric', '{q}', 2, nonfinite => 'skip')),
    ('view', kmeans_fit('ex_view', '{n}', 2, nonfinite => 'skip')),
    ('array of a view', kmeans_fit('ex_view', '{p}', 2, nonfinite => 'skip')),
    ('query', kmeans_query_fit('SELECT n FROM ex_numeric', 2, nonfinite => 'skip')),
    ('mean', kmeans_fit('ex_numeric', '{n}', 2, nonfinite => 'skip', nulls => 'mean')),
    ('array, mean', kmeans_fit('ex_numeric', '{p}', 2, nonfinite => 'skip', nulls => 'mean')),
    ('aggregate', (SELECT kmeans_agg(n, 2, kmeans_options(nonfinite => 'skip')) FROM ex_numeric)),
    ('aggregate of arrays', (SELECT kmeans_agg(p, 2, kmeans_options(nonfinite => 'skip')) FROM ex_numeric))) f (what, m), kmeans_info(m);
SELECT grp, cluster, size, centroid FROM kmeans_grouped('ex_numeric', '{g}', '{n}', 2, nonfinite => 'skip') ORDER BY 1, 2;
SELECT grp, cluster, size, centroid FROM kmeans_grouped('ex_view', '{g}', '{p}', 2, nonfinite => 'skip') ORDER BY 1, 2;
SELECT id, l.cluster, kmeans_predict(:'m'::kmeans_model, id, n) = l.cluster AS predict
FROM ex_numeric e LEFT JOIN kmeans_labels('ex_numeric', :'m'::kmeans_model, nonfinite => 'skip') l ON e.ctid = l.ctid
WHERE n BETWEEN -10 AND 10 ORDER BY id;
-- NULLs beside them
UPDATE ex_numeric SET n = NULL, p[2] = NULL WHERE id IN (1, 7);
SELECT centroid FROM kmeans('ex_numeric', '{id,n}', 2, nonfinite => 'skip', nulls => 'mean') ORDER BY 1;
SELECT centroid FROM kmeans('ex_numeric', '{p}', 2, nonfinite => 'skip', nulls => 'mean') ORDER BY 1;
SELECT centroid FROM kmeans('ex_numeric', '{p}', 2, nonfinite => 'skip', nulls => 'partial') ORDER BY 1;
RESET client_min_messages;
DROP VIEW ex_view;
DROP TABLE ex_numeric;
DROP DOMAIN ex_exact, ex_list;

-- more numbers than a kmeans_model holds: an error before the work; kmeans() returns them as rows
CREATE TABLE long_points AS SELECT array_fill(i::real, '{16384}') AS p FROM generate_series(1, 2450) i;
SET maintenance_work_mem = '256MB';
\set VERBOSITY default
SELECT kmeans_fit('long_points', '{p}', 2450, init => 'random');
\set VERBOSITY terse
SELECT (kmeans_info(kmeans_fit('long_points', '{p}', 2, init => 'random', max_iter => 50))).k;
DROP TABLE long_points;

-- given centroids outside the data: rows are measured by the nearest, as far as distances go in float32
CREATE TABLE ex_given (x float8, w int);
INSERT INTO ex_given VALUES (5, 3), (6, 1);
SELECT how, size, inertia, radius FROM (
    SELECT 'euclidean' AS how, * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}')
    UNION ALL SELECT 'manhattan', * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}', distance => 'manhattan')
    UNION ALL SELECT 'partial', * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}', nulls => 'partial')
    UNION ALL SELECT 'standardize', * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}', standardize => true)
    UNION ALL SELECT 'weights', * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}', weight_column => 'w')
    UNION ALL SELECT 'far', * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1e15}}')
    UNION ALL SELECT 'one is near', * FROM kmeans('ex_given', '{x}', 2, max_iter => 0, centroids => '{{5.5},{1e300}}')) f
ORDER BY how, size DESC;
SELECT x, round(kmeans_normalized_distance(m, x)::numeric, 3) AS distance
FROM kmeans_fit('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}') m, ex_given ORDER BY x;
SELECT distance, (m::text::jsonb -> 'history' -> 'inertia') AS inertia
FROM unnest('{euclidean,manhattan}'::text[]) distance,
    kmeans_fit('ex_given', '{x}', 1, max_iter => 1, centroids => '{{1000}}', distance => distance) m;
SET gkmeans.strategy = scan;
SELECT inertia FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1000}}');
RESET gkmeans.strategy;
SELECT * FROM kmeans('ex_given', '{x}', 1, max_iter => 0, centroids => '{{1e100}}');
SELECT cluster, size, centroid FROM kmeans('ex_given', '{x}', 1, centroids => '{{1e300}}');
-- directions have any length
SELECT length, inertia FROM unnest('{1,1e12,1e30}'::float8[]) length,
    kmeans('ex_given', '{x,w}', 2, max_iter => 0, distance => 'cosine', centroids => ARRAY[ARRAY[length, length], ARRAY[length, 0]]);
DROP TABLE ex_given;

-- values beside the end of double precision, which a mean could leave
CREATE TABLE ex_last AS SELECT CASE WHEN i = 1 THEN 1.7976931348623157e308 ELSE 0 END::float8 AS x FROM generate_series(1, 10000) i;
SELECT * FROM kmeans('ex_last', '{x}', 2, standardize => true);
SELECT * FROM kmeans_balanced('ex_last', '{x}', 2, standardize => true);
SELECT kmeans_mixed_fit('ex_last', '{x}', 2);
DELETE FROM ex_last WHERE x = 0;
SELECT * FROM kmeans('ex_last', '{x}', 1);
DROP TABLE ex_last;
