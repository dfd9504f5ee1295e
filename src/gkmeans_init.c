/*
 * gkmeans_init.c - the module's entry.
 *
 * Loading the module allocates nothing, starts no thread and loads no other
 * library: the postmaster may do it (shared_preload_libraries) and fork.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "gkmeans.h"
#include "pg/pg.h"
#include "window/window.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "gkmeans",.version = GKMEANS_VERSION);
#else
PG_MODULE_MAGIC;
#endif

void		_PG_init(void);

PG_FUNCTION_INFO_V1(gkmeans_version);

void
_PG_init(void)
{
	km_guc_init();
	km_device_init();
	km_monitor_init();
	km_window_plan_init();
	km_advice_init();
}

/* gkmeans_version() returns text */
Datum
gkmeans_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(GKMEANS_VERSION));
}
