/*
 * model_text_out.c - text output of kmeans_model: JSON with readable keys, which model_text_in.c reads.
 *
 * Numbers are written with the fewest digits that read back as the same bits, whatever
 * extra_float_digits says, so that dump and restore change nothing.
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "pg/pg.h"
#include "pg/pg_compat.h"
#include "types/model.h"

PG_FUNCTION_INFO_V1(kmeans_model_out);

static void
put_number(StringInfo out, double v)
{
	char		digits[DOUBLE_SHORTEST_DECIMAL_LEN];

	double_to_shortest_decimal_buf(v, digits);
	appendStringInfoString(out, digits);
}

static void
put_key(StringInfo out, const char *key)
{
	appendStringInfo(out, ", \"%s\": ", key);
}

static void
put_key_number(StringInfo out, const char *key, double v)
{
	put_key(out, key);
	put_number(out, v);
}

static void
put_key_string(StringInfo out, const char *key, const char *v)
{
	put_key(out, key);
	escape_json(out, v);
}

static void
put_numbers(StringInfo out, const double *v, int n)
{
	appendStringInfoChar(out, '[');
	for (int i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		if (i > 0)
			appendStringInfoString(out, ", ");
		put_number(out, v[i]);
	}
	appendStringInfoChar(out, ']');
}

static void
put_spectral(StringInfo out, const GkModel *m)
{
	const GkSpectral *s = &m->spectral;

	appendStringInfo(out, ", \"spectral\": {\"k\": %d, \"k_asked\": %d", s->k, s->asked.k);
	put_key_string(out, "choice", kmeans_choice_words[s->choice]);
	put_key_number(out, "strength", s->strength);
	appendStringInfo(out, ", \"components\": %d, \"cut_off\": %d", s->components, s->cut_off);
	put_key_string(out, "affinity", kmeans_affinity_words[s->asked.affinity]);
	appendStringInfo(out, ", \"neighbors\": %d", s->asked.neighbors);
	put_key_number(out, "gamma", s->asked.gamma);
	put_key_string(out, "laplacian", kmeans_laplacian_words[s->asked.laplacian]);
	put_key(out, "eigenvalues");
	put_numbers(out, s->eigenvalue, s->neigenvalues);
	put_key(out, "clusters");
	for (int i = 0; i < m->k; i++)
		appendStringInfo(out, "%s%d", i > 0 ? ", " : "[", s->cluster[i]);
	appendStringInfoChar(out, ']');
	if (s->weight != NULL)
	{
		put_key(out, "weights");
		put_numbers(out, s->weight, m->k);
	}
	put_key_number(out, "graph_ms", s->graph_ms);
	put_key_number(out, "eigen_ms", s->eigen_ms);
	put_key_number(out, "embed_ms", s->embed_ms);
	appendStringInfoChar(out, '}');
}

Datum
kmeans_model_out(PG_FUNCTION_ARGS)
{
	const KmeansModel *v = PG_GETARG_KMEANS_MODEL(0);
	char	  **columns = kmeans_model_columns(v);
	GkModel		m;
	StringInfoData out;

	kmeans_model_view(v, &m);
	initStringInfo(&out);
	appendStringInfo(&out, "{\"version\": %d, \"k\": %d, \"k_asked\": %d, \"d\": %d",
					 v->version, m.k, m.k_asked, m.prep.d);
	put_key(&out, "columns");
	appendStringInfoChar(&out, '[');
	for (int i = 0; i < v->ncolumns; i++)
	{
		appendStringInfoString(&out, i > 0 ? ", " : "");
		escape_json(&out, columns[i]);
	}
	appendStringInfo(&out, "], \"columns_array\": %s", v->columns_array ? "true" : "false");
	put_key_string(&out, "distance", kmeans_distance_words[m.prep.distance]);
	appendStringInfo(&out, ", \"standardize\": %s", m.prep.standardize ? "true" : "false");
	put_key_string(&out, "init", kmeans_init_words[m.init]);
	appendStringInfo(&out, ", \"seed\": " INT64_FORMAT ", \"rows_used\": " INT64_FORMAT
					 ", \"rows_skipped\": " INT64_FORMAT ", \"iterations\": %d, \"converged\": %s",
					 m.seed, m.rows_used, m.rows_skipped, m.iterations,
					 m.converged ? "true" : "false");
	put_key_number(&out, "inertia", m.inertia);

	put_key(&out, "clusters");
	appendStringInfoChar(&out, '[');
	for (int i = 0; i < m.k; i++)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfo(&out, "%s{\"size\": " INT64_FORMAT, i > 0 ? ", " : "", m.size[i]);
		put_key_number(&out, "inertia", m.cluster_inertia[i]);
		put_key_number(&out, "radius", m.radius[i]);
		put_key(&out, "centroid");
		put_numbers(&out, m.centroids + (int64) i * m.prep.d, m.prep.d);
		appendStringInfoChar(&out, '}');
	}

	appendStringInfoString(&out, "], \"preparation\": {\"center\": ");
	put_numbers(&out, m.prep.center, m.prep.d);
	put_key(&out, "scale");
	put_numbers(&out, m.prep.scale, m.prep.d);
	put_key(&out, "expo");
	for (int j = 0; j < m.prep.d; j++)
		appendStringInfo(&out, "%s%d", j > 0 ? ", " : "[", m.prep.expo[j]);
	appendStringInfo(&out, "], \"unit_exp\": %d", m.prep.unit_exp);
	if (m.weights.known)
		appendStringInfo(&out, ", \"weight_exp\": %d", m.weights.expo);
	if (m.fill != NULL)
	{
		put_key(&out, "fill");
		put_numbers(&out, m.fill, m.prep.d);
	}
	appendStringInfoChar(&out, '}');

	appendStringInfoString(&out, ", \"history\": {\"inertia\": ");
	put_numbers(&out, m.history_inertia, m.history_len);
	put_key(&out, "shift");
	put_numbers(&out, m.history_shift, m.history_len);
	appendStringInfoChar(&out, '}');

	if (m.spectral.k > 0)
		put_spectral(&out, &m);
	put_key_string(&out, "device", m.device);
	put_key_string(&out, "strategy", m.strategy);
	put_key_number(&out, "load_ms", m.load_ms);
	if (KMEANS_MODEL_GPU_TIMES(&m))
	{
		put_key_number(&out, "context_ms", m.context_ms);
		put_key_number(&out, "upload_ms", m.upload_ms);
	}
	put_key_number(&out, "seed_ms", m.seed_ms);
	put_key_number(&out, "iterate_ms", m.iterate_ms);
	put_key_number(&out, "total_ms", m.total_ms);
	appendStringInfoChar(&out, '}');
	PG_RETURN_CSTRING(out.data);
}
