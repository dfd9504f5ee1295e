/*
 * gk_mem.h - large memory: huge pages (gk_mem.c), blocks that a process keeps for its next
 * job (gk_mem_pool.c), and machines with several nodes (gk_numa.c).  gk_core.h has gk_alloc().
 */
#ifndef GK_MEM_H
#define GK_MEM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Ask for huge pages for a range that will be filled; a hint. */
void		gk_huge_pages(void *base, size_t bytes);

/* ---- the pool: one for each process, main thread only ---- */

/* Take a block of huge pages for an owner; NULL: the system has none.  *warm: it was used before. */
void	   *gk_mem_pool_take(const void *owner, size_t bytes, bool *warm);

/* Take it from memory that was used before only; NULL: none of that is large enough. */
void	   *gk_mem_pool_reuse(const void *owner, size_t bytes);

/* Give a block back; false: it is not from the pool. */
bool		gk_mem_pool_give(void *block);

/* Give back all that the owner still has. */
void		gk_mem_pool_give_all(const void *owner);

/* Give all that is kept back to the system, which has no memory for something else; false: nothing was kept. */
bool		gk_mem_pool_release(void);

/* Was the block used before?  Then its pages are there. */
bool		gk_mem_pool_warm(const void *block);

/*
 * Keep free blocks mapped as long as they and the blocks in use are at most `bytes`; 0: keep
 * nothing.
 */
void		gk_mem_pool_limit(size_t bytes);

/* Bytes in use, and bytes that are kept. */
void		gk_mem_pool_sizes(size_t *used, size_t *kept);

/* ---- nodes (NUMA) ---- */

/* As many as Linux may be built for. */
#define GK_NODES		1024
#define GK_NODE_BITS	(sizeof(unsigned long) * CHAR_BIT)

typedef struct GkNodes
{
	unsigned long bits[GK_NODES / GK_NODE_BITS];
} GkNodes;

/* Number of nodes that large blocks are spread over, asked for once; 1: the system decides. */
int			gk_numa_nodes(void);

/* Have pages of the range that are not there yet come from all those nodes in turn. */
void		gk_numa_spread(void *base, size_t bytes);

/* How that is done on Linux: set the policy; keep the nodes with a CPU that the process may use. */
bool		gk_numa_interleave(const GkNodes *nodes, void *base, size_t bytes);
int			gk_numa_with_cpus(GkNodes *nodes, const char *directory);

#endif							/* GK_MEM_H */
