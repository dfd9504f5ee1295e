# Everything that does not write works on a standby, and in a parallel worker, with the
# same bits as anywhere else.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "max_worker_processes = 8\nmax_parallel_workers = 4\nmax_parallel_maintenance_workers = 2");
$primary->start;
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (x real, y float8, label int);
	INSERT INTO pts SELECT sin(i) + i % 3 * 5, CASE WHEN i % 100 > 0 THEN cos(i) END, i % 2 FROM generate_series(1, 100000) i;
	CREATE TABLE part (x int, y int) PARTITION BY LIST (x);
	CREATE TABLE part_0 PARTITION OF part FOR VALUES IN (0);
	CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
	INSERT INTO part SELECT i % 2, i % 7 FROM generate_series(1, 1000) i;
	CREATE TABLE models AS SELECT kmeans_fit('pts', '{x,y}', 3) AS model;
	-- for a function that the planner believes to be fit for workers
	CREATE FUNCTION centroids(relation regclass) RETURNS text LANGUAGE sql PARALLEL SAFE AS
		$$ SELECT string_agg(k::text, ' ' ORDER BY cluster) FROM kmeans(relation, '{x,y}', 3) k $$;
	CREATE FUNCTION in_worker() RETURNS bool LANGUAGE sql PARALLEL SAFE AS
		$$ SELECT backend_type = 'parallel worker' FROM pg_stat_activity WHERE pid = pg_backend_pid() $$;
	CREATE FUNCTION write_labels() RETURNS bigint LANGUAGE sql PARALLEL SAFE AS
		$$ SELECT count(*) FROM kmeans('pts', '{x,y}', 3, label_column => 'label') $$;
});
$primary->wait_for_catchup($standby);

# ---- standby ----

my $labels = 'SELECT count(*), count(cluster), sum(hashfloat8(distance)), sum(hashtid(ctid)) FROM';
my %calls = (
	'kmeans()' => "SELECT * FROM kmeans('pts', '{x,y}', 5, seed => 3)",
	'kmeans() of a partitioned table' => "SELECT * FROM kmeans('part', '{x,y}', 2)",
	'kmeans() above memory_limit' => "SET gkmeans.memory_limit = '100kB'; SELECT * FROM kmeans('pts', '{x,y}', 5, seed => 3)",
	'kmeans() with workers' => "SET gkmeans.workers = 2; SELECT * FROM kmeans('pts', '{x,y}', 5, seed => 3)",
	'kmeans() by the executor' => "SET gkmeans.reader = executor; SELECT * FROM kmeans('pts', '{x,y}', 5, seed => 3)",
	'kmeans_fit()' => "SELECT to_jsonb(i) - 'load_ms' - 'seed_ms' - 'iterate_ms' - 'total_ms' FROM kmeans_info((SELECT kmeans_fit('pts', '{x,y}', 3))) i",
	'kmeans_labels()' => "$labels kmeans_labels('pts', '{x,y}', 4)",
	'kmeans_labels() of a model' => "$labels kmeans_labels('pts', (SELECT model FROM models))",
	'kmeans_predict()' => 'SELECT sum(kmeans_predict(model, x, y)), sum(hashfloat8(kmeans_distance(model, x, y))) FROM pts, models',
	'kmeans_scan()' => "SELECT * FROM kmeans_scan('pts', '{x,y}', 2, 4)",
	'kmeans_agg()' => 'SELECT kmeans_centroids(kmeans_agg(ARRAY[x, y], 2)) FROM part GROUP BY x ORDER BY x',
);
foreach my $what (sort keys %calls)
{
	my $sql = "SET client_min_messages = error; $calls{$what}";
	my $there = $primary->safe_psql('postgres', $sql);
	isnt($there, '', "$what: a result");
	is($standby->safe_psql('postgres', $sql), $there, "$what: the same on the standby");
}

foreach my $column ('label', 'fresh')
{
	my ($ret, $out, $err) = $standby->psql('postgres', qq{
		\\set VERBOSITY verbose
		SELECT * FROM kmeans('pts', '{x,y}', 3, label_column => '$column')});
	like($err, qr/ERROR:  25006: cannot execute UPDATE of label_column in a read-only transaction/,
		"label_column => '$column': the usual error of a standby");
}
my ($ret, $out, $err) = $standby->psql('postgres', qq{
	\\set VERBOSITY verbose
	SELECT * FROM kmeans_label_table('pts', '{x,y}', 3, 'labels', '{x}')});
like($err, qr/ERROR:  25006: cannot execute kmeans_label_table\(\) in a read-only transaction/,
	'kmeans_label_table(): the usual error of a standby');
is($standby->safe_psql('postgres', "SELECT pg_is_in_recovery()"), 't', 'it is a standby');

# ---- in a parallel worker ----

my $force = $primary->safe_psql('postgres', q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
my $one = 'SET client_min_messages = error; SET gkmeans.workers = 2; SET gkmeans.reader = ';
foreach my $node ($primary, $standby)
{
	my $name = $node->name;
	is($node->safe_psql('postgres', "SET $force = on; SELECT in_worker()"), 't', "$name: this runs in a worker");
	foreach my $reader ('auto', 'executor')
	{
		foreach my $relation ('pts', 'part')
		{
			my $alone = $node->safe_psql('postgres', "$one $reader; SET $force = off; SELECT centroids('$relation')");
			isnt($alone, '', "$name, $relation, $reader: a result");
			is($node->safe_psql('postgres', "$one $reader; SET $force = on; SELECT centroids('$relation')"),
				$alone, "$name, $relation, $reader: the same in a worker");
		}
	}
}
# with the leader already in a parallel operation
my $leading = $primary->safe_psql('postgres', qq{
	SET client_min_messages = error; SET gkmeans.workers = 2;
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SELECT count(DISTINCT c) FROM (SELECT centroids('pts') AS c FROM part WHERE y > 5) s});
is($leading, '1', 'in a leader and its workers: the same');
($ret, $out, $err) = $primary->psql('postgres', "SET $force = on; SELECT write_labels()");
like($err, qr/ERROR:  cannot execute .* during a parallel operation/, 'label_column in a worker: the usual error');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM pts WHERE label = 2'), '0', 'label_column in a worker: no label');

$standby->stop;
$primary->stop;
done_testing();
