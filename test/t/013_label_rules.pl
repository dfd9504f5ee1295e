# Labels beside ON UPDATE rules: while others update the same rows, and with pgaudit, whose
# hooks move the executor's memory.
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
	CREATE TABLE log (id int, new int);
	CREATE TABLE other (id int PRIMARY KEY, label int);
});

sub make_table
{
	$node->safe_psql('postgres', q{
		DROP TABLE IF EXISTS pts;
		TRUNCATE log, other;
		CREATE TABLE pts (id int PRIMARY KEY, x float8, note text, label int);
		INSERT INTO pts SELECT i, i % 2 * 100 + i % 5, 'old', CASE WHEN i % 3 > 0 THEN -1 ELSE i % 2 END FROM generate_series(1, 1000) i;
		INSERT INTO other SELECT i, -1 FROM generate_series(1, 1000) i;
		CREATE RULE l AS ON UPDATE TO pts WHERE new.label IS DISTINCT FROM old.label DO ALSO INSERT INTO log VALUES (new.id, new.label);
		CREATE RULE u AS ON UPDATE TO pts WHERE new.label IS DISTINCT FROM old.label DO ALSO UPDATE other SET label = new.label WHERE id = old.id;
	});
}

# Label the table while another transaction has done something, which commits when the
# labelling waits for it.  Returns what went wrong.
sub label_while
{
	my ($work) = @_;
	my ($other_in, $other_out, $out, $err) = ('', '', '', '');

	my $other = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$other_in, '>', \$other_out);
	$other_in .= "BEGIN; SET LOCAL session_replication_role = replica; $work; SELECT 'updated';\n";
	$other->pump until $other_out =~ /updated/;
	my $labeller = IPC::Run::start(
		[   'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{SET application_name = 'labeller'},
			'-c', q{SELECT count(*) FROM kmeans('pts', '{x}', 2, label_column => 'label', centroids => '{{0},{100}}')}
		],
		'>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_stat_activity
		WHERE application_name = 'labeller' AND wait_event_type = 'Lock'})
	  or die 'the labeller does not wait for the other transaction';
	$other_in .= "COMMIT;\n\\q\n";
	$other->finish;
	$labeller->finish;
	return $err;
}

# rows, and those among them whose label is not that of their number
sub labels
{
	my ($table, $label) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT count(*), coalesce(string_agg(id || ':' || coalesce(${label}::text, 'NULL'), ' ' ORDER BY id)
		                          FILTER (WHERE $label IS DISTINCT FROM id % 2), '') FROM $table});
}

# Rows that others change meanwhile: to be labelled (7, 8, 11), and with the right label
# already (9, 12), in the table that is labelled, and in the one that an action updates.
make_table();
is(label_while(q{UPDATE pts SET note = 'new' WHERE id IN (7, 8, 9, 11, 12); UPDATE pts SET note = 'newer' WHERE id IN (8, 9)}),
	'', 'others update the table: no error');
is(labels('pts', 'label'), '1000|', 'all rows have their labels');
is(labels('log', 'new'), '667|', 'and the log has those that changed');
is(labels('other', 'label'), '1000|' . join(' ', map { "$_:-1" } grep { $_ % 3 == 0 } 1 .. 1000), 'and so has the other table');
is($node->safe_psql('postgres', q{SELECT string_agg(id || note, ' ' ORDER BY id) FROM pts WHERE note <> 'old'}),
	'7new 8newer 9newer 11new 12new', "the others' work is kept");

make_table();
is(label_while(q{UPDATE other SET label = -2 WHERE id IN (7, 8, 9, 11, 12)}), '', 'others update what an action updates: no error');
is(labels('pts', 'label'), '1000|', 'all rows have their labels');
is(labels('log', 'new'), '667|', 'and the log has those that changed');
is(labels('other', 'label'), '1000|' . join(' ', map { $_ == 9 || $_ == 12 ? "$_:-2" : "$_:-1" } grep { $_ % 3 == 0 } 1 .. 1000),
	'and so has the other table');

# one waits for another that labels the same rows by other centroids
make_table();
is(label_while(q{SELECT count(*) FROM kmeans('pts', '{x}', 2, label_column => 'label', centroids => '{{100},{0}}')}),
	'', 'two that label: no error');
is(labels('pts', 'label'), '1000|', "two that label: all labels are the later one's");

SKIP:
{
	skip 'pgaudit is not installed', 3
	  unless $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pgaudit'});
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pgaudit'\npgaudit.log = 'write'");
	$node->restart;
	make_table();
	$node->safe_psql('postgres', q{
		DROP RULE l ON pts;
		DROP RULE u ON pts;
		UPDATE pts SET label = NULL;
		CREATE RULE l AS ON UPDATE TO pts DO ALSO INSERT INTO log VALUES (new.id, new.label)});
	is($node->safe_psql('postgres', q{SELECT sum(size) FROM kmeans('pts', '{x}', 2, label_column => 'label', centroids => '{{0},{100}}')}),
		'1000', 'pgaudit: a result');
	is(labels('pts', 'label'), '1000|', 'pgaudit: all rows have their labels');
	is(labels('log', 'new'), '1000|', 'pgaudit: and so has the log');
}

$node->stop;
done_testing();
