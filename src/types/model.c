/*
 * model.c - the type kmeans_model: from engine model to value and back,
 * and the rules that every value keeps.
 *
 * Text and binary input, and the fit itself, all come through
 * kmeans_model_validate(), so whatever is stored can be used without further
 * checks, and can be written out and read again.
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "core/gk_numerics.h"
#include "pg/pg.h"
#include "pg/pg_compat.h"
#include "types/model.h"

/*
 * What the engine's arithmetic allows (gk_prepare.c never leaves these): scales
 * that have an inverse, grids whose magic numbers exist.
 */
#define MAX_SCALE		gk_pow2(GK_SCALE_EXPO)
#define MAX_EXPO		200
#define MAX_UNIT_EXP	2200
/* Those of a double > 0. */
#define MIN_WEIGHT_EXP	(-1074)
#define MAX_WEIGHT_EXP	1024

/* Bytes of a number, and of a cluster's keys, in the text form. */
#define TEXT_NUMBER		27
#define TEXT_CLUSTER	64

const char *const kmeans_init_words[KMEANS_INITS] = {
	"k-means++", "k-means||", "random", "centroids", "warm_start", "hierarchical"
};
const char *const kmeans_distance_words[KMEANS_DISTANCES] = {"euclidean", "cosine", "manhattan", "partial"};

const char *
kmeans_nulls_word(const GkModel *m)
{
	return m->prep.distance == GK_PARTIAL ? "partial" : m->fill != NULL ? "mean" : "skip";
}

const char *const kmeans_affinity_words[KMEANS_AFFINITIES] = {"nearest_neighbors", "rbf"};
const char *const kmeans_laplacian_words[KMEANS_LAPLACIANS] = {"symmetric", "random_walk", "unnormalized"};
const char *const kmeans_choice_words[KMEANS_CHOICES] = {"given", "components", "last gap", "power gap", "gap"};

/* Size of a value.  With lengths in their limits nothing here overflows. */
static uint64
model_size(const KmeansModel *head)
{
	uint64		k = head->k;
	uint64		d = head->d;
	uint64		numbers = 2 * d + k * d + 3 * k + 2 * (uint64) head->history_len;
	uint64		integers = d + (head->parts & KMEANS_WEIGHTED ? 1 : 0);

	if (head->parts & KMEANS_FILLED)
		numbers += d;
	if (head->clusters > 0)
	{
		numbers += sizeof(KmeansSpectral) / sizeof(double) + head->eigenvalues + (head->parts & KMEANS_SPECTRAL_WEIGHTS ? k : 0);
		integers += k;
	}
	return offsetof(KmeansModel, data) + numbers * sizeof(double) + integers * sizeof(int32) + head->names_len;
}

/* Where the arrays lie; ncolumns names follow at *names, and *spectral is what a spectral model has. */
static void
model_arrays(const KmeansModel *v, GkModel *m, KmeansSpectral **spectral, char **names)
{
	double	   *at = (double *) v->data;
	int32_t    *grids;
	int64		k = v->k;
	int64		d = v->d;

	m->prep.center = at;
	at += d;
	m->prep.scale = at;
	at += d;
	m->centroids = at;
	at += k * d;
	m->size = (int64_t *) at;
	at += k;
	m->cluster_inertia = at;
	at += k;
	m->radius = at;
	at += k;
	m->history_inertia = at;
	at += v->history_len;
	m->history_shift = at;
	at += v->history_len;
	m->fill = NULL;
	if (v->parts & KMEANS_FILLED)
	{
		m->fill = at;
		at += d;
	}
	*spectral = NULL;
	m->spectral.weight = NULL;
	if (v->clusters > 0)
	{
		*spectral = (KmeansSpectral *) at;
		m->spectral.eigenvalue = (double *) (*spectral + 1);
		at = m->spectral.eigenvalue + v->eigenvalues;
		if (v->parts & KMEANS_SPECTRAL_WEIGHTS)
		{
			m->spectral.weight = at;
			at += k;
		}
	}
	m->prep.expo = grids = (int32_t *) at;
	m->weights.known = (v->parts & KMEANS_WEIGHTED) != 0;
	grids += d + (m->weights.known ? 1 : 0);
	if (v->clusters > 0)
	{
		m->spectral.cluster = grids;
		grids += k;
	}
	*names = (char *) grids;
}

/* The spectral part of a model from that of its value, but for the arrays. */
static void
view_spectral(const KmeansModel *v, const KmeansSpectral *from, GkSpectral *to)
{
	to->k = v->clusters;
	to->neigenvalues = v->eigenvalues;
	to->asked = (GkSpectralOptions)
	{
		from->k_asked, from->neighbors, (GkAffinity) from->affinity, from->gamma, (GkLaplacian) from->laplacian
	};
	to->choice = (GkChoice) from->choice;
	to->strength = from->strength;
	to->components = from->components;
	to->cut_off = from->cut_off;
	to->graph_ms = from->graph_ms;
	to->eigen_ms = from->eigen_ms;
	to->embed_ms = from->embed_ms;
}

void
kmeans_model_view(const KmeansModel *v, GkModel *m)
{
	KmeansSpectral *spectral;
	char	   *names;

	memset(m, 0, sizeof(*m));
	m->k = v->k;
	m->k_asked = v->k_asked;
	m->prep.d = v->d;
	m->prep.distance = (GkDistance) v->distance;
	m->prep.standardize = v->standardize;
	m->prep.unit_exp = v->unit_exp;
	m->init = (GkInit) v->init;
	m->seed = v->seed;
	m->rows_used = v->rows_used;
	m->rows_skipped = v->rows_skipped;
	m->iterations = v->iterations;
	m->converged = v->converged;
	m->inertia = v->inertia;
	m->history_len = v->history_len;
	m->load_ms = v->load_ms;
	m->context_ms = v->context_ms;
	m->upload_ms = v->upload_ms;
	m->seed_ms = v->seed_ms;
	m->iterate_ms = v->iterate_ms;
	m->total_ms = v->total_ms;
	memcpy(m->device, v->device, sizeof(m->device));
	memcpy(m->strategy, v->strategy, sizeof(m->strategy));
	model_arrays(v, m, &spectral, &names);
	if (m->weights.known)
		m->weights.expo = m->prep.expo[v->d];
	if (spectral != NULL)
		view_spectral(v, spectral, &m->spectral);
}

int
kmeans_centroid_slice(int d)
{
	return Max(1, 1000000 / d);
}

void
kmeans_model_prepare(const GkModel *m, float *out)
{
	int64		d = m->prep.d;
	int			slice = kmeans_centroid_slice(m->prep.d);

	for (int i = 0; i < m->k; i += slice)
	{
		CHECK_FOR_INTERRUPTS();
		gk_model_prepare(&m->prep, m->centroids + i * d, Min(slice, m->k - i), out + i * d);
	}
}

const char *
kmeans_model_names(const KmeansModel *v)
{
	KmeansSpectral *spectral;
	GkModel		m;
	char	   *names;

	model_arrays(v, &m, &spectral, &names);
	return names;
}

const double *
kmeans_model_fill(const KmeansModel *v)
{
	KmeansSpectral *spectral;
	GkModel		m;
	char	   *names;

	model_arrays(v, &m, &spectral, &names);
	return m.fill;
}

char **
kmeans_model_columns(const KmeansModel *v)
{
	const char *name = kmeans_model_names(v);
	char	  **columns = palloc(Max(v->ncolumns, 1) * sizeof(char *));

	for (int i = 0; i < v->ncolumns; i++)
	{
		columns[i] = unconstify(char *, name);
		name += strlen(name) + 1;
	}
	return columns;
}

/*
 * Which format versions can be read.  So far there is one.  When there is a second,
 * the first stays readable: values in tables outlive ALTER EXTENSION UPDATE.
 */
void
kmeans_model_check_version(int version, int sqlstate)
{
	if (version > KMEANS_MODEL_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kmeans_model has format version %d, this gkmeans reads version %d",
						version, KMEANS_MODEL_VERSION),
				 errhint("Upgrade gkmeans.")));
	if (version < 1)
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("invalid kmeans_model: \"version\" is %d, expected %d",
						version, KMEANS_MODEL_VERSION)));
}

/*
 * A value from a table was valid when it was written.  What is checked here is
 * what a damaged page would break: that the arrays are inside the value.
 */
KmeansModel *
kmeans_model_from_datum(Datum datum)
{
	KmeansModel *v = (KmeansModel *) PG_DETOAST_DATUM(datum);

	if (VARSIZE(v) < offsetof(KmeansModel, data) || v->magic != KMEANS_MODEL_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("value is not a kmeans_model")));
	kmeans_model_check_version(v->version, ERRCODE_DATA_CORRUPTED);
	if (v->k < 1 || v->k > GK_MAX_K || v->d < 1 || v->d > GK_MAX_D ||
		v->history_len < 0 || v->names_len < 0 ||
		v->distance < 0 || v->distance >= KMEANS_DISTANCES ||
		v->init < 0 || v->init >= KMEANS_INITS ||
		v->parts > KMEANS_PARTS || v->clusters < 0 || v->clusters > v->k || v->eigenvalues < 0 || v->eigenvalues > v->k ||
		VARSIZE(v) != model_size(v))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("kmeans_model of %d clusters with %d features has a wrong size, %u bytes",
						v->k, v->d, VARSIZE(v))));
	return v;
}

const char *
kmeans_distance_option(GkDistance distance)
{
	return distance == GK_PARTIAL ? "nulls => 'partial'" : psprintf("distance '%s'", kmeans_distance_words[distance]);
}

void
kmeans_refuse_distance(GkDistance distance, const char *what)
{
	if (distance == GK_MANHATTAN || distance == GK_PARTIAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be used with %s", what, kmeans_distance_option(distance)),
				 distance == GK_PARTIAL ? errhint("Use nulls => 'skip', or fill NULLs in by a view.") : errhint("Use distance => 'euclidean'.")));
}

void
kmeans_model_refuse_spectral(const KmeansModel *v, const char *what)
{
	if (v->clusters > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be used with a spectral model", what),
				 errdetail("Its %d clusters are made of %d representatives.", v->clusters, v->k)));
}

void
kmeans_model_require_spectral(const KmeansModel *v, const char *what)
{
	if (v->clusters == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s can be used with a spectral model only", what),
				 errdetail("The model's %d clusters are those of its centroids.", v->k),
				 errhint("kmeans_spectral_fit() makes one.")));
}

/* ---- the rules ---- */

static void
check_integer(const char *name, int64 value, int64 low, int64 high, int sqlstate)
{
	if (value < low || value > high)
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("invalid kmeans_model: \"%s\" is %lld, expected %lld to %lld",
						name, (long long) value, (long long) low, (long long) high)));
}

static void
check_number(const char *name, double value, double low, int sqlstate)
{
	if (!isfinite(value) || value < low)
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("invalid kmeans_model: \"%s\" is %g, expected a finite number%s",
						name, value, low == 0.0 ? " >= 0" : "")));
}

/* name is a format with one %lld for the number of the element. */
static void
check_numbers(const char *name, const double *value, int64 n, double low, int sqlstate)
{
	for (int64 i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		if (!isfinite(value[i]) || value[i] < low)
			check_number(psprintf(name, (long long) i), value[i], low, sqlstate);
	}
}

/* The two lengths that the others depend on; before anything is allocated. */
void
kmeans_model_validate_sizes(int64 k, int64 d, int sqlstate)
{
	check_integer("k", k, 1, GK_MAX_K, sqlstate);
	check_integer("d", d, 1, GK_MAX_D, sqlstate);
}

static void
validate_columns(const GkModel *m, char *const *columns, int ncolumns, bool columns_array,
				 int sqlstate)
{
	int			expected = columns_array ? 1 : m->prep.d;

	if (ncolumns != expected && !(ncolumns == 0 && !columns_array))
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("invalid kmeans_model: \"columns\" has length %d, expected %d",
						ncolumns, expected)));
	for (int i = 0; i < ncolumns; i++)
		if (columns[i][0] == '\0' || strlen(columns[i]) >= NAMEDATALEN)
			ereport(ERROR,
					(errcode(sqlstate),
					 errmsg("invalid kmeans_model: \"columns[%d]\" has %zu bytes, expected 1 to %d",
							i, strlen(columns[i]), NAMEDATALEN - 1)));
}

static void
validate_spectral(const GkModel *m, int sqlstate)
{
	const GkSpectral *s = &m->spectral;

	check_integer("spectral.k", s->k, 1, m->k, sqlstate);
	check_integer("spectral.k_asked", s->asked.k, 0, GK_MAX_K, sqlstate);
	check_integer("spectral.neighbors", s->asked.neighbors, 1, PG_INT32_MAX, sqlstate);
	check_integer("spectral.affinity", s->asked.affinity, 0, KMEANS_AFFINITIES - 1, sqlstate);
	check_integer("spectral.laplacian", s->asked.laplacian, 0, KMEANS_LAPLACIANS - 1, sqlstate);
	check_integer("spectral.choice", s->choice, 0, KMEANS_CHOICES - 1, sqlstate);
	check_integer("spectral.components", s->components, 1, m->k, sqlstate);
	check_integer("spectral.cut_off", s->cut_off, 0, m->k, sqlstate);
	check_integer("spectral.eigenvalues", s->neigenvalues, 0, m->k, sqlstate);
	check_number("spectral.gamma", s->asked.gamma, 0.0, sqlstate);
	check_number("spectral.strength", s->strength, 0.0, sqlstate);
	check_number("spectral.graph_ms", s->graph_ms, 0.0, sqlstate);
	check_number("spectral.eigen_ms", s->eigen_ms, 0.0, sqlstate);
	check_number("spectral.embed_ms", s->embed_ms, 0.0, sqlstate);
	check_numbers("spectral.eigenvalues[%lld]", s->eigenvalue, s->neigenvalues, 0.0, sqlstate);
	for (int i = 0; i < m->k; i++)
		if (s->cluster[i] < 0 || s->cluster[i] >= s->k)
			check_integer(psprintf("spectral.clusters[%d]", i), s->cluster[i], 0, s->k - 1, sqlstate);
	/* as means of weights on their grid, they have a sum in its units */
	for (int i = 0; s->weight != NULL && i < m->k; i++)
		if (!(s->weight[i] >= 0.0 && gk_ldexp(s->weight[i], -m->weights.expo) <= 1.0))
			ereport(ERROR,
					(errcode(sqlstate),
					 errmsg("invalid kmeans_model: \"spectral.weights[%d]\" is %g, expected a number from 0 to 2^%d",
							i, s->weight[i], m->weights.expo)));
}

void
kmeans_model_validate(const GkModel *m, char *const *columns, int ncolumns, bool columns_array,
					  int sqlstate)
{
	const GkPrep *p = &m->prep;

	kmeans_model_validate_sizes(m->k, p->d, sqlstate);
	check_integer("k_asked", m->k_asked, m->k, GK_MAX_K, sqlstate);
	check_integer("distance", p->distance, 0, KMEANS_DISTANCES - 1, sqlstate);
	check_integer("init", m->init, 0, KMEANS_INITS - 1, sqlstate);
	check_integer("rows_used", m->rows_used, 0, GK_MAX_ROWS, sqlstate);
	check_integer("rows_skipped", m->rows_skipped, 0, GK_MAX_ROWS, sqlstate);
	check_integer("iterations", m->iterations, 0, PG_INT32_MAX, sqlstate);
	check_number("inertia", m->inertia, 0.0, sqlstate);
	check_number("load_ms", m->load_ms, 0.0, sqlstate);
	check_number("context_ms", m->context_ms, 0.0, sqlstate);
	check_number("upload_ms", m->upload_ms, 0.0, sqlstate);
	check_number("seed_ms", m->seed_ms, 0.0, sqlstate);
	check_number("iterate_ms", m->iterate_ms, 0.0, sqlstate);
	check_number("total_ms", m->total_ms, 0.0, sqlstate);
	validate_columns(m, columns, ncolumns, columns_array, sqlstate);

	for (int i = 0; i < m->k; i++)
		if (m->size[i] < 0 || m->size[i] > GK_MAX_ROWS)
			check_integer(psprintf("clusters[%d].size", i), m->size[i], 0, GK_MAX_ROWS, sqlstate);
	check_numbers("clusters[%lld].inertia", m->cluster_inertia, m->k, 0.0, sqlstate);
	check_numbers("clusters[%lld].radius", m->radius, m->k, 0.0, sqlstate);
	for (int i = 0; i < m->k; i++)
	{
		const double *c = m->centroids + (int64) i * p->d;

		CHECK_FOR_INTERRUPTS();
		for (int j = 0; j < p->d; j++)
			if (!isfinite(c[j]))
				check_number(psprintf("clusters[%d].centroid[%d]", i, j), c[j], -INFINITY, sqlstate);
	}

	check_numbers("preparation.center[%lld]", p->center, p->d, -INFINITY, sqlstate);
	for (int j = 0; j < p->d; j++)
	{
		if (!(p->scale[j] > 0.0 && p->scale[j] <= MAX_SCALE))
			ereport(ERROR,
					(errcode(sqlstate),
					 errmsg("invalid kmeans_model: \"preparation.scale[%d]\" is %g, expected a number > 0 and <= %g",
							j, p->scale[j], MAX_SCALE)));
		if (p->expo[j] < -MAX_EXPO || p->expo[j] > MAX_EXPO)
			check_integer(psprintf("preparation.expo[%d]", j), p->expo[j], -MAX_EXPO, MAX_EXPO, sqlstate);
	}
	check_integer("preparation.unit_exp", p->unit_exp, -MAX_UNIT_EXP, MAX_UNIT_EXP, sqlstate);
	check_integer("preparation.weight_exp", m->weights.expo, MIN_WEIGHT_EXP, MAX_WEIGHT_EXP, sqlstate);
	check_numbers("history.inertia[%lld]", m->history_inertia, m->history_len, 0.0, sqlstate);
	check_numbers("history.shift[%lld]", m->history_shift, m->history_len, 0.0, sqlstate);
	if (m->fill != NULL)
		check_numbers("preparation.fill[%lld]", m->fill, p->d, -INFINITY, sqlstate);
	if (m->spectral.k != 0)
		validate_spectral(m, sqlstate);
	if (p->distance == GK_PARTIAL && (m->fill != NULL || m->spectral.k != 0))
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("invalid kmeans_model: \"distance\" is \"partial\", but there is \"%s\"",
						m->fill != NULL ? "preparation.fill" : "spectral")));
}

/* ---- building ---- */

static void
put_spectral(const GkSpectral *from, int k, KmeansSpectral *to, GkModel *arrays)
{
	to->gamma = from->asked.gamma;
	to->strength = from->strength;
	to->graph_ms = from->graph_ms;
	to->eigen_ms = from->eigen_ms;
	to->embed_ms = from->embed_ms;
	to->k_asked = from->asked.k;
	to->neighbors = from->asked.neighbors;
	to->affinity = from->asked.affinity;
	to->laplacian = from->asked.laplacian;
	to->choice = from->choice;
	to->components = from->components;
	to->cut_off = from->cut_off;
	if (from->neigenvalues > 0)
		memcpy(arrays->spectral.eigenvalue, from->eigenvalue, from->neigenvalues * sizeof(double));
	memcpy(arrays->spectral.cluster, from->cluster, k * sizeof(int32));
	if (from->weight != NULL)
		memcpy(arrays->spectral.weight, from->weight, k * sizeof(double));
}

/* A value must also fit into 1 GB as text, which is longer, or the table could not be dumped. */
void
kmeans_model_check_size(int k, int d, uint64 more, uint64 names_len)
{
	uint64		numbers = (uint64) k * d + 3 * (uint64) k + 3 * (uint64) d + more;
	uint64		text = numbers * TEXT_NUMBER + (uint64) k * TEXT_CLUSTER + 7 * names_len + 4096;

	if (text > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("kmeans_model of %d clusters with %d features would need up to %llu MB as text, the limit is %llu MB",
						k, d, (unsigned long long) (text >> 20), (unsigned long long) (MaxAllocSize >> 20)),
				 errhint("Use fewer clusters or features, or keep the rows of kmeans() in a table: centroid_table => 'the_table', max_iter => 0 labels rows by it.")));
}

/* One value for a validated model. */
KmeansModel *
kmeans_model_assemble(const GkModel *m, char *const *columns, int ncolumns, bool columns_array)
{
	uint64		k = m->k;
	uint64		d = m->prep.d;
	uint64		names_len = 0;
	uint64		size;
	KmeansModel head = {.k = m->k,.d = m->prep.d,.history_len = m->history_len,
		.parts = (m->weights.known ? KMEANS_WEIGHTED : 0) | (m->fill != NULL ? KMEANS_FILLED : 0) |
		(m->spectral.k > 0 && m->spectral.weight != NULL ? KMEANS_SPECTRAL_WEIGHTS : 0),
	.clusters = m->spectral.k,.eigenvalues = m->spectral.neigenvalues};
	KmeansSpectral *spectral;
	KmeansModel *v;
	GkModel		to;
	char	   *names;

	for (int i = 0; i < ncolumns; i++)
		names_len += strlen(columns[i]) + 1;
	head.names_len = (int32) names_len;
	size = model_size(&head);
	kmeans_model_check_size(m->k, m->prep.d, 2 * (uint64) m->history_len + (m->fill != NULL ? d : 0) + (m->spectral.k > 0 ? 2 * k + m->spectral.neigenvalues : 0), names_len);
	v = palloc0(size);
	SET_VARSIZE(v, size);
	v->magic = KMEANS_MODEL_MAGIC;
	v->version = KMEANS_MODEL_VERSION;
	v->k = m->k;
	v->d = m->prep.d;
	v->history_len = m->history_len;
	v->ncolumns = ncolumns;
	v->names_len = (int32) names_len;
	v->k_asked = m->k_asked;
	v->iterations = m->iterations;
	v->init = m->init;
	v->distance = m->prep.distance;
	v->unit_exp = m->prep.unit_exp;
	v->standardize = m->prep.standardize;
	v->converged = m->converged;
	v->columns_array = columns_array;
	v->parts = head.parts;
	v->clusters = m->spectral.k;
	v->eigenvalues = m->spectral.neigenvalues;
	v->seed = m->seed;
	v->rows_used = m->rows_used;
	v->rows_skipped = m->rows_skipped;
	v->inertia = m->inertia;
	v->load_ms = m->load_ms;
	/* not -0: the text leaves out zeros, so it could not keep the sign */
	v->context_ms = m->context_ms + 0.0;
	v->upload_ms = m->upload_ms + 0.0;
	v->seed_ms = m->seed_ms;
	v->iterate_ms = m->iterate_ms;
	v->total_ms = m->total_ms;
	/* Not the engine's whole buffers: equal models have equal bytes. */
	strlcpy(v->device, m->device, sizeof(v->device));
	strlcpy(v->strategy, m->strategy, sizeof(v->strategy));

	model_arrays(v, &to, &spectral, &names);
	memcpy(to.prep.center, m->prep.center, d * sizeof(double));
	memcpy(to.prep.scale, m->prep.scale, d * sizeof(double));
	memcpy(to.prep.expo, m->prep.expo, d * sizeof(int32));
	if (m->weights.known)
		to.prep.expo[d] = m->weights.expo;
	memcpy(to.centroids, m->centroids, k * d * sizeof(double));
	memcpy(to.size, m->size, k * sizeof(int64));
	memcpy(to.cluster_inertia, m->cluster_inertia, k * sizeof(double));
	memcpy(to.radius, m->radius, k * sizeof(double));
	if (m->history_len > 0)
	{
		memcpy(to.history_inertia, m->history_inertia, m->history_len * sizeof(double));
		memcpy(to.history_shift, m->history_shift, m->history_len * sizeof(double));
	}
	if (m->fill != NULL)
		memcpy(to.fill, m->fill, d * sizeof(double));
	if (spectral != NULL)
		put_spectral(&m->spectral, m->k, spectral, &to);
	for (int i = 0; i < ncolumns; i++)
	{
		size_t		len = strlen(columns[i]) + 1;

		memcpy(names, columns[i], len);
		names += len;
	}
	v->fingerprint = hash_bytes_extended((const unsigned char *) &v->version,
										 (int) (size - offsetof(KmeansModel, version)), 0);
	return v;
}

KmeansModel *
kmeans_model_build(const GkModel *m, char *const *columns, int ncolumns)
{
	bool		columns_array = ncolumns == KMEANS_ARRAY_COLUMN || (ncolumns == 1 && m->prep.d > 1);

	if (columns_array)
		ncolumns = 1;
	kmeans_model_validate(m, columns, ncolumns, columns_array, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE);
	return kmeans_model_assemble(m, columns, ncolumns, columns_array);
}
