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

# the page's own SQL, all of it in order, with 500 new customers and 10 that changed; its
# jobs are inactive from the start, so that none runs here because its hour has come
$node->safe_psql('postgres', 'CREATE EXTENSION pg_cron');
my $page = slurp_file("$ENV{TESTDIR}/docs/scheduling.md");
my @blocks = $page =~ /^```sql\n(.*?)^```/msg;
is(scalar @blocks, 12, 'the page has twelve blocks');
$node->safe_psql('postgres', "SET client_min_messages = warning;
	BEGIN; $_; UPDATE cron.job SET active = false; COMMIT") for @blocks;
is($node->safe_psql('postgres', 'SELECT jobname, schedule FROM cron.job ORDER BY jobid'),
	"refit customers|30 3 * * *\nupdate customers|*/10 * * * *\nforget models|0 4 1 * *\nforget runs|10 4 * * *", 'and four jobs');
is($node->safe_psql('postgres', 'SELECT relabelled, added, total FROM relabelled ORDER BY made'),
	"0|3000|3000\n10|500|3500", 'by hand: what was labelled and relabelled');

is($node->safe_psql('postgres', q{SELECT i.rows_used, last_id FROM live_model, kmeans_info(model) i; SELECT update_customers(); SELECT i.rows_used FROM live_model, kmeans_info(model) i}),
	"3700|3700\n\n3700", 'new rows are in the model, once');
$node->safe_psql('postgres', q{DELETE FROM customers WHERE id > 3500});

# the same job, but every minute
my ($call) = $page =~ /'30 3 \* \* \*', '(SELECT refit_customers\(\))'/;
$node->safe_psql('postgres', "SELECT cron.schedule('refit customers every minute', '* * * * *', '$call')");

sub wait_for_runs
{
	my $n = shift;
	return $node->poll_query_until('postgres',
		"SELECT count(*) >= $n FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')");
}

# where each row lies and which transaction wrote it: another text when a row was written
my $rows = q{SELECT md5(string_agg(ctid::text || xmin::text || segment, ',' ORDER BY id)) FROM customers};
my $places = $node->safe_psql('postgres', $rows);
ok(wait_for_runs(1), 'first run');
is($node->safe_psql('postgres', $rows), $places, 'no row is written, as no label changes');
ok(wait_for_runs(2), 'second run');
is($node->safe_psql('postgres', $rows), $places, 'nor again');
# new rows, all of them in one cluster: it becomes the largest by far, and keeps its
# number; and five rows that move to another cluster
my $labels = $node->safe_psql('postgres', 'SELECT id % 3, min(segment), max(segment), count(*) FROM customers WHERE id <= 3000 AND id % 300 <> 1 GROUP BY 1 ORDER BY 1');
$node->safe_psql('postgres', q{
	INSERT INTO customers SELECT i, 40 + sin(i), 200 + cos(i) * 5 FROM generate_series(3501, 6500) i;
	UPDATE customers SET visits = visits + 20, spent = spent + 100 WHERE id IN (3, 6, 9, 12, 15);
	CREATE TABLE old_rows AS SELECT id, xmin::text AS x, segment FROM customers WHERE segment IS NOT NULL;
});
ok(wait_for_runs(3), 'third run');
is($node->safe_psql('postgres', 'SELECT id % 3, min(segment), max(segment), count(*) FROM customers WHERE id <= 3000 AND id % 300 <> 1 AND id NOT IN (3, 6, 9, 12, 15) GROUP BY 1 ORDER BY 1'),
	$labels =~ s/^(0\|\d\|\d\|)(\d+)/$1 . ($2 - 5)/er, 'cluster numbers persist');
is($node->safe_psql('postgres', 'SELECT string_agg(id::text, chr(44) ORDER BY id) FROM customers c JOIN old_rows o USING (id) WHERE c.xmin::text <> o.x'),
	'3,6,9,12,15', 'of the old rows only those with another label are written');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT segment) FROM customers WHERE id > 3500 AND segment IS NOT NULL'), '3000|1',
	'new rows got their labels');
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM customers WHERE segment IS DISTINCT FROM
		kmeans_predict((SELECT model FROM model_history ORDER BY made DESC LIMIT 1), visits, spent)}), '0',
	'labels are those of the latest model');
is($node->safe_psql('postgres', q{SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'}), '0', 'no run failed');
is($node->safe_psql('postgres', 'SELECT count(*) >= 5, count(*) FILTER (WHERE NOT i.converged) FROM model_history, kmeans_info(model) i'),
	't|0', 'two models by hand and three of the job, all converged');
is($node->safe_psql('postgres', 'SELECT relabelled, added, total FROM relabelled WHERE added > 0 ORDER BY made DESC LIMIT 1'), '5|3000|6500',
	'the share of relabelled rows');
is($node->safe_psql('postgres', 'SELECT max(grew), max(moved) < 5 FROM movement'), '3000|t', 'movement: 3,000 rows more, centroids hardly moved');
is($node->safe_psql('postgres', 'SELECT count(*) FROM not_converged'), '0', 'no alert');
$node->safe_psql('postgres', q{
	SET client_min_messages = error;
	INSERT INTO model_history (model) VALUES (kmeans_fit('customers', '{visits,spent}', 9, init => 'random', max_iter => 1))});
is($node->safe_psql('postgres', 'SELECT count(*) FROM not_converged'), '1', 'a fit that did not converge raises one');

$node->stop;
done_testing();
