# Reading a table counts in pg_stat_user_tables as the executor's scans do: one scan, all
# rows, whichever process reads the pages.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off");
$node->start;

my $tables = q{SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables
	WHERE relname ~ '^(pts|empty|parts)' AND relname <> 'parts' ORDER BY 1};

sub counters
{
	my %c;
	foreach (split /\n/, $node->safe_psql('postgres', $tables))
	{
		my ($name, @values) = split /\|/;
		$c{$name} = \@values;
	}
	return \%c;
}

# Sessions report when they end, parallel workers before, and what a collector process is told
# (up to PostgreSQL 14) is late.  So each ends with a scan of a marker: when that is known, what
# came before is known, too.
my $marks = 0;

sub run
{
	$node->safe_psql('postgres', "$_[0]; SELECT count(*) FROM marker");
	$marks++;
	$node->poll_query_until('postgres', "SELECT seq_scan = $marks FROM pg_stat_user_tables WHERE relname = 'marker'")
	  or die 'the statistics of a session are missing';
}

# What a statement adds to the counters, as text.
sub counted
{
	my ($settings, $sql) = @_;
	my $before = counters();

	run("SET client_min_messages = error; BEGIN; $settings; $sql; ROLLBACK");
	my $after = counters();
	return join(' ', map {
		my $name = $_;
		my @more = map { $after->{$name}[$_] - $before->{$name}[$_] } (0, 1);
		"@more" eq '0 0' ? () : "$name:$more[0]/$more[1]"
	} sort keys %$after);
}

run(q{
	CREATE EXTENSION gkmeans;
	-- rows that are left out, before the first usable one and between others
	CREATE TABLE pts (id int, g int, x float8, y float8, note text, label int);
	INSERT INTO pts SELECT i, i % 10, CASE WHEN i > 1000 AND i % 100 <> 0 THEN i % 3 * 100 + i % 7 END, CASE WHEN i % 321 = 0 THEN NULL ELSE i % 5 END,
		repeat('x', 10), 1 FROM generate_series(1, 100000) i;
	-- the last pages are not all visible
	VACUUM pts;
	INSERT INTO pts SELECT i, 1, i, i, 'new', 1 FROM generate_series(1, 3000) i;
	DELETE FROM pts WHERE id % 1000 = 7;
	CREATE TABLE empty (id int, g int, x float8, y float8, note text, label int);
	CREATE TABLE parts (id int, g int, x float8, y float8, note text, label int) PARTITION BY LIST (g);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
	CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
	INSERT INTO parts SELECT i, 2 + i % 2, i, i % 7, '', 0 FROM generate_series(1, 50000) i;
	CREATE TABLE marker ();
	CREATE TABLE model AS SELECT kmeans_fit('pts', '{x,y}', 2) AS m;
});

is(counted('', 'SELECT count(*) FROM pts'), 'pts:1/102897', 'a plain scan');
is(counted('', 'SELECT 1'), '', 'no scan');

my @readers = (
	[ executor => 'SET LOCAL gkmeans.reader = executor' ],
	[ auto     => '' ],
	[ heap     => 'SET LOCAL gkmeans.reader = heap; SET LOCAL gkmeans.threads = 1; SET LOCAL gkmeans.workers = 0' ],
	[ threads  => 'SET LOCAL gkmeans.reader = heap; SET LOCAL gkmeans.threads = 4; SET LOCAL gkmeans.workers = 0' ],
	[ workers  => 'SET LOCAL gkmeans.reader = heap; SET LOCAL gkmeans.workers = 2' ],
	[ serializable => 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET LOCAL gkmeans.reader = heap' ],
);
my @calls = (
	[ kmeans       => "SELECT count(*) FROM kmeans('%s', '{x,y}', 2)" ],
	[ skip         => "SELECT count(*) FROM kmeans('%s', '{x,y}', 2, nonfinite => 'skip', weight_column => 'g')" ],
	[ labels       => "SELECT count(*) FROM kmeans_labels('%s', '{x,y}', 2)" ],
	[ label_column => "SELECT count(*) FROM kmeans('%s', '{x,y}', 2, 'label')" ],
	[ label_table  => "SELECT count(*) FROM kmeans_label_table('%s', '{x,y}', 2, 'pg_temp.labels', '{id}')" ],
	[ grouped      => "SELECT count(*) FROM kmeans_grouped('%s', '{g}', '{x,y}', 1)" ],
	[ step         => "SELECT kmeans_step('%s', '{x,y}', m) FROM model" ],
);

foreach my $relation ('pts', 'empty', 'parts')
{
	foreach my $call (@calls)
	{
		# the readers are the same for all calls
		next if $relation ne 'pts' && $call->[0] !~ /^(kmeans|label_table|grouped)$/;
		my $expected;
		foreach my $reader (@readers)
		{
			my $got = counted($reader->[1], sprintf($call->[1], $relation));
			$expected //= $got;
			is($got, $expected, "$reader->[0]: $call->[0] of $relation");
		}
		like($expected, qr/^$relation/, "$call->[0] of $relation is counted");
	}
}

$node->stop;
done_testing();
