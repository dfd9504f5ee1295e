/*
 * readers_main.c - inputs for readers.c: the corpus, then mutations of it, from a seed.
 *
 * usage: readers [--seconds S] [--cases N] [--seed N] [--case I] CORPUS_DIRECTORY [FILE...]
 *
 * An input depends on the seed and its number alone.  When one ends the process, its
 * number is printed and it is written to build/fuzz/.  With FILEs: these and no others.
 * Where clang's libFuzzer is at hand, it makes better inputs of the same corpus.
 */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_SEEDS	1024
#define MAX_SIZE	8192
/* No input may take longer; this many seconds. */
#define HANGS		20

/* As readers.h declares them; this file knows nothing of PostgreSQL. */
typedef struct ReaderCount
{
	const char *name;
	int64_t		accepted;
} ReaderCount;

extern ReaderCount reader_counts[];
extern const int nreaders;
extern const char *reader_at_work;
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input
{
	uint8_t    *data;
	size_t		size;
} Input;

static Input seeds[MAX_SEEDS];
static int	nseeds = 0;

/* What is being tried, for the report of a crash. */
static uint8_t input[MAX_SIZE];
static size_t size;
static uint64_t seed = 1;
static int64_t number = -1;
static const char *file = NULL;

/* ---- reports ---- */

/* Sanitizers end the process as abort() does. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *
__asan_default_options(void)
{
	return "abort_on_error=1:handle_abort=0:detect_leaks=0";
}

const char *
__ubsan_default_options(void)
{
	return "abort_on_error=1:print_stacktrace=1";
}

static void
report(void)
{
	char		path[100];
	FILE	   *f;

	printf("not ok - readers: %s, input of %zu bytes\n", reader_at_work, size);
	if (file != NULL)
		printf("    again: test/fuzz/readers %s\n", file);
	else
	{
		printf("    again: test/fuzz/run --seed %llu --case %lld readers\n", (unsigned long long) seed, (long long) number);
		snprintf(path, sizeof(path), "build/fuzz/input-%llu-%lld", (unsigned long long) seed, (long long) number);
		if ((f = fopen(path, "w")) != NULL)
		{
			fwrite(input, 1, size, f);
			fclose(f);
			printf("    input: %s\n", path);
		}
	}
	printf("readers: %lld cases, 1 failed, seed %llu\n%lld passed, 1 failed\n",
		   (long long) number + 1, (unsigned long long) seed, (long long) number);
	fflush(stdout);
}

static void
on_signal(int sig)
{
	signal(sig, SIG_DFL);
	if (sig == SIGALRM)
		fprintf(stderr, "readers: an input takes more than %d s\n", HANGS);
	report();
	raise(sig);
}

/* ---- random numbers ---- */

static uint64_t state;

static uint64_t
next_random(void)
{
	uint64_t	z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static size_t
below(size_t n)
{
	return n == 0 ? 0 : next_random() % n;
}

/* ---- mutations ---- */

static const char *const words[] = {
	"0", "-1", "1", "-0", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
	"1e308", "-1e308", "1e309", "5e-324", "1e-400", "NaN", "Infinity", "null", "true", "false", "[]", "{}", "[[", "\"\"",
	"\\u0000", "\\ud800", "\\u00e4", "\"x\": ", ", ", "\"version\": 2", "\"k\": 0", "\"d\": 1", "\\x", "cosine", "k-means||",
	"1099511627776", "1099511627777", "1000000", "16384", "200", "-200", "2200", "1536", "-1088"
};

static const uint64_t values[] = {
	0, 1, 2, 3, 16, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 16384, 1000000, 0x7fffffff, 0x80000000, 0xffffffff,
	UINT64_C(0xffffffff00000000), UINT64_C(0x100000000), UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1,
	UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000), UINT64_MAX,
	UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000), UINT64_C(0x7fefffffffffffff), UINT64_C(0x0010000000000000),
	UINT64_C(0x3ff0000000000000), 0x7f800000, 0x7fc00000, 0x7f7fffff, 0x3f800000
};

#define COUNT(a)	(sizeof(a) / sizeof(a[0]))

/* Replace `old` bytes at a place by these. */
static void
replace(size_t at, size_t old, const uint8_t *by, size_t n)
{
	if (size - old + n > MAX_SIZE)
		return;
	memmove(input + at + n, input + at + old, size - at - old);
	memmove(input + at, by, n);
	size += n - old;
}

/* A number in network order, over what is there; often at a place where numbers are. */
static void
put_value(void)
{
	uint64_t	v = values[below(COUNT(values))] + (next_random() % 4 == 0 ? next_random() % 5 - 2 : 0);
	size_t		bytes = (size_t) 1 << below(4);
	size_t		at;

	if (size < bytes)
		return;
	at = below(size - bytes + 1);
	if (next_random() % 2)
		at -= at % 4;
	for (size_t i = 0; i < bytes; i++)
		input[at + i] = (uint8_t) (v >> 8 * (bytes - 1 - i));
}

/* A number in decimal digits becomes another one. */
static void
put_word(void)
{
	const char *word = words[below(COUNT(words))];
	size_t		at = below(size);
	size_t		end;

	while (at < size && !strchr("0123456789-", input[at]))
		at++;
	for (end = at; end < size && input[end] != '\0' && strchr("0123456789-+.eE", input[end]);)
		end++;
	replace(at, end - at, (const uint8_t *) word, strlen(word));
}

static void
splice(void)
{
	const Input *other = &seeds[below(nseeds)];
	size_t		from = below(other->size);
	size_t		n = below(other->size - from) + 1;
	size_t		at = below(size);

	if (n > other->size - from)
		return;
	replace(at, next_random() % 2 ? (n < size - at ? n : size - at) : 0, other->data + from, n);
}

static void
mutate(void)
{
	uint8_t		copy[64];
	size_t		at = below(size);
	size_t		n = below(sizeof(copy)) + 1;

	if (n > size - at)
		n = size - at;
	switch (next_random() % 10)
	{
		case 0:
			if (size > 0)
				input[at] ^= 1 << next_random() % 8;
			break;
		case 1:
			if (size > 0)
				input[at] = next_random();
			break;
		case 2:
		case 3:
			put_value();
			break;
		case 4:
		case 5:
			put_word();
			break;
		case 6:
			replace(at, n, input, 0);
			break;
		case 7:
			memcpy(copy, input + at, n);
			replace(below(size), 0, copy, n);
			break;
		case 8:
			splice();
			break;
		case 9:
			if (next_random() % 4 == 0)
				size = at;
			else if (size > 1)
				input[at] += next_random() % 2 ? 1 : -1;
			break;
	}
}

/* The input of this number. */
static void
make_input(int64_t i)
{
	const Input *from;

	state = seed * UINT64_C(0xd1342543de82ef95) + (uint64_t) i;
	number = i;
	from = &seeds[i < nseeds ? (size_t) i : below(nseeds)];
	size = from->size;
	memcpy(input, from->data, size);
	for (int n = i < nseeds ? 0 : 1 + (int) below(4) * (int) below(2); n > 0; n--)
		mutate();
}

/* ---- corpus ---- */

static void
load(const char *path)
{
	FILE	   *f = fopen(path, "r");
	Input	   *to = &seeds[nseeds];

	if (f == NULL || nseeds == MAX_SEEDS)
	{
		fprintf(stderr, "readers: cannot read %s\n", path);
		exit(2);
	}
	to->data = malloc(MAX_SIZE);
	to->size = fread(to->data, 1, MAX_SIZE, f);
	fclose(f);
	nseeds++;
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of the names in the C locale: the same everywhere. */
static void
load_directory(const char *path)
{
	struct dirent **entry;
	int			n = scandir(path, &entry, NULL, by_name);
	char		name[1024];

	for (int i = 0; i < n; i++)
	{
		if (entry[i]->d_name[0] != '.')
		{
			snprintf(name, sizeof(name), "%s/%s", path, entry[i]->d_name);
			load(name);
		}
		free(entry[i]);
	}
	if (nseeds == 0)
	{
		fprintf(stderr, "readers: there is no corpus in %s\n", path);
		exit(2);
	}
	free(entry);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + t.tv_nsec * 1e-9;
}

static void
run_input(void)
{
	uint8_t    *exact = malloc(size > 0 ? size : 1);

	/* so that AddressSanitizer sees a step over its end */
	memcpy(exact, input, size);
	if (number % 64 == 0)
		alarm(HANGS);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

int
main(int argc, char **argv)
{
	double		start = now();
	double		seconds = 1e9;
	int64_t		cases = INT64_MAX;
	int64_t		only = -1;
	int64_t		i;
	int			arg = 1;

	for (; arg + 1 < argc && strncmp(argv[arg], "--", 2) == 0; arg += 2)
	{
		if (strcmp(argv[arg], "--seconds") == 0)
			seconds = atof(argv[arg + 1]);
		else if (strcmp(argv[arg], "--cases") == 0)
			cases = atoll(argv[arg + 1]);
		else if (strcmp(argv[arg], "--seed") == 0)
			seed = strtoull(argv[arg + 1], NULL, 10);
		else if (strcmp(argv[arg], "--case") == 0)
			only = atoll(argv[arg + 1]);
		else
			arg = argc;
	}
	if (arg >= argc)
	{
		fprintf(stderr, "usage: %s [--seconds S] [--cases N] [--seed N] [--case I] CORPUS [FILE...]\n", argv[0]);
		return 2;
	}
	signal(SIGABRT, on_signal);
	signal(SIGALRM, on_signal);
	if (arg + 1 < argc)
	{
		for (number = 0; arg + 1 < argc; arg++, number++)
		{
			nseeds = 0;
			file = argv[arg + 1];
			load(file);
			memcpy(input, seeds[0].data, size = seeds[0].size);
			run_input();
		}
		printf("%lld passed, 0 failed\n", (long long) number);
		return 0;
	}
	load_directory(argv[arg]);
	if (only >= 0)
	{
		make_input(only);
		run_input();
		cases = 0;
	}
	for (i = 0; i < cases && (i % 256 != 0 || i < nseeds || now() - start < seconds); i++)
	{
		make_input(i);
		run_input();
	}
	if (only >= 0)
		i = 1;
	printf("readers accepted:");
	for (int r = 0; r < nreaders; r++)
		printf("%s %s %lld", r > 0 ? "," : "", reader_counts[r].name, (long long) reader_counts[r].accepted);
	printf("\nreaders: %lld cases, 0 failed, seed %llu\n%lld passed, 0 failed\n",
		   (long long) i, (unsigned long long) seed, (long long) i);
	return 0;
}
