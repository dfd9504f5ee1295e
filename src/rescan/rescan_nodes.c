/*
 * rescan_nodes.c - the servers that have the shards of a distributed table: one connection to
 * each, for the time of a job.
 *
 * Citus opens a connection per shard for every command on shards, and closes it: far longer than
 * a pass over a shard takes.  Here a node is asked about all its shards at once, and the
 * job is a transaction there, so it sees the rows of one snapshot.  Connections are
 * those that Citus would make: the current role's, to the nodes of its catalogs, by
 * citus.node_conninfo; or those of postgres_fdw (rescan_foreign.c).
 *
 * All waits can be cancelled, and so are the nodes then.  A node that does not let us connect is done
 * without where others have copies of its shards.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "rescan/rescan.h"
#include "rescan/rescan_nodes.h"

/* Parameters of a query: those of the node, then the caller's. */
#define MAX_PARAMS	(2 + KM_NODES_PARAMS)

typedef struct Server
{
	KmPlace		place;
	char	   *label;			/* for messages */
	KmForeignOptions foreign;	/* if it is a foreign server */
	PGconn	   *connection;		/* NULL: closed */
	bool		busy;			/* with a query whose result is still to come */
	int			n;
	int		   *shard;			/* [n] ordinals of its shards, ascending */
	char	  **name;			/* [n] as SQL */
} Server;

struct KmNodes
{
	MemoryContext context;
	const char *relname;
	int			nshards;
	int			n;
	Server	   *node;			/* [n] */
	int			lost;
	KmPlace    *lost_place;		/* [lost] servers that did not let us connect */
	MemoryContextCallback release;
};

/* ---- errors ---- */

static void
where(void *arg)
{
	const Server *node = arg;

	errcontext("server %s, which has %d of the shards", node->label, node->n);
}

/* libpq explains at length what is known here. */
static const char *
first_line(const char *message)
{
	return message[0] != '\0' ? pnstrdup(message, strcspn(message, "\n")) : NULL;
}

/* Raise what the node says; result may be NULL, and is cleared. */
static void
fail(const Server *node, PGresult * result)
{
	ErrorContextCallback context = {error_context_stack, where, unconstify(Server *, node)};
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	int			code = ERRCODE_CONNECTION_FAILURE;
	char	   *message = primary != NULL ? pstrdup(primary) : psprintf("no connection to the server %s", node->label);

	detail = detail != NULL ? pstrdup(detail) : NULL;
	hint = hint != NULL ? pstrdup(hint) : NULL;
	if (primary == NULL)
	{
		detail = first_line(PQerrorMessage(node->connection));
		hint = "Nothing was changed: call it again when the server is there.";
	}
	if (sqlstate != NULL)
		code = MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3], sqlstate[4]);
	PQclear(result);
	if (code == ERRCODE_UNDEFINED_FUNCTION && hint != NULL)
		hint = "All servers need the extension gkmeans of the same version, in the same schema.";
	error_context_stack = &context;
	ereport(ERROR,
			(errcode(code),
			 errmsg_internal("%s", message),
			 detail != NULL ? errdetail_internal("%s", detail) : 0,
			 hint != NULL ? errhint("%s", hint) : 0));
}

static void
pass_on_notice(void *arg, const PGresult * result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (severity != NULL && message != NULL && strcmp(severity, "WARNING") == 0)
		ereport(WARNING, (errmsg_internal("%s", message)));
}

/* ---- the end ---- */

static void
cancel(Server *node)
{
	char		unused[256];
	PGcancel   *request = PQgetCancel(node->connection);

	if (request != NULL)
		(void) PQcancel(request, unused, sizeof(unused));
	PQfreeCancel(request);
	node->busy = false;
}

/* Also after an ERROR: a node does not notice by itself that nobody waits. */
static void
close_all(void *arg)
{
	KmNodes    *nodes = arg;

	for (int i = 0; i < nodes->n; i++)
	{
		Server	   *node = &nodes->node[i];

		if (node->connection == NULL)
			continue;
		if (node->busy)
			cancel(node);
		PQfinish(node->connection);
		node->connection = NULL;
		ReleaseExternalFD();
	}
}

/* ---- connections ---- */

/* Wait at most `timeout` milliseconds, -1: for ever.  False: nothing happened. */
static bool
wait_for(const Server *node, int events, long timeout)
{
	int			rc = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | events | (timeout >= 0 ? WL_TIMEOUT : 0),
									   PQsocket(node->connection), timeout, PG_WAIT_EXTENSION);

	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return (rc & WL_TIMEOUT) == 0;
}

/* As Citus would. */
static PGconn *
connect_to_node(const KmPlace *place)
{
	const char *conninfo = GetConfigOption("citus.node_conninfo", true, false);
	const char *keywords[] = {"keepalives_idle", "keepalives_interval", "keepalives_count",
	"dbname", "host", "port", "user", "dbname", "client_encoding", "application_name", NULL};
	char	   *port = psprintf("%d", place->port);
	const char *values[] = {
		/* a machine that is gone says nothing: it is noticed in two minutes */
		"60", "20", "3",
		/* it may be many settings, which override those before and yield to those after */
		conninfo != NULL && conninfo[0] != '\0' ? conninfo : "sslmode=prefer",
		place->host, port, GetUserNameFromId(GetUserId(), false), get_database_name(MyDatabaseId),
		GetDatabaseEncodingName(), "gkmeans", NULL
	};

	return PQconnectStartParams(keywords, values, 1);
}

static void
begin_connection(Server *node)
{
	if (OidIsValid(node->place.server))
		km_foreign_options(node->place.server, &node->foreign);
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not connect to the server %s: there are too many open files", node->label),
				 errhint("Raise max_files_per_process, or the system's limit of open files.")));
	node->connection = OidIsValid(node->place.server) ? PQconnectStartParams(node->foreign.keyword, node->foreign.value, 0) :
		connect_to_node(&node->place);
	if (node->connection == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	PQsetNoticeReceiver(node->connection, pass_on_notice, NULL);
}

/* Milliseconds that postgres_fdw, or Citus, waits for a connection. */
static int
connection_timeout(const Server *node)
{
	const char *value = GetConfigOption("citus.node_connection_timeout", true, false);
	int			timeout = 0;

	if (OidIsValid(node->place.server))
		return node->foreign.timeout > 0 && node->foreign.timeout < INT_MAX / 1000 ? node->foreign.timeout * 1000 : INT_MAX;
	return value != NULL && parse_int(value, &timeout, GUC_UNIT_MS, NULL) && timeout > 0 ? timeout : 30000;
}

/* False: the server does not let us. */
static bool
end_connection(Server *node)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), connection_timeout(node));

	while (PQstatus(node->connection) != CONNECTION_BAD && status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		if (!wait_for(node, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE,
					  TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end)))
			return false;
		status = PQconnectPoll(node->connection);
	}
	if (PQstatus(node->connection) == CONNECTION_OK && OidIsValid(node->place.server))
		km_foreign_check(node->connection, &node->foreign);
	return PQstatus(node->connection) == CONNECTION_OK;
}

/* Raise that it did not. */
static void
fail_to_connect(const Server *node)
{
	if (PQstatus(node->connection) == CONNECTION_BAD)
		fail(node, NULL);
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("server %s did not let us connect within %d ms", node->label, connection_timeout(node)),
			 errdetail("It has %d of the shards.", node->n),
			 errhint("%s is how long to wait.",
					 OidIsValid(node->place.server) ? "connect_timeout of the foreign server" : "citus.node_connection_timeout")));
}

/* ---- queries ---- */

/* Wait for a result; NULL: there is none any more.  An ERROR clears the one before. */
static PGresult *
next_result(Server *node, PGresult * before)
{
	while (PQisBusy(node->connection))
	{
		(void) wait_for(node, WL_SOCKET_READABLE, -1);
		if (!PQconsumeInput(node->connection))
		{
			node->busy = false;
			fail(node, before);
		}
	}
	return PQgetResult(node->connection);
}

/* Wait for the last result of a query, or of several; ERROR unless it has this status. */
static PGresult *
result_of(Server *node, ExecStatusType expected)
{
	PGresult   *last = NULL;
	PGresult   *next;

	while ((next = next_result(node, last)) != NULL)
	{
		PQclear(last);
		last = next;
		if (PQresultStatus(last) != expected)
		{
			/* an error ends the query */
			node->busy = false;
			fail(node, last);
		}
	}
	node->busy = false;
	if (last == NULL)
		fail(node, NULL);
	return last;
}

/* It notices within a second that this process is gone; the nodes are like this server. */
#if PG_VERSION_NUM >= 140000 && defined(__linux__)
#define LOOK_FOR_US	"; SET LOCAL client_connection_check_interval TO 1000"
#else
#define LOOK_FOR_US	""
#endif

static void
begin_transaction(Server *node)
{
	char	   *sql = psprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL search_path TO pg_catalog, pg_temp; SET LOCAL extra_float_digits TO 3" LOOK_FOR_US
							   "; SET LOCAL idle_in_transaction_session_timeout TO 0; SET LOCAL lock_timeout TO %d", LockTimeout);

	if (!PQsendQuery(node->connection, sql))
		fail(node, NULL);
	node->busy = true;
}

/* ---- the nodes of a table ---- */

static bool
same_place(const KmPlace *a, const KmPlace *b)
{
	return a->port == b->port && a->server == b->server && strcmp(a->host, b->host) == 0;
}

static bool
is_lost(const KmNodes *nodes, const KmPlace *place)
{
	for (int i = 0; i < nodes->lost; i++)
		if (same_place(place, &nodes->lost_place[i]))
			return true;
	return false;
}

/* Where to read a shard: copies take turns, since all servers may have one of each.  NULL: nowhere. */
static const KmPlace *
choose_place(const KmNodes *nodes, const KmShard *shard, int number)
{
	for (int i = 0; i < shard->places; i++)
	{
		const KmPlace *place = &shard->place[(number + i) % shard->places];

		if (!is_lost(nodes, place))
			return place;
	}
	return NULL;
}

/* The node of a place, made if it is a new one. */
static Server *
find_node(KmNodes *nodes, const KmPlace *place)
{
	Server	   *node = nodes->node;

	while (node < nodes->node + nodes->n && !same_place(&node->place, place))
		node++;
	if (node == nodes->node + nodes->n)
	{
		*node = (Server) {*place, OidIsValid(place->server) ? psprintf("\"%s\"", place->host) : psprintf("%s:%d", place->host, place->port)};
		node->shard = MemoryContextAlloc(nodes->context, nodes->nshards * sizeof(int));
		node->name = MemoryContextAlloc(nodes->context, nodes->nshards * sizeof(char *));
		nodes->n++;
	}
	return node;
}

static void
find_nodes(KmNodes *nodes, const KmShard *shard)
{
	nodes->n = 0;
	for (int i = 0; i < nodes->nshards; i++)
	{
		const KmPlace *place = choose_place(nodes, &shard[i], i);
		Server	   *node;

		if (place == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("shard " INT64_FORMAT " of \"%s\" is on no server", shard[i].id, nodes->relname),
					 errhint("SELECT * FROM citus_shards shows where shards are.")));
		node = find_node(nodes, place);
		node->shard[node->n] = i;
		node->name[node->n++] = shard[i].name;
	}
}

/* Have others copies of all shards of a node? */
static bool
can_do_without(const KmNodes *nodes, const Server *node, const KmShard *shard)
{
	for (int i = 0; i < node->n; i++)
	{
		const KmShard *s = &shard[node->shard[i]];
		bool		other = false;

		for (int j = 0; j < s->places; j++)
			other |= !is_lost(nodes, &s->place[j]) && !same_place(&s->place[j], &node->place);
		if (!other)
			return false;
	}
	return true;
}

static void
do_without(KmNodes *nodes, const Server *node)
{
	nodes->lost_place[nodes->lost++] = node->place;
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("no connection to the server %s, other servers answer for it", node->label),
			 errdetail_plural("They have a copy of its %d shard.", "They have copies of its %d shards.", node->n, node->n)));
	close_all(nodes);
}

/* False: not to all of them, but there are others. */
static bool
connect_all(KmNodes *nodes, const KmShard *shard)
{
	find_nodes(nodes, shard);
	for (int i = 0; i < nodes->n; i++)
		begin_connection(&nodes->node[i]);
	for (int i = 0; i < nodes->n; i++)
	{
		Server	   *node = &nodes->node[i];

		if (!end_connection(node))
		{
			if (!can_do_without(nodes, node, shard))
				fail_to_connect(node);
			do_without(nodes, node);
			return false;
		}
		begin_transaction(node);
	}
	return true;
}

KmNodes *
km_nodes_open(const KmSource *source, int nshards, const KmShard *shard, MemoryContext context)
{
	KmNodes    *nodes = MemoryContextAllocZero(context, sizeof(KmNodes));
	int			places = 0;

	for (int i = 0; i < nshards; i++)
		places += shard[i].places;
	nodes->context = context;
	nodes->relname = source->relname;
	nodes->nshards = nshards;
	nodes->node = MemoryContextAllocZero(context, Max(nshards, 1) * sizeof(Server));
	nodes->lost_place = MemoryContextAlloc(context, (places + 1) * sizeof(KmPlace));
	nodes->release.func = close_all;
	nodes->release.arg = nodes;
	MemoryContextRegisterResetCallback(context, &nodes->release);
	while (!connect_all(nodes, shard))
		CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < nodes->n; i++)
		PQclear(result_of(&nodes->node[i], PGRES_COMMAND_OK));
	return nodes;
}

/* ---- questions ---- */

char *
km_nodes_array(char **text, int n)
{
	Datum	   *value = palloc(Max(n, 1) * sizeof(Datum));

	for (int i = 0; i < n; i++)
		value[i] = CStringGetTextDatum(text[i]);
	return DatumGetCString(OidFunctionCall1(F_ARRAY_OUT,
											PointerGetDatum(construct_array(value, n, TEXTOID, -1, false, TYPALIGN_INT))));
}

static char *
first_rows(const Server *node, const int64 *first)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < node->n; i++)
		appendStringInfo(&list, "%c" INT64_FORMAT, i > 0 ? ',' : '{', first[node->shard[i]]);
	appendStringInfoChar(&list, '}');
	return list.data;
}

static void
send_query(Server *node, const KmNodesQuery *q, bool binary)
{
	Oid			types[MAX_PARAMS] = {TEXTARRAYOID, INT8ARRAYOID};
	const char *values[MAX_PARAMS] = {q->names ? km_nodes_array(node->name, node->n) : NULL,
	q->first != NULL ? first_rows(node, q->first) : NULL};
	int			lengths[MAX_PARAMS] = {0};
	int			formats[MAX_PARAMS] = {0};

	for (int i = 0; i < q->nparams; i++)
	{
		types[2 + i] = q->param[i].type;
		values[2 + i] = q->param[i].value;
		lengths[2 + i] = q->param[i].bytes;
		formats[2 + i] = q->param[i].bytes > 0;
	}
	if (!PQsendQueryParams(node->connection, q->sql, 2 + q->nparams, types, values, lengths, formats, binary))
		fail(node, NULL);
	node->busy = true;
}

/* Copies of a node's n answers. */
static bytea * *answers_of(Server *node, int n)
{
	bytea	  **answer = palloc(n * sizeof(bytea *));
	PGresult   *result = result_of(node, PGRES_TUPLES_OK);
	int			rows = PQntuples(result);

	for (int i = 0; i < n && rows == n; i++)
	{
		int			bytes = PQgetlength(result, i, 0);

		answer[i] = palloc_extended(VARHDRSZ + bytes, MCXT_ALLOC_HUGE);
		SET_VARSIZE(answer[i], VARHDRSZ + bytes);
		memcpy(VARDATA(answer[i]), PQgetvalue(result, i, 0), bytes);
	}
	PQclear(result);
	if (rows != n)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the server %s gave %d of %d answers", node->label, rows, n),
				 errhint("All servers need the extension gkmeans of the same version, in the same schema.")));
	return answer;
}

void
km_nodes_ask(KmNodes *nodes, const KmNodesQuery *query, bool summed,
			 void (*take) (void *arg, const int *shard, int n, bytea * answer), void *arg)
{
	for (int i = 0; i < nodes->n; i++)
		send_query(&nodes->node[i], query, true);
	for (int i = 0; i < nodes->n; i++)
	{
		Server	   *node = &nodes->node[i];
		int			n = summed ? 1 : node->n;
		bytea	  **answer = answers_of(node, n);

		for (int j = 0; j < n; j++)
		{
			take(arg, node->shard + j, summed ? node->n : 1, answer[j]);
			pfree(answer[j]);
		}
		pfree(answer);
	}
}

/* Give the one row of a result to take(). */
static void
give_row(PGresult * result, int columns, void (*take) (void *arg, char **value), void *arg)
{
	char	  **value = palloc(columns * sizeof(char *));

	/* copies, since take() may raise an ERROR */
	for (int i = 0; i < columns; i++)
		value[i] = PQgetisnull(result, 0, i) ? NULL : pstrdup(PQgetvalue(result, 0, i));
	PQclear(result);
	take(arg, value);
}

static void
rows_of(Server *node, int columns, void (*take) (void *arg, char **value), void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gkmeans rows of a node", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	PGresult   *result;

	while ((result = next_result(node, NULL)) != NULL)
	{
		if (PQresultStatus(result) == PGRES_SINGLE_TUPLE && PQnfields(result) == columns)
		{
			give_row(result, columns, take, arg);
			MemoryContextReset(context);
		}
		else if (PQresultStatus(result) == PGRES_TUPLES_OK)
			PQclear(result);
		else
		{
			/* an error ends the query */
			node->busy = false;
			fail(node, result);
		}
	}
	node->busy = false;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

void
km_nodes_rows(KmNodes *nodes, const KmNodesQuery *query, int columns,
			  void (*take) (void *arg, char **value), void *arg)
{
	for (int i = 0; i < nodes->n; i++)
	{
		send_query(&nodes->node[i], query, false);
		(void) PQsetSingleRowMode(nodes->node[i].connection);
	}
	for (int i = 0; i < nodes->n; i++)
		rows_of(&nodes->node[i], columns, take, arg);
}
