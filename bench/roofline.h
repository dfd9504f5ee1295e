/*
 * roofline.h - what this machine can do at most, measured: reading memory and
 * float32 multiply-adds.
 */
#ifndef ROOFLINE_H
#define ROOFLINE_H

#include <stddef.h>

/* GB/s of `threads` threads that read an array of so many bytes, once each piece. */
double		roofline_read(size_t bytes, int threads);
/* The widest instruction set of this machine ("avx512", "avx2", "scalar") ... */
const char *roofline_widest(void);
/* ... and GFLOP/s (a multiply-add is two) of `threads` threads with one of them; 0: not here. */
double		roofline_fma(const char *set, int threads);

#endif							/* ROOFLINE_H */
