# Bytes and texts that only look like a kmeans_model: each gives an error of the
# right kind or a model that works, and the server stays up.
#
# The values go in by COPY from a binary file, one file each, in a loop inside the
# server.  The mutations are the same in each run (srand).
use strict;
use warnings;
use Cwd qw(abs_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{GKMEANS_FUZZ_SEED} // 20220415;
srand($seed);
note "seed $seed";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;
my $dir = abs_path(PostgreSQL::Test::Utils::tempdir);

my $text =
	'{"version": 1, "k": 3, "k_asked": 3, "d": 2, "columns": ["x", "y"], "columns_array": false, '
  . '"distance": "euclidean", "standardize": true, "init": "k-means++", "seed": 42, "rows_used": 60, '
  . '"rows_skipped": 2, "iterations": 2, "converged": true, "inertia": 12.5, "clusters": ['
  . '{"size": 30, "inertia": 5.5, "radius": 1.25, "centroid": [1.5, -2]}, '
  . '{"size": 20, "inertia": 4, "radius": 1.5, "centroid": [10, 20]}, '
  . '{"size": 10, "inertia": 3, "radius": 0.5, "centroid": [1e-7, 123456.789]}], '
  . '"preparation": {"center": [3, 7], "scale": [1048576, 2097152], "expo": [50, 47], "unit_exp": 20}, '
  . '"history": {"inertia": [40, 12.5], "shift": [2, 0]}, "device": "cpu (scalar, 1 thread)", '
  . '"strategy": "single_pass", "load_ms": 1, "seed_ms": 0.5, "iterate_ms": 0.25, "total_ms": 2}';

# attempt() and attempt_file() say 'ok', or the SQLSTATE and message of the error.  A
# model that was accepted has to pass through both of its forms and to predict.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gkmeans;
CREATE TABLE t (m kmeans_model);
CREATE FUNCTION use(m kmeans_model) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	i record := kmeans_info(m);
	label int;
BEGIN
	IF kmeans_model_send(m::text::kmeans_model) <> kmeans_model_send(m) THEN
		RETURN 'broken: another model after output and input';
	END IF;
	IF i.k <> (SELECT count(*) FROM kmeans_centroids(m) WHERE cardinality(centroid) = i.d) THEN
		RETURN 'broken: centroids';
	END IF;
	label := kmeans_predict(m, array_fill(1.5::float8, ARRAY[i.d]));
	IF label NOT BETWEEN 0 AND i.k - 1 OR cardinality(kmeans_transform(m, array_fill(2::int, ARRAY[i.d]))) <> i.k
		OR NOT kmeans_distance(m, array_fill(3::real, ARRAY[i.d])) >= 0 THEN
		RETURN 'broken: label ' || label;
	END IF;
	RETURN 'ok';
EXCEPTION WHEN numeric_value_out_of_range THEN
	-- a model may be of points that are anywhere
	RETURN CASE WHEN SQLERRM LIKE 'point is too far %' THEN 'ok' ELSE 'broken: ' || SQLERRM END;
END $$;
CREATE FUNCTION attempt(model text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	m kmeans_model;
BEGIN
	BEGIN
		m := model::kmeans_model;
	EXCEPTION WHEN OTHERS THEN
		RETURN SQLSTATE || ' ' || SQLERRM;
	END;
	RETURN use(m);
END $$;
CREATE FUNCTION attempt_file(file text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	BEGIN
		EXECUTE format('COPY t FROM %L (FORMAT binary)', file);
	EXCEPTION WHEN OTHERS THEN
		RETURN SQLSTATE || ' ' || SQLERRM;
	END;
	SELECT use(m) INTO STRICT result FROM t;
	TRUNCATE t;
	RETURN result;
END $$;
CREATE TABLE results (kind text, number int, result text);
SQL

# One value as a binary COPY file, and back.
sub write_value
{
	my ($file, $bytes) = @_;
	open(my $fh, '>:raw', $file) or die "$file: $!";
	print $fh "PGCOPY\n\377\r\n\0", pack('NN', 0, 0), pack('n', 1), pack('N', length $bytes), $bytes, pack('n', 0xffff);
	close $fh or die "$file: $!";
}

sub attempt_bytes
{
	my ($bytes) = @_;
	write_value("$dir/value", $bytes);
	return $node->safe_psql('postgres', "SELECT attempt_file('$dir/value')");
}

is($node->safe_psql('postgres', "SELECT attempt('$text')"), 'ok', 'the text is a model');
$node->safe_psql('postgres', "COPY (SELECT '$text'::kmeans_model) TO '$dir/good' (FORMAT binary)");
my $good = slurp_file("$dir/good");
$good = substr($good, 25, unpack('N', substr($good, 21, 4)));
is(attempt_bytes($good), 'ok', 'its bytes are a model');

# ---- each check of the binary form ----

# Places in the bytes: see model_binary.c
my %at = (
	magic => 0, version => 4, k => 8, d => 12, history => 16, columns => 20, k_asked => 24,
	iterations => 28, init => 32, distance => 36, unit_exp => 40, standardize => 44, rows_used => 55,
	inertia => 71, context => 87, upload => 95, center => 127, scale => 143, expo => 159, centroids => 167, size => 215, device => 319);

sub changed
{
	my ($key, $bytes) = @_;
	my $copy = $good;
	substr($copy, $at{$key}, length $bytes) = $bytes;
	return $copy;
}

sub int32 { return pack('l>', $_[0]) }
sub float8 { return pack('d>', $_[0]) }
my $nan = float8(9**9**9 / 9**9**9);
my $device = 'cpu (scalar, 1 thread)';
my $strings = $at{device};

for my $case (
	[ 'empty', '', qr/^22P03 invalid kmeans_model: the value has 0 bytes, expected at least 127$/ ],
	[ 'header cut', substr($good, 0, 126), qr/^22P03 .*: the value has 126 bytes, expected at least 127$/ ],
	[ 'magic', changed(magic => 'x'), qr/^22P03 .*: the value does not begin as a kmeans_model does$/ ],
	[ 'version 0', changed(version => int32(0)), qr/^22P03 .*: "version" is 0, expected 1$/ ],
	[ 'version 2', changed(version => int32(2)), qr/^0A000 kmeans_model has format version 2, this gkmeans reads version 1$/ ],
	[ 'k 0', changed(k => int32(0)), qr/^22P03 .*: "k" is 0, expected 1 to 1000000$/ ],
	[ 'k large', changed(k => int32(1000001)), qr/^22P03 .*: "k" is 1000001, expected 1 to 1000000$/ ],
	[ 'k negative', changed(k => int32(-1)), qr/^22P03 .*: "k" is -1, expected 1 to 1000000$/ ],
	[ 'd 0', changed(d => int32(0)), qr/^22P03 .*: "d" is 0, expected 1 to 16384$/ ],
	[ 'd large', changed(d => int32(16385)), qr/^22P03 .*: "d" is 16385, expected 1 to 16384$/ ],
	[ 'k claims memory', changed(k => int32(1000000)), qr/^22P03 .* bytes follow the header, expected at least 40000\d+ for k = 1000000, d = 2$/ ],
	[ 'k and d claim memory', changed(k => int32(1000000) . int32(16384)), qr/^22P03 .* bytes follow the header, expected at least 131\d{9} for/ ],
	[ 'history negative', changed(history => int32(-1)), qr/^22P03 .*: "history" has length -1, expected 0 or more$/ ],
	[ 'history claims memory', changed(history => int32(2147483647)), qr/^22P03 .* bytes follow the header, expected at least 34\d{9} for/ ],
	[ 'history longer', changed(history => int32(3)), qr/^22P03 / ],
	[ 'columns negative', changed(columns => int32(-1)), qr/^22P03 .*: "columns" has length -1, expected up to 2$/ ],
	[ 'columns 3', changed(columns => int32(3)), qr/^22P03 .*: "columns" has length 3, expected up to 2$/ ],
	[ 'columns 1', changed(columns => int32(1)), qr/^22P03 .*: 5 bytes follow the end of the value$/ ],
	[ 'k_asked', changed(k_asked => int32(2)), qr/^22P03 .*: "k_asked" is 2, expected 3 to 1000000$/ ],
	[ 'iterations', changed(iterations => int32(-5)), qr/^22P03 .*: "iterations" is -5, expected 0 to/ ],
	[ 'init', changed(init => int32(6)), qr/^22P03 .*: "init" is 6, expected 0 to 5$/ ],
	[ 'distance', changed(distance => int32(4)), qr/^22P03 .*: "distance" is 4, expected 0 to 3$/ ],
	[ 'distance manhattan', changed(distance => int32(2)), qr/^ok$/ ],
	[ 'distance partial', changed(distance => int32(3)), qr/^ok$/ ],
	[ 'distance partial and fill', changed(distance => int32(3)) . 'kmf1' . float8(1) . float8(2),
		qr/^22P03 .*: "distance" is "partial", but there is "preparation.fill"$/ ],
	[ 'unit_exp', changed(unit_exp => int32(9999)), qr/^22P03 .*: "preparation.unit_exp" is 9999, expected/ ],
	[ 'boolean', changed(standardize => "\2"), qr/^22P03 .*: "standardize" is byte 2, expected 0 or 1$/ ],
	[ 'columns_array', changed(standardize => "\1\1\1"), qr/^22P03 .*: "columns" has length 2, expected 1$/ ],
	[ 'rows_used', changed(rows_used => pack('q>', -1)), qr/^22P03 .*: "rows_used" is -1, expected/ ],
	[ 'inertia NaN', changed(inertia => $nan), qr/^22P03 .*: "inertia" is -?NaN, expected a finite number >= 0$/i ],
	[ 'context_ms NaN', changed(context => $nan), qr/^22P03 .*: "context_ms" is -?NaN, expected a finite number >= 0$/i ],
	[ 'context_ms negative', changed(context => float8(-1)), qr/^22P03 .*: "context_ms" is -1, expected a finite number >= 0$/ ],
	[ 'upload_ms infinite', changed(upload => float8(9**9**9)), qr/^22P03 .*: "upload_ms" is inf\w*, expected a finite number >= 0$/i ],
	[ 'upload_ms negative zero', changed(upload => float8(-0.0)), qr/^ok$/ ],
	[ 'center NaN', changed(center => $nan), qr/^22P03 .*: "preparation.center\[0\]" is -?NaN, expected a finite number$/i ],
	[ 'scale infinite', changed(scale => float8(9**9**9)), qr/^22P03 .*: "preparation.scale\[0\]" is inf\w*, expected/i ],
	[ 'scale 0', changed(scale => float8(0)), qr/^22P03 .*: "preparation.scale\[0\]" is 0, expected/ ],
	[ 'expo', changed(expo => int32(201)), qr/^22P03 .*: "preparation.expo\[0\]" is 201, expected -200 to 200$/ ],
	[ 'centroid infinite', changed(centroids => float8(-9**9**9)), qr/^22P03 .*: "clusters\[0\].centroid\[0\]" is -inf\w*, expected/i ],
	[ 'size', changed(size => pack('q>', 1 << 41)), qr/^22P03 .*: "clusters\[0\].size" is 2199023255552, expected/ ],
	[ 'arrays cut', substr($good, 0, 316), qr/^22P03 .*: 189 bytes follow the header, expected at least 208 for k = 3, d = 2$/ ],
	[ 'last string cut', substr($good, 0, length($good) - 1), qr/^22P03 .*: "columns" has 1 bytes, but 0 are left$/ ],
	[ 'string length missing', substr($good, 0, length($good) - 4), qr/^22P03 .*: the value ends before "columns"$/ ],
	[ 'string length negative', changed(device => int32(-1)), qr/^22P03 .*: "device" has -1 bytes, but \d+ are left$/ ],
	[ 'string length', changed(device => int32(2147483647)), qr/^22P03 .*: "device" has 2147483647 bytes, but \d+ are left$/ ],
	[ 'device long', substr($good, 0, $strings) . int32(96) . 'x' x 96 . substr($good, $strings + 4 + length $device),
		qr/^22P03 .*: "device" has 96 bytes, expected up to 95$/ ],
	[ 'column name long', substr($good, 0, length($good) - 5) . int32(64) . 'y' x 64, qr/^22P03 .*: "columns" has 64 bytes, expected up to 63$/ ],
	[ 'column name empty', substr($good, 0, length($good) - 5) . int32(0), qr/^22P03 .*: "columns\[1\]" has 0 bytes, expected 1 to 63$/ ],
	[ 'column name not UTF-8', substr($good, 0, length($good) - 1) . "\xff", qr/^22021 invalid byte sequence for encoding/ ],
	[ 'column name with NUL', substr($good, 0, length($good) - 1) . "\0", qr/^22(021|P03) / ],
	[ 'fill', $good . 'kmf1' . float8(1) . float8(2), qr/^ok$/ ],
	[ 'weights and fill', $good . int32(3) . 'kmf1' . float8(1) . float8(2), qr/^ok$/ ],
	[ 'fill that looks like another part', $good . 'kmf1' . 'kms1kms1' . float8(2), qr/^ok$/ ],
	[ 'fill cut', substr($good . 'kmf1' . float8(1) . float8(2), 0, length($good) + 19), qr/^22P03 .*: "fill" has 15 bytes, expected 16 for d = 2$/ ],
	[ 'fill without numbers', $good . int32(3) . 'kmf1', qr/^22P03 .*: "fill" has 0 bytes, expected 16 for d = 2$/ ],
	[ 'fill NaN', $good . 'kmf1' . float8(1) . $nan, qr/^22P03 .*: "preparation.fill\[1\]" is -?NaN, expected a finite number$/i ],
	[ 'fill twice', $good . ('kmf1' . float8(1) . float8(2)) x 2, qr/^22P03 .*: 20 bytes follow the end of the value$/ ],
	[ 'trailing byte', $good . 'x', qr/^22P03 .*: 1 bytes follow the end of the value$/ ])
{
	my ($name, $bytes, $expected) = @$case;
	like(attempt_bytes($bytes), $expected, "bytes: $name");
}

# ---- random and mutated values ----

sub random_bytes { return join '', map { chr int rand 256 } 1 .. $_[0] }

# Values that break arithmetic and loops
my @integers = map { int32($_) } (-2147483648, -1, 0, 1, 2, 4, 63, 64, 65535, 1000000, 2147483647);
my @numbers = map { float8($_) } (0, -0.0, -1, 1, 5e-324, 1e-300, 1e300, 1.7e308, 9**9**9, -9**9**9);

# Half of them with a header that promises a model, so that the arrays are reached
sub random_value
{
	my ($i) = @_;
	return random_bytes(int rand 700) if $i % 2;
	my ($k, $d, $history, $columns) = map { 1 + int rand 4 } 1 .. 4;
	return substr($good, 0, 8) . join('', map { int32($_) } $k, $d, $history - 1, $columns - 1)
	  . (rand() < 0.5 ? substr($good, 24, 103) : random_bytes(103))
	  . random_bytes(20 * $d + 8 * $k * $d + 24 * $k + 16 * ($history - 1) + int rand 60);
}

sub mutated_value
{
	my $bytes = $good;
	for (0 .. int rand 3)
	{
		my $at = int rand length $bytes;
		my $kind = int rand 7;
		if    ($kind == 0) { substr($bytes, $at, 1) = chr int rand 256 }
		elsif ($kind == 1) { substr($bytes, $at, 1) ^= chr(1 << int rand 8) }
		elsif ($kind == 2) { substr($bytes, $at, 4) = $integers[ int rand @integers ] }
		elsif ($kind == 3) { substr($bytes, $at, 8) = $numbers[ int rand @numbers ] }
		elsif ($kind == 4) { substr($bytes, $at, int rand 20) = '' }
		elsif ($kind == 5) { substr($bytes, $at, 0) = random_bytes(1 + int rand 20) }
		else               { substr($bytes, $at) = '' if rand() < 0.3 }
		$bytes = 'x' if $bytes eq '';
	}
	return $bytes;
}

my @tokens = ('0', '-1', '1e400', '-1e400', '1e-400', '99999999999999999999', '2147483648', '1000001', '4', '0.5', '-0',
	'null', 'true', '"x"', '[]', '{}', '[[', '{"a": 1}', ',', ':', '"', '\\', '"k"', '"centroid"', '"\ud800"', 'NaN', ']', '}');

sub mutated_text
{
	my $t = $text;
	for (0 .. int rand 2)
	{
		my $at = int rand length $t;
		my $kind = int rand 6;
		if    ($kind == 0) { substr($t, $at, 1) = chr(32 + int rand 95) }
		elsif ($kind == 1) { substr($t, $at, int rand 30) = '' }
		elsif ($kind == 2) { substr($t, $at, 0) = substr($text, int rand length $text, int rand 60) }
		elsif ($kind == 3) { substr($t, $at, 0) = $tokens[ int rand @tokens ] }
		else
		{
			# a number for another token
			my @places;
			push @places, [ $-[0], $+[0] - $-[0] ] while $t =~ /(?<![\w"])-?[\d.]+(e-?\d+)?/g;
			next unless @places;
			my $place = $places[ int rand @places ];
			substr($t, $place->[0], $place->[1]) =
			  $kind == 4 ? $tokens[ int rand @tokens ] : sprintf('%.3g', (rand() - 0.2) * 10**(rand(20) - 5));
		}
	}
	return $t;
}

my $count = 1000;
for my $i (1 .. $count)
{
	write_value("$dir/random$i", random_value($i));
	write_value("$dir/mutated$i", mutated_value());
}
open(my $fh, '>:raw', "$dir/texts") or die $!;
for my $i (1 .. $count)
{
	my $t = mutated_text();
	$t =~ s/\\/\\\\/g;
	print $fh "$i\t$t\n";
}
close $fh;

$node->safe_psql('postgres', <<SQL);
CREATE TABLE texts (number int, t text);
COPY texts FROM '$dir/texts';
INSERT INTO results SELECT 'random bytes', i, attempt_file('$dir/random' || i) FROM generate_series(1, $count) i;
INSERT INTO results SELECT 'mutated bytes', i, attempt_file('$dir/mutated' || i) FROM generate_series(1, $count) i;
INSERT INTO results SELECT 'mutated text', number, attempt(t) FROM texts;
SQL

for my $kind ('random bytes', 'mutated bytes', 'mutated text')
{
	my %got = map { split /\|/ } split /\n/, $node->safe_psql('postgres',
		"SELECT CASE WHEN result ~ '^[0-9A-Z]{5} ' THEN left(result, 5) ELSE result END, count(*) FROM results WHERE kind = '$kind' GROUP BY 1 ORDER BY 1");
	my $total = 0;
	$total += $_ for values %got;
	note "$kind: " . join ', ', map { "$_ $got{$_}" } sort keys %got;
	is($total, $count, "$kind: each was tried");
	# wrong form, not JSON, bad escape, bad encoding, newer version
	my @unexpected = grep { !/^(ok|22P0[235]|22021|0A000)$/ } keys %got;
	is("@unexpected", '', "$kind: errors of the right kind, and models that work");
	# A test that never got past the first check would prove little
	next if $kind eq 'random bytes';
	cmp_ok($got{ok} // 0, '>', 20, "$kind: some were still models");
	cmp_ok($total - ($got{ok} // 0), '>', $count / 4, "$kind: many were not");
}
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT regexp_replace(result, \'-?[0-9.]+(e[+-]?\d+)?\', \'N\', \'g\')) FROM results'),
	'>', 50, 'they failed in many different places');

is($node->safe_psql('postgres', "SELECT attempt('$text')"), 'ok', 'the server works');
unlike(slurp_file($node->logfile), qr/was terminated by signal|server process .* exited with exit code [^1]|PANIC/, 'and nothing crashed');
$node->stop;
done_testing();
