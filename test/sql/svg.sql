-- pictures: what is in them (test/t/050_svg.pl opens them in a browser)
SET client_min_messages = notice;
SET gkmeans.device = cpu;
CREATE FUNCTION svg_count(svg text, what text) RETURNS int LANGUAGE sql IMMUTABLE AS
$$ SELECT (length(svg) - length(replace(svg, what, ''))) / length(what) $$;
CREATE TABLE svg_points AS
SELECT (i % 10) * 10 + sin(i) AS x, (i * 7 % 10) * 10 + cos(i * 1.7) AS y, sin(i * 3.1) AS "<z&>" FROM generate_series(1, 3000) i;
CREATE TABLE svg_model AS
SELECT kmeans_fit('svg_points', '{x,y}', 10, n_init => 5) AS flat, kmeans_fit('svg_points', '{x,y,<z&>}', 3) AS deep,
       kmeans_fit('svg_points', '{x}', 4) AS line;

-- 500 points in 10 groups, 10 centroids, 10 entries; colours come again with squares after 8
SELECT svg_count(s, 'class="cluster"') AS groups, svg_count(s, '<circle') + svg_count(s, '<path d="M') > 520 AS marks,
       svg_count(s, 'class="centroid"') AS centroids, svg_count(s, 'class="entry"') AS entries,
       svg_count(s, '<title>10 clusters, 500 rows drawn</title>') AS title,
       svg_count(s, '>x</text>') AS x, svg_count(s, '>y</text>') AS y, left(s, 39) AS head, right(s, 7) = E'</svg>\n' AS tail
FROM svg_model, kmeans_svg(flat, 'svg_points', points => 500) s;
-- all of 3,000 rows as circles: 3,000 points, 3 centroids, 3 entries
SELECT svg_count(s, '<circle') AS circles, svg_count(s, 'principal component') AS components,
       svg_count(s, 'width="400" height="300"') AS size, svg_count(s, '<title>a &lt; b &amp; c</title>') AS title
FROM svg_model, kmeans_svg(deep, 'svg_points', points => 5000, width => 400, height => 300, title => 'a < b & c') s;
-- chosen features; names are escaped
-- characters that XML has not
SELECT svg_count(s, U&'<title>a\FFFD b\FFFD</title>') AS title
FROM svg_model, kmeans_svg(deep, 'svg_points', title => U&'a\FFFE\0007b\FFFF') s;
SELECT svg_count(s, '>&lt;z&amp;&gt;</text>') AS z, svg_count(s, 'principal component') AS components
FROM svg_model, kmeans_svg(deep, 'svg_points', 'x', '<z&>') s;
-- one feature; arrays
SELECT svg_count(s, '>cluster</text>') AS y FROM svg_model, kmeans_svg(line, 'svg_points', points => 100) s;
CREATE VIEW svg_array AS SELECT ARRAY[x, y, "<z&>"] AS v FROM svg_points;
SELECT svg_count(s, '>v[3]</text>') AS v3 FROM kmeans_svg(kmeans_fit('svg_array', '{v}', 2), 'svg_array', 'v[1]', 'v[3]') s;
SELECT svg_count(s, 'class="centroid"') AS centroids
FROM kmeans_svg(kmeans_fit('svg_array', '{v}', 3, distance => 'cosine'), 'svg_array', points => 10) s;
-- more clusters than the legend has room for
SELECT svg_count(s, 'class="entry"') AS entries, svg_count(s, '>and 5 more</text>') AS more
FROM kmeans_svg(kmeans_fit('svg_points', '{x,y}', 25), 'svg_points') s;
-- a single value; values that nearly are one
CREATE TABLE svg_same AS SELECT 7 AS x, 1e15 + i % 2 AS y FROM generate_series(1, 10) i;
SELECT svg_count(s, '<circle') AS circles, s ~ 'nan|inf' AS nan FROM kmeans_svg(kmeans_fit('svg_same', '{x,y}', 2), 'svg_same') s;
-- ticks far from 0, as of milliseconds since 1970, can be told apart; one cluster, one row
CREATE TABLE svg_late AS SELECT 1700000000000 + i * 72000 AS ms, i % 7 AS y FROM generate_series(1, 100) i;
SELECT count(t) AS ticks, count(DISTINCT t) AS different, min(t) AS first
FROM kmeans_svg(kmeans_fit('svg_late', '{ms,y}', 2), 'svg_late') s, regexp_matches(s, '>([^<]*)M</text>', 'g') AS r, unnest(r) t;
SELECT svg_count(s, '<title>1 cluster, 1 row drawn</title>') AS title FROM kmeans_svg(kmeans_fit('svg_same', '{x}', 1), 'svg_same', points => 1) s;
-- the same picture each time
SELECT count(DISTINCT md5(kmeans_svg(deep, 'svg_points'))) FROM svg_model, generate_series(1, 3);

-- the scan: 2 lines with 8 marks, and one with 8 for the inertia; both suggestions
SELECT svg_count(s, 'class="line"') AS lines, svg_count(s, '<circle') AS circles, svg_count(s, 'class="suggested"') AS suggested,
       svg_count(s, '>best silhouette: k = 10</text>') AS best
FROM kmeans_scan_svg('svg_points', '{x,y}', 2, 16, 2, n_init => 5) s;
SELECT s ~ 'nan|inf' AS nan, svg_count(s, 'class="line"') AS lines FROM kmeans_scan_svg('svg_points', '{x,y}', 1, 1) s;
CREATE TABLE svg_empty (x int);
SELECT kmeans_scan_svg('svg_empty', '{x}', 1, 3) IS NULL AS none;

-- bad input
SELECT kmeans_svg(NULL, 'svg_points');
SELECT kmeans_svg(deep, NULL) FROM svg_model;
SELECT kmeans_svg(deep, 'svg_points', 'x') FROM svg_model;
SELECT kmeans_svg(deep, 'svg_points', 'x', 'nope') FROM svg_model;
SELECT kmeans_svg(kmeans_fit('svg_array', '{v}', 2), 'svg_array', 'v[1]', 'v[4]');
SELECT kmeans_svg(deep, 'svg_points', points => 0) FROM svg_model;
SELECT kmeans_svg(deep, 'svg_points', points => 100001) FROM svg_model;
SELECT kmeans_svg(deep, 'svg_points', width => 10) FROM svg_model;
SELECT kmeans_svg(deep, 'svg_points', height => NULL) FROM svg_model;
SELECT kmeans_svg(deep, 'svg_array') FROM svg_model;
SELECT kmeans_svg(line, 'svg_empty') FROM svg_model;
SELECT kmeans_scan_svg('svg_points', '{x,y}', 2, 4, width => 1);
SELECT kmeans_scan_svg('svg_points', '{x,y}', 4, 2);
DROP VIEW svg_array;
DROP TABLE svg_points, svg_model, svg_same, svg_late, svg_empty;
DROP FUNCTION svg_count;
