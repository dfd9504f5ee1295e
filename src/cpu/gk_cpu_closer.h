/*
 * gk_cpu_closer.h - which points of a tile does a candidate come closer to?
 *
 * A template as gk_cpu_tile.h, included after it.  Besides what that needs:
 *   v_bits(m)               a mask as an unsigned integer, bit i for lane i
 *   v_append(bits, v, to)   (optional) store the lanes of v that are in bits, one
 *                           after the other; may write a whole vector
 */
#ifndef v_append
GK_INLINE void
append_lanes(unsigned bits, vfloat v, float *to)
{
	float		lane[GK_LANES];

	v_store(lane, v);
	for (; bits != 0; bits &= bits - 1)
		*to++ = lane[__builtin_ctz(bits)];
}
#define v_append(bits, v, to)	append_lanes(bits, v, to)
#endif

GK_INLINE void
closer_run(const int nc, const float *x, size_t stride, const float *c, size_t d,
		   const GkAhead *all, const float *d2, const float *weight, int rows, GkCloser *out)
{
	for (int i = 0; i < rows; i += GK_VECTORS * GK_LANES)
	{
		vfloat		acc[GK_WIDEST][GK_VECTORS];
		GkAhead		ahead = *all;

		distances(acc, nc, x + i, stride, c, d, &ahead);
		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			GkCloser   *to = &out[q];
			int			count = to->count;

			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
			{
				int			at = i + p * GK_LANES;
				int			left = rows - at;
				vfloat		was = v_load(d2 + at);
				unsigned	bits = v_bits(v_less(acc[q][p], was));

				if (left < GK_LANES)
					bits &= left > 0 ? (1u << left) - 1 : 0;
				if (bits == 0)
					continue;
				v_append(bits, was, to->was + count);
				v_append(bits, acc[q][p], to->is + count);
				if (weight != NULL)
					v_append(bits, v_load(weight + at), to->weight + count);
				count += __builtin_popcount(bits);
			}
			to->count = count;
		}
	}
}

/* As GK_RUNS of gk_cpu_tile.h: all registers for each width. */
#define GK_CLOSER(nc) \
	GK_TARGET static __attribute__((noinline)) void \
	closer_##nc(const float *x, size_t stride, const float *c, size_t d, \
				const GkAhead *all, const float *d2, const float *weight, int rows, GkCloser *out) \
	{ \
		closer_run(nc, x, stride, c, d, all, d2, weight, rows, out); \
	}
GK_CLOSER(1)
GK_CLOSER(2)
GK_CLOSER(3)
GK_CLOSER(4)
GK_CLOSER(5)
GK_CLOSER(6)

GK_TARGET static void
closer(const GkTiles *x, int tile, const float *c, int nc, const float *d2, const float *weight,
	   int rows, GkCloser *out)
{
	static void (*const run[GK_CLOSER_MOST + 1]) (const float *, size_t, const float *, size_t,
												  const GkAhead *, const float *, const float *, int, GkCloser *) =
	{NULL, closer_1, closer_2, closer_3, closer_4, closer_5, closer_6};
	const GkAhead all = rows_ahead(x, nc);

	run[nc] (x->x + tile * x->tile, x->stride, c, x->d, &all, d2, weight, rows, out);
}
