-- weights that are far apart: what the grid of the weights holds is right, and the rest is refused

\set VERBOSITY terse
SET client_min_messages = warning;
SET extra_float_digits = 1;

-- lighter than 2^-40 of the heaviest: refused everywhere, by one rule
CREATE TABLE far_apart (g int, x float8, w float8);
INSERT INTO far_apart VALUES (1, 0, 1e9), (1, 100, 1e9), (1, 1, 1e-6), (1, 2, 1e-6), (1, 99, 1e-6);
SELECT * FROM kmeans('far_apart', '{x}', 2, weight_column => 'w');
SELECT kmeans_fit('far_apart', '{x}', 2, weight_column => 'w');
SET gkmeans.strategy = 'scan';
SELECT * FROM kmeans('far_apart', '{x}', 2, weight_column => 'w');
RESET gkmeans.strategy;
SELECT * FROM kmeans_labels('far_apart', '{x}', 2, weight_column => 'w');
SELECT * FROM kmeans_grouped('far_apart', '{g}', '{x}', 2, weight_column => 'w');
SELECT * FROM kmeans_scan('far_apart', '{x}', 1, 2, weight_column => 'w');
\set VERBOSITY default
SELECT * FROM kmeans('far_apart', '{x}', 2, weight_column => 'w');
\set VERBOSITY terse

-- at the edge: 2^-40 of a power of two counts as what it is, one bit less does not
CREATE TABLE edge AS SELECT x::float8, w::float8 FROM (VALUES (0, 1099511627776), (10, 1099511627776), (1, 1), (2, 1)) v (x, w);
SELECT * FROM kmeans('edge', '{x}', 3, weight_column => 'w', centroids => '{{0},{10},{1.5}}');
UPDATE edge SET w = 0.999 WHERE x = 1;
SELECT * FROM kmeans('edge', '{x}', 3, weight_column => 'w', centroids => '{{0},{10},{1.5}}');

-- whole numbers beyond any other weight, and next to the ends of double precision
CREATE TABLE ends AS SELECT i % 4 AS x, w FROM generate_series(1, 8) i, unnest('{1,1e300,1e307,1e-300,5e-324}'::float8[]) w;
CREATE FUNCTION with_weight(weight float8) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE VIEW one_weight AS SELECT x, w FROM ends WHERE w = %L', weight);
    RETURN QUERY SELECT f.cluster, f.size, f.centroid, f.inertia FROM kmeans('one_weight', '{x}', 2, weight_column => 'w', centroids => '{{0},{3}}') f;
END $$;
SELECT w, f.* FROM unnest('{1,1e300,1e307,1e-300,5e-324}'::float8[]) w, with_weight(w) f;

-- kmeans_step gives the bits of the fit's iteration, whatever the weights
CREATE TABLE decay AS SELECT i, (hashint4(i) % 1000)::float8 / 7 AS x, (hashint4(-i) % 1000)::float8 / 3 AS y,
    exp(-abs(hashint4(i * 3) % 1000) / 37.0::float8) AS w FROM generate_series(1, 3000) i;
SELECT min(w) / max(w) < 2.0 ^ -38 AS far_apart, min(w) / max(w) > 2.0 ^ -40 AS near_enough FROM decay;
CREATE FUNCTION loop_against_fit(distance text) RETURNS TABLE (iteration int, centroids bool, relation bool, statistics bool, total bool) LANGUAGE plpgsql AS $$
DECLARE
    m kmeans_model;
    f kmeans_model;
    s kmeans_model;
BEGIN
    FOR i IN 1 .. 4 LOOP
        m := kmeans_fit('decay', '{x,y}', 5, weight_column => 'w', distance => distance, max_iter => i, tol => 0, init => 'random');
        f := kmeans_fit('decay', '{x,y}', 5, weight_column => 'w', distance => distance, warm_start => m, max_iter => 1, tol => 0);
        SELECT kmeans_step(m, ARRAY[x, y], w ORDER BY md5(decay.i::text)) INTO s FROM decay;
        RETURN QUERY SELECT i, bool_and(b.centroid = c.centroid),
            kmeans_finish(kmeans_step('decay', '{x,y}', m, weight_column => 'w'))::text = s::text,
            bool_and(a.size = c.size AND a.inertia = c.inertia AND a.radius = c.radius),
            (kmeans_info(m)).inertia = (kmeans_info(s)).inertia
        FROM kmeans_centroids(m) a JOIN kmeans_centroids(f) b USING (cluster) JOIN kmeans_centroids(s) c USING (cluster);
    END LOOP;
END $$;
SELECT * FROM loop_against_fit('euclidean');
SELECT * FROM loop_against_fit('cosine');

-- with weights that the model's grid does not hold, it still adds up exactly
CREATE TABLE near AS SELECT * FROM (VALUES (0::float8, 1::float8), (8, 1)) v (x, w);
SELECT c.* FROM (SELECT kmeans_step(m, ARRAY[p.x], p.w) AS s
    FROM kmeans_fit('near', '{x}', 1, weight_column => 'w') m, (VALUES (1::float8, 1e-30), (2, 3e-30)) p (x, w)) s, kmeans_centroids(s) c;
SELECT c.* FROM (SELECT kmeans_step(m, ARRAY[p.x], p.w) AS s
    FROM kmeans_fit('near', '{x}', 1, weight_column => 'w') m, (VALUES (1::float8, 1e30), (2, 1.5e30)) p (x, w)) s, kmeans_centroids(s) c;

-- the grid of the weights is a part of the model, in all its forms
SELECT kmeans_fit('decay', '{x,y}', 2, weight_column => 'w')::text::jsonb -> 'preparation' ? 'weight_exp' AS weighted,
    kmeans_fit('decay', '{x,y}', 2)::text::jsonb -> 'preparation' ? 'weight_exp' AS not_weighted;
CREATE TABLE model AS SELECT kmeans_fit('decay', '{x,y}', 2, weight_column => 'w') AS m;
SELECT kmeans_model_send(m::text::kmeans_model) = kmeans_model_send(m) AS text, m::text::kmeans_model::text = m::text AS again,
    length(kmeans_model_send(m)) - length(kmeans_model_send(replace(m::text, ', "weight_exp": 0', '')::kmeans_model)) AS bytes FROM model;
SELECT current_setting('data_directory') || '/gkmeans_weights.bin' AS file \gset
COPY model TO :'file' (FORMAT binary);
CREATE TABLE back (m kmeans_model);
COPY back FROM :'file' (FORMAT binary);
SELECT count(*), bool_and(model.m::text = back.m::text) AS same FROM model, back;
COPY (SELECT WHERE false) TO :'file';
SELECT '{"preparation": {"weight_exp": 1.5}}'::kmeans_model;
SELECT replace(m::text, ', "weight_exp": 0', ', "weight_exp": 1025')::kmeans_model FROM model;
