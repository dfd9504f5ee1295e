-- complain if the script is sourced in psql, rather than by CREATE EXTENSION
\echo Use "CREATE EXTENSION gkmeans" to load this file. \quit

-- == model ==

CREATE TYPE kmeans_model;

CREATE FUNCTION kmeans_model_in(cstring) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION kmeans_model_out(kmeans_model) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE FUNCTION kmeans_model_recv(internal) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE FUNCTION kmeans_model_send(kmeans_model) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

-- Stored out of line but not compressed: centroids do not compress.
CREATE TYPE kmeans_model (
    INPUT = kmeans_model_in,
    OUTPUT = kmeans_model_out,
    RECEIVE = kmeans_model_recv,
    SEND = kmeans_model_send,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = double,
    STORAGE = external
);

COMMENT ON TYPE kmeans_model IS
    'a k-means model: k centroids of d features, how points are prepared, and how the fit went; its text is JSON (model::text::jsonb)';
COMMENT ON FUNCTION kmeans_model_in(cstring) IS
    'I/O: a model from JSON; invalid_text_representation names the key that is missing or wrong, feature_not_supported for a newer format version';
COMMENT ON FUNCTION kmeans_model_out(kmeans_model) IS
    'I/O: a model as JSON whose numbers read back as the same bits';
COMMENT ON FUNCTION kmeans_model_recv(internal) IS
    'I/O: a model from its binary form; invalid_binary_representation says what is wrong';
COMMENT ON FUNCTION kmeans_model_send(kmeans_model) IS
    'I/O: a model in its binary form';

-- VARIADIC "any" alone, and no overloads for array types: it takes both, and with
-- overloads a call with an untyped literal or a pgvector value would be ambiguous.

CREATE FUNCTION kmeans_predict(model kmeans_model, VARIADIC point "any") RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_predict(kmeans_model, "any") IS
    'number (0-based) of the cluster whose centroid is nearest to a point: one array of d numbers (smallint, int, bigint, real, float8, numeric, or a type with a cast to real[] such as vector), or d numbers one by one; NULL when a feature is NULL; error for NaN, infinity and another number of features than the model has';

CREATE FUNCTION kmeans_distance(model kmeans_model, VARIADIC point "any") RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_distance(kmeans_model, "any") IS
    'distance of a point (as for kmeans_predict) to the nearest centroid: Euclidean in the units of the features, of the standardized features if the model standardizes; 1 - cosine for the cosine distance';

CREATE FUNCTION kmeans_transform(model kmeans_model, VARIADIC point "any") RETURNS double precision[]
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_transform(kmeans_model, "any") IS
    'distances of a point (as for kmeans_predict) to all centroids: k numbers in the order of the clusters, units as for kmeans_distance';

CREATE FUNCTION kmeans_centroids(model kmeans_model,
    OUT cluster integer, OUT size bigint, OUT centroid double precision[],
    OUT inertia double precision, OUT radius double precision)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION kmeans_centroids(kmeans_model) IS
    'one row per cluster of a model: its number, how many points it had, its centroid (d numbers in the units of the features), the sum of squared distances of its points, and the largest distance of one';

CREATE FUNCTION kmeans_info(model kmeans_model,
    OUT k integer, OUT d integer, OUT columns text[],
    OUT rows_used bigint, OUT rows_skipped bigint,
    OUT iterations integer, OUT converged boolean, OUT inertia double precision,
    OUT seed bigint, OUT init text, OUT distance text, OUT standardize boolean,
    OUT device text, OUT strategy text,
    OUT load_ms double precision, OUT seed_ms double precision,
    OUT iterate_ms double precision, OUT total_ms double precision)
    RETURNS record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_info(kmeans_model) IS
    'how a model was made: sizes, columns (NULL: not known), rows, iterations, options, device, and where the time went (milliseconds)';

-- == end of model ==

-- == fit ==

-- <options> are the same twelve arguments in the same order in every function
-- that fits. They are documented once, in docs/reference.md.

CREATE FUNCTION kmeans(
    relation regclass,
    columns text[],
    k int,
    label_column text DEFAULT NULL,
    weight_column text DEFAULT NULL,
    init text DEFAULT 'k-means++',
    warm_start kmeans_model DEFAULT NULL,
    centroids float8[] DEFAULT NULL,
    n_init int DEFAULT 1,
    max_iter int DEFAULT 100,
    tol float8 DEFAULT 1e-4,
    distance text DEFAULT 'euclidean',
    standardize bool DEFAULT false,
    seed bigint DEFAULT 0,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans(regclass, text[], int, text, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text) IS
    'clusters the rows of a relation: one row per cluster, largest first. columns are numeric columns or one array or vector column; centroid (one element per feature), inertia (sum of squared distances) and radius (largest distance) are in the columns'' units (under the cosine distance: 1 - cosine). label_column: also write each row''s cluster there (an integer column, added when missing)';

CREATE FUNCTION kmeans_fit(
    relation regclass,
    columns text[],
    k int,
    weight_column text DEFAULT NULL,
    init text DEFAULT 'k-means++',
    warm_start kmeans_model DEFAULT NULL,
    centroids float8[] DEFAULT NULL,
    n_init int DEFAULT 1,
    max_iter int DEFAULT 100,
    tol float8 DEFAULT 1e-4,
    distance text DEFAULT 'euclidean',
    standardize bool DEFAULT false,
    seed bigint DEFAULT 0,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_fit(regclass, text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text) IS
    'clusters the rows of a relation and returns the model, for kmeans_predict(), kmeans_centroids(), kmeans_info() and warm_start; NULL when no row is usable';

CREATE FUNCTION kmeans_labels(
    relation regclass,
    columns text[],
    k int,
    weight_column text DEFAULT NULL,
    init text DEFAULT 'k-means++',
    warm_start kmeans_model DEFAULT NULL,
    centroids float8[] DEFAULT NULL,
    n_init int DEFAULT 1,
    max_iter int DEFAULT 100,
    tol float8 DEFAULT 1e-4,
    distance text DEFAULT 'euclidean',
    standardize bool DEFAULT false,
    seed bigint DEFAULT 0,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100000;

COMMENT ON FUNCTION kmeans_labels(regclass, text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text) IS
    'clusters the rows of a table and returns each row''s cluster and its distance to that centroid; NULLs for rows that were left out. Join on (tableoid, ctid) in the same statement';

CREATE FUNCTION kmeans_labels(
    relation regclass,
    model kmeans_model,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8)
    AS 'MODULE_PATHNAME', 'kmeans_labels_model' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100000;

COMMENT ON FUNCTION kmeans_labels(regclass, kmeans_model, text, text) IS
    'the nearest cluster of a model, and the distance to its centroid, for every row of a table that has the columns which the model was made from; NULLs for rows that were left out';

CREATE FUNCTION gkmeans_devices() RETURNS TABLE (backend text, name text, usable bool, reason text, memory bigint, detail text)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;

COMMENT ON FUNCTION gkmeans_devices() IS
    'what can compute here: one row per device. reason: why it can not be used, NULL when it can. memory: in bytes';

CREATE FUNCTION gkmeans_version() RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION gkmeans_version() IS
    'the version of the loaded library';

-- == end of fit ==
