/*
 * svg_scatter.c - kmeans_svg(): points and centroids in two dimensions.
 *
 * The dimensions are two features, in their own units, or the two principal components of the
 * points drawn.  One feature alone is drawn against the cluster numbers.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"

#include "core/gk_numerics.h"
#include "core/quality/gk_quality.h"
#include "core/rescan/gk_rows_quality.h"
#include "functions/functions.h"
#include "svg/svg.h"

PG_FUNCTION_INFO_V1(kmeans_svg);

#define LEGEND_WIDTH	150
#define LEGEND_LINE		20

typedef struct Scatter
{
	KmModelRows rows;
	int			axis[2];		/* features, -1: a principal component */
	GkPca		pca;
	double	   *scale;			/* [d] for the components, which are in this unit */
	double		unit;
	int64		n;
	double	   *x;				/* [n][d] */
	int32_t    *label;			/* [n] */
} Scatter;

/* ---- what to draw ---- */

/* "name", or "name[i]" of an array column. */
static char *
feature_name(const Scatter *s, int j)
{
	return s->rows.value->columns_array ? psprintf("%s[%d]", s->rows.columns[0], j + 1) : s->rows.columns[j];
}

static int
find_feature(const Scatter *s, const char *name, const char *arg)
{
	for (int j = 0; j < s->rows.model.prep.d; j++)
		if (strcmp(feature_name(s, j), name) == 0)
			return j;
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("%s = \"%s\" is not a feature of the model", arg, name),
			 s->rows.value->columns_array ?
			 errhint("Features are \"%s\" to \"%s\".", feature_name(s, 0), feature_name(s, s->rows.model.prep.d - 1)) :
			 errhint("Features are the columns that the model was made from.")));
	return -1;					/* keep compiler quiet */
}

static void
choose_axes(Scatter *s, char *x, char *y)
{
	int			d = s->rows.model.prep.d;

	if ((x == NULL) != (y == NULL) && d > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("x and y must be given together"),
				 errhint("Without them the two principal components are drawn.")));
	s->axis[0] = s->axis[1] = -1;
	if (x != NULL)
		s->axis[0] = find_feature(s, x, "x");
	if (y != NULL)
		s->axis[1] = find_feature(s, y, "y");
	if (x == NULL && d <= 2)
	{
		s->axis[0] = 0;
		s->axis[1] = d - 1;
	}
}

/* Of a point or a centroid with that label. */
static double
project(const Scatter *s, const double *p, int label, int a)
{
	const GkPrep *prep = &s->rows.model.prep;
	double		sum = 0.0;

	if (prep->d == 1 && a == 1)
		return label;
	if (s->axis[a] >= 0)
		return p[s->axis[a]];
	for (int j = 0; j < prep->d; j++)
		sum += (p[j] * s->scale[j] - s->pca.mean[j]) * s->pca.axis[a][j];
	return fmax(fmin(sum * s->unit, DBL_MAX), -DBL_MAX);
}

static char *
axis_name(const Scatter *s, int a)
{
	if (s->rows.model.prep.d == 1 && a == 1)
		return "cluster";
	if (s->axis[a] >= 0)
		return feature_name(s, s->axis[a]);
	return psprintf("principal component %d (%.0f %% of the variance%s)", a + 1, 100 * s->pca.share[a],
					s->rows.model.prep.standardize ? ", standard deviations" : "");
}

/* ---- reading ---- */

static double
largest(const double *v, int64 n)
{
	double		top = 0.0;

	for (int64 i = 0; i < n; i++)
		top = fmax(top, fabs(v[i]));
	return top;
}

/* Points of length 1, as they were compared. */
static void
to_directions(Scatter *s)
{
	int			d = s->rows.model.prep.d;

	for (int64 i = 0; i < s->n; i++)
	{
		double		top = largest(s->x + i * d, d);
		double		length = 0.0;

		for (int j = 0; j < d; j++)
			length = hypot(length, s->x[i * d + j] / top);
		for (int j = 0; j < d && top > 0; j++)
			s->x[i * d + j] = s->x[i * d + j] / top / length;
	}
}

/* Products of columns' values must neither overflow nor vanish in the components. */
static void
choose_unit(Scatter *s)
{
	const GkPrep *prep = &s->rows.model.prep;
	double		top = prep->standardize ? 0.0 : largest(s->x, s->n * prep->d);

	s->unit = top > 1e100 || (top > 0.0 && top < 1e-100) ? ldexp(1.0, Max(ilogb(top), -1000)) : 1.0;
}

/* False: no usable rows. */
static bool
read_points(Scatter *s, FunctionCallInfo fcinfo, Oid relid, int points)
{
	GkStore    *store = km_model_rows_read(&s->rows, relid, false, fcinfo);
	KmPgHost   *host = s->rows.host;
	const GkPrep *prep = &s->rows.model.prep;
	GkError		err;

	if (store == NULL)
	{
		km_notice_no_rows(s->rows.source);
		return false;
	}
	s->x = MemoryContextAllocHuge(CurrentMemoryContext, (Size) points * prep->d * sizeof(double));
	s->label = palloc(points * sizeof(int32_t));
	km_check(host, gk_store_reader(store) == &gk_rows_backend ?
			 gk_rows_sample(store, &s->rows.model, points, s->x, s->label, &s->n, &err) :
			 gk_quality_rows(store, &s->rows.model, points, s->x, s->label, &s->n, &err), &err);
	if (prep->distance == GK_COSINE)
		to_directions(s);
	if (s->axis[0] < 0)
	{
		choose_unit(s);
		s->scale = palloc(prep->d * sizeof(double));
		for (int j = 0; j < prep->d; j++)
			s->scale[j] = prep->standardize ? ldexp(prep->scale[j], -prep->unit_exp) : 1.0 / s->unit;
		km_check(host, gk_pca(km_host_engine(host), s->x, s->n, prep->d, s->scale, &s->pca, &err), &err);
	}
	return true;
}

/* ---- drawing ---- */

static void
choose_range(const Scatter *s, KmSvgPlot *plot)
{
	int			d = s->rows.model.prep.d;

	plot->x0 = plot->y0 = INFINITY;
	plot->x1 = plot->y1 = -INFINITY;
	for (int64 i = 0; i < s->n + s->rows.model.k; i++)
	{
		bool		point = i < s->n;
		const double *p = point ? s->x + i * d : s->rows.model.centroids + (i - s->n) * d;
		int			label = point ? s->label[i] : (int) (i - s->n);
		double		x = project(s, p, label, 0);
		double		y = project(s, p, label, 1);

		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		plot->x0 = fmin(plot->x0, x);
		plot->x1 = fmax(plot->x1, x);
		plot->y0 = fmin(plot->y0, y);
		plot->y1 = fmax(plot->y1, y);
	}
	km_svg_range(&plot->x0, &plot->x1);
	km_svg_range(&plot->y0, &plot->y1);
}

static void
draw_points(StringInfo out, const Scatter *s, const KmSvgPlot *plot)
{
	int			d = s->rows.model.prep.d;

	/* the more points, the smaller and the more transparent */
	double		r = s->n > 5000 ? 1.5 : s->n > 1000 ? 2.2 : 3.2;
	double		opacity = s->n > 5000 ? 0.45 : s->n > 1000 ? 0.6 : 0.75;

	for (int c = 0; c < s->rows.model.k; c++)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfo(out, "<g class=\"cluster\" data-cluster=\"%d\" fill=\"%s\" fill-opacity=\"%g\">\n",
						 c, km_svg_colour(c), opacity);
		for (int64 i = 0; i < s->n; i++)
			if (s->label[i] == c)
			{
				km_svg_mark(out, c, km_svg_x(plot, project(s, s->x + i * d, c, 0)),
							km_svg_y(plot, project(s, s->x + i * d, c, 1)), r);
				appendStringInfoChar(out, '\n');
			}
		appendStringInfoString(out, "</g>\n");
	}
}

static void
draw_centroids(StringInfo out, const Scatter *s, const KmSvgPlot *plot)
{
	int			d = s->rows.model.prep.d;

	appendStringInfoString(out, "<g class=\"centroids\" font-size=\"11\" font-weight=\"bold\" text-anchor=\"middle\">\n");
	for (int c = 0; c < s->rows.model.k; c++)
	{
		const double *p = s->rows.model.centroids + (Size) c * d;
		double		x = km_svg_x(plot, project(s, p, c, 0));
		double		y = km_svg_y(plot, project(s, p, c, 1));

		CHECK_FOR_INTERRUPTS();
		appendStringInfo(out, "<g class=\"centroid\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"2\">", km_svg_colour(c));
		km_svg_mark(out, c, x, y, 10);
		appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#ffffff\" stroke=\"#222222\" stroke-width=\"2\" paint-order=\"stroke\">%d</text></g>\n",
						 x, y + 4, c);
	}
	appendStringInfoString(out, "</g>\n");
}

static void
draw_legend(StringInfo out, const Scatter *s, double left, double top, double height)
{
	int			room = (int) (height / LEGEND_LINE) - 1;
	int			lines = s->rows.model.k <= room ? s->rows.model.k : room - 1;

	appendStringInfoString(out, "<g class=\"legend\" font-size=\"12\" fill=\"#222222\">\n");
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">cluster (rows)</text>\n", left, top + 10);
	for (int c = 0; c < lines; c++)
	{
		double		y = top + 10 + (c + 1) * LEGEND_LINE;

		appendStringInfo(out, "<g class=\"entry\"><g fill=\"%s\">", km_svg_colour(c));
		km_svg_mark(out, c, left + 6, y - 4, 5);
		appendStringInfo(out, "</g><text x=\"%.1f\" y=\"%.1f\">%d (" INT64_FORMAT ")</text></g>\n",
						 left + 18, y, c, (int64) s->rows.model.size[c]);
	}
	if (lines < s->rows.model.k)
		appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\">and %d more</text>\n",
						 left, top + 10 + (lines + 1) * LEGEND_LINE, s->rows.model.k - lines);
	appendStringInfoString(out, "</g>\n");
}

/*
 * kmeans_svg(model kmeans_model, relation regclass, x text, y text, points int,
 *            width int, height int, title text, nonfinite text) returns text
 */
Datum
kmeans_svg(PG_FUNCTION_ARGS)
{
	Scatter		s = {0};
	KmSvgPlot	plot;
	StringInfoData out;
	int			points = km_parse_int(fcinfo, 4, "points", 1, 100000);
	int			width = km_svg_parse_size(fcinfo, 5, "width");
	int			height = km_svg_parse_size(fcinfo, 6, "height");
	char	   *title = km_parse_text(fcinfo, 7);

	km_model_rows_open(fcinfo, 0, 1, 8, &s.rows);
	kmeans_model_refuse_spectral(s.rows.value, "kmeans_svg()");
	kmeans_refuse_distance(s.rows.value->distance, "kmeans_svg()");
	choose_axes(&s, km_parse_text(fcinfo, 2), km_parse_text(fcinfo, 3));
	if (!read_points(&s, fcinfo, PG_GETARG_OID(1), points))
	{
		km_host_end(s.rows.host);
		PG_RETURN_NULL();
	}

	plot = (KmSvgPlot) {.left = 80,.top = 46,.width = width - 80 - LEGEND_WIDTH - 16,.height = height - 46 - 56};
	choose_range(&s, &plot);
	if (title == NULL)
		title = psprintf("%d cluster%s, " INT64_FORMAT " row%s drawn", s.rows.model.k, s.rows.model.k == 1 ? "" : "s",
						 (int64) s.n, s.n == 1 ? "" : "s");
	initStringInfo(&out);
	km_svg_begin(&out, width, height, title,
				 psprintf("Scatter plot of %s and %s; k-means with %d cluster%s.",
						  axis_name(&s, 0), axis_name(&s, 1), s.rows.model.k, s.rows.model.k == 1 ? "" : "s"));
	km_svg_axes(&out, &plot, axis_name(&s, 0), axis_name(&s, 1), false);
	draw_points(&out, &s, &plot);
	draw_centroids(&out, &s, &plot);
	draw_legend(&out, &s, width - LEGEND_WIDTH, plot.top, plot.height);
	km_svg_end(&out);
	km_host_end(s.rows.host);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
