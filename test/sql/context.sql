-- Every C function of the extension, called from where it does not expect it: by an operator,
-- with NULLs, by an aggregate of a user's. An error or an answer, and the server goes on.

\set VERBOSITY terse

-- the window function needs a window
CREATE OPERATOR ### (PROCEDURE = kmeans, LEFTARG = "any", RIGHTARG = int);
SELECT ARRAY[1.0, 2.0] ### 3;
SELECT array_agg(v) ### 2 FROM (VALUES (1.0::float8), (2)) AS t(v);
SELECT NULL::float8[] ### NULL::int;
SELECT x, kmeans(ARRAY[x], 2) OVER () FROM (VALUES (1.0::float8), (5), (6)) AS t(x);
DROP OPERATOR ### ("any", int);

-- a value of each type that an argument may have
CREATE TABLE context_value (type text PRIMARY KEY, value text);
INSERT INTO context_value VALUES
    ('kmeans_model', (SELECT quote_literal(kmeans_agg(ARRAY[v], 2)) || '::kmeans_model' FROM (VALUES (1.0::float8), (2), (9)) AS t(v))),
    ('kmeans_state', (SELECT quote_literal(feature_sum_partial(v)) || '::kmeans_state' FROM (VALUES (1.0::float8), (2), (9)) AS t(v))),
    ('"any"', 'ARRAY[1.0::float8]'), ('"any"[]', '1.0::float8'), ('double precision[]', '''{1}''::float8[]'), ('double precision', '1.0::float8'),
    ('integer', '2'), ('bigint', '2::bigint'), ('oid', '1259::oid'), ('tid', '''(0,1)''::tid'), ('bytea', '''\x00''::bytea'),
    ('text', '''x''::text'), ('text[]', '''{x}''::text[]'), ('regclass', '''pg_class''::regclass'), ('regclass[]', '''{pg_class}''::regclass[]'), ('bigint[]', '''{0}''::bigint[]'), ('boolean', 'true'),
    ('kmeans_options', 'kmeans_options()'), ('cstring', '''x''::cstring'), ('jsonb', '''{}''::jsonb');

-- how a statement ends; its text takes no more than one row
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || CASE WHEN SQLSTATE LIKE 'XX%' THEN ' ' || SQLERRM ELSE '' END;
END $$;

CREATE FUNCTION by_operator(f oid, types text[], nulls bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    arg text[];
    made text;
    result text;
BEGIN
    SELECT array_agg(CASE WHEN nulls OR v.value IS NULL THEN format('NULL::%s', replace(t, '"any"', 'float8')) ELSE v.value END ORDER BY o)
    INTO arg FROM unnest(types) WITH ORDINALITY AS u(t, o) LEFT JOIN context_value v ON v.type = t;
    made := outcome(format('CREATE OPERATOR @#@ (PROCEDURE = %s, %s RIGHTARG = %s)', (SELECT proname FROM pg_proc WHERE oid = f),
        CASE cardinality(types) WHEN 2 THEN format('LEFTARG = %s,', types[1]) ELSE '' END, types[cardinality(types)]));
    IF made <> 'ok' THEN
        RETURN 'no operator: ' || made;
    END IF;
    result := outcome(format('SELECT %s @#@ %s', CASE cardinality(types) WHEN 2 THEN arg[1] ELSE '' END, arg[cardinality(types)]));
    EXECUTE format('DROP OPERATOR @#@ (%s, %s)', CASE cardinality(types) WHEN 2 THEN types[1] ELSE 'NONE' END, types[cardinality(types)]);
    RETURN result;
END $$;

CREATE FUNCTION by_name(f oid, types text[], nulls bool) RETURNS text LANGUAGE sql AS $$
    SELECT outcome(format('SELECT %s(%s)', (SELECT proname FROM pg_proc WHERE oid = f),
        (SELECT string_agg(CASE WHEN nulls OR v.value IS NULL THEN format('NULL::%s', replace(t, '"any"', 'float8')) ELSE v.value END, ', ' ORDER BY o)
         FROM unnest(types) WITH ORDINALITY AS u(t, o) LEFT JOIN context_value v ON v.type = t)))
$$;

CREATE VIEW context_function AS
SELECT p.oid, p.proname, p.oid::regprocedure AS signature,
    (SELECT coalesce(array_agg(format_type(t, NULL) ORDER BY o), '{}') FROM unnest(p.proargtypes) WITH ORDINALITY AS u(t, o)) AS types
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'gkmeans'
-- (what takes an internal value cannot be called by SQL, with an error that differs between minor versions)
WHERE p.prokind IN ('f', 'w') AND 'internal'::regtype <> ALL (p.proargtypes);

-- no type is missing above
SELECT DISTINCT t FROM context_function, unnest(types) t WHERE t NOT IN (SELECT type FROM context_value);

SELECT proname, by_operator(oid, types, false) AS values, by_operator(oid, types, true) AS nulls
FROM context_function WHERE cardinality(types) IN (1, 2) ORDER BY signature::text COLLATE "C";
-- (gkmeans_progress_info() says why it is empty where it has no shared memory)
SET client_min_messages = warning;
SELECT proname, by_name(oid, types, true) AS nulls
FROM context_function ORDER BY signature::text COLLATE "C";
RESET client_min_messages;

-- An aggregate of a user's, whose inverse function takes the state out of a table: in a
-- short form, compressed, of the other kind
CREATE TABLE context_state (kind text, s kmeans_state);
INSERT INTO context_state SELECT 'sum', feature_sum_partial(ARRAY[v, v * 1e-200]) FROM (VALUES (1.0::float8), (2)) AS t(v);
INSERT INTO context_state SELECT 'short', feature_sum_partial(ARRAY[v, v]) FROM (VALUES (1.0::float8), (2)) AS t(v);
INSERT INTO context_state SELECT 'wide', feature_sum_partial(array_fill(v * 1e300, '{1600}') || array_fill(v * 1e-300, '{1600}')) FROM (VALUES (1.0::float8), (2)) AS t(v);
CREATE TABLE context_model (m kmeans_model);
INSERT INTO context_model SELECT kmeans_agg(ARRAY[v, v], 2) FROM (VALUES (1.0::float8), (2)) AS t(v);
INSERT INTO context_state SELECT 'step', kmeans_step_partial(m, ARRAY[1.0::float8, 2]) FROM context_model;
SELECT kind, pg_column_size(s) < octet_length(kmeans_state_send(s)) AS smaller FROM context_state ORDER BY kind;
CREATE FUNCTION taken_out(kmeans_state, float8[]) RETURNS kmeans_state LANGUAGE sql STABLE
    AS $$ SELECT s FROM context_state WHERE kind = current_setting('context.kind') $$;
CREATE FUNCTION taken_out(kmeans_state, kmeans_model, float8[]) RETURNS kmeans_state LANGUAGE sql STABLE
    AS $$ SELECT s FROM context_state WHERE kind = current_setting('context.kind') $$;
CREATE AGGREGATE moving_sum(float8[]) (SFUNC = feature_sum_add_array, STYPE = kmeans_state, FINALFUNC = feature_sum_finish,
    MSFUNC = feature_sum_add_array, MINVFUNC = taken_out, MSTYPE = kmeans_state, MFINALFUNC = feature_sum_finish);
CREATE AGGREGATE moving_step(kmeans_model, float8[]) (SFUNC = kmeans_step_add_array, STYPE = kmeans_state, FINALFUNC = kmeans_finish,
    MSFUNC = kmeans_step_add_array, MINVFUNC = taken_out, MSTYPE = kmeans_state, MFINALFUNC = kmeans_finish);
SET context.kind = 'sum';
SELECT moving_sum(ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING) FROM generate_series(1, 5) x;
SET context.kind = 'short';
SELECT moving_sum(ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING) FROM generate_series(1, 5) x;
SET context.kind = 'wide';
SELECT moving_sum(ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING) FROM generate_series(1, 5) x;
SELECT count(*) FROM (SELECT moving_sum(array_fill(x::float8, '{3200}')) OVER (ORDER BY x ROWS 1 PRECEDING) FROM generate_series(1, 5) x) o;
SET context.kind = 'step';
SELECT moving_sum(ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING) FROM generate_series(1, 5) x;
SELECT (kmeans_info(moving_step(m, ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING))).rows_used
FROM context_model, generate_series(1, 5) x;
SET context.kind = 'wide';
SELECT (kmeans_info(moving_step(m, ARRAY[x, x]::float8[]) OVER (ORDER BY x ROWS 1 PRECEDING))).rows_used
FROM context_model, generate_series(1, 5) x;
-- combined in place only where the state is the aggregate's own
CREATE AGGREGATE ends_combined(kmeans_state) (SFUNC = kmeans_state_combine, STYPE = kmeans_state);
SELECT feature_sum_finish(ends_combined(s)), count(*) FROM context_state WHERE kind = 'short';
SELECT feature_sum_finish(ends_combined(s) OVER (ORDER BY x)) FROM context_state, generate_series(1, 3) x WHERE kind = 'short';
SELECT feature_sum_finish(s) FROM context_state WHERE kind = 'short';

DROP AGGREGATE moving_sum(float8[]);
DROP AGGREGATE moving_step(kmeans_model, float8[]);
DROP AGGREGATE ends_combined(kmeans_state);
DROP FUNCTION taken_out(kmeans_state, float8[]), taken_out(kmeans_state, kmeans_model, float8[]);
DROP TABLE context_state, context_model;
DROP VIEW context_function;
DROP FUNCTION by_operator, by_name, outcome;
DROP TABLE context_value;
