/*
 * rescan_foreign.c - connections to foreign servers of postgres_fdw: by the options of the server and
 * of the caller's user mapping, under postgres_fdw's rules for passwords.
 */
#include "postgres.h"

#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "rescan/rescan_nodes.h"

/* Is it libpq's, and for the user to choose? */
static bool
is_of_libpq(const PQconninfoOption * all, const char *name)
{
	if (strcmp(name, "client_encoding") == 0 || strcmp(name, "fallback_application_name") == 0 || strcmp(name, "application_name") == 0)
		return false;
	for (const PQconninfoOption * o = all; o->keyword != NULL; o++)
		if (strcmp(o->keyword, name) == 0)
			return strchr(o->dispchar, 'D') == NULL;
	return false;
}

static void
add_options(KmForeignOptions *to, const PQconninfoOption * all, List *options)
{
	ListCell   *l;

	foreach(l, options)
	{
		DefElem    *e = lfirst_node(DefElem, l);

		if (!is_of_libpq(all, e->defname))
			continue;
		to->keyword[to->n] = e->defname;
		to->value[to->n++] = defGetString(e);
		if (strcmp(e->defname, "password") == 0)
			to->password = defGetString(e)[0] != '\0';
		if (strcmp(e->defname, "connect_timeout") == 0)
			to->timeout = pg_strtoint32(defGetString(e));
	}
}

static void
add(KmForeignOptions *to, const char *keyword, const char *value)
{
	to->keyword[to->n] = keyword;
	to->value[to->n++] = value;
}

/* Only who could read this server's files may connect by what this server is to others. */
static bool
needs_password(const UserMapping * user)
{
	ListCell   *l;

	if (superuser_arg(user->userid))
		return false;
	foreach(l, user->options)
	{
		DefElem    *e = lfirst_node(DefElem, l);

		if (strcmp(e->defname, "password_required") == 0)
			return defGetBoolean(e);
	}
	return true;
}

static void
password_error(const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
			 errmsg("password is required"),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

void
km_foreign_options(Oid serverid, KmForeignOptions *out)
{
	ForeignServer *server = GetForeignServer(serverid);
	UserMapping *user = GetUserMapping(GetUserId(), serverid);
	int			most = list_length(server->options) + list_length(user->options) + 6;
	PQconninfoOption *all = PQconndefaults();

	if (all == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	*out = (KmForeignOptions) {.keyword = palloc0(most * sizeof(char *)),.value = palloc0(most * sizeof(char *)),.timeout = 30};
	/* a machine that is gone says nothing: it is noticed in two minutes */
	add(out, "keepalives_idle", "60");
	add(out, "keepalives_interval", "20");
	add(out, "keepalives_count", "3");
	add_options(out, all, server->options);
	add_options(out, all, user->options);
	PQconninfoFree(all);
	add(out, "client_encoding", GetDatabaseEncodingName());
	add(out, "application_name", "gkmeans");
	out->needs_password = needs_password(user);
	if (out->needs_password && !out->password)
		password_error("Non-superusers must provide a password in the user mapping.",
					   "A superuser may set password_required 'false' in it.");
}

void
km_foreign_check(PGconn * connection, const KmForeignOptions *options)
{
	if (options->needs_password && !PQconnectionUsedPassword(connection))
		password_error("Non-superusers cannot connect if the server does not request a password.",
					   "The server's authentication method must ask for one, or a superuser set password_required 'false' in the user mapping.");
}
