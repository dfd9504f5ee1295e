# Serializable transactions: reading a table conflicts with others' writing to it, also where
# no row was found.  Each call here reads in one transaction what another writes, and writes
# what that one reads; no order of the two gives what both have seen, so one must fail.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE seen (x int);
	-- no rows; rows in the second partition only; rows
	CREATE TABLE empty (id int, g int, x float8, y float8, label int);
	CREATE TABLE parts (id int, g int, x float8, y float8, label int) PARTITION BY LIST (g);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
	CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
	INSERT INTO parts SELECT i, 2, i, i % 7, -1 FROM generate_series(1, 3000) i;
	CREATE TABLE rows (id int, g int, x float8, y float8, label int);
	INSERT INTO rows SELECT i, 2, i, i % 7, -1 FROM generate_series(1, 3000) i;
	-- only rows that are left out
	CREATE TABLE nulls (id int, g int, x float8, y float8, label int);
	INSERT INTO nulls SELECT i, 2, NULL, i % 7, NULL FROM generate_series(1, 3000) i;
	CREATE TABLE model AS SELECT kmeans_fit('rows', '{x,y}', 2) AS m;
});

# two sessions that stay
my %session;
foreach my $name ('reader', 'writer')
{
	my ($in, $out) = ('', '');
	$session{$name} = { in => \$in, out => \$out };
	$session{$name}{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>&1', IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
}
my $statements = 0;

# what it says
sub ask
{
	my ($name, $sql) = @_;
	my $s = $session{$name};
	my $end = 'end' . ++$statements;

	${ $s->{out} } = '';
	${ $s->{in} } .= "$sql;\n\\echo $end\n";
	$s->{run}->pump until ${ $s->{out} } =~ /^$end$/m;
	return ${ $s->{out} } =~ s/^$end\n//mr;
}

# The error of the one that fails.
sub write_skew
{
	my ($settings, $read, $relation) = @_;
	my $said = '';

	ask('reader', "RESET ALL; SET client_min_messages = error; $settings");
	ask($_, 'BEGIN ISOLATION LEVEL SERIALIZABLE') foreach ('reader', 'writer');
	$said .= ask('reader', "SELECT count(s) FROM ($read) s") =~ s/^\d+\n//r;
	ask('writer', 'SELECT count(*) FROM seen');
	$said .= ask('reader', 'INSERT INTO seen VALUES (1)');
	$said .= ask('writer', "INSERT INTO $relation VALUES (0, 1, 1, 1, 1)");
	$said .= ask($_, 'COMMIT') foreach ('reader', 'writer');
	$node->safe_psql('postgres', "TRUNCATE seen, empty, parts_1; DELETE FROM $relation WHERE id = 0");
	return $said;
}

my @readers = (
	[ executor => 'SET gkmeans.reader = executor' ],
	[ auto     => '' ],
	[ heap     => 'SET gkmeans.reader = heap; SET gkmeans.threads = 1' ],
	[ threads  => 'SET gkmeans.reader = heap; SET gkmeans.threads = 4' ],
	[ workers  => 'SET gkmeans.reader = heap; SET gkmeans.workers = 2; SET min_parallel_table_scan_size = 0' ],
);
my @calls = (
	[ kmeans       => "SELECT * FROM kmeans('%s', '{x,y}', 2)" ],
	[ scan         => "SELECT set_config('gkmeans.strategy', 'scan', true), * FROM kmeans('%s', '{x,y}', 2)" ],
	[ fit          => "SELECT kmeans_fit('%s', '{x,y}', 2)" ],
	[ labels       => "SELECT * FROM kmeans_labels('%s', '{x,y}', 2)" ],
	[ model        => "SELECT l.* FROM model, kmeans_labels('%s', m) l" ],
	[ label_column => "SELECT * FROM kmeans('%s', '{x,y}', 2, 'label')" ],
	[ label_table  => "SELECT * FROM kmeans_label_table('%s', '{x,y}', 2, 'pg_temp.labels', '{id}')" ],
	[ grouped      => "SELECT * FROM kmeans_grouped('%s', '{g}', '{x,y}', 2)" ],
	[ step         => "SELECT kmeans_step('%s', '{x,y}', m) FROM model" ],
	[ evaluate     => "SELECT s.* FROM model, kmeans_evaluate(m, '%s') s" ],
	[ kmeans_scan  => "SELECT * FROM kmeans_scan('%s', '{x,y}', 2, 3)" ],
	[ svg          => "SELECT kmeans_svg(m, '%s') FROM model" ],
);

foreach my $reader (@readers)
{
	foreach my $relation ('empty', 'parts', 'nulls', 'rows')
	{
		foreach my $call (@calls)
		{
			# all calls where there is something to find; elsewhere the reader is the same
			next if $relation ne 'empty' && $call->[0] !~ /^(kmeans|label_column|label_table|grouped)$/;
			like(write_skew($reader->[1], sprintf($call->[1], $relation), $relation),
				qr/^ERROR:  could not serialize access due to read\/write dependencies among transactions\n[^\n]*\n[^\n]*\n?$/,
				"$reader->[0]: $call->[0] of $relation");
			ask('reader', 'DROP TABLE IF EXISTS pg_temp.labels');
		}
	}
}

# one after the other is no conflict
ask('reader', 'BEGIN ISOLATION LEVEL SERIALIZABLE');
is(ask('reader', "SELECT count(*) FROM kmeans('empty', '{x,y}', 2)") . ask('reader', 'INSERT INTO seen VALUES (1); COMMIT'), "0\n",
	'a transaction alone');

foreach my $s (values %session)
{
	${ $s->{in} } .= "\\q\n";
	$s->{run}->finish;
}
$node->stop;
done_testing();
