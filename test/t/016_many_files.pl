# A server that may open few files: PostgreSQL closes those that it needs least, temporary
# ones of gkmeans among them, and all of them can be read again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nmax_files_per_process = 64\nmax_locks_per_transaction = 256");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (id int, x float8, y float8, label int) PARTITION BY RANGE (id);
	DO $$ BEGIN
		FOR i IN 0 .. 199 LOOP
			EXECUTE format('CREATE TABLE pts_%s PARTITION OF pts FOR VALUES FROM (%s) TO (%s)', i, i * 500, (i + 1) * 500);
		END LOOP;
	END $$;
	-- the first partition is of many chunks, the others are many files
	INSERT INTO pts SELECT i % 500, i % 10 * 10 + i * 1e-5, i % 7 FROM generate_series(1, 50000) i;
	INSERT INTO pts SELECT i * 500, i % 10 * 10, i % 7 FROM generate_series(0, 199) i;
	CREATE TABLE groups AS SELECT id % 50 AS g, * FROM pts;
});

# Each call with memory for everything, and with temporary files: the same result.
my %settings = (
	memory => '',
	scan   => "SET gkmeans.strategy = scan; SET gkmeans.chunk_size = '64kB';",
	files  => "SET gkmeans.memory_limit = '1MB'; SET gkmeans.chunk_size = '64kB';",
	spill  => "SET gkmeans.memory_limit = '1MB'; SET gkmeans.chunk_size = '64kB'; SET work_mem = '64kB';",
);
my %calls = (
	'kmeans'   => "SELECT * FROM kmeans('pts', '{x,y}', 200, max_iter => 2)",
	'parallel' => "SELECT * FROM kmeans('pts', '{x,y}', 50, init => 'k-means||', max_iter => 2)",
	'labels'   => "SELECT sum(hashint4(cluster)), sum(hashtid(ctid)) FROM kmeans_labels('pts', '{x,y}', 20, max_iter => 2)",
	'table'    => "SELECT cluster, size FROM kmeans_label_table('pts', '{x,y}', 20, 'pg_temp.labels', '{id}', max_iter => 2)",
	'write'    => "BEGIN; SELECT cluster, size FROM kmeans('pts', '{x,y}', 20, 'label', max_iter => 2); SELECT label, count(*) FROM pts GROUP BY 1 ORDER BY 1; ROLLBACK",
	'grouped'  => "SELECT string_agg(s::text, ' ' ORDER BY s::text) FROM kmeans_grouped('groups', '{g}', '{x,y}', 2, max_iter => 2) s",
	'window'   => "SELECT c, count(*) FROM (SELECT kmeans(ARRAY[x,y], 5) OVER (PARTITION BY id % 50) c FROM pts) s GROUP BY 1 ORDER BY 1",
	'k-scan'   => "SELECT * FROM kmeans_scan('pts', '{x,y}', 2, 5, max_iter => 2)",
);

foreach my $call (sort keys %calls)
{
	my $expected;
	foreach my $name ('memory', 'scan', 'files', 'spill')
	{
		my ($out, $err);
		$node->psql('postgres', "SET client_min_messages = error; $settings{$name} $calls{$call}", stdout => \$out, stderr => \$err);
		is($err, '', "$call, $name: no error");
		$expected //= $out;
		is($out, $expected, "$call, $name: the same result");
	}
}

$node->stop;
done_testing();
