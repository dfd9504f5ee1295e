/*
 * roofline.h - what this machine can do at most, measured: reading memory and
 * float32 multiply-adds.
 */
#ifndef ROOFLINE_H
#define ROOFLINE_H

#include <stddef.h>

#include "core/gk_core.h"

/* GB/s of the host's threads that read an array of so many bytes. */
double		roofline_read(const GkHost *host, size_t bytes);
/* The widest instruction set of this machine ("avx512", "avx2", "scalar") ... */
const char *roofline_widest(void);
/* ... and GFLOP/s (a multiply-add is two) of those threads with one of them; 0: not here. */
double		roofline_fma(const GkHost *host, const char *set);

#endif							/* ROOFLINE_H */
