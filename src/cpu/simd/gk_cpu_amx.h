/*
 * gk_cpu_amx.h - tile registers of processors with AMX, for files that include it inside of GK_CPU_AMX.
 *
 * Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3, 2022.
 */
#ifndef GK_CPU_AMX_H
#define GK_CPU_AMX_H

#include <immintrin.h>

#define GK_TARGET	__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma,amx-tile,amx-int8")))

/* 32-bit words of a tile register: 16 rows of 64 bytes. */
#define GK_AMX_REGISTER		256

/* Make all of them 16 x 64 bytes; _tile_release() ends their use. */
GK_INLINE void
gk_amx_begin(void)
{
	struct
	{
		uint8_t		palette;
		uint8_t		start;
		uint8_t		reserved[14];
		uint16_t	bytes[16];
		uint8_t		rows[16];
	}			config = {.palette = 1};

	for (int i = 0; i < 8; i++)
	{
		config.bytes[i] = 64;
		config.rows[i] = 16;
	}
	/* GCC's function says that it reads less than all of it */
	__asm__ volatile("" : : "m"(config));
	_tile_loadconfig(&config);
}

#endif							/* GK_CPU_AMX_H */
