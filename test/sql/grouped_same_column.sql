-- a group's column may be a feature too: with little memory the query sorts by its place, not its name
CREATE TABLE gro AS SELECT (i % 5000)::numeric AS x FROM generate_series(1, 50000) i;
SELECT count(*), sum(size) FROM kmeans_grouped('gro', '{x}', '{x}', 1);
SET gkmeans.memory_limit = '64kB';
SELECT count(*), sum(size) FROM kmeans_grouped('gro', '{x}', '{x}', 1);
DROP TABLE gro;
