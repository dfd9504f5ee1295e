/*
 * gk_spectral_choose.c - how many clusters a graph has, by its Laplacian's eigenvalues.
 *
 * Every component has an eigenvalue 0.  Clusters that a few edges join have small ones, and
 * where clusters have no structure of their own, the next eigenvalues are larger and near each
 * other.  Along a curve (a moon, a ring) they grow as 1, 4, 9, so that the largest gap comes late
 * and means nothing.  The rules, the first that applies:
 *   - a last gap: the eigenvalue after it is LAST_RATIO times the one before it, and it is
 *     LAST_STANDS_OUT times as wide as each of the two gaps that follow;
 *   - components, where there are two or more;
 *   - the gap of powers (Azran and Ghahramani 2006), where it is SURE;
 *   - the largest gap of the eigenvalues' square roots, which are evenly spaced along a curve.
 * The last one finds a number anywhere.  Its strength is what tells whether to believe it.
 */
#include <math.h>

#include "core/spectral/gk_spectral.h"

#define LAST_RATIO		2.5
#define LAST_STANDS_OUT	3.0
#define SURE			0.5
/* Powers 1, 2, 4 ... 2^20: from there on only zeros are left of what is a gap. */
#define POWERS			21

int
gk_count_eigenvalues(const GkGraph *g, int k)
{
	int			most = k > GK_CHOOSE_MAX ? k : GK_CHOOSE_MAX;

	return (most > g->components ? most : g->components) + GK_CHOOSE_MORE;
}

double
gk_power_gap(const double *value, int k, double scale)
{
	double		a = 1.0 - value[k - 1] / scale;
	double		b = 1.0 - value[k] / scale;
	double		best = 0.0;

	a = a > 0.0 ? a : 0.0;
	b = b > 0.0 ? b : 0.0;
	for (int i = 0; i < POWERS; i++)
	{
		if (a - b > best)
			best = a - b;
		a *= a;
		b *= b;
	}
	return best;
}

static double
root_gap(const double *value, int k)
{
	return sqrt(value[k]) - sqrt(value[k - 1]);
}

static bool
is_last_gap(const double *value, int k)
{
	double		gap = value[k] - value[k - 1];

	return value[k] >= LAST_RATIO * value[k - 1] &&
		gap >= LAST_STANDS_OUT * (value[k + 1] - value[k]) &&
		gap >= LAST_STANDS_OUT * (value[k + 2] - value[k + 1]);
}

int
gk_choose_k(const double *value, int m, int components, double scale, GkChoice *choice, double *strength)
{
	int			first = components > 2 ? components : 2;
	int			power = 0;
	int			plain = 0;
	double		power_gap = 0.0;

	for (int k = GK_CHOOSE_MAX; k > components; k--)
		if (k + 2 < m && k > 1 && is_last_gap(value, k))
		{
			*choice = GK_CHOICE_LAST_GAP;
			*strength = gk_power_gap(value, k, scale);
			return k;
		}
	*choice = GK_CHOICE_COMPONENTS;
	*strength = 1.0;
	if (components > 1)
		return components;

	for (int k = first; k <= GK_CHOOSE_MAX && k < m; k++)
	{
		double		gap = gk_power_gap(value, k, scale);

		if (gap > power_gap)
		{
			power_gap = gap;
			power = k;
		}
		if (plain == 0 || root_gap(value, k) > root_gap(value, plain))
			plain = k;
	}
	*choice = power_gap >= SURE ? GK_CHOICE_POWER_GAP : GK_CHOICE_GAP;
	*strength = power_gap >= SURE ? power_gap : plain > 0 ? gk_power_gap(value, plain, scale) : 0.0;
	return power_gap >= SURE ? power : plain > 0 ? plain : 1;
}
