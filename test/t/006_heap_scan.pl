# Reading pages keeps to the snapshot, whatever others do meanwhile, and to the rules
# of serializable transactions.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum_naptime = 1s");
$node->start;

# The sum of x and y is 1000 in every row, and each transaction keeps the sum of all x:
# a scan that mixes snapshots gives another centroid, or another number of rows.
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (id int PRIMARY KEY, x float8, y int, label int) WITH (fillfactor = 80);
	INSERT INTO pts SELECT i, 500, 500 FROM generate_series(1, 60000) i;
	CREATE TABLE stop (x int);
	CREATE PROCEDURE disturb(who int) LANGUAGE plpgsql AS $$
	DECLARE a int; b int; v int;
	BEGIN
		FOR i IN 1 .. 1000000 LOOP
			-- two rows far apart, often the first page and the last one
			a := CASE WHEN i % 2 = 0 THEN 1 + who + 2 * (random() * 50)::int ELSE 1 + who + 2 * (random() * 14990)::int END;
			b := 60000 - who - 2 * (random() * 50)::int;
			v := 1 + (random() * 99)::int;
			UPDATE pts SET x = x + v, y = y - v WHERE id = a;
			UPDATE pts SET x = x - v, y = y + v WHERE id = b;
			IF i % 10 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
			-- a row goes, and another one with the same values comes
			IF i < 14000 THEN
				INSERT INTO pts SELECT 100000 + i * 2 + who, x, y FROM pts WHERE id = 30000 + i * 2 + who;
				DELETE FROM pts WHERE id = 30000 + i * 2 + who;
				COMMIT;
			END IF;
			EXIT WHEN i % 16 = 0 AND EXISTS (SELECT FROM stop);
		END LOOP;
	END $$;
});

my @others;
foreach my $who (0, 1)
{
	push @others, IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'ON_ERROR_STOP=1', '-c', "CALL disturb($who)" ],
		'<', \undef, '>&', \my $out);
}
$node->poll_query_until('postgres', q{SELECT max(id) > 100000 FROM pts}) or die 'nobody disturbs';

my $first = $node->safe_psql('postgres', 'SELECT sum(id) FROM pts');
foreach my $i (1 .. 25)
{
	my $workers = $i % 3;
	my $out = $node->safe_psql('postgres', qq{
		SET client_min_messages = error;
		SET gkmeans.reader = heap;
		SET gkmeans.workers = $workers;
		SET gkmeans.threads = 4;
		SELECT size, centroid FROM kmeans('pts', '{x,y}', 1);
	});
	is($out, '60000|{500,500}', "scan $i, $workers workers: one snapshot");
}

# strategy "scan": all passes see the same rows, which it checks itself, too
foreach my $i (1 .. 5)
{
	my $out = $node->safe_psql('postgres', q{
		SET client_min_messages = error;
		SET gkmeans.strategy = scan;
		SELECT sum(size), abs(sum(size * centroid[1]) - 30000000) < 0.1 FROM kmeans('pts', '{x,y}', 3, max_iter => 5);
	});
	is($out, '60000|t', "scan $i: one snapshot for all passes");
}
isnt($node->safe_psql('postgres', 'SELECT sum(id) FROM pts'), $first, 'there was something to see');

# a snapshot that stays: both roads, rows and labels
my $out = $node->safe_psql('postgres', q{
	SET client_min_messages = error;
	BEGIN ISOLATION LEVEL REPEATABLE READ;
	SET LOCAL gkmeans.reader = executor;
	CREATE TEMP TABLE a AS SELECT tableoid AS rel, ctid AS tid, cluster, distance FROM kmeans_labels('pts', '{x,y}', 5);
	SELECT pg_sleep(1);
	SET LOCAL gkmeans.reader = heap;
	SET LOCAL gkmeans.workers = 2;
	CREATE TEMP TABLE b AS SELECT tableoid AS rel, ctid AS tid, cluster, distance FROM kmeans_labels('pts', '{x,y}', 5);
	SELECT count(*), (SELECT count(*) FROM b), (SELECT count(*) FROM a JOIN b USING (rel, tid, cluster, distance)) FROM a;
	COMMIT;
});
is($out, "\n60000|60000|60000", 'repeatable read: both roads see the same, a second apart');

$node->safe_psql('postgres', 'INSERT INTO stop VALUES (1)');
$_->finish foreach @others;
is($node->safe_psql('postgres', q{SELECT count(*), sum(x), sum(y) FROM pts}),
	'60000|30000000|30000000', 'the others kept to their part');

# Two serializable transactions read the table and write what the other one has read:
# one has to fail.
sub session
{
	my %s = (in => '', out => '', err => '');
	$s{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$s{in}, '>', \$s{out}, '2>', \$s{err});
	return \%s;
}

sub does
{
	my ($s, $sql) = @_;
	$s->{out} = '';
	$s->{in} .= "$sql\n\\echo done\n";
	$s->{run}->pump until $s->{out} =~ /done/;
}

my @two = (session(), session());
does($_, q{SET client_min_messages = error; SET gkmeans.reader = heap; BEGIN ISOLATION LEVEL SERIALIZABLE;}) foreach @two;
does($_, q{SELECT sum(size) FROM kmeans('pts', '{x,y}', 1);}) foreach @two;
does($two[0], q{UPDATE pts SET x = 1 WHERE id = 11;});
does($two[1], q{UPDATE pts SET x = 1 WHERE id = 22;});
does($_, 'COMMIT;') foreach @two;
foreach (@two)
{
	$_->{in} .= "\\q\n";
	$_->{run}->finish;
}
like($two[0]{err} . $two[1]{err}, qr/ERROR:  could not serialize access due to read\/write dependencies/,
	'serializable: write skew is found');

$node->stop;
done_testing();
