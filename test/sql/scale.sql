-- One power of two is taken out of every distance and put back: whatever the features' range is,
-- multiplying them by a power of two multiplies distances, and changes no label.

\set VERBOSITY terse

CREATE TABLE sc_rows AS
    SELECT i AS id, (i % 4) * (i % 4) * 3 + i % 2 AS x, (i % 3) * 20 AS y FROM generate_series(1, 60) i;

-- 2^e in two factors: one alone does not reach the ends of double precision
CREATE FUNCTION sc_times(v float8, e int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
    SELECT v * 2.0::float8 ^ (e / 2) * 2.0::float8 ^ (e - e / 2)
$$;
CREATE TABLE sc_scaled (id int, x float8, y float8);

-- what of a clustering differs from the one of whole numbers, times 2^e; with 12 clusters, one for
-- each point, centroids are the points
CREATE FUNCTION sc_differs(e int, k int, standardize boolean) RETURNS TABLE (
    labels bigint, distances bigint, radius bigint, centroids bigint, predicted bigint, kmeans_distance bigint
) LANGUAGE plpgsql AS $$
DECLARE
    p int := CASE WHEN standardize THEN 0 ELSE e END;
    m kmeans_model;
    o kmeans_model;
BEGIN
    TRUNCATE sc_scaled;
    INSERT INTO sc_scaled SELECT id, sc_times(r.x, e), sc_times(r.y, e) FROM sc_rows r ORDER BY id;
    o := kmeans_fit('sc_rows', '{x,y}', k, standardize => standardize);
    m := kmeans_fit('sc_scaled', '{x,y}', k, standardize => standardize);
    SELECT count(*) FILTER (WHERE a.cluster <> b.cluster),
           count(*) FILTER (WHERE sc_times(a.distance, p) <> b.distance)
      INTO labels, distances
      FROM (SELECT r.id, l.cluster, l.distance FROM kmeans_labels('sc_rows', o) l JOIN sc_rows r ON r.ctid = l.ctid) a
      JOIN (SELECT r.id, l.cluster, l.distance FROM kmeans_labels('sc_scaled', m) l JOIN sc_scaled r ON r.ctid = l.ctid) b
           USING (id);
    SELECT count(*) FILTER (WHERE sc_times(a.radius, p) <> b.radius),
           count(*) FILTER (WHERE CASE WHEN k = 12 THEN (round(a.centroid[1]), round(a.centroid[2])) <>
                                           (round(sc_times(b.centroid[1], -e)), round(sc_times(b.centroid[2], -e)))
                                       ELSE (a.centroid[1], a.centroid[2]) <>
                                           (sc_times(b.centroid[1], -e), sc_times(b.centroid[2], -e)) END)
      INTO radius, centroids
      FROM kmeans_centroids(o) a JOIN kmeans_centroids(m) b USING (cluster);
    SELECT count(*) FILTER (WHERE kmeans_predict(o, r.x, r.y) <> kmeans_predict(m, s.x, s.y)),
           count(*) FILTER (WHERE sc_times(kmeans_distance(o, r.x, r.y), p) <> kmeans_distance(m, s.x, s.y))
      INTO predicted, kmeans_distance
      FROM sc_rows r JOIN sc_scaled s USING (id);
    RETURN NEXT;
END $$;

SELECT e, d.* FROM unnest(ARRAY[-1074, -1073, -1060, -1025, -1010, -1000]) e, sc_differs(e, 12, false) d;
SELECT e, d.* FROM unnest(ARRAY[-1015, -1010, -1000, -990, -500, 500]) e, sc_differs(e, 5, false) d;
SELECT e, d.* FROM unnest(ARRAY[-1074, -1060, -1025]) e, sc_differs(e, 12, true) d;
SELECT e, d.* FROM unnest(ARRAY[-1015, -1010, -990, -500, 500, 1000, 1014]) e, sc_differs(e, 5, true) d;
SET gkmeans.simd = scalar;
SELECT e, d.* FROM unnest(ARRAY[-1074, -1010]) e, sc_differs(e, 12, false) d;
RESET gkmeans.simd;

-- distances, where their squares may be beyond double precision
CREATE TABLE sc_two AS SELECT v FROM unnest(ARRAY[0, 1, 10, 12]) v;
CREATE FUNCTION sc_distances(factor float8) RETURNS TABLE (distance float8) LANGUAGE plpgsql AS $$
DECLARE
    m kmeans_model;
BEGIN
    TRUNCATE sc_scaled;
    INSERT INTO sc_scaled SELECT v, v * factor FROM sc_two;
    m := kmeans_fit('sc_scaled', '{x}', 4);
    RETURN QUERY SELECT kmeans_distance(m, v * factor) FROM unnest(ARRAY[2, 5, 30]) v;
END $$;
SELECT f, array_agg(round((d / f)::numeric, 5)) AS distances
  FROM unnest(ARRAY['1e-305', 1e-301, 1, 1e301, 1e303, 1e305, 4e306]::float8[]) f, sc_distances(f) d GROUP BY f ORDER BY f;

-- the smallest numbers that there are
TRUNCATE sc_scaled;
INSERT INTO sc_scaled SELECT v, v * '5e-324'::float8 FROM sc_two;
SELECT cluster, size, centroid, radius FROM kmeans('sc_scaled', '{x}', 4);
SELECT cluster, size, centroid, radius FROM kmeans('sc_scaled', '{x}', 2);
SELECT cluster, size, centroid, radius FROM kmeans('sc_scaled', '{x}', 2, distance => 'cosine', nonfinite => 'skip');

-- a feature that others are 10^600 times larger than keeps its centroids
CREATE TABLE sc_apart AS SELECT v * 1e303::float8 AS x, v * '1e-305'::float8 AS y FROM sc_two;
SELECT cluster, size, centroid FROM kmeans('sc_apart', '{x,y}', 4);
SELECT k, round(silhouette::numeric, 5) AS silhouette, round(davies_bouldin::numeric, 5) AS davies_bouldin
  FROM kmeans_evaluate(kmeans_fit('sc_scaled', '{x}', 2), 'sc_scaled');
SELECT k, round(silhouette::numeric, 5) AS silhouette, round(davies_bouldin::numeric, 5) AS davies_bouldin
  FROM kmeans_evaluate(kmeans_fit('sc_two', '{v}', 2), 'sc_two');

DROP FUNCTION sc_differs, sc_distances, sc_times;
DROP TABLE sc_rows, sc_scaled, sc_two, sc_apart;
