# Points above gkmeans.memory_limit: the same bits, within the memory, and nothing is left
# behind when the temporary file cannot be written.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# AddressSanitizer keeps freed memory, 256 MB of it, which is not what is measured
local $ENV{ASAN_OPTIONS} = join(':', $ENV{ASAN_OPTIONS} // (), 'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# few shared buffers, which would count as the process's memory
$node->append_conf('postgresql.conf', "fsync = off\nshared_buffers = 4MB\nlog_temp_files = 0\nmax_parallel_workers_per_gather = 0");
$node->start;

# 24 MB of points as float4; a twentieth is 1.2 MB
my $features = '{a,b,c,d,e,f}';
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE small AS SELECT i AS a FROM generate_series(1, 1000) i;
	CREATE TABLE pts (a real, b real, c real, d real, e real, f real, w int, label int);
	INSERT INTO pts SELECT x, x * x, sin(x * 100), i % 10, i % 7 + x, cos(i), i % 5, NULL
	FROM generate_series(1, 1000000) i, LATERAL (SELECT hashint4(i) / 2147483648.0 AS x) h;
});

sub temporary_files
{
	return grep { !/^\.\.?$/ } map { slurp_dir($_) } glob($node->data_dir . '/base/pgsql_tmp*');
}

# ---- the same bits ----

my %calls = (
	'given centroids' => "SELECT * FROM kmeans('pts', '$features', 2, centroids => '{{0,0,0,0,0,0},{1,1,1,9,6,1}}')",
	'k-means++' => "SELECT * FROM kmeans('pts', '$features', 8, max_iter => 5, seed => 1)",
	'k-means||, weights' => "SELECT * FROM kmeans('pts', '$features', 6, init => 'k-means||', weight_column => 'w', max_iter => 3)",
	'random, standardized' => "SELECT * FROM kmeans('pts', '$features', 4, init => 'random', standardize => true, max_iter => 3)",
	'hierarchical' => "SELECT * FROM kmeans('pts', '$features', 50, init => 'hierarchical', max_iter => 3)",
	'cosine' => "SELECT * FROM kmeans('pts', '$features', 3, distance => 'cosine', max_iter => 3)",
	'labels' => "SELECT count(*), sum(cluster), sum(hashfloat8(distance)) FROM kmeans_labels('pts', '$features', 5, max_iter => 3)",
	'evaluate' => "SELECT * FROM kmeans_evaluate((SELECT kmeans_fit('pts', '$features', 4, max_iter => 3)), 'pts')",
);
foreach my $what (sort keys %calls)
{
	my %out;
	foreach my $limit ('1GB', '1200kB')
	{
		my $before = -s $node->logfile;
		$out{$limit} = $node->safe_psql('postgres', qq{
			SET client_min_messages = error;
			SET work_mem = '256MB';
			SET gkmeans.memory_limit = '$limit';
			$calls{$what}});
		my $files = () = slurp_file($node->logfile, $before) =~ /temporary file: path/g;
		ok($limit eq '1GB' ? $files == 0 : $files > 0, "$what, limit $limit: $files temporary files");
	}
	isnt($out{'1GB'}, '', "$what: a result");
	is($out{'1200kB'}, $out{'1GB'}, "$what: the same result from the file");
}

# ---- a NOTICE, and what it advises ----

foreach my $limit ("gkmeans.memory_limit = '1200kB'", "maintenance_work_mem = '1200kB'", "gkmeans.memory_limit = '20MB'; SET gkmeans.chunk_size = '1MB'")
{
	my ($notice, $quiet) = ('', '');
	my $call = "SELECT count(*) FROM kmeans('pts', '$features', 2, init => 'random', tol => 1)";
	$node->psql('postgres', "SET $limit; $call", stderr => \$notice);
	like($notice, qr/NOTICE:  some of the points are in a temporary file\nDETAIL:  .*memory_limit is .*kB\.\nHINT:  SET gkmeans\.memory_limit = '(\d+)MB'/, "$limit: a notice");
	my ($enough) = $notice =~ /memory_limit = '(\d+)MB'/;
	cmp_ok($enough // 0, '<=', 100, "$limit: not much more than the points take");
	$node->psql('postgres', "SET $limit; SET gkmeans.memory_limit = '${enough}MB'; $call", stderr => \$quiet);
	unlike($quiet, qr/temporary file/, "$limit: ${enough}MB is enough");
}

# ---- memory ----

# The highest resident memory of a session so far, in kB, after each of these calls.
sub resident
{
	my ($settings, @calls) = @_;
	my $status = q{SELECT (regexp_match(pg_read_file('/proc/self/status'), 'VmHWM:\s*(\d+) kB'))[1]};
	return split /\n/, $node->safe_psql('postgres', join ";\n",
		"SET client_min_messages = error; $settings",
		q{DO $$ BEGIN PERFORM kmeans('small', '{a}', 2); END $$}, $status,
		map { ("DO \$\$ BEGIN PERFORM count(*) FROM ($_) s; END \$\$", $status) } @calls);
}

SKIP:
{
	skip 'no /proc/self/status', 3 unless -r '/proc/self/status';

	my @cached = resident(q{SET gkmeans.memory_limit = '1GB'}, $calls{'k-means++'});
	cmp_ok($cached[1] - $cached[0], '>', 23000, 'without a limit, memory holds all points: ' . ($cached[1] - $cached[0]) . ' kB');
	my @limited = resident(q{SET gkmeans.memory_limit = '1200kB'; SET work_mem = '1MB'},
		@calls{'given centroids', 'k-means++', 'k-means||, weights', 'random, standardized', 'cosine'});
	cmp_ok($limited[-1] - $limited[0], '<=', 1200 + 32 * 1024,
		'with a limit, memory stays within it and 32 MB: ' . ($limited[-1] - $limited[0]) . ' kB');
	cmp_ok($limited[-1], '>', 1200, 'memory was measured');
}

# ---- no room for the file ----

my ($out, $err) = ('', '');
$node->psql('postgres', qq{
	\\set VERBOSITY verbose
	SET gkmeans.memory_limit = '1200kB';
	SET temp_file_limit = '8MB';
	SELECT count(*) FROM kmeans('pts', '$features', 2, label_column => 'label');
	SELECT count(*) FROM kmeans('small', '{a}', 2);
	RESET temp_file_limit;
	SET client_min_messages = error;
	SELECT count(*) FROM kmeans('pts', '$features', 2, max_iter => 1);
}, stdout => \$out, stderr => \$err, on_error_stop => 0);
like($err, qr/ERROR:  53400: temporary file size exceeds "?temp_file_limit"? \(8192kB\)/, 'temp_file_limit: the usual error');
is($out, "2\n2", 'temp_file_limit: the session goes on');
is(join(' ', temporary_files()), '', 'temp_file_limit: no file is left');
is($node->safe_psql('postgres', 'SELECT count(label) FROM pts'), '0', 'temp_file_limit: no label is written');

# A write that the system refuses, as a full disk does. A limit of the size of this
# process's files gives that without a disk of our own.
SKIP:
{
	skip 'no prlimit', 3 if system('prlimit --version >/dev/null 2>&1') != 0;

	my ($in, $outs) = ('', '');
	$err = '';
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$outs, '2>', \$err);
	$in .= "SET gkmeans.memory_limit = '1200kB'; SET client_min_messages = error; SELECT 'pid ' || pg_backend_pid();\n";
	$session->pump until $outs =~ /pid (\d+)\n/;
	my $pid = $1;
	system_or_bail('prlimit', "--pid=$pid", '--fsize=' . 17 * 1024 * 1024);
	$in .= "SELECT count(*) FROM kmeans('pts', '$features', 2);\nSELECT count(*) FROM kmeans('small', '{a}', 2);\n\\q\n";
	$session->finish;
	like($err, qr/ERROR:  could not write to the temporary file ".*": File too large/, 'disk full: says so');
	like($outs, qr/\n2\n$/, 'disk full: the session goes on');
	is(join(' ', temporary_files()), '', 'disk full: no file is left');
}

# ---- cancelled while streaming ----

$node->psql('postgres', qq{
	SET gkmeans.memory_limit = '1200kB';
	SET statement_timeout = '700ms';
	SELECT count(*) FROM kmeans('pts', '$features', 50, max_iter => 10000, n_init => 100, tol => 0);
}, stderr => \$err);
like($err, qr/ERROR:  canceling statement due to statement timeout/, 'cancelled');
is(join(' ', temporary_files()), '', 'cancelled: no file is left');

$node->stop;
done_testing();
