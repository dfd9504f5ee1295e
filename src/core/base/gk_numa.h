/*
 * gk_numa.h - memory of machines with several nodes (NUMA).
 */
#ifndef GK_NUMA_H
#define GK_NUMA_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* As many as Linux may be built for. */
#define GK_NODES		1024
#define GK_NODE_BITS	(sizeof(unsigned long) * CHAR_BIT)

typedef struct GkNodes
{
	unsigned long bits[GK_NODES / GK_NODE_BITS];
} GkNodes;

/* Nodes that the pages of large blocks come from, asked for once; 1: the system decides. */
int			gk_numa_nodes(void);
/* Pages of these addresses that are not there yet come from all those nodes in turn. */
void		gk_numa_spread(void *base, size_t bytes);

/* How, on Linux: from the nodes given; which of some nodes have a CPU that the process may use. */
bool		gk_numa_interleave(const GkNodes *nodes, void *base, size_t bytes);
int			gk_numa_with_cpus(GkNodes *nodes, const char *directory);

#endif							/* GK_NUMA_H */
