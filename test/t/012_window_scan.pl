# The plan node KmeansWindow in new sessions, with other roles, over the memory limit,
# and when the extension goes away; its results are those of test/sql/window_scan.sql.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# AddressSanitizer keeps freed memory, 256 MB of it, which is not what is measured
local $ENV{ASAN_OPTIONS} = join(':', $ENV{ASAN_OPTIONS} // (), 'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
# few shared buffers, which would count as the process's memory
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nshared_buffers = 4MB\nlog_temp_files = 0\nmax_parallel_workers_per_gather = 0\njit = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE SCHEMA elsewhere;
	CREATE EXTENSION gkmeans SCHEMA elsewhere;
	ALTER DATABASE postgres SET search_path = public, elsewhere;
});
$node->safe_psql('postgres', q{
	CREATE TABLE pts AS SELECT i AS id, i % 10 AS g, sin(i) AS a, cos(i * 0.7) AS b, 'a note on row ' || i AS note
	FROM generate_series(1, 1000000) i;
	CREATE TABLE portion AS SELECT id, g, a, b, note, CASE WHEN id % 2 = 0 THEN 'alice' ELSE 'bob' END AS owner FROM pts WHERE id <= 20000;
	VACUUM ANALYZE;
});

sub digest
{
	my ($query) = @_;
	return "SELECT count(*), sum(hashtext(o::text)::bigint) FROM ($query) o";
}

# ---- a new session: the library comes with the first plan ----

my $labels = 'SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY g) FROM portion';
like($node->safe_psql('postgres', "EXPLAIN $labels"), qr/KmeansWindow/, 'first statement of a session');
unlike($node->safe_psql('postgres', "SET gkmeans.enable_window_scan = off; EXPLAIN $labels"), qr/KmeansWindow/,
	'the setting holds from before the library is loaded');
my $by_agg = $node->safe_psql('postgres', 'SET gkmeans.enable_window_scan = off; ' . digest($labels));
is($node->safe_psql('postgres', digest($labels)), $by_agg, 'the same labels');
is($node->safe_psql('postgres', 'EXPLAIN SELECT count(*) OVER (PARTITION BY g) FROM portion') =~ /WindowAgg/, 1,
	'other window functions without the library');
is($node->safe_psql('postgres', "LOAD 'gkmeans'; EXPLAIN SELECT count(*) OVER (PARTITION BY g), rank() OVER () FROM portion") =~ /WindowAgg/, 1,
	'and with it');

# ---- roles ----

$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	GRANT USAGE ON SCHEMA elsewhere TO alice;
	GRANT SELECT (id, g, a, b) ON portion TO alice;
	ALTER TABLE portion ENABLE ROW LEVEL SECURITY;
	CREATE POLICY own ON portion USING (owner = current_user);
});
sub as_alice
{
	my ($sql) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, extra_params => [ '-U', 'alice' ], stdout => \$out, stderr => \$err);
	return $out . $err;
}
like(as_alice("EXPLAIN $labels"), qr/KmeansWindow/, 'alice gets the node');
my $hers = as_alice(digest($labels));
like($hers, qr/^10000\|/, 'and her rows');
is(as_alice('SET gkmeans.enable_window_scan = off; ' . digest($labels)), $hers, 'clustered among themselves');
like(as_alice('SELECT note, kmeans(ARRAY[a, b], 3) OVER () FROM portion'), qr/permission denied for table portion/, 'a column that is not hers');
$node->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION elsewhere.kmeans("any", int) FROM public');
foreach my $setting ('on', 'off')
{
	like(as_alice("SET gkmeans.enable_window_scan = $setting; $labels"), qr/permission denied for function kmeans/, "no right to the function, $setting");
}
# planned when she had it
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION elsewhere.kmeans("any", int) TO alice');
my ($out, $err);
$node->psql('postgres', "PREPARE p AS $labels; SET plan_cache_mode = force_generic_plan; SET ROLE alice; EXPLAIN EXECUTE p; RESET ROLE;"
	  . 'REVOKE EXECUTE ON FUNCTION elsewhere.kmeans("any", int) FROM alice; SET ROLE alice; EXECUTE p', stdout => \$out, stderr => \$err);
like($out, qr/KmeansWindow/, 'a generic plan');
like($err, qr/permission denied for function kmeans/, 'the right is looked at when it is executed');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION elsewhere.kmeans("any", int) TO public');

# a function around the function is not ours any more
$node->safe_psql('postgres', "ALTER FUNCTION elsewhere.kmeans(\"any\", int) SET work_mem = '1MB'");
unlike($node->safe_psql('postgres', "EXPLAIN $labels"), qr/KmeansWindow/, 'a function with a SET clause');
$node->safe_psql('postgres', 'ALTER FUNCTION elsewhere.kmeans("any", int) RESET ALL');

# ---- rows over work_mem, points over gkmeans.memory_limit ----

sub run_all
{
	my ($settings, $query) = @_;
	my $before = -s $node->logfile;
	my $plan = $node->safe_psql('postgres', "$settings EXPLAIN $query");
	my @out = split /\n/, $node->safe_psql('postgres', "$settings SELECT (SELECT count(*) FROM ($labels) o); "
		  . q{SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000, true), 'VmHWM:\s+(\d+)'))[1]; }
		  . digest($query) . q{; SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000, true), 'VmHWM:\s+(\d+)'))[1]});
	my @files = slurp_file($node->logfile, $before) =~ /temporary file: path.*, size (\d+)/g;
	my $bytes = 0;
	$bytes += $_ foreach @files;
	return { node => scalar($plan =~ /KmeansWindow/), digest => $out[2], bytes => $bytes,
		memory => defined $out[3] && $out[1] ? ($out[3] - $out[1]) * 1024 : undef };
}
# 48 MB of points, some 60 MB of rows
my $big = 'SELECT id, note, kmeans(ARRAY[a, b, a, b, a, b], 3) OVER (PARTITION BY g) FROM pts';
my $off = run_all("SET gkmeans.enable_window_scan = off; SET work_mem = '1GB';", $big);
my $all = run_all("SET work_mem = '1GB'; SET gkmeans.memory_limit = '1GB';", $big);
my $few = run_all("SET work_mem = '64kB'; SET gkmeans.memory_limit = '1GB';", $big);
my $least = run_all("SET work_mem = '64kB'; SET gkmeans.memory_limit = '10MB';", $big);
ok(!$off->{node} && $all->{node} && $few->{node} && $least->{node}, 'the plans');
is($all->{bytes}, 0, 'all in memory');
ok($few->{bytes} > 30e6 && $few->{bytes} < 100e6, "work_mem: $few->{bytes} bytes of rows");
ok($least->{bytes} > $few->{bytes} + 40e6 && $least->{bytes} < $few->{bytes} + 60e6, "memory_limit: $least->{bytes} bytes of rows and points");
is($_->{digest}, $off->{digest}, 'the same labels') foreach $all, $few, $least;
SKIP:
{
	skip 'only Linux tells the largest size of a process', 1 if !defined $least->{memory};
	# the limit, labels twice, a partition's clustering, and 8 MB of all else
	my $expected = 10e6 + 8e6 + 10e6 + 8e6;
	ok($least->{memory} < $expected, sprintf('%.1f MB of memory, at most %.1f MB', $least->{memory} / 1e6, $expected / 1e6));
}

# ---- an error leaves nothing ----

$node->psql('postgres', "SET work_mem = '64kB'; SET gkmeans.memory_limit = '10MB'; "
	  . 'SELECT id, note, kmeans(ARRAY[a, b, a, b, a, 1 / (id - 999999)], 3) OVER (PARTITION BY g) FROM pts', stderr => \$err);
like($err, qr/division by zero/, 'an error after points and rows are in files');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_ls_tmpdir()'), '0', 'no file is left');

# ---- partitions by a collation that takes different texts for equal ----

SKIP:
{
	# "unicode" is there since 16, with ICU or without
	my $icu = $node->safe_psql('postgres', "SELECT count(*) FROM pg_collation WHERE collprovider = 'i' AND collname <> 'unicode'");
	skip 'no ICU', 2 if $icu == 0;
	$node->safe_psql('postgres', "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
	my $query = "SELECT id, kmeans(ARRAY[a, b], 3) OVER (PARTITION BY (CASE WHEN id % 2 = 0 THEN 'Note' ELSE 'nOTE' END || g) COLLATE caseless) FROM portion";
	like($node->safe_psql('postgres', "EXPLAIN $query"), qr/KmeansWindow/, 'the node');
	is($node->safe_psql('postgres', digest($query)), $by_agg, 'two texts, one partition');
}

# ---- the extension goes away and comes back, in a session that has seen the node ----

my $gone = q{
	PREPARE p AS SELECT count(*), count(DISTINCT l) FROM (SELECT kmeans(ARRAY[a, b], 3) OVER () AS l FROM portion) o;
	EXECUTE p;
	DROP EXTENSION gkmeans;
	EXECUTE p;
	SELECT count(*) FROM (SELECT count(*) OVER (PARTITION BY g) FROM portion) o;
	CREATE EXTENSION gkmeans SCHEMA public;
	EXECUTE p;
	DEALLOCATE p;
	PREPARE p AS SELECT count(*), count(DISTINCT l) FROM (SELECT kmeans(ARRAY[a, b], 3) OVER () AS l FROM portion) o;
	EXECUTE p;
	EXPLAIN EXECUTE p;
};
$node->psql('postgres', $gone, stdout => \$out, stderr => \$err, on_error_stop => 0);
like($err, qr/function kmeans\(double precision\[\], integer\) does not exist/, 'without the extension');
like($out, qr/^20000\|3\n20000\n20000\|3\n20000\|3\n.*KmeansWindow/s, 'and with a new one');

$node->stop;
done_testing();
