/*
 * gkmeans_guc.c - the settings, in alphabetical order, and the words they take.
 *
 * All but three can be set by any user at any time; a call looks at them when it begins.
 * A change of a setting raises no error and loads no library; that of gkmeans.keep_memory
 * gives kept memory back.  Whether this machine can do what a setting asks for is found out
 * by the call that needs it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "core/base/gk_mem.h"
#include "gkmeans.h"

int			gkmeans_chunk_size = 16 * 1024;
int			gkmeans_device = GK_DEVICE_AUTO;
bool		gkmeans_enable_window_scan = true;
int			gkmeans_feature_sum = GK_FSUM_AUTO;
char	   *gkmeans_gpu_devices = NULL;
char	   *gkmeans_gpu_fault = NULL;
double		gkmeans_gpu_memory_limit = 0.8;
char	   *gkmeans_gpu_rows = NULL;
int			gkmeans_keep_memory = -1;
int			gkmeans_log_min_duration = -1;
int			gkmeans_mass_sum = GK_MSUM_AUTO;
int			gkmeans_max_gpu_sessions = 2;
int			gkmeans_memory_limit = -1;
int			gkmeans_reader = KM_READER_AUTO;
int			gkmeans_simd = 0;
int			gkmeans_skip_points = GK_SKIP_AUTO;
int			gkmeans_strategy = GK_STRATEGY_AUTO;
int			gkmeans_threads = 0;
int			gkmeans_workers = -1;

const struct config_enum_entry gkmeans_device_words[] = {
	{"auto", GK_DEVICE_AUTO, false},
	{"gpu", GK_DEVICE_GPU, false},
	{"cpu", GK_DEVICE_CPU, false},
	{"both", GK_DEVICE_BOTH, false},
	{NULL, 0, false}
};

static const struct config_enum_entry feature_sum_words[] = {
	{"auto", GK_FSUM_AUTO, false},
	{"partitioned_features", GK_PARTITIONED_FEATURES, false},
	{"cluster_merge", GK_CLUSTER_MERGE, false},
	{"delta", GK_DELTA, false},
	{NULL, 0, false}
};

static const struct config_enum_entry mass_sum_words[] = {
	{"auto", GK_MSUM_AUTO, false},
	{"partitioned_private", GK_PARTITIONED_PRIVATE, false},
	{"partitioned_local", GK_PARTITIONED_LOCAL, false},
	{"partitioned_global", GK_PARTITIONED_GLOBAL, false},
	{"global_atomic", GK_GLOBAL_ATOMIC, false},
	{NULL, 0, false}
};

static const struct config_enum_entry reader_words[] = {
	{"auto", KM_READER_AUTO, false},
	{"executor", KM_READER_EXECUTOR, false},
	{"heap", KM_READER_HEAP, false},
	{NULL, 0, false}
};

static const struct config_enum_entry simd_words[] = {
	{"auto", 0, false},
	{"avx512", 1, false},
	{"avx2", 2, false},
	{"neon", 3, false},
	{"scalar", 4, false},
	/* of one set alone, to compare: not listed */
	{"avx512_amx", 5, true},
	{"avx512_vnni", 6, true},
	{"avx512f", 7, true},
	{"neon_dotprod", 8, true},
	{"neon_base", 9, true},
	{NULL, 0, false}
};

static const struct config_enum_entry skip_words[] = {
	{"auto", GK_SKIP_AUTO, false},
	{"on", GK_SKIP_ON, false},
	{"off", GK_SKIP_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry strategy_words[] = {
	{"auto", GK_STRATEGY_AUTO, false},
	{"single_pass", GK_SINGLE_PASS, false},
	{"multi_pass", GK_MULTI_PASS, false},
	{"cross_processing", GK_CROSS_PROCESSING, false},
	{"scan", GKMEANS_SCAN, false},
	{NULL, 0, false}
};

/* A lower limit applies at once, a higher one at the next call. */
static void
assign_keep_memory(int kb, void *extra)
{
	if (kb >= 0)
		gk_mem_pool_limit((size_t) kb * 1024);
}

/* "all", or numbers with commas between them. */
static bool
check_gpu_devices(char **value, void **extra, GucSource source)
{
	const char *p = *value;

	if (strcmp(p, "all") == 0)
		return true;
	for (;; p++)
	{
		size_t		digits;

		p += strspn(p, " ");
		digits = strspn(p, "0123456789");
		if (digits < 1 || digits > 2 || atoi(p) >= KM_MAX_GPUS)
		{
			GUC_check_errdetail("GPUs are numbered from 0 to %d.", KM_MAX_GPUS - 1);
			GUC_check_errhint("Use \"all\", or a list like \"0,1\" of numbers that gkmeans_devices() shows.");
			return false;
		}
		p += digits;
		if (*p == '\0')
			return true;
		if (*p != ',')
		{
			GUC_check_errdetail("After the number of a GPU comes a comma, or nothing.");
			GUC_check_errhint("Use \"all\", or a list like \"0,1\" of numbers that gkmeans_devices() shows.");
			return false;
		}
	}
}

/* Settings that any user may change at any time; their values so far are the defaults. */

static void
define_int(const char *name, const char *does, const char *more, int *value, int low, int high, int flags)
{
	DefineCustomIntVariable(name, does, more, value, *value, low, high, PGC_USERSET, flags, NULL, NULL, NULL);
}

static void
define_enum(const char *name, const char *does, const char *more, int *value,
			const struct config_enum_entry *words, int flags)
{
	DefineCustomEnumVariable(name, does, more, value, *value, words, PGC_USERSET, flags, NULL, NULL, NULL);
}

void
km_guc_init(void)
{
	define_int("gkmeans.chunk_size", "Sets the size of one column-major chunk of points.",
			   "The results do not depend on it.",
			   &gkmeans_chunk_size, 64, 1024 * 1024, GUC_UNIT_KB);
	define_enum("gkmeans.device", "Sets the device that clusters.",
				"\"auto\" takes the GPU when one is usable and the job is big enough to gain.",
				&gkmeans_device, gkmeans_device_words, 0);
	DefineCustomBoolVariable("gkmeans.enable_window_scan",
							 "Lets the planner take a node of its own for kmeans() OVER.",
							 "Off: PostgreSQL's WindowAgg calls it. The results do not depend on it.",
							 &gkmeans_enable_window_scan, true, PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	define_enum("gkmeans.feature_sum", "Sets how the features of each cluster's points are summed up.",
				"The results do not depend on it.",
				&gkmeans_feature_sum, feature_sum_words, 0);
	DefineCustomStringVariable("gkmeans.gpu_devices", "Sets which GPUs may be used.",
							   "A list of their numbers as in \"0,1\", or \"all\".",
							   &gkmeans_gpu_devices, "all", PGC_USERSET, 0, check_gpu_devices, NULL, NULL);
	DefineCustomStringVariable("gkmeans.gpu_fault", "Makes the GPU fail, to test what happens then.",
							   "\"memory:100\" fails the call of CUDA number 100.",
							   &gkmeans_gpu_fault, "", PGC_SUSET, GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							   NULL, NULL, NULL);
	DefineCustomRealVariable("gkmeans.gpu_memory_limit",
							 "Sets the share of the free GPU memory that one job may take.",
							 "Points that do not fit are streamed. The results do not depend on it.",
							 &gkmeans_gpu_memory_limit, 0.8, 0.0001, 1.0, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("gkmeans.gpu_rows", "Sets how many rows each device has, to test shares.",
							   "\"64,1\" gives the third device the rest.",
							   &gkmeans_gpu_rows, "", PGC_SUSET, GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("gkmeans.keep_memory",
							"Sets the host memory that a session keeps for its next call.",
							"It is the system's as soon as it is short of memory. "
							"-1 means as much as gkmeans.memory_limit, which it never is more than; 0 means none.",
							&gkmeans_keep_memory, -1, -1, MAX_KILOBYTES, PGC_USERSET, GUC_UNIT_KB,
							NULL, assign_keep_memory, NULL);
	DefineCustomIntVariable("gkmeans.log_min_duration", "Sets the time from which on a run is logged.",
							"0 logs all runs. -1 turns this off.",
							&gkmeans_log_min_duration, -1, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	define_enum("gkmeans.mass_sum", "Sets how the points of each cluster are counted.",
				"The results do not depend on it.",
				&gkmeans_mass_sum, mass_sum_words, 0);
	/* it needs shared memory, which only the start of the server can give */
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("gkmeans.max_gpu_sessions", "Sets how many sessions may use one GPU at once.",
								"Further ones wait, or use the CPU if the device is \"auto\".",
								&gkmeans_max_gpu_sessions, 2, 1, 1024, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	define_int("gkmeans.memory_limit", "Sets the host memory for points.",
			   "Points above it are kept in a temporary file and streamed. -1 means to use maintenance_work_mem.",
			   &gkmeans_memory_limit, -1, MAX_KILOBYTES, GUC_UNIT_KB);
	define_enum("gkmeans.reader", "Sets how rows are read, to test and to measure.",
				"\"auto\" reads the pages of plain tables itself. The results do not depend on it.",
				&gkmeans_reader, reader_words, GUC_NOT_IN_SAMPLE);
	define_enum("gkmeans.simd", "Sets the instructions that the CPU kernels use.",
				"\"auto\" takes the widest ones that this CPU has. The results do not depend on it.",
				&gkmeans_simd, simd_words, 0);
	define_enum("gkmeans.skip_points", "Sets whether points whose label is known from bounds are skipped.",
				"\"auto\" does where it costs less. The results do not depend on it.",
				&gkmeans_skip_points, skip_words, 0);
	define_enum("gkmeans.strategy", "Sets how assignment and update are combined, or that rows are not kept.",
				"\"scan\" reads the relation again in every pass, with little memory. "
				"The results do not depend on it.",
				&gkmeans_strategy, strategy_words, 0);
	define_int("gkmeans.threads", "Sets the number of threads that compute and read tables.",
			   "0 means all CPUs that the process may use. The results do not depend on it.",
			   &gkmeans_threads, 0, 1024, 0);
	define_int("gkmeans.workers", "Sets the number of parallel workers that read a table.",
			   "-1 means none where threads read, else up to max_parallel_maintenance_workers, by the size of the table. "
			   "The results do not depend on it.",
			   &gkmeans_workers, -1, 1024, 0);

	MarkGUCPrefixReserved("gkmeans");
}

size_t
km_keep_memory_bytes(void)
{
	size_t		limit = km_memory_limit_bytes();

	return gkmeans_keep_memory < 0 ? limit : Min((size_t) gkmeans_keep_memory * 1024, limit);
}

size_t
km_memory_limit_bytes(void)
{
	int			kb = gkmeans_memory_limit >= 0 ? gkmeans_memory_limit : maintenance_work_mem;

	return (size_t) kb * 1024;
}

void
km_apply_simd(void)
{
	const char *word = simd_words[gkmeans_simd].name;
	char		reason[256];

	if (!gk_cpu_set_simd(word, reason, sizeof(reason)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gkmeans.simd = \"%s\" is not usable on this machine", word),
				 errdetail("%s", reason),
				 errhint("Set gkmeans.simd to \"auto\".")));
}
