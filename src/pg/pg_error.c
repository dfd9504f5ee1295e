/*
 * pg_error.c - the one place where the engine's errors become SQL errors.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "pg/pg.h"

typedef struct ErrorRow
{
	GkStatus	status;
	int			sqlstate;
	const char *hint;			/* when the engine gave none; or NULL */
} ErrorRow;

static const ErrorRow error_table[] = {
	{GK_ERR_MEMORY, ERRCODE_OUT_OF_MEMORY,
	"Lower gkmeans.memory_limit to stream the points from a temporary file, or use a smaller k."},
	{GK_ERR_MEMORY_LIMIT, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
	"Raise gkmeans.memory_limit."},
	{GK_ERR_SPILL, ERRCODE_IO_ERROR, NULL},
	{GK_ERR_OPTION, ERRCODE_INVALID_PARAMETER_VALUE, NULL},
	{GK_ERR_DATA, ERRCODE_DATA_EXCEPTION, NULL},
	{GK_ERR_RANGE, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, NULL},
	{GK_ERR_LIMIT, ERRCODE_PROGRAM_LIMIT_EXCEEDED, NULL},
	{GK_ERR_NO_DEVICE, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
	"See gkmeans_devices(), or use device => 'auto'."},
	{GK_ERR_DEVICE, ERRCODE_SYSTEM_ERROR,
	"Use device => 'cpu' for the rest of this session."},
	{GK_ERR_DEVICE_MEMORY, ERRCODE_OUT_OF_MEMORY,
	"Use device => 'cpu'."},
	{GK_ERR_INTERNAL, ERRCODE_INTERNAL_ERROR, NULL},
};

/*
 * Raise what an engine function returned.  When a host callback failed or the user cancelled, the
 * ERROR behind it was kept by the host.  An error for which a thread had no memory is NULL.
 */
void
km_throw(KmPgHost *host, GkStatus status, const GkError *err)
{
	int			sqlstate = ERRCODE_INTERNAL_ERROR;
	const char *hint = NULL;

	km_host_rethrow(host);

	if (status == GK_STOPPED)
	{
		/* a helper thread saw the flag before the main thread's next poll */
		CHECK_FOR_INTERRUPTS();
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
	}
	if (err == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));

	for (int i = 0; i < (int) lengthof(error_table); i++)
	{
		if (error_table[i].status == status)
		{
			sqlstate = error_table[i].sqlstate;
			hint = error_table[i].hint;
		}
	}
	if (err->hint[0] != '\0')
		hint = err->hint;

	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("%s", err->message),
			 err->detail[0] != '\0' ? errdetail("%s", err->detail) : 0,
			 hint != NULL ? errhint("%s", hint) : 0));
	pg_unreachable();
}
