/*
 * gk_gpu_mass_sum.cu - Mass Sum of labelled points: the histogram of the labels
 * (Lutz et al. 2018, 3.2), and with weights the sum of the weights too.
 *
 * Partitioned Private: one histogram per thread in shared memory, else in global memory.  Partitioned Local:
 * one per block in shared memory, with native integer atomics.  Partitioned Global: one per block in global
 * memory.  Global Atomic: one.
 */
#include "gpu/gk_gpu_cost.h"
#include "gpu/gk_gpu_device.cuh"

#define THREADS			256
#define PRIVATE_BYTES	((size_t) 256 << 20)	/* of histograms in global memory */

typedef struct MassArgs
{
	const void *labels;
	const void *old;			/* delta: labels before, or NULL */
	const float *w;
	int64_t		rows;
	int			k;
	unsigned long long *mass_a;	/* weighted */
	unsigned long long *mass_b;
	unsigned long long *count;
	unsigned long long *table;	/* histograms in global memory, or NULL */
} MassArgs;

/* A prepared weight in units of 2^-40. */
__device__ __forceinline__ long long
weight_fixed(float w)
{
	return gk_fixed(w, 0x1p40);
}

__device__ __forceinline__ void
add_mass(const MassArgs &a, int i, long long v)
{
	gk_red(a.mass_a + i, v & 0xffffffffLL);
	gk_red(a.mass_b + i, v >> 32);
}

/* ---- kernels ---- */

/* A thread's entries are `threads` apart: counts, then masses (64 bits each). */
template <bool W, typename L>
__global__ void __launch_bounds__(THREADS)
private_kernel(MassArgs a)
{
	extern __shared__ unsigned long long shared_table[];
	int64_t		all = (int64_t) gridDim.x * blockDim.x;
	int64_t		me = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;
	int64_t		threads = a.table != NULL ? all : blockDim.x;
	int64_t		base = a.table != NULL ? me : threadIdx.x;
	unsigned long long *table = a.table != NULL ? a.table : shared_table;
	unsigned int *count = (unsigned int *) (table + (W ? a.k * threads : 0)) + base;
	unsigned long long *mass = table + base;

	for (int i = 0; i < a.k; i++)
	{
		count[i * threads] = 0;
		if (W)
			mass[i * threads] = 0;
	}
	for (int64_t row = me * 4; row < a.rows; row += all * 4)
	{
		int			label[4];
		int			was[4];

		gk_load_labels((const L *) a.labels + row, label);
		if (a.old != NULL)
			gk_load_labels((const L *) a.old + row, was);
#pragma unroll
		for (int r = 0; r < 4; r++)
			if (row + r < a.rows && (a.old == NULL || label[r] != was[r]))
			{
				bool		leaves = a.old != NULL && was[r] != gk_no_label<L>();

				count[label[r] * threads]++;
				if (leaves)
					count[was[r] * threads]--;
				if (W)
				{
					long long	w = weight_fixed(__ldg(a.w + row + r));

					mass[label[r] * threads] += w;
					if (leaves)
						mass[was[r] * threads] -= w;
				}
			}
	}
	for (int i = 0; i < a.k; i++)
	{
		long long	n = gk_warp_sum((int) count[i * threads]);

		if (threadIdx.x % 32 == 0 && n != 0)
			gk_red(a.count + i, n);
		if (W)
		{
			n = gk_warp_sum((long long) mass[i * threads]);
			if (threadIdx.x % 32 == 0 && n != 0)
				add_mass(a, i, n);
		}
	}
}

/* One histogram per block: in shared memory, or its own in a.table. */
template <bool W, typename L>
__global__ void __launch_bounds__(THREADS)
block_kernel(MassArgs a)
{
	extern __shared__ unsigned long long shared_table[];
	unsigned long long *mass = a.table != NULL ? a.table + (int64_t) blockIdx.x * a.k * (W ? 2 : 1) : shared_table;
	unsigned int *count = (unsigned int *) (mass + (W ? a.k : 0));

	for (int i = threadIdx.x; i < a.k; i += blockDim.x)
	{
		count[i] = 0;
		if (W)
			mass[i] = 0;
	}
	__syncthreads();
	for (int64_t row = ((int64_t) blockIdx.x * blockDim.x + threadIdx.x) * 4; row < a.rows;
		 row += (int64_t) gridDim.x * blockDim.x * 4)
	{
		int			label[4];

		gk_load_labels((const L *) a.labels + row, label);
#pragma unroll
		for (int r = 0; r < 4; r++)
			if (row + r < a.rows)
			{
				atomicAdd(count + label[r], 1u);
				if (W)
					atomicAdd(mass + label[r], (unsigned long long) weight_fixed(__ldg(a.w + row + r)));
			}
	}
	__syncthreads();
	for (int i = threadIdx.x; i < a.k; i += blockDim.x)
	{
		unsigned int n = *(volatile unsigned int *) (count + i);

		if (n != 0)
			gk_red(a.count + i, n);
		if (W && n != 0)
			add_mass(a, i, (long long) *(volatile unsigned long long *) (mass + i));
	}
}

template <bool W, typename L>
__global__ void __launch_bounds__(THREADS)
atomic_kernel(MassArgs a)
{
	for (int64_t row = (int64_t) blockIdx.x * blockDim.x + threadIdx.x; row < a.rows;
		 row += (int64_t) gridDim.x * blockDim.x)
	{
		int			label = ((const L *) a.labels)[row];
		int			was = a.old != NULL ? ((const L *) a.old)[row] : gk_no_label<L>();
		bool		leaves = was != gk_no_label<L>();

		if (label == was)
			continue;
		gk_red(a.count + label, 1);
		if (leaves)
			gk_red(a.count + was, -1);
		if (W)
		{
			long long	w = weight_fixed(__ldg(a.w + row));

			gk_red(a.mass_a + label, w);
			if (leaves)
				gk_red(a.mass_a + was, -w);
		}
	}
}

/* ---- launchers ---- */

#define PICK(kernel) \
	(labels.narrow ? \
	 (w ? (const void *) kernel<true, uint8_t> : (const void *) kernel<false, uint8_t>) : \
	 (w ? (const void *) kernel<true, int32_t> : (const void *) kernel<false, int32_t>))

GkStatus
gk_gpu_mass_sum(GkSession *s, const GkRows *rows, int k, GkLabels labels, GkError *err)
{
	bool		w = rows->w != NULL;
	int64_t		at = (int64_t) k * s->d;
	size_t		room = gk_gpu_table_room(s);
	size_t		entry = w ? 12 : 4;	/* bytes per cluster in shared memory; 16 in global memory */
	GkMassSum	msum = s->msum;
	int64_t		max_blocks = s->gpu->sms * GK_SM_BLOCKS;
	int64_t		blocks = (rows->rows + THREADS * 4 - 1) / (THREADS * 4);
	const void *old = s->fsum == GK_DELTA ?
		(const char *) s->delta_labels + rows->first * (labels.narrow ? 1 : sizeof(int32_t)) : NULL;
	MassArgs	a = {labels.at, old, rows->w, rows->rows, k, s->acc.a + at, s->acc.b + at, s->acc.a + at + (w ? k : 0), NULL};

	if (old != NULL)
		msum = entry * k * 64 <= room ? GK_PARTITIONED_PRIVATE : GK_GLOBAL_ATOMIC;
	if (msum == GK_PARTITIONED_PRIVATE)
	{
		for (int threads = THREADS; threads >= 32; threads /= 2)
			if (entry * k * threads <= room)
				return gk_gpu_launch(s, PICK(private_kernel), (rows->rows + threads * 4 - 1) / (threads * 4), threads,
									 entry * k * threads, &a, err);
		if ((size_t) k * 16 * 32 <= PRIVATE_BYTES)
		{
			max_blocks = gk_min(max_blocks, PRIVATE_BYTES / ((size_t) k * 16 * 32));
			GK_DO(gk_gpu_scratch(s, (size_t) max_blocks * 32 * k * 16, err));
			a.table = (unsigned long long *) s->scratch;
			return gk_gpu_launch(s, PICK(private_kernel), gk_min((rows->rows + 127) / 128, max_blocks), 32, 0, &a, err);
		}
		msum = GK_PARTITIONED_GLOBAL;
	}
	if (msum == GK_PARTITIONED_LOCAL)
	{
		if (entry * k <= room)
			return gk_gpu_launch(s, PICK(block_kernel), blocks, THREADS, entry * k, &a, err);
		msum = GK_PARTITIONED_GLOBAL;
	}
	if (msum == GK_PARTITIONED_GLOBAL)
	{
		max_blocks = gk_min(max_blocks, PRIVATE_BYTES / ((size_t) k * 16));
		GK_DO(gk_gpu_scratch(s, (size_t) max_blocks * k * 16, err));
		a.table = (unsigned long long *) s->scratch;
		return gk_gpu_launch(s, PICK(block_kernel), gk_min(blocks, max_blocks), THREADS, 0, &a, err);
	}
	return gk_gpu_launch(s, PICK(atomic_kernel), blocks, THREADS, 0, &a, err);
}
