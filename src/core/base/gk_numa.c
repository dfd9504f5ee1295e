/*
 * gk_numa.c - memory of machines with several nodes (NUMA).
 *
 * The system takes a page from the node of the thread that writes to it first.  Mostly one
 * thread loads the rows, and any thread may read any of them later (gk_threads.c): all
 * threads would read from one node, with its bandwidth.  So the huge pages of a large block
 * come from all nodes in turn.
 *
 * Nodes count if the process may use their memory and one of their CPUs: memory without CPUs
 * is slow, or a GPU's.  A process that has a policy (numactl) keeps it, and where the system
 * does not answer, as in a container without the right to ask, the system decides.
 *
 * A policy belongs to addresses, and ends when they are given back to the system.  Addresses
 * that the allocator uses again keep it, which only changes where their pages are.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/gk_mem.h"

#ifdef __linux__

/* Linux's own header of these is not on every system. */
#define POLICY_DEFAULT		0
#define POLICY_INTERLEAVE	3
#define ALLOWED_NODES		4
/* Bits of a mask, for Linux, which takes one off. */
#define MASK_BITS			(GK_NODES + 1)

/* Linux's own cpu_set_t has 1,024 CPUs. */
#define CPU_SETS		8

bool
gk_numa_interleave(const GkNodes *nodes, void *base, size_t bytes)
{
	return syscall(SYS_mbind, base, bytes, POLICY_INTERLEAVE, nodes->bits, MASK_BITS, 0) == 0;
}

/* Has a list such as "0-15,32-47" one of the CPUs? */
static bool
has_any(FILE *list, const cpu_set_t *cpus)
{
	int			first;
	int			last;

	while (fscanf(list, "%d", &first) == 1)
	{
		if (fscanf(list, "-%d", &last) != 1)
			last = first;
		for (int cpu = first; cpu <= last; cpu++)
			if (CPU_ISSET_S(cpu, CPU_SETS * sizeof(cpu_set_t), cpus))
				return true;
		if (fgetc(list) != ',')
			break;
	}
	return false;
}

int
gk_numa_with_cpus(GkNodes *nodes, const char *directory)
{
	cpu_set_t	cpus[CPU_SETS];
	int			count = 0;

	memset(cpus, 0, sizeof(cpus));
	if (sched_getaffinity(0, sizeof(cpus), cpus) != 0)
		return 0;
	for (int node = 0; node < GK_NODES; node++)
	{
		unsigned long *word = &nodes->bits[node / GK_NODE_BITS];
		unsigned long bit = 1UL << node % GK_NODE_BITS;
		char		path[256];
		FILE	   *list;

		if ((*word & bit) == 0)
			continue;
		snprintf(path, sizeof(path), "%s/node%d/cpulist", directory, node);
		list = fopen(path, "r");
		if (list != NULL && has_any(list, cpus))
			count++;
		else
			*word &= ~bit;
		if (list != NULL)
			fclose(list);
	}
	return count;
}

static GkNodes all;

int
gk_numa_nodes(void)
{
	static int	found;
	int			policy;

	if (found > 0)
		return found;
	if (syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) == 0 && policy == POLICY_DEFAULT &&
		syscall(SYS_get_mempolicy, NULL, all.bits, MASK_BITS, NULL, ALLOWED_NODES) == 0)
		found = gk_numa_with_cpus(&all, "/sys/devices/system/node");
	if (found < 1)
		found = 1;
	return found;
}

void
gk_numa_spread(void *base, size_t bytes)
{
	if (gk_numa_nodes() > 1)
		(void) gk_numa_interleave(&all, base, bytes);
}

#else

int
gk_numa_nodes(void)
{
	return 1;
}

void
gk_numa_spread(void *base, size_t bytes)
{
	(void) base;
	(void) bytes;
}

#endif
