-- A made-up older version, for test/t/080_upgrade.pl: what ALTER EXTENSION UPDATE has
-- to bring up to date. It has the type and a part of the functions, without comments;
-- kmeans_distance is not yet PARALLEL SAFE, and kmeans_sizes went away later. Do not
-- change this file: nobody can change a version that is out.
\echo Use "CREATE EXTENSION gkmeans" to load this file. \quit

CREATE TYPE kmeans_model;

CREATE FUNCTION kmeans_model_in(cstring) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_model_out(kmeans_model) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_model_recv(internal) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_model_send(kmeans_model) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE TYPE kmeans_model (
    INPUT = kmeans_model_in,
    OUTPUT = kmeans_model_out,
    RECEIVE = kmeans_model_recv,
    SEND = kmeans_model_send,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = double,
    STORAGE = external
);

CREATE FUNCTION kmeans_predict(model kmeans_model, VARIADIC point "any") RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_distance(model kmeans_model, VARIADIC point "any") RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT;

CREATE FUNCTION kmeans_centroids(model kmeans_model,
    OUT cluster integer, OUT size bigint, OUT centroid double precision[],
    OUT inertia double precision, OUT radius double precision)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION kmeans_sizes(model kmeans_model) RETURNS bigint[]
    AS 'SELECT array_agg(size ORDER BY cluster) FROM kmeans_centroids(model)'
    LANGUAGE SQL IMMUTABLE STRICT;
