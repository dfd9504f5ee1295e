/*
 * rescan_relation.c - strategy "scan": cluster a relation without keeping its rows.
 *
 * Every pass of the engine (core/rescan/gk_pass.h) reads the relation again through the
 * reader, in one snapshot: the one of the statement.  Memory is that of a chunk
 * and of O(k d) numbers.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/store/gk_points.h"
#include "gkmeans.h"
#include "rescan/rescan_relation.h"
#include "rescan/rescan_citus.h"

struct KmRescan
{
	GkRows		rows;			/* what the engine asks; ctx is this */
	KmPgHost   *host;
	const KmSource *source;		/* without the places of the rows */
	const KmSource *labelled;	/* with them; NULL: nobody wants labels */
	KmReadOptions read;
	KmReadCounts *counts;
	KmTables   *tables;
	bool		begun;			/* a pass has seen all rows */
	GkKeptD		kept;			/* of the seeding */
	const GkBackend *device;
	char		device_name[96];
	char		strategy[64];
};

typedef struct Ask
{
	KmRescan  *it;
	const GkPass *pass;
	const GkLabelSink *sink;
	GkPassResult *out;
} Ask;

size_t
km_rescan_chunk_bytes(void)
{
	return Min((size_t) gkmeans_chunk_size * 1024, km_memory_limit_bytes() / 4);
}

const GkBackend *
km_rescan_choose(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	/* what a device is given at once */
	int64		rows = km_rescan_chunk_bytes() / ((Size) d * sizeof(float));

	return km_choose_backend(host, kind, Min(n, rows), d, k);
}

void
km_rescan_answer(KmPgHost *host, const KmSource *source, const KmReadOptions *options,
				  const GkPass *pass, const GkBackend **device, const GkLabelSink *sink,
				  GkKeptD *kept, KmReadCounts *counts, KmTables *tables, GkPassResult *out, GkPassAnswererNames *names)
{
	MemoryContext context = AllocSetContextCreate(km_host_context(host), "gkmeans pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	KmReadOptions read = *options;
	GkPassAnswerer   *passer;
	GkError		err;

	km_check(host, gk_pass_answer_open(km_host_engine(host), pass, device, km_rescan_chunk_bytes(), sink, kept,
								   &passer, &err), &err);
	read.take = gk_pass_answer_take;
	read.take_arg = passer;
	memset(tables, 0, sizeof(*tables));
	gk_store_free(km_read(host, source, &read, counts, tables));
	km_check(host, gk_pass_answer_end(passer, out, &err), &err);
	gk_pass_answer_names(passer, names);
	gk_pass_answer_free(passer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	KmRescan  *it = a->it;
	bool		first = !it->begun;
	KmReadOptions read = it->read;
	KmReadCounts unused = {0};
	GkPassAnswererNames names = {0};

	/* Rows that are left out are the same every time. */
	if (!first)
		read.left_out = NULL;
	read.silent = !first;
	km_rescan_answer(it->host, it->labelled != NULL && (first || a->sink != NULL) ? it->labelled : it->source,
					  &read, a->pass, &it->device, a->sink, &it->kept, first ? it->counts : &unused, it->tables,
					  a->out, &names);
	it->begun = true;
	if (names.device[0] != '\0')
	{
		strlcpy(it->device_name, names.device, sizeof(it->device_name));
		snprintf(it->strategy, sizeof(it->strategy), "scan, %s", names.strategy);
	}
}

static GkStatus
ask(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	KmRescan  *it = ctx;
	Ask			a = {it, pass, sink, out};

	if (!km_host_guard(it->host, answer, &a))
		return gk_fail(err, GK_ERR_HOST, "could not read the rows");
	return GK_OK;
}

static void
describe(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	const KmRescan *it = ctx;

	strlcpy(device, it->device_name, device_len);
	strlcpy(strategy, it->strategy, strategy_len);
}

KmRescan *
km_rescan_begin(KmFit *fit, const KmReadOptions *read, KmTables *tables)
{
	KmRescan  *it = MemoryContextAllocZero(km_host_context(fit->host), sizeof(KmRescan));
	const KmSource *source = fit->source;

	if (fit->schema != NULL)
		km_citus_rows(fit, read, &it->rows);
	else
	{
		it->rows.ctx = it;
		it->rows.pass = ask;
		it->rows.describe = describe;
	}
	it->host = fit->host;
	it->source = source;
	if (source->identify)
	{
		it->labelled = source;
		it->source = km_source_open(source->relid, source->columns, source->ncolumns,
									source->weight_column, NULL, false);
	}
	it->read = *read;
	it->counts = &fit->counts;
	it->tables = tables;
	it->device = &gk_cpu_backend;
	return it;
}

GkStore *
km_rescan_open(KmRescan *it)
{
	GkStore    *store;
	GkError		err;

	km_check(it->host, gk_rows_open(km_host_engine(it->host), &it->rows, it->source->weighted, &store, &err), &err);
	return store;
}

void
km_rescan_device(KmRescan *it, GkDeviceKind kind, int64 n, int d, int k)
{
	/* every server chooses for itself */
	if (it->rows.ctx == it)
		it->device = km_rescan_choose(it->host, kind, n, d, k);
}
