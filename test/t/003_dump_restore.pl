# Models survive pg_dump and restore bit for bit, and generated columns that use them.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE original');
$node->safe_psql('original', q{
	CREATE EXTENSION gkmeans;
	SET client_min_messages = error;
	CREATE TABLE pts AS
	SELECT i AS id, sin(i) * 1e10 AS x, (cos(i * 0.7) * 1e-10)::float8 AS y, i % 5 AS w FROM generate_series(1, 500) i;
	CREATE TABLE models (name text PRIMARY KEY, m kmeans_model);
	INSERT INTO models VALUES
		('plain', kmeans_fit('pts', '{x,y}', 5)),
		('standardize', kmeans_fit('pts', '{x,y}', 5, standardize => true, seed => NULL)),
		('cosine', kmeans_fit('pts', '{x,y}', 5, distance => 'cosine', max_iter => 2)),
		('weighted', kmeans_fit('pts', '{x,y}', 5, weight_column => 'w', init => 'random')),
		('nothing', NULL);
});
# a generated column needs the model as a constant
my $model = $node->safe_psql('original', q{SELECT quote_literal(m::text) FROM models WHERE name = 'standardize'});
$node->safe_psql('original', qq{
	ALTER TABLE pts ADD label int GENERATED ALWAYS AS (kmeans_predict(${model}::kmeans_model, ARRAY[x, y])) STORED;
	CREATE INDEX ON pts (label);
	CREATE VIEW sizes AS SELECT label, count(*) AS size FROM pts GROUP BY label;
});

# kmeans_model_send gives the bytes, so equal means equal to the last bit
my $bits = q{SELECT name, md5(kmeans_model_send(m)), md5(m::text), pg_column_size(m) FROM models ORDER BY name};
my $labels = q{SELECT md5(string_agg(id || ':' || label, ',' ORDER BY id)), count(DISTINCT label) FROM pts};
my $before = $node->safe_psql('original', $bits);
my $labels_before = $node->safe_psql('original', $labels);
like($labels_before, qr/\|5$/, 'the generated column has all labels');

foreach my $format ('plain', 'custom', 'inserts')
{
	my $dump = $node->basedir . "/$format.dump";
	my @how = $format eq 'inserts' ? ('--inserts') : ("--format=$format");
	$node->command_ok([ 'pg_dump', @how, '-f', $dump, '-d', $node->connstr('original') ], "$format: pg_dump");
	$node->safe_psql('postgres', "CREATE DATABASE copy_$format");
	if ($format eq 'custom')
	{
		$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr("copy_$format"), $dump ], "$format: pg_restore");
	}
	else
	{
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr("copy_$format"), '-f', $dump ], "$format: psql");
	}
	is($node->safe_psql("copy_$format", $bits), $before, "$format: the same models");
	is($node->safe_psql("copy_$format", $labels), $labels_before, "$format: the same labels");
	is($node->safe_psql("copy_$format", q{SELECT count(*) FROM sizes}), '5', "$format: the view");
	is( $node->safe_psql("copy_$format", q{
			SELECT count(*) FROM models, kmeans_labels('pts', m) l JOIN pts p ON p.ctid = l.ctid
			WHERE name = 'standardize' AND l.cluster <> p.label}),
		'0', "$format: bulk prediction agrees");
}

# COPY in both formats
foreach my $format ('text', 'binary', 'csv')
{
	my $file = $node->basedir . "/models.$format";
	$node->safe_psql('original', qq{
		COPY models TO '$file' (FORMAT $format);
		CREATE TABLE copied (LIKE models);
		COPY copied FROM '$file' (FORMAT $format);
	});
	(my $copied = $bits) =~ s/FROM models/FROM copied/;
	is($node->safe_psql('original', $copied), $before, "COPY $format: the same models");
	$node->safe_psql('original', 'DROP TABLE copied');
}

$node->stop;
done_testing();
