/*
 * load_floor.c - the least time that loading a table can take: bench/server/load.sh runs it.
 * usage: load_floor TABLE_BYTES POINT_BYTES THREADS
 *
 * Points of float32 that are centred by their exact mean must be gone through twice: read
 * from the server's shared memory into memory of the process and, when all are known,
 * changed there.  So this copies as many bytes, and multiplies and adds in place, with so
 * many threads; no page has an owner, no row a header, and nothing is turned into columns.
 * Prints the milliseconds twice: into memory that is new to the process, as for a session's
 * first load, and into the same again.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE	((size_t) 1 << 20)
#define LINE	64

static void *
map(size_t bytes, int flags)
{
	void	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	return p;
}

static double
load(float *to, const char *from, size_t table, size_t points)
{
	double		begin = omp_get_wtime();
	long		rest = 0;

#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < points; at += PIECE)
		memcpy((char *) to + at, from + at, points - at < PIECE ? points - at : PIECE);
	/* what else the pages have */
#pragma omp parallel for schedule(static) reduction(+:rest)
	for (size_t at = points; at < table; at += LINE)
		rest += from[at];
	__asm__ volatile("" : : "r" (rest));
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < points / sizeof(float); i++)
		to[i] = (to[i] - 0.5f) * 0.5f;
	return (omp_get_wtime() - begin) * 1e3;
}

int
main(int argc, char **argv)
{
	size_t		table = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;
	size_t		points = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
	int			threads = argc == 4 ? atoi(argv[3]) : 0;
	char	   *from;
	float	   *to;

	if (points == 0 || threads < 1)
	{
		fprintf(stderr, "usage: load_floor TABLE_BYTES POINT_BYTES THREADS\n");
		return 2;
	}
	omp_set_num_threads(threads);
	if (table < points)
		table = points;			/* doubles become floats, and other types may be smaller */
	from = map(table, MAP_SHARED);
	memset(from, 1, table);
	to = map(points, MAP_PRIVATE);
	(void) madvise(to, points, MADV_HUGEPAGE);
	for (int i = 0; i < 2; i++)
		printf("%.3f\n", load(to, from, table, points));
	return 0;
}
