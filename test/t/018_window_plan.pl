# The plan node KmeansWindow under other extensions' hooks: test/modules/walk_plan.c does with
# each plan what they do.
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $config = $ENV{PG_CONFIG} // 'pg_config';
chomp(my $include = `$config --includedir-server`);
my ($cc) = grep { system("command -v $_ >/dev/null 2>&1") == 0 } 'cc', 'gcc', 'clang';
plan skip_all => 'no C compiler, or no headers of the server' if !defined $cc || !-e "$include/postgres.h";

my $module = tempdir(CLEANUP => 1) . '/walk_plan.so';
is(system($cc, '-O1', '-fPIC', '-shared', '-Wall', '-Werror', "-I$include", '-o', $module, 'test/modules/walk_plan.c'), 0,
	'the module is built');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts AS SELECT i AS id, i % 10 AS g, sin(i) AS a, cos(i * 0.7) AS b, -1 AS label FROM generate_series(1, 3000) i;
	ANALYZE pts;
});

my %query = (
	'one call' => 'SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM pts',
	'no partition' => 'SELECT kmeans(ARRAY[a, b], 3) OVER () FROM pts',
	'two calls' => q{SELECT id, kmeans(ARRAY[a, b], 2, '{{0,0},{1,1}}') OVER w, kmeans(ARRAY[a], 3) OVER w FROM pts WINDOW w AS (PARTITION BY g, id % 2)},
	'of a subquery' => 'SELECT id, c FROM (SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) AS c FROM pts OFFSET 0) x WHERE c = 1',
	'of a CTE' => 'WITH w AS MATERIALIZED (SELECT id, kmeans(ARRAY[a, b], 3) OVER () AS c FROM pts) SELECT c, count(*) FROM w GROUP BY c',
	'with a subplan' => 'SELECT id, (SELECT max(c) FROM (SELECT kmeans(ARRAY[p.a], 1) OVER () AS c FROM pts q WHERE q.id = p.id) o) FROM pts p WHERE id < 20');

sub digest
{
	my ($query, $before) = @_;
	my ($out, $err);
	$node->psql('postgres', "$before; SELECT md5(string_agg(o::text, ',' ORDER BY o::text)) FROM ($query) o",
		stdout => \$out, stderr => \$err);
	return ($out, $err);
}

for my $name (sort keys %query)
{
	my ($expected) = digest($query{$name}, 'SET gkmeans.enable_window_scan = off');
	my ($found, $err) = digest($query{$name}, "LOAD '$module'");
	is($found, $expected, "$name: the same labels");
	like($err, qr/walked over "KmeansWindow"/, "$name: by the node");
}

# a label into the table, and a plan that is executed again
my ($out, $err);
$node->psql('postgres', "LOAD '$module';
	UPDATE pts SET label = w.c FROM (SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) AS c FROM pts) w WHERE w.id = pts.id;
	SELECT count(*), count(DISTINCT label) FROM pts;
	PREPARE again AS $query{'one call'} ORDER BY id LIMIT 1;
	SET plan_cache_mode = force_generic_plan;
	EXECUTE again; EXECUTE again;
	SET debug_print_plan = on; SET debug_pretty_print = on;
	EXPLAIN (VERBOSE, COSTS OFF) $query{'two calls'};
	SELECT 'done'", stdout => \$out, stderr => \$err);
like($out, qr/^3000\|3\n1\|(\d)\n1\|\1\n.*KmeansWindow.*^done$/ms, 'UPDATE, prepared, printed') or diag($err);

done_testing();
