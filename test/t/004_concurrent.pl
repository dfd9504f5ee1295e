# Labels are written like any UPDATE: beside others' updates, by their isolation level.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION gkmeans;
	CREATE TABLE pts (id int PRIMARY KEY, x float8, note text, label int);
	INSERT INTO pts SELECT i, i % 2 * 100 + i % 5, 'old', -1 FROM generate_series(1, 1000) i;
});

# Runs the labelling while another transaction has done something, and commits when
# the labelling waits for it.
sub label_while
{
	my ($begin, $work, $relation) = @_;
	my ($other_in, $other_out, $other_err) = ('', '', '');
	my ($out, $err) = ('', '');

	my $other = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$other_in, '>', \$other_out, '2>', \$other_err);
	$other_in .= "BEGIN; $work; SELECT 'updated';\n";
	$other->pump until $other_out =~ /updated/;

	# a pipe would be fed only while this script waits for it
	my $labeller = IPC::Run::start(
		[   'psql', '-XAtq', '-d', $node->connstr('postgres'),
			'-c', q{SET application_name = 'labeller'}, '-c', $begin,
			'-c', "SELECT count(*) FROM kmeans('$relation', '{x}', 2, label_column => 'label', centroids => '{{0},{100}}')",
			'-c', 'COMMIT'
		],
		'>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_stat_activity
		WHERE application_name = 'labeller' AND wait_event_type = 'Lock'})
	  or die 'the labeller does not wait for the other transaction';
	$other_in .= "COMMIT;\n\\q\n";
	$other->finish;
	$labeller->finish;
	return ($out, $err);
}

# rows whose label is not that of their x, by id
my $wrong = q{SELECT coalesce(string_agg(id || ':' || coalesce(label::text, 'NULL'), ' ' ORDER BY id), '')
	FROM %s WHERE label IS DISTINCT FROM (x > 50)::int};

# Read committed: the labels go to the newest versions of the rows, beside whatever the
# other transaction has written there; they are labels of what the snapshot had.
my $work = q{UPDATE pts SET note = 'new' WHERE id IN (7, 8); UPDATE pts SET x = 100 - x WHERE id = 20;
	UPDATE pts SET id = 5000 WHERE id = 30; UPDATE pts SET label = 1 WHERE id = 40; DELETE FROM pts WHERE id = 50;
	INSERT INTO pts VALUES (2000, 100, 'new', -1)};
my ($out, $err) = label_while('BEGIN ISOLATION LEVEL READ COMMITTED', $work, 'pts');
is($err, '', 'read committed: no error');
is($out, "2\n", 'read committed: a result');
is($node->safe_psql('postgres', sprintf($wrong, 'pts')), '20:0 2000:-1',
	'read committed: every row of the snapshot has its label');
is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE note = 'new'), count(*) FILTER (WHERE id = 5000) FROM pts}),
	'1000|3|1', "read committed: the other transaction's work is kept");

# once more, with a row trigger, which asks for the newest version before the UPDATE does
$node->safe_psql('postgres', q{
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := NEW.note || '+'; RETURN NEW; END $$;
	CREATE TRIGGER touch BEFORE UPDATE ON pts FOR EACH ROW WHEN (current_setting('application_name') = 'labeller') EXECUTE FUNCTION touch();
	UPDATE pts SET label = -1, note = 'old'});
($out, $err) = label_while('BEGIN ISOLATION LEVEL READ COMMITTED', q{UPDATE pts SET note = 'new' WHERE id IN (7, 8)}, 'pts');
is($err, '', 'row trigger: no error');
is($node->safe_psql('postgres', sprintf($wrong, 'pts')), '', 'row trigger: every row has its label');
is($node->safe_psql('postgres', q{SELECT note, count(*) FROM pts GROUP BY 1 ORDER BY 1}), "new+|2\nold+|998",
	'row trigger: it has seen the newest versions');
$node->safe_psql('postgres', 'DROP TRIGGER touch ON pts');

# Two calls with one label column: the second waits for the first one's transaction, and reads what it left. Its
# statement began before: with that snapshot it would not know which labels change. Then the same with a column that
# both find missing, for which each would need the table alone.
$node->safe_psql('postgres', q{
	CREATE TABLE twice (id int, x float8, label int);
	INSERT INTO twice SELECT i, i % 3 * 100 + i % 5, (i % 3 * 100 + i % 5 > 50)::int FROM generate_series(1, 900) i});
for my $case ([ 'label', 'a column' ], [ 'made', 'a missing column' ])
{
	my ($column, $what) = @$case;
	my ($other_in, $other_out, $other_err) = ('', '', '');
	my ($second, $second_err) = ('', '');
	my $call = "SELECT count(*) FROM kmeans('twice', '{x}', %d, label_column => '$column', centroids => '%s')";
	my $other = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$other_in, '>', \$other_out, '2>', \$other_err);
	$other_in .= 'BEGIN; ' . sprintf($call, 3, '{{0},{100},{200}}') . "; SELECT 'labelled';\n";
	$other->pump until $other_out =~ /labelled/ || $other_err;
	my $labeller = IPC::Run::start(
		[   'psql', '-XAtq', '-d', $node->connstr('postgres'),
			'-c', "SET application_name = 'second'", '-c', sprintf($call, 2, '{{0},{200}}') ],
		'>', \$second, '2>', \$second_err);
	ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_stat_activity
		WHERE application_name = 'second' AND wait_event_type = 'Lock' AND wait_event = 'advisory'}),
		"$what: the second call waits for the first one's transaction");
	$other_in .= "COMMIT;\n\\q\n";
	$other->finish;
	$labeller->finish;
	is("$other_err$second_err$second", "2\n", "$what: no error");
	is($node->safe_psql('postgres', "SELECT count(*) FROM twice WHERE $column IS DISTINCT FROM (x > 50)::int"),
		'0', "$what: all labels are the second call's");
}

# partitions
$node->safe_psql('postgres', q{
	CREATE TABLE part (id int, x float8, note text, label int) PARTITION BY RANGE (id);
	CREATE TABLE part_a PARTITION OF part FOR VALUES FROM (0) TO (500);
	CREATE TABLE part_b (label int, x float8, id int, note text);
	ALTER TABLE part ATTACH PARTITION part_b FOR VALUES FROM (500) TO (2000);
	INSERT INTO part SELECT i, i % 2 * 100 + i % 5, 'old', -1 FROM generate_series(1, 1000) i});
($out, $err) = label_while('BEGIN ISOLATION LEVEL READ COMMITTED', q{UPDATE part SET note = 'new' WHERE id IN (7, 8, 777)}, 'part');
is($err, '', 'partitions: no error');
is($node->safe_psql('postgres', sprintf($wrong, 'part')), '', 'partitions: every row has its label');
$node->safe_psql('postgres', q{UPDATE part SET label = -1});
($out, $err) = label_while('BEGIN ISOLATION LEVEL READ COMMITTED', q{UPDATE part SET id = 1500 WHERE id = 9}, 'part');
like($err, qr/ERROR:  tuple to be locked was already moved to another partition|ERROR:  tuple to be updated was already moved to another partition/,
	'partitions: a row that moves away, the usual error');

# repeatable read
$node->safe_psql('postgres', q{UPDATE pts SET label = -1, note = 'old'});
($out, $err) = label_while('BEGIN ISOLATION LEVEL REPEATABLE READ', q{UPDATE pts SET note = 'new' WHERE id IN (7, 8)}, 'pts');
like($err, qr/ERROR:  could not serialize access due to concurrent update/, 'repeatable read: the usual error');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pts WHERE label <> -1}), '0', 'repeatable read: no label');

# an error in the UPDATE leaves nothing behind in the session
$node->safe_psql('postgres', q{ALTER TABLE pts ADD CONSTRAINT c CHECK (label < 1) NOT VALID});
($out, $err) = ('', '');
$node->psql('postgres', q{
	SELECT count(*) FROM kmeans('pts', '{x}', 2, label_column => 'label', centroids => '{{0},{100}}');
	SELECT gkmeans_new_label(0, '(0,1)');
	ALTER TABLE pts DROP CONSTRAINT c;
	SELECT count(*) FROM kmeans('pts', '{x}', 2, label_column => 'label', centroids => '{{0},{100}}');
}, stdout => \$out, stderr => \$err, on_error_stop => 0);
like($err, qr/violates check constraint "c".*this function is only for the UPDATE/s, 'after an error nothing is being written');
is($out, '2', 'and labels can be written again');

# kmeans_from_table() at one place of PL/pgSQL: a snapshot that sees another transaction's commit sees its centroids
$node->safe_psql('postgres', q{
	CREATE TABLE centres AS SELECT cluster, centroid FROM (VALUES (0, 0.0), (1, 100.0)) c (cluster, centroid);
	CREATE FUNCTION labels_around_a_lock() RETURNS int[] LANGUAGE plpgsql AS $$
	DECLARE
		labels int[] := '{}';
	BEGIN
		FOR i IN 1..3 LOOP
			labels := labels || kmeans_predict(kmeans_from_table('centres'), 90);
			IF i = 2 THEN
				LOCK TABLE pts;
			END IF;
		END LOOP;
		RETURN labels;
	END $$});
for my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my ($other_in, $other_out) = ('', '');
	my ($out, $err) = ('', '');
	my $other = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$other_in, '>', \$other_out);
	$other_in .= "BEGIN; LOCK TABLE pts; UPDATE centres SET cluster = 1 - cluster; SELECT 'updated';\n";
	$other->pump until $other_out =~ /updated/;
	my $labeller = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{SET application_name = 'labeller'},
			'-c', "BEGIN ISOLATION LEVEL $level", '-c', 'SELECT labels_around_a_lock()', '-c', 'COMMIT' ], '>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'labeller' AND wait_event_type = 'Lock'})
	  or die 'the labeller does not wait';
	$other_in .= "COMMIT;\n\\q\n";
	$other->finish;
	$labeller->finish;
	is($err . $out, $level eq 'READ COMMITTED' ? "{1,1,0}\n" : "{0,0,0}\n", "kmeans_from_table(), $level: as the snapshot has it");
}

# What the session keeps of a table, while another one changes the rows, undoes that, and has their places used again:
# the label is that of a search in the same snapshot.
$node->safe_psql('postgres', 'CREATE TABLE busy (cluster int, centroid float8); INSERT INTO busy SELECT i, i * 10 FROM generate_series(0, 5) i');
my @changes = ('UPDATE busy SET cluster = 5 - cluster', 'BEGIN; UPDATE busy SET cluster = (cluster + 1) % 6; ROLLBACK',
	'UPDATE busy SET centroid = (centroid * 7 + 13)::int % 61 WHERE cluster = 3', 'VACUUM busy',
	'BEGIN; DELETE FROM busy; INSERT INTO busy SELECT i, (i * 7 + :n * 11) % 60 FROM generate_series(0, 5) i; COMMIT', 'VACUUM busy');
my $writes = join '', map { my $n = $_; "$changes[ $n % @changes ];\n" =~ s/:n/$n/r } 1 .. 3000;
my $reads = join '', map { my $p = $_ * 13 % 64 + 0.25;
	"SELECT 'wrong', l, n FROM (SELECT kmeans_predict(kmeans_from_table('busy'), $p) AS l, "
	  . "(SELECT cluster FROM busy ORDER BY abs(centroid - $p), cluster LIMIT 1) AS n OFFSET 0) s WHERE l <> n;\n" } 1 .. 3000;
my ($written, $read, $errors) = ('', '', '');
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/writes", $writes);
append_to_file("$dir/reads", $reads);
my @psql = ('psql', '-XAtq', '-d', $node->connstr('postgres'));
my $writer = IPC::Run::start([ @psql, '-f', "$dir/writes" ], '>', \$written, '2>', \$errors);
my $reader = IPC::Run::start([ @psql, '-f', "$dir/reads" ], '>', \$read, '2>', \$errors);
$writer->finish;
$reader->finish;
is($read . $errors, '', 'kmeans_from_table() beside changes: every label is that of the snapshot');

$node->stop;
done_testing();
