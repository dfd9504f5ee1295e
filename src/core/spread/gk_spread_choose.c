/*
 * gk_spread_choose.c - which devices share a job.
 *
 * Several devices pay where each has enough to do in an iteration, at whose end they wait for each
 * other, and where the iterations gain more than it takes to open and to join them.  Measured on two
 * H100 of one host (bench/gpu/several.sh).
 */
#include <math.h>

#include "core/spread/gk_spread.h"

/* Milliseconds of an iteration that each device should have. */
#define LEAST_MS			0.1
/* What all iterations must gain, for it takes time to join devices; and to open those that are not, at worst. */
#define LEAST_GAIN_MS		20.0
#define OPENING_MS			300.0
/* ... and in each round of seeding, of which there are as many as clusters, they wait for each other. */
#define ROUND_MS			0.01
/*
 * What a large GPU does in a millisecond at most, whatever kernel runs: bytes of points and
 * multiply-adds of products.  No iteration is shorter than these say, so that several devices are
 * not chosen where one is as good.
 */
#define BYTES_PER_MS		3.35e9
#define PRODUCTS_PER_MS		2.5e11
/* Iterations of a fit, as far as is known before it. */
#define ITERATIONS			20

/*
 * Of small groups: multiply-adds that a large GPU does in a millisecond at most, where a block of threads has a
 * group; and the nanoseconds in which a thread of the CPU sorts and prepares a group, a row and a value.  An H100
 * did 2.3e8 as ITERATIONS say, beside a Xeon with AVX-512 (test/gpu/test_groups.c); this is four times that,
 * because groups may need fewer iterations.
 */
#define GROUP_PRODUCTS_PER_MS	1e9
#define PREPARE_GROUP_NS	3000.0
#define PREPARE_ROW_NS		60.0
#define PREPARE_VALUE_NS	16.0

static bool
is_list(const char *gpus)
{
	return gpus != NULL && gpus[0] != '\0' && strcmp(gpus, "all") != 0;
}

static bool
is_left_out(const GkSpread *s, int gpu)
{
	return gpu >= 0 && (s->left_out >> gpu & 1) != 0;
}

/* How many of the usable GPUs are worth it. */
static int
worth(int gpus, bool open, int64_t n, int d, int k)
{
	double		values = (double) n * d;
	double		bytes = values * sizeof(float) / BYTES_PER_MS;
	double		products = values * k / PRODUCTS_PER_MS;
	double		ms = bytes > products ? bytes : products;
	int			most = ms / LEAST_MS < gpus ? (int) (ms / LEAST_MS) : gpus;
	double		gain = most > 1 ? ms * (1.0 - 1.0 / most) * ITERATIONS : 0.0;

	return gain >= LEAST_GAIN_MS + k * ROUND_MS + (open ? 0.0 : OPENING_MS) ? most : 1;
}

/*
 * The same for groups: devices gain nothing where they wait for the CPU, which prepares groups for all of them.
 */
static int
worth_of_groups(int gpus, bool open, const GkSpreadGroups *w)
{
	double		prepare = ((double) w->groups * PREPARE_GROUP_NS +
						   (double) w->rows * (PREPARE_ROW_NS + w->d * PREPARE_VALUE_NS)) * 1e-6 / w->threads;
	double		ms = w->products * (w->max_iter < ITERATIONS ? w->max_iter : ITERATIONS) / GROUP_PRODUCTS_PER_MS;
	int			most = 1;

	while (most < gpus && ms / most > prepare)
		most++;
	return most > 1 && ms - fmax(ms / most, prepare) >= LEAST_GAIN_MS + (open ? 0.0 : OPENING_MS) ? most : 1;
}

/* Are all that are usable to share the job, whether it pays or not? */
static bool
is_forced(GkDeviceKind kind, const char *gpus, const GkSpread *s)
{
	return kind == GK_DEVICE_BOTH || (s->rows != NULL && s->rows[0] != '\0') || (kind == GK_DEVICE_GPU && is_list(gpus));
}

/* The usable GPUs.  Returns whether they are open, but for the first one, which is opened in any case. */
static bool
add_gpus(const char *gpus, GkSpread *s)
{
	const GkDeviceInfo *info;
	const GkBackend *gpu;
	int			there = gk_registry_seen(&info, &gpu);
	bool		open = true;

	s->n = 0;
	for (int i = 0; i < there && i < GK_SPREAD_DEVICES - 1; i++)
		if (info[i].usable && gk_device_listed(gpus, i) && !is_left_out(s, i))
		{
			open &= s->n == 0 || gk_registry_is_open(i);
			s->device[s->n++] = (GkSpreadDevice) {.backend = gpu,.number = i};
		}
	return open;
}

int
gk_spread_choose(GkDeviceKind kind, const char *gpus, int64_t n, int d, int k, GkSpread *out)
{
	bool		open = add_gpus(gpus, out);

	if (out->n > 0 && !is_forced(kind, gpus, out))
		out->n = worth(out->n, open, n, d, k);
	if (out->n > 0 && kind == GK_DEVICE_BOTH)
		out->device[out->n++] = (GkSpreadDevice) {.backend = &gk_cpu_backend,.number = -1};
	/* one that is left of several */
	return out->n > 1 || out->left_out != 0 ? out->n : 0;
}

bool
gk_spread_leave_out(GkSpread *spread, GkStatus st, const GkError *err)
{
	int			left = 0;

	if (!gk_spread_is_loss(st) || err->gpu == 0)
		return false;
	spread->left_out |= 1u << (err->gpu - 1);
	for (int i = 0; i < spread->n; i++)
		left += !is_left_out(spread, spread->device[i].number);
	return left > 0;
}

int
gk_spread_choose_groups(GkDeviceKind kind, const char *gpus, const GkSpreadGroups *work, GkSpread *out)
{
	bool		open = add_gpus(gpus, out);

	if (out->n > 0 && !is_forced(kind, gpus, out))
		out->n = worth_of_groups(out->n, open, work);
	if (out->n <= 1)
		out->n = 0;
	return out->n;
}
