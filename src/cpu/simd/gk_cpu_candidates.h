/*
 * gk_cpu_candidates.h - kernels for seeding: the points of a tile that a candidate is closer to
 * than any seed, and the boxes that may have such points.
 *
 * A template as gk_cpu_assign.h, included after it.  Besides what that needs:
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

GK_INLINE unsigned
candidates_run(const int nc, const GkRegisterTile *first, const float *d2, const float *weight, int rows,
			   GkCandidates *out, float *all)
{
	unsigned	found = 0;

	for (int i = 0; i < rows; i += GK_VECTORS * GK_LANES)
	{
		vfloat		acc[GK_WIDEST][GK_VECTORS];
		GkRegisterTile r = *first;
		uint64_t	some = rows - i < GK_ROW_PAD ? (UINT64_C(1) << (rows - i)) - 1 : ~UINT64_C(0);

		r.x += i;
		distances(acc, nc, false, &r, 0);
		GK_UNROLL
		for (int q = 0; q < nc; q++)
		{
			GkCandidates *to = &out[q];
			int			count = to->count;
			uint64_t	bits = 0;

			GK_UNROLL
			for (int p = 0; all != NULL && p < GK_VECTORS; p++)
				v_store(all + q * GK_ROW_PAD + i + p * GK_LANES, acc[q][p]);
			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
				bits |= (uint64_t) v_bits(v_less(acc[q][p], v_load(d2 + i + p * GK_LANES))) << p * GK_LANES;
			bits &= some;
			if (bits == 0)
				continue;
			GK_UNROLL
			for (int p = 0; p < GK_VECTORS; p++)
			{
				int			at = i + p * GK_LANES;
				unsigned	these = bits >> p * GK_LANES & ((UINT64_C(1) << GK_LANES) - 1);

				v_append(these, v_load(d2 + at), to->was + count);
				v_append(these, acc[q][p], to->is + count);
				if (weight != NULL)
					v_append(these, v_load(weight + at), to->weight + count);
				count += __builtin_popcount(these);
			}
			found |= 1u << q;
			to->count = count;
		}
	}
	return found;
}

/* All registers for each width. */
#define GK_CANDIDATES(nc) \
	GK_TARGET static __attribute__((noinline)) unsigned \
	candidates_##nc(const GkRegisterTile *r, const float *d2, const float *weight, int rows, GkCandidates *out, \
					float *all) \
	{ \
		return candidates_run(nc, r, d2, weight, rows, out, all); \
	}
GK_WIDTHS(GK_CANDIDATES)

GK_TARGET static unsigned
candidates(const GkTiles *x, int tile, const float *c, int nc, const float *d2, const float *weight,
		   int rows, GkCandidates *out, float *all)
{
	static unsigned (*const run[]) (const GkRegisterTile *, const float *, const float *, int, GkCandidates *,
									float *) =
	GK_TABLE(candidates);
	const GkPrefetch ahead = rows_ahead(x, nc);
	const GkRegisterTile r = register_tile(x, tile * GK_ROW_PAD, c, &ahead);

	return run[nc] (&r, d2, weight, rows, out, all);
}

/* Boxes are lanes here, as points are elsewhere. */
GK_TARGET static uint64_t
open_boxes(const float *low, const float *high, size_t stride, const float *c, int d, const float *most)
{
	uint64_t	bits = 0;

	for (int i = 0; i < GK_ROW_PAD; i += GK_LANES)
	{
		vfloat		sum = v_zero();

		for (int j = 0; j < d; j++)
		{
			vfloat		at = v_set1(c[j]);
			vfloat		below = v_sub(at, v_load(low + j * stride + i));
			vfloat		above = v_sub(v_load(high + j * stride + i), at);
			vfloat		t = v_min(v_min(below, above), v_zero());

			sum = v_fma(t, t, sum);
		}
		bits |= (uint64_t) v_bits(v_less(sum, v_load(most + i))) << i;
	}
	return bits;
}

/* What the templates have made, but for what a set has better. */
#ifndef GK_OWN_DISTANCE
#define GK_OWN_DISTANCE	own_distance
#endif
#define GK_TILE_KERNELS \
	.lanes = GK_LANES,.assign = assign,.mindist = mindist,.assign_two = assign_two, \
	.own_distance = GK_OWN_DISTANCE,.candidates = candidates,.open_boxes = open_boxes
