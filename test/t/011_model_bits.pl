# Models survive pg_dump and COPY bit for bit, whatever bits their numbers have.
use strict;
use warnings;
use Cwd qw(abs_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

srand(7);
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;
my $dir = abs_path(PostgreSQL::Test::Utils::tempdir);

# Any finite double, subnormal ones and negative zero too, as its 8 bytes
sub any_number
{
	my $exponent = rand() < 0.1 ? 0 : int rand 2047;
	my $high = (int(rand 2) << 31) | ($exponent << 20) | int rand 1 << 20;
	return pack('NN', rand() < 0.1 ? 0x80000000 : $high, rand() < 0.2 ? 0 : int rand 4294967296);
}
sub number { return unpack('a8', pack('d>', $_[0])) }
sub some { my ($n, $make) = @_; return join '', map { $make->() } 1 .. $n }

# The binary form: see model_binary.c
sub model
{
	my ($k, $d, $history) = @_;
	my $positive = sub { my $b = any_number(); substr($b, 0, 1) &= "\x7f"; return $b };
	my $string = sub { pack('N/a', $_[0]) };
	return pack('NN l>4 l>5 C3 q>3', 0x6b6d6331, 1, $k, $d, $history, $d, $k, $history, 0, 0, -31, 1, 1, 0, -1, 5, 0)
	  . some(7, $positive)
	  . some($d, \&any_number)
	  . some($d, sub { number(2**(rand(1900) - 950)) })
	  . some($d, sub { pack('l>', int(rand 400) - 200) })
	  . some($k * $d, \&any_number)
	  . some($k, sub { pack('q>', int rand 2**40) })
	  . some(2 * $k + 2 * $history, $positive)
	  . $string->("gpu \"0\" \\ \xc3\xa9")
	  . $string->('multi_pass')
	  . join '', map { $string->("column \\ \" ' \t\n$_") } 1 .. $d;
}

my $count = 200;
open(my $fh, '>:raw', "$dir/models") or die $!;
print $fh "PGCOPY\n\377\r\n\0", pack('NN', 0, 0);
for my $i (1 .. $count)
{
	my $bytes = model(1 + int rand 40, 1 + int rand 12, int rand 20);
	print $fh pack('n', 2), pack('NN', 4, $i), pack('N/a', $bytes);
}
print $fh pack('n', 0xffff);
close $fh;

my $fingerprints = 'SELECT count(*), md5(string_agg(md5(kmeans_model_send(m)), NULL ORDER BY i)) FROM models';
$node->safe_psql('postgres', "CREATE EXTENSION gkmeans; CREATE TABLE models (i int, m kmeans_model); COPY models FROM '$dir/models' (FORMAT binary)");
my $expected = $node->safe_psql('postgres', $fingerprints);
like($expected, qr/^$count\|/, 'the models are in');

$node->safe_psql('postgres', "COPY (SELECT * FROM models ORDER BY i) TO '$dir/copy' (FORMAT binary)");
ok(slurp_file("$dir/copy") eq slurp_file("$dir/models"), 'binary output is the binary input');

$node->safe_psql('postgres', "COPY models TO '$dir/text'");
$node->safe_psql('postgres', "CREATE TABLE other (LIKE models); COPY other FROM '$dir/text'");
is($node->safe_psql('postgres', $fingerprints =~ s/FROM models/FROM other/r), $expected, 'COPY as text');
is($node->safe_psql('postgres', 'SELECT count(*) FROM models JOIN other USING (i) WHERE models.m::text::jsonb = other.m::text::jsonb'), $count, 'as jsonb');

$node->command_ok([ 'pg_dump', '-f', "$dir/dump.sql", '-d', $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/dump.sql", '-d', $node->connstr('restored') ], 'restore');
is($node->safe_psql('restored', $fingerprints), $expected, 'the restored models are the same, bit for bit');

$node->safe_psql('postgres', "SET client_encoding = 'LATIN1'; COPY models TO '$dir/latin1' (FORMAT binary)");
$node->safe_psql('postgres', "SET client_encoding = 'LATIN1'; TRUNCATE other; COPY other FROM '$dir/latin1' (FORMAT binary)");
is($node->safe_psql('postgres', $fingerprints =~ s/FROM models/FROM other/r), $expected, 'binary in another client encoding');

$node->stop;
done_testing();
