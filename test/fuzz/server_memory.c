/*
 * server_memory.c - palloc() and ereport() for server_stub.c.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "utils/memutils.h"

#include "readers.h"

/* ---- memory: malloc, so that AddressSanitizer sees every block ---- */

typedef struct Block
{
	struct Block *before,
			   *after;
	struct MemoryContextData *context;
	Size		size;
} Block;

/* The blocks of a context, in a ring; nothing else of a real one is used. */
typedef struct StubContext
{
	struct MemoryContextData real;
	Block		blocks;
} StubContext;

static StubContext process = {.blocks = {&process.blocks, &process.blocks}};
static StubContext call = {.blocks = {&call.blocks, &call.blocks}};
MemoryContext TopMemoryContext = &process.real;
MemoryContext CurrentMemoryContext = &call.real;
Size		stub_bytes = 0;
Size		stub_most_bytes = 0;

static void *
take(MemoryContext context, Size size, Size limit)
{
	Block	   *ring = &((StubContext *) context)->blocks;
	Block	   *b;

	if (size > limit)
		elog(ERROR, "invalid memory alloc request size %zu", size);
	b = malloc(sizeof(Block) + size);
	if (b == NULL)
		abort();
	*b = (Block) {ring, ring->after, context, size};
	ring->after->before = b;
	ring->after = b;
	stub_bytes += size;
	stub_most_bytes = Max(stub_most_bytes, stub_bytes);
	memset(b + 1, 0xA5, Min(size, 4096));	/* nothing may rely on zeros */
	return b + 1;
}

void
pfree(void *p)
{
	Block	   *b = (Block *) p - 1;

	b->before->after = b->after;
	b->after->before = b->before;
	stub_bytes -= b->size;
	free(b);
}

static void
free_blocks(StubContext *context)
{
	while (context->blocks.after != &context->blocks)
		pfree(context->blocks.after + 1);
}

void *
palloc(Size size)
{
	return take(CurrentMemoryContext, size, MaxAllocSize);
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
palloc_extended(Size size, int flags)
{
	return take(CurrentMemoryContext, size, flags & MCXT_ALLOC_HUGE ? MaxAllocHugeSize : MaxAllocSize);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return take(context, size, MaxAllocSize);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(take(context, size, MaxAllocSize), 0, size);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return take(context, size, MaxAllocHugeSize);
}

void *
repalloc(void *p, Size size)
{
	Block	   *b = (Block *) p - 1;
	void	   *to = take(b->context, size, MaxAllocSize);

	memcpy(to, p, Min(size, b->size));
	pfree(p);
	return to;
}

char *
pstrdup(const char *s)
{
	return strcpy(palloc(strlen(s) + 1), s);
}

static StubContext *contexts[64];	/* that are not deleted yet */
static int	ncontexts = 0;

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size least, Size first, Size most)
{
	StubContext *c = calloc(1, sizeof(StubContext));

	if (c == NULL || ncontexts == lengthof(contexts))
		abort();
	c->blocks.before = c->blocks.after = &c->blocks;
	contexts[ncontexts++] = c;
	return &c->real;
}

void
MemoryContextDelete(MemoryContext context)
{
	for (int i = 0; i < ncontexts; i++)
		if (&contexts[i]->real == context)
		{
			free_blocks(contexts[i]);
			free(contexts[i]);
			contexts[i] = contexts[--ncontexts];
		}
}

/* An ERROR leaves contexts behind. */
void
stub_reset(void)
{
	while (ncontexts > 0)
		MemoryContextDelete(&contexts[0]->real);
	free_blocks(&call);
	stub_most_bytes = stub_bytes;
}

/* ---- errors ---- */

StubError	stub_error;
volatile	sig_atomic_t InterruptPending = false;
static sigjmp_buf * handler = NULL;
static int	level;

bool
errstart(int elevel, const char *domain)
{
	level = elevel;
	stub_error.sqlstate = ERRCODE_INTERNAL_ERROR;
	stub_error.message[0] = '\0';
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *file, int line, const char *function)
{
	if (level < ERROR)
		return;
	if (handler == NULL)
	{
		fprintf(stderr, "ERROR outside of stub_try(): %s\n", stub_error.message);
		abort();
	}
	siglongjmp(*handler, 1);
}

int
errcode(int sqlstate)
{
	stub_error.sqlstate = sqlstate;
	return 0;
}

char *
unpack_sql_state(int sqlstate)
{
	static char text[6];

	for (int i = 0; i < 5; i++, sqlstate >>= 6)
		text[i] = PGUNSIXBIT(sqlstate);
	return text;
}

static void
say(char *to, const char *format, va_list args)
{
	stub_error.length = vsnprintf(to, sizeof(stub_error.message), format, args);
}

#define SAY(to, format) \
	do { \
		va_list		args; \
		va_start(args, format); \
		say(to, format, args); \
		va_end(args); \
	} while (0)

int
errmsg(const char *format,...)
{
	SAY(stub_error.message, format);
	return 0;
}

int
errmsg_internal(const char *format,...)
{
	SAY(stub_error.message, format);
	return 0;
}

int
errmsg_plural(const char *one, const char *more, unsigned long n,...)
{
	va_list		args;

	va_start(args, n);
	say(stub_error.message, n == 1 ? one : more, args);
	va_end(args);
	return 0;
}

/* Only written out, so that a bad argument is seen. */
static char unused[sizeof(stub_error.message)];

int
errdetail(const char *format,...)
{
	SAY(unused, format);
	return 0;
}

int
errhint(const char *format,...)
{
	SAY(unused, format);
	return 0;
}

bool
stub_try(void (*f) (void *arg), void *arg)
{
	sigjmp_buf	here;
	sigjmp_buf *before = handler;
	MemoryContext context = CurrentMemoryContext;
	volatile bool good = false;

	if (sigsetjmp(here, 0) == 0)
	{
		handler = &here;
		f(arg);
		good = true;
	}
	handler = before;
	CurrentMemoryContext = context;
	return good;
}

void
ProcessInterrupts(void)
{
}
