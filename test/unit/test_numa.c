/*
 * Memory of several nodes: which nodes, and what the system says of the addresses.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/mempolicy.h>
#include <sched.h>
#endif

#include "core/base/gk_mem.h"
#include "gk_test.h"
#include "gk_testhost.h"

#ifdef __linux__

#define HUGE_PAGE	((size_t) 2 << 20)

/* Policy of an address, or of this process; < 0: the system does not say. */
static int
policy(void *at)
{
	int			mode;

	return syscall(SYS_get_mempolicy, &mode, NULL, 0, at, at != NULL ? MPOL_F_ADDR : 0) == 0 ? mode : -1;
}

static GkNodes
allowed(void)
{
	GkNodes		nodes;

	memset(&nodes, 0, sizeof(nodes));
	if (syscall(SYS_get_mempolicy, NULL, nodes.bits, GK_NODES + 1, NULL, MPOL_F_MEMS_ALLOWED) != 0)
		memset(&nodes, 0, sizeof(nodes));
	return nodes;
}

static void
test_interleave(void)
{
	GkNodes		nodes = allowed();
	GkNodes		said;
	size_t		bytes = 4 * HUGE_PAGE;
	char	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int			mode = -1;
	bool		same = true;

	memset(p, 7, 4096);
	ok(gk_numa_interleave(&nodes, p, bytes), "pages in turn from the nodes allowed");
	memset(&said, 0, sizeof(said));
	syscall(SYS_get_mempolicy, &mode, said.bits, GK_NODES + 1, p + bytes - 1, MPOL_F_ADDR);
	ok(mode == MPOL_INTERLEAVE && memcmp(&said, &nodes, sizeof(said)) == 0, "the system says so, and names the nodes");
	memset(p + 4096, 8, bytes - 4096);
	for (size_t i = 0; i < bytes; i++)
		same = same && p[i] == (i < 4096 ? 7 : 8);
	ok(same, "contents, of before and after");
	munmap(p, bytes);
	memset(&nodes, 0, sizeof(nodes));
	ok(!gk_numa_interleave(&nodes, p, bytes), "no nodes: refused");
}

/* A process with a policy keeps it. */
static void
test_own_policy(void)
{
	pid_t		child = fork();
	int			status = -1;

	if (child == 0)
		_exit(syscall(SYS_set_mempolicy, MPOL_PREFERRED, NULL, 0) == 0 && gk_numa_nodes() == 1 ? 0 : 1);
	waitpid(child, &status, 0);
	ok(status == 0, "a process that has a policy keeps it");
}

/* Blocks of the engine: nothing is asked for where there is one node, or for few threads. */
static void
test_blocks(void)
{
	TestHost	host;
	int			nodes = gk_numa_nodes();
	char	   *p;

	test_host_init(&host, 64);
	p = gk_alloc(&host.host, 4 * HUGE_PAGE, 1);
	ok(policy(p) == (nodes > 1 ? MPOL_INTERLEAVE : MPOL_DEFAULT), "a large block, %d node%s", nodes, nodes == 1 ? "" : "s");
	ok(policy(p - 1) == MPOL_DEFAULT, "not what is before it");
	gk_free(&host.host, p);
	host.host.threads = 2;
	p = gk_alloc(&host.host, 64 * HUGE_PAGE, 1);
	ok(policy(p) == MPOL_DEFAULT, "a large block of two threads");
	gk_free(&host.host, p);
	test_host_end(&host);
}

static void
write_list(const char *directory, int node, const char *list)
{
	char		path[128];
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/node%d", directory, node);
	mkdir(path, 0700);
	strcat(path, "/cpulist");
	f = fopen(path, "w");
	fputs(list, f);
	fclose(f);
}

/* Which of nodes 0 to 9 and 700, in a directory made here, have a CPU of this process. */
static void
test_with_cpus(void)
{
	static const int listed[] = {0, 1, 2, 3, 4, 5, 6, 9, 700};
	char		directory[] = "/tmp/gk_numa_XXXXXX";
	char		list[64];
	cpu_set_t	own;
	int			cpu = 0;
	GkNodes		nodes;

	sched_getaffinity(0, sizeof(own), &own);
	while (!CPU_ISSET(cpu, &own))
		cpu++;
	if (!ok(mkdtemp(directory) != NULL, "a directory of nodes"))
		return;
	snprintf(list, sizeof(list), "%d\n", cpu);
	write_list(directory, 0, list);
	snprintf(list, sizeof(list), "8000-8007,%d-%d,8100\n", cpu, cpu + 1);
	write_list(directory, 1, list);
	snprintf(list, sizeof(list), "0-%d\n", cpu);
	write_list(directory, 2, list);
	write_list(directory, 3, "\n"); /* memory without CPUs */
	write_list(directory, 4, "8000-8191,9000\n");	/* others' CPUs, and one that cannot be */
	write_list(directory, 5, "");
	write_list(directory, 6, "words");
	write_list(directory, 9, list); /* whose memory is not allowed */
	write_list(directory, 700, list);
	memset(&nodes, 0, sizeof(nodes));
	nodes.bits[0] = 0x1ff;		/* and 7 and 8, which are not listed */
	nodes.bits[700 / GK_NODE_BITS] = 1UL << 700 % GK_NODE_BITS;
	ok(gk_numa_with_cpus(&nodes, directory) == 4, "four nodes have a CPU of this process");
	ok(nodes.bits[0] == 7 && nodes.bits[700 / GK_NODE_BITS] == 1UL << 700 % GK_NODE_BITS, "and those are left");
	for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++)
	{
		char		path[128];

		snprintf(path, sizeof(path), "%s/node%d/cpulist", directory, listed[i]);
		unlink(path);
		*strrchr(path, '/') = '\0';
		rmdir(path);
	}
	ok(rmdir(directory) == 0 && gk_numa_with_cpus(&nodes, directory) == 0, "no directory, no nodes");
}

int
main(void)
{
	test_with_cpus();
	if (policy(NULL) < 0)
		skip("the system does not let this process ask for a policy of memory");
	else
	{
		test_interleave();
		test_own_policy();
		test_blocks();
	}
	return done_testing();
}

#else

int
main(void)
{
	skip("nodes of memory are Linux's");
	return done_testing();
}

#endif
