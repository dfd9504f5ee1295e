# A coordinator and four workers. First by hand: parts of a step are made on the
# workers, sent as text and in binary form, and combined on the coordinator. Then a
# distributed table, whose passes kmeans() sends to the shards by itself.
#
# Citus is not needed: the coordinator has a MOCK of what gkmeans uses of it, three
# catalogs and shard_name().
# docs/group-by.md says what was tested with the real one.
use strict;
use warnings;

use IO::Socket::INET;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $head = PostgreSQL::Test::Cluster->new('coordinator');
$head->init;
$head->append_conf('postgresql.conf', "allow_system_table_mods = on\nfsync = off");
$head->start;

my @workers;
foreach my $i (1 .. 4)
{
	my $node = PostgreSQL::Test::Cluster->new("worker$i");
	$node->init;
	$node->append_conf('postgresql.conf', "fsync = off\nlog_connections = on");
	$node->start;
	push @workers, $node;
}
$_->safe_psql('postgres', 'CREATE EXTENSION gkmeans') foreach ($head, @workers);
my $is_14 = $head->safe_psql('postgres', 'SHOW server_version_num') >= 140000;

# ---- rows: a copy on the coordinator, in the order of the shards ----

my $rows = q{
	SELECT i AS id, 10 * (i % 5) + (hashint4(i) % 10007) / 5000.0 AS a,
		((i % 5) * (i % 5) + (hashint4(i + 100000) % 10007) / 3000.0)::real AS b, hashint4(i + 200000) % 1000 AS "c'%",
		CASE WHEN i % 11 = 0 THEN 0 ELSE 1 + i % 7 * 0.3 END AS w,
		CASE WHEN i % 500 <> 7 THEN ARRAY[i % 13, (i % 7) * 0.1, i % 3]::float8[] WHEN i % 1000 = 7 THEN ARRAY[NULL, i % 7, 1]::float8[] END AS p,
		(i - 1) / 1000 AS g, 'the "' || (i - 1) / 100 AS t, CASE WHEN i % 4 > 0 THEN i % 4 = 1 END AS h,
		timestamptz '2026-01-01 00:00:00.5' + (i - 1) / 500 * interval '1 day 1 microsecond' AS at, ((i - 1) / 200 / 7.0)::float8 AS f
	FROM generate_series(%d, %d) i};
my @shards = ([ 102008, 0, 1, 6000 ], [ 102009, 1, 6001, 6000 ], [ 102010, 2, 6001, 13000 ], [ 102011, 3, 13001, 19000 ],
	[ 102012, 0, 19001, 20000 ]);

sub rows { return sprintf($rows, @_) }

$head->safe_psql('postgres', 'CREATE TABLE here AS ' . rows(1, 20000) . '; CREATE TABLE dist AS ' . rows(1, 0)
	  . q{; CREATE TABLE "so 'so" AS } . rows(1, 0));
foreach my $s (@shards)
{
	my ($id, $worker, $first, $last) = @$s;
	$workers[$worker]->safe_psql('postgres', "CREATE TABLE dist_$id AS " . rows($first, $last)
		  . qq{; CREATE TABLE "so 'so_$id" AS SELECT * FROM dist_$id});
}

# ---- by hand ----

my $start = q{'{{0,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}'};
my $columns = q{ARRAY['a', 'b', 'c''%']};
# the same but for how long it took, and by what means
$head->safe_psql('postgres', q{
	CREATE FUNCTION text_of(m kmeans_model) RETURNS text LANGUAGE sql AS $$
		SELECT (m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,device,strategy,columns}'::text[])::text $$;
	CREATE FUNCTION centroids(m kmeans_model) RETURNS text LANGUAGE sql AS $$
		SELECT array_agg(centroid ORDER BY cluster)::text FROM kmeans_centroids(m) $$;
	CREATE TABLE states (s kmeans_state);
});

sub run_by_hand
{
	my ($form) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/state.bin';
	my $m = $head->safe_psql('postgres',
		"SET client_min_messages = error; SELECT kmeans_fit('here', $columns, 6, centroids => $start, max_iter => 1, tol => 0)");
	my $bytes = 0;
	foreach my $iteration (2 .. 4)
	{
		$m =~ s/'/''/g;
		$head->safe_psql('postgres', 'TRUNCATE states');
		foreach my $s (@shards)
		{
			my ($id, $worker) = @$s;
			my $state = "kmeans_step('dist_$id', $columns, '$m'::kmeans_model)";
			if ($form eq 'text')
			{
				my $text = $workers[$worker]->safe_psql('postgres', "SELECT $state");
				$bytes += length($text);
				$head->safe_psql('postgres', 'INSERT INTO states VALUES (' . ($text eq '' ? 'NULL' : "'$text'") . ')');
			}
			else
			{
				$workers[$worker]->safe_psql('postgres', "COPY (SELECT $state) TO '$file' (FORMAT binary)");
				$bytes += -s $file;
				$head->safe_psql('postgres', "COPY states FROM '$file' (FORMAT binary)");
			}
		}
		$m = $head->safe_psql('postgres', 'SELECT kmeans_finish(kmeans_combine(s)) FROM states');
	}
	cmp_ok($bytes, '<', 60000, "$form: only states travelled ($bytes bytes)");
	$m =~ s/'/''/g;
	return $m;
}

my $fit = $head->safe_psql('postgres',
	"SET client_min_messages = error; SELECT centroids(kmeans_fit('here', $columns, 6, centroids => $start, max_iter => 4, tol => 0))");
foreach my $form ('text', 'binary')
{
	my $m = run_by_hand($form);
	is($head->safe_psql('postgres', "SELECT centroids('$m')"), $fit, "states of four servers, $form: the same bits as kmeans_fit()");
}

# ---- the mock ----

$head->safe_psql('postgres', q{
	CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", repmodel "char", colocationid int, partkey text);
	CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT $2 $$;
	CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint);
	CREATE TABLE pg_catalog.pg_dist_shard_placement (shardid bigint, nodename text, nodeport int);
	CREATE FUNCTION pg_catalog.shard_name(regclass, bigint) RETURNS text LANGUAGE sql STABLE AS $$
		SELECT CASE WHEN nspname <> 'public' THEN quote_ident(nspname) || '.' ELSE '' END || quote_ident(relname || '_' || $2)
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1 $$;
	INSERT INTO pg_dist_partition SELECT t, 'h', 's', 1 FROM unnest(ARRAY['dist', '"so ''so"']::regclass[]) t;
});
foreach my $s (@shards)
{
	my ($id, $worker) = @$s;
	$head->safe_psql('postgres', "INSERT INTO pg_dist_shard VALUES ('dist', $id), ('\"so ''so\"', $id);
		INSERT INTO pg_dist_shard_placement VALUES ($id, '@{[ $workers[$worker]->host ]}', @{[ $workers[$worker]->port ]})");
}

# 'n' and the same model of replication as 'dist': one shard on any server; the same
# without a colocation, and 't': tables that are read here
$head->safe_psql('postgres', q{
	CREATE TABLE single (LIKE here); CREATE TABLE none (LIKE here); CREATE TABLE reference (LIKE here); CREATE TABLE alone (LIKE here);
	INSERT INTO reference SELECT * FROM here; INSERT INTO alone SELECT * FROM here;
	INSERT INTO pg_dist_partition VALUES ('single', 'n', 's', 2), ('none', 'h', 's', 3), ('reference', 'n', 't', 4), ('alone', 'n', 's', 0);
	-- its rows are here, but in another order than that of the shards' numbers
	CREATE TABLE moved (LIKE here) PARTITION BY RANGE (id);
	CREATE TABLE moved_3 PARTITION OF moved FOR VALUES FROM (0) TO (5000);
	CREATE TABLE moved_1 PARTITION OF moved FOR VALUES FROM (5000) TO (10000);
	CREATE TABLE moved_2 PARTITION OF moved FOR VALUES FROM (10000) TO (20001);
	INSERT INTO moved SELECT (id + 4999) % 20001, a, b, "c'%", w, p FROM here;
	INSERT INTO pg_dist_partition VALUES ('moved', 'h', 's', 5);
	CREATE TABLE split (LIKE here) PARTITION BY RANGE (id);
	CREATE TABLE split_1 PARTITION OF split FOR VALUES FROM (0) TO (5000);
	INSERT INTO pg_dist_partition VALUES ('split', 'h', 's', 6), ('split_1', 'h', 's', 6);
	INSERT INTO pg_dist_shard VALUES ('single', 102020), ('none', 102021), ('none', 102022);
	INSERT INTO pg_dist_shard_placement SELECT 102019 + i, nodename, nodeport FROM pg_dist_shard_placement, generate_series(1, 3) i WHERE shardid = 102008});
$workers[0]->safe_psql('postgres', q{
	CREATE TABLE single_102020 AS SELECT * FROM dist_102008;
	CREATE TABLE none_102021 (LIKE dist_102008); CREATE TABLE none_102022 (LIKE dist_102008)});

# ---- the distributed table ----

foreach my $options ('', ', seed => 3, n_init => 2', q{, init => 'k-means||'}, q{, init => 'random'},
	q{, weight_column => 'w'}, ', standardize => true', q{, distance => 'cosine', nonfinite => 'skip'},
	", centroids => $start", q{, centroids => '{{0,0,0},{1e6,1e6,1e6},{2e6,2e6,2e6},{0,1,0},{0,0,1},{2,2,2}}'})
{
	is($head->safe_psql('postgres', "SET client_min_messages = error;
		SELECT text_of(kmeans_fit('dist', $columns, 6 $options)) = text_of(kmeans_fit('here', $columns, 6 $options))"),
		't', "distributed: the same bits as a local copy$options");
}
foreach my $options ('', ', n_init => 2, weight_column => \'w\'', q{, init => 'k-means||'})
{
	is($head->safe_psql('postgres', "SET client_min_messages = error;
		SELECT text_of(kmeans_fit('dist', $columns, 150, max_iter => 1 $options)) = text_of(kmeans_fit('here', $columns, 150, max_iter => 1 $options))"),
		't', "distributed: the same bits after many rounds of seeding$options");
}
$workers[0]->safe_psql('postgres', q{ALTER DATABASE postgres SET gkmeans.memory_limit = '64kB'});
is($head->safe_psql('postgres', "SET client_min_messages = error;
	SELECT text_of(kmeans_fit('dist', $columns, 6)) = text_of(kmeans_fit('here', $columns, 6))"),
	't', 'distributed: the same bits where points have no room');
is($head->safe_psql('postgres', "SET client_min_messages = error; SET extra_float_digits = 3;
	SELECT (SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('dist', $columns, 2, 3) s) = (SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('here', $columns, 2, 3) s)"),
	't', 'measures of quality, too');
is($head->safe_psql('postgres', "SET client_min_messages = error; SET extra_float_digits = 3;
	SELECT (SELECT e::text FROM kmeans_evaluate(m, 'dist') e) = (SELECT e::text FROM kmeans_evaluate(m, 'here') e) FROM kmeans_fit('here', $columns, 3) m"),
	't', 'and those of a model');
$workers[0]->safe_psql('postgres', 'ALTER DATABASE postgres RESET gkmeans.memory_limit');
is($head->safe_psql('postgres', q{
	SET client_min_messages = error;
	SELECT text_of(kmeans_fit('"so ''so"', '{p}', 4)) = text_of(kmeans_fit('here', '{p}', 4))}),
	't', 'an array column, a table with a difficult name');
is($head->safe_psql('postgres', "SET client_min_messages = error;
	SELECT array_agg(k::text ORDER BY cluster)::text FROM kmeans('dist', $columns, 6) k"),
	$head->safe_psql('postgres', "SET client_min_messages = error;
	SELECT array_agg(k::text ORDER BY cluster)::text FROM kmeans('here', $columns, 6) k"), 'kmeans()');
my $sessions = () = slurp_file($workers[0]->logfile) =~ /connection authorized: .*application_name=gkmeans/g;
is($sessions, 17, 'each call connected to each server once');

# a job sends O(k d) numbers in a pass
$workers[0]->append_conf('postgresql.conf', 'log_statement = all');
$workers[0]->reload;
$workers[0]->poll_query_until('postgres', q{SELECT current_setting('log_statement') = 'all'});
my $log_from = -s $workers[0]->logfile;
$head->safe_psql('postgres', "SET client_min_messages = error; SELECT count(*) FROM kmeans('dist', $columns, 6)");
my $said = slurp_file($workers[0]->logfile, $log_from);
is(scalar(() = $said =~ /dist_102008/g), 1, 'a job sends the names of the shards once');
cmp_ok(scalar(() = $said =~ /kmeans_pass/g), '>', 10, '... in many passes');
$workers[0]->append_conf('postgresql.conf', 'log_statement = none');
$workers[0]->reload;

# a cancel reaches the servers, and their transaction ends
$workers[2]->safe_psql('postgres', q{ALTER TABLE dist_102010 RENAME TO whole; CREATE VIEW dist_102010 AS SELECT * FROM whole WHERE pg_sleep(0.01) IS NOT NULL});
$head->psql('postgres', "SET statement_timeout = 300; SELECT kmeans_fit('dist', $columns, 6)", stdout => \my $unused, stderr => \my $cancelled);
like($cancelled, qr/ERROR:  canceling statement due to statement timeout/, 'a job on shards is cancelled');
ok($workers[2]->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'gkmeans'"), 'so are the servers');
# a lost server is an error that says so
my $lost_server = qr/ERROR:  no connection to the server \S+:\d+\nDETAIL:  .*\nHINT:  Nothing was changed: .*\nCONTEXT:  server \S+:\d+, which has 1 of the shards/;
my $losing = IPC::Run::start([ 'psql', '-X', $head->connstr('postgres'), '-c', "SELECT kmeans_fit('dist', $columns, 6)" ], '>', \my $nothing, '2>', \my $losing_err);
$workers[2]->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'gkmeans' AND query LIKE '%kmeans_pass%'");
$workers[2]->stop('immediate');
$losing->finish;
like($losing_err, $lost_server, 'a server that is lost in a pass');
$head->psql('postgres', "SELECT kmeans_fit('dist', $columns, 6)", stdout => \$nothing, stderr => \$losing_err);
like($losing_err, $lost_server, 'a server that is not there');
# where another server has a copy of its shards, that one answers
my ($other) = grep { $_->[0] == 102010 } @shards;
$workers[3]->safe_psql('postgres', 'CREATE TABLE dist_102010 AS ' . rows($other->[2], $other->[3]));
$head->safe_psql('postgres', "INSERT INTO pg_dist_shard_placement VALUES (102010, '@{[ $workers[3]->host ]}', @{[ $workers[3]->port ]})");
foreach my $call ("text_of(kmeans_fit('%s', $columns, 6))", "(SELECT array_agg(g::text) FROM kmeans_grouped('%s', '{g,id}', '{a}', 2) g WHERE cluster = 0)")
{
	$head->safe_psql('postgres', q{UPDATE pg_dist_partition SET partkey = 'g'});
	$head->psql('postgres', "SET client_min_messages = warning; SELECT " . sprintf("$call = $call", 'dist', 'here'), stdout => \$nothing, stderr => \$losing_err);
	is($nothing, 't', 'a lost server whose shards have copies: the same bits');
	like($losing_err, qr/^(psql:\S+ )?WARNING:  no connection to the server \S+:\d+, other servers answer for it\nDETAIL:  They have a copy of its 1 shard\.$/, '... with a warning');
}
$workers[2]->start;

$head->safe_psql('postgres', "DELETE FROM pg_dist_shard_placement WHERE shardid = 102010 AND nodename = '@{[ $workers[3]->host ]}' AND nodeport = @{[ $workers[3]->port ]}");
$workers[3]->safe_psql('postgres', 'DROP TABLE dist_102010');

# a server's transaction ends when the coordinator's session is gone and sends nothing any more
$head->append_conf('postgresql.conf', 'restart_after_crash = on');
$head->reload;
my $job = IPC::Run::start([ 'psql', '-X', $head->connstr('postgres'), '-c', "SELECT kmeans_fit('dist', $columns, 6)" ], '>&', \my $lost);
$workers[2]->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'gkmeans' AND query LIKE '%kmeans_pass%'");
kill 'KILL', $head->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE query LIKE '%kmeans_fit%' AND pid <> pg_backend_pid()");
my $killed = time;
$job->finish;
ok($workers[2]->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'gkmeans'"), 'servers notice that the coordinator is gone');
SKIP:
{
	skip 'PostgreSQL 13 notices it at the end of the pass', 1 if !$is_14;
	cmp_ok(time - $killed, '<', 30, 'long before the end of their pass');
}
$head->poll_query_until('postgres', 'SELECT true');
$workers[2]->safe_psql('postgres', 'DROP VIEW dist_102010; ALTER TABLE whole RENAME TO dist_102010');
like($head->safe_psql('postgres', "SET client_min_messages = error;
	SELECT strategy FROM kmeans_info(kmeans_fit('dist', $columns, 6))"), qr/^5 shards, /, 'kmeans_info() tells the shards');
is($head->safe_psql('postgres', "SET client_min_messages = error;
	SELECT text_of(kmeans_fit('dist', $columns, 6, init => 'hierarchical')) = text_of(kmeans_fit('here', $columns, 6, init => 'hierarchical'))"),
	't', 'distributed: the same bits as a local copy, hierarchical');

# ---- a part of a step ----

$head->safe_psql('postgres', "SET client_min_messages = error;
	CREATE TABLE m AS SELECT kmeans_fit('here', $columns, 6, centroids => $start, max_iter => 1) AS m,
		kmeans_fit('here', '{p}', 3, max_iter => 1) AS p");
foreach my $case ([ $columns, 'm' ], [ $columns, q{m, 'w'} ], [ q{'{p}'}, 'p' ], [ q{'{p}'}, q{p, 'w', 'skip', 'cpu'} ])
{
	my ($names, $rest) = @$case;
	is($head->safe_psql('postgres', "SELECT kmeans_step('dist', $names, $rest)::text = kmeans_step('here', $names, $rest)::text FROM m"),
		't', "kmeans_step() of a distributed table: the state of a local copy ($rest)");
}
is($head->safe_psql('postgres', q{
	SET client_min_messages = error;
	SELECT kmeans_step('dist', '{p}', m)::text = kmeans_step('here', '{p}', m)::text, (kmeans_info(m)).nulls
	FROM (SELECT kmeans_fit('here', '{p}', 3, nulls => 'mean', max_iter => 1) AS m) f}),
	't|mean', 'shards fill in the means of the model');
is($head->safe_psql('postgres', "SELECT kmeans_step('none', '{a}', kmeans_fit('here', '{a}', 2)) IS NULL"), 't', 'no rows in any shard: NULL');

# ---- a table with one shard ----

is($head->safe_psql('postgres', q{
	SET client_min_messages = error;
	SELECT text_of(kmeans_fit('single', '{p}', 4)) = text_of(kmeans_fit('here', '{p}', 4))}), 'f', 'one shard: its rows only');
is($head->safe_psql('postgres', q{SELECT i.strategy || ' ' || i.rows_used FROM kmeans_info(kmeans_fit('single', '{a}', 2)) i}),
	'1 shard, single_pass/cluster_merge 6000', 'on another server');

# ---- measures of quality: made where the rows are ----

foreach my $options ('', q{, weight_column => 'w', sample => 100}, ', standardize => true, n_init => 2', ', sample => 0', ', sample => 100000')
{
	is($head->safe_psql('postgres', "SET client_min_messages = error; SET extra_float_digits = 3;
		SELECT (SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('dist', $columns, 1, 9, step => 2 $options) s) =
			(SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('here', $columns, 1, 9, step => 2 $options) s)"),
		't', "kmeans_scan(): the bits of a local copy$options");
}
foreach my $case ([ $columns, '', 6 ], [ q{'{p}'}, '', 4 ], [ q{'{p}'}, q{, distance => 'cosine', nonfinite => 'skip'}, 4 ], [ $columns, ', standardize => true', 3 ], [ q{'{a}'}, '', 1 ])
{
	my ($names, $options, $k) = @$case;
	my $skip = $options =~ /nonfinite/ ? q{, nonfinite => 'skip'} : '';
	$head->safe_psql('postgres', "SET client_min_messages = error; CREATE TABLE m3 AS SELECT kmeans_fit('here', $names, $k, max_iter => 2 $options) AS m");
	foreach my $sample (0, 500, 100000)
	{
		is($head->safe_psql('postgres', "SET client_min_messages = error; SET extra_float_digits = 3;
			SELECT (SELECT e::text FROM kmeans_evaluate(m, 'dist', sample => $sample $skip) e) = (SELECT e::text FROM kmeans_evaluate(m, 'here', sample => $sample $skip) e) FROM m3"),
			't', "kmeans_evaluate(): the bits of a local copy, k = $k$options, sample of $sample");
	}
	is($head->safe_psql('postgres', "SELECT kmeans_svg(m, 'dist' $skip) = kmeans_svg(m, 'here' $skip) FROM m3"), 't', "kmeans_svg(): the same picture, k = $k$options") if $k > 1;
	$head->safe_psql('postgres', 'DROP TABLE m3');
}
is($head->safe_psql('postgres', q{SELECT count(*) FROM kmeans_evaluate((SELECT kmeans_fit('here', '{a,b}', 2)), 'none') e WHERE e IS NOT NULL}), 0, 'no rows');

$head->safe_psql('postgres', q{SET client_min_messages = error; CREATE TABLE m3 AS SELECT kmeans_fit('here', '{p}', 3) AS m});
foreach my $call (q{kmeans_scan('%s', '{p}', 2, 2)}, q{m3, kmeans_evaluate(m, '%s')})
{
	my @said;
	foreach my $table ('dist', 'here')
	{
		$head->psql('postgres', 'SELECT count(*) FROM ' . sprintf($call, $table), stderr => \my $notice);
		push @said, $notice;
	}
	like($said[0], qr/40 rows were left out/, "rows that are left out are counted: $call");
	is($said[0], $said[1], '... as in a local copy');
}
$head->safe_psql('postgres', 'DROP TABLE m3');

# ---- groups ----

sub groups { return "(SELECT array_agg(r::text) FROM kmeans_grouped('$_[0]', '{$_[1]}', $_[2]) r)" }

my ($notices, $left_out) = ('', '');
foreach my $case ([ 'g', 'g', "$columns, 3" ], [ 'g', 'g', "$columns, 3, weight_column => 'w', standardize => true, n_init => 2, tol => 1e-7" ],
	[ 't', 't', q{'{p}', 4, nonfinite => 'skip', distance => 'cosine'} ], [ 'g', 'h,g', "$columns, 2, init => 'random', seed => 7" ],
	[ 'at', 'at,h', q{'{p}', 2} ], [ 'f', 'f', "$columns, 3, centroids => '{{1,0,0},{5,5,100},{20.1,10,-100}}', max_iter => 1" ],
	[ 'id', 'g', "$columns, 2" ])
{
	my ($key, $group_by, $rest) = @$case;
	$head->safe_psql('postgres', "UPDATE pg_dist_partition SET partkey = '$key' WHERE logicalrelid = 'dist'::regclass");
	my $same = $key eq 'id' ? 'SELECT ' . groups('dist', $group_by, $rest) . ' IS NULL' : 'SELECT ' . groups('dist', $group_by, $rest) . ' = ' . groups('here', $group_by, $rest);
	is($head->safe_psql('postgres', "SET client_min_messages = error; SET extra_float_digits = 0; SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'; $same"), 't',
		$key eq 'id' ? 'groups that are not in one shard each are clustered here, of rows that a query brings' : "kmeans_grouped(): the same rows in the same order as of a local copy: $group_by, $rest");
}
$head->safe_psql('postgres', "UPDATE pg_dist_partition SET partkey = 'g' WHERE logicalrelid = 'dist'::regclass");
is($head->safe_psql('postgres', q{SELECT count(DISTINCT grp) || ' ' || sum(size) FROM kmeans_grouped('single', '{h}', '{a}', 2)}), '3 6000', 'one shard: any groups');
is($head->safe_psql('postgres', q{SELECT count(*) FROM kmeans_grouped('none', '{id}', '{a}', 2)}), 0, 'no rows: no groups');
$head->psql('postgres', "SELECT count(*) FROM kmeans_grouped('$_', '{g}', '{p}', 2)", stderr => \$left_out), $notices .= "$left_out\n" foreach ('dist', 'here');
like($notices, qr/^(.*NOTICE:  40 rows were left out.*\n(?:DETAIL:.*\n)?)\1$/, 'rows that are left out are counted over all shards');
$head->psql('postgres', "SELECT kmeans_grouped('dist', '{g}', $columns, 2, centroids => '{{1},{2}}')", stderr => \$left_out);
like($left_out, qr/ERROR: .*(features|centroids).*\n(.*\n)*CONTEXT:  server \S+:\d+, which has/, 'a worker has the error');

# ---- rows that a query brings here ----

is($head->safe_psql('postgres', q{
	SET client_min_messages = error;
	SELECT (SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('moved', '{p}', 2, 4, nulls => 'mean') s) =
		(SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('here', '{p}', 2, 4, nulls => 'mean') s)}),
	't', 'kmeans_scan() of rows in the order of the shards, with their means filled in');

my ($out, $err);
$head->psql('postgres', q{SELECT count(*) FROM kmeans('dist', '{p}', 3)}, stdout => \$out, stderr => \$err);
is($out, 3, 'rows with NULL');
like($err, qr/NOTICE:  40 rows were left out/, 'are counted over all shards');

# ---- labels: by a statement, which Citus would send to the shards ----

sub labels { return $head->safe_psql('postgres', "SELECT string_agg(id || ' ' || coalesce(label::text, '-'), ',' ORDER BY id) FROM $_[0]") }

$head->safe_psql('postgres', 'CREATE TABLE labelled AS SELECT * FROM here');
my @cases = ([ $columns, '' ], [ $columns, q{, weight_column => 'w'} ], [ q{'{p}'}, '' ], [ q{'{p}'}, q{, nonfinite => 'skip', distance => 'cosine'} ], [ q{'{w}'}, ', standardize => true' ]);
foreach my $table ('reference', 'alone')
{
	foreach my $case (@cases)
	{
		my ($names, $options) = @$case;
		$head->safe_psql('postgres', "SET client_min_messages = error; CREATE TABLE m2 AS SELECT kmeans_fit('here', $names, 4 $options) AS m");
		foreach my $t ($table, 'labelled')
		{
			$head->safe_psql('postgres', "SET client_min_messages = error;
				DO \$\$ BEGIN PERFORM kmeans('$t', $names, 4, label_column => 'label', warm_start => m $options) FROM m2; END \$\$");
		}
		is(labels($table), labels('labelled'), "label_column: $table: $names$options");
		is($head->safe_psql('postgres', "SET client_min_messages = error;
			SELECT count(*) FROM kmeans_label_table('$table', $names, 4, 'labels', '{id}', warm_start => (SELECT m FROM m2) $options)"), 4, 'kmeans_label_table()');
		is($head->safe_psql('postgres', "SELECT count(*) FROM labels l FULL JOIN labelled t USING (id) WHERE l.cluster IS DISTINCT FROM t.label"), 0, 'has the same');
		$head->safe_psql('postgres', 'DROP TABLE labels, m2');
	}
}
is($head->safe_psql('postgres', q{SELECT count(label) || ' ' || count(*) FROM reference WHERE w = 0 OR w IS NULL}), '1818 1818', 'a feature of 0 is no weight');
is($head->safe_psql('postgres', q{SET client_min_messages = error;
	SELECT count(*) FROM kmeans('reference', '{w}', 2, label_column => 'label', weight_column => 'w');
	SELECT count(label) || ' ' || count(*) FROM reference WHERE w = 0}), "2\n0 1818", 'rows without weight have no label');
$head->safe_psql('postgres', q{INSERT INTO dist (id, a, p) VALUES (1, 0, '{1,2,3}'), (2, 40, NULL), (3, NULL, '{NaN,0,0}')});
is($head->safe_psql('postgres', q{SET client_min_messages = error;
	SELECT count(*) FROM kmeans('dist', '{a}', 2, label_column => 'label', centroids => '{{0},{50}}');
	SELECT string_agg(id || ' ' || coalesce(label::text, '-'), ', ' ORDER BY id) FROM dist}), "2\n1 0, 2 1, 3 -", 'the rows of a distributed table');
is($head->safe_psql('postgres', q{SET client_min_messages = error;
	SELECT count(*) FROM kmeans('dist', '{p}', 2, label_column => 'label', nonfinite => 'skip');
	SELECT string_agg(CASE WHEN label IS NULL THEN '-' ELSE '+' END, '' ORDER BY id) FROM dist}), "2\n+--", 'a row that is not finite has no label');
$head->safe_psql('postgres', "CREATE TABLE wide AS SELECT i AS id, " . join(', ', map { "(i % ($_ + 2))::real AS f$_" } 1 .. 120) . ' FROM generate_series(1, 500) i;
	CREATE TABLE wide_here AS SELECT * FROM wide; INSERT INTO pg_dist_partition VALUES (\'wide\', \'n\', \'t\', 7)');
$head->safe_psql('postgres', "SET client_min_messages = error; SELECT count(*) FROM kmeans('$_', '{" . join(',', map { "f$_" } 1 .. 120) . "}', 5, label_column => 'label')")
  foreach ('wide', 'wide_here');
is(labels('wide'), labels('wide_here'), 'more features than a function has arguments');
$head->safe_psql('postgres', 'DELETE FROM dist');

# ---- errors ----

sub fails
{
	my ($sql, $pattern, $name) = @_;
	$head->psql('postgres', $sql, stdout => \$out, stderr => \$err);
	like($err, $pattern, $name);
}

foreach my $table ('dist', 'single', 'reference', 'alone')
{
	my $error = qr/ERROR:  "$table" is a table of Citus, whose rows cannot be labelled by ctid\nHINT:  Use label_column, kmeans_label_table\(\)/;
	fails("SELECT * FROM kmeans_labels('$table', '{a}', 2)", $error, "no labels by ctid: $table");
	fails("SELECT * FROM kmeans_labels('$table', kmeans_fit('here', '{a}', 2))", $error, "nor with a model: $table");
	fails("SELECT * FROM kmeans_balanced('$table', '{a}', 2, label_column => 'id')",
		qr/ERROR:  kmeans_balanced\(\) cannot .*\nDETAIL: .*\nHINT:  Make a local table/, "no labels of bounded sizes: $table");
}
fails(q{SELECT * FROM kmeans('dist', '{p}', 2, centroids => '{{1,2},{3,4}}')},
	qr/ERROR:  different numbers of features: 2 in the coordinator, 3 in "dist_\d+"\nCONTEXT:  server \S+:\d+, which has 2 of the shards/, 'a worker has the error');
fails(q{SELECT kmeans_step('dist', '{a,b}', m) FROM m},
	qr/ERROR:  different numbers of features: 3 in the model, 2 in "dist_/, 'a worker has the error of a step');
fails(q{SELECT * FROM kmeans('dist', '{p}', 3, nulls => 'mean')},
	qr/ERROR:  nulls => 'mean' cannot be used with a distributed table\nHINT:  Fill in the means by a view/, 'means are of one server');
fails(q{SELECT * FROM kmeans('dist', '{nosuch}', 2)}, qr/ERROR:  column "nosuch"/, 'the coordinator has the error');

# other servers would wait for a lock of this transaction, unseen by any of them, or not see its rows
foreach my $change ('TRUNCATE dist', 'ALTER TABLE dist ADD COLUMN new int', 'LOCK TABLE dist', 'INSERT INTO dist (id) VALUES (1)', 'DELETE FROM dist')
{
	foreach my $call (q{SELECT * FROM kmeans('dist', '{a}', 2)}, q{SELECT kmeans_step('dist', '{p}', p) FROM m})
	{
		fails("BEGIN; $change; $call", qr/ERROR:  "dist" was created, changed or locked by this transaction.*\nDETAIL: .*\nHINT:  Commit first/,
			"$change; $call: refused at once");
	}
}
fails(q{BEGIN; TRUNCATE split_1; SELECT * FROM kmeans('split', '{a}', 2)}, qr/ERROR:  "split_1" was created, changed or locked/,
	'nor are partitions waited for');
foreach my $change ('LOCK TABLE dist IN SHARE MODE', 'SELECT FROM dist FOR UPDATE',
	'CREATE INDEX ON dist (a)', 'SAVEPOINT s; TRUNCATE dist; ROLLBACK TO s')
{
	is($head->safe_psql('postgres', "SET client_min_messages = error; BEGIN; $change; SELECT count(*) FROM kmeans('dist', '{a}', 2)"), 2,
		"$change: nothing that matters to a reader");
}
$workers[2]->safe_psql('postgres', 'ALTER TABLE dist_102010 RENAME TO gone');
fails(q{SELECT * FROM kmeans('dist', '{a}', 2)}, qr/ERROR:  relation "public.dist_102010" does not exist\nCONTEXT:  server \S+:\d+, which has 1 of the shards/, 'a shard is gone');
$workers[2]->safe_psql('postgres', 'ALTER TABLE gone RENAME TO dist_102010');
$workers[3]->safe_psql('postgres', 'DROP EXTENSION gkmeans');
fails(q{SELECT * FROM kmeans('dist', '{a}', 2)}, qr/kmeans_pass.*does not exist/, 'a server without gkmeans');
$workers[3]->safe_psql('postgres', 'CREATE EXTENSION gkmeans');
$head->safe_psql('postgres', 'DELETE FROM pg_dist_shard_placement WHERE shardid = 102011');
fails(q{SELECT * FROM kmeans('dist', '{a}', 2)}, qr/ERROR:  shard 102011 of "dist" is on no server/, 'a shard without a server');
my $mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1);
$head->safe_psql('postgres', "INSERT INTO pg_dist_shard_placement VALUES (102011, '127.0.0.1', @{[ $mute->sockport ]})");
fails(q{SET citus.node_connection_timeout = 300; SELECT * FROM kmeans('dist', '{a}', 2)},
	qr/ERROR:  server 127.0.0.1:\d+ did not let us connect within 300 ms\nDETAIL:  It has 1 of the shards.\nHINT:  citus.node_connection_timeout/, 'a server that does not answer');
$head->safe_psql('postgres', 'DELETE FROM pg_dist_shard_placement WHERE shardid = 102011');
$head->safe_psql('postgres', 'INSERT INTO pg_dist_shard_placement SELECT 102011, nodename, nodeport FROM pg_dist_shard_placement WHERE shardid = 102008');
$workers[0]->safe_psql('postgres', q{
	CREATE SEQUENCE n;
	CREATE VIEW dist_102011 AS SELECT (id * nextval('n')) % 997 AS a, b, w, p FROM dist_102008});
fails(q{SELECT * FROM kmeans('dist', '{a}', 2)}, qr/ERROR:  the rows changed between two passes over them/, 'rows that change');

# points stay in a transaction with one snapshot, within the memory limit (from PostgreSQL 14 on it can be seen)
my $step = '6b6d7031' . '00000002' . '00000003' . '00000001' . '00000000' x 5 . '0000000c' . '00000000'
  . '00' x 8 . '3ff0000000000000' . '00000006' . '00000001' . '00000000' . '00000000' . '00' x 8 . '00000000' x 2;
foreach my $case ([ 'READ COMMITTED', '64MB', 0 ], [ 'REPEATABLE READ', '64MB', 1 ], [ 'REPEATABLE READ', '1MB', 1 ])
{
	my ($level, $limit, $hosts) = @$case;
	my $ask = $is_14 ? q{SELECT count(*), sum(total_bytes) > 1000000 FROM pg_backend_memory_contexts WHERE name = 'gkmeans';} : '';
	my $kept = $is_14 ? ($hosts ? '1|' . ($limit eq '64MB' ? 't' : 'f') : '0|') . "\n" : '';
	my $result = $workers[1]->safe_psql('postgres', qq{
		CREATE TABLE IF NOT EXISTS many_1 AS SELECT (i % 40)::real AS a FROM generate_series(1, 300000) i;
		CREATE TEMP TABLE answer (a bytea);
		SET gkmeans.memory_limit = '$limit';
		BEGIN ISOLATION LEVEL $level;
		INSERT INTO answer SELECT kmeans_pass('{many_1}', '{a}', '\\x$step') FROM generate_series(1, 3);
		$ask
		SELECT count(DISTINCT a) FROM answer;
		DELETE FROM many_1 WHERE a < 20;
		SELECT kmeans_pass('{many_1}', '{a}', '\\x$step') <> a FROM answer LIMIT 1});
	is($result, "${kept}1\nt", "points that stay: $level, $limit");
}

# a pass that fails, and whose error is caught, leaves no points in the transaction
my $ask = $is_14 ? q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name LIKE 'gkmeans%';} : '';
is($workers[1]->safe_psql('postgres', qq{
	CREATE VIEW zero AS SELECT (1 / (a - 5)::int)::real AS a FROM many_1 LIMIT 20;
	BEGIN ISOLATION LEVEL REPEATABLE READ;
	DO \$\$ BEGIN FOR i IN 1 .. 3 LOOP
		BEGIN PERFORM kmeans_pass('{many_1,zero}', '{a}', '\\x$step'); RAISE 'no error'; EXCEPTION WHEN division_by_zero THEN NULL; END;
	END LOOP; END \$\$;
	$ask
	SELECT length(kmeans_pass('{many_1}', '{a}', '\\x$step')) > 0;
	COMMIT; DROP VIEW zero}), $is_14 ? "0\nt" : 't', 'nothing stays of passes that failed');

# the answers of a server's shards, summed there
is($workers[0]->safe_psql('postgres', qq{
	CREATE TABLE half_1 AS SELECT (i % 40)::real AS a FROM generate_series(1, 500) i; CREATE TABLE half_2 AS SELECT (i % 40)::real AS a FROM generate_series(501, 900) i;
	CREATE TABLE halves AS SELECT * FROM half_1 UNION ALL SELECT * FROM half_2;
	SELECT kmeans_pass('{half_1,half_2}', '{a}', '\\x$step', NULL, '{0,500}') = kmeans_pass('{halves}', '{a}', '\\x$step'),
		length(kmeans_pass('{}', '{a}', '\\x$step', NULL, '{}')) > 0}), 't|t', 'kmeans_pass(): the answer of all rows');

# a job names its relations once, as long as nothing can have changed
my $again = "SELECT kmeans_pass(NULL, '{a}', '\\x$step')";
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	is($workers[0]->safe_psql('postgres', qq{
		BEGIN ISOLATION LEVEL $level;
		SELECT length(kmeans_pass('{half_1,half_2}', '{a}', '\\x$step')) > 0;
		SELECT kmeans_pass(NULL, '{a}', '\\x$step', NULL, '{0,500}') = (SELECT kmeans_pass(NULL, '{a}', '\\x$step'));
		SELECT kmeans_pass(NULL, '{a}', '\\x$step') = (SELECT kmeans_pass('{halves}', '{a}', '\\x$step'));
		SELECT kmeans_pass(NULL, '{a}', '\\x$step') = (SELECT kmeans_pass('{half_2}', '{a}', '\\x$step'))}), "t\nt\nt\nf", "relations are named once: $level");
}
is($workers[0]->safe_psql('postgres', qq{
	CREATE VIEW asking AS SELECT a FROM half_1 WHERE kmeans_pass('{half_1,half_2}', '{a}', '\\x$step') IS NOT NULL;
	BEGIN ISOLATION LEVEL REPEATABLE READ;
	SELECT length(kmeans_pass('{half_2,asking}', '{a}', '\\x$step')) > 0;
	SELECT kmeans_pass('{half_2,asking}', '{a}', '\\x$step') = kmeans_pass('{halves}', '{a}', '\\x$step') FROM generate_series(1, 2);
	COMMIT; DROP VIEW asking}), "t\nt\nt", 'a view that asks, too');
$workers[0]->safe_psql('postgres', 'CREATE ROLE other; GRANT SELECT ON half_1 TO other; ALTER TABLE half_1 ADD COLUMN b int');
foreach my $case ([ '', $again ], [ 'DELETE FROM half_2', $again ], [ 'SAVEPOINT s', $again ], [ 'SET LOCAL ROLE other', $again ],
	[ '', $again =~ s/{a}/{b}/r ], [ '', $again =~ s/\)$/, 'a')/r ], [ 'COMMIT', $again ])
{
	my ($before, $call) = @$case;
	my $named = $before eq '' && $call eq $again ? '' : "SELECT kmeans_pass('{half_1}', '{a}', '\\x$step');";
	$workers[0]->psql('postgres', "\\set VERBOSITY verbose\nBEGIN ISOLATION LEVEL REPEATABLE READ; $named $before; $call", stdout => \$out, stderr => \$err);
	like($err, qr/ERROR:  55000: no relations have been named in this transaction\nHINT: /, "no relations: $before; " . substr($call, 0, 40) . '...' . substr($call, -6));
}
foreach my $case ([ "'{half_1}', '{a}', '\\x$step', NULL, '{}'", qr/ERROR:  2202E: there are 1 relations, but 0 first_rows\nHINT:  Each relation/ ],
	[ "'{NULL}', '{a}', '\\x$step', NULL, '{0}'", qr/ERROR:  22004: relations must not contain NULLs\nHINT: / ],
	[ "'{half_1}', '{a}', '\\x$step', NULL, '{-1}'", qr/ERROR:  22023: first_row is -1.*\nHINT:  kmeans_pass\(\) is for/ ],
	[ "'{half_1}', '{a}', '\\x$step', NULL, '{NULL}'", qr/ERROR:  22004: first_rows must not contain NULLs\nHINT: / ],
	[ "'{half_1}', '{a}', NULL, NULL, '{0}'", qr/ERROR:  22004: pass must not be NULL/ ])
{
	my ($args, $pattern) = @$case;
	$workers[0]->psql('postgres', "\\set VERBOSITY verbose\nSELECT kmeans_pass($args)", stdout => \$out, stderr => \$err);
	like($err, $pattern, "kmeans_pass(): $pattern");
}

# damaged questions and answers
my $pass = $workers[0]->safe_psql('postgres', q{SELECT '\x6b6d7031'::bytea || decode(
	'00000002' || '00000001' || '00000000' || '00000000' || '00000000' || '00000000', 'hex')});
my ($whole, $half) = map { $workers[0]->safe_psql('postgres', "SELECT kmeans_pass('$_', '{a}', '$pass')") } ('{dist_102008,dist_102008,dist_102012}', '{dist_102008}');
like($whole, qr/^\\x6b6d6131/, 'a pass by hand');
foreach my $case ([ "set_byte('$pass'::bytea, 0, 1)", qr/does not begin as one does/ ],
	[ "set_byte('$pass'::bytea, 7, 3)", qr/format version 3, this gkmeans reads version 2/ ],
	[ "set_byte('$pass'::bytea, 11, 19)", qr/"kind" is 19, expected 1 to 9/ ],
	[ "set_byte('$pass'::bytea, 15, 3)", qr/"d" is 3/ ],
	[ "substr('$pass'::bytea, 1, 27)", qr/cut off, 1 bytes are missing/ ],
	[ "'$pass'::bytea || '\\x00'", qr/1 bytes too many/ ])
{
	my ($bytes, $pattern) = @$case;
	$workers[0]->psql('postgres', "SELECT kmeans_pass('{dist_102008}', '{a}', $bytes)", stdout => \$out, stderr => \$err);
	like($err, $pattern, "pass: $pattern");
}
foreach my $case ([ 'set_byte(r, 0, 1)', qr/does not begin as one does/ ],
	[ 'set_byte(r, 7, 3)', qr/format version 3, this gkmeans reads version 2/ ],
	[ 'set_byte(r, 11, 3)', qr/answers another question/ ],
	[ 'substr(r, 1, 99)', qr/cut off, \d+ bytes are missing/ ],
	[ "CAST('$half' AS bytea)", qr/it is of 1 relations, expected 3/ ],
	[ 'set_byte(r, 75, 1 + get_byte(r, 75))', qr/a relation has 1000 of 999 rows/ ],
	[ 'set_byte(r, 75, get_byte(r, 75) - 1)', qr/1 rows are of no relation/ ],
	[ q{r || '\x00'}, qr/1 bytes too many/ ])
{
	my ($change, $pattern) = @$case;
	$_->safe_psql('postgres', qq{
		DROP EXTENSION IF EXISTS gkmeans;
		CREATE OR REPLACE FUNCTION kmeans_pass(regclass[], text[], bytea, text, bigint[], text) RETURNS bytea LANGUAGE sql AS \$\$
			SELECT $change FROM CAST('$whole' AS bytea) r \$\$}) foreach @workers;
	fails(q{SELECT * FROM kmeans('dist', '{a}', 2)}, $pattern, "answer: $pattern");
}

$_->stop foreach ($head, @workers);
done_testing();
