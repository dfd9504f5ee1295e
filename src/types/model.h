/*
 * model.h - the type kmeans_model: layout and access.
 *
 * A value is one block: this header, then the arrays in the order of
 * kmeans_model_view(), then the column names.  It has no pointers, so a value
 * read from a table is used where it lies.
 */
#ifndef MODEL_H
#define MODEL_H

#include "fmgr.h"
#include "lib/stringinfo.h"

#include "core/gk_core.h"
#include "pg/pg_compat.h"

#define KMEANS_MODEL_MAGIC		0x6b6d6331	/* "kmc1" */
#define KMEANS_MODEL_VERSION	1

typedef struct KmeansModel
{
	int32		vl_len_;		/* varlena header, do not touch directly */
	uint32		magic;
	uint64		fingerprint;	/* hash of everything below */
	int32		version;

	/* These determine the size of the value. */
	int32		k;
	int32		d;
	int32		history_len;
	int32		ncolumns;		/* 0: not known; 1 with columns_array; else d */
	int32		names_len;		/* bytes of all column names, with their NULs */

	int32		k_asked;
	int32		iterations;
	int32		init;			/* GkInit */
	int32		distance;		/* GkDistance */
	int32		unit_exp;
	uint8		standardize;
	uint8		converged;
	uint8		columns_array;	/* the point is one array or vector column */
	uint8		parts;			/* KMEANS_PARTS */
	int32		clusters;		/* of a spectral model; else 0 */
	int32		eigenvalues;
	int64		seed;
	int64		rows_used;
	int64		rows_skipped;
	double		inertia;
	double		load_ms;
	double		context_ms;		/* both 0: no GPU was used */
	double		upload_ms;
	double		seed_ms;
	double		iterate_ms;
	double		total_ms;
	char		device[96];		/* filled up with NULs, as is strategy */
	char		strategy[64];
	double		data[FLEXIBLE_ARRAY_MEMBER];
} KmeansModel;

/* Parts that not all models have: the grid of the weights, after expo; what NULLs become, after the history. */
#define KMEANS_WEIGHTED		1
#define KMEANS_FILLED		2
/* Of a spectral model: its representatives' weights. */
#define KMEANS_SPECTRAL_WEIGHTS		4
#define KMEANS_PARTS		(KMEANS_WEIGHTED | KMEANS_FILLED | KMEANS_SPECTRAL_WEIGHTS)

/* What a spectral model has after that; eigenvalues and weights follow.  Clusters follow the grids. */
typedef struct KmeansSpectral
{
	double		gamma;
	double		strength;
	double		graph_ms;
	double		eigen_ms;
	double		embed_ms;
	int32		k_asked;		/* 0: not given */
	int32		neighbors;
	int32		affinity;		/* GkAffinity */
	int32		laplacian;		/* GkLaplacian */
	int32		choice;			/* GkChoice */
	int32		components;
	int32		cut_off;
	int32		unused;
} KmeansSpectral;

/* ncolumns for a model whose points are one array or vector column, columns[0]. */
#define KMEANS_ARRAY_COLUMN	(-1)

/* ERROR when a value of that size, `more` numbers besides what all models have, would be too large. */
extern void kmeans_model_check_size(int k, int d, uint64 more, uint64 names_len);

/*
 * A value from an engine model. columns: the names of the d feature columns, or of the one array
 * column (ncolumns KMEANS_ARRAY_COLUMN, or 1 when d > 1); ncolumns 0: not known.
 */
extern KmeansModel *kmeans_model_build(const GkModel *m, char *const *columns, int ncolumns);

/* The engine model of a value; its pointers point into the value. */
extern void kmeans_model_view(const KmeansModel *v, GkModel *m);

/* A GPU was used, so the times it needed are worth showing. */
#define KMEANS_MODEL_GPU_TIMES(m)	((m)->context_ms > 0.0 || (m)->upload_ms > 0.0)

/* Centroids of d features that are dealt with between two looks at interrupts. */
extern int	kmeans_centroid_slice(int d);

/* All centroids as gk_model_prepare() makes them; a cancel ends it. */
extern void kmeans_model_prepare(const GkModel *m, float *out);

/* Detoasted; ERROR unless its size and limits are those of its header. */
extern KmeansModel *kmeans_model_from_datum(Datum datum);
#define PG_GETARG_KMEANS_MODEL(n)	kmeans_model_from_datum(PG_GETARG_DATUM(n))

/* An ERROR for a format version that cannot be read; sqlstate: for one that never was. */
extern void kmeans_model_check_version(int version, int sqlstate);

/* [d] What a NULL feature of a point becomes; NULL: a point with one has no cluster. */
extern const double *kmeans_model_fill(const KmeansModel *v);

/* The column names one after the other: v->ncolumns strings with their NULs. */
extern const char *kmeans_model_names(const KmeansModel *v);

/* The same as an array of strings in the value. */
extern char **kmeans_model_columns(const KmeansModel *v);

/* The binary form, its names in this encoding. */
extern void kmeans_model_put(StringInfo buf, const KmeansModel *v, int encoding);
extern KmeansModel *kmeans_model_get(StringInfo buf, int encoding);

/* The option that makes it another distance than 'euclidean', as messages name it. */
extern const char *kmeans_distance_option(GkDistance distance);

/* An ERROR if the distance is 'manhattan', or that of nulls => 'partial'. */
extern void kmeans_refuse_distance(GkDistance distance, const char *what);

/* An ERROR if the clusters of a model are not those of its centroids; what: that cannot be had. */
extern void kmeans_model_refuse_spectral(const KmeansModel *v, const char *what);

/* And an ERROR if they are. */
extern void kmeans_model_require_spectral(const KmeansModel *v, const char *what);

/* What a model does with NULL features, as the option nulls has it. */
extern const char *kmeans_nulls_word(const GkModel *m);

/* The words for init and distance, as options and in a model's text; 'partial' is in the text only. */
extern const char *const kmeans_init_words[];
extern const char *const kmeans_distance_words[];
extern const char *const kmeans_affinity_words[];
extern const char *const kmeans_laplacian_words[];
extern const char *const kmeans_choice_words[];
#define KMEANS_AFFINITIES	(GK_AFFINITY_RBF + 1)
#define KMEANS_LAPLACIANS	(GK_LAPLACIAN_UNNORMALIZED + 1)
#define KMEANS_CHOICES		(GK_CHOICE_GAP + 1)
#define KMEANS_INITS		(GK_INIT_HIERARCHICAL + 1)
#define KMEANS_DISTANCES	(GK_PARTIAL + 1)

/*
 * For the input functions: raise an error with this SQLSTATE unless the model
 * makes sense, then make it a value.  Arrays must have their sizes already.
 */
extern void kmeans_model_validate(const GkModel *m, char *const *columns, int ncolumns,
								  bool columns_array, int sqlstate);
extern void kmeans_model_validate_sizes(int64 k, int64 d, int sqlstate);
extern KmeansModel *kmeans_model_assemble(const GkModel *m, char *const *columns, int ncolumns,
										  bool columns_array);

#endif							/* MODEL_H */
