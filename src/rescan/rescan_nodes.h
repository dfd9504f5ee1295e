/*
 * rescan_nodes.h - how servers are connected to, beside the way of Citus: for rescan_nodes.c and
 * rescan_foreign.c alone.
 */
#ifndef RESCAN_NODES_H
#define RESCAN_NODES_H

#include "libpq-fe.h"

/* What a connection to a foreign server is made by. */
typedef struct KmForeignOptions
{
	int			n;
	const char **keyword;		/* ends with NULL, as libpq takes it */
	const char **value;
	int			timeout;		/* seconds to wait; <= 0: for ever */
	bool		password;		/* there is one */
	bool		needs_password;
} KmForeignOptions;

/* The options of a server and of the caller's mapping; ERROR when a password is missing. */
extern void km_foreign_options(Oid serverid, KmForeignOptions *out);

/* ERROR when a connection should have used a password and has not. */
extern void km_foreign_check(PGconn * connection, const KmForeignOptions *options);

#endif							/* RESCAN_NODES_H */
