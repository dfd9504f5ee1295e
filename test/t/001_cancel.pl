# A cancelled or timed-out call returns soon, whatever it is doing, and leaves nothing.
#
# The aim is 200 ms on a quiet machine. Tests run on busy ones, too: a trial fails
# after GKMEANS_CANCEL_LIMIT_MS (default 1000), and the slowest ones are reported.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $limit = $ENV{GKMEANS_CANCEL_LIMIT_MS} // 1000;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nmax_wal_size = 4GB\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts AS
	SELECT i AS id, sin(i) AS a, cos(i * 0.7)::real AS b, (i * 7919 % 1000) / 1000.0::float8 AS c,
	       (i * 104729 % 997) / 997.0::float8 AS d, -1 AS label
	FROM generate_series(1, 400000) i;
	VACUUM ANALYZE pts;
});

# What each trial runs: name, settings, statement.
my $args = "'pts', '{a,b,c,d}'";
my @jobs = (
	[ 'load',     '', "SELECT count(*) FROM kmeans($args, 2, max_iter => 1)" ],
	[ 'seed',     '', "SELECT count(*) FROM kmeans($args, 500, max_iter => 1)" ],
	[ 'seed ||',  '', "SELECT count(*) FROM kmeans($args, 500, max_iter => 1, init => 'k-means||')" ],
	[ 'iterate',  '', "SELECT count(*) FROM kmeans($args, 200, init => 'random', tol => 0, max_iter => 100)" ],
	[ 'spilled',  'SET gkmeans.memory_limit = 1024; ',
		"SELECT count(*) FROM kmeans($args, 100, init => 'random', tol => 0, max_iter => 100)" ],
	[ 'labels',   '', "SELECT count(*) FROM kmeans_labels($args, 2, max_iter => 1)" ],
	[ 'write',    '', "SELECT count(*) FROM kmeans($args, 2, 'label', max_iter => 1)" ],
	[ 'add',      '', "SELECT count(*) FROM kmeans($args, 2, 'brand_new', max_iter => 1)" ],
);

# What must not be there after an error, asked in the same session.
my $leftovers = q{
	SELECT 'left', (SELECT count(*) FROM pg_ls_tmpdir()),
	       (SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'gkmeans'),
	       (SELECT count(*) FROM pts WHERE label <> -1),
	       (SELECT count(*) FROM pg_attribute WHERE attrelid = 'pts'::regclass AND attname = 'brand_new');
};
$leftovers =~ s/\(SELECT count\(\*\) FROM pg_backend_memory_contexts.*?\)/0/
  if $node->pg_version < 14;

my @times;

sub check_trial
{
	my ($name, $out, $err, $late) = @_;
	like($err, qr/ERROR:  canceling statement due to/, "$name: is cancelled");
	like($out, qr/^left\|0\|0\|0\|0$/m, "$name: nothing is left");
	cmp_ok($late, '<', $limit, sprintf('%s: returns in time (%.0f ms late)', $name, $late));
	push @times, [ $late, $name ];
}

# How long the whole statement takes, rolled back.
sub duration
{
	my ($settings, $sql) = @_;
	my $out = $node->safe_psql('postgres', qq{
		SET client_min_messages = error;
		$settings
		BEGIN;
		\\timing on
		$sql;
		\\timing off
		ROLLBACK;
	});
	$out =~ /Time: ([\d.]+) ms/ or die "no time in: $out";
	return $1;
}

foreach my $job (@jobs)
{
	my ($name, $settings, $sql) = @$job;
	my $whole = duration($settings, $sql);

	note(sprintf('%s takes %.0f ms', $name, $whole));

	# statement_timeout: three moments, spread over the run. Labels are written last.
	foreach my $share (0.2, 0.55, 0.85)
	{
		my $timeout = int($whole * ($share + rand(0.1))) + 1;
		my ($out, $err);
		$node->psql('postgres', qq{
			SET client_min_messages = error;
			$settings
			SET statement_timeout = $timeout;
			\\timing on
			$sql;
			\\timing off
			SET statement_timeout = 0;
			$leftovers
		}, stdout => \$out, stderr => \$err, on_error_stop => 0);
		my ($took) = $out =~ /Time: ([\d.]+) ms/;
		check_trial("$name, timeout after $timeout ms", $out, $err, $took - $timeout);
	}

	# pg_cancel_backend() from another session
	my $delay = $whole * (0.1 + rand(0.8)) / 1000;
	my ($out, $err) = ('', '');
	my $script = qq{
		SET client_min_messages = error;
		SET application_name = 'victim';
		$settings
		$sql;
		SELECT 'returned', extract(epoch FROM clock_timestamp());
		$leftovers
	};
	my $victim = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', '-' ],
		'<', \$script, '>', \$out, '2>', \$err);
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'victim' AND query LIKE '%FROM kmeans%'")
	  or die 'the statement did not begin';
	sleep($delay);
	my $cancelled = $node->safe_psql('postgres', q{
		SELECT extract(epoch FROM clock_timestamp()) FROM pg_stat_activity
		WHERE application_name = 'victim' AND pg_cancel_backend(pid)});
	$victim->finish;
	my ($returned) = $out =~ /^returned\|([\d.]+)/m;
	# it may have been done before: then there was nothing to cancel
  SKIP:
	{
		skip "$name was done before it could be cancelled", 3 if $err eq '' || $cancelled eq '';
		check_trial(sprintf('%s, cancelled after %.0f ms', $name, $delay * 1000),
			$out, $err, ($returned - $cancelled) * 1000);
	}
}

@times = sort { $b->[0] <=> $a->[0] } @times;
my $slow = grep { $_->[0] > 200 } @times;
diag(sprintf('cancel: %d trials, slowest %.0f ms late (%s), %d over 200 ms',
	scalar @times, @{ $times[0] }, $slow));

# and the session works on
is( $node->safe_psql('postgres', q{
		SET client_min_messages = error;
		SET statement_timeout = 20;
		DO $$ BEGIN PERFORM kmeans('pts', '{a,b,c,d}', 100); EXCEPTION WHEN query_canceled THEN NULL; END $$;
		SET statement_timeout = 0;
		SELECT sum(size) FROM kmeans('pts', '{a,b,c,d}', 3);}),
	'400000', 'a later call in the same session');

$node->stop;
done_testing();
