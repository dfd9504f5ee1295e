/*
 * fn_devices.c - what can compute here, and why something cannot.
 */
#include "postgres.h"

#include <dlfcn.h>

#include "utils/builtins.h"

#include "gkmeans.h"

#define MAX_DEVICES	64

PG_FUNCTION_INFO_V1(gkmeans_devices);

/*
 * The GPU part is looked for beside this module, wherever that was loaded
 * from: $libdir is not the only possible place.  Only the name is noted here.
 */
void
km_devices_init(void)
{
	Dl_info		info;

	if (dladdr((void *) km_devices_init, &info) != 0 && info.dli_fname != NULL)
	{
		char		dir[MAXPGPATH];

		strlcpy(dir, info.dli_fname, sizeof(dir));
		get_parent_directory(dir);
		gk_registry_set_directory(dir);
	}
}

/*
 * gkmeans_devices(backend, name, usable, reason, memory, detail) returns setof record
 */
Datum
gkmeans_devices(PG_FUNCTION_ARGS)
{
	GkDeviceInfo *info = palloc(MAX_DEVICES * sizeof(GkDeviceInfo));
	KmResult	result;
	int			n;

	km_result_begin(fcinfo, &result);
	km_apply_simd();
	n = gk_registry_devices(info, MAX_DEVICES);
	for (int i = 0; i < n; i++)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = CStringGetTextDatum(info[i].backend);
		values[1] = CStringGetTextDatum(info[i].name);
		values[2] = BoolGetDatum(info[i].usable);
		values[3] = CStringGetTextDatum(info[i].reason);
		nulls[3] = info[i].reason[0] == '\0';
		values[4] = Int64GetDatum(info[i].memory);
		nulls[4] = info[i].memory == 0;
		values[5] = CStringGetTextDatum(info[i].detail);
		nulls[5] = info[i].detail[0] == '\0';
		tuplestore_putvalues(result.store, result.desc, values, nulls);
	}
	return (Datum) 0;
}
