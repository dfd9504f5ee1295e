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
