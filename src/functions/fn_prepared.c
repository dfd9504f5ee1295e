/*
 * fn_prepared.c - models made ready for points, kept by the session.
 *
 * A trigger that labels one row at a time gives kmeans_predict() a new call site for every row, and
 * the model comes from a table, out of line.  To read and prepare some hundred kilobytes for each
 * row takes longer than to find the label.  So the session keeps what it has prepared last, and
 * knows a model by its size and the fingerprint in its header: of a value out of line that
 * is the first chunk alone.
 *
 * Nothing has to be invalidated: another model has another fingerprint.  The user belongs to the
 * key because a fingerprint is no signature: a role that could make a value with the
 * fingerprint of another's model must not change what that one gets in a shared session.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "functions/functions.h"

/* Bytes of models that no call site uses at the moment. */
#define KEEP_MOST	((Size) 16 * 1024 * 1024)

/* The one used last is at the end. */
static dlist_head models = DLIST_STATIC_INIT(models);
static Size bytes_of_models = 0;

Size
km_models_to_keep(void)
{
	return gkmeans_keep_memory < 0 ? KEEP_MOST : Min(KEEP_MOST, (Size) gkmeans_keep_memory * 1024);
}

/* What identifies a model.  False: only the whole value tells, or that it is none. */
static bool
read_key(Datum datum, Size *size, uint64 *fingerprint)
{
	const Pointer raw = DatumGetPointer(datum);
	const Size	head_size = offsetof(KmeansModel, k);
	const KmeansModel *head;

	if (VARATT_IS_4B_U(raw))
		head = (const KmeansModel *) raw;
	else if (VARATT_IS_EXTERNAL_ONDISK(raw))
		head = (const KmeansModel *) PG_DETOAST_DATUM_SLICE(datum, 0, head_size - VARHDRSZ);
	else
		return false;
	if (VARSIZE(head) < head_size || head->magic != KMEANS_MODEL_MAGIC)
		return false;
	*size = toast_raw_datum_size(datum);
	*fingerprint = head->fingerprint;
	if ((Pointer) head != raw)
		pfree((void *) head);
	return true;
}

static KmPrepared *
find(Size size, uint64 fingerprint)
{
	dlist_iter	at;

	dlist_foreach(at, &models)
	{
		KmPrepared *p = dlist_container(KmPrepared, node, at.cur);

		if (p->fingerprint == fingerprint && p->size == size && p->user == GetUserId())
			return p;
	}
	return NULL;
}

static void *
copy(const void *from, Size bytes)
{
	return memcpy(palloc_extended(bytes, MCXT_ALLOC_HUGE), from, bytes);
}

/* Prepare a model in a context of its own, which is the caller's until all of it is there. */
static KmPrepared *
prepare(const KmeansModel *v)
{
	MemoryContext caller = CurrentMemoryContext;
	KmPrepared *p;
	GkModel		m;
	int64		d = v->d;

	kmeans_model_view(v, &m);
	MemoryContextSwitchTo(AllocSetContextCreate(caller, "kmeans_model prepared", ALLOCSET_SMALL_SIZES));
	p = palloc0(sizeof(KmPrepared));
	p->cxt = CurrentMemoryContext;
	p->user = GetUserId();
	p->size = VARSIZE(v);
	p->fingerprint = v->fingerprint;
	p->prep = m.prep;
	p->prep.center = copy(m.prep.center, d * sizeof(double));
	p->prep.scale = copy(m.prep.scale, d * sizeof(double));
	p->prep.expo = copy(m.prep.expo, d * sizeof(int32));
	p->k = m.k;
	p->centroids = palloc_extended(m.k * d * sizeof(float), MCXT_ALLOC_HUGE);
	kmeans_model_prepare(&m, p->centroids);
	p->fill = (KmFill) {v->d, m.fill != NULL ? copy(m.fill, d * sizeof(double)) : NULL};
	p->unit = palloc(m.k * sizeof(double));
	km_cluster_units(&m, p->unit);
	p->clusters = m.spectral.k;
	p->cluster = p->clusters > 0 ? copy(m.spectral.cluster, m.k * sizeof(int32)) : NULL;
	p->names = v->ncolumns > 0 && !v->columns_array ? copy(kmeans_model_names(v), v->names_len) : NULL;
	p->bytes = MemoryContextMemAllocated(p->cxt, false);
	MemoryContextSetParent(p->cxt, TopMemoryContext);
	MemoryContextSwitchTo(caller);
	return p;
}

static void
forget(KmPrepared *p)
{
	dlist_delete(&p->node);
	bytes_of_models -= p->bytes;
	MemoryContextDelete(p->cxt);
}

KmPrepared *
km_prepared_take(Datum datum)
{
	KmPrepared *p = NULL;
	Size		size;
	uint64		fingerprint;

	if (read_key(datum, &size, &fingerprint))
		p = find(size, fingerprint);
	if (p == NULL)
	{
		KmeansModel *v = kmeans_model_from_datum(datum);

		/* compressed, say: it may be there after all */
		p = find(VARSIZE(v), v->fingerprint);
		if (p == NULL)
		{
			p = prepare(v);
			dlist_push_tail(&models, &p->node);
			bytes_of_models += p->bytes;
		}
		if ((Pointer) v != DatumGetPointer(datum))
			pfree(v);
	}
	dlist_delete(&p->node);
	dlist_push_tail(&models, &p->node);
	p->pins++;
	return p;
}

void
km_prepared_release(KmPrepared *p)
{
	dlist_mutable_iter at;

	p->pins--;
	dlist_foreach_modify(at, &models)
	{
		KmPrepared *oldest = dlist_container(KmPrepared, node, at.cur);

		if (bytes_of_models <= km_models_to_keep())
			break;
		if (oldest->pins == 0)
			forget(oldest);
	}
}
