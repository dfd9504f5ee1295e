/*
 * gk_mem_pool.h - large memory that a process keeps for its next job.
 *
 * One pool for each process.  Main thread only.
 */
#ifndef GK_MEM_POOL_H
#define GK_MEM_POOL_H

#include <stdbool.h>
#include <stddef.h>

/* A block of huge pages for an owner; NULL: the system has none.  *warm: it was used before. */
void	   *gk_mem_pool_take(const void *owner, size_t bytes, bool *warm);
/* The same of memory that was used before, and NULL if none of that is large enough. */
void	   *gk_mem_pool_reuse(const void *owner, size_t bytes);
/* False: it is no block of the pool. */
bool		gk_mem_pool_give(void *block);
/* All that the owner still has. */
void		gk_mem_pool_give_all(const void *owner);
/* Was it used before?  Then the system need not find it. */
bool		gk_mem_pool_warm(const void *block);
/*
 * With blocks in use, at most so many bytes stay mapped; more only if they are in use.
 * 0: nothing is kept.
 */
void		gk_mem_pool_limit(size_t bytes);
/* Bytes in use and bytes that are kept. */
void		gk_mem_pool_sizes(size_t *used, size_t *kept);

#endif							/* GK_MEM_POOL_H */
