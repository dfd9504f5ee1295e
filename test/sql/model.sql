-- The type kmeans_model: text and binary form, and what they refuse.
\set VERBOSITY terse

-- k = 2, d = 3; every key has its place here
CREATE TABLE model_text (t text);
INSERT INTO model_text VALUES ('
{"version": 1, "k": 2, "k_asked": 3, "d": 3, "columns": ["a", "b b", "ć\"\\"], "columns_array": false,
 "distance": "euclidean", "standardize": false, "init": "k-means++", "seed": -9223372036854775808,
 "rows_used": 7, "rows_skipped": 1, "iterations": 2, "converged": true, "inertia": 0.30000000000000004,
 "clusters": [{"size": 4, "inertia": 0.1, "radius": 0.2, "centroid": [1, 2, 0]},
              {"size": 3, "inertia": 0.2, "radius": 1e-320, "centroid": [1e300, -5, 0.1]}],
 "preparation": {"center": [0.5, 0, 1e-5], "scale": [1, 2, 4], "expo": [-3, 0, 50], "unit_exp": 48},
 "history": {"inertia": [9, 0.5], "shift": [3, 0]},
 "device": "cpu (scalar, 1 thread)", "strategy": "single_pass",
 "load_ms": 1.5, "seed_ms": 0, "iterate_ms": 2, "total_ms": 3.25}');

CREATE TABLE model (m kmeans_model);
INSERT INTO model SELECT t::kmeans_model FROM model_text;
\t
SELECT * FROM model;
\t

-- the text is JSON, equal to what came in; jsonb's order of keys does not matter
SELECT m::text::jsonb = t::jsonb AS equal FROM model, model_text;
SELECT m::text::jsonb::text::kmeans_model::text = m::text AS equal FROM model;
-- bits survive, whatever the session prints
SET extra_float_digits = -15;
SELECT m::text::kmeans_model::text = m::text AS equal, m::text LIKE '%0.30000000000000004%' AS exact FROM model;
RESET extra_float_digits;
-- as does a negative zero, which jsonb does not have
SELECT c.centroid FROM model_text, kmeans_centroids(replace(t, '[1, 2, 0]', '[1, 2, -0.0]')::kmeans_model::text::kmeans_model) c
WHERE cluster = 0;
SELECT md5(kmeans_model_send(m)) = md5(kmeans_model_send(m::text::kmeans_model)) AS equal FROM model;
SELECT length(kmeans_model_send(m)) FROM model;

-- stored values
SELECT attstorage, typalign, typlen FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
WHERE attrelid = 'model'::regclass AND attnum = 1;

SELECT * FROM kmeans_info((SELECT m FROM model));
SELECT c.* FROM model, kmeans_centroids(m) c;
SELECT (kmeans_centroids(m)).size FROM model;
SELECT kmeans_info(NULL) IS NULL AS null_info, count(*) FROM kmeans_centroids(NULL);

-- an array column, unknown columns
CREATE FUNCTION changed(patch jsonb) RETURNS text LANGUAGE sql AS
    'SELECT (t::jsonb || patch)::text FROM model_text';
CREATE FUNCTION changed(path text[], value jsonb) RETURNS text LANGUAGE sql AS
    'SELECT jsonb_set(t::jsonb, path, value)::text FROM model_text';
CREATE FUNCTION without(path text[]) RETURNS text LANGUAGE sql AS
    'SELECT (t::jsonb #- path)::text FROM model_text';
SELECT columns FROM kmeans_info(changed('{"columns": ["embedding"], "columns_array": true}')::kmeans_model);
SELECT columns FROM kmeans_info(changed('{"columns": []}')::kmeans_model);
SELECT distance, init, standardize FROM kmeans_info(
    changed('{"distance": "cosine", "init": "warm_start", "standardize": true}')::kmeans_model);
SELECT init FROM unnest('{k-means++,k-means||,random,centroids,warm_start,hierarchical}'::text[]) w,
    kmeans_info(changed(jsonb_build_object('init', w))::kmeans_model);

-- the times of a GPU are only in models that one has made; a zero is as good as none
SELECT context_ms, upload_ms FROM kmeans_info((SELECT m FROM model));
SELECT context_ms, upload_ms, substring(m::text, '("load_ms.*), "seed_ms') AS text, m::text::kmeans_model::text = m::text AS again,
    kmeans_model_send(m::text::kmeans_model) = kmeans_model_send(m) AS same_bytes
FROM (VALUES ('{"context_ms": 107.5, "upload_ms": 0.1}'::jsonb), ('{"context_ms": 0.007}'), ('{"upload_ms": 8}'),
    ('{"context_ms": 0, "upload_ms": 0}')) v (patch), LATERAL (SELECT changed(patch)::kmeans_model AS m OFFSET 0) o, kmeans_info(m);
SELECT context_ms, m::text LIKE '%context%' AS in_text
FROM (SELECT replace(t, '"load_ms"', '"context_ms": -0.0, "load_ms"')::kmeans_model AS m FROM model_text OFFSET 0) o, kmeans_info(m);

-- what goes wrong with a text
CREATE FUNCTION try(t text, out result text) LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    result := 'ok: ' || (t::kmeans_model IS NOT NULL);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    result := concat_ws(' | ', SQLSTATE, message, nullif(detail, ''), nullif(hint, ''));
END $$;

-- not JSON, not an object
SELECT t AS text, try(t) FROM unnest(ARRAY['', ' ', 'null', '1', '"a"', '[]', '{}', '{', '{"k": }', '{"k": NaN}',
    '{"k": 1} x', '{"version": 1, "version": 1}', '{"version": 1', repeat('[', 100000)]) t
WHERE length(t) < 100 OR try(t) NOT LIKE '22P02 | invalid kmeans_model: the text is an array, expected an object';
-- each key: missing, null, of a wrong type
SELECT key, try(without(ARRAY[key])) FROM model_text, jsonb_object_keys(t::jsonb) key;
SELECT key, try(changed(ARRAY[key], 'null')) FROM model_text, jsonb_object_keys(t::jsonb) key;
SELECT key, try(changed(ARRAY[key], value)) FROM model_text, jsonb_each(t::jsonb) e (key, old),
    unnest(ARRAY['true', '1.5', '"x"', '[]', '{}']::jsonb[]) value
WHERE jsonb_typeof(value) <> jsonb_typeof(old) OR (jsonb_typeof(old) = 'number' AND old::text NOT LIKE '%.%')
ORDER BY 1, 2;
-- the same inside
SELECT path, try(without(path)) FROM unnest(ARRAY['preparation,center', 'preparation,scale', 'preparation,expo',
    'preparation,unit_exp', 'history,inertia', 'history,shift', 'clusters,1,size', 'clusters,1,inertia',
    'clusters,1,radius', 'clusters,1,centroid', 'clusters,1,centroid,2', 'clusters,1',
    'preparation,center,0', 'preparation,scale,0', 'preparation,expo,0', 'history,inertia,0', 'history,shift,0',
    'columns,0']) p, string_to_array(p, ',') path;
SELECT path, value, try(changed(path, value)) FROM unnest(ARRAY['preparation,center,1', 'preparation,scale,1',
    'preparation,expo,1', 'preparation,unit_exp', 'history,inertia,1', 'history,shift,1', 'clusters,1,size',
    'clusters,1,inertia', 'clusters,1,radius', 'clusters,1,centroid', 'clusters,1,centroid,2', 'clusters,1',
    'columns,1']) p, string_to_array(p, ',') path, unnest(ARRAY['null', '"x"', '[1]', '{}']::jsonb[]) value
WHERE NOT (path = '{columns,1}' AND value = '"x"');
-- numbers out of range
SELECT path, value, try(changed(path, value::jsonb)) FROM (VALUES
    ('version', '0'), ('version', '2'), ('version', '-1'), ('version', '99999999999'),
    ('k', '0'), ('k', '1000001'), ('k', '-2'), ('k', '3'), ('k', '1'), ('k', '2147483648'), ('k', '2.0'), ('k', '2e400'),
    ('k_asked', '1'), ('k_asked', '1000001'), ('d', '0'), ('d', '16385'), ('d', '2'), ('d', '4'),
    ('seed', '9223372036854775808'), ('seed', '1e3'), ('rows_used', '-1'), ('rows_used', '1099511627777'),
    ('rows_skipped', '-1'), ('iterations', '-1'), ('inertia', '-0.1'), ('inertia', '1e400'), ('inertia', '-1e400'),
    ('inertia', '1e-400'), ('load_ms', '-1'), ('context_ms', '-1'), ('upload_ms', '-1e-9'), ('upload_ms', '1e400'),
    ('seed_ms', '-1'), ('iterate_ms', '-1'), ('total_ms', '-1'),
    ('clusters,1,size', '-1'), ('clusters,1,size', '1099511627777'), ('clusters,1,size', '1.5'),
    ('clusters,1,inertia', '-1'), ('clusters,1,radius', '-1'), ('clusters,1,centroid,2', '1e400'),
    ('clusters,0,centroid', '[1, 2]'), ('clusters,0,centroid', '[]'), ('clusters', '[]'),
    ('preparation,center,1', '1e999'), ('preparation,scale,1', '0'), ('preparation,scale,1', '-1'),
    ('preparation,scale,1', '1e308'), ('preparation,expo,1', '201'), ('preparation,expo,1', '-201'),
    ('preparation,unit_exp', '2201'), ('preparation,unit_exp', '-2201'),
    ('history,inertia,0', '-1'), ('history,shift,0', '-1'), ('history,shift', '[1, 2, 3]'), ('history,inertia', '[]')
    ) v (p, value), string_to_array(p, ',') path;
-- keys that need not be there
SELECT try(replace(t, '"load_ms"', '"context_ms": NaN, "load_ms"')), try(changed('{"context_ms": "NaN"}')),
    try(changed('{"upload_ms": "8"}')), try(changed('{"upload_ms": null}')), try(changed('{"context_ms": [1]}')),
    try(replace(t, '"load_ms"', '"upload_ms": 1, "upload_ms": 1, "load_ms"')) FROM model_text \gx
-- words, names, unknown keys
SELECT path, left(value, 30) AS value, try(changed(path, to_jsonb(value))) FROM (VALUES
    ('distance', 'chebyshev'), ('init', 'k-means'), ('init', repeat('x', 100)), ('device', repeat('x', 95)), ('device', repeat('x', 96)),
    ('strategy', repeat('x', 63)), ('strategy', repeat('x', 64)), ('columns,1', ''), ('columns,1', repeat('x', 63)),
    ('columns,1', repeat('x', 64))) v (p, value), string_to_array(p, ',') path;
SELECT try(changed('{"columns": ["a", "b"]}')), try(changed('{"columns_array": true}')),
    try(changed('{"columns": [], "columns_array": true}')), try(changed('{"K": 1}')),
    try(changed('{"unknown": {"a": [1, [2, {}]], "b": {}}}')), try(changed('{preparation,more}', '[[]]')),
    try(changed('{clusters,0,more}', 'null')) \gx
SELECT try(replace(t, '"d": 3', '"d": 3, "d": 3')), try(replace(t, '"radius": 0.2', '"radius": 0.2, "radius": 0.2')),
    try(replace(t, '-9223372036854775808', '1e3')), try(replace(t, '"cpu', '"\u0000cpu')), try(replace(t, 'cpu', E'c\tpu')) FROM model_text \gx
-- a newer version, though its keys are others
SELECT try('{"extra": [1, {"a": 2}], "version": 7}'), try(changed('{"a": 1, "version": 7}')) \gx
-- nesting without end, where it would be skipped
SELECT left(try('{"extra": ' || repeat('[', 1000000)), 5);
SELECT kmeans_model_in('x');

DROP TABLE model, model_text;
DROP FUNCTION changed(jsonb), changed(text[], jsonb), without, try;
