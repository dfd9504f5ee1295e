# Nothing that another role has made runs when a superuser calls gkmeans on that role's
# tables: not its operators, functions, types and relations, which search_path finds first
# or which fit better than those of pg_catalog, and not what stands in names of tables and
# columns. The same on the shards of a distributed table, and in CREATE EXTENSION.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "allow_system_table_mods = on\nshared_preload_libraries = 'gkmeans'\nfsync = off");
$node->start;
my ($out, $err);

# ---- traps: a copy of pg_catalog whose every part raises an error ----

sub set_traps
{
	my ($database, $schema, $relations) = @_;
	my $script = q{
		SET client_min_messages = error;
		SET ROLE mallory;
		SET search_path = pg_catalog;
		CREATE FUNCTION SCHEMA.trap(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped by %', what; END $$;
		DO $$
		DECLARE
			c text; kind text;
		BEGIN
			FOR kind, c IN
				SELECT 'function', format('CREATE FUNCTION SCHEMA.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM SCHEMA.trap(%L); END $f$',
					proname, array_to_string(proargtypes::regtype[], ','), CASE WHEN proretset THEN 'SETOF ' ELSE '' END || prorettype::regtype, 'function ' || proname)
				FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname !~ '^(trap|RI_)'
				UNION ALL
				-- also where pg_catalog has none that fits exactly
				SELECT 'operator', format('CREATE FUNCTION SCHEMA.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM SCHEMA.trap(%L); END $f$;
					CREATE OPERATOR SCHEMA.%s (FUNCTION = SCHEMA.%1$I, RIGHTARG = %6$s %7$s)', 'operator ' || row_number() OVER (),
					concat_ws(',', l::regtype, r::regtype), result::regtype, 'operator ' || name, name, r::regtype, ', LEFTARG = ' || l::regtype)
				FROM (SELECT oprname AS name, nullif(oprleft, 0) AS l, oprright AS r, oprresult AS result FROM pg_operator
					WHERE oprnamespace = 'pg_catalog'::regnamespace
					UNION SELECT name, t, u, 'bool'::regtype FROM unnest(ARRAY['=', '<>', '<', '~']) name,
						unnest('{regclass,oid,"\"char\"",int4,int8,text,tid}'::regtype[]) t, unnest('{regclass,oid,"\"char\"",int4,int8,text,tid}'::regtype[]) u) o
				UNION ALL
				SELECT 'type', format('CREATE DOMAIN SCHEMA.%I AS pg_catalog.%1$I CHECK (SCHEMA.trap(%L))', typname, 'type ' || typname)
				FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0
				UNION ALL
				SELECT 'relation', format('CREATE VIEW SCHEMA.%I AS SELECT * FROM pg_catalog.%1$I WHERE SCHEMA.trap(%L)', relname, 'relation ' || relname)
				FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND RELATIONS
			LOOP
				BEGIN
					EXECUTE c;
				EXCEPTION WHEN OTHERS THEN -- pseudo-types, mostly
					CONTINUE;
				END;
			END LOOP;
		END $$};
	$script =~ s/SCHEMA/$schema/g;
	$script =~ s/RELATIONS/$relations/g;
	$node->safe_psql($database, $script);
	return;
}

$node->safe_psql('postgres', q{
	CREATE ROLE mallory;
	CREATE EXTENSION gkmeans SCHEMA public;
	-- MOCK of what gkmeans uses of Citus; like there, names of shards have no schema when that is public
	CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", repmodel "char", colocationid int, partkey text DEFAULT 'g');
	CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT $2 $$;
	CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint);
	CREATE TABLE pg_catalog.pg_dist_shard_placement (shardid bigint, nodename text, nodeport int);
	GRANT SELECT ON pg_catalog.pg_dist_partition, pg_catalog.pg_dist_shard, pg_catalog.pg_dist_shard_placement TO PUBLIC;
	CREATE FUNCTION pg_catalog.shard_name(regclass, bigint) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
		SELECT CASE WHEN nspname <> 'public' THEN quote_ident(nspname) || '.' ELSE '' END || quote_ident(relname || '_' || $2)
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1 $$;
	GRANT CREATE ON SCHEMA public TO mallory;
	GRANT CREATE ON DATABASE postgres TO mallory;
	SET ROLE mallory;
	CREATE SCHEMA traps});
set_traps('postgres', 'traps', 'true');

foreach my $case ([ 'operators', q{SELECT 1 + 1}, 'operator \+' ], [ 'functions', q{SELECT upper('x')}, 'function upper' ],
	[ 'types', q{SELECT '1'::float8}, 'type float8' ], [ 'relations', q{SELECT * FROM pg_class}, 'relation pg_class' ],
	[ 'operators that fit better', q{SELECT 'pg_class'::pg_catalog.regclass = 'pg_class'::pg_catalog.regclass}, 'operator =' ])
{
	my ($name, $sql, $trap) = @$case;
	$node->psql('postgres', "SET search_path = traps, pg_catalog; $sql", stdout => \$out, stderr => \$err);
	like($err, qr/trapped by $trap/, "the traps work: $name");
}

# ---- tables: what stands in the names must not run ----

my $schema = q{"a%s"};
my $evil = qq{$schema."t\$gkmeans\$operator(public.@@)1,'{}','')--"};
my $here = qq{$schema."h'; SELECT traps.trap('a name'); --"};
my $centres = qq{$schema."c'; SELECT traps.trap('a name'); --"};
my $value = q{"v'"", traps.trap('a column')--%1$s"};
my $columns = q({x,"v'\\", traps.trap('a column')--%1$s"});
sub literal { my ($s) = @_; $s =~ s/'/''/g; return "'$s'" }

$node->safe_psql('postgres', qq{
	SET ROLE mallory;
	CREATE SCHEMA $schema;
	CREATE FUNCTION public.hijack(text, int) RETURNS regclass LANGUAGE plpgsql AS \$\$ BEGIN PERFORM traps.trap('a table name'); END \$\$;
	CREATE OPERATOR public.@@ (FUNCTION = public.hijack, LEFTARG = text, RIGHTARG = int);
	CREATE TABLE $here AS SELECT i AS id, (i % 10 * 3)::numeric AS x, (i % 7)::float8 AS $value, 1 + i % 2 AS w, i % 2 AS g, ARRAY[i % 3, i % 5]::numeric[] AS p
		FROM generate_series(1, 300) i;
	CREATE TABLE $centres AS SELECT i AS cluster, 150::bigint AS size, ARRAY[i * 3, i]::numeric[] AS centroid, 1.5::float8 AS inertia, 2.5::float8 AS radius
		FROM generate_series(0, 1) i;
	-- a table whose only partition is its only shard
	CREATE TABLE $evil (LIKE $here) PARTITION BY RANGE (id);
	CREATE TABLE public.dist (LIKE $here) PARTITION BY RANGE (id)});
sub shard_name { my ($table) = @_; return $table =~ /"$/ ? substr($table, 0, -1) . '_7"' : "${table}_7" }
foreach my $table ($evil, 'public.dist')
{
	my ($shard, $name) = (shard_name($table), literal($table));
	$node->safe_psql('postgres', qq{
		CREATE TABLE $shard PARTITION OF $table FOR VALUES FROM (0) TO (1000);
		INSERT INTO $table SELECT * FROM $here;
		INSERT INTO pg_dist_partition VALUES ($name, 'h', 's', 1);
		INSERT INTO pg_dist_shard VALUES ($name, 7)});
}
# what search_path finds instead of a shard; what fits better than gkmeans' own functions, in the schema of which others may create
$node->safe_psql('postgres', q{
	SET ROLE mallory;
	CREATE VIEW traps.dist_7 AS SELECT * FROM public.dist_7 WHERE traps.trap('a shard''s name');
	DO $$
	DECLARE
		f regprocedure;
	BEGIN
		FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND classid = 'pg_proc'::regclass AND deptype = 'e'
			JOIN pg_extension e ON e.oid = refobjid AND extname = 'gkmeans' WHERE 'int8'::regtype = ANY (proargtypes) OR proname = 'kmeans_pass'
		LOOP
			EXECUTE 'CREATE FUNCTION ' || replace(f::text, 'bigint', 'integer') || ' RETURNS text LANGUAGE plpgsql AS $f$ BEGIN PERFORM traps.trap(''an overloaded function''); END $f$';
		END LOOP;
	END $$});
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_proc WHERE prosrc ~ 'an overloaded function' AND proname IN ('kmeans_pass', 'kmeans')}), 2,
	'there are overloaded functions');

# ---- every function ----

my $model = q{(SELECT m FROM public.models)};
my $point = q{'{1,2}'::pg_catalog.float8[]};
my $state = "(SELECT public.feature_sum_partial($point))";
my $step = "(SELECT public.kmeans_step_partial($model, $point))";
my $array = literal($columns);

$node->safe_psql('postgres', 'SET client_min_messages = error; CREATE TABLE public.models AS SELECT public.kmeans_fit(' . literal($here) . ", $array, 3) AS m");

sub calls_on
{
	my ($relation) = @_;
	my $r = literal($relation) . '::pg_catalog.regclass';
	return (
		kmeans_fit => "SELECT c FROM public.kmeans_centroids(public.kmeans_fit($r, $array, 3, weight_column => 'w')) c",
		kmeans_step => "SELECT public.kmeans_step($r, $array, $model, 'w', 'skip')",
		kmeans_grouped => "SELECT c FROM public.kmeans_grouped($r, '{g}', $array, 2, weight_column => 'w') c",
		kmeans_evaluate => "SELECT c FROM public.kmeans_evaluate($model, $r) c",
		kmeans_scan => "SELECT c FROM public.kmeans_scan($r, '{p}', 2, 4) c",
		kmeans_scan_svg => "SELECT pg_catalog.md5(public.kmeans_scan_svg($r, $array, 2, 4))",
		kmeans_svg => "SELECT pg_catalog.md5(public.kmeans_svg($model, $r))");
}

my $r = literal($here) . '::pg_catalog.regclass';
my %calls = (
	calls_on($here),
	# an UPDATE changes the order of the rows, which makes no difference where centroids are given
	kmeans => join('; ', map { "SELECT c FROM public.kmeans($r, $array, 3, label_column => $_, centroids => '{{0,0},{9,3},{20,6}}') c" }
		  q{'new'}, q{'id'}, q{E'l\"'''}) . "; SELECT id, public.kmeans(x, 3) OVER () FROM $here ORDER BY id",
	kmeans_label_table => qq{SELECT c FROM public.kmeans_label_table($r, $array, 3, '$schema."l''abels"', ARRAY['id', } . literal('v\'", traps.trap(\'a column\')--%1$s') . "]) c;
		TABLE $schema.\"l'abels\"",
	kmeans_labels => "SELECT c FROM public.kmeans_labels($r, $array, 3) c; SELECT c FROM public.kmeans_labels($r, $model) c",
	kmeans_pass => "SELECT public.kmeans_pass(ARRAY[$r, $r], '{p}', pg_catalog.decode('6b6d70310000000200000001@{[ '0' x 32 ]}', 'hex'))",
	kmeans_grouped_part => "SELECT c FROM public.kmeans_grouped_part($r, '{g}', $array, 2, 'w', 'k-means++', NULL, NULL, 1, 100, 1e-4::pg_catalog.float8, 'euclidean', false, 0::pg_catalog.int8, 'error', NULL, 'skip') c",
	kmeans_predict => "SELECT public.kmeans_predict($model, 1, 2), public.kmeans_predict($model, $point)",
	gkmeans_label => "SELECT public.gkmeans_label($model, 1, 2), public.gkmeans_label($model, $point)",
	kmeans_distance => "SELECT public.kmeans_distance($model, $point)",
	kmeans_normalized_distance => "SELECT public.kmeans_normalized_distance($model, $point)",
	kmeans_transform => "SELECT public.kmeans_transform($model, $point)",
	kmeans_nearest => "SELECT public.kmeans_nearest($model, $point, 2)",
	kmeans_memberships => "SELECT public.kmeans_memberships($model, $point)",
	kmeans_anomalies => "SELECT c FROM public.kmeans_anomalies($r, $model, 0.1) c",
	kmeans_medoids => "SELECT c FROM public.kmeans_medoids($r, $model) c",
	kmeans_query => 'SELECT c FROM public.kmeans_query(' . literal("SELECT id, true, '1 day'::pg_catalog.interval, '1'::pg_catalog.money, x FROM $here") . ', 3) c;
		SELECT c FROM public.kmeans_query(' . literal("SELECT '(1,2)'::pg_catalog.point FROM $here") . ', 1) c',
	kmeans_query_fit => 'SELECT c FROM public.kmeans_centroids(public.kmeans_query_fit(' . literal("SELECT x, w FROM $here") . q{, 3, weight_column => 'w')) c},
	kmeans_table => "SELECT c FROM public.kmeans_table($model) c",
	kmeans_from_table => 'SELECT c FROM public.kmeans_centroids(public.kmeans_from_table(' . literal($centres) . "::pg_catalog.regclass, $array)) c;
		SELECT c FROM public.kmeans($r, $array, 2, centroid_table => " . literal($centres) . '::pg_catalog.regclass) c',
	kmeans_explain => "SELECT c FROM public.kmeans_explain($model) c",
	kmeans_balanced => "SELECT c FROM public.kmeans_balanced($r, $array, 2, 1, 100000) c",
	kmeans_balanced_fit => "SELECT c.k FROM public.kmeans_info(public.kmeans_balanced_fit($r, $array, 2, 1)) c",
	kmeans_mixed => "SELECT c FROM public.kmeans_mixed($r, '{id,w}', 2) c",
	kmeans_mixed_fit => "SELECT public.kmeans_mixed_fit($r, '{id,w}', 2)",
	kmeans_mixed_predict => "SELECT public.kmeans_mixed_predict(public.kmeans_mixed_fit($r, '{id,w}', 2), 1, 2.5)",
	kmeans_spectral => "SELECT c FROM public.kmeans_spectral($r, $array, 2, 10, neighbors => 3) c;
		SELECT c FROM public.kmeans_spectral($r, $array, representatives => 10, affinity => 'rbf', laplacian => 'random_walk') c",
	kmeans_spectral_fit => "SELECT c.k_by FROM public.kmeans_info(public.kmeans_spectral_fit($r, $array, 2, 10, neighbors => 3)) c;
		SELECT c FROM public.kmeans_labels($r, public.kmeans_spectral_fit($r, $array, 2, 10, neighbors => 3)) c",
	kmeans_spectral_scan => "SELECT c.k FROM public.kmeans_spectral_scan(public.kmeans_spectral_fit($r, $array, 2, 10, neighbors => 3), 2, 4) c",
	kmeans_spectral_svg => "SELECT pg_catalog.md5(public.kmeans_spectral_svg(public.kmeans_spectral_fit($r, $array, 2, 10, neighbors => 3)))",
	kmeans_update => "SELECT c FROM public.kmeans_centroids((SELECT public.kmeans_update($model, x, id) FROM $here)) c",
	kmeans_update_finish => "SELECT public.kmeans_update_finish($step)",
	kmeans_forget => "SELECT public.kmeans_forget($model, 0.5)",
	kmeans_centroids => "SELECT c FROM public.kmeans_centroids($model) c",
	kmeans_info => "SELECT c FROM public.kmeans_info($model) c",
	kmeans_model_in => "SELECT $model\::pg_catalog.text::public.kmeans_model",
	kmeans_state_in => "SELECT $state\::pg_catalog.text::public.kmeans_state",
	kmeans_state_combine => "SELECT public.kmeans_state_combine($state, $state)",
	kmeans_state_normal => "SELECT public.kmeans_state_normal($state)",
	kmeans_combine => "SELECT public.kmeans_combine($state)",
	feature_sum => "SELECT public.feature_sum(x), public.feature_sum(p), public.feature_sum(p::pg_catalog.float8[], w) FROM $here",
	feature_sum_partial => "SELECT public.feature_sum_partial(p::pg_catalog.float8[], w) FROM $here",
	feature_sum_finish => "SELECT public.feature_sum_finish($state)",
	kmeans_step_partial => "SELECT $step",
	kmeans_finish => "SELECT public.kmeans_finish($step)",
	kmeans_options => 'SELECT public.kmeans_options(k.init) FROM (SELECT \'random\'::pg_catalog.text AS init) k',
	kmeans_agg => "SELECT c FROM public.kmeans_centroids((SELECT public.kmeans_agg(p, 2) FROM $here)) c;
		SELECT c FROM public.kmeans_centroids((SELECT public.kmeans_agg(p, 2, public.kmeans_options(n_init => 2)) FROM $here)) c",
	gkmeans_devices => 'SELECT c.backend FROM public.gkmeans_devices() c',
	gkmeans_version => 'SELECT public.gkmeans_version()',
	gkmeans_progress_info => 'SELECT c FROM public.gkmeans_progress_info() c; TABLE public.gkmeans_progress',
	gkmeans_stat_info => 'SELECT c.since FROM public.gkmeans_stat_info() c; SELECT s.since FROM public.gkmeans_stat s',
	gkmeans_stat_reset => 'SELECT public.gkmeans_stat_reset()');

# what runs inside of others: I/O functions, transition functions, planner support
my $inside = '_(in|out|recv|send|support|serialize|deserialize|new_label)$|^(feature_sum|kmeans_step)_(add|subtract)|^kmeans_agg_';
is($node->safe_psql('postgres', qq{
	SELECT DISTINCT proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND classid = 'pg_proc'::regclass AND deptype = 'e'
		JOIN pg_extension e ON e.oid = refobjid AND extname = 'gkmeans'
	WHERE proname !~ '$inside' AND proname <> ALL ('{@{[ join ',', keys %calls ]}}')}), '', 'all functions are called');

sub run_with
{
	my ($path, $sql) = @_;
	my $status = $node->psql('postgres', "SET client_min_messages = warning; SET search_path = $path; BEGIN; $sql; ROLLBACK",
		stdout => \$out, stderr => \$err, on_error_stop => 1);
	return $status == 0 && $err eq '' ? $out : "failed: $err";
}

foreach my $name (sort keys %calls)
{
	my $clean = run_with('public', $calls{$name});
	unlike($clean, qr/^failed|^$/, "$name: works") if $name !~ /reset|progress/;
	is(run_with($_, $calls{$name}), $clean, "$name: search_path = $_") foreach ('traps, pg_catalog, public', 'traps, public');
}

# ---- on shards ----

# servers have a search_path of their own
$node->safe_psql('postgres', "INSERT INTO pg_dist_shard_placement VALUES (7, '@{[ $node->host ]}', @{[ $node->port ]});
	ALTER DATABASE postgres SET search_path = traps, pg_catalog, public");

foreach my $table ('public.dist', $evil)
{
	my $title = $table eq $evil ? 'a table name that is a program' : $table;
	my %sharded = (calls_on($table), kmeans => 'SELECT c FROM public.kmeans(' . literal($table) . ", $array, 3, n_init => 2) c");
	foreach my $name (sort keys %sharded)
	{
		# the same rows in a local table
		my $clean = run_with('public', $sharded{$name} =~ s/\Q@{[ literal($table) ]}\E/literal($here)/er);
		unlike($clean, qr/^failed|^$/, "$title, $name: works");
		is(run_with($_, $sharded{$name}), $clean, "$title, $name: search_path = $_") foreach ('public', 'traps, pg_catalog, public', 'traps, public');
	}
}
# labels of tables of Citus are written by another statement than those of others
my $by_model = "$calls{kmeans_label_table}; SELECT c FROM public.kmeans($r, $array, 3, label_column => 'new', weight_column => 'w', centroids => '{{0,0},{9,3},{20,6}}') c;
	SELECT id, new FROM $here ORDER BY id";
my $by_place = run_with('public', $by_model);
unlike($by_place, qr/^failed|^$/, 'labels: works');
$node->safe_psql('postgres', 'INSERT INTO pg_catalog.pg_dist_partition VALUES (' . literal($here) . ", 'n', 't', 2)");
is(run_with($_, $by_model), $by_place, "labels of a table of Citus: search_path = $_") foreach ('public', 'traps, pg_catalog, public', 'traps, public');
$node->safe_psql('postgres', "SET search_path = pg_catalog; DELETE FROM pg_dist_partition WHERE partmethod = 'n'");
# a table of Citus may have its rows elsewhere, so a session does not keep the model of those that are here
my $given = literal($centres) . '::pg_catalog.regclass';
my $scans = "SELECT public.kmeans_from_table($given) IS NULL; SELECT public.kmeans_from_table($given) IS NULL; SELECT pg_catalog.pg_stat_get_xact_numscans($given)";
like(run_with('public', $scans), qr/\n5$/, 'kmeans_from_table: a local table is read once');
$node->safe_psql('postgres', "INSERT INTO pg_catalog.pg_dist_partition VALUES ($given, 'n', 't', 2)");
like(run_with('public', $scans), qr/\n6$/, 'kmeans_from_table: a table of Citus is read each time');
$node->safe_psql('postgres', "SET search_path = pg_catalog; DELETE FROM pg_dist_partition WHERE partmethod = 'n'");

is(run_with('public', 'SELECT i.strategy FROM public.kmeans_info(public.kmeans_fit(' . literal($evil) . ", $array, 3)) i") =~ /^1 shard, /, 1,
	'the shards are asked');

# ---- CREATE EXTENSION into a schema full of traps, seen from another one ----

my $definitions = q{
	SET search_path = pg_catalog;
	SELECT CASE p.prokind WHEN 'a' THEN p.oid::regprocedure || a::text ELSE pg_get_functiondef(p.oid) END
	FROM pg_depend d JOIN pg_extension e ON e.oid = refobjid AND extname = 'gkmeans' AND d.deptype = 'e' AND classid = 'pg_proc'::regclass
		JOIN pg_proc p ON p.oid = d.objid
		LEFT JOIN (SELECT aggfnoid, aggtransfn::regprocedure, aggfinalfn::regprocedure, aggcombinefn::regprocedure, aggmtransfn::regprocedure,
			aggminvtransfn::regprocedure, aggtranstype::regtype FROM pg_aggregate) a ON a.aggfnoid = p.oid ORDER BY 1;
	SELECT pg_get_viewdef('target.gkmeans_progress'::regclass), pg_get_viewdef('target.gkmeans_stat'::regclass)};
foreach my $database ('clean', 'crowded')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE SCHEMA target; GRANT CREATE, USAGE ON SCHEMA target TO mallory; CREATE SCHEMA other; GRANT CREATE, USAGE ON SCHEMA other TO mallory');
}
$node->safe_psql('clean', 'CREATE EXTENSION gkmeans SCHEMA target');
set_traps('crowded', $_, 'true') foreach ('target', 'other');
# what takes any state, by names that the script is going to use
$node->safe_psql('crowded', 'SET ROLE mallory; ' . join ' ', map { "CREATE FUNCTION target.$_ RETURNS anyelement LANGUAGE plpgsql AS \$\$ BEGIN RAISE 'trapped'; END \$\$;" }
	('kmeans_state_combine(anyelement, anyelement)', 'kmeans_state_normal(anyelement)', 'feature_sum_finish(anyelement)', 'kmeans_finish(anyelement)',
	'feature_sum_add(anyelement, anyelement)', 'feature_sum_add_array(anyelement, float8[])', 'feature_sum_add_weighted(anyelement, float8[], float8)',
	'kmeans_step_add(anyelement, anyelement)'));
$node->safe_psql('crowded', 'SET search_path = other, pg_catalog; CREATE EXTENSION gkmeans SCHEMA target');
is($node->safe_psql('crowded', $definitions), $node->safe_psql('clean', $definitions), 'CREATE EXTENSION: the same objects as in an empty schema');
is($node->safe_psql('crowded', 'SET search_path = other, pg_catalog; TABLE target.gkmeans_progress; SELECT x.runs FROM target.gkmeans_stat x'),
	$node->safe_psql('clean', 'TABLE target.gkmeans_progress; SELECT x.runs FROM target.gkmeans_stat x'), 'and its views work');

$node->stop;
done_testing();
