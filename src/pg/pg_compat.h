/*
 * pg_compat.h - what differs between PostgreSQL 13 and 18, and nothing else.
 */
#ifndef PG_COMPAT_H
#define PG_COMPAT_H

#include "access/htup_details.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "common/jsonapi.h"
#include "executor/executor.h"
#include "mb/pg_wchar.h"
#include "partitioning/partdesc.h"
#include "storage/fd.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 140000
#include "utils/wait_event.h"
#else
#include "pgstat.h"
#endif

#if PG_VERSION_NUM < 130000
#error "gkmeans needs PostgreSQL 13 or newer"
#endif

#if PG_VERSION_NUM >= 160000
#include "catalog/pg_class.h"
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#define parse_analyze_fixedparams(raw, text, types, n, env) \
	parse_analyze(raw, text, types, n, env)
#endif

/* Without partitions that are being detached, as a query sees it. */
static inline PartitionDesc
km_partition_desc(Relation rel)
{
#if PG_VERSION_NUM >= 140000
	return RelationGetPartitionDesc(rel, true);
#else
	return RelationGetPartitionDesc(rel);
#endif
}

/* To the last row. */
static inline void
km_executor_run(QueryDesc *desc)
{
#if PG_VERSION_NUM >= 180000
	ExecutorRun(desc, ForwardScanDirection, 0);
#else
	ExecutorRun(desc, ForwardScanDirection, 0, true);
#endif
}

static inline int
km_file_write(File file, const char *data, int bytes, off_t at)
{
#if PG_VERSION_NUM >= 160000
	return (int) FileWrite(file, data, bytes, at, WAIT_EVENT_BUFFILE_WRITE);
#else
	return FileWrite(file, unconstify(char *, data), bytes, at, WAIT_EVENT_BUFFILE_WRITE);
#endif
}

#if PG_VERSION_NUM >= 140000
#define km_estimate_num_groups(root, exprs, rows) estimate_num_groups(root, exprs, rows, NULL, NULL)
#else
#define km_estimate_num_groups(root, exprs, rows) estimate_num_groups(root, exprs, rows, NULL)
#endif

static inline MinimalTuple
km_form_minimal_tuple(TupleDesc desc, Datum *values, bool *nulls)
{
#if PG_VERSION_NUM >= 180000
	return heap_form_minimal_tuple(desc, values, nulls, 0);
#else
	return heap_form_minimal_tuple(desc, values, nulls);
#endif
}

/* Does the user own this relation? */
static inline bool
km_relation_ownercheck(Oid relid, Oid user)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relid, user);
#else
	return pg_class_ownercheck(relid, user);
#endif
}

/* 18 has pg_noreturn instead, which older versions do not. */
#ifndef pg_attribute_noreturn
#define pg_attribute_noreturn()	__attribute__((noreturn))
#endif

/* JSON semantic actions report failure by their result since 16; those of gkmeans raise errors. */
#if PG_VERSION_NUM >= 160000
typedef JsonParseErrorType KmJsonResult;
#define KM_JSON_RETURN	return JSON_SUCCESS
#else
typedef void KmJsonResult;
#define KM_JSON_RETURN	return
#endif

/* A lexer that resolves escapes, for text in the database encoding. */
static inline JsonLexContext *
km_json_lexer(char *text, int len)
{
#if PG_VERSION_NUM >= 170000
	return makeJsonLexContextCstringLen(NULL, text, len, GetDatabaseEncoding(), true);
#else
	return makeJsonLexContextCstringLen(text, len, GetDatabaseEncoding(), true);
#endif
}

/* The number of this session's transaction, for as long as it lasts. */
static inline LocalTransactionId
km_transaction(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProc->vxid.lxid;
#else
	return MyProc->lxid;
#endif
}

/* Has this transaction created or rewritten the relation? */
static inline bool
km_relation_is_new(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return rel->rd_createSubid != InvalidSubTransactionId || rel->rd_newRelfilelocatorSubid != InvalidSubTransactionId;
#else
	return rel->rd_createSubid != InvalidSubTransactionId || rel->rd_newRelfilenodeSubid != InvalidSubTransactionId;
#endif
}

/* May the user call this function, or use this schema? */
static inline AclResult
km_aclcheck(Oid class, Oid object, Oid user, AclMode mode)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(class, object, user, mode);
#else
	Assert(class == ProcedureRelationId || class == NamespaceRelationId);
	return class == ProcedureRelationId ? pg_proc_aclcheck(object, user, mode) : pg_namespace_aclcheck(object, user, mode);
#endif
}

/* What a session shows that waits for its turn on the GPU. */
static inline uint32
km_wait_event_gpu(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("KmGpu");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

#endif							/* PG_COMPAT_H */
