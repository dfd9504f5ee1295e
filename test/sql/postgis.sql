-- PostGIS itself, where it is installed: what query.sql has a stand-in for

SELECT NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'postgis') AS skip \gset
\if :skip
\echo 'skipped: PostGIS is not installed'
\quit
\endif
SET client_min_messages = error;
CREATE EXTENSION postgis;
RESET client_min_messages;

CREATE TABLE places AS
SELECT i AS id, (i * 7919) % 101 AS x, (i * 104729) % 97 AS y, i % 3 AS z,
    ST_SetSRID(ST_MakePoint((i * 7919) % 101, (i * 104729) % 97), 25832) AS geom,
    ST_MakePoint((i * 7919) % 101, (i * 104729) % 97, i % 3) AS geom3,
    ST_MakePointM((i * 7919) % 101, (i * 104729) % 97, i % 3 + 1)::geometry(PointM) AS geom_m,
    ST_MakePoint((i * 7919) % 101, (i * 104729) % 90)::geography AS geog,
    i % 3 + 1 AS m
FROM generate_series(1, 500) i;

-- what comes out of a model, but for its times and names
CREATE FUNCTION told(m kmeans_model) RETURNS text LANGUAGE sql AS $$
    SELECT md5((to_jsonb(i) - '{columns,device,load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[])::text || (SELECT string_agg(c::text, '' ORDER BY c.cluster) FROM kmeans_centroids(m) c))
    FROM kmeans_info(m) i $$;

-- a point is its coordinates, to the last bit: of a relation and of a query
SELECT told(kmeans_fit('places', '{geom}', 4)) = told(kmeans_fit('places', '{x,y}', 4)) AS geometry,
    told(kmeans_fit('places', '{geom3}', 4)) = told(kmeans_fit('places', '{x,y,z}', 4)) AS three,
    told(kmeans_fit('places', '{geom_m}', 4)) = told(kmeans_fit('places', '{x,y}', 4)) AS measured,
    told(kmeans_fit('places', '{geog}', 4)) = told(kmeans_query_fit('SELECT x, (id * 104729) % 90 FROM places', 4)) AS geography,
    told(kmeans_query_fit('SELECT geom FROM places', 4)) = told(kmeans_fit('places', '{x,y}', 4)) AS query,
    told(kmeans_query_fit('SELECT geom_m, ST_M(geom_m) AS m FROM places', 4, weight_column => 'm')) = told(kmeans_fit('places', '{x,y}', 4, weight_column => 'm')) AS weights;
SELECT cluster, size FROM kmeans('places', '{geom}', 3, label_column => 'label');
SELECT count(*) FILTER (WHERE l.cluster = p.label), count(*) FILTER (WHERE l.cluster = kmeans_predict(f.m, ST_X(geom), ST_Y(geom)))
FROM (SELECT kmeans_fit('places', '{geom}', 3) AS m) f, kmeans_labels('places', f.m) l JOIN places p ON p.ctid = l.ctid;

-- ST_ClusterKMeans: the same groups where they are far apart; the best of 100 starts is no worse elsewhere
CREATE TABLE towns AS SELECT i AS id, i % 5 AS town, ST_MakePoint(i % 5 * 1000 + (i * 7919) % 101, i % 5 % 2 * 3000 + (i * 104729) % 97) AS geom FROM generate_series(1, 400) i;
SELECT count(DISTINCT (theirs, ours)) AS pairs, count(DISTINCT theirs) AS theirs, count(DISTINCT ours) AS ours, count(DISTINCT (ours, town)) AS towns
FROM (SELECT town, ST_ClusterKMeans(geom, 5) OVER () AS theirs, kmeans(ARRAY[ST_X(geom), ST_Y(geom)], 5) OVER () AS ours FROM towns) l;
SELECT k, (SELECT inertia FROM kmeans_info(kmeans_fit('places', '{geom}', k, n_init => 100, tol => 0))) <=
    1.000001 * (SELECT sum(d) FROM (SELECT sum((x - a) ^ 2 + (y - b) ^ 2) AS d
        FROM (SELECT x, y, avg(x) OVER c AS a, avg(y) OVER c AS b, c FROM (SELECT x, y, ST_ClusterKMeans(geom, k) OVER () AS c FROM places) l WINDOW c AS (PARTITION BY c)) r) s) AS as_good
FROM unnest('{2,5,20}'::int[]) k;

-- its weights are the M of a point
CREATE TABLE heavy AS SELECT x, m, ST_MakePointM(x, 0, m) AS geom FROM (VALUES (0.0, 1.0), (6, 1000), (8, 1), (14, 1)) v (x, m);
SELECT count(DISTINCT (theirs, ours)) AS pairs, count(DISTINCT theirs) AS theirs, count(DISTINCT ours) AS ours
FROM (SELECT ST_ClusterKMeans(geom, 2) OVER () AS theirs, kmeans_predict(f.m, x) AS ours FROM heavy,
    (SELECT kmeans_query_fit('SELECT ST_X(geom), ST_M(geom) AS m FROM heavy', 2, weight_column => 'm', n_init => 10) AS m) f) l;

-- NULL and an empty point have no features
INSERT INTO places (id, geom) VALUES (1000, NULL), (1001, 'POINT EMPTY');
SELECT sum(size) FROM kmeans('places', '{geom}', 3);
DELETE FROM places WHERE id >= 1000;

-- what is refused, with the statement that works
INSERT INTO places (id, geom) VALUES (1000, 'SRID=25832;POLYGON((0 0,1 0,1 1,0 0))');
SELECT size FROM kmeans('places', '{geom}', 3);
SELECT size FROM kmeans_query('SELECT geom FROM places', 3);
SELECT sum(size) FROM kmeans_query('SELECT ST_Centroid(geom) FROM public.places', 3);
DELETE FROM places WHERE id >= 1000;
INSERT INTO places (id, geom) VALUES (1000, 'SRID=25832;POINT Z(1 2 3)');
SELECT size FROM kmeans('places', '{geom}', 3);
SELECT sum(size) FROM kmeans_query('SELECT ST_Force2D(geom) FROM places', 3);
SELECT size FROM kmeans('places', '{geom,x}', 3);
SELECT size FROM kmeans('places', '{x,geog}', 3);
SELECT kmeans_predict(kmeans_fit('places', '{x,y}', 3), geom) FROM places;
SELECT kmeans(geog, 3) OVER () FROM places;
SELECT kmeans_agg(point(x, y), 3) FROM places;
SELECT size FROM kmeans('places', '{x}', 3, weight_column => 'geom');

DROP TABLE places, towns, heavy;
DROP FUNCTION told;
DROP EXTENSION postgis;
