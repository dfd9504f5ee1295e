# What takes long with one large kmeans_state is cancelled before it is done, although no row comes
# and goes meanwhile.
#
# How late a cancel is compares with the time of the whole statement, here and now, and the best of
# some trials counts: the machine may be busy.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nmax_wal_size = 4GB");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE centroids AS
	SELECT i AS cluster, ARRAY(SELECT sin(i * j) FROM generate_series(1, 16) j) AS centroid FROM generate_series(0, 299999) i;
	CREATE TABLE large (model kmeans_model, state kmeans_state, digits text);
	ALTER TABLE large ALTER model SET STORAGE EXTERNAL, ALTER state SET STORAGE EXTERNAL, ALTER digits SET STORAGE EXTERNAL;
	INSERT INTO large SELECT kmeans_from_table('centroids');
	UPDATE large SET state = (SELECT kmeans_step_partial(model, centroid) FROM centroids WHERE cluster < 100);
	UPDATE large SET digits = state::text;
});

# The milliseconds that a statement takes, and its error.
sub run
{
	my ($sql, $timeout) = @_;
	$node->psql('postgres', "SET statement_timeout = $timeout;\n\\timing on\n$sql;", stdout => \my $out, stderr => \my $err, on_error_stop => 0);
	return ($out =~ /Time: ([\d.]+) ms.*?\z/s, $err);
}

foreach my $job (
	[ 'input',   'SELECT digits::kmeans_state IS NULL FROM large' ],
	[ 'output',  'SELECT length(state::text) FROM large' ],
	[ 'partial', 'SELECT kmeans_step_partial(model, centroid) IS NULL FROM large, (SELECT centroid FROM centroids LIMIT 1) c' ],
	[ 'finish',  'SELECT kmeans_finish(state) IS NULL FROM large' ])
{
	my ($name, $sql) = @$job;
	my ($whole) = sort { $a <=> $b } map { (run($sql, 0))[0] } 1 .. 2;

	# (at the end, PostgreSQL itself copies the result)
	foreach my $moment (0.2, 0.4, 0.6)
	{
		my $timeout = int($whole * $moment) + 1;
		my $late = 1;
		foreach my $trial (1 .. 5)
		{
			my ($took, $err) = run($sql, $timeout);
			$late = ($took - $timeout) / $whole if $err =~ /canceling statement due to statement timeout/ && ($took - $timeout) / $whole < $late;
			last if $late < 0.1;
		}
		cmp_ok($late, '<', 0.25, sprintf('%s, cancelled after %.0f of %.0f ms: %.0f ms late', $name, $timeout, $whole, $late * $whole));
	}
}

$node->stop;
done_testing();
