# gkmeans_progress, read by another session while a job runs, and cancelling that job.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# as for one trial of 001_cancel.pl
my $limit = $ENV{GKMEANS_CANCEL_LIMIT_MS} // 1000;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nshared_preload_libraries = 'gkmeans'");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE ROLE somebody;
	CREATE TABLE pts AS
	SELECT random() AS a, random() AS b, random() AS c, random() AS d FROM generate_series(1, 300000);
});

# A job of minutes: no point is skipped, and it begins again a hundred times.
sub start_job
{
	my ($out, $err) = @_;
	return IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SET gkmeans.skip_points = off', '-c',
			q{SELECT count(*) FROM kmeans('pts', '{a,b,c,d}', 500, init => 'random', n_init => 100, tol => 0, max_iter => 1000000)} ],
		'>', $out, '2>', $err);
}

# Rows of the view until enough were seen, or a minute is over.
my ($out, $err) = ('', '');
my $job = start_job(\$out, \$err);
my (%iterations, %inertias, $pid);
my $end = time + 60;
while (time < $end && keys %iterations < 6)
{
	my $row = $node->safe_psql('postgres', 'SELECT pid, relation, phase, run, iteration, max_iter, rows_done, inertia, shift, device FROM gkmeans_progress');
	next if $row eq '';
	my @f = split /\|/, $row, -1;
	$pid = $f[0];
	next if $f[2] ne 'iterate';
	is($f[1], 'pts', 'the relation is named') if !%iterations;
	is("$f[3] $f[5] $f[6] $f[9]", '1 1000000 300000 cpu', 'run, max_iter, rows and device') if !%iterations;
	$iterations{ $f[4] } = 1;
	$inertias{ $f[7] } = 1;
	usleep(120_000);
}
cmp_ok(scalar keys %iterations, '>=', 6, 'the iteration changes: ' . join(' ', sort { $a <=> $b } keys %iterations));
cmp_ok(scalar keys %inertias, '>=', 6, 'so does the inertia');

# others see that there is a job, and no more
is($node->safe_psql('postgres', 'SET ROLE somebody; SELECT count(*), count(phase), count(inertia) FROM gkmeans_progress'),
	'1|0|0', 'details are for the owner');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gkmeans_progress_info() WHERE datid IS DISTINCT FROM (SELECT oid FROM pg_database WHERE datname = current_database())'),
	'0', 'the database is right');

# at most ten updates a second: in half a second no more than six values
my %fast = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{
	CREATE TEMP TABLE seen (i int);
	DO $$ DECLARE till timestamptz := clock_timestamp() + '0.5 s';
	BEGIN WHILE clock_timestamp() < till LOOP INSERT INTO seen SELECT iteration FROM gkmeans_progress; END LOOP; END $$;
	SELECT DISTINCT i FROM seen;});
cmp_ok(scalar keys %fast, '<=', 7, 'at most ten updates a second');

# cancel it
my $from = time;
is($node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"), 't', 'cancelled');
$job->finish;
my $late = (time - $from) * 1000;
like($err, qr/canceling statement due to user request/, 'the job says so');
cmp_ok($late, '<', $limit, sprintf('it ends in time (%.0f ms, with the call of psql)', $late));
is($node->safe_psql('postgres', 'SELECT count(*) FROM gkmeans_progress'), '0', 'and its row is gone');

# a session that is terminated leaves no row, either; and the slot is used again
($out, $err) = ('', '');
$job = start_job(\$out, \$err);
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM gkmeans_progress') or die 'no job';
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM gkmeans_progress');
$job->finish;
$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM gkmeans_progress');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gkmeans_progress'), '0', 'no row after pg_terminate_backend');

# ---- gkmeans_stat, gkmeans.log_min_duration ----

$node->safe_psql('postgres', q{
	SET client_min_messages = warning;
	CREATE TABLE small AS SELECT i AS x FROM generate_series(1, 1000) i;
	SELECT gkmeans_stat_reset();
	SELECT kmeans_fit('small', '{x}', 3), count(*) FROM kmeans('small', '{x}', 4);
	SELECT count(*) FROM kmeans_scan('small', '{x}', 2, 5);
	SET gkmeans.device = cpu; SET gkmeans.log_min_duration = 0;
	SELECT count(*) FROM kmeans('small', '{x}', 7);
	SET gkmeans.log_min_duration = '1h';
	SELECT count(*) FROM kmeans('small', '{x}', 8);
});
is($node->safe_psql('postgres', q{
		SELECT runs, rows, iterations >= runs, load_ms > 0, seed_ms > 0, iterate_ms > 0,
		       total_ms >= load_ms + seed_ms + iterate_ms - 0.1, gpu_fallbacks, since > now() - interval '1 hour'
		FROM gkmeans_stat}),
	'8|8000|t|t|t|t|t|0|t', 'runs are counted');
is($node->safe_psql('postgres', 'SELECT gkmeans_stat_reset(); SELECT runs, total_ms FROM gkmeans_stat'), "\n0|0", 'and reset');
my ($rc, undef, $message) = $node->psql('postgres', 'SET ROLE somebody; SELECT runs FROM gkmeans_stat; SELECT gkmeans_stat_reset()');
like($message, qr/permission denied for function gkmeans_stat_reset/, 'not by everybody');
($rc, undef, $message) = $node->psql('postgres', 'SET ROLE somebody; SET gkmeans.log_min_duration = 0');
like($message, qr/permission denied to set parameter/, 'nor is the log written by everybody');
my $log = slurp_file($node->logfile);
like($log, qr/LOG:  gkmeans: "small": k = 7, d = 1, 1000 rows: \d+ ms, \d+ iterations, converged\n.*DETAIL:  load \d+ ms, seed \d+ ms, iterate \d+ ms; inertia [\d.e+]+; cpu \(.*/,
	'a run over the limit is logged');
unlike($log, qr/LOG:  gkmeans: "small": k = [348]/, 'one under it, or without one, is not');

# which device did it: at the level DEBUG1
my ($told, $device) = ('', '');
$node->psql('postgres', q{SET client_min_messages = debug1; SELECT count(*) FROM kmeans('pts', '{a}', 2, max_iter => 1, device => 'cpu')}, stdout => \$device, stderr => \$told);
like($told, qr/DEBUG:  "pts" was clustered by cpu \(/, 'kmeans() says at DEBUG1 which device did it');

# without shared memory the view says why it is empty, once
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
my $why = '';
$node->psql('postgres', 'SELECT count(*) FROM gkmeans_progress; SELECT count(*) FROM gkmeans_progress', stdout => \$device, stderr => \$why);
is($device, "0\n0", 'without preloading: no job');
if ($node->safe_psql('postgres', 'SHOW server_version_num') < 170000)
{
	like($why, qr/\A[^\n]*NOTICE:  gkmeans_progress is empty, whatever runs\nDETAIL:  [^\n]*\nHINT:  Add gkmeans to shared_preload_libraries and restart the server, or use PostgreSQL 17\.\n?\z/, '... and why, once');
}
else
{
	is($why, '', '... and nothing is missing');
}

$node->stop;
done_testing();
