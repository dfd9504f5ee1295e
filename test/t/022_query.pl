# kmeans_query(): the caller's rights, row-level security, hostile search paths, cancels.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE TABLE pts (owner text, x float8, secret float8);
	INSERT INTO pts SELECT 'alice', i % 2 * 10, i FROM generate_series(1, 10) i;
	INSERT INTO pts SELECT 'bob', 1000 + i % 2 * 1000, i FROM generate_series(1, 6) i;
	ALTER TABLE pts ENABLE ROW LEVEL SECURITY;
	CREATE POLICY own ON pts USING (owner = current_user);
	GRANT SELECT ON pts TO alice;
	GRANT SELECT (owner, x) ON pts TO bob;
	CREATE FUNCTION everyones() RETURNS numeric LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT sum(size) FROM kmeans_query('SELECT x FROM pts', 2) $$;
	CREATE FUNCTION whose() RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
	CREATE SCHEMA traps;
	CREATE FUNCTION traps.date_part(text, interval) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped by date_part'; END $$;
	CREATE DOMAIN traps.float8 AS text;
	CREATE DOMAIN traps.int4 AS text;
	GRANT USAGE ON SCHEMA traps TO alice;
});

# Run as a role; returns output and error.
sub as
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, extra_params => [ '-U', $role ], stdout => \$out, stderr => \$err, on_error_stop => 0);
	return ($out, $err);
}

sub sees
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	is($err, '', "$name: no error or notice");
	is($out, $expected, $name);
}

sub fails
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	like($err, $expected, $name);
	is($out, '', "$name: and no result");
}

my $query = q{SELECT size, centroid FROM kmeans_query('SELECT x FROM pts', 2)};
sees('alice', $query, "5|{0}\n5|{10}", 'alice: clusters of her rows');
sees('bob', $query, "3|{1000}\n3|{2000}", 'bob: clusters of his rows, by a right on the column');
is($node->safe_psql('postgres', q{SELECT sum(size) FROM kmeans_query('SELECT x FROM pts', 2)}), '16', 'the superuser: all rows');
fails('alice', "SET gkmeans.reader = heap; $query", qr/ERROR:  gkmeans.reader is "heap", but "query" can only be read by the executor/,
	'alice: no pages under row-level security');
fails('bob', q{SELECT * FROM kmeans_query('SELECT x, secret FROM pts', 2)}, qr/ERROR:  permission denied for table pts/, 'bob: no right on a column');
fails('bob', q{SELECT kmeans_query_fit('SELECT x FROM pts WHERE secret > 2', 2)}, qr/ERROR:  permission denied for table pts/, 'bob: nor in a condition');
fails('bob', q{SELECT * FROM kmeans_query('SELECT x FROM pts', 2, weight_column => 'secret')}, qr/ERROR:  query has no column "secret"/, 'bob: nor as a weight');
sees('bob', 'SELECT everyones()', '16', 'SECURITY DEFINER: rows of the definer');
sees('bob', q{SELECT sum(size) FROM kmeans_query('SELECT CASE whose() WHEN ''bob'' THEN x END FROM pts', 2)}, '6', "what a query calls runs as the caller");
fails('postgres', qq{ALTER TABLE pts FORCE ROW LEVEL SECURITY; SET row_security = off; SET ROLE bob; $query},
	qr/ERROR:  query would be affected by row-level security policy for table "pts"/, 'row_security = off: the usual error');

# names in the query are looked up as the caller's, ours are not
fails('alice', q{SET search_path = traps, pg_catalog, public; SELECT date_part('epoch', interval '1 s')}, qr/trapped by date_part/, 'the trap works');
sees('alice', q{SET search_path = traps, pg_catalog, public;
	SELECT centroid FROM kmeans_query($$ SELECT i * interval '1 s', i > 1, i::numeric FROM generate_series(1, 3) i $$, 1)}, '{2,0.6666666666666666,2}', 'casts are those of pg_catalog');

# a query can be stopped while it is read
for my $stop ('SELECT pg_sleep(60)::text = $$x$$', 'SELECT count(*) FROM generate_series(1, 1000000000) a', 'SELECT a FROM generate_series(1, 1000000000) a')
{
	my $start = time;
	my ($out, $err) = as('alice', "SET statement_timeout = 300; SELECT * FROM kmeans_query('$stop', 2)");
	like($err, qr/canceling statement due to statement timeout/, "stopped: $stop");
	cmp_ok(time - $start, '<', 20, "in time: $stop");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_ls_tmpdir()}), '0', 'nothing is left behind');

# a session goes on writing after a query that failed
is($node->safe_psql('postgres', q{
	DO $$ BEGIN PERFORM kmeans_query('SELECT 1 / 0', 1); EXCEPTION WHEN division_by_zero THEN INSERT INTO pts VALUES ('bob', 1, 1); END $$;
	SHOW transaction_read_only; SELECT count(*) FROM pts}), "off\n17", 'an error leaves the transaction as it was');

# read-only sessions and standbys may cluster
is($node->safe_psql('postgres', q{SET default_transaction_read_only = on; SELECT sum(size) FROM kmeans_query('SELECT x FROM pts', 2)}), '17', 'in a read-only transaction');

$node->stop;
done_testing();
