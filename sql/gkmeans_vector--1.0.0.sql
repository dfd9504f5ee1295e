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
    gkmeans pg_catalog.text := (SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n
        WHERE n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'gkmeans');
    vector pg_catalog.text := (SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n
        WHERE n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'vector');
BEGIN
    EXECUTE pg_catalog.replace(pg_catalog.replace($sql$
        CREATE AGGREGATE feature_sum(point :vector.vector) (
            SFUNC = :gkmeans.feature_sum_add,
            STYPE = :gkmeans.kmeans_state,
            FINALFUNC = :gkmeans.feature_sum_finish,
            COMBINEFUNC = :gkmeans.kmeans_state_combine,
            MSFUNC = :gkmeans.feature_sum_add,
            MINVFUNC = :gkmeans.feature_sum_subtract,
            MSTYPE = :gkmeans.kmeans_state,
            MFINALFUNC = :gkmeans.feature_sum_finish,
            PARALLEL = SAFE
        );
        COMMENT ON AGGREGATE feature_sum(:vector.vector) IS
            'the sum of the points, as feature_sum(VARIADIC "any")';
        CREATE AGGREGATE kmeans_step(model :gkmeans.kmeans_model, point :vector.vector) (
            SFUNC = :gkmeans.kmeans_step_add,
            STYPE = :gkmeans.kmeans_state,
            FINALFUNC = :gkmeans.kmeans_finish,
            COMBINEFUNC = :gkmeans.kmeans_state_combine,
            PARALLEL = SAFE
        );
        COMMENT ON AGGREGATE kmeans_step(:gkmeans.kmeans_model, :vector.vector) IS
            'one Lloyd iteration, as kmeans_step(kmeans_model, VARIADIC "any")';
        $sql$, ':gkmeans', gkmeans), ':vector', vector);
END
$do$;
