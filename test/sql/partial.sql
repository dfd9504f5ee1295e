-- nulls => 'partial': distances over the features that a row has, times d over their number. Good and bad input.

CREATE SCHEMA holes;
SET search_path = holes, public;
SET extra_float_digits = 1;

CREATE TABLE seen (id int, a float8, b float8, c int, d real, w float8);
INSERT INTO seen
SELECT i, CASE WHEN i % 3 <> 0 THEN i % 4 * 10 + sin(i) END, CASE WHEN i % 7 > 2 THEN i % 4 * 7 + cos(i) END,
       CASE WHEN i % 11 > 4 THEN i % 4 * 4 + i % 2 END, CASE WHEN i % 5 > 1 THEN i % 4 * 3 + (i % 13)::real / 8 END, i % 6
FROM generate_series(1, 3000) i;
SELECT count(*) AS rows, count(*) FILTER (WHERE a + b + c + d IS NOT NULL) AS complete, count(coalesce(a, b, c, d)) AS some FROM seen;

-- by the definition: distances, labels, and the means of the rows that have the feature, by d over what they have
CREATE TABLE model AS SELECT kmeans_fit('seen', '{a,b,c,d}', 4, nulls => 'partial', tol => 0) AS m;
SELECT nulls, fill, distance, rows_used, rows_skipped, converged, device LIKE 'cpu%' AS cpu, strategy FROM model, kmeans_info(m);
CREATE TABLE label AS
SELECT s.*, l.cluster, l.distance FROM kmeans_labels('seen', '{a,b,c,d}', 4, nulls => 'partial', tol => 0) l JOIN seen s ON s.ctid = l.ctid;
CREATE VIEW own AS
SELECT l.*, p.present, p.cluster AS to_cluster, p.value AS own
FROM label l, LATERAL (SELECT count(x) AS present, c.cluster, sqrt(4.0 / nullif(count(x), 0) * sum((x - c.centroid[j]) ^ 2)) AS value
    FROM model, kmeans_centroids(m) c, unnest(ARRAY[a, b, c, d]) WITH ORDINALITY f (x, j) GROUP BY c.cluster, c.centroid) p;
SELECT count(*) AS rows, count(*) FILTER (WHERE abs(own - distance) > 1e-5 AND to_cluster = cluster) AS other_distance,
       count(*) FILTER (WHERE own < distance - 1e-5) AS nearer,
       count(*) FILTER (WHERE (present = 0) <> (cluster IS NULL)) AS without FROM own;
SELECT c.cluster, every(abs(c.centroid[1] - g.a) < 1e-5 AND abs(c.centroid[2] - g.b) < 1e-5 AND abs(c.centroid[3] - g.c) < 1e-5
    AND abs(c.centroid[4] - g.d) < 1e-5 AND c.size = g.n AND abs(c.inertia - g.inertia) < 1e-3) AS same
FROM model, kmeans_centroids(m) c JOIN (
    SELECT cluster, sum(a / n) / sum(CASE WHEN a IS NOT NULL THEN 1.0 / n END) AS a, sum(b / n) / sum(CASE WHEN b IS NOT NULL THEN 1.0 / n END) AS b,
           sum(c::float8 / n) / sum(CASE WHEN c IS NOT NULL THEN 1.0 / n END) AS c, sum(d / n) / sum(CASE WHEN d IS NOT NULL THEN 1.0 / n END) AS d,
           count(*) AS n, sum(distance ^ 2) AS inertia
    FROM (SELECT *, num_nonnulls(a, b, c, d) AS n FROM label) l GROUP BY cluster) g USING (cluster)
GROUP BY c.cluster ORDER BY c.cluster;

-- new rows are treated as those of the fit
SELECT count(*) AS rows, count(*) FILTER (WHERE kmeans_predict(m, a, b, c, d) IS DISTINCT FROM cluster) AS predict,
       count(*) FILTER (WHERE kmeans_predict(m, ARRAY[a, b, c, d]) IS DISTINCT FROM cluster) AS arrays,
       count(*) FILTER (WHERE kmeans_distance(m, a, b, c, d) IS DISTINCT FROM distance) AS distance,
       count(*) FILTER (WHERE (SELECT min(x) FROM unnest(kmeans_transform(m, a, b, c, d)) x) IS DISTINCT FROM distance) AS transform,
       count(*) FILTER (WHERE (SELECT cluster FROM kmeans_nearest(m, ARRAY[a, b, c, d], 1)) IS DISTINCT FROM cluster) AS nearest,
       count(*) FILTER (WHERE (kmeans_memberships(m, a, b, c, d))[cluster + 1] < 0.25) AS memberships,
       count(*) FILTER (WHERE kmeans_normalized_distance(m, a, b, c, d) IS NULL) AS normalized
FROM model, label;
SELECT count(*) AS rows, count(l.cluster) AS labelled, count(*) FILTER (WHERE l.cluster IS DISTINCT FROM t.cluster OR l.distance IS DISTINCT FROM t.distance) AS differ
FROM model, kmeans_labels('seen', m) l JOIN seen s ON s.ctid = l.ctid JOIN label t USING (id);
SELECT kmeans_predict(m, NULL, NULL, NULL, NULL) AS nothing, kmeans_predict(m, NULL) AS no_point, kmeans_predict(m, NULL::float8[]) AS no_array,
       kmeans_predict(m, '{NULL,NULL,NULL,NULL}') AS empty_literal, kmeans_predict(m, '{NULL,7.5,4,NULL}') IS NOT NULL AS literal,
       kmeans_predict(m, NULL::real, 7.5::real, NULL::real, 3::real) IS NOT NULL AS reals, kmeans_predict(NULL, 1, 2, 3, 4) AS no_model,
       (SELECT count(*) FROM kmeans_nearest(m, ARRAY[NULL::float8, NULL, NULL, NULL], 2)) AS nearest_of_nothing FROM model;
SELECT kmeans_predict(k, NULL::int) AS only_feature, kmeans_predict(k, ARRAY[NULL]::real[]) AS array, kmeans_predict(k, 3) IS NOT NULL AS has_it
FROM kmeans_fit('seen', '{a}', 3, nulls => 'partial') k;
SELECT kmeans_predict(m, NULL, 7.5) FROM model;
SELECT kmeans_predict(m, ARRAY[NULL, NULL, NULL, NULL, NULL, 1]) FROM model;
SELECT kmeans_predict(m, 'NaN', NULL, 4, 1) FROM model;
-- one call site with models of each kind
SELECT nulls, kmeans_predict(m, NULL, x, 4, NULL) IS NOT NULL AS label
FROM (VALUES (1, 'skip'), (2, 'partial'), (3, 'mean'), (4, 'partial'), (5, 'skip')) v (i, nulls),
     LATERAL (SELECT kmeans_fit('seen', '{a,b,c,d}', 2, nulls => v.nulls) AS m OFFSET 0) k, (VALUES (7.5)) p (x) ORDER BY i;
SELECT count(*) AS outliers FROM model, kmeans_anomalies('seen', m, 0.01) WHERE normalized_distance > 1;
SELECT count(*) AS medoids FROM model, kmeans_medoids('seen', m);

-- labels in the table, in another one, in a generated column
CREATE TABLE twice AS TABLE seen;
SELECT sum(size) FROM kmeans('twice', '{a,b,c,d}', 4, 'label', nulls => 'partial', tol => 0);
SELECT count(*) FILTER (WHERE t.label IS DISTINCT FROM l.cluster) AS differ FROM twice t JOIN label l USING (id);
SELECT count(*) AS clusters FROM kmeans_label_table('seen', '{a,b,c,d}', 4, 'holes.labelled', ARRAY['id'], nulls => 'partial', tol => 0);
SELECT count(*) FILTER (WHERE t.cluster IS DISTINCT FROM l.cluster) AS differ FROM labelled t JOIN label l USING (id);
SELECT m AS model_text FROM model \gset
ALTER TABLE twice ADD segment int GENERATED ALWAYS AS (kmeans_predict(:'model_text'::kmeans_model, a, b, c, d)) STORED;
SELECT count(*) FILTER (WHERE segment IS DISTINCT FROM label) AS differ FROM twice;

-- the same bits by every way to read; without NULLs, those of nulls => 'skip'
CREATE FUNCTION answer(rel regclass, options text, columns text = '{a,b,c,d}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
    EXECUTE format($q$ SELECT string_agg(k::text, ' ') FROM kmeans(%L, %L, 4, %s) k $q$, rel, columns, options) INTO found;
    RETURN found;
END $$;
CREATE FUNCTION ways(rel regclass, options text, columns text = '{a,b,c,d}') RETURNS TABLE (way text, same boolean) LANGUAGE plpgsql AS $$
DECLARE expected text;
BEGIN
    RESET gkmeans.workers;
    RESET gkmeans.simd;
    RESET gkmeans.memory_limit;
    RESET gkmeans.chunk_size;
    PERFORM set_config('gkmeans.reader', 'executor', true), set_config('gkmeans.threads', '1', true), set_config('client_min_messages', 'warning', true);
    expected := answer(rel, options, columns);
    way := 'pages'; PERFORM set_config('gkmeans.reader', 'heap', true); same := answer(rel, options, columns) = expected; RETURN NEXT;
    way := 'threads'; PERFORM set_config('gkmeans.threads', '3', true); same := answer(rel, options, columns) = expected; RETURN NEXT;
    way := 'workers'; PERFORM set_config('gkmeans.workers', '2', true); same := answer(rel, options, columns) = expected; RETURN NEXT;
    way := 'plain kernels'; PERFORM set_config('gkmeans.simd', 'scalar', true); same := answer(rel, options, columns) = expected; RETURN NEXT;
    way := 'file'; PERFORM set_config('gkmeans.memory_limit', '64kB', true), set_config('gkmeans.chunk_size', '64kB', true);
    same := answer(rel, options, columns) = expected; RETURN NEXT;
END $$;
BEGIN;
SELECT * FROM ways('seen', $$nulls => 'partial'$$);
ROLLBACK;
BEGIN;
SELECT every(same) AS more FROM unnest(ARRAY['standardize => true', 'weight_column => ''w''', 'n_init => 3', 'init => ''random''', 'fit_sample => 0.5', 'init_sample => 500',
    'centroids => ''{{0,0,0,0},{10,7,4,3},{20,14,8,6},{30,21,12,9}}''']) o, ways('seen', $$nulls => 'partial', $$ || o);
ROLLBACK;
CREATE TABLE arrays AS SELECT id, ARRAY[a, b, c, d] AS x, ARRAY[a, b, c, d]::real[] AS r FROM seen;
INSERT INTO arrays VALUES (0, NULL, NULL);
SELECT answer('arrays', $$nulls => 'partial'$$, '{x}') = answer('seen', $$nulls => 'partial'$$) AS arrays;
BEGIN;
SELECT every(same) AS reals FROM ways('arrays', $$nulls => 'partial'$$, '{r}');
ROLLBACK;
SELECT (SELECT string_agg(k::text, ' ') FROM kmeans_query('SELECT a, b, c, d FROM seen', 4, nulls => 'partial') k) = answer('seen', $$nulls => 'partial'$$) AS query;
CREATE TABLE complete AS SELECT * FROM seen WHERE a + b + c + d IS NOT NULL;
SELECT o AS options, answer('complete', $$nulls => 'partial'$$ || o) = answer('complete', $$nulls => 'skip', device => 'cpu'$$ || o) AS same
FROM unnest(ARRAY['', ', standardize => true', ', weight_column => ''w''', ', n_init => 3', ', fit_sample => 0.5']) o;
-- in another order of the rows, from the same centroids
CREATE TABLE turned AS SELECT * FROM seen ORDER BY id DESC;
SELECT answer('turned', o) = answer('seen', o) AS order FROM (VALUES ($$nulls => 'partial', warm_start => (SELECT m FROM model)$$)) v (o);
-- a warm start from and to other models: their centroids are of the same kind
SELECT sum(size) AS rows FROM kmeans('seen', '{a,b,c,d}', 4, warm_start => (SELECT m FROM model));
SELECT sum(size) AS rows FROM kmeans('seen', '{a,b,c,d}', 4, nulls => 'partial', warm_start => kmeans_fit('seen', '{a,b,c,d}', 4, nulls => 'mean'));
SELECT kmeans('seen', '{a,b,c,d}', 4, distance => 'cosine', warm_start => (SELECT m FROM model));

-- columns that were added later, and rows without a value first
CREATE TABLE late (id int, a float8);
INSERT INTO late SELECT i, CASE WHEN i > 600 THEN i % 2 * 10 + sin(i) END FROM generate_series(1, 1200) i;
ALTER TABLE late ADD b float8;
INSERT INTO late SELECT i, NULL, i % 2 * 7 + cos(i) FROM generate_series(1201, 1300) i;
SELECT sum(size) FROM kmeans('late', '{a,b}', 4, nulls => 'partial');
BEGIN;
SELECT every(same) AS late FROM ways('late', $$nulls => 'partial'$$, '{b,a}');
ROLLBACK;
-- a feature that no row of the cluster has stays where it was; a seed without it begins at the mean
CREATE TABLE apart (a int, b int);
INSERT INTO apart VALUES (0, NULL), (1, NULL), (2, NULL), (100, 7), (101, 8), (102, 9);
SELECT * FROM kmeans('apart', '{a,b}', 2, nulls => 'partial', centroids => '{{0,5},{100,5}}');
SELECT cluster, size, centroid, inertia FROM kmeans('apart', '{a,b}', 2, nulls => 'partial');
SELECT sum(size), count(*), sum(inertia) FROM kmeans('apart', '{a,b}', 6, nulls => 'partial');

-- the model as text, JSON, binary
SELECT m::text::kmeans_model::text = m::text AS text_form, m::text::jsonb ->> 'distance' AS distance,
       kmeans_predict(m::text::jsonb::text::kmeans_model, NULL, 7.5, 4, NULL) = kmeans_predict(m, NULL, 7.5, 4, NULL) AS same_label FROM model;
SELECT current_setting('data_directory') || '/gkmeans_partial.bin' AS file \gset
COPY model TO :'file' (FORMAT binary);
CREATE TABLE back (LIKE model);
COPY back FROM :'file' (FORMAT binary);
SELECT b.m::text = model.m::text AS binary_form FROM back b, model;
COPY (SELECT WHERE false) TO :'file';
SELECT jsonb_set(m::text::jsonb, '{preparation,fill}', '[1,2,3,4]')::text::kmeans_model FROM model;
SELECT jsonb_set(k::text::jsonb, '{distance}', '"partial"')::text::kmeans_model FROM kmeans_spectral_fit('complete', '{a,b,c,d}', 2, 20) k;

-- a column without a value, NaN, rows without any value, an empty table
CREATE TABLE empty (a float8, b float8);
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'partial');
INSERT INTO empty VALUES (NULL, NULL);
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'partial');
INSERT INTO empty SELECT i, NULL FROM generate_series(1, 10) i;
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'partial');
CREATE TABLE empty_array AS SELECT ARRAY[a, b] AS x FROM empty;
SELECT * FROM kmeans('empty_array', '{x}', 2, nulls => 'partial');
INSERT INTO empty_array VALUES ('{1}');
SELECT * FROM kmeans('empty_array', '{x}', 2, nulls => 'partial');
INSERT INTO empty VALUES ('NaN', NULL), (NULL, 3);
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'partial');
SET gkmeans.reader = executor;
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'partial');
RESET gkmeans.reader;
SELECT sum(size) FROM kmeans('empty', '{a,b}', 2, nulls => 'partial', nonfinite => 'skip');

-- where it cannot be had
SELECT kmeans('seen', '{a,b}', 3, nulls => 'part');
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial', distance => 'cosine');
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial', distance => 'manhattan');
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial', device => 'gpu');
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial', init => 'k-means||');
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial', init => 'hierarchical');
SELECT kmeans_grouped('seen', '{c}', '{a,b}', 3, nulls => 'partial');
SELECT kmeans_agg(ARRAY[a, b], 2, kmeans_options(nulls => 'partial')) FROM seen;
SELECT kmeans_scan('seen', '{a,b}', 2, 3, nulls => 'partial');
SELECT kmeans_spectral('seen', '{a,b}', 3, nulls => 'partial');
SELECT kmeans_balanced('seen', '{a,b}', 3, nulls => 'partial');
SELECT kmeans_evaluate(m, 'seen') FROM model;
SELECT kmeans_step(m, a, b, c, d) FROM model, seen GROUP BY m::text;
SELECT kmeans_step('seen', '{a,b,c,d}', m) FROM model;
SELECT kmeans_update(m, 1, 2, 3, 4) FROM model;
SELECT kmeans_svg(m, 'seen') FROM model;
SET gkmeans.strategy = 'scan';
SELECT kmeans('seen', '{a,b}', 3, nulls => 'partial');
RESET gkmeans.strategy;

SET client_min_messages = warning;
DROP SCHEMA holes CASCADE;
