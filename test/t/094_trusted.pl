# The owner of a database installs gkmeans without being a superuser, and becomes none by it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE ROLE guest LOGIN; CREATE DATABASE shop OWNER owner');

# Run as a role; returns output and error.
sub as
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('shop', $sql, extra_params => [ '-U', $role ], stdout => \$out, stderr => \$err, on_error_stop => 0);
	return ($out, $err);
}

sub sees
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	is($err, '', "$name: no error");
	is($out, $expected, $name);
}

sub fails
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	like($err, $expected, $name);
}

fails('guest', 'CREATE EXTENSION gkmeans', qr/permission denied to create extension "gkmeans"/, 'not every role');
sees('owner', q{CREATE SCHEMA mine; CREATE EXTENSION gkmeans SCHEMA mine; SELECT extowner::regrole FROM pg_extension WHERE extname = 'gkmeans'},
	'owner', 'the owner of the database');
my $fit = q{SELECT sum(size) FROM mine.kmeans_query('SELECT i FROM generate_series(1, 10) i', 2)};
sees('owner', $fit, '10', 'clusters');
fails('guest', $fit, qr/permission denied for schema mine/, 'a guest has no right on the schema');
sees('owner', 'GRANT USAGE ON SCHEMA mine TO guest', '', 'until it is granted');
sees('guest', $fit, '10', 'then clusters, too');

# what is the superuser's stays so
for my $role ('owner', 'guest')
{
	fails($role, 'SELECT mine.gkmeans_stat_reset()', qr/permission denied for function gkmeans_stat_reset/, "$role: no reset of the statistics");
	fails($role, "SELECT mine.gkmeans_version(); SET gkmeans.log_min_duration = 0", qr/permission denied to set parameter "gkmeans.log_min_duration"/, "$role: no setting of the log");
	fails($role, q{SELECT * FROM mine.kmeans_query('SELECT length(rolname) FROM pg_authid', 1)}, qr/permission denied for table pg_authid/, "$role: no secrets");
}
fails('owner', q{CREATE FUNCTION mine.raw(internal) RETURNS mine.kmeans_model AS 'gkmeans', 'kmeans_agg_finish' LANGUAGE c},
	qr/permission denied for language c/, 'no functions of the library by other signatures');
fails('owner', 'ALTER FUNCTION mine.gkmeans_version() SECURITY DEFINER', qr/must be owner of function/, 'the functions are not his');

# objects that lie in wait for the script are in its way, and are not run by it
sees('owner', 'DROP EXTENSION gkmeans', '', 'drops it');
fails('owner', q{CREATE FUNCTION mine.gkmeans_version() RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$; CREATE EXTENSION gkmeans SCHEMA mine},
	qr/function "gkmeans_version" already exists with same argument types/, 'a function of that name: an error');
sees('owner', 'DROP FUNCTION mine.gkmeans_version()', '', 'and without it');
sees('owner', q{
	CREATE TABLE mine.seen (who text);
	CREATE FUNCTION mine.trap() RETURNS void LANGUAGE sql AS 'INSERT INTO mine.seen SELECT current_user';
	CREATE FUNCTION mine.kmeans_state_combine(anyelement, anyelement) RETURNS anyelement LANGUAGE sql AS 'SELECT mine.trap(); SELECT $1';
	CREATE FUNCTION mine.gkmeans_progress_info(VARIADIC int[]) RETURNS int LANGUAGE sql AS 'SELECT mine.trap(); SELECT 1';
	CREATE FUNCTION mine.kmeans_state_normal(anyelement) RETURNS anyelement LANGUAGE sql AS 'SELECT mine.trap(); SELECT $1';
	CREATE EXTENSION gkmeans SCHEMA mine}, '', 'others of the same names: it is installed');
is($node->safe_psql('shop', q{
	SET search_path = mine;
	SELECT kmeans_finish(kmeans_combine(p)) IS NOT NULL, (SELECT count(*) FROM gkmeans_progress)
	FROM (SELECT kmeans_step_partial(m, i) AS p FROM (SELECT kmeans_query_fit('SELECT i FROM generate_series(1, 9) i', 2) AS m) f, generate_series(1, 9) i GROUP BY i % 3) x}), 't|0', 'a superuser calls it');
is($node->safe_psql('shop', 'SELECT count(*) FROM mine.seen'), '0', 'and its own functions, not those');

# gkmeans_vector needs no superuser where there is pgvector
SKIP:
{
	skip 'pgvector is not installed', 1
		unless $node->safe_psql('shop', q{SELECT count(*) FROM pg_available_extension_versions WHERE name = 'vector' AND trusted}) > 0;
	sees('owner', 'CREATE EXTENSION gkmeans_vector SCHEMA mine CASCADE', '', 'with pgvector');
}

$node->stop;
done_testing();
