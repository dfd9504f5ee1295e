/*
 * gk_gpu_assign_mma.cuh - what the two kernels of gk_gpu_assign_mma.cu share: the screen, and
 * the comparison of the points that it leaves open (gk_gpu_assign_recheck.cu).
 */
#ifndef GK_GPU_ASSIGN_MMA_CUH
#define GK_GPU_ASSIGN_MMA_CUH

#include "gpu/gk_gpu_device.cuh"

#define THREADS		256
#define WARPS		(THREADS / 32)
#define STEP		32			/* features */
#define MAX_STEPS	4
#define MAX_D		(MAX_STEPS * STEP)

/* What is known of all centroids: bits of floats, and integers. */
typedef struct Extent
{
	unsigned int reach;			/* largest coordinate, scaled */
	unsigned int norm2;			/* C^2 */
	unsigned int rest2;			/* Dc^2 */
	int			middle2;		/* C2^2 */
	int			low2;			/* C3^2 */
	int			listed;			/* points of the list */
	int			pad[2];
} Extent;

typedef struct AssignMmaArgs
{
	GkRows		p;
	int			d;
	int			k;
	int			kpad;			/* of packed */
	int			chunks;
	const float *packed;		/* [d][kpad] */
	float		scale;			/* coordinates into [-1, 1] */
	uint4	   *frag;			/* [tiles][steps][lanes]: high and middle bytes of B */
	uint2	   *frag_low;		/* the low ones */
	int		   *h;				/* [tiles * 8] */
	Extent	   *extent;
	int		   *list;
} AssignMmaArgs;

/* Canonical labels of the listed points. */
GkStatus	gk_gpu_assign_recheck(GkSession *s, const AssignMmaArgs &a, uint8_t *labels, GkError *err);
GkStatus	gk_gpu_assign_recheck(GkSession *s, const AssignMmaArgs &a, int32_t *labels, GkError *err);

#endif							/* GK_GPU_ASSIGN_MMA_CUH */
