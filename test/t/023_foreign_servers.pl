# Partitions that are foreign tables of postgres_fdw: their servers compute where their option "extensions"
# names gkmeans, else their rows are read.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $head = PostgreSQL::Test::Cluster->new('head');
$head->init;
$head->append_conf('postgresql.conf', "fsync = off\nclient_min_messages = error");
$head->start;
plan skip_all => 'postgres_fdw is not installed'
  if $head->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'") == 0;

my @far;
foreach my $i (0, 1)
{
	my $node = PostgreSQL::Test::Cluster->new("far$i");
	$node->init;
	$node->append_conf('postgresql.conf', "fsync = off\nlog_statement = all");
	$node->start;
	push @far, $node;
}
$_->safe_psql('postgres', 'CREATE EXTENSION gkmeans') foreach ($head, @far);
$head->safe_psql('postgres', q{
	CREATE EXTENSION postgres_fdw;
	CREATE FUNCTION text_of(m kmeans_model) RETURNS text LANGUAGE sql AS $$
		SELECT (m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,device,strategy}'::text[])::text $$;
	CREATE TABLE points (part int, id int, a float8, b real, "c'" int, p float8[]) PARTITION BY LIST (part)});

# three partitions on two servers, one in a schema and with a name of its own, with two levels
sub rows { return "SELECT $_[0] AS part, i AS id, (hashint4(i) % 1000 / 7.0)::float8 AS a, (i % 31)::real AS b, (hashint4(i + 1) % 50)::int AS \"c'\", ARRAY[i % 7, i % 3]::float8[] AS p FROM generate_series($_[1], $_[2]) i" }
foreach my $i (0, 1)
{
	$head->safe_psql('postgres', "CREATE SERVER far$i FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '@{[ $far[$i]->host ]}', port '@{[ $far[$i]->port ]}', dbname 'postgres', extensions 'gkmeans');
		CREATE USER MAPPING FOR CURRENT_USER SERVER far$i");
}
$far[0]->safe_psql('postgres', 'CREATE TABLE points_1 AS ' . rows(1, 1, 4000) . '; CREATE SCHEMA "an other"; CREATE TABLE "an other"."3\'s" AS ' . rows(3, 6001, 9000));
$far[1]->safe_psql('postgres', 'CREATE TABLE points_2 AS ' . rows(2, 4001, 6000));
$head->safe_psql('postgres', q{
	CREATE FOREIGN TABLE points_1 PARTITION OF points FOR VALUES IN (1) SERVER far0;
	CREATE FOREIGN TABLE points_2 PARTITION OF points FOR VALUES IN (2) SERVER far1;
	CREATE TABLE points_3 PARTITION OF points FOR VALUES IN (3) PARTITION BY RANGE (id);
	CREATE FOREIGN TABLE points_3_all PARTITION OF points_3 FOR VALUES FROM (0) TO (100000) SERVER far0 OPTIONS (schema_name 'an other', table_name '3''s');
	CREATE TABLE here AS SELECT * FROM points});

my $columns = q{ARRAY['a', 'b', 'c''']};
sub strategy { return $head->safe_psql('postgres', "SELECT strategy FROM kmeans_info(kmeans_fit('$_[0]', $columns, 5))") }
sub same { my ($call, $name) = @_; return is($head->safe_psql('postgres', 'SELECT ' . sprintf("($call) = ($call)", 'points', 'here')), 't', $name) }

# ---- the servers compute ----

my @logged = map { -s $_->logfile } @far;
like(strategy('points'), qr/^3 shards, /, 'three foreign partitions: three shards');
foreach my $options ('', ', seed => 3, n_init => 2', q{, init => 'k-means||', standardize => true}, q{, distance => 'cosine', nonfinite => 'skip'}, q{, weight_column => 'id'})
{
	same("SELECT text_of(kmeans_fit('%s', $columns, 5 $options))", "the bits of a local copy$options");
}
same(q{SELECT text_of(kmeans_fit('%s', '{p}', 4))}, 'an array');
same("SELECT array_agg(k::text ORDER BY cluster) FROM kmeans('%s', $columns, 5) k", 'kmeans()');
same("SELECT array_agg(s::text ORDER BY k) FROM kmeans_scan('%s', $columns, 2, 4) s", 'kmeans_scan()');
same("SELECT kmeans_evaluate(kmeans_fit('here', $columns, 5), '%s')::text", 'kmeans_evaluate()');
$head->safe_psql('postgres', "CREATE TABLE m AS SELECT kmeans_fit('here', $columns, 5) AS m");
same("SELECT kmeans_step('%s', $columns, m)::text FROM m", 'kmeans_step() of a relation');
like($head->safe_psql('postgres', q{SELECT strategy FROM kmeans_info(kmeans_fit('points_2', '{a}', 2))}), qr/^1 shard, /, 'a foreign table by itself');
foreach my $i (0, 1)
{
	my $log = slurp_file($far[$i]->logfile, $logged[$i]);
	like($log, qr/kmeans_pass/, "far$i was asked");
	unlike($log, qr/DECLARE/, '... and no row was fetched');
}

# ---- rows are read ----

same("SELECT text_of(kmeans_fit('%s', $columns, 5 $_))", "read by postgres_fdw$_") foreach (q{, nulls => 'mean'}, q{, distance => 'manhattan'}, q{, fit_sample => 0.3});
same("SELECT array_agg(k::text ORDER BY cluster) FROM kmeans_balanced('%s', $columns, 5) k", 'kmeans_balanced()');
same("SELECT array_agg(g::text) FROM kmeans_grouped('%s', '{part}', $columns, 2) g", 'kmeans_grouped()');
unlike($head->safe_psql('postgres', "BEGIN; INSERT INTO points VALUES (1, 0, 1, 1, 1); SELECT strategy || ' ' || rows_used FROM kmeans_info(kmeans_fit('points', $columns, 5)); ROLLBACK"),
	qr/shard|9000$/, 'after a change in the same transaction, which is seen');
$head->safe_psql('postgres', q{ALTER FOREIGN TABLE points_2 ALTER a OPTIONS (column_name 'A')});
$far[1]->safe_psql('postgres', 'ALTER TABLE points_2 RENAME a TO "A"');
unlike(strategy('points'), qr/shard/, 'a column of another name there');
same("SELECT text_of(kmeans_fit('%s', $columns, 5))", '... the same bits');
$far[1]->safe_psql('postgres', 'ALTER TABLE points_2 RENAME "A" TO a');
$head->safe_psql('postgres', q{ALTER FOREIGN TABLE points_2 ALTER a OPTIONS (DROP column_name)});
$head->safe_psql('postgres', q{ALTER TABLE points ENABLE ROW LEVEL SECURITY; ALTER TABLE points FORCE ROW LEVEL SECURITY; CREATE POLICY odd ON points USING (id % 2 = 1);
	CREATE ROLE reader LOGIN; GRANT SELECT ON points, here TO reader; CREATE USER MAPPING FOR reader SERVER far0 OPTIONS (user 'reader', password_required 'false');
	CREATE USER MAPPING FOR reader SERVER far1 OPTIONS (user 'reader', password_required 'false')});
$_->safe_psql('postgres', 'CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader') foreach @far;
$far[0]->safe_psql('postgres', 'GRANT USAGE ON SCHEMA "an other" TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA "an other" TO reader');
is($head->safe_psql('postgres', "SET ROLE reader; SELECT rows_used || ' ' || (strategy ~ 'shard') FROM kmeans_info(kmeans_fit('points', $columns, 5))"), '4500 false', 'a policy of the table here');
$head->safe_psql('postgres', 'ALTER TABLE points DISABLE ROW LEVEL SECURITY; ALTER TABLE points NO FORCE ROW LEVEL SECURITY');
$head->safe_psql('postgres', q{CREATE TABLE points_4 PARTITION OF points FOR VALUES IN (4)});
unlike(strategy('points'), qr/shard/, 'a partition here');
$head->safe_psql('postgres', 'DROP TABLE points_4');
$head->safe_psql('postgres', q{ALTER SERVER far1 OPTIONS (DROP extensions)});
unlike(strategy('points'), qr/shard/, 'a server that does not say that it has gkmeans');
$head->safe_psql('postgres', q{ALTER SERVER far1 OPTIONS (ADD extensions 'gkmeans')});

# ---- passwords, as postgres_fdw has it ----

is($head->safe_psql('postgres', "SET ROLE reader; SELECT rows_used || ' ' || (strategy ~ '^3 shards') FROM kmeans_info(kmeans_fit('points', $columns, 5))"), '9000 true', q{password_required 'false', by a superuser});
my ($out, $err);
$head->safe_psql('postgres', q{ALTER USER MAPPING FOR reader SERVER far0 OPTIONS (DROP password_required)});
$head->psql('postgres', "\\set VERBOSITY verbose\nSET ROLE reader; SELECT kmeans_fit('points', $columns, 5)", stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  2F003: password is required\nDETAIL:  Non-superusers must provide a password.*\nHINT: /, 'no password');
$head->safe_psql('postgres', q{ALTER USER MAPPING FOR reader SERVER far0 OPTIONS (ADD password 'x')});
$head->psql('postgres', "SET ROLE reader; SELECT kmeans_fit('points', $columns, 5)", stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  password is required\nDETAIL:  Non-superusers cannot connect if the server does not request a password.\nHINT: /, 'one that nobody asked for');
$head->safe_psql('postgres', 'DROP USER MAPPING FOR reader SERVER far1');
$head->psql('postgres', "SET ROLE reader; SELECT kmeans_fit('points_2', '{a}', 5)", stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  permission denied for (foreign )?table points_2/, 'rights are those of the table here');

# ---- errors ----

$far[1]->safe_psql('postgres', 'DROP EXTENSION gkmeans');
$head->psql('postgres', "SELECT kmeans_fit('points', $columns, 5)", stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  function .*kmeans_pass.* does not exist\nHINT:  All servers need the extension gkmeans of the same version, in the same schema\.\nCONTEXT:  server "far1", which has 1 of the shards/, 'a server without gkmeans');
$far[1]->stop('immediate');
$head->psql('postgres', "SELECT kmeans_fit('points', $columns, 5)", stdout => \$out, stderr => \$err);
like($err, qr/ERROR:  no connection to the server "far1"\nDETAIL: .*\nHINT: .*\nCONTEXT:  server "far1", which has 1 of the shards/, 'a server that is lost');
is($far[0]->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gkmeans'}), 0, 'no session is left');

$_->stop('immediate') foreach ($head, @far);
done_testing();
