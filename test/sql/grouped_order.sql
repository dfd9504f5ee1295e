-- kmeans_grouped: groups come in the order of their keys, whatever the settings

\set VERBOSITY terse
SET client_min_messages = warning;
CREATE TABLE go AS SELECT (i * 7919 % 600) - 300 AS i4, ((i * 7919 % 600) - 300)::bigint * 10000000000 AS i8, (i % 13 - 6)::smallint AS i2,
    NULLIF((i * 31 % 50), 7) AS maybe, chr(65 + (i * 17 % 26)) || CASE WHEN i % 2 = 0 THEN 'x' ELSE '' END AS t,
    '2024-01-01'::date - (i * 37 % 20) AS d, (i % 9 - 4) / 3.0 AS n, CASE WHEN i % 5 > 0 THEN i % 5 / 2.0 ELSE 'NaN'::float8 END AS f,
    i % 3 = 0 AS b, ARRAY[i % 3, i % 2] AS a, (hashint4(i) % 1000)::float8 AS x, (hashint4(-i) % 1000)::real AS y
FROM generate_series(1, 5000) i;

-- all rows, and whether their keys are in order
CREATE FUNCTION in_order(keys text[]) RETURNS TABLE (groups bigint, ordered bool, rows text) LANGUAGE plpgsql AS $$
DECLARE
    list text := (SELECT string_agg(quote_ident(k), ', ') FROM unnest(keys) k);
BEGIN
    RETURN QUERY EXECUTE format($q$
        WITH r AS MATERIALIZED (SELECT * FROM kmeans_grouped('go', %L, '{x,y}', 3) WITH ORDINALITY r (grp, cluster, size, centroid, inertia, radius, at)),
        k AS (SELECT to_jsonb(s) AS grp, row_number() OVER (ORDER BY %s) AS place FROM (SELECT %s FROM go GROUP BY %s) s)
        SELECT count(DISTINCT r.grp), array_agg(at ORDER BY place, cluster) = array_agg(at ORDER BY at), md5(string_agg(r::text, '' ORDER BY at)) FROM r JOIN k USING (grp)
        $q$, keys, list, list, list);
END $$;
CREATE TABLE wanted AS SELECT keys, o.* FROM (VALUES ('{i4}'::text[]), ('{i8}'), ('{i2}'), ('{maybe}'), ('{t}'), ('{d}'), ('{n}'), ('{f}'), ('{b}'), ('{a}'), ('{t,d}'), ('{maybe,n}'), ('{i4,b}')) v (keys), in_order(keys) o;
SELECT keys, groups, ordered FROM wanted ORDER BY keys;

-- other settings, the same rows at the same places
CREATE FUNCTION differ(setting text, value text) RETURNS TABLE (checked bigint, other text[]) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config($1, $2, false);
    RETURN QUERY SELECT count(*), array_agg(w.keys::text ORDER BY w.keys) FILTER (WHERE o IS DISTINCT FROM (w.groups, w.ordered, w.rows)) FROM wanted w, in_order(w.keys) o;
    EXECUTE 'RESET ' || $1;
END $$;
SELECT s, v, d.* FROM (VALUES ('gkmeans.memory_limit', '0'), ('gkmeans.memory_limit', '64kB'), ('gkmeans.threads', '1'), ('gkmeans.threads', '7'), ('gkmeans.reader', 'executor'),
    ('gkmeans.workers', '2'), ('gkmeans.device', 'cpu'), ('gkmeans.chunk_size', '64kB'), ('gkmeans.simd', 'scalar')) v (s, v), differ(s, v) d;
-- parallel plans bring rows in any order
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 3;
SELECT * FROM differ('gkmeans.threads', '2');
