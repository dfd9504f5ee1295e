-- complain if the script is sourced in psql, rather than by CREATE EXTENSION
\echo Use "CREATE EXTENSION gkmeans_vector" to load this file. \quit

-- pgvector casts vector to real[] implicitly, so a call with a vector fits two of gkmeans'
-- aggregates equally well, that for VARIADIC "any" and that for real[]. An aggregate for vector
-- itself settles it. They are an extension of their own, not gkmeans', so that DROP EXTENSION
-- vector CASCADE takes these two and no model. (halfvec has no implicit cast, and its calls
-- need no help.)
--
-- The names of both extensions' schemas are looked up: search_path might find another vector.

DO $do$
DECLARE
    gkmeans pg_catalog.name := (SELECT n.nspname FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n
        WHERE n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'gkmeans');
    vector pg_catalog.name := (SELECT n.nspname FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n
        WHERE n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'vector');
BEGIN
    EXECUTE pg_catalog.format($sql$
        CREATE AGGREGATE feature_sum(point %2$I.vector) (
            SFUNC = %1$I.feature_sum_add,
            STYPE = %1$I.kmeans_state,
            FINALFUNC = %1$I.feature_sum_finish,
            COMBINEFUNC = %1$I.kmeans_state_combine,
            MSFUNC = %1$I.feature_sum_add,
            MINVFUNC = %1$I.feature_sum_subtract,
            MSTYPE = %1$I.kmeans_state,
            MFINALFUNC = %1$I.feature_sum_finish,
            PARALLEL = SAFE
        );
        COMMENT ON AGGREGATE feature_sum(%2$I.vector) IS
            'the sum of the points, as feature_sum(VARIADIC "any")';
        CREATE AGGREGATE kmeans_step(model %1$I.kmeans_model, point %2$I.vector) (
            SFUNC = %1$I.kmeans_step_add,
            STYPE = %1$I.kmeans_state,
            FINALFUNC = %1$I.kmeans_finish,
            COMBINEFUNC = %1$I.kmeans_state_combine,
            PARALLEL = SAFE
        );
        COMMENT ON AGGREGATE kmeans_step(%1$I.kmeans_model, %2$I.vector) IS
            'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';
        $sql$, gkmeans, vector);
END
$do$;
