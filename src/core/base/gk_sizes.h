/*
 * gk_sizes.h - sizes of the machine that several files rely on.
 */
#ifndef GK_SIZES_H
#define GK_SIZES_H

/* Bytes of a cache line: what one thread writes lies that far from what another one does. */
#define GK_CACHE_LINE	64
/* Bytes of a huge page of x86-64, and of most others. */
#define GK_HUGE_PAGE	((size_t) 2 << 20)

#endif							/* GK_SIZES_H */
