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

# Runs the labelling while another transaction holds an update of row 7 and of row 8.
sub label_while_updated
{
	my ($begin) = @_;
	my ($other_in, $other_out, $other_err) = ('', '', '');
	my ($out, $err) = ('', '');

	$node->safe_psql('postgres', q{UPDATE pts SET label = -1, note = 'old'});
	my $other = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$other_in, '>', \$other_out, '2>', \$other_err);
	$other_in .= "BEGIN; UPDATE pts SET note = 'new' WHERE id IN (7, 8); SELECT 'updated';\n";
	$other->pump until $other_out =~ /updated/;

	# a pipe would be fed only while this script waits for it
	my $labeller = IPC::Run::start(
		[   'psql', '-XAtq', '-d', $node->connstr('postgres'),
			'-c', q{SET application_name = 'labeller'}, '-c', $begin,
			'-c', q{SELECT count(*) FROM kmeans('pts', '{x}', 2, label_column => 'label')},
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

my ($out, $err) = label_while_updated('BEGIN ISOLATION LEVEL READ COMMITTED');
is($err, '', 'read committed: no error');
is($out, "2\n", 'read committed: a result');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pts WHERE label IN (0, 1) AND id NOT IN (7, 8)}),
	'998', 'read committed: all other rows have labels');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pts WHERE note = 'new'}),
	'2', "read committed: the other transaction's work is kept");

($out, $err) = label_while_updated('BEGIN ISOLATION LEVEL REPEATABLE READ');
like($err, qr/ERROR:  could not serialize access due to concurrent update/, 'repeatable read: the usual error');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pts WHERE label <> -1}), '0', 'repeatable read: no label');

$node->stop;
done_testing();
