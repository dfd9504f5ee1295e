/*
 * readers.h - the attack on gkmeans' readers of bytes, without a server.
 *
 * readers.c, readers_options.c and readers_pass.c say what is read and what has to be true of it;
 * server_stub.c and server_memory.c are as much of a PostgreSQL server as the readers need; readers_main.c
 * makes inputs where libFuzzer is not there to do it.
 */
#ifndef READERS_H
#define READERS_H

#include "postgres.h"

#include "fmgr.h"

/* ---- server_memory.c, server_stub.c ---- */

/* The last ERROR. */
typedef struct StubError
{
	int			sqlstate;
	char		message[4096];
	int			length;			/* of the message, were it not cut off */
} StubError;

extern StubError stub_error;

/* Bytes of palloc() in use, and the most since stub_reset(). */
extern Size stub_bytes;
extern Size stub_most_bytes;

/* Free all memory but that of the process. */
extern void stub_reset(void);

/* False: it raised an ERROR. */
extern bool stub_try(void (*f) (void *arg), void *arg);
extern bool stub_is_utf8(const char *s, int len);

/* ---- readers.c ---- */

/* One input to all readers; ends the process when something is not as it should be. */
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many values each reader has accepted. */
typedef struct ReaderCount
{
	const char *name;
	int64		accepted;
} ReaderCount;

extern ReaderCount reader_counts[];
extern const int nreaders;

/* What the input is attacked with now, for a report. */
extern const char *reader_at_work;

/* A function call as SQL makes it. */
#define MAX_ARGS	16
typedef struct Call
{
	PGFunction	f;
	int			nargs;
	NullableDatum args[MAX_ARGS];
	Datum		result;
	bool		isnull;
} Call;

/* For stub_try(); arg is a Call. */
extern void reader_run(void *arg);

/* False: it raised an ERROR that a user may see.  Any other ends the process. */
extern bool reader_call(Call *call);

/* The same for one argument; a NULL result is 0. */
extern bool reader_try(PGFunction f, Datum arg, Datum *result);

/* The same for a function that must not fail. */
extern Datum reader_must(PGFunction f, Datum arg);
extern void reader_broken(const char *format,...) pg_attribute_printf(1, 2) pg_attribute_noreturn();

/* The varlena values have to be the same bytes. */
extern void reader_same(const char *what, Datum a, Datum b);

/* The instruction sets of this machine: all have to give the same bits. */
extern int	reader_simd_levels(void);
extern void reader_set_simd(int level);

/* ---- readers_options.c ---- */

extern bool read_options(const char *data, int size);

/* ---- readers_pass.c ---- */

/* True: accepted. */
extern bool read_pass(const char *data, int size);
extern bool read_answer(const char *data, int size);

#endif							/* READERS_H */
