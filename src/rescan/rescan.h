/*
 * rescan.h - relations whose rows are not kept, but read again in every pass.
 *
 * Words: pass = one question about all rows and its answer (core/rescan/gk_pass.h); shard =
 * a part of a distributed table of Citus, or a foreign table of postgres_fdw, on another server.
 *
 * With strategy "scan" this server reads the relation once for each pass of the engine
 * (rescan_relation.c); a distributed table's shards answer every pass themselves
 * (rescan_citus.c), and question and answers travel as bytes (rescan_wire.c) over connections to
 * Citus's nodes (rescan_nodes.c) or foreign servers (rescan_foreign.c); rescan_job.c is the other end.
 */
#ifndef RESCAN_H
#define RESCAN_H

#include "lib/stringinfo.h"

#include "core/rescan/gk_pass.h"
#include "pg/pg.h"
#include "relation/relation.h"
#include "types/model.h"
#include "types/state.h"

/* ---- for fn_fit.c ---- */

typedef struct KmRescan KmRescan;

/* What is read again, for whom.  The host is begun, and what is named here lives as long as that. */
typedef struct KmRescanOf
{
	KmPgHost   *host;
	const KmSource *source;
	GkDeviceKind device;
	const char *schema;			/* of gkmeans, if the rows are in shards on other servers; else NULL */
	KmReadCounts *counts;		/* set by the first pass */
} KmRescanOf;

extern KmRescan *km_rescan_begin(const KmRescanOf *of, const KmReadOptions *read, KmTables *tables);

/* Make the first pass, into a store that is not prepared; NULL: no usable rows. */
extern GkStore *km_rescan_open(KmRescan *rescan);

/* Choose the device of the passes from now on; ERROR when there is none of this kind. */
extern void km_rescan_device(KmRescan *rescan, GkDeviceKind kind, int64 n, int d, int k);

/* ---- passes over a relation of this server (rescan_relation.c) ---- */

/* Host memory for the rows that are computed with at once. */
extern size_t km_rescan_chunk_bytes(void);

/* Choose the backend for passes over n rows. */
extern const GkBackend *km_rescan_choose(KmPgHost *host, GkDeviceKind kind, int64 n, int d, int k);

/* Read rows into an answerer, in the caller's memory. */
extern void km_rescan_read(KmPgHost *host, const KmSource *source, const KmReadOptions *options, GkPassAnswerer *answerer,
						   KmReadCounts *counts, KmTables *tables);

/* ---- tables in shards (rescan_citus.c) ---- */

/* Have passes answered by the shards.  What is given has to live as long as rows. */
extern void km_citus_rows(const KmRescanOf *of, const KmReadOptions *read, GkRows *rows);

/*
 * The states of kmeans_step(relation, ...), which every server finds in this schema, of
 * all shards, combined.  NULL: there are no rows.
 */
extern KmeansStep *km_citus_step(const KmSource *source, const char *schema, const KmeansModel *model,
								 bool skip_nonfinite, GkDeviceKind device);

/* ---- their servers (rescan_nodes.c) ---- */

typedef struct KmNodes KmNodes;

/* Connect to the servers that have a table's shards; ERROR when this transaction has changed it (rescan_citus.c). */
extern KmNodes *km_citus_nodes(const KmSource *source, MemoryContext context);

#define KM_NODES_PARAMS	20

/* A parameter of a query: a string, or bytes. */
typedef struct KmNodesParam
{
	Oid			type;			/* InvalidOid: what the query says */
	const char *value;
	int			bytes;			/* 0: a string */
} KmNodesParam;

/*
 * Connect to the servers of these shards and begin a transaction on each, in one snapshot.  All
 * ends with the context.
 */
extern KmNodes *km_nodes_open(const KmSource *source, int nshards, const KmShard *shard, MemoryContext context);

/* A text[] as a parameter. */
extern char *km_nodes_array(char **text, int n);

/* A query for each server.  Its first two parameters are the server's, the others the caller's. */
typedef struct KmNodesQuery
{
	const char *sql;
	bool		names;			/* $1: the names of its shards, a text[]; else NULL */
	const int64 *first;			/* $2: this of its shards, a bigint[]; NULL: NULL */
	int			nparams;
	const KmNodesParam *param;	/* $3 and so on */
} KmNodesQuery;

/* FROM of a query over a server's shards, by their names. */
#define KM_NODES_SHARDS	"FROM pg_catalog.unnest($1) AS s (name)"

/*
 * Have each server run a query that returns a value, text or bytea, for each of its shards in
 * their order; or one for all of them (summed).  take() gets the values, of one shard or of n.
 */
extern void km_nodes_ask(KmNodes *nodes, const KmNodesQuery *query, bool summed,
						 void (*take) (void *arg, const int *shard, int n, bytea * answer), void *arg);

/* Have each server run a query with rows of text values, and give them to take() one by one; NULL: NULL. */
extern void km_nodes_rows(KmNodes *nodes, const KmNodesQuery *query, int columns,
						  void (*take) (void *arg, char **value), void *arg);

/* ---- passes as bytes (rescan_wire.c) ---- */

/* How rows are read; a relation has to be read like that on every server. */
typedef struct KmPassReading
{
	GkDistance	distance;
	bool		skip_nonfinite;
	int			expect_d;		/* 0: any */
} KmPassReading;

extern bytea * km_pass_bytes(const GkPass *pass, const KmPassReading *reading);

/* Read it, into memory of the caller's; weighted is not part of it. */
extern void km_pass_question(bytea * bytes, GkPass *pass, KmPassReading *reading);

/* Of some relations. */
typedef struct KmPassAnswer
{
	GkPassResult result;
	KmReadCounts counts;
	GkPassAnswererNames names;	/* empty unless the pass was a step */
	int			n;				/* relations */
	int64	   *rows;			/* [n] STATS: of each */
} KmPassAnswer;

extern bytea * km_pass_answer_bytes(const GkPass *pass, const KmPassAnswer *answer);

/* Read an answer of out->n relations to the pass, into memory of the engine's; ERROR when the bytes are none. */
extern void km_pass_answer(const GkHost *engine, const GkPass *pass, bytea * bytes, KmPassAnswer *out);

/* ---- a job on its servers (rescan_job.c) ---- */

#define KM_FOR_COORDINATORS	"kmeans_pass() is for kmeans() on a distributed table, whose servers need the same version of gkmeans."

/*
 * Begin the job of the relations that are named, or go on with that of this transaction.  relations, first_rows: regclass[],
 * bigint[]; NULL: as they were.
 */
extern void km_job(struct ArrayType *relations, char **columns, int ncolumns, const char *weight_column,
				   struct ArrayType *first_rows);

/* Answer a pass over all its relations. */
extern bytea * km_job_answer(const GkPass *pass, const KmPassReading *reading, GkDeviceKind device);

#endif							/* RESCAN_H */
