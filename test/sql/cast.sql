-- a type with a cast to real[] is a point, however the cast is declared: everywhere by one rule

\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA casts;
SET search_path = casts, public;
CREATE TYPE implicit AS (a real, b real);
CREATE TYPE assigned AS (a real, b real);
CREATE TYPE explicit AS (a real, b real);
CREATE TYPE told AS (a real, b real);
CREATE TYPE labels AS ENUM ('{0,0}', '{0,1}', '{9,1}', '{9,0}');
CREATE TYPE nothing AS (a real, b real);
CREATE FUNCTION reals(implicit) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1.a, $1.b]';
CREATE FUNCTION reals(assigned) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1.a, $1.b]';
CREATE FUNCTION reals(explicit) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1.a, $1.b]';
-- a cast's function may be told whether it is explicit
CREATE FUNCTION reals(told, int, bool) RETURNS real[] LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN $3 THEN ARRAY[$1.a, $1.b] ELSE ARRAY[100, 100] END';
CREATE CAST (implicit AS real[]) WITH FUNCTION reals(implicit) AS IMPLICIT;
CREATE CAST (assigned AS real[]) WITH FUNCTION reals(assigned) AS ASSIGNMENT;
CREATE CAST (explicit AS real[]) WITH FUNCTION reals(explicit);
CREATE CAST (told AS real[]) WITH FUNCTION reals(told, int, bool);
CREATE CAST (labels AS real[]) WITH INOUT;
CREATE DOMAIN explicit_domain AS explicit;

CREATE TABLE pts AS SELECT n, ARRAY[a, b]::real[] AS reals, (a, b)::implicit AS implicit, (a, b)::assigned AS assigned, (a, b)::explicit AS explicit,
    (a, b)::told AS told, format('{%s,%s}', a, b)::labels AS labels, (a, b)::explicit::explicit_domain AS explicit_domain,
    (a, b)::nothing AS nothing, format('{%s,%s}', a, b) AS text
FROM (VALUES (1, 0, 0), (2, 0, 1), (3, 9, 1), (4, 9, 0), (5, 0, 0)) v (n, a, b);
INSERT INTO pts VALUES (6);

-- the same clusters as of real[], by every function that takes points
CREATE FUNCTION points_of(col text) RETURNS TABLE (kmeans text, predict text, distance text, step text, agg text, over text, grouped text) LANGUAGE plpgsql AS $$
DECLARE
    fit text := 'SELECT kmeans_fit(''pts'', ''{reals}'', 2)';
    statement text;
    results text[];
    result text;
BEGIN
    FOREACH statement IN ARRAY ARRAY[
        'SELECT array_agg(centroid)::text FROM kmeans(''pts'', ''{%1$s}'', 2)',
        'SELECT array_agg(kmeans_predict((%2$s), %1$s) ORDER BY n)::text FROM pts',
        'SELECT array_agg(kmeans_distance((%2$s), %1$s) ORDER BY n)::text FROM pts',
        'SELECT array_agg(centroid)::text FROM (SELECT kmeans_step((%2$s), %1$s) AS s FROM pts) s, kmeans_centroids(s)',
        'SELECT array_agg(centroid)::text FROM (SELECT kmeans_agg(%1$s, 2) AS m FROM pts) m, kmeans_centroids(m)',
        'SELECT array_agg(c ORDER BY n)::text FROM (SELECT n, kmeans(%1$s, 2) OVER () AS c FROM pts) o',
        'SELECT array_agg(centroid ORDER BY grp, cluster)::text FROM kmeans_grouped(''pts'', ''{n}'', ''{%1$s}'', 1)']
    LOOP
        BEGIN
            EXECUTE format(statement, col, fit) INTO result;
        EXCEPTION WHEN OTHERS THEN
            result := SQLSTATE;
        END;
        results := results || result;
    END LOOP;
    RETURN QUERY SELECT results[1], results[2], results[3], results[4], results[5], results[6], results[7];
END $$;
SELECT * FROM points_of('reals') \gx
-- (an implicit cast leaves PostgreSQL two forms of kmeans_step() to choose from, as with pgvector without gkmeans_vector)
SELECT col, (p.kmeans, p.predict, p.distance, p.agg, p.over, p.grouped) = (r.kmeans, r.predict, r.distance, r.agg, r.over, r.grouped) AS same,
    CASE WHEN p.step = r.step THEN 'same' ELSE p.step END AS step
FROM points_of('reals') r, unnest('{implicit,assigned,explicit,told,labels,explicit_domain}'::text[]) col, points_of(col) p;
SELECT p.* FROM unnest('{nothing,text}'::text[]) col, points_of(col) p;
DROP SCHEMA casts CASCADE;
