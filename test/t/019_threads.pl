# A system that refuses threads: sessions go on with fewer, or end their statement with an
# SQL error.  The limits are those of one process (prlimit), set while it runs.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no prlimit' if system('command -v prlimit >/dev/null 2>&1') != 0;
plan skip_all => 'AddressSanitizer needs more addresses than a limit leaves' if defined $ENV{ASAN_OPTIONS};
plan skip_all => 'root has as many threads as it wants' if $> == 0;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nmax_parallel_workers_per_gather = 0\nmax_worker_processes = 8");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts AS SELECT i % 100 AS g, sin(i) AS a, cos(i * 0.7) AS b FROM generate_series(1, 60000) i;
	VACUUM ANALYZE pts;
	CREATE FUNCTION digest(query text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		result text;
	BEGIN
		EXECUTE 'SELECT md5(string_agg(o::text, '','' ORDER BY o::text)) FROM (' || query || ') o' INTO result;
		RETURN result;
	END $$;
});

my @query = (
	"SELECT * FROM kmeans('pts', '{a,b}', 5)",
	"SELECT * FROM kmeans('pts', '{a,b}', 5, init => 'k-means||')",
	"SELECT cluster, distance FROM kmeans_labels('pts', '{a,b}', 3)",
	"SELECT * FROM kmeans_grouped('pts', '{g}', '{a,b}', 3)",
	"SELECT g, a, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM pts",
	"SELECT e.* FROM kmeans_fit('pts', '{a,b}', 4) m, kmeans_evaluate(m, 'pts', sample => 3000) e",
	"SELECT kmeans_step('pts', '{a,b}', warm.m)::text = kmeans_step('pts', '{a,b}', warm.m)::text FROM (SELECT kmeans_fit('pts', '{a,b}', 4) AS m OFFSET 0) warm");
my @expected = map { $node->safe_psql('postgres', 'SET gkmeans.threads = 1; SELECT digest($q$' . $_ . '$q$)') } @query;

# All statements in one session, whose limits are set after these; then is it still there?
sub in_limits
{
	my ($threads, $before, $limit) = @_;
	# with the libraries loaded
	my $sql = "SET gkmeans.threads = $threads;\nDO 'BEGIN PERFORM digest(''SELECT gkmeans_version()''); END';\n$before\nSELECT pg_backend_pid() AS pid \\gset\n\\set out `$limit`\n";
	my ($out, $err);

	$sql .= "SELECT digest(\$q\$$_\$q\$);\n" for @query;
	$sql .= "SELECT 'alive';\n";
	my $status = $node->psql('postgres', $sql, stdout => \$out, stderr => \$err, on_error_stop => 0);
	my @lines = split /\n/, $out;
	return ($status, \@lines, $err);
}

my $start = -s $node->logfile;
for my $threads (2, 8, 30, 1000)
{
	my ($status, $lines, $err) = in_limits($threads, '', 'prlimit --nproc=1:1 --pid :pid');
	is_deeply([ $status, @$lines ], [ 0, @expected, 'alive' ], "$threads threads wanted, none given: the same answers") or diag($err);
}

# some threads are there already when the next are refused
my ($status, $lines, $err) = in_limits(16,
	"SET gkmeans.threads = 3;\nSELECT count(*) FROM kmeans('pts', '{a,b}', 5);\nSET gkmeans.threads = 16;", 'prlimit --nproc=1:1 --pid :pid');
is_deeply([ $status, @$lines ], [ 0, 5, @expected, 'alive' ], 'a few threads, more are refused: the same answers') or diag($err);

# Address space: what the process has, and N MB more.  Right answers, or out of memory.
for my $more (0, 4, 16, 40, 100, 300)
{
	my ($status, $lines, $err) = in_limits(16, '',
		qq{prlimit --as=\$(awk '/^VmSize/ { print (\$2 + $more * 1024) * 1024 }' /proc/:pid/status) --pid :pid});
	my $i = -1;
	my %right = map { $_ => 1 } @expected, 'alive';

	is($status, 0, "$more MB of addresses: the session goes on");
	is($lines->[-1], 'alive', "$more MB of addresses: it answers");
	is(scalar(grep { !$right{$_} } @$lines), 0, "$more MB of addresses: no answer is wrong");
	my @strange = grep { /ERROR/ && !/out of memory|could not .*memory|cannot allocate memory/i } split /\n/, $err;
	is("@strange", '', "$more MB of addresses: errors are about memory");
}
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $start), qr/Thread creation failed|terminated by signal/,
	'nothing ended but by SQL');

# Workers are never more than the server has: shared memory is taken for each.
my ($out, $debug);
$node->psql('postgres', "SET client_min_messages = debug1; SET gkmeans.threads = 1; SET gkmeans.workers = 1024; SELECT count(*) FROM kmeans('pts', '{a,b}', 5)",
	stdout => \$out, stderr => \$debug);
is($out, 5, '1,024 workers wanted: an answer');
my ($asked) = $debug =~ /read by \d+ of (\d+) workers/;
cmp_ok($asked // 1024, '<=', 8, 'memory for as many as max_worker_processes');
$node->psql('postgres', "SET max_parallel_workers = 3; SET client_min_messages = debug1; SET gkmeans.threads = 1; SET gkmeans.workers = 1024; SELECT count(*) FROM kmeans('pts', '{a,b}', 5)",
	stdout => \$out, stderr => \$debug);
($asked) = $debug =~ /read by \d+ of (\d+) workers/;
cmp_ok($asked // 1024, '<=', 3, 'and max_parallel_workers');
$node->psql('postgres', "SET max_parallel_workers = 0; SET gkmeans.workers = 1024; SELECT count(*) FROM kmeans('pts', '{a,b}', 5)",
	stdout => \$out, stderr => \$debug);
is($out, 5, 'no worker at all');

done_testing();
