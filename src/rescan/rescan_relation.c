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
km_rescan_read(KmPgHost *host, const KmSource *source, const KmReadOptions *options, GkPassAnswerer *answerer,
			   KmReadCounts *counts, KmTables *tables)
{
	KmReadOptions read = *options;

	read.take = gk_pass_answer_take;
	read.take_arg = answerer;
	memset(tables, 0, sizeof(*tables));
	gk_store_free(km_read(host, source, &read, counts, tables));
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	KmRescan   *r = a->rescan;
	bool		first = !r->begun;
	MemoryContext context = AllocSetContextCreate(km_host_context(r->host), "gkmeans pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	KmReadOptions read = r->read;
	KmReadCounts unused = {0};
	GkPassAnswerer *answerer;
	GkPassAnswererNames names;
	GkError		err;

	/* rows that are left out are the same every time */
	if (!first)
		read.left_out = NULL;
	read.silent = !first;
	km_check(r->host, gk_pass_answer_open(km_host_engine(r->host), a->pass, &r->device, km_rescan_chunk_bytes(), a->sink,
										  &r->kept, &answerer, &err), &err);
	km_rescan_read(r->host, r->labelled != NULL && (first || a->sink != NULL) ? r->labelled : r->source, &read, answerer,
				   first ? r->counts : &unused, r->tables);
	km_check(r->host, gk_pass_answer_end(answerer, a->out, &err), &err);
	gk_pass_answer_names(answerer, &names);
	gk_pass_answer_free(answerer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	r->begun = true;
	if (names.device[0] != '\0')
	{
		strlcpy(r->device_name, names.device, sizeof(r->device_name));
		snprintf(r->strategy, sizeof(r->strategy), "scan, %s", names.strategy);
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
