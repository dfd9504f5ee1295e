-- Rows with a NULL feature: left out, or filled with the column's mean, by a view or by nulls => 'mean'.

CREATE SCHEMA gaps;
SET search_path = gaps, public;
SET extra_float_digits = 1;

CREATE TABLE measured (id int, a float8, b float8, c int);
INSERT INTO measured
SELECT i, CASE WHEN i % 5 <> 0 THEN i % 3 * 10 + sin(i) END, CASE WHEN i % 7 <> 0 THEN i % 3 * 7 + cos(i) END,
       CASE WHEN i % 11 <> 0 THEN i % 3 * 4 END
FROM generate_series(1, 3000) i;

-- left out
SELECT rows_used, rows_skipped FROM kmeans_info(kmeans_fit('measured', '{a,b,c}', 3, seed => 1));

-- means that do not depend on the order of the rows, nor on workers
CREATE VIEW means AS
SELECT (feature_sum(a))[1] / count(a) AS a, (feature_sum(b))[1] / count(b) AS b, (feature_sum(c))[1] / count(c) AS c FROM measured;
CREATE TABLE kept AS TABLE means;
CREATE VIEW filled AS
SELECT id, coalesce(m.a, k.a) AS a, coalesce(m.b, k.b) AS b, coalesce(m.c, k.c) AS c FROM measured m, kept k;
CREATE TABLE stored AS TABLE filled;

CREATE FUNCTION answer(rel regclass) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c::text, ' ' ORDER BY cluster) || i.inertia || ' ' || i.rows_used
    FROM (SELECT kmeans_fit(rel, '{a,b,c}', 3, seed => 1, device => 'cpu') AS model OFFSET 0) f,
         kmeans_info(model) i, kmeans_centroids(model) c
    GROUP BY i.inertia, i.rows_used $$;
SELECT answer('filled') AS filled \gset
SELECT rows_used, rows_skipped FROM kmeans_info(kmeans_fit('filled', '{a,b,c}', 3, seed => 1));
SELECT answer('stored') = :'filled' AS same_bits_stored;
SET gkmeans.reader = heap;
SELECT answer('stored') = :'filled' AS same_bits_pages;
SET gkmeans.threads = 1;
SELECT answer('stored') = :'filled' AS same_bits_one_thread;
SET gkmeans.workers = 2;
SET gkmeans.threads = 3;
SELECT answer('stored') = :'filled' AS same_bits_workers;
RESET gkmeans.threads;
RESET gkmeans.workers;
RESET gkmeans.reader;
BEGIN;
CREATE TABLE before AS TABLE means;
UPDATE measured SET id = id WHERE id % 2 = 0;
SELECT before::text = means::text AS same_means_in_another_order FROM before, means;
ROLLBACK;

-- new rows: NULL without a fill, else as the rows of the fit
CREATE TABLE model AS SELECT kmeans_fit('filled', '{a,b,c}', 3, seed => 1) AS model;
SELECT kmeans_predict(model, NULL, 7.5, 4), kmeans_predict(model, coalesce(NULL, k.a), 7.5, 4) IS NOT NULL AS filled FROM model, kept k;
SELECT count(*) FILTER (WHERE l.cluster <> kmeans_predict(model, coalesce(m.a, k.a), coalesce(m.b, k.b), coalesce(m.c, k.c))) AS differ,
       count(*) AS rows
FROM model, kept k, measured m JOIN stored s USING (id), LATERAL (SELECT kmeans_predict(model, s.a, s.b, s.c) AS cluster) l;

-- a column without a value has no mean; NaN is not missing
CREATE TABLE empty (a float8, b float8);
INSERT INTO empty SELECT i, NULL FROM generate_series(1, 10) i;
SELECT (feature_sum(b))[1] / nullif(count(b), 0) AS mean FROM empty;
SELECT * FROM kmeans_query('SELECT a, coalesce(b, (SELECT (feature_sum(b))[1] / nullif(count(b), 0) FROM empty)) AS b FROM empty', 2);
INSERT INTO measured VALUES (0, 'NaN', 1, 1);
SELECT * FROM means;
SELECT * FROM kmeans('filled', '{a,b,c}', 3);

DELETE FROM measured WHERE id = 0;

-- nulls => 'mean' is that view, bit for bit: means, centroids, labels
CREATE FUNCTION own_answer() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c::text, ' ' ORDER BY cluster) || i.inertia || ' ' || i.rows_used
    FROM (SELECT kmeans_fit('measured', '{a,b,c}', 3, seed => 1, device => 'cpu', nulls => 'mean') AS model OFFSET 0) f,
         kmeans_info(model) i, kmeans_centroids(model) c
    GROUP BY i.inertia, i.rows_used $$;
SELECT own_answer() = :'filled' AS same_bits;
SET gkmeans.reader = executor;
SELECT own_answer() = :'filled' AS same_bits_executor;
SET gkmeans.reader = heap;
SELECT own_answer() = :'filled' AS same_bits_pages;
SET gkmeans.threads = 1;
SELECT own_answer() = :'filled' AS same_bits_one_thread;
SET gkmeans.workers = 2;
SET gkmeans.threads = 3;
SELECT own_answer() = :'filled' AS same_bits_workers;
RESET gkmeans.threads;
RESET gkmeans.workers;
RESET gkmeans.reader;
SET gkmeans.strategy = scan;
SELECT own_answer() = :'filled' AS same_bits_scan;
RESET gkmeans.strategy;
CREATE TABLE own AS SELECT kmeans_fit('measured', '{a,b,c}', 3, seed => 1, nulls => 'mean') AS model;
SELECT i.nulls, i.fill = ARRAY[k.a, k.b, k.c] AS same_means, rows_used, rows_skipped FROM own, kept k, kmeans_info(model) i;
SELECT i.nulls, i.fill FROM model, kmeans_info(model) i;

-- labels: of the fit, of the model, written, one by one; with features by name, as arrays, of other types
SELECT count(*) AS rows, count(*) FILTER (WHERE l.cluster <> kmeans_predict(o.model, s.a, s.b, s.c)) AS differ,
       count(*) FILTER (WHERE kmeans_predict(o.model, m.a, m.b, m.c) <> l.cluster) AS features,
       count(*) FILTER (WHERE kmeans_predict(o.model, ARRAY[m.a, m.b, m.c]) <> l.cluster) AS array,
       count(*) FILTER (WHERE kmeans_distance(o.model, m.a, m.b, m.c) <> l.distance) AS distance,
       count(*) FILTER (WHERE kmeans_transform(o.model, m.a, m.b, m.c) <> kmeans_transform(o.model, s.a, s.b, s.c)) AS transform,
       count(*) FILTER (WHERE kmeans_memberships(o.model, m.a, m.b, m.c) <> kmeans_memberships(o.model, s.a, s.b, s.c)) AS memberships,
       count(*) FILTER (WHERE kmeans_normalized_distance(o.model, m.a, m.b, m.c) <> kmeans_normalized_distance(o.model, s.a, s.b, s.c)) AS normalized
FROM own o, kmeans_labels('measured', '{a,b,c}', 3, seed => 1, nulls => 'mean') l
     JOIN measured m ON (m.tableoid, m.ctid) = (l.tableoid, l.ctid) JOIN stored s USING (id);
SELECT count(*) AS rows, count(l.cluster) AS labelled, count(*) FILTER (WHERE l.cluster <> kmeans_predict(o.model, m.a, m.b, m.c)) AS differ
FROM own o, kmeans_labels('measured', o.model) l JOIN measured m ON (m.tableoid, m.ctid) = (l.tableoid, l.ctid);
SELECT kmeans_predict(model, NULL::real, 7.5::real, 4::real) = kmeans_predict(model, k.a::real, 7.5::real, 4::real) AS reals,
       kmeans_predict(model, NULL, NULL, NULL) IS NOT NULL AS all_missing, kmeans_predict(model, '{NULL,7.5,4}') IS NOT NULL AS literal,
       kmeans_predict(model, NULL) AS no_point, kmeans_predict(model, NULL::float8[]) AS no_array, kmeans_predict(NULL, 1, 2, 3) AS no_model,
       (SELECT count(*) FROM kmeans_nearest(model, ARRAY[NULL, 7.5, 4], 2)) AS nearest
FROM own, kept k;
SELECT kmeans_predict(m, NULL::int) = kmeans_predict(m, kept.a) AS one_feature, kmeans_predict(m, ARRAY[NULL]::real[]) = kmeans_predict(m, kept.a) AS array,
       kmeans_predict(m, NULL::real[]) AS no_array, (SELECT count(*) FROM kmeans_nearest(m, NULL::int, 2)) AS nearest
FROM kmeans_fit('measured', '{a}', 3, nulls => 'mean') m, kept;
SELECT kmeans_predict(model, NULL, 7.5) FROM own;
SELECT kmeans_predict(model, 'NaN', NULL, 4) FROM own;
SELECT model AS model_text FROM own \gset
ALTER TABLE measured ADD segment int GENERATED ALWAYS AS (kmeans_predict(:'model_text'::kmeans_model, a, b, c)) STORED;
SELECT count(*) AS rows, count(segment) AS labelled,
       count(*) FILTER (WHERE segment <> kmeans_predict(o.model, s.a, s.b, s.c)) AS differ FROM own o, measured JOIN stored s USING (id);
ALTER TABLE measured DROP segment;
CREATE TABLE twice AS TABLE measured;
SELECT sum(size) FROM kmeans('twice', '{a,b,c}', 3, 'label', seed => 1, nulls => 'mean');
SELECT count(*) FILTER (WHERE label IS DISTINCT FROM kmeans_predict(model, a, b, c)) AS differ FROM own, twice;
SELECT kmeans_evaluate(o.model, 'measured')::text = kmeans_evaluate(o.model, 'stored')::text AS same_evaluation FROM own o;
SELECT (SELECT sum(inertia) FROM kmeans_scan('measured', '{a,b,c}', 2, 4, nulls => 'mean'))
     = (SELECT sum(inertia) FROM kmeans_scan('stored', '{a,b,c}', 2, 4)) AS same_scan;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans_query('SELECT a, b, c FROM measured', 3, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('stored', '{a,b,c}', 3) c) AS same_query;
-- a step, an update
SELECT kmeans_centroids(kmeans_step(o.model, m.a, m.b, m.c)) = kmeans_centroids(kmeans_step(o.model, s.a, s.b, s.c)) AS same_step
FROM own o, measured m JOIN stored s USING (id);
SELECT kmeans_centroids(kmeans_step(o.model, ARRAY[m.a, m.b, m.c])) = kmeans_centroids(kmeans_step(o.model, s.a, s.b, s.c)) AS same_step_of_arrays
FROM own o, measured m JOIN stored s USING (id);
SELECT kmeans_step('measured', '{a,b,c}', model)::text = kmeans_step('stored', '{a,b,c}', model)::text AS same_step_of_relation FROM own;
SELECT i.nulls, i.fill = ARRAY[k.a, k.b, k.c] AS kept_means
FROM kept k, LATERAL (SELECT kmeans_update(o.model, NULL, 7.5, 4) AS model FROM own o) u, kmeans_info(model) i;

-- standardize: the scale is that of the filled values; cosine: filled first; weights: rows without one do not count
CREATE FUNCTION pair(options text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE own text; other text;
BEGIN
    EXECUTE format($q$ SELECT string_agg(c::text, ' ') FROM kmeans('measured', '{a,b,c}', 3, nulls => 'mean', %s) c $q$, options) INTO own;
    EXECUTE format($q$ SELECT string_agg(c::text, ' ') FROM kmeans('stored', '{a,b,c}', 3, %s) c $q$, options) INTO other;
    RETURN own = other;
END $$;
SELECT pair('standardize => true') AS standardize, pair($$distance => 'cosine'$$) AS cosine, pair('n_init => 3') AS restarts,
       pair('centroids => ''{{0,0,0},{10,7,4},{20,14,8}}''') AS centroids, pair('init_sample => 0.5') AS sample;
CREATE TABLE weighed AS SELECT *, CASE WHEN id % 13 > 1 THEN id % 13 WHEN id % 13 = 1 THEN 0 END AS w FROM measured;
CREATE TABLE weighed_filled AS
SELECT id, w, coalesce(t.a, m.a) AS a, coalesce(t.b, m.b) AS b, coalesce(t.c, m.c) AS c
FROM weighed t, (SELECT (feature_sum(a))[1] / count(a) AS a, (feature_sum(b))[1] / count(b) AS b, (feature_sum(c))[1] / count(c) AS c FROM weighed WHERE w > 0) m;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('weighed', '{a,b,c}', 3, weight_column => 'w', nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('weighed_filled', '{a,b,c}', 3, weight_column => 'w') c) AS same_weights;
SET gkmeans.reader = executor;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('weighed', '{a,b,c}', 3, weight_column => 'w', nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('weighed_filled', '{a,b,c}', 3, weight_column => 'w') c) AS same_weights_executor;
RESET gkmeans.reader;

-- arrays with NULL elements; a row without an array is left out
CREATE TABLE arrays AS SELECT id, ARRAY[a, b, c] AS x, ARRAY[a, b, c]::real[] AS r FROM measured;
INSERT INTO arrays VALUES (0, NULL, NULL);
CREATE TABLE arrays_filled AS SELECT id, ARRAY[a, b, c] AS x FROM stored;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('arrays', '{x}', 3, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('arrays_filled', '{x}', 3) c) AS same_arrays;
SET gkmeans.reader = executor;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('arrays', '{x}', 3, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('arrays_filled', '{x}', 3) c) AS same_arrays_executor;
RESET gkmeans.reader;
CREATE TABLE reals_filled AS SELECT id, ARRAY[coalesce(r[1], m.x), coalesce(r[2], m.y), coalesce(r[3], m.z)]::float8[] AS x
FROM arrays, (SELECT (feature_sum(r[1]))[1] / count(r[1]) AS x, (feature_sum(r[2]))[1] / count(r[2]) AS y, (feature_sum(r[3]))[1] / count(r[3]) AS z FROM arrays) m
WHERE r IS NOT NULL;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('arrays', '{r}', 3, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('reals_filled', '{x}', 3) c) AS same_reals;

-- rows without any value first, and a column that was added later
CREATE TABLE late (id int, a float8);
INSERT INTO late SELECT i, CASE WHEN i > 600 THEN i % 2 * 10 + sin(i) END FROM generate_series(1, 1200) i;
ALTER TABLE late ADD b float8;
INSERT INTO late SELECT i, i % 2 * 10, i % 2 * 7 + cos(i) FROM generate_series(1201, 1300) i;
CREATE TABLE late_filled AS
SELECT id, coalesce(t.a, m.a) AS a, coalesce(t.b, m.b) AS b
FROM late t, (SELECT (feature_sum(a))[1] / count(a) AS a, (feature_sum(b))[1] / count(b) AS b FROM late) m;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('late', '{a,b}', 2, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('late_filled', '{a,b}', 2) c) AS same_late;
SELECT (SELECT string_agg(c::text, ' ') FROM kmeans('late', '{b,a}', 2, nulls => 'mean') c)
     = (SELECT string_agg(c::text, ' ') FROM kmeans('late_filled', '{b,a}', 2) c) AS same_late_order;

-- the model as text, binary, JSON
SELECT model::text::kmeans_model::text = model::text AS text_form,
       jsonb_array_length(model::text::jsonb #> '{preparation,fill}') AS fill,
       kmeans_predict(model::text::jsonb::text::kmeans_model, NULL, 7.5, 4) = kmeans_predict(model, NULL, 7.5, 4) AS same_label
FROM own;
CREATE TABLE forms AS
SELECT 'plain' AS name, model FROM own
UNION ALL SELECT 'weights', kmeans_fit('weighed', '{a,b,c}', 2, weight_column => 'w', nulls => 'mean')
UNION ALL SELECT 'spectral', kmeans_spectral_fit('measured', '{a,b,c}', 2, 20, nulls => 'mean')
UNION ALL SELECT 'spectral, weights', kmeans_spectral_fit('weighed', '{a,b,c}', 2, 20, weight_column => 'w', nulls => 'mean')
UNION ALL SELECT 'weights, skip', kmeans_fit('weighed', '{a,b,c}', 2, weight_column => 'w');
SELECT current_setting('data_directory') || '/gkmeans_nulls.bin' AS file \gset
COPY forms TO :'file' (FORMAT binary);
CREATE TABLE back (LIKE forms);
COPY back FROM :'file' (FORMAT binary);
SELECT name, f.model::text = b.model::text AS binary_form, f.model::text::kmeans_model::text = f.model::text AS text_form,
       kmeans_model_send(f.model) = kmeans_model_send(b.model) AS bytes, i.nulls,
       kmeans_predict(b.model, NULL, 7.5, 4) = kmeans_predict(f.model, NULL, 7.5, 4) AS same_label
FROM forms f JOIN back b USING (name), kmeans_info(b.model) i ORDER BY name;
COPY (SELECT WHERE false) TO :'file';
-- not a fill
SELECT jsonb_set(model::text::jsonb, '{preparation,fill}', '[1,2]')::text::kmeans_model FROM own;
SELECT jsonb_set(model::text::jsonb, '{preparation,fill}', '[]')::text::kmeans_model FROM own;
SELECT jsonb_set(model::text::jsonb, '{preparation,fill}', '[1,2,"x"]')::text::kmeans_model FROM own;
SELECT jsonb_set(model::text::jsonb, '{preparation,fill}', '[1,2,1e999]')::text::kmeans_model FROM own;

-- a column without a value, NaN, rows without any value, an empty table
SELECT * FROM kmeans('empty', '{a,b}', 2, nulls => 'mean');
SELECT * FROM kmeans('empty', '{a}', 2, nulls => 'mean');
CREATE TABLE empty_array AS SELECT ARRAY[a, b] AS x FROM empty;
SELECT * FROM kmeans('empty_array', '{x}', 2, nulls => 'mean');
CREATE TABLE none (a float8, x float8[]);
SELECT * FROM kmeans('none', '{a}', 2, nulls => 'mean');
INSERT INTO none VALUES (NULL, NULL);
SELECT * FROM kmeans('none', '{x}', 2, nulls => 'mean');
SELECT * FROM kmeans('none', '{a}', 2, nulls => 'mean');
INSERT INTO none VALUES (1, '{1,NULL}'), (2, '{2}');
SELECT * FROM kmeans('none', '{x}', 2, nulls => 'mean');
INSERT INTO measured VALUES (0, 'NaN', NULL, 1);
SELECT * FROM kmeans('measured', '{a,b,c}', 3, nulls => 'mean');
SELECT rows_used, rows_skipped, i.fill = ARRAY[k.a, k.b, k.c] AS same_means
FROM kept k, kmeans_info(kmeans_fit('measured', '{a,b,c}', 3, nulls => 'mean', nonfinite => 'skip')) i;
DELETE FROM measured WHERE id = 0;
-- two directions of rows that have one number each
CREATE TABLE directions (a float8, b float8);
INSERT INTO directions VALUES (1, 1), (2, NULL), (0, NULL), (0, 0), (3, 5);
SELECT * FROM kmeans('directions', '{a,b}', 2, distance => 'cosine', nulls => 'mean');
SELECT size FROM kmeans('directions', '{a,b}', 2, distance => 'cosine', nulls => 'mean', nonfinite => 'skip');

-- a column of one value has that value for a mean, though sum and quotient round to its neighbour: standardized, that
-- would be two deviations away, and the rows with NULLs a cluster
CREATE TABLE constant (id int, x float8, y float8);
INSERT INTO constant VALUES (1, 0.1, 1), (2, 0.1, 2), (3, 0.1, 1.5), (4, NULL, 1.2), (5, NULL, 1.7);
SELECT (feature_sum(x))[1] / count(x) = 0.1 AS quotient, i.fill[1] = 0.1 AS fill
FROM constant, kmeans_info(kmeans_fit('constant', '{x,y}', 1, nulls => 'mean')) i GROUP BY i.fill;
SELECT array_agg(id ORDER BY id) AS ids FROM kmeans_labels('constant', '{x,y}', 2, nulls => 'mean', standardize => true, centroids => '{{0.1,1},{0.1,2}}') l
JOIN constant c ON c.tableoid = l.tableoid AND c.ctid = l.ctid GROUP BY cluster ORDER BY cluster;

-- words, and where means cannot be had
SELECT kmeans_fit('measured', '{a,b,c}', 3, nulls => 'median');
SELECT kmeans_fit('measured', '{a,b,c}', 3, nulls => NULL);
SELECT kmeans_agg(ARRAY[a, b, c], 3, kmeans_options(nulls => 'mean')) FROM measured;
SELECT kmeans_agg(ARRAY[a, b, c], 3, kmeans_options(nulls => 'skip')) IS NOT NULL AS agg FROM measured;
SELECT * FROM kmeans_grouped('measured', '{c}', '{a,b}', 2, nulls => 'mean');

SET client_min_messages = warning;
DROP SCHEMA gaps CASCADE;
