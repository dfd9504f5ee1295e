/*
 * gkmeans.h - what all files of the PostgreSQL glue share: settings, host, errors.
 *
 * The glue (every folder of src but core/, cpu/ and gpu/) is the only code that includes
 * postgres.h.  It turns SQL arguments into the engine's options, rows into points, and the
 * engine's results and errors back into SQL.  From the ground floor up:
 *
 *   pg/         PostgreSQL around a call: host, errors, arguments, results, devices, monitoring
 *   relation/   the rows of a relation into batches
 *   types/      kmeans_model and kmeans_state
 *   rescan/     rows that every pass reads again, here or on other servers
 *   functions/  what SQL calls
 *   groups/, window/, svg/   many clusterings at once; kmeans() OVER; pictures
 *
 * Each has a header that begins with its words.  Functions and types are km_ and Km here, gk_
 * and Gk in the engine.  The engine sees PostgreSQL only through a GkHost (pg_host.c) and
 * reports errors only by GkStatus (pg_error.c).
 */
#ifndef GKMEANS_H
#define GKMEANS_H

#if PG_VERSION_NUM < 130000
#error "gkmeans needs PostgreSQL 13 or newer"
#endif

#include "fmgr.h"
#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/tuplestore.h"

#include "core/gk_core.h"
#include "pg/pg_compat.h"

/* The version in gkmeans.control, which a test compares with it. */
#define GKMEANS_VERSION		"1.0.0"

/* Features that are columns: as many as a PostgreSQL table has. */
#define GKMEANS_MAX_COLUMNS	1600

/* ---- settings (gkmeans_guc.c), in alphabetical order ---- */

extern int	gkmeans_chunk_size; /* kB */
extern int	gkmeans_device;		/* GkDeviceKind */
extern bool gkmeans_enable_window_scan;
extern int	gkmeans_feature_sum;	/* GkFeatureSum */
extern char *gkmeans_gpu_devices;
extern char *gkmeans_gpu_fault;
extern char *gkmeans_gpu_rows;

/* As many GPUs as a backend looks at. */
#define KM_MAX_GPUS		16
extern double gkmeans_gpu_memory_limit;
extern int	gkmeans_keep_memory;	/* kB, -1: gkmeans_memory_limit */
extern int	gkmeans_log_min_duration;	/* ms, -1: off */
extern int	gkmeans_mass_sum;	/* GkMassSum */
extern int	gkmeans_max_gpu_sessions;
extern int	gkmeans_memory_limit;	/* kB, -1: maintenance_work_mem */
extern int	gkmeans_reader;		/* KmReaderKind */
extern int	gkmeans_simd;		/* index of simd_words, in gkmeans_guc.c */
extern int	gkmeans_skip_points;	/* GkSkip */
extern int	gkmeans_strategy;	/* GkStrategy, or GKMEANS_SCAN */
extern int	gkmeans_threads;
extern int	gkmeans_workers;	/* -1: max_parallel_maintenance_workers */

/* The strategy "scan", of the glue: rows are not kept, every pass reads them again. */
#define GKMEANS_SCAN		(GK_CROSS_PROCESSING + 1)

/* How rows are read; see rel_heap.c. */
typedef enum KmReaderKind
{
	KM_READER_AUTO, KM_READER_EXECUTOR, KM_READER_HEAP
} KmReaderKind;

/* The words of gkmeans.device, also those of the option. */
extern const struct config_enum_entry gkmeans_device_words[];

extern void km_guc_init(void);
extern size_t km_keep_memory_bytes(void);
extern size_t km_memory_limit_bytes(void);

/* Make the CPU kernels follow gkmeans.simd; ERROR when this CPU cannot. */
extern void km_apply_simd(void);

#endif							/* GKMEANS_H */
