-- the statements of docs/group-by.md, in their order

SET client_min_messages = warning;

CREATE TABLE trips (id int, city int, km float8, minutes real);
INSERT INTO trips
SELECT i, i % 3, 2 + 8 * (i % 2) + hashint4(i) % 1000 / 1000.0, 10 + 25 * (i % 2) + hashint4(-i) % 1000 / 200.0
FROM generate_series(1, 6000) i;

CREATE TABLE models (id int PRIMARY KEY, model kmeans_model);
INSERT INTO models VALUES (1, kmeans_fit('trips', '{km,minutes}', 2, max_iter => 1, tol => 0));

SELECT kmeans_predict(model, km, minutes) AS cluster,
       feature_sum(km, minutes) AS feature_sum,
       count(*) AS mass_sum
FROM trips, models WHERE models.id = 1
GROUP BY 1 ORDER BY 1;

SELECT feature_sum(x), sum(x) FROM (VALUES (1e16::float8), (1), (-1e16)) v (x);
SELECT feature_sum(ARRAY[km, minutes], 2.5) FROM trips;                  -- with a weight
SELECT DISTINCT ON (city) city, feature_sum(km) OVER (PARTITION BY city ORDER BY id ROWS 99 PRECEDING)
FROM trips ORDER BY city, id DESC;                                       -- in a window

INSERT INTO models
SELECT 2, kmeans_step((SELECT model FROM models WHERE id = 1), km, minutes) FROM trips;

SELECT m.id, i.iterations, i.converged, c.cluster, c.size
FROM models m, kmeans_info(model) i, kmeans_centroids(model) c ORDER BY 1, 4;

CREATE FUNCTION iterate(m kmeans_model) RETURNS kmeans_model LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT (kmeans_info(m)).converged LOOP
        SELECT kmeans_step(m, km, minutes) INTO m FROM trips;
    END LOOP;
    RETURN m;
END $$;

SELECT bool_and(a.centroid = b.centroid AND a.inertia = b.inertia) AS same_bits
FROM models m, kmeans_centroids(iterate(model)) a
JOIN kmeans_centroids(kmeans_fit('trips', '{km,minutes}', 2, tol => 0)) b USING (cluster)
WHERE m.id = 1;

SET parallel_setup_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS off) SELECT feature_sum(km, minutes) FROM trips;
RESET parallel_setup_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;

CREATE TABLE parts (part int, state kmeans_state);

-- of a query
INSERT INTO parts
SELECT city, kmeans_step_partial((SELECT model FROM models WHERE id = 1), km, minutes)
FROM trips WHERE city < 2 GROUP BY city;

-- of a relation
CREATE VIEW third_city AS SELECT * FROM trips WHERE city = 2;
INSERT INTO parts SELECT 2, kmeans_step('third_city', '{km,minutes}', model) FROM models WHERE id = 1;

SELECT kmeans_finish(kmeans_combine(state::text::kmeans_state))::text = (SELECT model::text FROM models WHERE id = 2) AS same_model
FROM parts;

SELECT city, cluster, size, round(centroid[1]::numeric, 2) AS km
FROM (SELECT city, kmeans_agg(ARRAY[km, minutes], 2, kmeans_options(seed => 1)) AS model
      FROM trips GROUP BY city) m, kmeans_centroids(model)
ORDER BY city, cluster;

SELECT city, label, count(*), round(avg(km)::numeric, 2) AS km
FROM (SELECT city, km, kmeans(ARRAY[km, minutes], 2) OVER (PARTITION BY city) AS label FROM trips) l
GROUP BY 1, 2 ORDER BY 1, 2;

SELECT grp, cluster, size, round(centroid[1]::numeric, 2) AS km
FROM kmeans_grouped('trips', '{city}', '{km,minutes}', 2)
ORDER BY grp, cluster;

DROP TABLE trips, models, parts CASCADE;
DROP FUNCTION iterate;
