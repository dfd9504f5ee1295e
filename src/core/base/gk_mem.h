/*
 * gk_mem.h - large memory that does not come from gk_alloc().
 */
#ifndef GK_MEM_H
#define GK_MEM_H

#include <stddef.h>

/* It will be filled: large pages for it, if the system has some. */
void		gk_huge_pages(void *base, size_t bytes);

#endif							/* GK_MEM_H */
