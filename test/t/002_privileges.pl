# Everything runs as the caller: column rights, row-level security, views, UPDATE.
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
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE ROLE carol LOGIN;
	-- alice's rows lie near 0 and 10, bob's near 1000 and 2000
	CREATE TABLE pts (owner text, x float8, secret float8, label int);
	INSERT INTO pts SELECT 'alice', i % 2 * 10, i, NULL FROM generate_series(1, 10) i;
	INSERT INTO pts SELECT 'bob', 1000 + i % 2 * 1000, i, NULL FROM generate_series(1, 6) i;
	ALTER TABLE pts ENABLE ROW LEVEL SECURITY;
	CREATE POLICY own ON pts USING (owner = current_user);
	GRANT SELECT ON pts TO alice;
	GRANT SELECT, UPDATE (label) ON pts TO bob;
	GRANT SELECT (owner, x) ON pts TO carol;
	CREATE VIEW everyone AS SELECT x FROM pts;
	GRANT SELECT ON everyone TO carol;
	CREATE TABLE others (x float8, label int);
	INSERT INTO others VALUES (1), (9);
	GRANT ALL ON others TO alice;
});

# Run as a role; returns output and error.
sub as
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, extra_params => [ '-U', $role ],
		stdout => \$out, stderr => \$err, on_error_stop => 0);
	return ($out, $err);
}

sub sees
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	is($err, '', "$name: no error or notice");
	is($out, $expected, $name);
}

sub fails
{
	my ($role, $sql, $expected, $name) = @_;
	my ($out, $err) = as($role, $sql);
	like($err, $expected, $name);
	is($out, '', "$name: and no result");
}

# row-level security: each sees clusters of its own rows
sees('alice', q{SELECT size, centroid FROM kmeans('pts', '{x}', 2)}, "5|{0}\n5|{10}", 'alice: clusters of her rows');
sees('bob', q{SELECT size, centroid FROM kmeans('pts', '{x}', 2)}, "3|{1000}\n3|{2000}", 'bob: clusters of his rows');
sees('bob', q{SELECT count(*), count(DISTINCT cluster) FROM kmeans_labels('pts', '{x}', 2)}, '6|2', 'bob: labels of his rows');
sees('bob', q{SELECT rows_used FROM kmeans_info((SELECT kmeans_fit('pts', '{x}', 2)))}, '6', 'bob: a model of his rows');
is($node->safe_psql('postgres', q{SELECT sum(size) FROM kmeans('pts', '{x}', 2)}), '16', 'the superuser: all rows');
sees('carol', q{SELECT sum(size) FROM kmeans('everyone', '{x}', 2)}, '16', 'carol: a view has the rights of its owner');

# column rights
my ($out, $err) = as('carol', q{SELECT * FROM kmeans('pts', '{x}', 2)});
like($err, qr/no usable rows/, 'carol: may read the column, has no rows');
fails('carol', q{SELECT * FROM kmeans('pts', '{x,secret}', 2)}, qr/ERROR:  permission denied for column "secret" of relation "pts"/, 'carol: no right on one column');
fails('carol', q{SELECT * FROM kmeans('pts', '{x}', 2, weight_column => 'secret')}, qr/ERROR:  permission denied for column "secret" of relation "pts"/, 'carol: no right on the weight column');
fails('carol', q{SELECT * FROM kmeans('others', '{x}', 2)}, qr/ERROR:  permission denied for table others/, 'carol: no right on the table');
fails('carol', q{SELECT kmeans_fit('others', '{x}', 2)}, qr/ERROR:  permission denied for table others/, 'carol: nor for a model');
fails('carol', q{SELECT * FROM kmeans_labels('others', '{x}', 2)}, qr/ERROR:  permission denied for table others/, 'carol: nor for labels');

# Pages are read only where each row of them may be: the answers are the same, and
# who insists on pages is refused.
sees('alice', q{SET gkmeans.reader = auto; SELECT size, centroid FROM kmeans('pts', '{x}', 2)}, "5|{0}\n5|{10}", 'alice: row-level security, by any reader');
fails('alice', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('pts', '{x}', 2)}, qr/ERROR:  gkmeans.reader is "heap", but "pts" can only be read by the executor/, 'alice: no pages under row-level security');
fails('alice', q{SET gkmeans.reader = heap; SELECT * FROM kmeans_labels('pts', '{x}', 2)}, qr/ERROR:  gkmeans.reader is "heap"/, 'alice: nor for labels');
fails('bob', q{SET gkmeans.reader = heap; SELECT size FROM kmeans('pts', '{x}', 2, label_column => 'label')}, qr/ERROR:  gkmeans.reader is "heap"/, 'bob: nor to write them');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('pts', '{x,secret}', 2)}, qr/ERROR:  permission denied for column "secret" of relation "pts"/, 'carol: rights come first');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('others', '{x}', 2)}, qr/ERROR:  permission denied for table others/, 'carol: rights come first, on tables');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('others', '{x}', 2, weight_column => 'label')}, qr/ERROR:  permission denied for table others/, 'carol: with weights too');
sees('carol', q{SET gkmeans.reader = heap; SELECT sum(size) FROM kmeans('everyone', '{x}', 2)}, '16', "carol: pages by the rights of the view's owner");
is($node->safe_psql('postgres', q{SET gkmeans.reader = heap; SELECT sum(size) FROM kmeans('pts', '{x}', 2)}), '16', 'the superuser: pages');
fails('postgres', q{ALTER TABLE pts FORCE ROW LEVEL SECURITY; SET row_security = off; SET ROLE bob; SET gkmeans.reader = heap; SELECT * FROM kmeans('pts', '{x}', 2)}, qr/ERROR:  query would be affected by row-level security policy for table "pts"/, 'row_security = off: the usual error');
$node->safe_psql('postgres', q{
	ALTER TABLE pts NO FORCE ROW LEVEL SECURITY;
	CREATE VIEW barrier WITH (security_barrier) AS SELECT x FROM pts WHERE owner = 'alice';
	CREATE TABLE part (owner text, x float8) PARTITION BY LIST (owner);
	CREATE TABLE part_alice PARTITION OF part FOR VALUES IN ('alice');
	CREATE TABLE part_bob PARTITION OF part FOR VALUES IN ('bob');
	INSERT INTO part SELECT owner, x FROM pts;
	GRANT SELECT ON barrier, part TO carol;
});
sees('carol', q{SELECT size FROM kmeans('barrier', '{x}', 2)}, "5\n5", 'carol: a security barrier');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('barrier', '{x}', 2)}, qr/ERROR:  gkmeans.reader is "heap"/, 'carol: no pages behind a security barrier');
sees('carol', q{SET gkmeans.reader = heap; SELECT sum(size) FROM kmeans('part', '{x}', 2)}, '16', 'carol: all partitions, by the right on the whole');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('part_bob', '{x}', 2)}, qr/ERROR:  permission denied for table part_bob/, 'carol: but not one of them');
$node->safe_psql('postgres', q{
	ALTER TABLE part ENABLE ROW LEVEL SECURITY;
	CREATE POLICY low ON part USING (x < 500);
});
sees('carol', q{SELECT sum(size) FROM kmeans('part', '{x}', 2)}, '10', 'carol: a policy on the whole');
fails('carol', q{SET gkmeans.reader = heap; SELECT * FROM kmeans('part', '{x}', 2)}, qr/ERROR:  gkmeans.reader is "heap"/, 'carol: no pages of partitions under a policy');

# label_column
fails('alice', q{SELECT * FROM kmeans('pts', '{x}', 2, label_column => 'label')}, qr/ERROR:  permission denied for column "label" of relation "pts"/, 'alice: no UPDATE right');
fails('alice', q{SELECT * FROM kmeans('pts', '{x}', 2, label_column => 'brand_new')}, qr/ERROR:  must be owner of table pts/, 'alice: not the owner, no new column');
sees('alice', q{SELECT size FROM kmeans('others', '{x}', 2, label_column => 'label')}, "1\n1", 'alice: UPDATE on the table');
sees('bob', q{SELECT size FROM kmeans('pts', '{x}', 2, label_column => 'label')}, "3\n3", 'bob: UPDATE on the column');
is($node->safe_psql('postgres', q{SELECT owner, count(label), count(*) FROM pts GROUP BY 1 ORDER BY 1}),
	"alice|0|10\nbob|6|6", 'bob: wrote his rows only');

# kmeans_label_table
$node->safe_psql('postgres', q{
	CREATE SCHEMA results;
	GRANT USAGE, CREATE ON SCHEMA results TO alice, carol;
	REVOKE CREATE ON SCHEMA public FROM PUBLIC;
	CREATE TABLE keyed (id int, x float8, secret int);
	INSERT INTO keyed VALUES (1, 1, 1), (2, 9, 2);
	GRANT SELECT (id, x, ctid, tableoid) ON keyed TO carol;
});
sees('alice', q{SELECT size FROM kmeans_label_table('pts', '{x}', 2, 'results.alices', '{owner,secret}')}, "5\n5", 'alice: a new table');
sees('alice', q{SELECT count(*), count(cluster), min(owner), max(owner) FROM results.alices}, '10|10|alice|alice', 'alice: of her rows');
is($node->safe_psql('postgres', q{SELECT relowner::regrole FROM pg_class WHERE relname = 'alices'}), 'alice', 'alice: it is hers');
fails('alice', q{SELECT * FROM kmeans_label_table('pts', '{x}', 2, 'public.alices', '{owner}')}, qr/ERROR:  permission denied for schema public/, 'alice: no right to create a table');
sees('carol', q{SELECT size FROM kmeans_label_table('keyed', '{x}', 2, 'results.carols', '{id}')}, "1\n1", 'carol: rights on columns');
fails('carol', q{SELECT * FROM kmeans_label_table('keyed', '{x}', 2, 'results.secrets', '{id,secret}')}, qr/ERROR:  permission denied for column "secret" of relation "keyed"/, 'carol: none on an id column');
fails('carol', q{SELECT * FROM kmeans_label_table('others', '{x}', 2, 'results.others', '{x}')}, qr/ERROR:  permission denied for table others/, 'carol: none on the table');

# a function that runs as its owner
$node->safe_psql('postgres', q{
	CREATE FUNCTION all_sizes() RETURNS numeric LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT sum(size) FROM kmeans('pts', '{x}', 2) $$;
});
sees('bob', 'SELECT all_sizes()', '16', 'SECURITY DEFINER: rows of the definer');

# somebody's operators are not called by way of search_path
$node->safe_psql('postgres', q{
	CREATE SCHEMA traps;
	CREATE FUNCTION traps.same(tid, tid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped by tid'; END $$;
	CREATE FUNCTION traps.same(oid, oid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped by oid'; END $$;
	CREATE OPERATOR traps.= (LEFTARG = tid, RIGHTARG = tid, FUNCTION = traps.same);
	CREATE OPERATOR traps.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = traps.same);
	CREATE DOMAIN traps.int4 AS text;
	CREATE DOMAIN traps.float8 AS text;
	CREATE TABLE numbers AS SELECT x::numeric FROM generate_series(1, 2) x;
	ALTER TABLE numbers OWNER TO alice;
	GRANT USAGE ON SCHEMA traps TO alice;
});
fails('alice', q{SET search_path = traps, pg_catalog, public; SELECT '(0,1)'::tid = '(0,1)'::tid}, qr/trapped by tid/,
	'the trap works');
sees('alice', q{
	SET search_path = traps, pg_catalog, public;
	SELECT size FROM kmeans('numbers', '{x}', 2, label_column => 'label');
	SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid OPERATOR(pg_catalog.=) 'numbers'::regclass AND attname = 'label';
}, "1\n1\ninteger", 'operators and types are those of pg_catalog');

$node->stop;
done_testing();
