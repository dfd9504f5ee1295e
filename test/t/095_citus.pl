# The real Citus: a coordinator, two workers. Skipped where Citus is not installed; the same
# protocol is tested everywhere, with a mock of Citus' catalogs, by 092_shards.pl.
#
# KILLS: how often sessions and servers are killed, at moments spread over a job (default: 9).
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

chomp(my $share = `pg_config --sharedir`);
plan skip_all => 'skipped: Citus is not installed here' if !-e "$share/extension/citus.control";

my @nodes;
foreach my $i (0 .. 2)
{
	my $node = PostgreSQL::Test::Cluster->new($i == 0 ? 'coordinator' : "worker$i");
	$node->init;
	$node->append_conf('postgresql.conf', q{
fsync = off
listen_addresses = '127.0.0.1'
shared_preload_libraries = 'citus, gkmeans'
max_connections = 60
restart_after_crash = on
citus.enable_statistics_collection = off
citus.node_conninfo = 'sslmode=disable'
client_min_messages = error
});
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus; CREATE EXTENSION gkmeans');
	push @nodes, $node;
}
my $head = $nodes[0];

sub sql { return $head->safe_psql('postgres', $_[0]) }

# statements one by one: Citus passes on the text of a DDL command, which has to be one
sub psql
{
	my @statements = @_;
	my ($out, $err);
	IPC::Run::run([ 'psql', '-XAtq', '-d', $head->connstr('postgres'), map { ('-c', $_) } @statements ], '>', \$out, '2>', \$err);
	return ($out, $err);
}

sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $head->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') foreach @nodes[ 1, 2 ];
sql("SELECT citus_set_node_property('127.0.0.1', " . $head->port . ", 'shouldhaveshards', false)");

# ---- tables ----

my $columns = q{'{a,b,c}'};
sql(q{
	CREATE FUNCTION text_of(m kmeans_model) RETURNS text LANGUAGE sql AS $$
		SELECT (m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,device,strategy,columns}'::text[])::text $$});

sub make
{
	my ($table, $shards, $rows) = @_;
	sql("CREATE TABLE $table (id int, a float8, b real, c int, w float8, n float8, p float8[]); SET citus.shard_count = $shards;
		SELECT create_distributed_table('$table', 'id', colocate_with => 'none');
		INSERT INTO $table SELECT i, 10 * (i % 5) + (hashint4(i) % 10007) / 5000.0, ((i % 5) * (i % 5) + (hashint4(i + 100000) % 10007) / 3000.0)::real,
			hashint4(i + 200000) % 1000, CASE WHEN i % 11 = 0 THEN 0 WHEN i % 13 > 0 THEN 1 + i % 7 * 0.3 END,
			CASE i % 301 WHEN 7 THEN 'NaN'::float8 WHEN 8 THEN 'Infinity' ELSE i % 97 END,
			CASE WHEN i % 500 <> 7 THEN ARRAY[i % 13, (i % 7) * 0.1, i % 3]::float8[] WHEN i % 1000 = 7 THEN ARRAY[NULL, i % 7, 1]::float8[] END
		FROM generate_series(1, $rows) i");
}

# a local copy: shard after shard, each in the order of its rows
sub copy
{
	my ($table, $local) = @_;
	sql("CREATE TABLE $local (LIKE $table)");
	my $file = PostgreSQL::Test::Utils::tempdir() . '/shard';
	foreach my $shard (split /\n/, sql("SELECT shardid || ' ' || nodeport FROM pg_dist_shard JOIN pg_dist_shard_placement USING (shardid)
		WHERE logicalrelid = '$table'::regclass ORDER BY shardid"))
	{
		my ($id, $port) = split / /, $shard;
		my ($worker) = grep { $_->port == $port } @nodes;
		$worker->safe_psql('postgres', "COPY (SELECT * FROM ${table}_$id) TO '$file' (FORMAT binary)");
		sql("COPY $local FROM '$file' (FORMAT binary)");
	}
}

make("dist$_", $_, 12000) foreach (2, 7, 32);
copy("dist$_", "here$_") foreach (2, 7, 32);

# ---- bits ----

my $start = q{'{{1,0,0},{5,5,100},{20,10,-100},{30,5,500},{40,20,-500},{0,10,900}}'};
foreach my $shards (2, 7, 32)
{
	foreach my $options ('', ', seed => 3, n_init => 2', q{, init => 'k-means||'}, q{, init => 'hierarchical'}, q{, weight_column => 'w'},
		', standardize => true', q{, distance => 'cosine'}, ", centroids => $start", ", warm_start => kmeans_fit('here2', $columns, 6)")
	{
		is(sql("SELECT text_of(kmeans_fit('dist$shards', $columns, 6 $options)) = text_of(kmeans_fit('here$shards', $columns, 6 $options))"),
			't', "$shards shards: the bits of a local copy$options");
	}
}
sql(q{SELECT citus_move_shard_placement(shardid, nodename, nodeport, n, p, 'block_writes')
	FROM (SELECT s.shardid, p.nodename, p.nodeport, w.nodename AS n, w.nodeport AS p FROM pg_dist_shard s JOIN pg_dist_shard_placement p USING (shardid)
		JOIN pg_dist_node w ON w.shouldhaveshards AND w.nodeport <> p.nodeport WHERE logicalrelid = 'dist7'::regclass ORDER BY 1 LIMIT 1) m});
is(sql("SELECT text_of(kmeans_fit('dist7', $columns, 6)) = text_of(kmeans_fit('here7', $columns, 6))"), 't', 'the same after a shard has moved');

# ---- measures of quality, groups ----

foreach my $shards (7, 32)
{
	foreach my $options ('', q{, weight_column => 'w', sample => 500}, ', standardize => true, n_init => 2')
	{
		is(sql("SELECT (SELECT array_agg(s::text) FROM kmeans_scan('dist$shards', $columns, 1, 7, step => 3 $options) s) =
			(SELECT array_agg(s::text) FROM kmeans_scan('here$shards', $columns, 1, 7, step => 3 $options) s)"), 't', "$shards shards: kmeans_scan()$options");
	}
	is(sql("SELECT (SELECT e::text FROM kmeans_evaluate(m, 'dist$shards') e) = (SELECT e::text FROM kmeans_evaluate(m, 'here$shards') e), kmeans_svg(m, 'dist$shards') = kmeans_svg(m, 'here$shards')
		FROM kmeans_fit('here2', $columns, 5) m"), 't|t', "$shards shards: kmeans_evaluate(), kmeans_svg()");
	is(sql("SELECT kmeans_scan_svg('dist$shards', $columns, 2, 4) = kmeans_scan_svg('here$shards', $columns, 2, 4)"), 't', "$shards shards: kmeans_scan_svg()");
}
sql(q{CREATE TABLE visits (shop int, day date, name text, a float8, b float8); SET citus.shard_count = 12; SELECT create_distributed_table('visits', 'shop', colocate_with => 'none');
	INSERT INTO visits SELECT i % 97, date '2026-01-01' + i % 3, CASE WHEN i % 7 > 0 THEN 'a "' || i % 5 END, hashint4(i) % 1000 / 7.0, i % 31 FROM generate_series(1, 20000) i});
copy('visits', 'visits_here');
foreach my $group_by ('shop', 'shop,day', 'name,shop')
{
	my $result = "SELECT array_agg(g::text) FROM kmeans_grouped('%s', '{$group_by}', '{a,b}', 3) g";
	is(sql(sprintf("SELECT ($result) = ($result)", 'visits', 'visits_here')), 't', "kmeans_grouped() by $group_by: where the rows are");
	is(sql(sprintf("SET citus.log_remote_commands = on; SET citus.grep_remote_commands = '%%visits%%'; SET client_min_messages = notice; $result", 'visits')) =~ /NOTICE/ ? 1 : 0, 0, '... and no query of Citus brings them');
}
is(sql(q{SELECT (SELECT array_agg(g::text) FROM kmeans_grouped('visits', '{day}', '{a,b}', 1, centroids => '{{1,1}}') g) = (SELECT array_agg(g::text) FROM kmeans_grouped('visits_here', '{day}', '{a,b}', 1, centroids => '{{1,1}}') g)}),
	't', 'kmeans_grouped() by another column: here');

# ---- own changes ----

foreach my $change ('TRUNCATE dist7', 'INSERT INTO dist7 VALUES (1)', 'UPDATE dist7 SET a = 1', 'DELETE FROM dist7 WHERE id = 1',
	'ALTER TABLE dist7 ADD COLUMN z int', 'ALTER TABLE dist7 RENAME COLUMN w TO ww', 'REINDEX TABLE dist7', 'ALTER TABLE dist7 ENABLE ROW LEVEL SECURITY',
	"SELECT create_distributed_table('here7', 'id', colocate_with => 'none')")
{
	my $table = $change =~ /here7/ ? 'here7' : 'dist7';
	my $began = time;
	my ($out, $err) = psql('BEGIN', $change, "SELECT kmeans_fit('$table', $columns, 6)");
	like($err, qr/ERROR:  "$table" was created, changed or locked by this transaction.*\nDETAIL: .*\nHINT:  Commit first/, "$change: refused");
	cmp_ok(time - $began, '<', 5, '... at once');
}
foreach my $nothing ('CREATE INDEX ON dist7 (a)', 'SELECT count(*) FROM dist7', 'CREATE SCHEMA new', 'LOCK TABLE dist7 IN SHARE MODE')
{
	my ($out, $err) = psql('BEGIN', $nothing, "SELECT count(*) FROM kmeans('dist7', $columns, 6)");
	like($out, qr/^6$/m, "$nothing: nothing that matters to a reader");
}

# ---- waits ----

my ($shard, $port) = split / /, sql(q{SELECT 'dist7_' || shardid || ' ' || nodeport FROM pg_dist_shard JOIN pg_dist_shard_placement USING (shardid)
	WHERE logicalrelid = 'dist7'::regclass ORDER BY shardid LIMIT 1});
my ($owner) = grep { $_->port == $port } @nodes;
my $locker = $owner->background_psql('postgres');
$locker->query_safe("SET citus.$_ = on") foreach ('allow_unsafe_locks_from_workers', 'enable_manual_changes_to_shards');
$locker->query_safe('SET citus.enable_ddl_propagation = off');
$locker->query_safe("BEGIN; LOCK TABLE $shard");
foreach my $limit ('lock_timeout', 'statement_timeout')
{
	my $began = time;
	my ($out, $err) = psql("SET $limit = 300", "SELECT kmeans_fit('dist7', $columns, 6)");
	my $what = $limit =~ s/_/ /r;
	like($err, qr/ERROR:  canceling statement due to $what/, "another session's lock: $limit");
	cmp_ok(time - $began, '<', 3, '... in time');
}
$locker->quit;

sub sessions
{
	return join ' ', map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gkmeans'}) } @nodes[ 1, 2 ];
}

sub job
{
	my ($sql) = @_;
	my %job = (out => '', err => '');
	$job{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $head->connstr('postgres'), '-c', $sql ], '>', \$job{out}, '2>', \$job{err});
	return \%job;
}

# nothing is left on any node but the answer to the next question
sub clean
{
	my ($name) = @_;
	$_->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'gkmeans'}) foreach @nodes;
	is(sessions(), '0 0', "$name: no session is left");
	is(join(' ', map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) JOIN pg_class c ON c.oid = relation AND relnamespace = 'public'::regnamespace WHERE pid <> pg_backend_pid() AND backend_type !~ 'autovacuum'}) } @nodes),
		'0 0 0', '... no lock');
	is(join(' ', map { scalar grep { !m{/t3_}x } glob($_->data_dir . '/base/pgsql_tmp/*') } @nodes), '0 0 0', '... no file');
	is(sql("SELECT text_of(kmeans_fit('dist7', $columns, 6)) = text_of(kmeans_fit('here7', $columns, 6))"), 't', '... and the next job is answered');
}

# a job of many passes, which does not end by itself for long
make('big', 8, 400000);
my $long = q{SELECT kmeans_fit('big', '{a,b,c}', 300, tol => 0, n_init => 1000, max_iter => 1000000)};

# sessions to ask by, since a psql takes longer to start than a cancel may take
my %asked = map { $_ => $_->background_psql('postgres') } @nodes;
$asked{$_}->query_safe("SET application_name = 'asking'") foreach @nodes;

sub at_work
{
	return join ' ', map { $asked{$_}->query_safe(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gkmeans' AND state = 'active'}) } @nodes[ 1, 2 ];
}

{
	my @took;
	foreach my $attempt (1 .. 5)
	{
		my $job = job($long);
		sleep(0.01) while at_work() !~ /1/;
		if ($attempt == 1)
		{
			is(sessions(), '1 1', 'a job has one session on each node');
			like(sql('SELECT relation FROM gkmeans_progress'), qr/^big$/, 'its progress is on the coordinator');
		}
		my $began = time;
		$asked{$head}->query_safe(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT kmeans_fit(''big%'});
		sleep(0.002) while at_work() ne '0 0' && time - $began < 10;
		push @took, time - $began;
		$job->{run}->finish;
		like($job->{err}, qr/canceling statement due to user request/, 'cancelled') if $attempt == 1;
		last if $took[-1] < 0.2;
	}
	# another job of this machine may be in the way of some attempts
	cmp_ok($took[-1], '<', 0.2, 'a cancel has reached all workers within 200 ms: ' . join(', ', map { sprintf '%.0f ms', 1000 * $_ } @took));
	clean('cancelled');
}

# ---- statements that lock the table, while a job reads it: one after the other, whichever node they come from ----

make('contended', 8, 200000);
foreach my $case ([ 0, 'ALTER TABLE contended ADD COLUMN more int' ], [ 0, 'TRUNCATE contended' ], [ 1, 'TRUNCATE contended' ])
{
	my ($from, $statement) = @$case;
	sql('INSERT INTO contended (id, a, b, c) SELECT i, i % 10, i % 31, i % 7 FROM generate_series(1, 200000) i') if sql('SELECT count(*) FROM contended') == 0;
	my $job = job(q{SELECT (kmeans_info(kmeans_fit('contended', '{a,b,c}', 150, init => 'random', tol => 0, max_iter => 25))).rows_used});
	sleep(0.01) while at_work() !~ /1/;
	my $began = time;
	my ($status, $out, $err) = $nodes[$from]->psql('postgres', "SET lock_timeout = '60s'; $statement");
	is($status, 0, "$statement during a job, from node $from: it comes after the job") or diag($err);
	$job->{run}->finish;
	is($job->{out}, "200000\n", '... which has the rows of its beginning') or diag($job->{err});
	cmp_ok(time - $began, '<', 60, '... and no deadlock ends either of them');
}

# ---- errors of a worker ----

{
	my ($out, $err) = psql(q{SELECT kmeans_fit('dist7', '{n}', 3)});
	like($err, qr/ERROR:  .*(NaN|infinit).*\n(DETAIL: .*\n)?HINT: .*nonfinite.*\nCONTEXT:  server \S+:\d+, which has \d of the shards/i, 'an error of a worker has its hint');
}

# ---- what dies ----

my $kills = $ENV{KILLS} // 9;
my %killed_in;

# Start a long job, and kill at moments that are spread over its connecting, its seeding and its iterations, which
# come soon in every other job.
sub killing
{
	my ($number, $of) = @_;
	my $job = job($number % 2 ? $long : $long =~ s/tol/init => 'random', tol/r);
	sleep(0.02 + 1.6 * $number / $of);
	my $phase = $asked{$head}->query_safe('SELECT phase FROM gkmeans_progress');
	$killed_in{ $phase eq '' ? 'before its first row' : $phase }++;
	return $job;
}

my $per_kind = $kills < 3 ? 1 : int($kills / 3);
foreach my $number (1 .. $per_kind)
{
	my $job = killing($number, $per_kind);
	my $pid = $asked{ $nodes[1] }->query_safe(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'gkmeans' AND backend_type = 'client backend'});
	if ($pid ne '')
	{
		delete $asked{ $nodes[1] };
		kill 'KILL', $pid;
	}
	else
	{
		sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT kmeans_fit(''big%' AND pid <> pg_backend_pid()});
	}
	$job->{run}->finish;
	like($job->{err}, qr/ERROR:  (no connection to the server|terminating connection)/, "kill -9 of a worker's session") if $pid ne '';
	$nodes[1]->poll_query_until('postgres', 'SELECT true');
	$asked{ $nodes[1] } //= $nodes[1]->background_psql('postgres');
	clean("a worker's session is killed");
}
foreach my $number (1 .. $per_kind)
{
	my $job = killing($number, $per_kind);
	delete $asked{ $nodes[2] };
	$nodes[2]->stop('immediate');
	$job->{run}->finish;
	like($job->{err}, qr/ERROR:  (no connection to the server|terminating connection|connection|the database system)/, 'a worker that stops at once');
	my ($out, $err) = psql("SELECT kmeans_fit('dist7', $columns, 6)");
	like($err, qr/ERROR:  no connection to the server \S+\nDETAIL: .*\nHINT: /, 'a worker that is not there');
	$nodes[2]->start;
	$asked{ $nodes[2] } = $nodes[2]->background_psql('postgres');
	clean('a worker is lost');
}
foreach my $number (1 .. $per_kind)
{
	my $job = killing($number, $per_kind);
	my $pid = $asked{$head}->query_safe(q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT kmeans_fit(''big%'});
	delete $asked{$head};
	kill 'KILL', $pid;
	$job->{run}->finish;
	$head->poll_query_until('postgres', 'SELECT true');
	$asked{$head} = $head->background_psql('postgres');
	clean("kill -9 of the coordinator's session");
}
diag(3 * $per_kind . ' kills: ' . join(', ', map { "$killed_in{$_} in phase '$_'" } sort keys %killed_in)) if defined $ENV{KILLS};

# ---- a table that is written to ----

# One writer commits rows one after the other, so what a node's snapshot has of them is those on this node up to
# one of them. The two snapshots are milliseconds apart: the job's rows are those of one of a few pairs of
# moments, and its bits have to be those of a local copy of the rows of such a pair.
{
	my $given = 'centroids => (SELECT array_agg(ARRAY[i % 10 * 5, i / 10 * 9.1, i * 11 - 500]) FROM generate_series(0, 79) i), tol => 0, max_iter => 60';
	my $fit = sub { return "kmeans_fit('$_[0]', $columns, 80, $given)" };
	make('live', 8, 60000);
	sql('CREATE TABLE live_here AS SELECT * FROM live');
	my $values = sub { my ($i) = @_; return sprintf('(%d, %d, %s, %d)', 100000 + $i, $i % 50, ($i * 37 % 400) / 10, $i * 7919 % 1000) };
	my $statements = join '', map { 'echo "INSERT INTO live (id, a, b, c) VALUES ' . $values->($_) . ';"; sleep 0.02;' } 1 .. 300;
	my $writer = IPC::Run::start([ 'bash', '-c', "($statements) | psql -XAtq -d '" . $head->connstr('postgres') . "'" ]);
	sleep(0.5);
	my $before = sql('SELECT count(*) FROM live');
	my ($used, $answer) = split /\|/, sql("SELECT (kmeans_info(m)).rows_used, md5(text_of(m)) FROM (SELECT " . $fit->('live') . ' AS m OFFSET 0) f');
	my $after = sql('SELECT count(*) FROM live');
	$writer->kill_kill;
	cmp_ok($used, '>=', $before, 'a job among 50 INSERTs a second ends, with the rows of its beginning');
	cmp_ok($used, '<', $after, '... and without those that came later');

	sql('CREATE TABLE written (i int, a float8, b real, c int, port int)');
	sql('INSERT INTO written VALUES ' . join ',', map { "($_, " . ($values->($_) =~ s/^\(\d+, //r) =~ s/\)$/, 0)/r } 1 .. 300);
	sql(q{UPDATE written SET port = nodeport FROM pg_dist_shard_placement WHERE shardid = get_shard_id_for_distribution_column('live', 100000 + i)});
	my $m = $used - 60000;
	my %tried;
	foreach my $first ($m - 3 .. $m + 3)
	{
		foreach my $second ($m - 3 .. $m + 3)
		{
			my $seen = "port = (SELECT min(port) FROM written) AND i <= $first OR port = (SELECT max(port) FROM written) AND i <= $second";
			my $rows = sql("SELECT string_agg(i::text, ',' ORDER BY i) FROM written WHERE $seen");
			next if !defined $rows || $rows eq '' || ($rows =~ tr/,//) + 1 != $m || exists $tried{$rows};
			$tried{$rows} = sql("CREATE TABLE snapshot AS SELECT a, b, c FROM live_here UNION ALL SELECT a, b, c FROM written WHERE $seen; SELECT md5(text_of(" . $fit->('snapshot') . ')); DROP TABLE snapshot');
		}
	}
	is((grep { $_ eq $answer } values %tried) + 0, 1, 'its bits are those of a local copy of its snapshots, of ' . scalar(keys %tried) . ' that can be');
	my %different = map { $_ => 1 } values %tried;
	is(keys %different, keys %tried, '... whose bits differ');
}

# ---- shards that have copies ----

sql('SET citus.shard_replication_factor = 2; ' . q{CREATE TABLE twice (LIKE dist7); SET citus.shard_count = 5; SELECT create_distributed_table('twice', 'id', colocate_with => 'none')});
sql('INSERT INTO twice SELECT * FROM dist7');
sql('CREATE TABLE twice_here AS SELECT * FROM twice');
{
	my $fit = "text_of(kmeans_fit('%s', $columns, 6, centroids => $start))";
	my $same = 'SELECT ' . sprintf("$fit = $fit", 'twice', 'twice_here');
	is(sql($same), 't', 'shards with two copies');
	$nodes[1]->stop('immediate');
	my ($out, $err) = psql('SET client_min_messages = warning', $same);
	is($out, "t\n", 'a server is lost: the copies on the other one answer');
	like($err, qr/^WARNING:  no connection to the server \S+, other servers answer for it\nDETAIL:  They have copies? of its \d shards?\.\n$/, '... with a warning');
	$nodes[1]->start;
	$asked{ $nodes[1] } = $nodes[1]->background_psql('postgres');
	is(sql($same), 't', '... and back again');
}

# ---- labels ----

sub labels { return sql("SELECT md5(string_agg(id || ' ' || coalesce(label::text, '-'), ',' ORDER BY id)) FROM $_[0]") }

# with given centroids: an UPDATE changes the order of the rows, on which seeds depend
foreach my $options ('', q{, weight_column => 'w'}, q{, distance => 'cosine'})
{
	sql("SELECT * FROM kmeans('$_', $columns, 6, label_column => 'label', centroids => $start $options)") foreach ('dist7', 'here7');
	is(labels('dist7'), labels('here7'), "label_column: the labels of a local copy$options");
}
foreach my $case ([ '{p}', q{, centroids => '{{0,0,0},{5,0.5,1},{12,0.3,2}}'} ], [ '{a,n}', q{, nonfinite => 'skip', centroids => '{{0,0},{20,90},{40,3}}'} ])
{
	my ($which, $options) = @$case;
	sql("SELECT * FROM kmeans('$_', '$which', 3, label_column => 'label' $options)") foreach ('dist7', 'here7');
	is(labels('dist7'), labels('here7'), "rows that are left out have NULL: $which");
	sql("SELECT * FROM kmeans_label_table('$_', '$which', 3, 'labels_$_', '{id}' $options); ALTER TABLE labels_$_ RENAME cluster TO label") foreach ('dist7', 'here7');
	is(labels('labels_dist7'), labels('here7'), "kmeans_label_table(): $which");
	sql('DROP TABLE labels_dist7, labels_here7');
}
# rows of columnar have no ctid
sql(q{CREATE EXTENSION IF NOT EXISTS citus_columnar; CREATE TABLE column_here (LIKE here7) USING columnar; CREATE TABLE column_dist (LIKE here7) USING columnar;
	SELECT create_distributed_table('column_dist', 'id', colocate_with => 'none'); INSERT INTO column_here SELECT * FROM here7; INSERT INTO column_dist SELECT * FROM here7});
foreach ('here7', 'column_here', 'column_dist')
{
	sql("SELECT * FROM kmeans_label_table('$_', $columns, 6, 'labels_$_', '{id}', centroids => $start); ALTER TABLE labels_$_ RENAME cluster TO label");
	is(labels("labels_$_"), labels('labels_here7'), "kmeans_label_table(): $_ has the labels of a local heap") if $_ ne 'here7';
}
sql('DROP TABLE labels_here7, labels_column_here, labels_column_dist, column_here, column_dist');
{
	my $before = labels('dist7');
	psql('BEGIN', "SELECT count(*) FROM kmeans('dist7', $columns, 3, label_column => 'label')", 'ROLLBACK');
	is(labels('dist7'), $before, "labels are the caller's transaction's");
	psql('BEGIN', "SELECT count(*) FROM kmeans('dist7', $columns, 3, label_column => 'new')", 'ROLLBACK');
	is(sql(q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'dist7'::regclass AND attname = 'new'}), 0, 'so is a column');
}
sql(q{CREATE TABLE ref AS SELECT * FROM here7; SELECT create_reference_table('ref'); CREATE TABLE alone AS SELECT * FROM here7; SELECT citus_add_local_table_to_metadata('alone')});
foreach my $table ('ref', 'alone')
{
	sql("SELECT * FROM kmeans('$_', $columns, 6, label_column => 'label', centroids => $start)") foreach ($table, 'here7');
	is(labels($table), labels('here7'), "label_column of \"$table\"");
}
is(sql('SELECT count(DISTINCT result) FROM run_command_on_all_nodes($$SELECT md5(string_agg(id || label::text, $q$,$q$ ORDER BY id)) FROM ref$$)'), 1, 'a reference table has the same on all nodes');
{
	my ($out, $err) = psql(qq{SELECT * FROM kmeans_labels('dist7', $columns, 5)});
	like($err, qr/ERROR:  "dist7" is a table of Citus, whose rows cannot be labelled by ctid\nHINT:  Use label_column, kmeans_label_table\(\)/, 'kmeans_labels() says what to use');
	($out, $err) = psql(qq{SELECT * FROM kmeans_balanced('ref', $columns, 5, label_column => 'label')});
	like($err, qr/ERROR:  kmeans_balanced\(\) cannot label "ref", a table of Citus\nDETAIL: .*\nHINT: /, 'balanced labels are refused');
}

# ---- more shards than connections ----

make('many', 200, 2000);
is(sql("SELECT (kmeans_info(kmeans_fit('many', $columns, 5))).rows_used"), 2000, '200 shards, 60 connections');

$_->stop('immediate') foreach @nodes;
done_testing();
