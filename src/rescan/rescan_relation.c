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

struct GkIterate
{
	GkRows		rows;			/* what the engine asks; ctx is this */
	GkPgHost   *host;
	const GkSource *source;		/* without the places of the rows */
	const GkSource *labelled;	/* with them; NULL: nobody wants labels */
	GkReadOptions read;
	GkReadCounts *counts;
	GkTables   *tables;
	bool		begun;			/* a pass has seen all rows */
	GkKeptD		kept;			/* of the seeding */
	const GkBackend *device;
	char		device_name[96];
	char		strategy[64];
};

typedef struct Ask
{
	GkIterate  *it;
	const GkPass *pass;
	const GkLabelSink *sink;
	GkPassResult *out;
} Ask;

size_t
gk_iterate_chunk_bytes(void)
{
	return Min((size_t) gkmeans_chunk_size * 1024, gk_memory_limit_bytes() / 4);
}

const GkBackend *
gk_iterate_choose(GkPgHost *host, GkDeviceKind kind, int64 n, int d, int k)
{
	/* what a device is given at once */
	int64		rows = gk_iterate_chunk_bytes() / ((Size) d * sizeof(float));

	return gk_choose_backend(host, kind, Min(n, rows), d, k);
}

void
gk_iterate_answer(GkPgHost *host, const GkSource *source, const GkReadOptions *options,
				  const GkPass *pass, const GkBackend **device, const GkLabelSink *sink,
				  GkKeptD *kept, GkReadCounts *counts, GkTables *tables, GkPassResult *out, GkPasserNames *names)
{
	MemoryContext context = AllocSetContextCreate(gk_host_context(host), "gkmeans pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	GkReadOptions read = *options;
	GkPasser   *passer;
	GkError		err;

	gk_check(host, gk_passer_open(gk_host_engine(host), pass, device, gk_iterate_chunk_bytes(), sink, kept,
								   &passer, &err), &err);
	read.take = gk_passer_take;
	read.take_arg = passer;
	memset(tables, 0, sizeof(*tables));
	gk_store_free(gk_read(host, source, &read, counts, tables));
	gk_check(host, gk_passer_end(passer, out, &err), &err);
	gk_passer_names(passer, names);
	gk_passer_free(passer);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
answer(void *arg)
{
	Ask		   *a = arg;
	GkIterate  *it = a->it;
	bool		first = !it->begun;
	GkReadOptions read = it->read;
	GkReadCounts unused = {0};
	GkPasserNames names = {0};

	/* Rows that are left out are the same every time. */
	if (!first)
		read.left_out = NULL;
	read.silent = !first;
	gk_iterate_answer(it->host, it->labelled != NULL && (first || a->sink != NULL) ? it->labelled : it->source,
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
	GkIterate  *it = ctx;
	Ask			a = {it, pass, sink, out};

	if (!gk_host_guard(it->host, answer, &a))
		return gk_fail(err, GK_ERR_HOST, "could not read the rows");
	return GK_OK;
}

static void
describe(void *ctx, char *device, size_t device_len, char *strategy, size_t strategy_len)
{
	const GkIterate *it = ctx;

	strlcpy(device, it->device_name, device_len);
	strlcpy(strategy, it->strategy, strategy_len);
}

GkIterate *
gk_iterate_begin(GkFit *fit, const GkReadOptions *read, GkTables *tables)
{
	GkIterate  *it = MemoryContextAllocZero(gk_host_context(fit->host), sizeof(GkIterate));
	const GkSource *source = fit->source;

	if (fit->sharded)
		gk_shards_rows(fit, read, &it->rows);
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
		it->source = gk_source_open(source->relid, source->columns, source->ncolumns,
									source->weight_column, NULL, false);
	}
	it->read = *read;
	it->counts = &fit->counts;
	it->tables = tables;
	it->device = &gk_cpu_backend;
	return it;
}

GkStore *
gk_iterate_open(GkIterate *it)
{
	GkStore    *store;
	GkError		err;

	gk_check(it->host, gk_rows_open(gk_host_engine(it->host), &it->rows, it->source->weighted, &store, &err), &err);
	return store;
}

void
gk_iterate_device(GkIterate *it, GkDeviceKind kind, int64 n, int d, int k)
{
	/* every server chooses for itself */
	if (it->rows.ctx == it)
		it->device = gk_iterate_choose(it->host, kind, n, d, k);
}
