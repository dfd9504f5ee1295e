# A foreign table is read like any other; its rows have no place to write labels to.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
plan skip_all => 'file_fdw is not installed'
  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'file_fdw'") == 0;

my $csv = PostgreSQL::Test::Utils::tempdir() . '/points.csv';
append_to_file($csv, join('', map { sprintf("%d,%g\n", $_, $_ % 2 ? 100 + $_ % 7 : $_ % 5) } 1 .. 200) . "201,\n");
$node->safe_psql('postgres', qq{
	CREATE EXTENSION gkmeans;
	CREATE EXTENSION file_fdw;
	CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
	CREATE FOREIGN TABLE far_away (id int, x float8) SERVER files OPTIONS (filename '$csv', format 'csv', null '');
	CREATE TABLE near_by AS SELECT * FROM far_away;
});

my ($out, $err);
$node->psql('postgres', q{SELECT cluster, size, round(centroid[1]::numeric, 9) FROM kmeans('far_away', '{x}', 2)}, stdout => \$out, stderr => \$err);
is($out, "0|100|2.000000000\n1|100|102.980000000", 'clusters of a foreign table');
like($err, qr/1 row was left out/, 'its row with a NULL is counted');
is($node->safe_psql('postgres', q{
	SET client_min_messages = warning;
	SELECT (m::text::jsonb - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[]) =
	       (n::text::jsonb - '{load_ms,context_ms,upload_ms,seed_ms,iterate_ms,total_ms}'::text[])
	FROM kmeans_fit('far_away', '{x}', 5) m, kmeans_fit('near_by', '{x}', 5) n}),
	't', 'the same model as from a copy of the rows');

foreach my $sql (q{SELECT * FROM kmeans_labels('far_away', '{x}', 2)},
	q{SELECT * FROM kmeans('far_away', '{x}', 2, label_column => 'id')})
{
	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err);
	like($err, qr/ERROR:  "far_away" is a foreign table, whose rows cannot be labelled by ctid/, "no labels: $sql");
}
$node->stop;
done_testing();
