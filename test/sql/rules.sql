-- What a row may hold: every path from rows to points judges a row alike
CREATE SCHEMA rules;
SET search_path = rules, public;

-- kmeans() under every reader: the rows of `query` must be the same, errors too
CREATE FUNCTION readers(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	setting text;
	answer text[];
	first text[];
	detail text;
	hint text;
BEGIN
	FOREACH setting IN ARRAY ARRAY['executor 1 0', 'auto 1 0', 'auto 4 0', 'auto 1 2'] LOOP
		PERFORM set_config('gkmeans.reader', split_part(setting, ' ', 1), true),
			set_config('gkmeans.threads', split_part(setting, ' ', 2), true),
			set_config('gkmeans.workers', split_part(setting, ' ', 3), true);
		BEGIN
			EXECUTE 'SELECT array_agg(r::text) FROM (' || query || ') r' INTO answer;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			answer := ARRAY[SQLSTATE || ' ' || SQLERRM, 'DETAIL ' || detail, 'HINT ' || hint];
		END;
		IF first IS NULL THEN
			first := answer;
			RETURN QUERY SELECT unnest(answer);
		ELSIF first IS DISTINCT FROM answer THEN
			RETURN NEXT 'DIFFERENT with ' || setting || ': ' || answer::text;
		END IF;
	END LOOP;
END $$;
SET client_min_messages = warning;

-- A row that is left out, a good one, and one with a NULL in another column, on one page:
-- the last one must keep its own values
CREATE TABLE weighted (x int, note int, w float8);
INSERT INTO weighted SELECT 1, 1, 1 FROM generate_series(1, 500);
INSERT INTO weighted VALUES (3, 1, 0), (2, 1, 1), (100, NULL, 1);
SELECT readers($$SELECT size, centroid FROM kmeans('weighted', '{x}', 3, weight_column => 'w')$$);

CREATE TABLE nonfinite (x float8, note int, y float8);
INSERT INTO nonfinite SELECT 1, 1, 1 FROM generate_series(1, 500);
INSERT INTO nonfinite VALUES ('NaN', 1, 3), (2, 1, 2), (100, NULL, 100);
SELECT readers($$SELECT size, centroid FROM kmeans('nonfinite', '{x,y}', 3, nonfinite => 'skip')$$);

CREATE TABLE zero (x float8, note int, y float8);
INSERT INTO zero SELECT 1, 1, 1 FROM generate_series(1, 500);
INSERT INTO zero VALUES (0, 1, 0), (2, 1, 2), (100, NULL, -100);
SELECT readers($$SELECT size, centroid FROM kmeans('zero', '{x,y}', 3, nonfinite => 'skip', distance => 'cosine')$$);

-- The same with a row that is too short for a column added later
CREATE TABLE short (x float8, y float8);
INSERT INTO short SELECT 1, 1 FROM generate_series(1, 500);
INSERT INTO short VALUES (100, 100);
ALTER TABLE short ADD COLUMN z float8 DEFAULT 7;
INSERT INTO short VALUES ('Infinity', 1, 1), (2, 2, 2);
UPDATE short SET y = y WHERE x = 100;
INSERT INTO short (x, y, z) VALUES (3, 3, NULL), (50, 50, 50);
SELECT readers($$SELECT size, centroid FROM kmeans('short', '{x,y,z}', 4, nonfinite => 'skip')$$);
SELECT readers($$SELECT size, centroid FROM kmeans('short', '{z,x}', 4, nonfinite => 'skip')$$);

-- ... and with arrays, whose weight is elsewhere
CREATE TABLE arrays (p real[], note int, w int);
INSERT INTO arrays SELECT '{1,1}', 1, 1 FROM generate_series(1, 500);
INSERT INTO arrays VALUES ('{NaN,1}', 1, 1), ('{2,2}', 1, 0), ('{2,2}', 1, 1), ('{5,NULL}', 1, 1), (NULL, 1, 1),
	('{100,100}', NULL, 1);
SELECT readers($$SELECT size, centroid FROM kmeans('arrays', '{p}', 3, weight_column => 'w', nonfinite => 'skip')$$);
SELECT readers($$SELECT size, centroid FROM kmeans('arrays', '{p}', 3, nonfinite => 'skip')$$);

-- The label goes to the row whose values made it
ALTER TABLE weighted ADD COLUMN label int;
SELECT size, centroid FROM kmeans('weighted', '{x}', 3, 'label', weight_column => 'w');
SELECT x, w, label, count(*) FROM weighted GROUP BY 1, 2, 3 ORDER BY 1, 2;

-- A weight of 0 or NULL comes first: such a row may hold anything
CREATE TABLE ignored (g int, x float8, y float8, w float8);
INSERT INTO ignored VALUES (1, 1, 1, 1), (1, 2, 2, 1), (1, 'NaN', 1, 0), (1, NULL, 1, NULL), (1, 'Infinity', 1, NULL);
SELECT readers($$SELECT size, centroid FROM kmeans('ignored', '{x,y}', 1, weight_column => 'w')$$);
SELECT readers($$SELECT grp, size, centroid FROM kmeans_grouped('ignored', '{g}', '{x,y}', 1, weight_column => 'w')$$);
SELECT readers($$SELECT grp, size, centroid FROM kmeans_grouped('ignored', '{g,g}', '{x,y}', 1, weight_column => 'w')$$);
SELECT kmeans_centroids(kmeans_step(m, ARRAY[x, y], w))
	FROM ignored, (SELECT kmeans_fit('ignored', '{x,y}', 1, weight_column => 'w') m) f;
SELECT feature_sum(ARRAY[x, y], w) FROM ignored;

-- A bad weight is an error whatever the features are
UPDATE ignored SET w = -1 WHERE x IS NULL;
SELECT readers($$SELECT size, centroid FROM kmeans('ignored', '{x,y}', 1, weight_column => 'w')$$);
SELECT readers($$SELECT size, centroid FROM kmeans_grouped('ignored', '{g}', '{x,y}', 1, weight_column => 'w')$$);
SELECT readers($$SELECT size, centroid FROM kmeans_grouped('ignored', '{g,g}', '{x,y}', 1, weight_column => 'w')$$);
SELECT feature_sum(ARRAY[x, y], w) FROM ignored;

-- Errors name the column and the row, by one integer key or by several keys
DELETE FROM ignored WHERE w = -1;
SELECT readers($$SELECT size FROM kmeans('ignored', '{x,y}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('ignored', '{g}', '{x,y}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('ignored', '{g,g}', '{x,y}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('zero', '{note}', '{x,y}', 1, distance => 'cosine')$$);

-- Arrays of a wrong shape, before NULLs in them are looked at
CREATE TABLE shapes (g int, p float8[]);
INSERT INTO shapes VALUES (1, '{1,2}'), (1, '{1,2,NULL}');
SELECT readers($$SELECT size FROM kmeans('shapes', '{p}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('shapes', '{g}', '{p}', 1)$$);
UPDATE shapes SET p = '{}' WHERE p = '{1,2,NULL}';
SELECT readers($$SELECT size FROM kmeans('shapes', '{p}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('shapes', '{g}', '{p}', 1)$$);
UPDATE shapes SET p = '{{1,2}}' WHERE p = '{}';
SELECT readers($$SELECT size FROM kmeans('shapes', '{p}', 1)$$);
SELECT readers($$SELECT size FROM kmeans_grouped('shapes', '{g}', '{p}', 1)$$);

-- The most features that a point may have, with a weight
CREATE TABLE wide AS SELECT 1 AS g, array_fill(i::real, ARRAY[16384]) AS p, 1 AS w FROM generate_series(1, 3) i;
SELECT grp, cluster, size, centroid[16384] FROM kmeans_grouped('wide', '{g}', '{p}', 1, weight_column => 'w');

-- A point given to a function
SELECT kmeans_predict(m, '{}'::float8[]) FROM (SELECT kmeans_fit('short', '{x,y}', 1, nonfinite => 'skip') m) f;
SELECT kmeans_predict(m, 'NaN', 1) FROM (SELECT kmeans_fit('short', '{x,y}', 1, nonfinite => 'skip') m) f;
SELECT kmeans_step(m, 'Infinity'::float8, 1) FROM (SELECT kmeans_fit('short', '{x,y}', 1, nonfinite => 'skip') m) f;
SELECT kmeans_step(m, ARRAY[1, 2], -1) FROM (SELECT kmeans_fit('short', '{x,y}', 1, nonfinite => 'skip') m) f;
SELECT kmeans_agg('{}'::float8[], 1);
SELECT kmeans_agg(p, 1) FROM shapes;
SELECT kmeans_agg(ARRAY[0, 0], 1, kmeans_options(distance => 'cosine'));

SET client_min_messages = error;
DROP SCHEMA rules CASCADE;
