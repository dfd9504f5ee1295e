/*
 * rescan_job.c - a job of a coordinator on this server: the relations that it asks about, and rows of theirs that
 * stay between its passes.
 *
 * A job names its relations once.  Its later passes are of the same transaction, and so is what they need not do
 * again for each relation: look it up, check it, send its name and the ordinal of its first row.
 *
 * In a transaction with one snapshot, as a job is, all passes see the same rows.  Those of plain tables stay, as the
 * passes look at them, within gkmeans.memory_limit; a table that has no room is read again in every pass.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/rls.h"

#include "gkmeans.h"
#include "relation/rel_rules.h"
#include "rescan/rescan.h"

/* Rows that stay, in the memory of the host. */
typedef struct Kept
{
	struct Kept *next;
	/* How they are read and prepared. */
	KmPassReading reading;
	int			weight_exp;
	bool		raw;
	GkPrep		prep;
	KmPgHost   *host;
	bool		made;			/* a pass has seen all relations */
	bool	   *stays;			/* [n] the relation's rows are here */
	KmReadCounts counts;		/* of those relations */
	GkKeptRows	rows;
} Kept;

typedef struct Job
{
	MemoryContext context;
	MemoryContextCallback end;
	/* Whose, and until when nothing else can have changed. */
	Oid			user;
	CommandId	command;
	SubTransactionId subtransaction;
	char	  **columns;
	int			ncolumns;
	const char *weight_column;	/* NULL: none */
	int			n;
	KmSource  **source;			/* [n] */
	bool	   *plain;			/* [n] the rows may stay */
	int64	   *first;			/* [n] ordinal of the first row */
	Kept	   *kept;
	bool		busy;			/* in a pass: a view may ask for another one meanwhile */
} Job;

static Job *job = NULL;			/* of this transaction */

static void
forget_job(void *arg)
{
	if (job == arg)
		job = NULL;
}

/* ---- the relations ---- */

/* The elements of an array without NULLs. */
static Datum *
elements(ArrayType *array, const char *name, Oid type, int bytes, int *n)
{
	Datum	   *values;
	bool	   *nulls;

	deconstruct_array(array, type, bytes, true, bytes == 8 ? TYPALIGN_DOUBLE : TYPALIGN_INT, &values, &nulls, n);
	for (int i = 0; i < *n; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain NULLs", name),
					 errhint(KM_FOR_COORDINATORS)));
	return values;
}

static bool
same_columns(char **columns, int ncolumns, const char *weight_column)
{
	if (job->ncolumns != ncolumns || (job->weight_column == NULL) != (weight_column == NULL) ||
		(weight_column != NULL && strcmp(job->weight_column, weight_column) != 0))
		return false;
	for (int i = 0; i < ncolumns; i++)
		if (strcmp(job->columns[i], columns[i]) != 0)
			return false;
	return true;
}

/* Does a call go on with the job, as far as it names relations? */
static bool
goes_on(bool named, const Datum *relation, int n, char **columns, int ncolumns, const char *weight_column)
{
	if (job == NULL || job->busy || job->user != GetUserId() || job->command != GetCurrentCommandId(false) ||
		job->subtransaction != GetCurrentSubTransactionId() || !same_columns(columns, ncolumns, weight_column))
		return false;
	if (named && n != job->n)
		return false;
	for (int i = 0; named && i < n; i++)
		if (DatumGetObjectId(relation[i]) != job->source[i]->relid)
			return false;
	return true;
}

/* Rows that a policy hides may be others in the next pass, by a setting. */
static bool
is_plain(const KmSource *source)
{
	return source->relkind == RELKIND_RELATION && check_enable_rls(source->relid, InvalidOid, true) == RLS_NONE;
}

static void
begin_job(const Datum *relation, int n, char **columns, int ncolumns, const char *weight_column)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans job", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Job		   *j = palloc0(sizeof(Job));

	if (job != NULL && !job->busy)
		MemoryContextDelete(job->context);
	j->context = context;
	j->user = GetUserId();
	j->command = GetCurrentCommandId(false);
	j->subtransaction = GetCurrentSubTransactionId();
	j->columns = palloc(ncolumns * sizeof(char *));
	j->ncolumns = ncolumns;
	for (int i = 0; i < ncolumns; i++)
		j->columns[i] = pstrdup(columns[i]);
	j->weight_column = weight_column != NULL ? pstrdup(weight_column) : NULL;
	j->n = n;
	j->source = palloc(Max(n, 1) * sizeof(KmSource *));
	j->plain = palloc(Max(n, 1) * sizeof(bool));
	j->first = palloc0(Max(n, 1) * sizeof(int64));
	for (int i = 0; i < n; i++)
	{
		j->source[i] = km_source_open(DatumGetObjectId(relation[i]), j->columns, ncolumns, j->weight_column, NULL, false);
		j->plain[i] = is_plain(j->source[i]);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(context, CurTransactionContext);
	j->end.func = forget_job;
	j->end.arg = j;
	MemoryContextRegisterResetCallback(context, &j->end);
	job = j;
}

/* Number the rows; those that have stayed with other numbers go. */
static void
number_rows(const Datum *first, int n)
{
	bool		same = true;

	if (n != job->n)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("there are %d relations, but %d first_rows", job->n, n),
				 errhint("Each relation has the ordinal of its first row. " KM_FOR_COORDINATORS)));
	for (int i = 0; i < n; i++)
	{
		int64		row = DatumGetInt64(first[i]);

		if (row < 0 || row > GK_MAX_ROWS)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("first_row is " INT64_FORMAT ", expected 0 to " INT64_FORMAT, row, (int64) GK_MAX_ROWS),
					 errhint(KM_FOR_COORDINATORS)));
		same = same && row == job->first[i];
		job->first[i] = row;
	}
	while (!same && job->kept != NULL)
	{
		Kept	   *k = job->kept;

		job->kept = k->next;
		km_host_end(k->host);
	}
}

void
km_job(ArrayType *relations, char **columns, int ncolumns, const char *weight_column, ArrayType *first_rows)
{
	int			n = 0;
	Datum	   *relation = relations != NULL ? elements(relations, "relations", REGCLASSOID, sizeof(Oid), &n) : NULL;

	if (!goes_on(relations != NULL, relation, n, columns, ncolumns, weight_column))
	{
		if (relations == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no relations have been named in this transaction"),
					 errhint(KM_FOR_COORDINATORS)));
		begin_job(relation, n, columns, ncolumns, weight_column);
	}
	if (first_rows != NULL)
	{
		Datum	   *first = elements(first_rows, "first_rows", INT8OID, sizeof(int64), &n);

		number_rows(first, n);
	}
}

/* ---- rows that stay ---- */

static bool
same_reading(const KmPassReading *a, const KmPassReading *b)
{
	return a->distance == b->distance && a->skip_nonfinite == b->skip_nonfinite && a->expect_d == b->expect_d;
}

static bool
same_prep(const GkPrep *a, const GkPrep *b)
{
	Size		d = a->d;

	return a->d == b->d && a->standardize == b->standardize && a->unit_exp == b->unit_exp &&
		memcmp(a->center, b->center, d * sizeof(double)) == 0 && memcmp(a->scale, b->scale, d * sizeof(double)) == 0 &&
		memcmp(a->expo, b->expo, d * sizeof(*a->expo)) == 0;
}

/* What the others leave of the memory limit. */
static Size
room_to_keep(const Job *j)
{
	Size		limit = km_memory_limit_bytes();

	for (Kept *k = j->kept; k != NULL; k = k->next)
		limit -= Min(limit, k->rows.bytes);
	return limit;
}

static Kept *
begin_kept(Job *j, const GkPass *pass, const KmPassReading *reading)
{
	MemoryContext caller = MemoryContextSwitchTo(j->context);
	KmPgHost   *host = km_host_begin();
	Size		d = pass->prep->d;
	Kept	   *k;

	MemoryContextSwitchTo(km_host_context(host));
	k = palloc0(sizeof(Kept));
	k->host = host;
	k->reading = *reading;
	k->weight_exp = pass->weight_exp;
	k->raw = pass->raw;
	k->prep = *pass->prep;
	k->prep.center = memcpy(palloc(d * sizeof(double)), pass->prep->center, d * sizeof(double));
	k->prep.scale = memcpy(palloc(d * sizeof(double)), pass->prep->scale, d * sizeof(double));
	k->prep.expo = memcpy(palloc(d * sizeof(*k->prep.expo)), pass->prep->expo, d * sizeof(*k->prep.expo));
	k->stays = palloc0(Max(j->n, 1) * sizeof(bool));
	k->rows.limit = room_to_keep(j);
	k->next = j->kept;
	j->kept = k;
	MemoryContextSwitchTo(caller);
	return k;
}

/* Where the rows of a pass are, or are to be; NULL: they may not stay. */
static Kept *
find_kept(Job *j, const GkPass *pass, const KmPassReading *reading)
{
	if (!IsolationUsesXactSnapshot() || !gk_pass_may_keep(pass))
		return NULL;
	for (Kept *k = j->kept; k != NULL; k = k->next)
		if (same_reading(&k->reading, reading) && k->weight_exp == pass->weight_exp && k->raw == pass->raw &&
			same_prep(&k->prep, pass->prep))
			return k;
	return begin_kept(j, pass, reading);
}

/* ---- a pass ---- */

typedef struct Ask
{
	Job		   *job;
	KmPgHost   *host;
	Kept	   *kept;			/* NULL: nothing stays */
	GkPassAnswerer *answerer;
	MemoryContext context;		/* of a relation's reading */
	KmReadOptions read;
	KmPassAnswer answer;
} Ask;

/* Read a relation, and keep its rows where that is wanted and possible. */
static void
read_relation(Ask *a, int i)
{
	Kept	   *k = a->kept;
	bool		keep = k != NULL && !k->made && a->job->plain[i];
	int64		before = gk_pass_answer_rows(a->answerer);
	MemoryContext caller = MemoryContextSwitchTo(a->context);
	KmReadCounts counts = {0};
	KmTables	tables;
	GkError		err;

	gk_pass_answer_begin(a->answerer, a->job->first[i], keep ? &k->rows : NULL);
	km_rescan_read(a->host, a->job->source[i], &a->read, a->answerer, &counts, &tables);
	km_check(a->host, gk_pass_answer_flush(a->answerer, &err), &err);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(a->context);
	a->answer.rows[i] = gk_pass_answer_rows(a->answerer) - before;
	km_counts_add(&a->answer.counts, &counts);
	if (keep && !k->rows.full)
	{
		k->stays[i] = true;
		km_counts_add(&k->counts, &counts);
	}
}

/* All rows of the job: those that have stayed, then the others. */
static void
ask_all(Ask *a)
{
	Kept	   *k = a->kept;
	GkError		err;

	if (k != NULL && k->made)
	{
		km_check(a->host, gk_pass_answer_again(a->answerer, &k->rows, &err), &err);
		a->answer.counts = k->counts;
	}
	for (int i = 0; i < a->job->n; i++)
		if (k == NULL || !k->made || !k->stays[i])
			read_relation(a, i);
	if (k != NULL)
		k->made = true;
}

static const GkBackend *
choose_device(KmPgHost *host, GkDeviceKind kind, const GkPass *pass)
{
	if (pass->kind != GK_PASS_STEP && pass->kind != GK_PASS_FINISH && (!gk_pass_measures(pass) || pass->raw))
		return &gk_cpu_backend;
	return km_rescan_choose(host, kind, PG_INT64_MAX, pass->prep->d, pass->k);
}

/* The columns have as many features as the pass. */
static void
check_features(const Job *j, int d)
{
	for (int i = 0; i < j->n; i++)
		if (!j->source[i]->array && j->ncolumns != d)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("there are %d columns, but the pass has %d features", j->ncolumns, d),
					 errhint(KM_FOR_COORDINATORS)));
}

bytea *
km_job_answer(const GkPass *pass, const KmPassReading *reading, GkDeviceKind kind)
{
	Ask			a = {.job = job,.kept = find_kept(job, pass, reading)};
	const GkBackend *device;
	bytea	   *out;
	GkError		err;

	if (pass->prep != NULL)
		check_features(a.job, pass->prep->d);
	a.host = a.kept != NULL ? a.kept->host : km_host_begin();
	a.context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans relation", ALLOCSET_DEFAULT_SIZES);
	a.read.distance = reading->distance;
	a.read.skip_nonfinite = reading->skip_nonfinite;
	a.read.expect_d = reading->expect_d;
	a.read.expect_of = "the coordinator";
	a.answer.n = a.job->n;
	a.answer.rows = palloc0(Max(a.job->n, 1) * sizeof(int64));
	device = choose_device(a.host, kind, pass);
	km_check(a.host, gk_pass_answer_open(km_host_engine(a.host), pass, &device, km_rescan_chunk_bytes(), NULL, NULL,
										 &a.answerer, &err), &err);
	a.job->busy = true;
	ask_all(&a);
	a.job->busy = false;
	km_check(a.host, gk_pass_answer_end(a.answerer, &a.answer.result, &err), &err);
	gk_pass_answer_names(a.answerer, &a.answer.names);
	gk_pass_answer_free(a.answerer);
	out = km_pass_answer_bytes(pass, &a.answer);
	gk_pass_result_free(km_host_engine(a.host), &a.answer.result);
	if (a.kept == NULL)
		km_host_end(a.host);
	MemoryContextDelete(a.context);
	return out;
}
