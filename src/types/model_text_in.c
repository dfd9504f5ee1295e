/*
 * model_text_in.c - text input of kmeans_model: JSON, as model_text_out.c writes it.
 *
 * The text goes through PostgreSQL's JSON parser, token by token: a model of a million clusters
 * would not fit into a jsonb value (256 MB).  The keys may come in any order, because
 * m::text::jsonb::text reorders them.  The text is not to be trusted; each way to be wrong has its
 * own message, which names the place as a JSON path does.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/jsonfuncs.h"
#include "utils/memutils.h"

#include "pg/pg_compat.h"
#include "types/model.h"

PG_FUNCTION_INFO_V1(kmeans_model_in);

/* ---- what is expected where ---- */

typedef enum Scope
{
	ROOT, PREPARATION, HISTORY, CLUSTER, SPECTRAL, SCOPES
} Scope;

/* INIT to CHOICE are words, OBJECT is a scope of its own. */
typedef enum Type
{
	INTEGER, BIGINT, NUMBER, BOOLEAN, STRING, INIT, DISTANCE, AFFINITY, LAPLACIAN, CHOICE, OBJECT
} Type;

/* PER_CLUSTER: one value, but in each cluster's object. */
typedef enum Shape
{
	ONE, PER_CLUSTER, ARRAY
} Shape;

/* A growing array.  Its data is copied into the value at the end. */
typedef struct Vector
{
	char	   *data;
	int64		len;
	int64		capacity;
} Vector;

typedef struct Reader
{
	int			depth;			/* open objects and arrays, without skipped ones */
	Scope		scope;			/* innermost object */
	/* Of the root object, and of the object inside it: */
	const struct Key *key[2];	/* whose value is being read; NULL: an unknown key */
	bool		in_array[2];	/* inside that key's array */
	int64		element[2];		/* which element of it */
	int			skipped;		/* open objects and arrays of an unknown key's value */
	char	   *unknown;		/* first unknown key */
	uint64		seen;			/* keys, by their place in the table */
	uint32		tokens;

	/* What was read */
	int32		version;
	GkModel		m;
	bool		columns_array;
	Vector		columns;
	Vector		size;
	Vector		inertia;
	Vector		radius;
	Vector		centroids;
	Vector		center;
	Vector		scale;
	Vector		expo;
	Vector		fill;
	Vector		history_inertia;
	Vector		history_shift;
	Vector		eigenvalues;
	Vector		spectral_clusters;
	Vector		spectral_weights;
	int64		centroid_len;	/* features of cluster 0 */
} Reader;

typedef struct Key
{
	Scope		scope;
	const char *name;
	Type		type;
	Shape		shape;
	size_t		offset;			/* in Reader; of an object: which scope it is */
	bool		optional;		/* keeps its initial value when missing */
} Key;

/* Of weight_exp, and of the clusters of a spectral model: it was not given. */
#define NO_WEIGHTS	PG_INT32_MIN
#define NO_SPECTRAL	PG_INT32_MIN

static const Key keys[] = {
	{ROOT, "version", INTEGER, ONE, offsetof(Reader, version)},
	{ROOT, "k", INTEGER, ONE, offsetof(Reader, m.k)},
	{ROOT, "k_asked", INTEGER, ONE, offsetof(Reader, m.k_asked)},
	{ROOT, "d", INTEGER, ONE, offsetof(Reader, m.prep.d)},
	{ROOT, "columns", STRING, ARRAY, offsetof(Reader, columns)},
	{ROOT, "columns_array", BOOLEAN, ONE, offsetof(Reader, columns_array)},
	{ROOT, "distance", DISTANCE, ONE, offsetof(Reader, m.prep.distance)},
	{ROOT, "standardize", BOOLEAN, ONE, offsetof(Reader, m.prep.standardize)},
	{ROOT, "init", INIT, ONE, offsetof(Reader, m.init)},
	{ROOT, "seed", BIGINT, ONE, offsetof(Reader, m.seed)},
	{ROOT, "rows_used", BIGINT, ONE, offsetof(Reader, m.rows_used)},
	{ROOT, "rows_skipped", BIGINT, ONE, offsetof(Reader, m.rows_skipped)},
	{ROOT, "iterations", INTEGER, ONE, offsetof(Reader, m.iterations)},
	{ROOT, "converged", BOOLEAN, ONE, offsetof(Reader, m.converged)},
	{ROOT, "inertia", NUMBER, ONE, offsetof(Reader, m.inertia)},
	{ROOT, "clusters", OBJECT, ARRAY, CLUSTER},
	{ROOT, "preparation", OBJECT, ONE, PREPARATION},
	{ROOT, "history", OBJECT, ONE, HISTORY},
	{ROOT, "spectral", OBJECT, ONE, SPECTRAL, true},
	{ROOT, "device", STRING, ONE, offsetof(Reader, m.device)},
	{ROOT, "strategy", STRING, ONE, offsetof(Reader, m.strategy)},
	{ROOT, "load_ms", NUMBER, ONE, offsetof(Reader, m.load_ms)},
	{ROOT, "context_ms", NUMBER, ONE, offsetof(Reader, m.context_ms), true},
	{ROOT, "upload_ms", NUMBER, ONE, offsetof(Reader, m.upload_ms), true},
	{ROOT, "seed_ms", NUMBER, ONE, offsetof(Reader, m.seed_ms)},
	{ROOT, "iterate_ms", NUMBER, ONE, offsetof(Reader, m.iterate_ms)},
	{ROOT, "total_ms", NUMBER, ONE, offsetof(Reader, m.total_ms)},
	{PREPARATION, "center", NUMBER, ARRAY, offsetof(Reader, center)},
	{PREPARATION, "scale", NUMBER, ARRAY, offsetof(Reader, scale)},
	{PREPARATION, "expo", INTEGER, ARRAY, offsetof(Reader, expo)},
	{PREPARATION, "unit_exp", INTEGER, ONE, offsetof(Reader, m.prep.unit_exp)},
	{PREPARATION, "weight_exp", INTEGER, ONE, offsetof(Reader, m.weights.expo), true},
	{PREPARATION, "fill", NUMBER, ARRAY, offsetof(Reader, fill), true},
	{HISTORY, "inertia", NUMBER, ARRAY, offsetof(Reader, history_inertia)},
	{HISTORY, "shift", NUMBER, ARRAY, offsetof(Reader, history_shift)},
	{SPECTRAL, "k", INTEGER, ONE, offsetof(Reader, m.spectral.k)},
	{SPECTRAL, "k_asked", INTEGER, ONE, offsetof(Reader, m.spectral.asked.k)},
	{SPECTRAL, "choice", CHOICE, ONE, offsetof(Reader, m.spectral.choice)},
	{SPECTRAL, "strength", NUMBER, ONE, offsetof(Reader, m.spectral.strength)},
	{SPECTRAL, "components", INTEGER, ONE, offsetof(Reader, m.spectral.components)},
	{SPECTRAL, "cut_off", INTEGER, ONE, offsetof(Reader, m.spectral.cut_off)},
	{SPECTRAL, "affinity", AFFINITY, ONE, offsetof(Reader, m.spectral.asked.affinity)},
	{SPECTRAL, "neighbors", INTEGER, ONE, offsetof(Reader, m.spectral.asked.neighbors)},
	{SPECTRAL, "gamma", NUMBER, ONE, offsetof(Reader, m.spectral.asked.gamma)},
	{SPECTRAL, "laplacian", LAPLACIAN, ONE, offsetof(Reader, m.spectral.asked.laplacian)},
	{SPECTRAL, "eigenvalues", NUMBER, ARRAY, offsetof(Reader, eigenvalues)},
	{SPECTRAL, "clusters", INTEGER, ARRAY, offsetof(Reader, spectral_clusters)},
	{SPECTRAL, "weights", NUMBER, ARRAY, offsetof(Reader, spectral_weights), true},
	{SPECTRAL, "graph_ms", NUMBER, ONE, offsetof(Reader, m.spectral.graph_ms)},
	{SPECTRAL, "eigen_ms", NUMBER, ONE, offsetof(Reader, m.spectral.eigen_ms)},
	{SPECTRAL, "embed_ms", NUMBER, ONE, offsetof(Reader, m.spectral.embed_ms)},
	{CLUSTER, "size", BIGINT, PER_CLUSTER, offsetof(Reader, size)},
	{CLUSTER, "inertia", NUMBER, PER_CLUSTER, offsetof(Reader, inertia)},
	{CLUSTER, "radius", NUMBER, PER_CLUSTER, offsetof(Reader, radius)},
	{CLUSTER, "centroid", NUMBER, ARRAY, offsetof(Reader, centroids)},
};

StaticAssertDecl(lengthof(keys) <= 64, "too many keys for the bits of Reader.seen");

static const char *const type_names[] = {
	"an integer", "an integer", "a number", "true or false", "a string", "a string", "a string", "a string", "a string", "a string", "an object"
};
static const char *const array_names[] = {
	"an array of integers", "an array of integers", "an array of numbers", NULL,
	"an array of strings", NULL, NULL, NULL, NULL, NULL, "an array of objects"
};

/* ---- errors ---- */

#define LEVEL(r)	((r)->scope == ROOT ? 0 : 1)

/* The place of a key's value, or of the element being read: clusters[3].centroid[2] */
static char *
place(const Reader *r, const Key *key)
{
	StringInfoData s;

	initStringInfo(&s);
	if (key->scope == PREPARATION)
		appendStringInfoString(&s, "preparation.");
	else if (key->scope == HISTORY)
		appendStringInfoString(&s, "history.");
	else if (key->scope == SPECTRAL)
		appendStringInfoString(&s, "spectral.");
	else if (key->scope == CLUSTER)
		appendStringInfo(&s, "clusters[%lld].", (long long) r->element[0]);
	appendStringInfoString(&s, key->name);
	if (r->in_array[LEVEL(r)] && key == r->key[LEVEL(r)])
		appendStringInfo(&s, "[%lld]", (long long) r->element[LEVEL(r)]);
	return s.data;
}

/* Text of unknown length as a part of a message. */
static char *
shorten(const char *text)
{
	int			len = strlen(text);
	int			clip = pg_mbcliplen(text, len, 40);

	return clip < len ? psprintf("%.*s...", clip, text) : pstrdup(text);
}

#define INVALID(...) \
	ereport(ERROR, \
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), \
			 errmsg("invalid kmeans_model: " __VA_ARGS__)))

/* A value of a wrong type, or an array for an element, or the other way round. */
static void
wrong_type(const Reader *r, const char *found)
{
	const Key  *key = r->key[LEVEL(r)];

	if (r->depth == 0)
		INVALID("the text is %s, expected an object", found);
	INVALID("\"%s\" is %s, expected %s", place(r, key), found,
			key->shape == ARRAY && !r->in_array[LEVEL(r)] ? array_names[key->type] : type_names[key->type]);
}

static void
check_complete(const Reader *r, Scope scope)
{
	for (int i = 0; i < lengthof(keys); i++)
		if (keys[i].scope == scope && !keys[i].optional && !(r->seen & (UINT64_C(1) << i)))
			INVALID("\"%s\" is missing", place(r, &keys[i]));
}

/* ---- values ---- */

static void *
vector_push(Vector *v, size_t size)
{
	if (v->len == v->capacity)
	{
		/* More could not become a value anyway. */
		if (v->capacity * size >= MaxAllocSize / 2)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("kmeans_model has an array of more than %lld elements",
							(long long) v->len)));
		v->capacity = Max(64, 2 * v->capacity);
		v->data = v->data ? repalloc(v->data, v->capacity * size) : palloc(v->capacity * size);
	}
	return v->data + size * v->len++;
}

static int64
read_integer(const Reader *r, const char *token, int64 low, int64 high, const char *type)
{
	char	   *end;
	int64		v;

	errno = 0;
	v = strtoll(token, &end, 10);
	if (*end != '\0')
		INVALID("\"%s\" is %s, expected an integer", place(r, r->key[LEVEL(r)]), shorten(token));
	if (errno != 0 || v < low || v > high)
		INVALID("\"%s\" is %s, out of range for type %s", place(r, r->key[LEVEL(r)]),
				shorten(token), type);
	return v;
}

/* The JSON lexer has checked the syntax. */
static double
read_number(const Reader *r, const char *token)
{
	double		v;

	errno = 0;
	v = strtod(token, NULL);
	/* Subnormal numbers may set errno too. */
	if (!isfinite(v) || (errno != 0 && v == 0.0))
		INVALID("\"%s\" is %s, out of range for type double precision",
				place(r, r->key[LEVEL(r)]), shorten(token));
	return v;
}

static int
read_word(const Reader *r, const char *token, const char *const *words, int n)
{
	StringInfoData list;

	for (int i = 0; i < n; i++)
		if (strcmp(token, words[i]) == 0)
			return i;
	initStringInfo(&list);
	for (int i = 0; i < n; i++)
		appendStringInfo(&list, "%s\"%s\"", i == 0 ? "" : i < n - 1 ? ", " : " or ", words[i]);
	INVALID("\"%s\" is \"%s\", expected %s", place(r, r->key[LEVEL(r)]), shorten(token), list.data);
	return -1;					/* keep compiler quiet */
}

static void
read_string(Reader *r, const char *token)
{
	const Key  *key = r->key[LEVEL(r)];
	size_t		room;

	if (key->shape == ARRAY)
	{
		*(char **) vector_push(&r->columns, sizeof(char *)) = pstrdup(token);
		return;
	}
	room = key->offset == offsetof(Reader, m.device) ? sizeof(r->m.device) : sizeof(r->m.strategy);
	if (strlen(token) >= room)
		INVALID("\"%s\" has %zu bytes, expected up to %zu", key->name, strlen(token), room - 1);
	strlcpy((char *) r + key->offset, token, room);
}

/* The parser itself does not look for a cancel. */
static void
count_token(Reader *r)
{
	if (++r->tokens % 4096 == 0)
		CHECK_FOR_INTERRUPTS();
}

static KmJsonResult
on_scalar(void *state, char *token, JsonTokenType tokentype)
{
	Reader	   *r = state;
	const Key  *key = r->key[LEVEL(r)];
	bool		in_array = r->in_array[LEVEL(r)];
	char	   *at = (char *) r;
	JsonTokenType expected;

	count_token(r);
	if (r->depth > 0 && key == NULL)
	{
		pfree(token);
		KM_JSON_RETURN;
	}
	/* true stands for both booleans here */
	expected = r->depth == 0 || key->type == OBJECT || in_array != (key->shape == ARRAY) ? JSON_TOKEN_INVALID :
		key->type <= NUMBER ? JSON_TOKEN_NUMBER :
		key->type == BOOLEAN ? JSON_TOKEN_TRUE : JSON_TOKEN_STRING;
	if (tokentype != expected && !(tokentype == JSON_TOKEN_FALSE && expected == JSON_TOKEN_TRUE))
		wrong_type(r, tokentype == JSON_TOKEN_STRING ? "a string" :
				   tokentype == JSON_TOKEN_NUMBER ? "a number" : token);

	at += key->offset;
	/* an integer or a number: the next of a vector, where there are many */
	if (key->type <= NUMBER && key->shape != ONE)
		at = vector_push((Vector *) at, key->type == INTEGER ? sizeof(int32) : sizeof(int64));
	switch (key->type)
	{
		case INTEGER:
			*(int32 *) at = read_integer(r, token, PG_INT32_MIN, PG_INT32_MAX, "integer");
			/* a newer version may have other keys: this comes before complaints about them */
			if (at == (char *) &r->version)
				kmeans_model_check_version(r->version, ERRCODE_INVALID_TEXT_REPRESENTATION);
			break;
		case BIGINT:
			*(int64 *) at = read_integer(r, token, PG_INT64_MIN, PG_INT64_MAX, "bigint");
			break;
		case NUMBER:
			*(double *) at = read_number(r, token);
			break;
		case BOOLEAN:
			*(bool *) at = tokentype == JSON_TOKEN_TRUE;
			break;
		case STRING:
			read_string(r, token);
			break;
		case INIT:
			*(GkInit *) at = read_word(r, token, kmeans_init_words, KMEANS_INITS);
			break;
		case DISTANCE:
			*(GkDistance *) at = read_word(r, token, kmeans_distance_words, KMEANS_DISTANCES);
			break;
		case AFFINITY:
			*(GkAffinity *) at = read_word(r, token, kmeans_affinity_words, KMEANS_AFFINITIES);
			break;
		case LAPLACIAN:
			*(GkLaplacian *) at = read_word(r, token, kmeans_laplacian_words, KMEANS_LAPLACIANS);
			break;
		case CHOICE:
			*(GkChoice *) at = read_word(r, token, kmeans_choice_words, KMEANS_CHOICES);
			break;
		case OBJECT:
			break;
	}
	if (in_array)
		r->element[LEVEL(r)]++;
	pfree(token);
	KM_JSON_RETURN;
}

/* ---- structure ---- */

static KmJsonResult
on_object_start(void *state)
{
	Reader	   *r = state;
	const Key  *key = r->key[LEVEL(r)];

	count_token(r);
	if (r->depth > 0)
	{
		if (key == NULL)
		{
			r->skipped++;
			KM_JSON_RETURN;
		}
		if (key->type != OBJECT || r->in_array[0] != (key->shape == ARRAY))
			wrong_type(r, "an object");
		r->scope = (Scope) key->offset;
		for (int i = 0; i < lengthof(keys); i++)
			if (keys[i].scope == r->scope)
				r->seen &= ~(UINT64_C(1) << i);
	}
	r->depth++;
	KM_JSON_RETURN;
}

static KmJsonResult
on_object_end(void *state)
{
	Reader	   *r = state;

	if (r->skipped > 0)
	{
		r->skipped--;
		KM_JSON_RETURN;
	}
	/* The root object waits until unknown keys have been reported. */
	if (r->scope != ROOT)
		check_complete(r, r->scope);
	if (r->scope == CLUSTER)
		r->element[0]++;
	r->scope = ROOT;
	r->depth--;
	KM_JSON_RETURN;
}

static KmJsonResult
on_field(void *state, char *fname, bool isnull)
{
	Reader	   *r = state;
	const Key  *found = NULL;

	if (r->skipped > 0)
	{
		pfree(fname);
		KM_JSON_RETURN;
	}
	for (int i = 0; i < lengthof(keys) && found == NULL; i++)
		if (keys[i].scope == r->scope && strcmp(keys[i].name, fname) == 0)
		{
			found = &keys[i];
			if (r->seen & (UINT64_C(1) << i))
				INVALID("\"%s\" is given twice", place(r, found));
			r->seen |= UINT64_C(1) << i;
		}
	r->key[LEVEL(r)] = found;
	if (found == NULL && r->unknown == NULL)
		r->unknown = shorten(fname);
	pfree(fname);
	KM_JSON_RETURN;
}

static KmJsonResult
on_array_start(void *state)
{
	Reader	   *r = state;
	int			level = LEVEL(r);
	const Key  *key = r->key[level];

	count_token(r);
	if (r->depth > 0 && key == NULL)
	{
		r->skipped++;
		KM_JSON_RETURN;
	}
	if (r->depth == 0 || key->shape != ARRAY || r->in_array[level])
		wrong_type(r, "an array");
	r->in_array[level] = true;
	r->element[level] = 0;
	r->depth++;
	KM_JSON_RETURN;
}

static KmJsonResult
on_array_end(void *state)
{
	Reader	   *r = state;
	int			level = LEVEL(r);

	if (r->skipped > 0)
	{
		r->skipped--;
		KM_JSON_RETURN;
	}
	r->in_array[level] = false;
	r->depth--;
	/* Centroids lie one after the other, so each must be as long as the first. */
	if (r->scope == CLUSTER)
	{
		if (r->element[0] == 0)
			r->centroid_len = r->element[1];
		else if (r->element[1] != r->centroid_len)
			INVALID("\"%s\" has length %lld, expected %lld as in the first cluster",
					place(r, r->key[1]), (long long) r->element[1], (long long) r->centroid_len);
	}
	KM_JSON_RETURN;
}

static void
check_length(const char *name, int64 len, const char *other, int64 expected)
{
	if (len != expected)
		INVALID("\"%s\" has length %lld, expected %lld (%s)",
				name, (long long) len, (long long) expected, other);
}

/* Was this key of an object there, which is optional? */
static bool
is_given(const Reader *r, size_t offset)
{
	for (int i = 0; i < lengthof(keys); i++)
		if (keys[i].type != OBJECT && keys[i].offset == offset)
			return (r->seen & (UINT64_C(1) << i)) != 0;
	return false;
}

/* What belongs to models that fill in NULLs. */
static void
finish_fill(Reader *r)
{
	if (!is_given(r, offsetof(Reader, fill)))
		return;
	check_length("preparation.fill", r->fill.len, "d", r->m.prep.d);
	r->m.fill = (double *) r->fill.data;
}

/* Take over what belongs to a spectral model, if this is one. */
static void
finish_spectral(Reader *r)
{
	GkSpectral *s = &r->m.spectral;

	if (s->k == NO_SPECTRAL)
	{
		s->k = 0;
		return;
	}
	if (s->k < 1)
		INVALID("\"spectral.k\" is %d, expected at least 1", s->k);
	check_length("spectral.clusters", r->spectral_clusters.len, "k", r->m.k);
	s->neigenvalues = (int) r->eigenvalues.len;
	s->eigenvalue = (double *) r->eigenvalues.data;
	s->cluster = (int32_t *) r->spectral_clusters.data;
	if (!is_given(r, offsetof(Reader, spectral_weights)))
		return;
	check_length("spectral.weights", r->spectral_weights.len, "k", r->m.k);
	s->weight = (double *) r->spectral_weights.data;
}

Datum
kmeans_model_in(PG_FUNCTION_ARGS)
{
	char	   *text = PG_GETARG_CSTRING(0);
	Reader	   *r;
	JsonSemAction actions;
	KmeansModel *result;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt = AllocSetContextCreate(caller, "kmeans_model input", ALLOCSET_DEFAULT_SIZES);

	MemoryContextSwitchTo(cxt);
	r = palloc0(sizeof(Reader));
	r->m.weights.expo = NO_WEIGHTS;
	r->m.spectral.k = NO_SPECTRAL;
	actions = (JsonSemAction) {.semstate = r,.object_start = on_object_start,.object_end = on_object_end,
		.array_start = on_array_start,.array_end = on_array_end,.object_field_start = on_field,.scalar = on_scalar};
	pg_parse_json_or_ereport(km_json_lexer(text, strlen(text)), &actions);

	if (r->unknown != NULL)
		INVALID("unknown key \"%s\"", r->unknown);
	check_complete(r, ROOT);
	kmeans_model_validate_sizes(r->m.k, r->m.prep.d, ERRCODE_INVALID_TEXT_REPRESENTATION);
	check_length("clusters", r->size.len, "k", r->m.k);
	check_length("clusters[0].centroid", r->centroid_len, "d", r->m.prep.d);
	check_length("preparation.center", r->center.len, "d", r->m.prep.d);
	check_length("preparation.scale", r->scale.len, "d", r->m.prep.d);
	check_length("preparation.expo", r->expo.len, "d", r->m.prep.d);
	check_length("history.shift", r->history_shift.len, "as history.inertia", r->history_inertia.len);

	r->m.weights.known = r->m.weights.expo != NO_WEIGHTS;
	if (!r->m.weights.known)
		r->m.weights.expo = 0;
	r->m.prep.center = (double *) r->center.data;
	r->m.prep.scale = (double *) r->scale.data;
	r->m.prep.expo = (int32_t *) r->expo.data;
	r->m.centroids = (double *) r->centroids.data;
	r->m.size = (int64_t *) r->size.data;
	r->m.cluster_inertia = (double *) r->inertia.data;
	r->m.radius = (double *) r->radius.data;
	r->m.history_len = (int) r->history_inertia.len;
	r->m.history_inertia = (double *) r->history_inertia.data;
	r->m.history_shift = (double *) r->history_shift.data;
	finish_fill(r);
	finish_spectral(r);
	kmeans_model_validate(&r->m, (char *const *) r->columns.data, (int) r->columns.len,
						  r->columns_array, ERRCODE_INVALID_TEXT_REPRESENTATION);

	MemoryContextSwitchTo(caller);
	result = kmeans_model_assemble(&r->m, (char *const *) r->columns.data, (int) r->columns.len,
								   r->columns_array);
	MemoryContextDelete(cxt);
	PG_RETURN_POINTER(result);
}
