-- kmeans_labels(), both forms.

CREATE TABLE pts (id int, x float8, y real);
INSERT INTO pts VALUES (1, 0, 0), (2, NULL, 0), (3, 10, 0), (4, 12, 0), (5, 2, 0), (6, 100, 'NaN'), (7, 1, 0);

-- rows that are left out have NULLs
SELECT p.id, l.cluster, l.distance, l.tableoid::regclass
FROM kmeans_labels('pts', '{x,y}', 2, nonfinite => 'skip') l
JOIN pts p ON p.ctid = l.ctid AND p.tableoid = l.tableoid ORDER BY p.id;
SELECT count(*) FROM kmeans_labels('pts', '{x,y}', 2);
-- weight 0: ignored
SELECT p.id, l.cluster FROM kmeans_labels('pts', '{id}', 2, weight_column => 'x', centroids => '{{1},{7}}') l
JOIN pts p ON p.ctid = l.ctid ORDER BY p.id;

-- labels of a model: the same as of the fit, and as kmeans_predict()
CREATE TABLE model AS SELECT kmeans_fit('pts', '{x,y}', 2, nonfinite => 'skip') AS m;
SELECT p.id, l.cluster, l.distance,
       l.cluster = kmeans_predict(m, ARRAY[x, y]) AS predict,
       l.distance = kmeans_distance(m, ARRAY[x, y]) AS same_distance
FROM model, kmeans_labels('pts', m, nonfinite => 'skip') l JOIN pts p ON p.ctid = l.ctid
WHERE y <> 'NaN' ORDER BY p.id;
SELECT count(*) FROM model, kmeans_labels('pts', m);
SELECT l1.ctid FROM model, kmeans_labels('pts', m, nonfinite => 'skip') l1
EXCEPT SELECT l2.ctid FROM kmeans_labels('pts', '{x,y}', 2, nonfinite => 'skip') l2;
-- rows that the model has not seen, far away too
CREATE TABLE others (y float8, x numeric, more text);
INSERT INTO others VALUES (0, 6.5, 'a'), (0, 1e4, 'b'), (NULL, 1, 'c');
SELECT o.more, l.cluster, l.distance FROM model, kmeans_labels('others', m) l JOIN others o ON o.ctid = l.ctid ORDER BY 1;
-- cosine and standardize too
SET client_min_messages = warning;
SELECT d, s, count(*) FILTER (WHERE a.cluster = b.cluster AND a.distance = b.distance) AS same, count(*) AS all
FROM (VALUES ('cosine', false), ('euclidean', true), ('euclidean', false)) o (d, s),
     LATERAL kmeans_fit('pts', '{id,x}', 2, distance => d, standardize => s, nonfinite => 'skip') m,
     LATERAL kmeans_labels('pts', m, nonfinite => 'skip') a
     JOIN LATERAL kmeans_labels('pts', '{id,x}', 2, distance => d, standardize => s, nonfinite => 'skip') b USING (tableoid, ctid)
WHERE a.cluster IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2;
RESET client_min_messages;

-- an array column
CREATE TABLE arrays AS SELECT id, ARRAY[id % 2, id] AS a FROM generate_series(1, 6) id;
CREATE TABLE array_model AS SELECT kmeans_fit('arrays', '{a}', 2) AS m;
SELECT r.id, l.cluster, round(l.distance::numeric, 3) AS distance FROM array_model, kmeans_labels('arrays', m) l JOIN arrays r ON r.ctid = l.ctid ORDER BY 1;
UPDATE arrays SET a = '{1,2,3}';
SELECT * FROM array_model, kmeans_labels('arrays', m);

-- partitions and children: tableoid tells them apart
CREATE TABLE part (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE part_a PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE TABLE part_b PARTITION OF part FOR VALUES FROM (10) TO (20);
INSERT INTO part SELECT i, i % 2 * 50 FROM generate_series(5, 14) i;
SELECT p.tableoid::regclass, p.id, l.cluster FROM kmeans_labels('part', '{x}', 2, centroids => '{{50},{0}}') l
JOIN part p ON p.ctid = l.ctid AND p.tableoid = l.tableoid ORDER BY p.id;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM part;
SELECT cluster, count(*) FROM kmeans_labels('mv', '{x}', 2, centroids => '{{50},{0}}') GROUP BY 1 ORDER BY 1;

-- the planner expects a label per row, once the table has been analyzed
CREATE FUNCTION planned_rows(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
SELECT planned_rows($q$SELECT * FROM kmeans_labels('pts', '{id}', 2)$q$);
ANALYZE pts;
SELECT planned_rows($q$SELECT * FROM kmeans_labels('pts', '{id}', 2)$q$),
       planned_rows($q$SELECT * FROM kmeans_labels('pts', NULL::kmeans_model)$q$),
       planned_rows($q$SELECT * FROM kmeans_labels(NULL, '{id}', 2)$q$),
       planned_rows($q$SELECT * FROM pg_class c, kmeans_labels(c.oid, '{id}', 2) WHERE c.oid = 0$q$);

-- no ctid, no columns, other columns
CREATE VIEW v AS SELECT * FROM pts;
SELECT * FROM kmeans_labels('v', '{id}', 2);
SELECT * FROM model, kmeans_labels('v', m);
SELECT * FROM model, kmeans_labels('part', m);
SELECT * FROM model, kmeans_labels('pts', (m::text::jsonb || '{"columns": []}')::text::kmeans_model);
SELECT * FROM kmeans_labels('pts', NULL::kmeans_model);
SELECT * FROM model, kmeans_labels(NULL, m);
SELECT * FROM model, kmeans_labels('pts', m, nonfinite => 'drop');
SELECT * FROM model, kmeans_labels('pts', m, device => 'abacus');

DROP FUNCTION planned_rows;
DROP VIEW v;
DROP MATERIALIZED VIEW mv;
DROP TABLE pts, model, others, arrays, array_model, part;
