-- What random bytes have found in the readers of models and states (test/fuzz)

-- a message ends between two characters
SELECT 'not a state at all, ö'::kmeans_state;
SELECT 'not a state at all,ö'::kmeans_state;

-- what is combined can be read back
CREATE TEMP TABLE s AS
SELECT state, overlay(state::text PLACING to_hex(1::bigint << 40) FROM 40 FOR 11)::kmeans_state AS full_state
FROM (SELECT feature_sum_partial(1.5) AS state) t;
SELECT full_state::text AS state FROM s;
SELECT kmeans_state_combine(full_state, state) FROM s;
SELECT kmeans_state_combine(state, full_state) FROM s;
SELECT kmeans_state_combine(state, state)::text::kmeans_state IS NOT NULL AS combined FROM s;

-- spaces between bytes, in a text that is not decoded at once; not in the middle of one
CREATE TEMP TABLE long AS
SELECT feature_sum_partial(a)::text AS t FROM (SELECT array_agg(sin(i)) AS a FROM generate_series(1, 16384) i) v;
SELECT length(t) > 300000 AS long, t::kmeans_state::text = t AS same, ('\x ' || substr(t, 3))::kmeans_state::text = t AS one_space,
       ('\x' || regexp_replace(substr(t, 3), '(..)', E'\\1 ', 'g'))::kmeans_state::text = t AS spaces FROM long;
SELECT overlay(t PLACING ' ' FROM 65538 FOR 0)::kmeans_state FROM long;
SELECT overlay(t PLACING '' FROM 65537 FOR 1)::kmeans_state FROM long;
