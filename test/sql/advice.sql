-- What was meant by a call that PostgreSQL cannot resolve: the HINT says so, and shows the call.

LOAD 'gkmeans';
\set VERBOSITY default
CREATE TABLE customers (id int, visits int, spent numeric);
-- misspelt options, and what others call them
SELECT * FROM kmeans('customers', '{visits,spent}', 3, max_iterations => 5);
SELECT * FROM kmeans('customers', '{visits,spent}', n_clusters => 3);
SELECT kmeans_fit('customers', '{visits,spent}', 3, random_state => 1);
SELECT kmeans_fit('customers', '{visits,spent}', 3, sede => 1);
SELECT kmeans_fit('customers', '{visits,spent}', 3, max_iter => 5, standardise => true);
SELECT kmeans_query_fit('SELECT visits FROM customers', 3, "Metric" => 'cosine');
SELECT * FROM kmeans_label_table('customers', '{visits,spent}', 3, 'segments', '{id}', tolerance => 0);
SELECT * FROM kmeans_grouped('customers', '{id}', '{visits,spent}', 3, labels => 'x');
SELECT * FROM kmeans_scan('customers', '{visits,spent}', 2, 10, kmax => 3);
-- like none: the call, at least
SELECT * FROM kmeans('customers', '{visits,spent}', 3, zzzzzzzz => 5);
-- options of other functions
SELECT * FROM kmeans('customers', '{visits,spent}', 3, max_size => 4);
SELECT * FROM kmeans_fit('customers', '{visits,spent}', 3, fewest_clusters => 4);
SELECT * FROM kmeans_balanced('customers', '{visits,spent}', 3, maxsize => 4);
SELECT kmeans_balanced_fit('customers', '{visits,spent}', 3.0);
SELECT * FROM kmeans_mixed('customers', '{visits,spent}', 3, seeds => 4);
SELECT kmeans_mixed_fit('customers', '{visits,spent}', 3, catgories => '{spent}');
-- one column is an array, too
SELECT * FROM kmeans('customers', 'visits', 3);
SELECT kmeans_fit('customers', columns => 'visits, spent', k => 3);
SELECT kmeans_fit('customers', '{visits}', 2, centroids => '1, 2');
SELECT '{1,2'::int[];
-- k that is not an integer; too few and too many arguments
SELECT * FROM kmeans('customers', '{visits,spent}', 3.0);
SELECT * FROM kmeans('customers', '{visits,spent}', k => 3.5);
SELECT * FROM kmeans('customers', '{visits,spent}', 3::float8, seed => 1);
SELECT * FROM kmeans_query('SELECT visits FROM customers', 3.0);
SELECT kmeans_fit('customers');
-- k is forgotten
SELECT * FROM kmeans('customers', '{visits,spent}');
SELECT kmeans(ARRAY[visits, spent], 3) FROM customers;
-- a name without quotes, a query instead of a name; in a function, too
SELECT * FROM kmeans(customers, '{visits,spent}', 3);
SELECT 'ä€' AS wide, c.* FROM kmeans_fit( customers, '{visits,spent}', 3) c;
SELECT * FROM kmeans('SELECT visits, spent FROM customers', '{visits,spent}', 3);
SELECT * FROM kmeans_query(customers, 3);
DO $$ BEGIN PERFORM kmeans_fit(customers, '{visits,spent}', 3); END $$;
-- a column that is no relation: of a call with OVER, of a model's function, one that PostgreSQL names
SELECT kmeans(visit, 3) OVER () FROM customers;
SELECT kmeans(xyzzy, 3) OVER () FROM customers;
SELECT kmeans_predict(xyzzy, visits) FROM customers;
SELECT kmeans_fit(visit, '{visits,spent}', 3) FROM customers;
-- types that are not known
PREPARE untyped AS SELECT * FROM kmeans($1, $2, $3);
SELECT * FROM kmeans_labels('customers', '{visits}', NULL);
SELECT abs(NULL, NULL), feature_sum(NULL), kmeans_step(NULL, NULL);
SET client_min_messages = warning;
CREATE TYPE vector;
CREATE FUNCTION vector_in(cstring) RETURNS vector LANGUAGE internal STRICT AS 'textin';
CREATE FUNCTION vector_out(vector) RETURNS cstring LANGUAGE internal STRICT AS 'textout';
RESET client_min_messages;
CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out);
CREATE FUNCTION array_of(vector, int, bool) RETURNS real[] LANGUAGE sql AS 'SELECT $1::text::real[]';
CREATE CAST (vector AS real[]) WITH FUNCTION array_of(vector, int, bool) AS IMPLICIT;
SELECT feature_sum(e) FROM (VALUES ('{1,2}'::vector)) v (e);
SELECT kmeans_step(NULL::kmeans_model, e) FROM (VALUES ('{1,2}'::vector)) v (e);
SELECT kmeans_fit('customers', '{visits,spent}', 1, centroids => ARRAY['{1,2}'::vector]);
DROP TYPE vector CASCADE;
DO $$ BEGIN PERFORM kmeans_fit('customers', '{visits,spent}', 3, n_clusters => 3); END $$;
DO $$ BEGIN PERFORM kmeans_fit('customers', '{visits,spent}', 3, niter => 3); END $$;
-- a misspelt setting
SHOW gkmeans.devices;
SHOW gkmeans.xyzzyxyzzyxyzzy;
SHOW gkmeans.max_gpu_session;
-- one that is there only when the server starts with gkmeans
SHOW gkmeans.max_gpu_sessions;
SHOW other.device;
-- an expression where a column is named
SELECT * FROM kmeans('customers', '{visits * 2,"ln(spent)"}', 3);
SELECT * FROM kmeans('customers', ARRAY['visits', $$coalesce(spent, '0')$$], 3);
SELECT * FROM kmeans('customers', '{visits,spend}', 3);
-- errors of others stay as they are
SELECT kmean(1, 2);
SELECT kmeans_predict(1, 2, nothing => 3);
SELECT abs(1, 2);
SELECT customers;
SELECT upper(customers);
SELECT 'a b'::regclass;
SELECT row_number() FROM customers;
SELECT * FROM kmeans_spectral('customers', '{visits,spent}', 3, neighbours => 5);
-- not when the error is caught
DO $$ BEGIN PERFORM kmeans_fit('customers', '{visits}', 3, zeed => 1); EXCEPTION WHEN undefined_function THEN RAISE NOTICE 'caught'; END $$;
-- nor where errors do not go to the server's log
SET log_min_messages = fatal;
SELECT kmeans_fit('customers', '{visits}', 3, zeed => 1);
RESET log_min_messages;
-- every argument of these functions is one that the hints know
SELECT DISTINCT proname, name FROM pg_proc, unnest(proargnames, proargmodes) a (name, mode)
WHERE proname IN ('kmeans', 'kmeans_fit', 'kmeans_query', 'kmeans_query_fit', 'kmeans_labels', 'kmeans_label_table', 'kmeans_grouped', 'kmeans_scan', 'kmeans_spectral', 'kmeans_spectral_fit', 'kmeans_balanced', 'kmeans_balanced_fit', 'kmeans_mixed', 'kmeans_mixed_fit')
    AND coalesce(mode, 'i') = 'i' AND name <> ALL ('{affinity,centroid_table,centroids,columns,device,distance,fit_sample,gamma,group_by,id_columns,init,init_sample,k,k_max,k_min,label_column,label_table,laplacian,max_iter,max_size,min_size,model,n_init,neighbors,nonfinite,nulls,point,query,relation,representatives,sample,seed,standardize,step,tol,warm_start,weight_column}') ORDER BY 1, 2;
-- as is every function of a relation
SELECT DISTINCT proname FROM pg_proc WHERE proname LIKE 'kmeans%' AND proargtypes[0] = 'regclass'::regtype
    AND proname <> ALL ('{kmeans,kmeans_anomalies,kmeans_balanced,kmeans_balanced_fit,kmeans_fit,kmeans_from_table,kmeans_grouped,kmeans_grouped_part,kmeans_label_table,kmeans_labels,kmeans_medoids,kmeans_mixed,kmeans_mixed_fit,kmeans_scan,kmeans_scan_svg,kmeans_spectral,kmeans_spectral_fit,kmeans_step}');
-- as is every setting; one of them is there only when the server starts with gkmeans, another is for tests
SELECT name FROM pg_settings WHERE name LIKE 'gkmeans.%' AND substr(name, 9) <> ALL ('{chunk_size,device,enable_window_scan,feature_sum,gpu_devices,gpu_fault,gpu_memory_limit,keep_memory,log_min_duration,mass_sum,max_gpu_sessions,memory_limit,reader,simd,skip_points,strategy,threads,workers}');
DROP TABLE customers;
