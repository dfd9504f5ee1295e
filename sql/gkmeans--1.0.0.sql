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
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_predict(kmeans_model, "any") IS
    'number (0-based) of the cluster whose centroid is nearest to a point: one array of d numbers (smallint, int, bigint, real, float8, numeric, or a type with a cast to real[] such as vector), or d numbers one by one; NULL when a feature is NULL, unless the model has a mean for it (nulls => ''mean'') or does without (nulls => ''partial''); error for NaN, infinity and another number of features than the model has';

CREATE FUNCTION kmeans_distance(model kmeans_model, VARIADIC point "any") RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_distance(kmeans_model, "any") IS
    'distance of a point (as for kmeans_predict) to the nearest centroid: Euclidean in the units of the features, of the standardized features if the model standardizes; 1 - cosine for the cosine distance, the sum of absolute differences for manhattan';

CREATE FUNCTION kmeans_normalized_distance(model kmeans_model, VARIADIC point "any") RETURNS double precision
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_normalized_distance(kmeans_model, "any") IS
    'kmeans_distance in units of the root mean square distance of the cluster''s rows in the fit, as in kmeans_anomalies: above a threshold, the point is an anomaly';

CREATE FUNCTION kmeans_transform(model kmeans_model, VARIADIC point "any") RETURNS double precision[]
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_transform(kmeans_model, "any") IS
    'distances of a point (as for kmeans_predict) to all centroids: k numbers in the order of the clusters, units as for kmeans_distance';

CREATE FUNCTION kmeans_memberships(model kmeans_model, VARIADIC point "any") RETURNS double precision[]
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_memberships(kmeans_model, "any") IS
    'how much a point (as for kmeans_predict) belongs to each cluster: k numbers with the sum 1, in inverse proportion to the squared distances, as in fuzzy c-means with exponent 2';

CREATE FUNCTION kmeans_nearest(model kmeans_model, point "any", m integer)
    RETURNS TABLE (cluster integer, distance double precision)
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION kmeans_nearest(kmeans_model, "any", integer) IS
    'the m clusters nearest to a point (an array or vector as for kmeans_predict, or one number), nearest first, then by number; all k if m is larger. The first row is what kmeans_predict() and kmeans_distance() return; no rows when the model or the point is NULL, or a feature that the model does not fill in';

CREATE FUNCTION kmeans_centroids(model kmeans_model,
    OUT cluster integer, OUT size bigint, OUT centroid double precision[],
    OUT inertia double precision, OUT radius double precision)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION kmeans_centroids(kmeans_model) IS
    'one row per cluster of a model: its number, how many points it had, its centroid (d numbers in the units of the features), the sum of squared distances of its points, and the largest distance of one';

CREATE FUNCTION kmeans_table(model kmeans_model, digits integer DEFAULT 4)
    RETURNS TABLE (cluster integer, size bigint, centroid json)
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION kmeans_table(kmeans_model, integer) IS
    'the clusters of a model to read: centroids by the names of their columns, rounded to that many digits';

CREATE FUNCTION kmeans_explain(model kmeans_model)
    RETURNS TABLE (cluster integer, feature text, value double precision, overall double precision,
        difference double precision, deviations double precision, share double precision)
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 100;

COMMENT ON FUNCTION kmeans_explain(kmeans_model) IS
    'what sets each cluster apart, the most telling feature first: its value and the overall mean, that of the centroids by their sizes, their difference (with standardize also in standard deviations), and its share of the squared distance between centroid and mean, with distance manhattan of the distance';

CREATE FUNCTION kmeans_info(model kmeans_model,
    OUT k integer, OUT d integer, OUT columns text[],
    OUT rows_used bigint, OUT rows_skipped bigint,
    OUT iterations integer, OUT converged boolean, OUT inertia double precision,
    OUT seed bigint, OUT init text, OUT distance text, OUT standardize boolean,
    OUT nulls text, OUT fill double precision[],
    OUT device text, OUT strategy text,
    OUT load_ms double precision, OUT context_ms double precision, OUT upload_ms double precision,
    OUT seed_ms double precision, OUT iterate_ms double precision, OUT total_ms double precision,
    OUT representatives integer, OUT eigenvalues double precision[], OUT gaps double precision[],
    OUT k_by text, OUT gap_strength double precision, OUT components integer, OUT cut_off integer,
    OUT graph_ms double precision, OUT eigen_ms double precision, OUT embed_ms double precision)
    RETURNS record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_info(kmeans_model) IS
    'how a model was made: sizes, columns (NULL: not known), rows, iterations, options, device, and where the time went (milliseconds; context_ms: that the call waited for a GPU to be open and its kernels loaded, upload_ms: until it had the points, NULL without one). From representatives on: of spectral models, else NULL';

-- == end of model ==

-- == fit ==

-- <options> are the same thirteen arguments in the same order in every function
-- that fits. They are documented once, in docs/reference.md. init_sample, fit_sample
-- and centroid_table follow them where the rows of one relation or query are clustered once.

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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans(regclass, text[], int, text, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'clusters the rows of a relation: one row per cluster, largest first. columns are numeric columns or one array or vector column; centroid (one element per feature), inertia (sum of squared distances) and radius (largest distance) are in the columns'' units (with standardize, in standard deviations; under the cosine distance: 1 - cosine). label_column: also write each row''s cluster there (an integer column, added when missing)';

-- what the UPDATE of kmeans() with label_column asks for each row
CREATE FUNCTION gkmeans_has_new_label(tableoid oid, ctid tid) RETURNS bool
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10;
CREATE FUNCTION gkmeans_new_label(tableoid oid, ctid tid) RETURNS int
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10;

COMMENT ON FUNCTION gkmeans_has_new_label(oid, tid) IS
    'internal, for kmeans() with label_column: whether this row gets a new label';
COMMENT ON FUNCTION gkmeans_new_label(oid, tid) IS
    'internal, for kmeans() with label_column: the new label of this row';

-- what kmeans() and kmeans_label_table() have Citus ask for each row of its tables
CREATE FUNCTION gkmeans_label(model kmeans_model, VARIADIC point "any") RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION gkmeans_label(kmeans_model, "any") IS
    'internal, for labels of tables of Citus: as kmeans_predict(), but NULL for a point that is not finite';

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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_fit(regclass, text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'clusters the rows of a relation and returns the model, for kmeans_predict(), kmeans_centroids(), kmeans_info() and warm_start; NULL when no row is usable';

CREATE FUNCTION kmeans_query(
    query text,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans_query(text, int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'clusters the rows of a SELECT, all columns of which are features but for the weight_column, as kmeans() does those of a relation; it runs with the rights of the caller, and may not write';

CREATE FUNCTION kmeans_query_fit(
    query text,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_query_fit(text, int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'kmeans_query() that returns the model, as kmeans_fit() does';

CREATE FUNCTION kmeans_from_table(
    centroid_table regclass,
    columns text[] DEFAULT NULL,
    distance text DEFAULT 'euclidean'
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION kmeans_from_table(regclass, text[], text) IS
    'a model of the centroids in a table or view with the columns cluster (0 to k - 1) and centroid (an array or vector), such as the rows of kmeans(): for kmeans_predict(), kmeans_nearest() and, with the columns that points are in, kmeans_evaluate() and kmeans_labels()';

-- clusters of bounded sizes

CREATE FUNCTION kmeans_balanced(
    relation regclass,
    columns text[],
    k int,
    min_size bigint DEFAULT NULL,
    max_size bigint DEFAULT NULL,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans_balanced(regclass, text[], int, bigint, bigint, text, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'kmeans() with clusters of at least min_size and at most max_size rows: in each iteration the rows are assigned so that the sum of their squared distances is the least that these bounds allow. min_size NULL: 1; max_size NULL: all rows';

CREATE FUNCTION kmeans_balanced_fit(
    relation regclass,
    columns text[],
    k int,
    min_size bigint DEFAULT NULL,
    max_size bigint DEFAULT NULL,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_balanced_fit(regclass, text[], int, bigint, bigint, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'clusters as kmeans_balanced() does and returns the model: kmeans_info() shows inertia, iterations and convergence; kmeans_predict() and kmeans_labels() give the nearest cluster, whatever its size. NULL when no row is usable';

-- k-prototypes: numbers and categories

CREATE FUNCTION kmeans_mixed(
    relation regclass,
    columns text[],
    k int,
    gamma float8 DEFAULT NULL,
    standardize bool DEFAULT true,
    n_init int DEFAULT 1,
    max_iter int DEFAULT 100,
    seed bigint DEFAULT 0
) RETURNS TABLE (cluster int, size bigint, centroid jsonb, cost float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans_mixed(regclass, text[], int, float8, bool, int, int, bigint) IS
    'clusters numbers and categories (text, enum, boolean, uuid columns) by k-prototypes (Huang 1998): a row costs its squared distance to the means of its cluster, plus gamma for each category that is not the cluster''s mode. gamma NULL: half the mean standard deviation of the numbers, standardized if asked for. centroid: means, modes and the shares of the ten most frequent categories; cost: of the cluster''s rows';

CREATE FUNCTION kmeans_mixed_fit(
    relation regclass,
    columns text[],
    k int,
    gamma float8 DEFAULT NULL,
    standardize bool DEFAULT true,
    n_init int DEFAULT 1,
    max_iter int DEFAULT 100,
    seed bigint DEFAULT 0
) RETURNS jsonb
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_mixed_fit(regclass, text[], int, float8, bool, int, int, bigint) IS
    'clusters as kmeans_mixed() does and returns the model: gamma, cost, iterations, and for each cluster size, cost and centroid. NULL when no row is usable';

CREATE FUNCTION kmeans_mixed_predict(model jsonb, VARIADIC "row" "any") RETURNS int
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_mixed_predict(jsonb, "any") IS
    'cluster, from 0 on, in which a row costs least by a model of kmeans_mixed_fit(): its values in the order of the model''s columns. A category that is no mode, also one that the fit has not seen, differs from all clusters. NULL for a NULL';

-- spectral clustering; <options> are those of the fit of the representatives

CREATE FUNCTION kmeans_spectral(
    relation regclass,
    columns text[],
    k int DEFAULT NULL,
    representatives int DEFAULT 1000,
    neighbors int DEFAULT 10,
    affinity text DEFAULT 'nearest_neighbors',
    gamma float8 DEFAULT NULL,
    laplacian text DEFAULT 'symmetric',
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans_spectral(regclass, text[], int, int, int, text, float8, text, text, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'clusters of any shape: k-means finds representatives, the eigenvectors of their graph cluster those, and each row belongs to its representative''s cluster. One row per cluster, largest first; inertia and radius are of rows to their representatives. k NULL: chosen by the eigenvalues. gamma: of affinity rbf; NULL: each representative''s own scale';

CREATE FUNCTION kmeans_spectral_fit(
    relation regclass,
    columns text[],
    k int DEFAULT NULL,
    representatives int DEFAULT 1000,
    neighbors int DEFAULT 10,
    affinity text DEFAULT 'nearest_neighbors',
    gamma float8 DEFAULT NULL,
    laplacian text DEFAULT 'symmetric',
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_spectral_fit(regclass, text[], int, int, int, text, float8, text, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'clusters as kmeans_spectral() does and returns the model: kmeans_predict() and kmeans_labels() give the cluster of the nearest representative, kmeans_info() shows the eigenvalues; NULL when no row is usable';

CREATE FUNCTION kmeans_spectral_scan(
    model kmeans_model,
    k_min int DEFAULT 2,
    k_max int DEFAULT 15
) RETURNS TABLE (k int, eigenvalue float8, gap float8, strength float8, silhouette float8, suggested text)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 20;

COMMENT ON FUNCTION kmeans_spectral_scan(kmeans_model, int, int) IS
    'clusters the representatives of a spectral model for each k from k_min to k_max: the k-th eigenvalue, its gap to the next one and the strength of that, and the silhouette in the space of k eigenvectors, where each row is at its representative. suggested: ''eigengap'' for the k that kmeans_spectral() chooses, ''silhouette'' where that is largest';

CREATE FUNCTION kmeans_spectral_svg(
    model kmeans_model,
    width int DEFAULT 1000,
    height int DEFAULT 460,
    title text DEFAULT NULL
) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_spectral_svg(kmeans_model, int, int, text) IS
    'an SVG picture of a spectral model: its eigenvalues with the gap after the k-th one, and its representatives in the space of k eigenvectors (of more than two, the two principal components), coloured by cluster. width and height in pixels';

CREATE FUNCTION kmeans_label_table(
    relation regclass,
    columns text[],
    k int,
    label_table text,
    id_columns text[],
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS TABLE (cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION kmeans_label_table(regclass, text[], int, text, text[], text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'clusters the rows of a table, as kmeans() does, and creates the table label_table with the id_columns of each row and its cluster (NULL for rows that were left out); many rows are written at once';

-- lets the planner know how many labels to expect: as many as the relation has rows
CREATE FUNCTION kmeans_labels_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_labels_support(internal) IS
    'planner support for kmeans_labels(): the number of rows';

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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    init_sample float8 DEFAULT NULL,
    fit_sample float8 DEFAULT NULL,
    centroid_table regclass DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE
    SUPPORT kmeans_labels_support;

COMMENT ON FUNCTION kmeans_labels(regclass, text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, float8, float8, regclass) IS
    'clusters the rows of a table and returns each row''s cluster and its distance to that centroid; NULLs for rows that were left out. Join on (tableoid, ctid) in the same statement';

CREATE FUNCTION kmeans_labels(
    relation regclass,
    model kmeans_model,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8)
    AS 'MODULE_PATHNAME', 'kmeans_labels_model' LANGUAGE C VOLATILE PARALLEL UNSAFE
    SUPPORT kmeans_labels_support;

COMMENT ON FUNCTION kmeans_labels(regclass, kmeans_model, text, text) IS
    'the nearest cluster of a model, and the distance to its centroid, for every row of a table that has the columns which the model was made from; NULLs for rows that were left out';

CREATE FUNCTION kmeans_anomalies(
    relation regclass,
    model kmeans_model,
    contamination float8 DEFAULT 0.01,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8, normalized_distance float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_anomalies(regclass, kmeans_model, float8, text, text) IS
    'the rows of a table farthest from their cluster: the share contamination of them, by distance in units of the root mean square distance of the cluster''s rows in the fit, the farthest first. Join on (tableoid, ctid) in the same statement';

CREATE FUNCTION kmeans_medoids(
    relation regclass,
    model kmeans_model,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS TABLE (tableoid oid, ctid tid, cluster int, distance float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;

COMMENT ON FUNCTION kmeans_medoids(regclass, kmeans_model, text, text) IS
    'of each cluster of a model, the row of a table that is nearest to the centroid, the first of equal ones. Join on (tableoid, ctid) in the same statement';

CREATE FUNCTION gkmeans_devices() RETURNS TABLE (backend text, name text, usable bool, reason text, memory bigint, detail text)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;

COMMENT ON FUNCTION gkmeans_devices() IS
    'what can compute here: one row per device. reason: why it cannot be used, NULL when it can. memory: in bytes';

CREATE FUNCTION gkmeans_version() RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION gkmeans_version() IS
    'the version of the loaded library';

-- == end of fit ==

-- == aggregates ==

-- States of aggregates are values of this type, not of "internal": partial ones
-- can be stored, sent to another server and combined there.

CREATE TYPE kmeans_state;

CREATE FUNCTION kmeans_state_in(cstring) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_state_out(kmeans_state) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_state_recv(internal) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_state_send(kmeans_state) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE TYPE kmeans_state (
    INPUT = kmeans_state_in,
    OUTPUT = kmeans_state_out,
    RECEIVE = kmeans_state_recv,
    SEND = kmeans_state_send,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = double,
    STORAGE = extended
);

COMMENT ON TYPE kmeans_state IS
    'what an aggregate knows of the rows it has seen: exact sums of points, or a part of a k-means step; made by feature_sum_partial, kmeans_step_partial and kmeans_step(relation, ...)';
COMMENT ON FUNCTION kmeans_state_in(cstring) IS
    'I/O: a state from its text form; damaged text is an error that says what is wrong';
COMMENT ON FUNCTION kmeans_state_out(kmeans_state) IS
    'I/O: a state as hexadecimal digits, lossless; equal sums have equal texts';
COMMENT ON FUNCTION kmeans_state_recv(internal) IS
    'I/O: a state from its binary form; damaged bytes are an error that says what is wrong';
COMMENT ON FUNCTION kmeans_state_send(kmeans_state) IS
    'I/O: a state in its binary form, in network byte order';

CREATE FUNCTION kmeans_state_combine(a kmeans_state, b kmeans_state) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_state_normal(state kmeans_state) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_state_combine(kmeans_state, kmeans_state) IS
    'the state of all rows of two states; a NULL state has none. Error when they are of different kinds, models or numbers of features';
COMMENT ON FUNCTION kmeans_state_normal(kmeans_state) IS
    'the same state in its smallest form: equal sums have equal bytes';

CREATE AGGREGATE kmeans_combine(state kmeans_state) (
    SFUNC = kmeans_state_combine,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_state_normal,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);

COMMENT ON AGGREGATE kmeans_combine(kmeans_state) IS
    'the state of all rows of all states, as if they had been aggregated together';

-- feature_sum

CREATE FUNCTION feature_sum_add(state kmeans_state, VARIADIC point "any") RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION feature_sum_subtract(state kmeans_state, VARIADIC point "any") RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION feature_sum_add_weighted(state kmeans_state, point float8[], weight float8) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION feature_sum_subtract_weighted(state kmeans_state, point float8[], weight float8) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION feature_sum_finish(state kmeans_state) RETURNS float8[]
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION feature_sum_add(kmeans_state, "any") IS
    'for aggregates: add a point to a sum';
COMMENT ON FUNCTION feature_sum_subtract(kmeans_state, "any") IS
    'for aggregates: take a point out of a sum, exactly';
COMMENT ON FUNCTION feature_sum_add_weighted(kmeans_state, float8[], float8) IS
    'for aggregates: add weight times a point to a sum';
COMMENT ON FUNCTION feature_sum_subtract_weighted(kmeans_state, float8[], float8) IS
    'for aggregates: take weight times a point out of a sum, exactly';
COMMENT ON FUNCTION feature_sum_finish(kmeans_state) IS
    'the sums of a state, each the exact sum rounded once; NULL for no points';

-- Sums of features given one by one, and of whatever kmeans_predict() takes as a
-- point. The array types have aggregates of their own, because with feature_sum(point,
-- weight) a call with an array would be ambiguous otherwise, and because distributed
-- executors take no VARIADIC "any" apart. Of pgvector's vector they are in gkmeans_vector.

CREATE FUNCTION feature_sum_add_array(state kmeans_state, point float8[]) RETURNS kmeans_state
    AS 'MODULE_PATHNAME', 'feature_sum_add' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION feature_sum_subtract_array(state kmeans_state, point float8[]) RETURNS kmeans_state
    AS 'MODULE_PATHNAME', 'feature_sum_subtract' LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION feature_sum_add_array(kmeans_state, float8[]) IS
    'for aggregates: add a point to a sum';
COMMENT ON FUNCTION feature_sum_subtract_array(kmeans_state, float8[]) IS
    'for aggregates: take a point out of a sum, exactly';

CREATE AGGREGATE feature_sum(VARIADIC point "any") (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(VARIADIC "any") IS
    'the sum of the points, feature by feature: the exact sum rounded once, whatever the order of the rows; rows with a NULL feature are left out; error for NaN, infinity and points of different length';

CREATE AGGREGATE feature_sum(point float8[]) (
    SFUNC = feature_sum_add_array,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add_array,
    MINVFUNC = feature_sum_subtract_array,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(float8[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point real[]) (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(real[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point integer[]) (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(integer[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point bigint[]) (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(bigint[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point smallint[]) (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(smallint[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point numeric[]) (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add,
    MINVFUNC = feature_sum_subtract,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(numeric[]) IS
    'the sum of the points, as feature_sum(VARIADIC "any")';

CREATE AGGREGATE feature_sum(point float8[], weight float8) (
    SFUNC = feature_sum_add_weighted,
    STYPE = kmeans_state,
    FINALFUNC = feature_sum_finish,
    COMBINEFUNC = kmeans_state_combine,
    MSFUNC = feature_sum_add_weighted,
    MINVFUNC = feature_sum_subtract_weighted,
    MSTYPE = kmeans_state,
    MFINALFUNC = feature_sum_finish,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE feature_sum(float8[], float8) IS
    'the sum of weight times point: products are exact as well; rows with weight 0 or NULL are left out; error for a negative, NaN or infinite weight';

CREATE AGGREGATE feature_sum_partial(VARIADIC point "any") (
    SFUNC = feature_sum_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_state_normal,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
CREATE AGGREGATE feature_sum_partial(point float8[], weight float8) (
    SFUNC = feature_sum_add_weighted,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_state_normal,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);

COMMENT ON AGGREGATE feature_sum_partial(VARIADIC "any") IS
    'feature_sum() before its last step: a state for kmeans_combine() and feature_sum_finish()';
COMMENT ON AGGREGATE feature_sum_partial(float8[], float8) IS
    'feature_sum() with weights before its last step: a state for kmeans_combine() and feature_sum_finish()';

-- kmeans_step

CREATE FUNCTION kmeans_step_add(state kmeans_state, model kmeans_model, VARIADIC point "any") RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_step_add_array(state kmeans_state, model kmeans_model, point float8[]) RETURNS kmeans_state
    AS 'MODULE_PATHNAME', 'kmeans_step_add' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_step_add_weighted(state kmeans_state, model kmeans_model, point float8[], weight float8) RETURNS kmeans_state
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_finish(state kmeans_state) RETURNS kmeans_model
    AS 'MODULE_PATHNAME', 'kmeans_step_finish' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_step_add(kmeans_state, kmeans_model, "any") IS
    'for aggregates: add a point to a part of a step';
COMMENT ON FUNCTION kmeans_step_add_array(kmeans_state, kmeans_model, float8[]) IS
    'for aggregates: add a point to a part of a step';
COMMENT ON FUNCTION kmeans_step_add_weighted(kmeans_state, kmeans_model, float8[], float8) IS
    'for aggregates: add a point with a weight to a part of a step';
COMMENT ON FUNCTION kmeans_finish(kmeans_state) IS
    'the model that a step leads to, from the state of all its rows: centroids are the means of the points nearest to the old ones; sizes, inertia and radius are those of the old centroids; converged when no centroid moved; NULL for no points';

CREATE AGGREGATE kmeans_step(model kmeans_model, VARIADIC point "any") (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, VARIADIC "any") IS
    'one Lloyd iteration: assigns each point to the nearest centroid of the model and returns the model with the means as centroids (iterations + 1, same order and preparation); rows with a NULL feature are left out and counted, unless the model has means for them; a cluster without points keeps its centroid, but the first such cluster moves to the point farthest from all centroids';

CREATE AGGREGATE kmeans_step(model kmeans_model, point float8[]) (
    SFUNC = kmeans_step_add_array,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, float8[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point real[]) (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, real[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point integer[]) (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, integer[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point bigint[]) (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, bigint[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point smallint[]) (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, smallint[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point numeric[]) (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, numeric[]) IS
    'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';

CREATE AGGREGATE kmeans_step(model kmeans_model, point float8[], weight float8) (
    SFUNC = kmeans_step_add_weighted,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_step(kmeans_model, float8[], float8) IS
    'one Lloyd iteration of points with weights; rows with weight 0 or NULL are left out; error for a negative, NaN or infinite weight';

CREATE AGGREGATE kmeans_step_partial(model kmeans_model, VARIADIC point "any") (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_state_normal,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
CREATE AGGREGATE kmeans_step_partial(model kmeans_model, point float8[], weight float8) (
    SFUNC = kmeans_step_add_weighted,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_state_normal,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);

COMMENT ON AGGREGATE kmeans_step_partial(kmeans_model, VARIADIC "any") IS
    'kmeans_step() before its last step: a state for kmeans_combine() and kmeans_finish()';
COMMENT ON AGGREGATE kmeans_step_partial(kmeans_model, float8[], float8) IS
    'kmeans_step() with weights before its last step: a state for kmeans_combine() and kmeans_finish()';

-- kmeans_update: kmeans_step with another end

CREATE FUNCTION kmeans_update_finish(state kmeans_state) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_forget(model kmeans_model, keep float8) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_update_finish(kmeans_state) IS
    'the model of kmeans_update(), from a state of kmeans_step_partial() or kmeans_step(relation, ...)';
COMMENT ON FUNCTION kmeans_forget(kmeans_model, float8) IS
    'the model as if it had seen only the part keep (0 to 1) of its rows: sizes (rounded, to 1 at least unless keep is 0) and inertia are multiplied, so that kmeans_update() moves the centroids farther';

CREATE AGGREGATE kmeans_update(model kmeans_model, VARIADIC point "any") (
    SFUNC = kmeans_step_add,
    STYPE = kmeans_state,
    FINALFUNC = kmeans_update_finish,
    COMBINEFUNC = kmeans_state_combine,
    PARALLEL = SAFE
);
COMMENT ON AGGREGATE kmeans_update(kmeans_model, VARIADIC "any") IS
    'the model with new rows: each goes to the nearest centroid, which moves to the mean of its old rows and the new ones; sizes, inertia and rows_used add up; exact, in any order of the rows; NULL for no rows; error for models with weights or the cosine distance';

CREATE FUNCTION kmeans_step(
    relation regclass,
    columns text[],
    model kmeans_model,
    weight_column text DEFAULT NULL,
    nonfinite text DEFAULT 'error',
    device text DEFAULT NULL
) RETURNS kmeans_state
    AS 'MODULE_PATHNAME', 'kmeans_step_relation' LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION kmeans_step(regclass, text[], kmeans_model, text, text, text) IS
    'kmeans_step_partial() of all rows of a relation, read like that of kmeans(): columns, weight_column, nonfinite and device are as there. NULL for a relation without rows';

CREATE FUNCTION kmeans_pass(
    relations regclass[],
    columns text[],
    pass bytea,
    weight_column text DEFAULT NULL,
    first_rows bigint[] DEFAULT NULL,
    device text DEFAULT NULL
) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION kmeans_pass(regclass[], text[], bytea, text, bigint[], text) IS
    'what kmeans() on a distributed table asks of every server: one pass over the rows of its shards, and their exact sums; NULL instead of relations: those that this transaction has named; the bytes are between servers of the same version';

-- kmeans_agg: the fields are <options>, in the same order

CREATE TYPE kmeans_options AS (
    weight_column text,
    init text,
    warm_start kmeans_model,
    centroids float8[],
    n_init int,
    max_iter int,
    tol float8,
    distance text,
    standardize bool,
    seed bigint,
    nonfinite text,
    device text,
    nulls text
);

COMMENT ON TYPE kmeans_options IS
    'options for kmeans_agg(), made by kmeans_options(...)';

CREATE FUNCTION kmeans_options(
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS kmeans_options
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT NULL::pg_catalog.text, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 $$;

COMMENT ON FUNCTION kmeans_options(text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'options for kmeans_agg(): those of kmeans_fit() but weight_column';

CREATE FUNCTION kmeans_agg_add(state internal, point "any", k int) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_agg_add(state internal, point "any", k int, options kmeans_options) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_agg_combine(a internal, b internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION kmeans_agg_serialize(state internal) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_agg_deserialize(bytes bytea, state internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION kmeans_agg_finish(state internal) RETURNS kmeans_model
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_agg_add(internal, "any", int) IS
    'for kmeans_agg(): keep a point';
COMMENT ON FUNCTION kmeans_agg_add(internal, "any", int, kmeans_options) IS
    'for kmeans_agg(): keep a point';
COMMENT ON FUNCTION kmeans_agg_combine(internal, internal) IS
    'for kmeans_agg(): the points of two workers together';
COMMENT ON FUNCTION kmeans_agg_serialize(internal) IS
    'for kmeans_agg(): points as bytes; error over 1 GB';
COMMENT ON FUNCTION kmeans_agg_deserialize(bytea, internal) IS
    'for kmeans_agg(): points from bytes';
COMMENT ON FUNCTION kmeans_agg_finish(internal) IS
    'for kmeans_agg(): cluster the points';

CREATE AGGREGATE kmeans_agg(point "any", k int) (
    SFUNC = kmeans_agg_add,
    STYPE = internal,
    SSPACE = 2048,
    FINALFUNC = kmeans_agg_finish,
    COMBINEFUNC = kmeans_agg_combine,
    SERIALFUNC = kmeans_agg_serialize,
    DESERIALFUNC = kmeans_agg_deserialize,
    PARALLEL = SAFE
);
CREATE AGGREGATE kmeans_agg(point "any", k int, options kmeans_options) (
    SFUNC = kmeans_agg_add,
    STYPE = internal,
    SSPACE = 2048,
    FINALFUNC = kmeans_agg_finish,
    COMBINEFUNC = kmeans_agg_combine,
    SERIALFUNC = kmeans_agg_serialize,
    DESERIALFUNC = kmeans_agg_deserialize,
    PARALLEL = SAFE
);

COMMENT ON AGGREGATE kmeans_agg("any", int) IS
    'clusters the points of each group: one model per group, for kmeans_centroids(), kmeans_predict() and so on; the order of the rows makes no difference; points with a NULL are left out and counted; NULL for a group without points';
COMMENT ON AGGREGATE kmeans_agg("any", int, kmeans_options) IS
    'clusters the points of each group with options, as in kmeans_agg(p, 3, kmeans_options(seed => 7)); those of the group''s first row hold';

CREATE FUNCTION kmeans_window_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION kmeans_window_support(internal) IS
    'planner support for kmeans() as a window function';

CREATE FUNCTION kmeans(point "any", k int) RETURNS int
    AS 'MODULE_PATHNAME', 'kmeans_window' LANGUAGE C IMMUTABLE PARALLEL RESTRICTED WINDOW SUPPORT kmeans_window_support;
CREATE FUNCTION kmeans(point "any", k int, centroids float8[]) RETURNS int
    AS 'MODULE_PATHNAME', 'kmeans_window' LANGUAGE C IMMUTABLE PARALLEL RESTRICTED WINDOW SUPPORT kmeans_window_support;

COMMENT ON FUNCTION kmeans("any", int) IS
    'clusters the points of each window partition: the number of the row''s cluster, 0 for the largest; NULL for a point with a NULL';
COMMENT ON FUNCTION kmeans("any", int, float8[]) IS
    'the same from k x d initial centroids, whose order is that of the clusters';

CREATE FUNCTION kmeans_grouped(
    relation regclass,
    group_by text[],
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip'
) RETURNS TABLE (grp jsonb, cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1000;

COMMENT ON FUNCTION kmeans_grouped(regclass, text[], text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'clusters each group of a relation''s rows by itself: the clusters of every combination of values of the group_by columns (grp: those values as an object); the result for a group is that of kmeans_agg()';

CREATE FUNCTION kmeans_grouped_part(
    relation regclass,
    group_by text[],
    columns text[],
    k int,
    weight_column text,
    init text,
    warm_start kmeans_model,
    centroids float8[],
    n_init int,
    max_iter int,
    tol float8,
    distance text,
    standardize bool,
    seed bigint,
    nonfinite text,
    device text,
    nulls text
) RETURNS TABLE (grp jsonb, cluster int, size bigint, centroid float8[], inertia float8, radius float8)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1000;

COMMENT ON FUNCTION kmeans_grouped_part(regclass, text[], text[], int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text) IS
    'what kmeans_grouped() of a distributed table asks of every shard: its clusters, and a last row that counts the rows that were left out';

-- == end of aggregates ==

-- == quality ==

CREATE FUNCTION kmeans_evaluate(
    model kmeans_model,
    relation regclass,
    sample int DEFAULT 20000,
    nonfinite text DEFAULT 'error',
    OUT k int, OUT rows bigint, OUT inertia float8, OUT silhouette float8,
    OUT simplified_silhouette float8, OUT davies_bouldin float8,
    OUT calinski_harabasz float8, OUT sample_rows bigint
) RETURNS record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_evaluate(kmeans_model, regclass, int, text) IS
    'how good a model''s clusters are on the rows of a relation that has the model''s columns: silhouette (mean over a sample of rows, always the same one; all rows when there are no more than sample), simplified_silhouette (all rows, distances to cluster means), davies_bouldin (low is good), calinski_harabasz (high is good); NULL where not defined. Each row counts once';

CREATE FUNCTION kmeans_scan(
    relation regclass,
    columns text[],
    k_min int,
    k_max int,
    step int DEFAULT 1,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    sample int DEFAULT 2000
) RETURNS TABLE (k int, inertia float8, silhouette float8, simplified_silhouette float8,
    davies_bouldin float8, calinski_harabasz float8, iterations int, converged bool, suggested text)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 20;

COMMENT ON FUNCTION kmeans_scan(regclass, text[], int, int, int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, int) IS
    'clusters the rows of a relation for each k from k_min to k_max, reading them once: one row of measures per k (see kmeans_evaluate); sample: rows in the silhouette. suggested: ''elbow'' where the inertia bends most, ''silhouette'' where that is largest. warm_start and centroids belong to one k and must be NULL';

CREATE FUNCTION kmeans_svg(
    model kmeans_model,
    relation regclass,
    x text DEFAULT NULL,
    y text DEFAULT NULL,
    points int DEFAULT 2000,
    width int DEFAULT 800,
    height int DEFAULT 560,
    title text DEFAULT NULL,
    nonfinite text DEFAULT 'error'
) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_svg(kmeans_model, regclass, text, text, int, int, int, text, text) IS
    'an SVG picture of a model''s clusters: a sample of the relation''s rows (at most points), coloured by cluster, and the centroids, on two features x and y (column[i] of an array column) in their units, or on the two principal components. width and height in pixels';

CREATE FUNCTION kmeans_scan_svg(
    relation regclass,
    columns text[],
    k_min int,
    k_max int,
    step int DEFAULT 1,
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
    device text DEFAULT NULL,
    nulls text DEFAULT 'skip',
    sample int DEFAULT 2000,
    width int DEFAULT 800,
    height int DEFAULT 620,
    title text DEFAULT NULL
) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION kmeans_scan_svg(regclass, text[], int, int, int, text, text, kmeans_model, float8[], int, int, float8, text, bool, bigint, text, text, text, int, int, int, text) IS
    'an SVG picture of kmeans_scan(), with the same arguments: inertia and silhouette against k, the suggested k marked. width and height in pixels';

CREATE FUNCTION gkmeans_progress_info(OUT pid int, OUT datid oid, OUT relid oid, OUT phase text,
    OUT run int, OUT iteration int, OUT max_iter int, OUT rows_done bigint,
    OUT inertia float8, OUT shift float8, OUT device text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;

COMMENT ON FUNCTION gkmeans_progress_info() IS
    'the rows of the view gkmeans_progress, of all databases';

CREATE VIEW gkmeans_progress AS
    SELECT pid, relid::pg_catalog.regclass AS relation, phase, run, iteration, max_iter, rows_done, inertia, shift, device
    FROM gkmeans_progress_info()
    WHERE datid OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

GRANT SELECT ON gkmeans_progress TO PUBLIC;

COMMENT ON VIEW gkmeans_progress IS
    'one row per running job of this database, updated at most ten times a second: needs gkmeans in shared_preload_libraries, or PostgreSQL 17. phase: load, seed (iteration: seeds so far), iterate. Details of other users'' jobs are for pg_read_all_stats';

CREATE FUNCTION gkmeans_stat_info(OUT runs bigint, OUT rows bigint, OUT iterations bigint,
    OUT load_ms float8, OUT context_ms float8, OUT upload_ms float8, OUT seed_ms float8,
    OUT iterate_ms float8, OUT total_ms float8,
    OUT gpu_runs bigint, OUT gpu_fallbacks bigint, OUT since timestamptz)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;

COMMENT ON FUNCTION gkmeans_stat_info() IS
    'the row of the view gkmeans_stat';

CREATE VIEW gkmeans_stat AS SELECT * FROM gkmeans_stat_info();

GRANT SELECT ON gkmeans_stat TO PUBLIC;

COMMENT ON VIEW gkmeans_stat IS
    'sums over the finished runs of all databases since the server started or gkmeans_stat_reset(): one row when gkmeans is in shared_preload_libraries, else none. Times in milliseconds';

CREATE FUNCTION gkmeans_stat_reset() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

REVOKE ALL ON FUNCTION gkmeans_stat_reset() FROM PUBLIC;

COMMENT ON FUNCTION gkmeans_stat_reset() IS
    'set the sums of gkmeans_stat to zero; for superusers, and those who are granted EXECUTE';

-- == end of quality ==
