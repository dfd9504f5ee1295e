# ALTER EXTENSION UPDATE from an older version brings its objects up to date and keeps
# its models, pg_upgrade takes them to another cluster, and models that were written
# long ago are read.
#
# 1.0.0 is the first version, so the older one is made up: test/upgrade/gkmeans--0.9.0.sql.
# Its upgrade script is made here, of the install script: every statement of a release's
# upgrade script is of one of these kinds (see CONTRIBUTING.md). What the update leaves is
# then compared with what CREATE EXTENSION makes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('old');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', 'fsync = off');
$node->start;

# the server's own places: those that pg_config names need not be this installation's
my ($bin, $share) = split /\n/, $node->safe_psql('postgres', q{
	SELECT setting FROM pg_config WHERE name IN ('BINDIR', 'SHAREDIR') ORDER BY name});
my $dir = "$share/extension";
my $tree = $ENV{TESTDIR};
my ($version) = slurp_file("$tree/gkmeans.control") =~ /^default_version *= *'(.*)'/m;
plan skip_all => "$dir is not ours to write to: run this with test/with-cluster --tap" if !-w $dir;

sub write_file
{
	my ($file, $text) = @_;
	open my $out, '>', $file or die "$file: $!";
	print $out $text;
	close $out or die "$file: $!";
}

my $old = slurp_file("$tree/test/upgrade/gkmeans--0.9.0.sql");
my $new = slurp_file("$dir/gkmeans--$version.sql");
write_file("$dir/gkmeans--0.9.0.sql", $old);

# the upgrade script: a type stays, a function is replaced, anything else is new
my $script = "\\echo Use \"ALTER EXTENSION gkmeans UPDATE\" to load this file. \\quit\n"
  . "ALTER EXTENSION gkmeans DROP FUNCTION kmeans_sizes(kmeans_model);\n"
  . "DROP FUNCTION kmeans_sizes(kmeans_model);\n$new";
$script =~ s/^\\echo Use "CREATE EXTENSION.*\n//mg;
$script =~ s/^CREATE TYPE kmeans_model( \(.*?\))?;\n//msg;
$script =~ s/^CREATE FUNCTION/CREATE OR REPLACE FUNCTION/mg;
write_file("$dir/gkmeans--0.9.0--$version.sql", $script);

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('postgres', 'CREATE DATABASE fresh');

# ---- an old version in use: models, a generated column, an index, a view ----

my @fixtures = map { [ split /\t/ ] } split /\n/, slurp_file("$tree/test/upgrade/models.tsv");
is(scalar @fixtures, 7, 'seven models of format version 1');
$node->safe_psql('shop', q{
	CREATE EXTENSION gkmeans VERSION '0.9.0';
	CREATE TABLE fixture (name text PRIMARY KEY, labels text, bytes bytea, txt text);
	CREATE TABLE models (name text PRIMARY KEY, m kmeans_model);
});
my $fixtures = "$tree/test/upgrade/models.tsv";
$node->safe_psql('shop', "SET client_encoding = UTF8; CREATE TABLE raw (name text, labels text, hex text, txt text); "
	  . "COPY raw FROM '$fixtures'; INSERT INTO fixture SELECT name, labels, decode(hex, 'hex'), txt FROM raw; DROP TABLE raw");
$node->safe_psql('shop', 'INSERT INTO models SELECT name, txt::kmeans_model FROM fixture');
$node->safe_psql('shop', q{
	SELECT 'CREATE TABLE pts (x float8, y float8, label int GENERATED ALWAYS AS (kmeans_predict('
		|| quote_literal(m) || '::kmeans_model, x, y)) STORED)' FROM models WHERE name = 'standardize' \gexec
	INSERT INTO pts SELECT (i * 37 % 41 - 20) * 1e9, (i * 53 % 31 - 15) * 1e-11 FROM generate_series(1, 500) i;
	CREATE INDEX ON pts (label);
	CREATE VIEW centres AS SELECT name, cluster, centroid FROM models, kmeans_centroids(m);
});

my $bits = 'SELECT name, md5(kmeans_model_send(m)) FROM models ORDER BY name';
my $labels = q{SELECT md5(string_agg(label::text, '' ORDER BY x, y)), count(DISTINCT label) FROM pts};
my $seen = 'SELECT md5(string_agg(centres::text, chr(10) ORDER BY name, cluster)) FROM centres';
my $bits_before = $node->safe_psql('shop', $bits);
my $labels_before = $node->safe_psql('shop', $labels);
my $seen_before = $node->safe_psql('shop', $seen);

# what was written long ago: the same bytes, and the same labels
sub fixtures_hold
{
	my ($server, $database, $when) = @_;
	is($server->safe_psql($database, 'SELECT count(*) FROM fixture JOIN models USING (name) WHERE kmeans_model_send(m) = bytes AND kmeans_model_send(txt::kmeans_model) = bytes'),
		'7', "$when: texts of format version 1 are read, to the last bit");
	is($server->safe_psql($database, q{
		SELECT count(*) FROM fixture f JOIN models USING (name)
		WHERE labels = (SELECT string_agg(kmeans_predict(m, p)::text, '' ORDER BY i) FROM generate_series(1, 40) i,
			LATERAL (SELECT array_agg((i * (j + 3) * 37 % 41 - 20)
				* CASE WHEN d <> 2 THEN 1 WHEN j = 1 THEN 1e9 ELSE 1e-11 END ORDER BY j) AS p
				FROM cardinality((SELECT centroid FROM kmeans_centroids(m) LIMIT 1)) d, generate_series(1, d) j) q)}),
		'7', "$when: and predict what they predicted then");
	return;
}
fixtures_hold($node, 'shop', 'old version');
is($node->safe_psql('shop', "SELECT kmeans_sizes(m) FROM models WHERE name = 'one'"), '{300}', 'old version: its function');

# ---- the update ----

my ($rc, undef, $message) = $node->psql('shop', 'CREATE VIEW v AS SELECT kmeans_sizes(m) FROM models; ALTER EXTENSION gkmeans UPDATE');
like($message, qr/cannot drop function kmeans_sizes\(kmeans_model\) because other objects depend on it/, 'what is in use is not dropped');
is($node->safe_psql('shop', q{SELECT extversion FROM pg_extension WHERE extname = 'gkmeans'}), '0.9.0', 'and nothing has changed');
$node->safe_psql('shop', 'DROP VIEW v');
$node->safe_psql('shop', 'ALTER EXTENSION gkmeans UPDATE');
is($node->safe_psql('shop', q{SELECT extversion, extversion = gkmeans_version() FROM pg_extension WHERE extname = 'gkmeans'}),
	"$version|t", "updated to $version, which is the library's version");

# every object with its definition, rights and comment
my $objects = q{
	SELECT pg_describe_object(classid, objid, 0), obj_description(objid, classid::regclass::name), CASE classid
		WHEN 'pg_proc'::regclass THEN (SELECT row(prosrc, probin, prokind, provolatile, proisstrict, proparallel, proretset, procost,
			prorows, prosupport, proargnames, proallargtypes::regtype[], proargmodes, pg_get_function_arguments(oid),
			pg_get_function_result(oid), proacl)::text FROM pg_proc WHERE oid = objid)
		WHEN 'pg_type'::regclass THEN (SELECT row(typlen, typbyval, typalign, typstorage, typinput, typoutput, typreceive, typsend)::text
			FROM pg_type WHERE oid = objid)
		WHEN 'pg_class'::regclass THEN (SELECT row(relkind, relacl, pg_get_viewdef(oid))::text FROM pg_class WHERE oid = objid)
		ELSE '' END || coalesce((SELECT row(a.*)::text FROM pg_aggregate a WHERE aggfnoid = objid AND classid = 'pg_proc'::regclass), '')
	FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gkmeans')
	ORDER BY 1};
$node->safe_psql('fresh', 'CREATE EXTENSION gkmeans');
my $fresh = $node->safe_psql('fresh', $objects);
# aggregates hold OIDs of their types, which differ between databases
s/(,\d{5,})+,?/,OID,/g for $fresh, my $updated = $node->safe_psql('shop', $objects);
cmp_ok(scalar(() = $fresh =~ /^function /mg), '>', 50, 'there are objects to compare');
is($updated, $fresh, 'the same objects, definitions, rights and comments as in a new installation');

is($node->safe_psql('shop', $bits), $bits_before, 'the same models, to the last bit');
is($node->safe_psql('shop', $labels), $labels_before, 'the same labels in the generated column');
is($node->safe_psql('shop', $seen), $seen_before, 'the view shows the same');
fixtures_hold($node, 'shop', 'updated');
# new functions with old models
is($node->safe_psql('shop', q{
	SET client_min_messages = warning;
	SELECT i.k, i.d, i.converged, (SELECT count(*) FROM kmeans_labels('pts', m) l JOIN pts p ON p.ctid = l.ctid WHERE l.cluster = p.label),
		(SELECT k FROM kmeans_info(kmeans_fit('pts', '{x,y}', 4, standardize => true, warm_start => m)))
	FROM models, kmeans_info(m) i WHERE name = 'standardize'}), "4|2|t|500|4", 'new functions use old models');
($rc, undef, $message) = $node->psql('shop', q{ALTER EXTENSION gkmeans UPDATE TO '0.9.0'});
like($message, qr/extension "gkmeans" has no update path from version "\Q$version\E" to version "0.9.0"/, 'there is no way back');

# ---- format versions ----

# a type whose text is the stored bytes
$node->safe_psql('shop', q{
	SET client_min_messages = warning;
	CREATE TYPE stored;
	CREATE FUNCTION stored_in(cstring) RETURNS stored LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
	CREATE FUNCTION stored_out(stored) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
	CREATE TYPE stored (INPUT = stored_in, OUTPUT = stored_out, INTERNALLENGTH = VARIABLE, ALIGNMENT = double, STORAGE = external);
	CREATE CAST (stored AS kmeans_model) WITHOUT FUNCTION;
	CREATE CAST (kmeans_model AS stored) WITHOUT FUNCTION;
});
# the number of the version comes after \x, magic and fingerprint (12 bytes), in the machine's byte order
my $stored = q{kmeans_predict(overlay(m::stored::text PLACING '%s' FROM 27 FOR 8)::stored::kmeans_model, 1, 1)};
my %number = map { $_ => unpack('H8', pack('l', $_)) } (-1, 0, 1, 2);
for my $case (
	[ 0, qr/ERROR:  invalid kmeans_model: "version" is 0, expected 1/ ],
	[ -1, qr/ERROR:  invalid kmeans_model: "version" is -1, expected 1/ ],
	[ 2, qr/ERROR:  kmeans_model has format version 2, this gkmeans reads version 1\nHINT:  Upgrade gkmeans\./ ])
{
	my ($n, $expected) = @$case;
	(undef, undef, $message) = $node->psql('shop', sprintf("SELECT $stored FROM models WHERE name = 'plain'", $number{$n}));
	like($message, $expected, "stored value of format version $n");
	(undef, undef, $message) = $node->psql('shop',
		"SELECT replace(m::text, '\"version\": 1', '\"version\": $n')::kmeans_model FROM models WHERE name = 'plain'");
	like($message, $expected, "text of format version $n");
}
is($node->safe_psql('shop', sprintf("SELECT $stored = kmeans_predict(m, 1, 1) FROM models WHERE name = 'plain'", $number{1})), 't',
	'format version 1 is read');
$node->safe_psql('shop', 'SET client_min_messages = warning; DROP TYPE stored CASCADE');

# ---- pg_upgrade: files of tables are taken as they are ----

my $target = PostgreSQL::Test::Cluster->new('new');
$target->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$target->append_conf('postgresql.conf', 'fsync = off');
$node->stop;
chdir $target->basedir or die $!;
my @no_sync = `pg_upgrade --help` =~ /--no-sync/ ? '--no-sync' : ();    # since 15
command_ok([ 'pg_upgrade', @no_sync, '-b', $bin, '-B', $bin, '-d', $node->data_dir, '-D', $target->data_dir,
		'-p', $node->port, '-P', $target->port, '-s', $node->host ], 'pg_upgrade');
$target->start;
is($target->safe_psql('shop', q{SELECT extversion FROM pg_extension WHERE extname = 'gkmeans'}), $version, 'pg_upgrade: the version');
is($target->safe_psql('shop', $bits), $bits_before, 'pg_upgrade: the same models');
is($target->safe_psql('shop', $labels), $labels_before, 'pg_upgrade: the same labels');
is($target->safe_psql('shop', q{
	INSERT INTO pts VALUES (5e9, 0);
	SELECT label = kmeans_predict(m, 5e9, 0) FROM pts, models WHERE name = 'standardize' AND x = 5e9 AND y = 0 LIMIT 1}), 't',
	'pg_upgrade: the generated column goes on');
fixtures_hold($target, 'shop', 'pg_upgrade');

$target->stop;
done_testing();
