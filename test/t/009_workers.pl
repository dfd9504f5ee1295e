# Parallel workers that read pages: how many there are changes nothing but the time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf',
	"fsync = off\nautovacuum = off\nmax_wal_size = 4GB\nmax_worker_processes = 16\nmax_parallel_workers = 12");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (gone text, a float4, b float8, c int, label int);
	INSERT INTO pts SELECT 'x', sin(i), NULLIF(cos(i), 1), i % 1000 FROM generate_series(1, 60000) i;
	ALTER TABLE pts DROP COLUMN gone, ADD COLUMN d int8 DEFAULT 7;
	INSERT INTO pts SELECT cos(i), NULLIF(i % 10, 3), i % 77, NULL, i FROM generate_series(1, 60000) i;
	VACUUM pts;
	UPDATE pts SET c = c + 1 WHERE a > 0.9;
	DELETE FROM pts WHERE d BETWEEN 100 AND 5000;
	CREATE TABLE arrays (id int, v float4[]);
	ALTER TABLE arrays ALTER v SET STORAGE EXTERNAL;
	INSERT INTO arrays SELECT i, CASE WHEN i % 9 > 0 THEN ARRAY(SELECT sin(i * j) FROM generate_series(1, 700) j) END
	FROM generate_series(1, 500) i;
	-- a page of them fills more batches than a process has
	CREATE TABLE embeddings (v float4[]);
	ALTER TABLE embeddings ALTER v SET STORAGE EXTERNAL;
	INSERT INTO embeddings SELECT ARRAY(SELECT sin(i * j) FROM generate_series(1, 8000) j) FROM generate_series(1, 400) i;
	CREATE TABLE parts (g int, x float4, y float8) PARTITION BY LIST (g);
	CREATE TABLE parts_1 (y float8, note text, x float4, g int);
	ALTER TABLE parts_1 DROP COLUMN note;
	ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES IN (1);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
	CREATE UNLOGGED TABLE parts_3 PARTITION OF parts DEFAULT;
	INSERT INTO parts SELECT i % 4, sin(i), i FROM generate_series(1, 50000) i;
	CREATE MATERIALIZED VIEW mat AS SELECT a, b FROM pts;
	-- many pages, for threads: NULLs, arrays of all kinds, columns added later, item pointers that are free
	CREATE TABLE wide (pad text, v float8[], a float4, b int2) WITH (toast_tuple_target = 128);
	ALTER TABLE wide ALTER pad SET STORAGE PLAIN;
	INSERT INTO wide SELECT repeat('x', 900), CASE WHEN i % 9 > 0 THEN
			CASE WHEN i % 2 = 0 OR i < 2000 THEN ARRAY(SELECT sin(i * j) FROM generate_series(1, 40) j)
				ELSE array_fill((i % 7)::float8, ARRAY[40]) END END,
		CASE WHEN i % 11 > 0 THEN cos(i) END, i % 100 FROM generate_series(1, 6000) i;
	DELETE FROM wide WHERE b % 10 = 3;
	VACUUM wide;
	INSERT INTO wide SELECT 'x', NULL, i, i FROM generate_series(1, 300) i;
	ALTER TABLE wide ADD e float8 DEFAULT 0.25;
	INSERT INTO wide SELECT repeat('x', 900), ARRAY(SELECT cos(i * j) FROM generate_series(1, 40) j), i, i, i FROM generate_series(1, 500) i;

	-- a model and all labels of one way to read
	CREATE FUNCTION read(reader text, workers int, rel regclass, cols text[]) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE model kmeans_model; result text;
	BEGIN
		PERFORM set_config('gkmeans.reader', reader, false), set_config('gkmeans.workers', workers::text, false);
		model := kmeans_fit(rel, cols, 5, max_iter => 5, device => 'cpu');
		SELECT md5((to_jsonb(i) - '{load_ms,seed_ms,iterate_ms,total_ms,device}'::text[])::text
			|| (SELECT string_agg(c::text, ' ' ORDER BY cluster) FROM kmeans_centroids(model) c)
			|| (SELECT string_agg(l::text, ' ') FROM kmeans_labels(rel, model) l))
		INTO result FROM kmeans_info(model) i;
		RETURN result;
	END $$;
});

foreach my $what ([ 'pts', '{a,b,c}' ], [ 'pts', '{d,a}' ], [ 'arrays', '{v}' ], [ 'embeddings', '{v}' ], [ 'parts', '{x,y}' ], [ 'mat', '{a,b}' ])
{
	my ($table, $columns) = @$what;
	my $want = $node->safe_psql('postgres',
		"SET client_min_messages = error; SELECT read('executor', 0, '$table', '$columns')");
	my $got = $node->safe_psql('postgres',
		"SET client_min_messages = error; SELECT read('heap', w, '$table', '$columns') FROM generate_series(0, 8) w");
	is($got, join("\n", ($want) x 9), "$table $columns: the same with 0 to 8 workers as by the executor");
}

# Threads read without workers, and by default.
foreach my $what ([ 'pts', '{a,b,c}' ], [ 'pts', '{d,a}' ], [ 'parts', '{x,y}' ], [ 'wide', '{a,b}' ], [ 'wide', '{v}' ], [ 'wide', '{e,b}' ])
{
	my ($table, $columns) = @$what;
	my $want = $node->safe_psql('postgres',
		"SET client_min_messages = error; SET gkmeans.threads = 1; SELECT read('executor', 0, '$table', '$columns')");
	my $got = $node->safe_psql('postgres', join(' ', 'SET client_min_messages = error;',
		map { "SET gkmeans.threads = $_; SELECT read('heap', 0, '$table', '$columns'), read('heap', -1, '$table', '$columns');" } 1, 2, 3, 8));
	is($got, join("\n", ("$want|$want") x 4), "$table $columns: the same by 1 to 8 threads");
}

# Who reads is said at DEBUG1.
sub said
{
	my ($settings, $table) = @_;
	my ($out, $err) = ('', '');
	$node->psql('postgres', "SET client_min_messages = debug1; $settings
		SELECT sum(size) FROM kmeans('$table', '{x,y}', 1, max_iter => 1)", stdout => \$out, stderr => \$err);
	return $err =~ /"\w+" is read by (\d+ threads)/ ? $1 : $err =~ /"\w+" is read by (\d+ of \d+) workers/ ? $1 : $err =~ /ERROR: +(.*)/ ? $1 : 'none';
}

$node->safe_psql('postgres', q{
	CREATE TABLE xy AS SELECT sin(i) AS x, cos(i) AS y FROM generate_series(1, 20000) i;
	CREATE TABLE xy1 AS SELECT 1.0::float8 AS x, 2.0::float8 AS y;
	CREATE VIEW barrier WITH (security_barrier) AS SELECT x, y FROM xy;
});
is(said('SET gkmeans.workers = 3;', 'xy'), '3 of 3', 'workers read');
is(said('SET gkmeans.workers = 3;', 'xy1'), 'none', 'none for a page');
is(said('SET gkmeans.workers = 0;', 'xy'), 'none', 'none if none are asked for');
is(said('', 'xy'), 'none', 'none for a small table');
is(said("SET min_parallel_table_scan_size = '32kB';", 'xy'), '2 of 2', 'by the size of the table');
is(said("SET min_parallel_table_scan_size = '32kB'; SET max_parallel_maintenance_workers = 1;", 'xy'), '1 of 1', 'up to the limit');
is(said('SET gkmeans.workers = 2; SET max_parallel_workers = 0;', 'xy'), 'none', 'none if the server may have none');
is(said('SET gkmeans.workers = 2; BEGIN ISOLATION LEVEL SERIALIZABLE;', 'xy'), 'none', 'none in a serializable transaction');
is(said('SET gkmeans.workers = 2; CREATE TEMP TABLE t AS SELECT * FROM xy;', 't'), 'none', 'none for a temporary table');
is(said('SET gkmeans.workers = 2; BEGIN; CREATE TABLE t AS SELECT * FROM xy;', 't'), '2 of 2', "a table of this very transaction");
is(said('SET gkmeans.workers = 2; SET gkmeans.reader = executor;', 'xy'), 'none', 'the executor has none');

# Rights are checked before any page is read, whoever would read it.
$node->safe_psql('postgres', q{
	CREATE ROLE guest;
	CREATE TABLE secret AS SELECT * FROM xy;
	GRANT SELECT (x) ON secret TO guest;
	CREATE TABLE rows_of AS SELECT * FROM xy;
	ALTER TABLE rows_of ENABLE ROW LEVEL SECURITY;
	CREATE POLICY few ON rows_of USING (x > 0.9);
	GRANT SELECT ON rows_of, barrier TO guest;
});
like(said('SET gkmeans.workers = 2; SET ROLE guest;', 'secret'), qr/permission denied/, 'no right to a column');
like(said('SET gkmeans.workers = 2; SET ROLE guest;', 'xy'), qr/permission denied/, 'no right to the table');
is(said('SET gkmeans.workers = 2; SET ROLE guest;', 'rows_of'), 'none', 'a policy is for the executor');
is($node->safe_psql('postgres', q{SET client_min_messages = error; SET gkmeans.workers = 2; SET ROLE guest;
	SELECT sum(size) = (SELECT count(*) FROM rows_of) FROM kmeans('rows_of', '{x,y}', 1)}), 't', 'and only its rows are read');

# A worker that is killed ends the statement, not the session; errors of rows are the same.
$node->safe_psql('postgres', q{
	CREATE TABLE long AS SELECT sin(i) AS x, cos(i) AS y FROM generate_series(1, 300000) i;
	DO $$ BEGIN EXECUTE 'CREATE VIEW longer AS ' ||
		(SELECT string_agg('SELECT * FROM long', ' UNION ALL ') FROM generate_series(1, 40)); END $$;
});
my ($out, $err) = ('', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'),
	'-c', 'SET client_min_messages = error', '-c', 'SET gkmeans.workers = 2', '-c', 'SET gkmeans.threads = 1',
	'-c', "SELECT sum(size) FROM kmeans('longer', '{x,y}', 1, max_iter => 1)",
	'-c', "SELECT sum(size) FROM kmeans('long', '{x,y}', 1, max_iter => 1)" ], '<', \undef, '>', \$out, '2>', \$err);
# one only: a warning about another that is gone by then would count as no answer
my $killed = $node->poll_query_until('postgres', q{
	SELECT count(pg_terminate_backend(pid)) > 0
	FROM (SELECT pid FROM pg_stat_activity WHERE backend_type = 'parallel worker' LIMIT 1) one});
$session->finish;
ok($killed, 'a worker was there to kill');
like($err, qr/terminating .*due to administrator command/, 'the statement fails');
is($out, "300000\n", 'the next one does not');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}), '0', 'no worker stays');

# Threads: who reads, a row that is an error, a session that ends while they read.
is(said('SET gkmeans.workers = 0; SET gkmeans.threads = 2;', 'long'), '2 threads', 'threads read');
is(said('SET gkmeans.threads = 2;', 'long'), '2 threads', 'by default, too');
is(said('SET gkmeans.workers = 0; SET gkmeans.threads = 1;', 'long'), 'none', 'none if there is one only');
is(said("SET gkmeans.workers = 0; SET gkmeans.threads = 2; SET gkmeans.strategy = 'scan';", 'long'), 'none', 'none if they compute with the rows meanwhile');
is(said('SET gkmeans.workers = 0; SET gkmeans.threads = 2;', 'xy'), 'none', 'none for some pages');
is(said('SET gkmeans.workers = 0; SET gkmeans.threads = 2; CREATE TEMP TABLE t AS SELECT * FROM long;', 't'), 'none', 'none for a temporary table');
$node->safe_psql('postgres', q{
	CREATE TABLE bad AS SELECT sin(i) AS x, CASE i WHEN 150000 THEN 'NaN' WHEN 290000 THEN 'Infinity' ELSE cos(i) END::float8 AS y
	FROM generate_series(1, 300000) i;
});
my %error;
foreach my $threads (1, 2, 8)
{
	my ($ret, $out, $err) = $node->psql('postgres', "SET gkmeans.workers = 0; SET gkmeans.threads = $threads;
		SELECT sum(size) FROM kmeans('bad', '{x,y}', 2);");
	$error{$err} = 1;
}
is(scalar keys %error, 1, 'one error, whoever reads');
like((keys %error)[0], qr/column "y" has NaN\nDETAIL: +It is row 150000/, 'of the first such row');
is($node->safe_psql('postgres', q{SET client_min_messages = error; SET gkmeans.workers = 0; SET gkmeans.threads = 2;
	SELECT sum(size) FROM kmeans('bad', '{x,y}', 2, nonfinite => 'skip')}), '299998', 'or it is left out');

($out, $err) = ('', '');
$session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=reads',
	'-c', 'SET client_min_messages = error', '-c', 'SET gkmeans.workers = 0', '-c', 'SET gkmeans.threads = 2',
	'-c', "SELECT sum(size) FROM kmeans('longer', '{x,y}', 1, max_iter => 1)" ], '<', \undef, '>', \$out, '2>', \$err);
ok($node->poll_query_until('postgres', q{
	SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE application_name = 'reads' AND query LIKE '%longer%'}),
	'a session that reads is ended');
$session->finish;
like($err, qr/terminating connection due to administrator command/, 'it says so');
($out, $err) = ('', '');
$node->psql('postgres', q{SET statement_timeout = '60ms'; SET gkmeans.workers = 0; SET gkmeans.threads = 2;
	SELECT sum(size) FROM kmeans('longer', '{x,y}', 1, max_iter => 1)}, stdout => \$out, stderr => \$err);
like($err, qr/canceling statement due to statement timeout/, 'a statement that reads is cancelled');
is($node->safe_psql('postgres', q{SET client_min_messages = error; SELECT sum(size) FROM kmeans('long', '{x,y}', 1)}), '300000', 'and the next one reads');
# A temporary file that cannot be written while threads read: the session can be cancelled afterwards, too.
($out, $err) = ('', '');
$node->psql('postgres', q{SET gkmeans.workers = 0; SET gkmeans.threads = 2; SET gkmeans.memory_limit = '1200kB'; SET temp_file_limit = '64kB';
	SELECT sum(size) FROM kmeans('long', '{x,y}', 2, max_iter => 1);
	SET statement_timeout = '100ms'; SELECT 'slept' FROM pg_sleep(3)}, on_error_stop => 0, stdout => \$out, stderr => \$err);
like($err, qr/temporary file size exceeds "?temp_file_limit"?/, 'a temporary file has no room');
like($err, qr/canceling statement due to statement timeout/, 'the next statement is cancelled');
is($out, '', 'before it ends');

# Pages that came into the cache in any order: where they are is found out at once, and some are not there.
my $find = q{SET client_min_messages = debug1; SET gkmeans.reader = 'auto'; SET gkmeans.workers = 0;
	SELECT FROM kmeans('long', '{x,y}', 1, max_iter => 1)};
my $found = qr/the pages of "long" are not side by side in the cache/;
my $executor = $node->safe_psql('postgres', q{SET client_min_messages = error; SELECT read('executor', 0, 'long', '{x,y}')});
foreach my $part (0, 10)
{
	$node->restart;
	$node->safe_psql('postgres', qq{
		SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
		CREATE TEMP TABLE places AS SELECT ('(' || b || ',1)')::tid AS place
			FROM generate_series(0, pg_relation_size('long') / 8192 - 1) b WHERE $part = 0 OR b % $part <> 3 ORDER BY hashint8(b);
		SELECT count(x) FROM places JOIN long ON long.ctid = place;});
	($out, $err) = ('', '');
	$node->psql('postgres', $find, stdout => \$out, stderr => \$err);
  SKIP:
	{
		skip 'PostgreSQL 13 cannot pin a page by its place in the cache', 1
		  if $node->safe_psql('postgres', 'SHOW server_version_num') < 140000;
		like($err, $found, 'scattered pages are found by their tags');
	}
	foreach my $threads (1, 2, 8)
	{
		is($node->safe_psql('postgres', "SET client_min_messages = error; SET gkmeans.threads = $threads; SELECT read('auto', 0, 'long', '{x,y}')"),
			$executor, "the same as the executor's, $threads threads, with @{[ $part ? 'a tenth of the pages missing' : 'all pages in the cache' ]}");
	}
}
$node->restart;
$node->safe_psql('postgres', 'SELECT count(x) FROM long');
($out, $err) = ('', '');
$node->psql('postgres', $find, stdout => \$out, stderr => \$err);
unlike($err, $found, 'pages that were read in turn are guessed');

unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|was not properly shut down/, 'no process crashed');

$node->stop;
done_testing();
