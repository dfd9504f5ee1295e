-- The SQLSTATE of every error of a fit. Their texts are in the other tests.
CREATE TABLE pts (id int, x float8, t text, label int);
INSERT INTO pts VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 'NaN', 'c');
CREATE TABLE arrays (a float8[]);
INSERT INTO arrays VALUES ('{1,2}'), ('{1,2,3}');
CREATE TABLE zeros AS SELECT 0 AS x, 0 AS y;
CREATE VIEW v AS SELECT * FROM pts;
CREATE SEQUENCE seq;
CREATE TABLE model AS SELECT kmeans_fit('pts', '{id}', 2) AS m;

CREATE FUNCTION state(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE call;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;

SELECT state('SELECT * FROM ' || call), call FROM (VALUES
    ($$kmeans('pts', '{id}', 2)$$),
    ($$kmeans('pts', '{id}', 0)$$),
    ($$kmeans('pts', '{id}', 1000001)$$),
    ($$kmeans('pts', '{id}', NULL::int)$$),
    ($$kmeans('pts', '{nosuch}', 2)$$),
    ($$kmeans('pts', '{t}', 2)$$),
    ($$kmeans('pts', '{}', 2)$$),
    ($$kmeans('pts', array_fill('id'::text, ARRAY[1601]), 2)$$),
    ($$kmeans('pts', '{x}', 2)$$),
    ($$kmeans('arrays', '{a}', 1)$$),
    ($$kmeans('zeros', '{x,y}', 1, distance => 'cosine')$$),
    ($$kmeans('seq', '{last_value}', 1)$$),
    ($$kmeans(12345678, '{x}', 1)$$),
    ($$kmeans('pts', '{id}', 2, weight_column => 'nosuch')$$),
    ($$kmeans('pts', '{id}', 2, weight_column => 't')$$),
    ($$kmeans('pts', '{id}', 2, weight_column => 'x')$$),
    ($$kmeans('pts', '{id}', 2, init => 'best')$$),
    ($$kmeans('pts', '{id}', 2, n_init => 0)$$),
    ($$kmeans('pts', '{id}', 2, max_iter => 0)$$),
    ($$kmeans('pts', '{id}', 2, tol => -1)$$),
    ($$kmeans('pts', '{id}', 2, distance => 'L1')$$),
    ($$kmeans('pts', '{id}', 2, distance => 'cosine', standardize => true)$$),
    ($$kmeans('pts', '{id}', 2, nonfinite => '')$$),
    ($$kmeans('pts', '{id}', 2, device => 'qpu')$$),
    ($$kmeans('pts', '{id}', 2, centroids => '{1,2}')$$),
    ($$kmeans('pts', '{id}', 2, centroids => '{{1},{2},{3}}')$$),
    ($$kmeans('pts', '{id}', 2, centroids => '{{1,1},{2,2}}')$$),
    ($$kmeans('pts', '{id}', 2, centroids => '{{1},{NULL}}')$$),
    ($$kmeans('pts', '{id}', 2, centroids => '{{1},{NaN}}')$$),
    ($$model, kmeans('pts', '{id}', 3, warm_start => m)$$),
    ($$model, kmeans('pts', '{id}', 2, warm_start => m, centroids => '{{1},{2}}')$$),
    ($$kmeans('v', '{id}', 2, label_column => 'label')$$),
    ($$kmeans('pts', '{id}', 2, label_column => 't')$$),
    ($$kmeans('pts', '{id}', 2, label_column => 'id')$$),
    ($$kmeans('pts', '{id}', 2, label_column => 'xmin')$$),
    ($$kmeans_labels('v', '{id}', 2)$$),
    ($$model, kmeans_labels('arrays', m)$$),
    ($$kmeans_labels('pts', NULL::kmeans_model)$$)
) c (call);

DROP VIEW v;
DROP SEQUENCE seq;
DROP TABLE pts, arrays, zeros, model;
DROP FUNCTION state;
