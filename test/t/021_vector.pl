# Vectors of pgvector without a cast: feature_sum(e) and kmeans_step(model, e) by the extension
# gkmeans_vector, everything else by gkmeans alone. The extension goes without taking a model,
# is dumped and restored, and finds the right vector whatever search_path says.
#
# Where there is no pgvector, a stand-in has what matters here: the type, its text and its casts.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'fsync = off');
$node->start;

sub write_file
{
	my ($file, $text) = @_;
	open my $out, '>', $file or die "$file: $!";
	print $out $text;
	close $out or die "$file: $!";
	return;
}

my $real = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'});
my $stand_in;
if (!$real)
{
	my $dir = $node->safe_psql('postgres', q{SELECT setting || '/extension' FROM pg_config WHERE name = 'SHAREDIR'});
	plan skip_all => "there is no pgvector, and $dir is not ours to write to: run this with test/with-cluster --tap" if !-w $dir;
	$stand_in = "$dir/vector";
	write_file("$stand_in.control", "default_version = '0.0'\nrelocatable = true\n");
	write_file("$stand_in--0.0.sql", q{
		CREATE TYPE vector;
		CREATE FUNCTION vector_in(cstring) RETURNS vector LANGUAGE internal IMMUTABLE STRICT AS 'textin';
		CREATE FUNCTION vector_out(vector) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
		-- aligned as pgvector's is not: read by its cast, not as pgvector stores its own
		CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, LIKE = text, ALIGNMENT = double);
		CREATE FUNCTION vector_to_float4(vector, int, bool) RETURNS real[] LANGUAGE sql IMMUTABLE STRICT
			AS $$ SELECT translate($1::text, '[]', '{}')::real[] $$;
		CREATE FUNCTION array_to_vector(real[], int, bool) RETURNS vector LANGUAGE plpgsql IMMUTABLE STRICT
			AS $$ BEGIN RETURN translate($1::text, '{}', '[]'); END $$;
		CREATE CAST (vector AS real[]) WITH FUNCTION vector_to_float4(vector, int, bool) AS IMPLICIT;
		CREATE CAST (real[] AS vector) WITH FUNCTION array_to_vector(real[], int, bool) AS ASSIGNMENT;
	});
}
END { unlink "$stand_in.control", "$stand_in--0.0.sql" if $stand_in }
diag($real ? 'with pgvector' : 'with a stand-in for pgvector');

sub fails
{
	my ($sql, $expected, $name, $database) = @_;
	my ($rc, $out, $err) = $node->psql($database // 'postgres', $sql);
	like($err, $expected, $name);
	return;
}

$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE EXTENSION vector;
	CREATE TABLE items AS SELECT i, ARRAY[i % 7, i % 5 * 0.1, i % 3]::real[]::vector AS e FROM generate_series(1, 100) i;
	CREATE TABLE models AS SELECT 'items' AS name, kmeans_fit('items', '{e}', 4) AS m;
});

# ---- gkmeans alone ----

is($node->safe_psql('postgres', q{
		SELECT bool_and(kmeans_predict(m, e) = kmeans_predict(m, e::real[]) AND kmeans_distance(m, e) = kmeans_distance(m, e::real[])
			AND kmeans_transform(m, e) = kmeans_transform(m, e::real[])
			AND (SELECT (cluster, distance) = (kmeans_predict(m, e::real[]), kmeans_distance(m, e::real[])) FROM kmeans_nearest(m, e, 1)))
		FROM items, models}), 't', 'predict, distance, transform and nearest take a vector');
is($node->safe_psql('postgres', q{
		SELECT kmeans_distance(m, '[3,0.1,2]') = kmeans_distance(m, '[3,0.1,2]'::vector), kmeans_distance(m, E' [3,\n0.1, 2] ') = kmeans_distance(m, '{3,0.1,2}'::real[]),
			kmeans_distance(m, '{3,0.1,2}') = kmeans_distance(m, '{3,0.1,2}'::float8[]), kmeans_distance(m, '[1:3]={3,0.1,2}') = kmeans_distance(m, '{3,0.1,2}'::float8[])
		FROM models}), 't|t|t|t', 'an untyped [1,2,3] is a vector, {1,2,3} an array');
fails(q{SELECT kmeans_predict(m, '[1,2') FROM models}, qr/malformed array literal: "\[1,2"/, 'half a vector');
fails(q{SELECT kmeans_predict(m, '[') FROM models}, qr/malformed array literal: "\["/, 'a bracket');
fails(q{SELECT kmeans_predict(m, '[]') FROM models}, qr/array of 0 dimensions|no features/, 'nothing in brackets');
fails(q{SELECT kmeans_predict(m, '[1,2]') FROM models}, qr/point has 2 features, the model has 3/, 'a vector that is too short');
fails(q{SELECT kmeans_predict(m, '[1,2,NaN]') FROM models}, qr/feature 3 of the point is NaN/, 'NaN in a vector');
fails(q{SELECT kmeans_predict(m, '[[1,2,3]]') FROM models}, qr/invalid input syntax for type real/, 'a vector of vectors');
fails(q{SELECT feature_sum(e) FROM items}, qr/function feature_sum\(vector\) is not unique/, 'feature_sum() needs gkmeans_vector');

# centroids come back as they left
is($node->safe_psql('postgres', q{
		CREATE TABLE topics AS SELECT cluster, centroid::real[]::vector AS v FROM models, kmeans_centroids(m);
		SELECT (SELECT max(abs(a - b)) < 1e-6 FROM models, kmeans_centroids(m) c JOIN topics USING (cluster), unnest(c.centroid, v::real[]) u (a, b)),
			kmeans_fit('items', '{e}', 4, centroids => (SELECT array_agg(v::real[] ORDER BY cluster) FROM topics))::text::jsonb -> 'clusters'
			= kmeans_fit('items', '{e}', 4, centroids => (SELECT array_agg(v::real[]::float8[] ORDER BY cluster) FROM topics))::text::jsonb -> 'clusters'}),
	't|t', 'centroids as vectors, and as given centroids again');

# ---- with gkmeans_vector ----

my $works = q{
	SELECT (SELECT feature_sum(e) = feature_sum(e::real[]) FROM items),
		(SELECT array_agg(s = r) = array_fill(true, '{100}') FROM (SELECT feature_sum(e) OVER w AS s, feature_sum(e::real[]) OVER w AS r FROM items
			WINDOW w AS (ORDER BY i ROWS 2 PRECEDING)) m),
		(SELECT kmeans_step(m, e)::text = kmeans_step(m, e::real[])::text FROM items, models)};
$node->safe_psql('postgres', 'CREATE EXTENSION gkmeans_vector');
is($node->safe_psql('postgres', $works), 't|t|t', 'sums and steps of vectors');
is($node->safe_psql('postgres', q{SELECT feature_sum(p) || feature_sum(p::float8[]) || feature_sum(p::numeric[]) FROM (VALUES ('{1,2}'::real[])) v (p)}),
	'{1,2,1,2,1,2}', 'arrays are still arrays');
fails('DROP EXTENSION vector', qr/extension gkmeans_vector depends on extension vector/, 'pgvector does not go alone');

# ---- dump and restore ----

my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('restored'), '-f', $dump ], 'restore');
is($node->safe_psql('restored', $works), 't|t|t', 'restored, they work');

# ---- without pgvector again: the models stay ----

$node->safe_psql('restored', q{SET client_min_messages = warning; DROP EXTENSION vector CASCADE});
is($node->safe_psql('restored', q{SELECT string_agg(extname, ' ' ORDER BY extname) FROM pg_extension WHERE extname ~ 'gkmeans|vector'}),
	'gkmeans', 'DROP EXTENSION vector CASCADE takes gkmeans_vector along, not gkmeans');
is($node->safe_psql('restored', q{SELECT kmeans_predict(m, '[1,0.2,2]') IS NOT NULL FROM models}), 't', 'nor a model');

# ---- other orders, other schemas, another vector in the way; by a role without superuser ----

$node->safe_psql('postgres', q{
	CREATE DATABASE orders;
	CREATE ROLE dora LOGIN;
	GRANT CREATE ON DATABASE orders TO dora;
});
$node->safe_psql('orders', q{
	CREATE SCHEMA v; CREATE SCHEMA "G""k";
	CREATE SCHEMA trap AUTHORIZATION dora;
	CREATE TYPE trap.vector AS (a real);
	CREATE TYPE trap.kmeans_model AS (a real);
	CREATE EXTENSION gkmeans SCHEMA "G""k";
});
fails('CREATE EXTENSION gkmeans_vector', qr/required extension "vector" is not installed/, 'without pgvector there is no gkmeans_vector', 'orders');
$node->safe_psql('orders', q{
	GRANT USAGE ON SCHEMA v, "G""k" TO PUBLIC;
	CREATE EXTENSION vector SCHEMA v;
	SET ROLE dora;
	SET search_path = trap;
	CREATE EXTENSION gkmeans_vector;
});
is($node->safe_psql('orders', q{
		SELECT string_agg(p.oid::regprocedure::text, ' ' ORDER BY proname) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid WHERE extname = 'gkmeans_vector'}),
	'trap.feature_sum(v.vector) trap.kmeans_step("G""k".kmeans_model,v.vector)', 'they are of the right vector');
is($node->safe_psql('orders', q{SET search_path = trap, "G""k", v; SELECT feature_sum(e) FROM (VALUES ('[1,2]'::v.vector), ('[3,4]')) x (e)}),
	'{4,6}', 'and work there');

done_testing();
