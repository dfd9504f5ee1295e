# What docs/operations.md says about memory: the largest size of a server process, as the
# kernel counted it, against the table of that page.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'only Linux tells the largest size of a process' if !-r '/proc/self/status';

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# shared memory counts too, so there is next to none
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nshared_buffers = '1MB'\nwork_mem = '1MB'\nmax_wal_size = '1GB'");
$node->start;
my $n = 1_000_000;
$node->safe_psql('postgres', qq{
	CREATE EXTENSION gkmeans;
	CREATE UNLOGGED TABLE reals AS SELECT (i % 1000)::real a, (i % 777)::real b, (i % 31)::real c, (i % 7)::real d, 2::real w, 0 AS l
		FROM generate_series(1, $n) i;
	CREATE UNLOGGED TABLE doubles AS SELECT sin(i) a, cos(i) b, sin(i * 3) c, cos(i * 7) d FROM generate_series(1, $n) i;
	CREATE UNLOGGED TABLE wide AS SELECT (i % 10 * 3)::real AS x, ARRAY(SELECT sin(i * j)::real FROM generate_series(1, 256) j) AS v
		FROM generate_series(1, 4000) i;
	CREATE TABLE small AS SELECT i AS x FROM generate_series(1, 100) i;
	VACUUM ANALYZE;
});

# Bytes that a statement added to the largest size of its process
sub bytes_of
{
	my ($sql, $settings) = @_;
	my $peak = q{SELECT (regexp_match(pg_read_file('/proc/self/status'), 'VmHWM:\s+(\d+)'))[1]};
	my @out = split /\n/, $node->safe_psql('postgres', "SET client_min_messages = error; SET gkmeans.device = cpu; SET gkmeans.threads = 2; "
		  . "SET gkmeans.memory_limit = '1GB'; SET gkmeans.skip_points = off; " . ($settings // '') . "; SELECT count(*) FROM kmeans('small', '{x}', 3); $peak; SELECT count(*) FROM ($sql) s; $peak");
	return ($out[-1] - $out[1]) * 1024;
}

sub is_about
{
	my ($name, $expected, $sql, $settings) = @_;
	my $real = bytes_of($sql, $settings);
	# the page's table, and a few MB of everything else: stacks, code, buffers of threads
	ok($real > 0.85 * $expected && $real < 1.1 * $expected + 8e6,
		sprintf('%s: %.1f MB, by the page %.1f MB', $name, $real / 1e6, $expected / 1e6));
	return;
}

my $kmeans = sub { my ($table, $more) = @_; return "SELECT * FROM kmeans('$table', '{a,b,c,d}', 8, max_iter => 3$more)" };
is_about('points alone', 4 * $n * 4, $kmeans->('reals', ", init => 'random'"));
is_about('with seeding', 4 * $n * (4 + 1), $kmeans->('reals', ''));
is_about('with weights', 4 * $n * (4 + 1 + 1), $kmeans->('reals', ", weight_column => 'w'"));
is_about('double precision', 8 * $n * 4, $kmeans->('doubles', ''));
is_about('labels', 4 * $n * (4 + 1 + 2), "SELECT * FROM kmeans_labels('reals', '{a,b,c,d}', 8, max_iter => 3)");
is_about('skipping, 8 clusters', 4 * $n * 4 + 8 * $n, $kmeans->('reals', ", init => 'random'"), 'SET gkmeans.skip_points = on');
is_about("seeding's copy", 4 * $n * (4 + 1) + (4 * 4 + 20) * $n, $kmeans->('reals', ''), 'SET gkmeans.skip_points = on');
# as everybody has it: seeding's bytes have been given back when bounds are made
is_about('labels, skipping by itself', 4 * $n * (4 + 2) + 8 * $n, "SELECT * FROM kmeans_labels('reals', '{a,b,c,d}', 8, max_iter => 3)",
	'SET gkmeans.skip_points = auto');
is_about('a limit', 8e6 + 4 * $n, $kmeans->('reals', ''), "SET gkmeans.memory_limit = '8MB'; SET gkmeans.chunk_size = '1MB'");
my ($k, $d) = (1500, 256);
is_about('many clusters', 50 * $k * $d + 4 * 4000 * $d, "SELECT * FROM kmeans('wide', '{v}', $k, max_iter => 2, init => 'random')");

$node->stop;
done_testing();
