-- The table of centroids for an external build of VectorChord, as docs/embeddings.md makes it,
-- against the rules that such a build has (VectorChord itself is not here).

\set SHOW_CONTEXT never
-- What an external build would refuse, nothing for a good table
CREATE FUNCTION refused(lists regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT format('%s is %s, not integer', attname, atttypid::regtype) FROM pg_attribute
    WHERE attrelid = lists AND attname IN ('id', 'parent') AND atttypid <> 'int4'::regtype;
    EXECUTE format('CREATE TEMP TABLE rows AS SELECT id::bigint, parent::bigint, vector FROM %s', lists);
    RETURN QUERY SELECT 'an id or a vector is NULL' FROM rows WHERE id IS NULL OR vector IS NULL LIMIT 1;
    RETURN QUERY SELECT format('two rows have id %s', id) FROM rows GROUP BY id HAVING count(*) > 1;
    RETURN QUERY SELECT 'vectors of different dimensions' FROM rows HAVING count(DISTINCT cardinality(vector)) > 1;
    IF NOT EXISTS (SELECT FROM rows WHERE parent IS NOT NULL) THEN
        RETURN QUERY SELECT format('a flat table of %s rows', count(*)) FROM rows HAVING count(*) < 2;
    ELSE
        RETURN QUERY SELECT format('%s roots', count(*)) FROM rows WHERE parent IS NULL HAVING count(*) <> 1;
        RETURN QUERY SELECT format('parent %s is missing', c.parent) FROM rows c LEFT JOIN rows p ON p.id = c.parent WHERE c.parent IS NOT NULL AND p.id IS NULL;
        -- depth of every row that hangs on a root; rows of a circle hang on none
        CREATE TEMP TABLE depths AS WITH RECURSIVE tree AS (
            SELECT id, 0 AS depth FROM rows WHERE parent IS NULL
            UNION ALL SELECT r.id, depth + 1 FROM rows r JOIN tree t ON r.parent = t.id WHERE depth < 20)
        SELECT * FROM tree;
        RETURN QUERY SELECT format('row %s does not hang on the root', id) FROM rows r WHERE id NOT IN (SELECT id FROM depths) AND parent IN (SELECT id FROM rows);
        RETURN QUERY SELECT format('ends at depths %s to %s', min(depth), max(depth)) FROM depths d
        WHERE NOT EXISTS (SELECT FROM rows WHERE parent = d.id) HAVING min(depth) <> max(depth);
        RETURN QUERY SELECT format('%s levels below the root', max(depth)) FROM depths HAVING max(depth) NOT BETWEEN 1 AND 8;
        DROP TABLE depths;
    END IF;
    DROP TABLE rows;
END $$;

-- the validator sees what it has to see
CREATE TABLE bad (id int, parent int, vector real[]);
CREATE FUNCTION refused_rows(VARIADIC rows text[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE bad;
    INSERT INTO bad SELECT split_part(r, ' ', 1)::int, nullif(split_part(r, ' ', 2), '-')::int, coalesce(nullif(split_part(r, ' ', 3), ''), '{1,2}')::real[] FROM unnest(rows) r;
    RETURN coalesce((SELECT string_agg(x, '; ' ORDER BY x) FROM refused('bad') x), 'good');
END $$;
SELECT refused_rows('1 -', '2 -') AS flat, refused_rows('0 -', '7 0', '-3 0') AS tree, refused_rows('0 -', '1 0', '2 1', '3 1') AS three;
SELECT refused_rows('1 -') AS one, refused_rows('1 -', '1 -') AS twice, refused_rows('1 -', '2 -', '3 1') AS two_roots, refused_rows('0 -', '1 0', '2 9') AS orphan,
    refused_rows('0 -', '1 0', '2 3', '3 2') AS circle, refused_rows('0 -', '1 0', '2 0', '3 1') AS childless, refused_rows('1 -', '2 - {1}') AS dimensions \gx
CREATE TABLE wide (id bigint, parent int, vector real[]);
INSERT INTO wide VALUES (1), (2);
SELECT * FROM refused('wide') ORDER BY 1;

-- the statement of docs/embeddings.md, flat and in levels, with many shapes of data
CREATE TABLE items AS SELECT i AS id, ARRAY[sin(i % 40 * 7), cos(i % 40 * 3), sin(i * 13) * 0.01, i % 40]::real[] AS embedding FROM generate_series(1, 800) i;
CREATE FUNCTION flat(model kmeans_model) RETURNS TABLE (id int, parent int, vector real[]) LANGUAGE sql AS $$
    SELECT cluster, NULL::int, centroid::real[] FROM kmeans_centroids(model)
$$;
CREATE FUNCTION levels(model kmeans_model, parents int, options kmeans_options) RETURNS TABLE (id int, parent int, vector real[]) LANGUAGE sql AS $$
    WITH leaf AS (SELECT cluster AS id, centroid::real[] AS vector FROM kmeans_centroids(model)),
         upper AS (SELECT kmeans_agg(vector, parents, options) AS model FROM leaf),
         child AS (SELECT 1 + parents + leaf.id AS id, 1 + kmeans_predict(upper.model, vector) AS parent, vector FROM leaf, upper)
    SELECT 0, NULL::int, centroid::real[] FROM kmeans_centroids((SELECT kmeans_agg(vector, 1, options) FROM leaf))
    UNION ALL
    SELECT 1 + cluster, 0, centroid::real[] FROM upper, kmeans_centroids(upper.model) WHERE 1 + cluster IN (SELECT child.parent FROM child)
    UNION ALL
    SELECT * FROM child
$$;
CREATE TEMP TABLE made (k int, parents int, distance text, kind text, complaint text, rows bigint, leaves_of_the_upper bool);
SET client_min_messages = warning;
DO $$
DECLARE
    m kmeans_model;
    options kmeans_options;
    k int;
    parents int;
    distance text;
BEGIN
    FOREACH distance IN ARRAY '{euclidean,cosine}'::text[] LOOP
        options := kmeans_options(distance => distance, n_init => 3);
        FOREACH k IN ARRAY '{1,2,7,40,100}'::int[] LOOP
            m := kmeans_fit('items', '{embedding}', k, distance => distance);
            CREATE TABLE lists AS SELECT * FROM flat(m);
            INSERT INTO made SELECT k, 0, distance, 'flat', (SELECT string_agg(x, '; ') FROM refused('lists') x), count(*), NULL FROM lists;
            DROP TABLE lists;
            FOREACH parents IN ARRAY '{1,2,6,50}'::int[] LOOP
                CREATE TABLE lists AS SELECT * FROM levels(m, parents, options);
                INSERT INTO made SELECT k, parents, distance, 'levels', (SELECT string_agg(x, '; ') FROM refused('lists') x), count(*),
                    (SELECT count(*) FROM lists WHERE parent > 0) = (SELECT i.k FROM kmeans_info(m) i) FROM lists;
                DROP TABLE lists;
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
RESET client_min_messages;
SELECT kind, complaint, count(*), array_agg(DISTINCT k ORDER BY k) AS k, bool_and(leaves_of_the_upper) AS all_leaves FROM made GROUP BY 1, 2 ORDER BY 1, 2;

DROP TABLE items, bad, wide, made;
DROP FUNCTION refused(regclass), refused_rows(text[]), flat, levels;
