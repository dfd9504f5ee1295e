/*
 * rescan.h - relations whose rows are not kept, but read again in every pass.
 *
 * Words: pass = one question about all rows and its answer (core/rescan/gk_pass.h); shard =
 * a part of a distributed table of Citus, on another server.
 *
 * With strategy "scan" this server reads the relation once for each pass of the engine
 * (rescan_relation.c); a distributed table's shards answer every pass themselves
 * (rescan_citus.c), and question and answers travel as bytes (rescan_wire.c).
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

/* A pass over a relation of this server. */
typedef struct KmPassOver
{
	const KmSource *source;
	const KmReadOptions *read;
	const GkBackend **device;	/* becomes the CPU when it fails and the host agrees */
	const GkLabelSink *sink;	/* takes the labels; NULL: not wanted */
	GkKeptD    *kept;			/* of the seeding; may be NULL */
	GkKeptRows *rows;			/* for rows to stay in; may be NULL */
	/* Results. */
	KmReadCounts *counts;
	KmTables   *tables;			/* valid until the return */
	GkPassAnswererNames names;	/* empty unless the pass was a step */
} KmPassOver;

/* Answer a pass.  ERRORs are raised. */
extern void km_rescan_answer(KmPgHost *host, KmPassOver *over, const GkPass *pass, GkPassResult *out);

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

/* FROM of a query over a server's shards. */
#define KM_NODES_SHARDS	"FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS s (name, first)"

/*
 * Have each server run a query that returns a value, text or bytea, for each of its shards in
 * their order, or one for all of them (summed).  Its first two parameters are the shards' names and first[shard]; NULL: 0.
 * take() gets the values, in any order; that of all shards with the first one.
 */
extern void km_nodes_ask(KmNodes *nodes, const char *sql, bool summed, const int64 *first, const KmNodesParam *param, int nparams,
						 void (*take) (void *arg, int shard, bytea * answer), void *arg);

/*
 * Have each server run a query with rows of text values, and give them to take() one by one; NULL: NULL.  Its first
 * two parameters are as there.
 */
extern void km_nodes_rows(KmNodes *nodes, const char *sql, const KmNodesParam *param, int nparams, int columns,
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

/* Read it, into memory of the caller's; weighted and first are not part of it. */
extern void km_pass_question(bytea * bytes, GkPass *pass, KmPassReading *reading);
extern bytea * km_pass_answer_bytes(const GkPass *pass, const GkPassResult *r, const KmReadCounts *counts,
									const GkPassAnswererNames *names);

/* Read an answer to the pass, into memory of the engine's; ERROR when the bytes are none. */
extern void km_pass_answer(const GkHost *engine, const GkPass *pass, bytea * bytes,
						   GkPassResult *out, KmReadCounts *counts, GkPassAnswererNames *names);

/* ---- rows that stay (rescan_kept.c) ---- */

typedef struct KmKept KmKept;

/* Where the rows of a pass are, or are to be, in this transaction; NULL: they may not stay. */
extern KmKept *km_kept_find(const KmSource *source, const KmPassReading *reading, const GkPass *pass);

/* The host of such a pass. */
extern KmPgHost *km_kept_host(const KmKept *k);
extern void km_kept_answer(KmKept *k, KmPassOver *over, const GkPass *pass, GkPassResult *out);

#endif							/* RESCAN_H */
