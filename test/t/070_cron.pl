# The nightly job of docs/scheduling.md, run by the real pg_cron three times (once a
# minute: this takes three to four minutes). Skipped where pg_cron is not installed.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my $share = `pg_config --sharedir`);
plan skip_all => 'pg_cron is not installed here (Debian: apt-get install postgresql-15-cron)'
  if !-e "$share/extension/pg_cron.control";
plan skip_all => 'there is no docs/scheduling.md here' if !-e "$ENV{TESTDIR}/docs/scheduling.md";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
fsync = off
autovacuum = off
shared_preload_libraries = 'pg_cron, gkmeans'
cron.database_name = 'postgres'
cron.use_background_workers = on
});
$node->start;

# the page's own SQL
my $page = slurp_file("$ENV{TESTDIR}/docs/scheduling.md");
my @blocks = $page =~ /^```sql\n(.*?)^```/msg;
is(scalar @blocks, 3, 'the page has three blocks');
$node->safe_psql('postgres', "SET client_min_messages = warning; $_") for @blocks;
my ($call) = $page =~ /'30 3 \* \* \*', '(SELECT refit_customers\(\))'/;
ok($call, 'and a job');

$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_cron;
	INSERT INTO customers SELECT i, (i % 3) * 20 + sin(i), (i % 3) * 100 + cos(i) * 5 FROM generate_series(1, 3000) i;
});
$node->safe_psql('postgres', "SELECT cron.schedule('refit customers', '* * * * *', '$call')");

sub wait_for_runs
{
	my $n = shift;
	return $node->poll_query_until('postgres',
		"SELECT count(*) >= $n FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')");
}

ok(wait_for_runs(1), 'first run');
my $labels = $node->safe_psql('postgres', 'SELECT id % 3, min(segment), max(segment), count(*) FROM customers GROUP BY 1 ORDER BY 1');
my $places = $node->safe_psql('postgres', "SELECT md5(string_agg(ctid::text || xmin::text, ',' ORDER BY id)) FROM customers");
ok(wait_for_runs(2), 'second run');
is($node->safe_psql('postgres', "SELECT md5(string_agg(ctid::text || xmin::text, ',' ORDER BY id)) FROM customers"),
	$places, 'labels of unchanged rows are not rewritten');
# new rows, most of them in one cluster: it becomes the largest, and keeps its number
$node->safe_psql('postgres', q{
	INSERT INTO customers SELECT i, 40 + sin(i), 200 + cos(i) * 5 FROM generate_series(3001, 6000) i;
	CREATE TABLE old_rows AS SELECT id, xmin::text AS x, segment FROM customers WHERE id <= 3000;
});
ok(wait_for_runs(3), 'third run');
is($node->safe_psql('postgres', 'SELECT id % 3, min(segment), max(segment), count(*) FROM customers WHERE id <= 3000 GROUP BY 1 ORDER BY 1'),
	$labels, 'cluster numbers persist');
is($node->safe_psql('postgres', 'SELECT count(*) FROM customers c JOIN old_rows o USING (id) WHERE c.xmin::text <> o.x'), '0',
	'old rows are not rewritten');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT segment) FROM customers WHERE id > 3000 AND segment IS NOT NULL'), '3000|1',
	'new rows got their labels');
is($node->safe_psql('postgres', "SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'"), '0', 'no run failed');
is($node->safe_psql('postgres', 'SELECT count(*) >= 3, count(*) FILTER (WHERE NOT i.converged) FROM model_history, kmeans_info(model) i'),
	't|0', 'three models, all converged');
is($node->safe_psql('postgres', 'SELECT count(*) FROM not_converged'), '0', 'the page says so too');
is($node->safe_psql('postgres', 'SELECT max(grew), max(moved) < 5 FROM drift'), '3000|t', 'drift: 3,000 new rows, centroids hardly moved');

$node->stop;
done_testing();
