-- k-prototypes: numbers and categories
CREATE TYPE mixed_plan AS ENUM ('free', 'basic', 'pro');
CREATE TABLE mixed_rows AS
    SELECT i AS id, (CASE WHEN i % 3 = 0 THEN 10 ELSE 50 END + i % 5)::float8 AS visits, (i % 11)::real AS spent,
           (ARRAY['de', 'fr', 'us'])[1 + i % 3] AS country, (ARRAY['free', 'basic', 'pro'])[1 + i % 3]::mixed_plan AS plan,
           i % 3 = 1 AS active, (i * 10)::numeric AS total, ('00000000-0000-0000-0000-00000000000' || i % 3)::uuid AS code
    FROM generate_series(1, 300) i;

SELECT cluster, size, centroid, round(cost::numeric, 6) AS cost
    FROM kmeans_mixed('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1);
-- categories alone, in which gamma is 1; numbers alone; k above the number of rows
SELECT cluster, size, centroid, cost FROM kmeans_mixed('mixed_rows', '{country,code}', 3) ORDER BY centroid->'country'->>'mode';
SELECT count(*), sum(size) FROM kmeans_mixed('mixed_rows', '{visits,spent,total}', 4, standardize => false);
CREATE VIEW mixed_few AS SELECT * FROM mixed_rows WHERE id <= 4;
SELECT cluster, size, cost FROM kmeans_mixed('mixed_few', '{visits,country}', 9);
SELECT count(*) FROM kmeans_mixed('mixed_few', '{visits,spent,country}', 1000000);

-- the model: labels of the fit's rows are those of the fit, and the cost is their sum
CREATE TABLE mixed_models AS SELECT kmeans_mixed_fit('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1) AS model;
SELECT model->'rows' AS rows, model->'gamma' AS gamma, model->'converged' AS converged, jsonb_array_length(model->'clusters') AS k FROM mixed_models;
SELECT (SELECT array_agg(n ORDER BY c) FROM (SELECT kmeans_mixed_predict(model, visits, spent, country, plan, active) AS c, count(*) AS n
            FROM mixed_rows, mixed_models GROUP BY 1) p) =
       (SELECT array_agg(size ORDER BY cluster) FROM kmeans_mixed('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1)) AS same;
-- a cluster's means and modes are those of its rows
SELECT bool_and(abs((centroid->>'visits')::float8 - visits) < 1e-6 AND centroid->'country'->>'mode' = country) AS right
    FROM (SELECT kmeans_mixed_predict(model, visits, spent, country, plan, active) AS cluster, avg(visits) AS visits,
                 mode() WITHIN GROUP (ORDER BY country) AS country FROM mixed_rows, mixed_models GROUP BY 1) p
    JOIN kmeans_mixed('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1) USING (cluster);
-- the cost is what the formula says: standardized numbers, and gamma for each category that differs
SELECT abs(sum(cost) - (SELECT (model->>'cost')::float8 FROM mixed_models)) < 1e-4 AS right FROM (
    SELECT ((r.visits - (c->>'visits')::float8) / s.visits) ^ 2 + ((r.spent - (c->>'spent')::float8) / s.spent) ^ 2 +
           (model->>'gamma')::float8 * ((country <> c->'country'->>'mode')::int + (plan::text <> c->'plan'->>'mode')::int +
                                        (active::text <> c->'active'->>'mode')::int) AS cost
    FROM mixed_rows r, mixed_models,
         LATERAL (SELECT model->'clusters'->kmeans_mixed_predict(model, r.visits, r.spent, country, plan, active)->'centroid' AS c) l,
         (SELECT stddev_pop(visits) AS visits, stddev_pop(spent) AS spent FROM mixed_rows) s) x;
-- unknown categories differ from all; NULL for a NULL; a type that is cast to text as the fit did
SELECT kmeans_mixed_predict(model, 12, 3, 'xx'::text, 'free'::mixed_plan, false) = kmeans_mixed_predict(model, 12.0, 3::real, 'yy'::varchar, 'free'::text, 'false'::text) AS same,
       kmeans_mixed_predict(model, 12, 3, NULL::text, 'free'::mixed_plan, false) AS nothing FROM mixed_models;
SELECT kmeans_mixed_predict(kmeans_mixed_fit('mixed_rows', '{country}', 3), 'fr'::char(5)) = kmeans_mixed_predict(kmeans_mixed_fit('mixed_rows', '{country}', 3), 'fr'::text) AS same;

-- the same whatever the threads, the instruction set and the order of rows
SET gkmeans.threads = 1;
SET gkmeans.simd = scalar;
SELECT model = kmeans_mixed_fit('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1) AS same FROM mixed_models;
RESET gkmeans.threads;
RESET gkmeans.simd;
-- and however many digits the session wants to see of floats
SET extra_float_digits = -15;
SELECT model = kmeans_mixed_fit('mixed_rows', '{visits,spent,country,plan,active}', 3, seed => 1) AS same FROM mixed_models;
RESET extra_float_digits;
-- more starts do not cost more; none moves without iterations
SELECT (kmeans_mixed_fit('mixed_rows', '{visits,spent,country}', 5, n_init => 8)->>'cost')::float8 <= (kmeans_mixed_fit('mixed_rows', '{visits,spent,country}', 5)->>'cost')::float8 AS less,
       kmeans_mixed_fit('mixed_rows', '{visits,spent,country}', 5, max_iter => 0)->'iterations' AS none;
-- max_iter may end a fit where no row changes its cluster, but a single move would lower the cost: that is not the end
CREATE TABLE mixed_moves AS
    SELECT * FROM unnest('{5,4,4,5,7,2,4,5,0,5,0,0,3}'::int[], string_to_array('a,b,b,a,b,a,a,b,b,b,b,a,a', ',')) AS r(x, c);
SELECT max_iter, (model->>'cost')::numeric(6, 4) AS cost, model->'iterations' AS iterations, model->'converged' AS converged
    FROM generate_series(1, 3) max_iter, kmeans_mixed_fit('mixed_moves', '{x,c}', 2, max_iter => max_iter) model;
-- means are rounded once, to double precision
SELECT centroid->'x' AS mean FROM kmeans_mixed('mixed_moves', '{x}', 1, standardize => false);
SELECT avg(x::float8) AS mean FROM mixed_moves;
-- a constant does not vary, though its sum over three rows is rounded: gamma is 1, or half of the other column's share
CREATE VIEW mixed_constant AS SELECT 0.1::float8 AS x, i, chr(64 + i) AS c FROM generate_series(1, 3) i;
SELECT kmeans_mixed_fit('mixed_constant', '{x,c}', 1)->'gamma' AS one, kmeans_mixed_fit('mixed_constant', '{x,i,c}', 1)->'gamma' AS quarter,
       kmeans_mixed_predict(kmeans_mixed_fit('mixed_constant', '{x,i}', 3, seed => 1), 0.2, 3) = kmeans_mixed_predict(kmeans_mixed_fit('mixed_constant', '{x,i}', 3, seed => 1), 0.1, 3) AS same;
-- gamma 0: categories do not count
SELECT kmeans_mixed_fit('mixed_rows', '{visits,country}', 2, gamma => 0)->'cost' = kmeans_mixed_fit('mixed_rows', '{visits}', 2)->'cost' AS same;
-- the greatest gamma, which the model has in float32
SELECT kmeans_mixed_predict(kmeans_mixed_fit('mixed_few', '{visits,country}', 2, gamma => 1e30), 10, 'de'::text) IS NOT NULL AS predicted;

-- rows with a NULL are left out; no rows
CREATE VIEW mixed_holes AS SELECT id, CASE WHEN id % 100 > 0 THEN visits END AS visits, nullif(country, 'fr') AS country FROM mixed_rows;
SELECT sum(size) FROM kmeans_mixed('mixed_holes', '{visits,country}', 2);
SELECT count(*) FROM kmeans_mixed('mixed_holes', '{country}', 2, gamma => 1) WHERE false;
CREATE VIEW mixed_none AS SELECT * FROM mixed_rows WHERE false;
SELECT count(*) FROM kmeans_mixed('mixed_none', '{visits,country}', 2);
SELECT kmeans_mixed_fit('mixed_none', '{visits,country}', 2) IS NULL AS nothing;

-- bad input
SELECT kmeans_mixed('mixed_rows', '{visits,nosuch}', 2);
SELECT kmeans_mixed('mixed_rows', '{}', 2);
SELECT kmeans_mixed('mixed_rows', NULL, 2);
SELECT kmeans_mixed('mixed_rows', '{visits}', 0);
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, gamma => -1);
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, gamma => 'NaN');
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, n_init => 0);
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, max_iter => -1);
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, standardize => NULL);
SELECT kmeans_mixed('mixed_rows', '{visits}', 2, seed => NULL);
CREATE VIEW mixed_bad AS SELECT id, now() AS t, ARRAY[visits] AS a, CASE WHEN id = 7 THEN 'NaN' ELSE visits END AS v, 1e200 * id AS big FROM mixed_rows;
SELECT kmeans_mixed('mixed_bad', '{id,t}', 2);
SELECT kmeans_mixed('mixed_bad', '{a}', 2);
SELECT kmeans_mixed('mixed_bad', '{v}', 2);
SELECT kmeans_mixed('mixed_bad', '{big}', 2, standardize => false);
SELECT sum(size) FROM kmeans_mixed('mixed_bad', '{big}', 2);
CREATE VIEW mixed_small AS SELECT id * 1e-311::float8 AS small FROM mixed_rows;
SELECT kmeans_mixed('mixed_small', '{small}', 2);
SELECT kmeans_mixed('mixed_small', '{small}', 2, standardize => false);
SET gkmeans.memory_limit = '1MB';
CREATE TABLE mixed_many AS SELECT i AS a, 'c' || i AS b FROM generate_series(1, 20000) i;
SELECT kmeans_mixed('mixed_many', '{a,b}', 2);
-- few rows, but long categories
CREATE TABLE mixed_long AS SELECT repeat(md5(i::text), 3200) AS t FROM generate_series(1, 40) i;
SELECT * FROM kmeans_mixed('mixed_long', '{t}', 2);
DROP TABLE mixed_long;
RESET gkmeans.memory_limit;
SELECT kmeans_mixed_predict(model, 1, 2, 'de'::text) FROM mixed_models;
SELECT kmeans_mixed_predict(model, 1, 2, 3, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(model, '1'::text, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(model, 'infinity'::float8, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(model, VARIADIC ARRAY[1, 2]) FROM mixed_models;
SELECT kmeans_mixed_predict('{}', 1);
SELECT kmeans_mixed_predict('[1]', 1);
SELECT kmeans_mixed_predict('7', 1);
SELECT kmeans_mixed_predict(jsonb_set(model, '{kmeans_mixed}', '2'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{gamma}', '-1'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters}', '[]'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
-- more clusters than could be in it
SELECT kmeans_mixed_predict(model || jsonb_build_object('columns', columns, 'clusters', ('[' || repeat('null,', 300000) || 'null]')::jsonb), 1)
FROM mixed_models, LATERAL (SELECT jsonb_agg(c) AS columns FROM generate_series(1, 1000), jsonb_path_query(model, '$.columns[0]') c) l;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters,1}', '3'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters,1,modes}', '["de"]'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters,1,means,0}', '"x"'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters,1,means,0}', '1e99'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{clusters,1,modes,0}', '1'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{columns,0,scale}', '0'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{columns,0,expo}', '0.5'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(jsonb_set(model, '{columns}', '[]'), 1, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
-- so far from all clusters that no cost in float32 tells them apart
SELECT kmeans_mixed_predict(model, 1e25::float8, 2, 'de'::text, 'free'::text, true) FROM mixed_models;
SELECT kmeans_mixed_predict(model, 1, -1e300::numeric, 'de'::text, 'free'::text, true) FROM mixed_models;
-- where there are no categories, the hint says where there are
SELECT kmeans('mixed_rows', '{visits,country}', 2);
SELECT kmeans_fit('mixed_rows', '{plan}', 2);
SELECT kmeans_labels('mixed_rows', '{visits,country}', 2);
SELECT kmeans_label_table('mixed_rows', '{code}', 2, 'mixed_labels', '{id}');
SELECT kmeans_balanced('mixed_rows', '{country}', 2);
SELECT kmeans_spectral('mixed_rows', '{country}', 2);
SELECT kmeans_scan('mixed_rows', '{visits,country}', 2, 3);
SELECT kmeans_grouped('mixed_rows', '{plan}', '{country}', 2);
SELECT kmeans_query('SELECT country FROM mixed_rows', 2);
SELECT kmeans(country, 2) OVER () FROM mixed_rows LIMIT 1;

-- any of the types, from pages and from the executor: values stored out of line, columns added later, NULLs, gaps
CREATE TABLE mixed_pages AS
    SELECT i AS id, i % 7 AS n, CASE i % 5 WHEN 0 THEN repeat('long', 5000 + i % 3) WHEN 1 THEN '' WHEN 2 THEN 'ümlaut' WHEN 3 THEN ' ' END AS t,
           (ARRAY['a', 'a ', 'b'])[1 + i % 3]::char(4) AS c, (i % 2)::bool AS b, (ARRAY['free', 'pro'])[1 + i % 2]::mixed_plan AS p,
           ('00000000-0000-0000-0000-00000000000' || i % 4)::uuid AS u, 'long category, the last letter tells: ' || i % 3 AS w
    FROM generate_series(1, 3000) i;
ALTER TABLE mixed_pages ALTER t SET STORAGE EXTERNAL, ADD later text DEFAULT 'later', ADD number int2 DEFAULT 3;
UPDATE mixed_pages SET later = 'now', number = 4 WHERE id % 11 = 0;
DELETE FROM mixed_pages WHERE id % 13 = 0;
CREATE TABLE mixed_read AS SELECT kmeans_mixed_fit('mixed_pages', '{n,t,c,b,p,u,w,later,number}', 4) AS model;
SET gkmeans.reader = executor;
SELECT model = kmeans_mixed_fit('mixed_pages', '{n,t,c,b,p,u,w,later,number}', 4) AS same, model->'rows' AS rows,
       (SELECT count(*) FROM mixed_pages WHERE t IS NOT NULL) AS expected FROM mixed_read;
RESET gkmeans.reader;
SET gkmeans.threads = 1;
SELECT model = kmeans_mixed_fit('mixed_pages', '{n,t,c,b,p,u,w,later,number}', 4) AS same FROM mixed_read;
RESET gkmeans.threads;
-- an unknown category differs from all modes, however long; an empty string is a category
SELECT count(DISTINCT l) AS one FROM mixed_read, (VALUES (''), ('no'), (repeat('long', 9999))) AS v(t),
       LATERAL (SELECT kmeans_mixed_predict(model, 3, v.t || 'unknown', 'x'::char(4), true, 'pro'::mixed_plan, id, 'x'::text, 'later'::text, 3) AS l
                FROM (SELECT '00000000-0000-0000-0000-000000000001'::uuid AS id) i) p;
-- labels into a table, and the share of each: forms that label_column, grouped and scan have for numbers
ALTER TABLE mixed_pages ADD label int;
UPDATE mixed_pages SET label = kmeans_mixed_predict(model, n, t, c, b, p, u, w, later, number) FROM mixed_read;
SELECT bool_and(n = size) AS same FROM (SELECT label, count(*) AS n FROM mixed_pages WHERE label IS NOT NULL GROUP BY 1) l
    JOIN mixed_read ON true JOIN LATERAL (SELECT ord - 1 AS label, (q->>'size')::int AS size
        FROM jsonb_array_elements(model->'clusters') WITH ORDINALITY AS e(q, ord)) c USING (label);
CREATE VIEW mixed_group AS SELECT * FROM mixed_rows WHERE plan = current_setting('mixed.plan')::mixed_plan;
SELECT p, cluster, size FROM unnest(enum_range(NULL::mixed_plan)) AS p, LATERAL (SELECT set_config('mixed.plan', p::text, true)) s,
    LATERAL kmeans_mixed(CASE WHEN s IS NOT NULL THEN 'mixed_group'::regclass END, '{spent,country}', 2) ORDER BY 1, 2;
-- of one cluster: 300 for each of two columns, and gamma, 0.5, for each of the 200 rows of another country
SELECT k, (kmeans_mixed_fit('mixed_rows', '{visits,spent,country}', k, n_init => 3)->>'cost')::numeric(7, 3) AS cost FROM generate_series(1, 3) k;

DROP TABLE mixed_read, mixed_pages, mixed_moves;
DROP TABLE mixed_rows, mixed_models, mixed_many CASCADE;
DROP TYPE mixed_plan;
