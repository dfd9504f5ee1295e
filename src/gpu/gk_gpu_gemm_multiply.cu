/*
 * gk_gpu_gemm_multiply.cu - launch a product: which kernel, and what its copy engine reads.
 *
 * Only code for sm_90a has these instructions; other devices never get here (gk_gpu_gemm_supported).
 */
#include <cuda.h>

#include "gpu/gk_gpu_gemm.h"

typedef CUresult (*EncodeTiled) (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
								 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
								 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, without linking to the driver. */
static EncodeTiled
encode_tiled(void)
{
	static EncodeTiled encode;
	void	   *found = NULL;
	cudaDriverEntryPointQueryResult how;

	if (encode == NULL &&
		cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how) == cudaSuccess)
		encode = (EncodeTiled) found;
	return encode;
}

/* (An exact match: other devices have no wgmma.) */
bool
gk_gpu_gemm_supported(const GkSession *s)
{
	return s->gpu->major == 9 && s->gpu->minor == 0 && encode_tiled() != NULL &&
		gk_gpu_gemm_stream(GK_GEMM_LABELS, 4).shared <= s->gpu->shared_optin &&
		gk_gpu_gemm_stay(GK_GEMM_LABELS, 1, 4, true).shared <= s->gpu->shared_optin;
}

/*
 * Slices of rows of `values` float16 each, brought `box` rows at a time, `depth` values of each; what lies outside is
 * zero.
 */
static bool
make_map(CUtensorMap *map, const __half *at, int64_t rows, int values, int slices, int box, int depth)
{
	cuuint64_t	size[3] = {(cuuint64_t) values, (cuuint64_t) rows, (cuuint64_t) slices};
	cuuint64_t	pitch[2] = {(cuuint64_t) values * sizeof(__half), (cuuint64_t) rows * values * sizeof(__half)};
	cuuint32_t	boxes[3] = {(cuuint32_t) depth, (cuuint32_t) box, 1};
	cuuint32_t	each[3] = {1, 1, 1};
	CUtensorMapSwizzle swizzle = depth == 16 ? CU_TENSOR_MAP_SWIZZLE_32B : depth == 32 ? CU_TENSOR_MAP_SWIZZLE_64B :
		CU_TENSOR_MAP_SWIZZLE_128B;

	return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, (void *) at, size, pitch, boxes, each,
						  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
						  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* A matrix as gk_gemm_at() says. */
static bool
make_maps(GkGemmMaps *maps, const __half *at, int64_t rows, int width, int box, int tail)
{
	int			full = (width - 1) / GK_GEMM_DEPTH;
	int			first = full * GK_GEMM_DEPTH;

	if (!make_map(&maps->tail, at + gk_gemm_at(rows, width, 0, first), rows, width - first, 1, box, tail))
		return false;
	maps->full = maps->tail;
	return full == 0 || make_map(&maps->full, at, rows, GK_GEMM_DEPTH, full, box, GK_GEMM_DEPTH);
}

int
gk_gpu_gemm_columns(int width)
{
	return width <= GK_GEMM_STAY_SLICES * GK_GEMM_DEPTH ? GK_GEMM_STAY_COLUMNS : GK_GEMM_STREAM_COLUMNS;
}

GkStatus
gk_gpu_gemm_multiply(GkSession *s, GkGemmUse use, const __half *points, int64_t points_rows, const __half *centroids,
					 int k, int width, const GkGemmArgs *a, GkError *err)
{
	int			slices = (width + GK_GEMM_DEPTH - 1) / GK_GEMM_DEPTH;
	int			steps = ((width - 1) % GK_GEMM_DEPTH + 16) / 16;
	GkGemmKernel run = slices <= GK_GEMM_STAY_SLICES ? gk_gpu_gemm_stay(use, slices, steps, a->row != NULL) :
		gk_gpu_gemm_stream(use, steps);
	int64_t		blocks = gk_min((a->rows + run.rows - 1) / run.rows, s->gpu->sms);
	GkGemmMaps	points_maps;
	GkGemmMaps	centroids_maps;
	GkGemmArgs	args = *a;
	void	   *all[] = {&points_maps, &centroids_maps, &args};

	args.slices = slices;
	args.k = k;
	args.tiles = (k + run.columns - 1) / run.columns;
	args.key_pitch = gk_gemm_key_pitch(k);
	if (!make_maps(&points_maps, points, points_rows, width, run.rows, run.tail) ||
		!make_maps(&centroids_maps, centroids, (int64_t) k * (a->copies > 0 ? a->copies : 1), width, run.columns, run.tail))
		return gk_gpu_error(err, GK_ERR_INTERNAL, "the GPU's driver refuses a tensor of width %d", width);
	GK_TRY(cudaFuncSetAttribute(run.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) run.shared));
	GK_TRY(gk_gpu_follow(s, run.kernel, dim3((unsigned int) blocks), run.threads, run.shared, all));
	return GK_OK;
}
