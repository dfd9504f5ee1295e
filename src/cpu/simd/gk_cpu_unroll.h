/*
 * gk_cpu_unroll.h - how kernels are made to stay in registers: functions that are always inlined, for
 * GK_TARGET, and loops that are unrolled whole, of at most 32 rounds.
 */
#ifndef GK_CPU_UNROLL_H
#define GK_CPU_UNROLL_H

#define GK_INLINE	GK_TARGET static inline __attribute__((always_inline))
#if defined(__clang__)
#define GK_UNROLL	_Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL	_Pragma("GCC unroll 32")
#endif

#endif							/* GK_CPU_UNROLL_H */
