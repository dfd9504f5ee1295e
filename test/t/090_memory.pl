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
SKIP:
{
	# what was allocated and never written counts there, too: 3 MB
	skip 'a server with assertions overwrites all that it gives back', 1 if $node->safe_psql('postgres', 'SHOW debug_assertions') eq 'on';
	is_about('many clusters', 50 * $k * $d + 4 * 4000 * $d, "SELECT * FROM kmeans('wide', '{v}', $k, max_iter => 2, init => 'random')");
}

# ---- what a session keeps between its calls ----

# The C library keeps addresses of its own, how many depends on what was given back before, and
# so on the moment of a cancel. With fixed thresholds it gives large blocks back at once.
$ENV{GLIBC_TUNABLES} = 'glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:glibc.malloc.arena_max=1';
$node->restart;

my @errors;

# kB of the process that can be had back, and of its address space, after each statement
sub sizes_after
{
	my @sql = @_;
	my $sizes = q{SELECT 'sizes ' || (regexp_match(pg_read_file('/proc/self/smaps_rollup'), 'LazyFree:\s+(\d+)'))[1]
		|| ' ' || (regexp_match(pg_read_file('/proc/self/status'), 'VmSize:\s+(\d+)'))[1]};
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"SET client_min_messages = error; SET gkmeans.device = cpu; SET gkmeans.threads = 2; SET gkmeans.memory_limit = '1GB'; " . join(' ', map { "$_; $sizes;" } @sql),
		on_error_stop => 0);
	@errors = $stderr =~ /ERROR:.*/g;
	return [ map { [ split / / ] } $stdout =~ /^sizes (.*)/mg ];
}

my $points = 4 * $n * 4 / 1024;
my $call = $kmeans->('reals', ", init => 'random'");
SKIP:
{
	my $s = sizes_after($call, $call, $call, "SET gkmeans.keep_memory = '8MB'", 'SET gkmeans.keep_memory = 0', $call);

	skip 'this system does not say what can be had back', 7 if @$s != 6;
	ok($s->[0][0] > 0.9 * $points, "after a call its points' memory ($points kB) is kept, and can be had back: $s->[0][0] kB");
	ok($s->[1][1] < $s->[0][1] + 2048 && $s->[2][1] < $s->[1][1] + 2048,
		"the next ones take it: $s->[0][1] kB of addresses, then $s->[1][1] and $s->[2][1]");
	shift @$s;
	ok($s->[2][0] <= 8192 && $s->[2][1] < $s->[1][1] - $points / 3, "less is kept at once: $s->[2][0] kB");
	ok($s->[3][0] == 0, "0: nothing, $s->[3][0] kB");
	ok($s->[4][0] == 0 && $s->[4][1] < $s->[3][1] + 4096, "nor after a further call: $s->[4][0] kB");

	# errors in the middle of reading, after it, while computing, and while labels are written
	$node->safe_psql('postgres', "CREATE UNLOGGED TABLE odd AS SELECT a, CASE WHEN i = $n THEN 'NaN' ELSE b END AS b FROM (SELECT a, b, row_number() OVER () AS i FROM reals) x;
		CREATE UNLOGGED TABLE checked AS SELECT a, b, c, d, 0 AS l FROM reals; ALTER TABLE checked ADD CHECK (l = 0)");
	my @fail = ("SELECT kmeans_fit('odd', '{a,b}', 2)", "SELECT kmeans_fit('reals', '{a,b,c,d}', 2, centroids => '{{1,2,3,4},{1,2,3,NaN}}')",
		"SET statement_timeout = 200; SELECT kmeans_fit('reals', '{a,b,c,d}', 8, n_init => 100000); RESET statement_timeout",
		"SELECT * FROM kmeans('checked', '{a,b,c,d}', 2, max_iter => 1, label_column => 'l')");
	my $rounds = 8;
	$s = sizes_after(@fail, $call, (@fail) x $rounds, $call);
	is(@errors, @fail * ($rounds + 1), 'calls that fail');
	my $before = $s->[@fail][1];
	ok($s->[-1][1] < $before + 512, "failed calls leave nothing behind: $before kB of addresses, after $rounds of each kind $s->[-1][1]");
}

# doubles take twice the memory while they are read, and the next call needs as much again
SKIP:
{
	my $doubles = $kmeans->('doubles', '');
	my $s = sizes_after($doubles, $doubles, $doubles);

	skip 'this system does not say what can be had back', 1 if @$s != 3;
	ok($s->[2][0] > 1.8 * $points && $s->[2][0] < 2.5 * $points && $s->[2][1] < $s->[1][1] + 2048,
		"doubles: $s->[2][0] kB are kept; $s->[1][1] kB of addresses, then $s->[2][1]");
}

# a lower limit holds for what is kept, too
SKIP:
{
	my $s = sizes_after($call, "SET gkmeans.memory_limit = '2MB'", $call);

	skip 'this system does not say what can be had back', 1 if @$s != 3;
	ok($s->[2][0] <= 2048, "with a limit of 2 MB no more is kept: $s->[2][0] kB");
}

$node->stop;
done_testing();
