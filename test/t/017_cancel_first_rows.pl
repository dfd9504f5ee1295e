# A table may begin with many rows that cannot be points. A call that reads them can be
# cancelled, as it can be later on, with threads and workers, too.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nmax_wal_size = 4GB");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (x float8, y int, note text);
	INSERT INTO pts SELECT NULL, i, NULL FROM generate_series(1, 1000000) i;
	-- the same pages many times, before the first usable row
	CREATE TABLE usable (x float8, y int, note text);
	INSERT INTO usable SELECT 1, 1, '';
	DO $$ BEGIN
		EXECUTE 'CREATE VIEW many AS ' || (SELECT string_agg('SELECT * FROM pts', ' UNION ALL ') FROM generate_series(1, 300) i)
			|| ' UNION ALL SELECT * FROM usable';
	END $$;
	VACUUM pts;
});

my @settings = (
	[ executor => 'SET gkmeans.reader = executor' ],
	[ pages    => 'SET gkmeans.reader = heap; SET gkmeans.threads = 1; SET gkmeans.workers = 0' ],
	[ threads  => 'SET gkmeans.reader = heap; SET gkmeans.threads = 4; SET gkmeans.workers = 0' ],
	[ workers  => 'SET gkmeans.reader = heap; SET gkmeans.workers = 2' ],
);

# The time of a statement, here and now: a machine that is busy makes everything longer.
sub duration
{
	my $begin = time;
	$node->psql('postgres', "SET client_min_messages = error; $_[0]", stderr => \my $err);
	return (time - $begin, $err);
}

my ($million) = duration(q{SELECT * FROM kmeans('pts', '{x,y}', 2)});
my ($plan) = duration('EXPLAIN SELECT * FROM many');
# it is reading by then, and is not done for long
my $timeout = $plan * 3 + $million * 3 + 0.5;
my $limit = $timeout + 30 * $million + 5;
note(sprintf('a million rows take %.2f s, the plan %.2f s, cancel after %.2f s', $million, $plan, $timeout));

foreach my $s (@settings)
{
	my $ms = int($timeout * 1000);
	my ($took, $err) = duration("$s->[1]; SET statement_timeout = $ms; SELECT * FROM kmeans('many', '{x,y}', 2)");

	like($err, qr/canceling statement due to statement timeout/, "$s->[0]: is cancelled");
	cmp_ok($took, '<', $limit, sprintf('%s: soon (%.2f s)', $s->[0], $took));
}

$node->stop;
done_testing();
