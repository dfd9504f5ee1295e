/*
 * rescan_kept.c - rows that stay in memory between the passes of a transaction.
 *
 * In a transaction with one snapshot, as a job on a distributed table is on each server, all
 * passes see the same rows.  Those of a plain table stay, as its passes look at them, until its end, within
 * gkmeans.memory_limit; a table that has no room is read again in every pass.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rls.h"

#include "gkmeans.h"
#include "rescan/rescan.h"

struct KmKept
{
	KmKept	   *next;
	/* What they are the rows of, and how they are prepared. */
	Oid			relid;
	Oid			user;
	CommandId	command;
	char	   *query;
	KmPassReading reading;
	int			weight_exp;
	bool		raw;
	GkPrep		prep;
	KmPgHost   *host;
	KmReadCounts counts;
	bool		busy;			/* in a pass, or left by one with an ERROR */
	bool		whole;			/* a pass has put all of them here */
	GkKeptRows	rows;
};

static KmKept *kept = NULL;		/* of this transaction */

static void
forget_kept(void *arg)
{
	kept = NULL;
}

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

static KmKept *
find_kept(const KmSource *source, const KmPassReading *reading, const GkPass *pass)
{
	for (KmKept *k = kept; k != NULL; k = k->next)
		if (!k->busy && k->relid == source->relid && k->user == GetUserId() && k->command == GetCurrentCommandId(false) &&
			strcmp(k->query, source->query) == 0 && same_reading(&k->reading, reading) &&
			k->weight_exp == pass->weight_exp && k->raw == pass->raw && same_prep(&k->prep, pass->prep))
			return k;
	return NULL;
}

/* What the others leave of the memory limit. */
static Size
room_to_keep(void)
{
	Size		limit = km_memory_limit_bytes();

	for (KmKept *k = kept; k != NULL; k = k->next)
		limit -= Min(limit, k->rows.bytes);
	return limit;
}

static KmKept *
begin_kept(const KmSource *source, const KmPassReading *reading, const GkPass *pass)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	KmKept	   *k = palloc0(sizeof(KmKept));
	Size		d = pass->prep->d;

	if (kept == NULL)
	{
		MemoryContextCallback *callback = palloc0(sizeof(*callback));

		callback->func = forget_kept;
		MemoryContextRegisterResetCallback(TopTransactionContext, callback);
	}
	k->relid = source->relid;
	k->user = GetUserId();
	k->command = GetCurrentCommandId(false);
	k->query = pstrdup(source->query);
	k->reading = *reading;
	k->weight_exp = pass->weight_exp;
	k->raw = pass->raw;
	k->prep = *pass->prep;
	k->prep.center = memcpy(palloc(d * sizeof(double)), pass->prep->center, d * sizeof(double));
	k->prep.scale = memcpy(palloc(d * sizeof(double)), pass->prep->scale, d * sizeof(double));
	k->prep.expo = memcpy(palloc(d * sizeof(*k->prep.expo)), pass->prep->expo, d * sizeof(*k->prep.expo));
	k->host = km_host_begin();
	k->rows.limit = room_to_keep();
	k->next = kept;
	kept = k;
	MemoryContextSwitchTo(caller);
	return k;
}

/* Rows that a policy hides may be others in the next pass, by a setting. */
static bool
may_stay(const KmSource *source, const GkPass *pass)
{
	return IsolationUsesXactSnapshot() && gk_pass_may_keep(pass) &&
		source->relkind == RELKIND_RELATION && check_enable_rls(source->relid, InvalidOid, true) == RLS_NONE;
}

KmKept *
km_kept_find(const KmSource *source, const KmPassReading *reading, const GkPass *pass)
{
	KmKept	   *k;

	if (!may_stay(source, pass))
		return NULL;
	k = find_kept(source, reading, pass);
	return k != NULL ? k : begin_kept(source, reading, pass);
}

KmPgHost *
km_kept_host(const KmKept *k)
{
	return k->host;
}

static void
answer_again(KmKept *k, KmPassOver *over, const GkPass *pass, GkPassResult *out)
{
	GkPassAnswerer *answerer;
	GkError		err;

	km_check(k->host, gk_pass_answer_open(km_host_engine(k->host), pass, over->device, 0, NULL, NULL, &answerer, &err), &err);
	km_check(k->host, gk_pass_answer_again(answerer, &k->rows, &err), &err);
	km_check(k->host, gk_pass_answer_end(answerer, out, &err), &err);
	gk_pass_answer_names(answerer, &over->names);
	gk_pass_answer_free(answerer);
	*over->counts = k->counts;
}

void
km_kept_answer(KmKept *k, KmPassOver *over, const GkPass *pass, GkPassResult *out)
{
	k->busy = true;
	if (k->whole)
		answer_again(k, over, pass, out);
	else
	{
		over->rows = k->rows.full ? NULL : &k->rows;
		km_rescan_answer(k->host, over, pass, out);
		k->counts = *over->counts;
		k->whole = !k->rows.full;
	}
	k->busy = false;
}
