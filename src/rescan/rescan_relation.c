/*
 * rescan_relation.c - strategy "scan": cluster a relation without keeping its rows.
 *
 * Every pass of the engine reads the relation again, in one snapshot: the statement's.
 * Memory is that of a chunk and of O(k d) numbers.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/store/gk_points.h"
#include "gkmeans.h"
#include "rescan/rescan.h"

struct KmRescan
{
	GkRows		rows;			/* what the engine asks; ctx is this */
	KmPgHost   *host;
	const KmSource *source;		/* without the rows' places */
	const KmSource *labelled;	/* with them; NULL: no labels are wanted */
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
	KmRescan   *rescan;
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
km_rescan_answer(KmPgHost *host, KmPassOver *over, const GkPass *pass, GkPassResult *out)
{
	MemoryContext context = AllocSetContextCreate(km_host_context(host), "gkmeans pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	KmReadOptions read = *over->read;
	GkPassAnswerer *answerer;
	GkError		err;

	km_check(host, gk_pass_answer_open(km_host_engine(host), pass, over->device, km_rescan_chunk_bytes(), over->sink,
									   over->kept, &answerer, &err), &err);
	if (over->rows != NULL)
		gk_pass_answer_keep(answerer, over->rows);
	read.take = gk_pass_answer_take;
	read.take_arg = answerer;
	memset(over->tables, 0, sizeof(*over->tables));
	gk_store_free(km_read(host, over->source, &read, over->counts, over->tables));
	km_check(host, gk_pass_answer_end(answerer, out, &err), &err);
	gk_pass_answer_names(answerer, &over->names);
	gk_pass_answer_free(answerer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	KmRescan   *r = a->rescan;
	bool		first = !r->begun;
	KmReadOptions read = r->read;
	KmReadCounts unused = {0};
	KmPassOver	over = {
		.source = r->labelled != NULL && (first || a->sink != NULL) ? r->labelled : r->source,
		.read = &read,
		.device = &r->device,
		.sink = a->sink,
		.kept = &r->kept,
		.counts = first ? r->counts : &unused,
		.tables = r->tables
	};

	/* rows that are left out are the same every time */
	if (!first)
		read.left_out = NULL;
	read.silent = !first;
	km_rescan_answer(r->host, &over, a->pass, a->out);
	r->begun = true;
	if (over.names.device[0] != '\0')
	{
		strlcpy(r->device_name, over.names.device, sizeof(r->device_name));
		snprintf(r->strategy, sizeof(r->strategy), "scan, %s", over.names.strategy);
	}
}

static GkStatus
ask(void *ctx, const GkPass *pass, const GkLabelSink *sink, GkPassResult *out, GkError *err)
{
	KmRescan   *r = ctx;
	Ask			a = {r, pass, sink, out};

	if (!km_host_guard(r->host, answer, &a))
		return gk_fail(err, GK_ERR_HOST, "could not read the rows");
	return GK_OK;
}

static void
describe(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	const KmRescan *r = ctx;

	strlcpy(device, r->device_name, device_len);
	strlcpy(strategy, r->strategy, strategy_len);
}

KmRescan *
km_rescan_begin(const KmRescanOf *of, const KmReadOptions *read, KmTables *tables)
{
	KmRescan   *r = MemoryContextAllocZero(km_host_context(of->host), sizeof(KmRescan));
	const KmSource *source = of->source;

	if (of->schema != NULL)
		km_citus_rows(of, read, &r->rows);
	else
	{
		r->rows.ctx = r;
		r->rows.pass = ask;
		r->rows.describe = describe;
	}
	r->host = of->host;
	r->source = source;
	if (source->identify)
	{
		r->labelled = source;
		r->source = km_source_open(source->relid, source->columns, source->ncolumns,
								   source->weight_column, NULL, false);
	}
	r->read = *read;
	r->counts = of->counts;
	r->tables = tables;
	r->device = &gk_cpu_backend;
	return r;
}

GkStore *
km_rescan_open(KmRescan *r)
{
	GkStore    *store;
	GkError		err;

	km_check(r->host, gk_rows_open(km_host_engine(r->host), &r->rows, r->source->weighted, &store, &err), &err);
	return store;
}

void
km_rescan_device(KmRescan *r, GkDeviceKind kind, int64 n, int d, int k)
{
	/* every server chooses for itself */
	if (r->rows.ctx == r)
		r->device = km_rescan_choose(r->host, kind, n, d, k);
}
