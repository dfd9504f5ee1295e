-- kmeans_grouped() on the GPU and on the CPU: the same rows, byte for byte. Prints how
-- many comparisons were made, and those that found a difference. Run with psql -f in a
-- database that has the extension and a GPU, or a fake one.
SET client_min_messages = error;
DO $$ BEGIN PERFORM setseed(0.25); END $$;
-- 3,000 groups of 1 to 2,000 points; NULLs, copies, a column constant in its group
CREATE TABLE group_points AS
SELECT g, (g % 2)::text AS half, (i % 3 * 5 + random())::float8 AS a,
	CASE WHEN i % 17 > 0 THEN (random() * 4)::int END AS b, (g % 5 - 2) * 1e6 AS c,
	CASE WHEN g % 3 = 0 THEN 7 ELSE (random() * 1e-6)::float4 END AS d, random() + 0.01 AS w
FROM generate_series(1, 3000) g, generate_series(1, CASE WHEN g % 20 = 0 THEN 1 + g * 37 % 2000 ELSE 1 + g * 13 % 60 END) i;
INSERT INTO group_points SELECT g, half, NULL, b, c, d, w FROM group_points WHERE g % 700 = 0;
CREATE TABLE group_null AS SELECT CASE WHEN g % 11 > 0 THEN g / 50 END AS g, half, ARRAY[a, b, c] AS v, a FROM group_points;

-- number of rows that one side has and the other has not
CREATE FUNCTION grouped_differences(args text, setting text DEFAULT 'gkmeans.memory_limit=1GB') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
	EXECUTE format('WITH c AS MATERIALIZED (SELECT x::text FROM kmeans_grouped(%1$s, device => ''cpu'') x),
		g AS MATERIALIZED (SELECT x::text FROM kmeans_grouped(%1$s, device => ''gpu'') x)
		SELECT count(*) + (SELECT count(*) = 0 FROM c)::int FROM (
			(TABLE c EXCEPT ALL TABLE g) UNION ALL (TABLE g EXCEPT ALL TABLE c)) y', args) INTO n;
	RETURN n;
END $$;
CREATE TABLE grouped_cases (id int GENERATED ALWAYS AS IDENTITY, args text, setting text DEFAULT 'gkmeans.memory_limit=1GB');
INSERT INTO grouped_cases (args)
SELECT format('''group_points'', ''{%s}'', ''%s'', %s%s', by, cols, k, opts) FROM (VALUES
	('g', '{a,b,c,d}', 3, ''),
	('g,half', '{a,b}', 2, ''),
	('half,g', '{a,b,d}', 4, ', seed => 5, tol => 0'),
	('g', '{a}', 1, ''),
	('g', '{b}', 8, ', max_iter => 3'),
	('g', '{b,d}', 50, ''),
	('g', '{a,b}', 3, ', n_init => 4'),
	('g', '{a,b}', 5, ', init => ''random'', n_init => 2'),
	('g', '{a,b,d}', 3, ', standardize => true'),
	('g', '{a,b}', 3, ', centroids => ''{{0,0},{5,2},{1e9,1e9}}'''),
	('g', '{c,d}', 3, ''),
	('half', '{a,b}', 3, ''),
	-- what is the CPU's
	('g', '{a,b}', 3, ', init => ''k-means||'''),
	('g', '{a,b}', 3, ', weight_column => ''w'''),
	('g,half', '{a,b}', 3, ', distance => ''cosine'', nonfinite => ''skip''')) v (by, cols, k, opts);
INSERT INTO grouped_cases (args) VALUES ('''group_null'', ''{g}'', ''{v}'', 3'), ('''group_null'', ''{g,half}'', ''{a}'', 6');
INSERT INTO grouped_cases (args, setting) SELECT args, 'gkmeans.memory_limit=1MB' FROM grouped_cases WHERE id IN (1, 2);
SELECT count(*) FROM grouped_cases;
SELECT args, setting, n FROM grouped_cases, LATERAL grouped_differences(args, setting) n WHERE n > 0;
DROP TABLE group_points, group_null, grouped_cases;
DROP FUNCTION grouped_differences;
