/*
 * pg_advice.c - hints for calls that PostgreSQL cannot resolve.
 *
 * A misspelt option, k = 3.0 or a name without quotes never reaches a function: the parser
 * refuses the call, and says only that there is no such function.  An error on its way to the
 * client is the one place where something can be added, so its HINT is written here.  The error
 * has happened, and nothing may fail: this looks at texts only.
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/elog.h"
#include "utils/varlena.h"

#include "pg/pg.h"

static emit_log_hook_type next_hook;

/* Names of arguments. */
static const char *const names[] = {
	"affinity", "centroid_table", "centroids", "columns", "device", "distance", "fit_sample", "gamma", "group_by", "id_columns",
	"init", "init_sample", "k", "k_max", "k_min", "label_column", "label_table", "laplacian", "max_iter", "max_size", "min_size",
	"model", "n_init", "neighbors", "nonfinite", "nulls", "point", "query", "relation", "representatives", "sample", "seed",
	"standardize", "step", "tol", "warm_start", "weight_column"
};

/* Names that others have for them: scikit-learn, BigQuery ML, MADlib, Spark, faiss, R. */
static const char *const synonyms[][2] = {
	{"algorithm", "init"}, {"clusters", "k"}, {"distance_type", "distance"}, {"fn_dist", "distance"},
	{"initial_centroids", "centroids"}, {"initialization", "init"}, {"initmode", "init"},
	{"iterations", "max_iter"}, {"kmeans_init_method", "init"}, {"label", "label_column"},
	{"max_iterations", "max_iter"}, {"max_num_iterations", "max_iter"}, {"max_points_per_centroid", "fit_sample"},
	{"maxiter", "max_iter"}, {"metric", "distance"}, {"min_frac_reassigned", "tol"}, {"min_rel_progress", "tol"},
	{"n_clusters", "k"}, {"niter", "max_iter"}, {"normalize", "standardize"}, {"nredo", "n_init"}, {"nstart", "n_init"},
	{"num_clusters", "k"}, {"random_seed", "seed"}, {"random_state", "seed"}, {"sample_weight", "weight_column"},
	{"seeding_sample_ratio", "init_sample"}, {"spherical", "distance"}, {"standardize_features", "standardize"},
	{"tolerance", "tol"}, {"weight", "weight_column"}, {"weightcol", "weight_column"}
};

/* Functions whose first argument is a relation. */
static const char *const of_relations[] = {
	"kmeans", "kmeans_anomalies", "kmeans_balanced", "kmeans_balanced_fit", "kmeans_fit", "kmeans_from_table", "kmeans_grouped",
	"kmeans_label_table", "kmeans_labels", "kmeans_medoids", "kmeans_mixed", "kmeans_mixed_fit", "kmeans_scan", "kmeans_scan_svg",
	"kmeans_spectral", "kmeans_spectral_fit"
};

/* Settings, after "gkmeans.". */
static const char *const settings[] = {
	"chunk_size", "device", "enable_window_scan", "feature_sum", "gpu_devices", "gpu_memory_limit", "keep_memory",
	"log_min_duration", "mass_sum", "max_gpu_sessions", "memory_limit", "reader", "simd", "skip_points", "strategy",
	"threads", "workers"
};

#define MAX_NAME	63

/* The one of these words that is most like another one, or NULL when none is. */
static const char *
most_like(const char *word, const char *const *words, int n)
{
	int			length = (int) strlen(word);
	int			best = length / 2 + 1;
	const char *found = NULL;

	for (int i = 0; i < n; i++)
	{
		int			changes = varstr_levenshtein(word, length, words[i], (int) strlen(words[i]), 1, 1, 1, true);

		if (changes < best)
		{
			best = changes;
			found = words[i];
		}
	}
	return found;
}

/* The argument that a word was meant for, or NULL when it is one already or like none. */
static const char *
meant(const char *word)
{
	for (int i = 0; i < (int) lengthof(names); i++)
		if (strcmp(word, names[i]) == 0)
			return NULL;
	for (int i = 0; i < (int) lengthof(synonyms); i++)
		if (pg_strcasecmp(word, synonyms[i][0]) == 0)
			return synonyms[i][1];
	return most_like(word, names, lengthof(names));
}

/* unrecognized configuration parameter "gkmeans.devices" */
static char *
about_setting(const char *message)
{
	static const char prefix[] = "\"gkmeans.";
	const char *start = strstr(message, prefix);
	char		name[MAX_NAME + 1];
	const char *setting;
	Size		length;

	if (start == NULL)
		return NULL;
	start += strlen(prefix);
	length = strcspn(start, "\"");
	if (length > MAX_NAME)
		return NULL;
	strlcpy(name, start, length + 1);
	setting = most_like(name, settings, lengthof(settings));
	if (setting != NULL && strcmp(name, setting) == 0)
		return psprintf("gkmeans.%s exists only where gkmeans is in shared_preload_libraries.", name);
	return setting == NULL ? pstrdup("The settings are those in pg_settings whose names begin with \"gkmeans\".") :
		psprintf("There is no setting \"gkmeans.%s\"; \"gkmeans.%s\" is meant?", name, setting);
}

/* How a function is called. */
static const char *
call_of(const char *function)
{
	if (strcmp(function, "kmeans_query") == 0 || strcmp(function, "kmeans_query_fit") == 0)
		return "('SELECT visits, spent FROM customers', 3, seed => 7)";
	if (strcmp(function, "kmeans_label_table") == 0)
		return "('customers', '{visits,spent}', 3, 'segments', '{id}', seed => 7)";
	if (strcmp(function, "kmeans_from_table") == 0)
		return "('centroids', '{visits,spent}', distance => 'cosine')";
	if (strcmp(function, "kmeans_grouped") == 0)
		return "('customers', '{country}', '{visits,spent}', 3, seed => 7)";
	if (strcmp(function, "kmeans_scan") == 0)
		return "('customers', '{visits,spent}', 2, 10, seed => 7)";
	if (strcmp(function, "kmeans_balanced") == 0 || strcmp(function, "kmeans_balanced_fit") == 0)
		return "('customers', '{visits,spent}', 3, max_size => 100)";
	if (strcmp(function, "kmeans_mixed") == 0 || strcmp(function, "kmeans_mixed_fit") == 0)
		return "('customers', '{spent,country}', 3, seed => 7)";
	if (strcmp(function, "kmeans") == 0 || strcmp(function, "kmeans_fit") == 0 || strcmp(function, "kmeans_labels") == 0 ||
		strcmp(function, "kmeans_spectral") == 0 || strcmp(function, "kmeans_spectral_fit") == 0)
		return "('customers', '{visits,spent}', 3, seed => 7)";
	return NULL;
}

static bool
takes_relation(const char *function)
{
	for (int i = 0; i < (int) lengthof(of_relations); i++)
		if (pg_strcasecmp(function, of_relations[i]) == 0)
			return true;
	return false;
}

/* The next word of an argument list: name => type, or type.  False: there is no more. */
static bool
next_argument(const char **at, char *name, char *type)
{
	const char *end = *at + strcspn(*at, ",)");
	const char *arrow = strstr(*at, " => ");
	const char *from = *at;

	if (**at == '\0' || **at == ')')
		return false;
	name[0] = '\0';
	if (arrow != NULL && arrow < end)
	{
		if (arrow - *at <= MAX_NAME)
			strlcpy(name, *at, arrow - *at + 1);
		from = arrow + strlen(" => ");
	}
	strlcpy(type, from, Min(end - from, MAX_NAME) + 1);
	*at = *end == ',' ? end + 1 + strspn(end + 1, " ") : end;
	return true;
}

/* The name that ends just before `end`, without a schema.  False: it is longer than ours are. */
static bool
name_before(const char *text, const char *end, char *name)
{
	const char *start = end;

	while (start > text && (isalnum((unsigned char) start[-1]) || start[-1] == '_'))
		start--;
	if (end - start > MAX_NAME)
		return false;
	strlcpy(name, start, end - start + 1);
	return true;
}

/* The function of a message, and where its arguments begin there; NULL: it has none. */
static const char *
function_of(const char *message, char *function)
{
	const char *open = strchr(message, '(');

	return open != NULL && name_before(message, open, function) ? open + 1 : NULL;
}

static bool
ends_with(const char *text, const char *end)
{
	return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* function kmeans(unknown, unknown, numeric, n_clusters => integer) does not exist */
static char *
about_call(const char *message)
{
	char		function[MAX_NAME + 1];
	char		name[MAX_NAME + 1];
	char		type[MAX_NAME + 1];
	const char *at = function_of(message, function);
	const char *call = at != NULL ? call_of(function) : NULL;

	if (call == NULL)
		return NULL;
	for (int i = 0; next_argument(&at, name, type); i++)
	{
		const char *word = name[0] != '\0' ? meant(name) : NULL;
		bool		k = name[0] != '\0' ? strcmp(name, "k") == 0 : i == (strncmp(function, "kmeans_query", 12) == 0 ? 1 : 2);
		bool		fraction = strcmp(type, "numeric") == 0 || strcmp(type, "double precision") == 0 || strcmp(type, "real") == 0;

		if ((strcmp(name, "min_size") == 0 || strcmp(name, "max_size") == 0) && strncmp(function, "kmeans_balanced", 15) != 0)
			return psprintf("%s is an option of kmeans_balanced() and kmeans_balanced_fit().", name);
		if (word != NULL)
			return psprintf("There is no option \"%s\"; \"%s\" is meant? The call is %s%s.", name, word, function, call);
		if (strcmp(name, "centroids") == 0 && (ends_with(type, "vector[]") || ends_with(type, "vec[]")))
			return pstrdup("centroids are an array of arrays of numbers, as array_agg(e::real[]) makes it of vectors.");
		if (k && fraction)
			return psprintf("k is an integer, as in %s%s; of another type, cast it: k::int.", function, call);
	}
	return psprintf("The call is %s%s.", function, call);
}

/* function kmeans(unknown, unknown, unknown) is not unique; function feature_sum(vector) is not unique */
static char *
about_types(const char *message)
{
	char		function[MAX_NAME + 1];
	char		name[MAX_NAME + 1];
	char		type[MAX_NAME + 1];
	const char *at = function_of(message, function);

	if (at == NULL)
		return NULL;
	if (takes_relation(function))
		return psprintf("A quoted text, NULL or a parameter has no type of its own: %s($1::regclass, $2::text[], $3::int).", function);
	if (strcmp(function, "feature_sum") != 0 && strcmp(function, "kmeans_step") != 0)
		return NULL;
	while (next_argument(&at, name, type))
	{
		if (strcmp(type, "vector") == 0 || ends_with(type, ".vector"))
			return pstrdup("Cast it, as in e::real[]; with the extension gkmeans_vector this is not needed.");
		/* of a domain */
		if (ends_with(type, "[]"))
			return pstrdup("Cast it, as in a::float8[].");
	}
	return NULL;
}

/* An error's place in its statement, whose beginning is *text; NULL: it has none. */
static const char *
place_of(const ErrorData *e, const char **text)
{
	int			place = e->internalquery != NULL ? e->internalpos : e->cursorpos;
	const char *at;

	*text = e->internalquery != NULL ? e->internalquery : debug_query_string;
	if (*text == NULL || place <= 0)
		return NULL;
	/* places are counted in characters, from 1 */
	at = *text;
	for (int i = 1; i < place && *at != '\0'; i++)
		at += pg_mblen(at);
	return at;
}

/* Does a call of one of our functions open just before `end`?  Of which? */
static bool
call_opens(const char *text, const char *end, char *function)
{
	while (end > text && isspace((unsigned char) end[-1]))
		end--;
	return end > text && end[-1] == '(' && name_before(text, end - 1, function) && pg_strncasecmp(function, "kmeans", 6) == 0;
}

/* Is an error's place the first argument of a call of one of our functions? */
static bool
in_call(const ErrorData *e, char *function)
{
	const char *text;
	const char *at = place_of(e, &text);

	return at != NULL && call_opens(text, at, function);
}

/* Does OVER follow the call that an error's place is in? */
static bool
over_follows(const ErrorData *e)
{
	const char *text;
	const char *at = place_of(e, &text);
	int			open = 1;

	/* (parentheses in a text between may mislead, as below) */
	for (; at != NULL && *at != '\0' && open > 0; at++)
		open += *at == '(' ? 1 : *at == ')' ? -1 : 0;
	while (at != NULL && isspace((unsigned char) *at))
		at++;
	return at != NULL && pg_strncasecmp(at, "over", 4) == 0;
}

/* malformed array literal: "visits", in a call of one of our functions */
static char *
about_array(const ErrorData *e)
{
	const char *text;
	const char *at = place_of(e, &text);
	const char *open = at;
	int			closed = 0;
	Size		length;
	char		function[MAX_NAME + 1];
	char		word[MAX_NAME + 1];

	if (at == NULL || *at != '\'')
		return NULL;
	/* (parentheses in a text between may mislead: then there is no hint) */
	for (; open > text && (open[-1] != '(' || closed > 0); open--)
		closed += open[-1] == ')' ? 1 : open[-1] == '(' ? -1 : 0;
	length = strcspn(++at, "'");
	if (!call_opens(text, open, function) || length > MAX_NAME)
		return NULL;
	strlcpy(word, at, length + 1);
	/* not an array of numbers */
	if (!isalpha((unsigned char) word[0]) && word[0] != '_')
		return NULL;
	for (Size i = 0; i < length; i++)
		if (!isalnum((unsigned char) word[i]) && strchr("_, ", word[i]) == NULL)
			return NULL;
	return psprintf("Names of columns are an array, of one, too: '{%s}'.", word);
}

static char *
advice(const ErrorData *e)
{
	char		function[MAX_NAME + 1];

	if (e->message_id == NULL || e->message == NULL)
		return NULL;
	if (strcmp(e->message_id, "function %s does not exist") == 0)
		return about_call(e->message);
	if (strcmp(e->message_id, "function %s is not unique") == 0)
		return about_types(e->message);
	if (strcmp(e->message_id, "window function %s requires an OVER clause") == 0)
		return strstr(e->message, "kmeans") == NULL ? NULL :
			psprintf("Is k missing? The call is kmeans%s; labels of a query's rows: kmeans(ARRAY[visits, spent], 3) OVER ().", call_of("kmeans"));
	if (strcmp(e->message_id, "unrecognized configuration parameter \"%s\"") == 0 ||
		strcmp(e->message_id, "invalid configuration parameter name \"%s\"") == 0)
		return about_setting(e->message);
	if (strcmp(e->message_id, "malformed array literal: \"%s\"") == 0)
		return about_array(e);
	if (strcmp(e->message_id, "invalid name syntax") == 0 && in_call(e, function))
		return psprintf("The first argument is the name of a relation. For a query: kmeans_query%s.", call_of("kmeans_query"));
	if (strcmp(e->message_id, "column \"%s\" does not exist") == 0 && e->hint == NULL && in_call(e, function) &&
		pg_strncasecmp(function, "kmeans_query", 12) == 0 && call_of(function) != NULL)
		return psprintf("A query is a text: %s%s.", function, call_of(function));
	/* (where a column is named nearly so, PostgreSQL's own hint names it) */
	if (strcmp(e->message_id, "column \"%s\" does not exist") == 0 && e->hint == NULL && in_call(e, function) &&
		takes_relation(function) && !over_follows(e))
		return psprintf("A relation's name is quoted, as in %s('customers', ...).", function);
	return NULL;
}

static void
add_hint(ErrorData *e)
{
	char	   *hint = e->elevel == ERROR ? advice(e) : NULL;

	if (hint != NULL)
		e->hint = hint;
	if (next_hook != NULL)
		next_hook(e);
}

void
km_advice_init(void)
{
	next_hook = emit_log_hook;
	emit_log_hook = add_hint;
}
