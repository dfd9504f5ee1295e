/*
 * svg_scatter.c - kmeans_svg(): points and centroids in two dimensions.
 *
 * The dimensions are two features, in their own units, or the two principal
 * components of the points drawn.  One feature alone is drawn against the
 * cluster numbers.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"

#include "core/gk_numerics.h"
#include "core/quality/gk_pca.h"
#include "gkmeans.h"
#include "types/model.h"
#include "functions/fn_evaluate.h"
#include "relation/rel_rules.h"
#include "svg/svg.h"

PG_FUNCTION_INFO_V1(kmeans_svg);

#define LEGEND_WIDTH	150
#define LEGEND_LINE		20

typedef struct Scatter
{
	const KmeansModel *value;
	GkModel		model;
	char	  **columns;
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
	return s->value->columns_array ? psprintf("%s[%d]", s->columns[0], j + 1) : s->columns[j];
}

static int
find_feature(const Scatter *s, const char *name, const char *arg)
{
	for (int j = 0; j < s->model.prep.d; j++)
		if (strcmp(feature_name(s, j), name) == 0)
			return j;
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("%s = \"%s\" is not a feature of the model", arg, name),
			 s->value->columns_array ?
			 errhint("Features are \"%s\" to \"%s\".", feature_name(s, 0), feature_name(s, s->model.prep.d - 1)) :
			 errhint("Features are the columns that the model was made from.")));
	return -1;					/* keep compiler quiet */
}

static void
choose_axes(Scatter *s, char *x, char *y)
{
	int			d = s->model.prep.d;

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
	const GkPrep *prep = &s->model.prep;
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
	if (s->model.prep.d == 1 && a == 1)
		return "cluster";
	if (s->axis[a] >= 0)
		return feature_name(s, s->axis[a]);
	return psprintf("principal component %d (%.0f %% of the variance%s)", a + 1, 100 * s->pca.share[a],
					s->model.prep.standardize ? ", standard deviations" : "");
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
	int			d = s->model.prep.d;

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
	const GkPrep *prep = &s->model.prep;
	double		top = prep->standardize ? 0.0 : largest(s->x, s->n * prep->d);

	s->unit = top > 1e100 || (top > 0.0 && top < 1e-100) ? ldexp(1.0, Max(ilogb(top), -1000)) : 1.0;
}

/* False: no usable rows. */
static bool
read_points(Scatter *s, KmPgHost *host, Oid relid, int points, bool skip_nonfinite)
{
	KmReadOptions read = {.expect_of = "the model"};
	KmReadCounts counts = {0};
	KmTables	tables = {0};
	const GkPrep *prep = &s->model.prep;
	KmSource   *source;
	GkStore    *store;
	GkError		err;

	read.expect_d = prep->d;
	read.distance = prep->distance;
	read.skip_nonfinite = skip_nonfinite;
	source = km_source_open(relid, s->columns, s->value->ncolumns, NULL, NULL, false);
	km_apply_simd();
	store = km_read(host, source, &read, &counts, &tables);
	km_notice_left_out(&counts);
	if (store == NULL)
	{
		ereport(NOTICE,
				(errmsg("no usable rows in \"%s\"", source->relname)));
		return false;
	}
	s->x = MemoryContextAllocHuge(CurrentMemoryContext, (Size) points * prep->d * sizeof(double));
	s->label = palloc(points * sizeof(int32_t));
	km_check(host, gk_quality_rows(store, &s->model, points, s->x, s->label, &s->n, &err), &err);
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
	int			d = s->model.prep.d;

	plot->x0 = plot->y0 = INFINITY;
	plot->x1 = plot->y1 = -INFINITY;
	for (int64 i = 0; i < s->n + s->model.k; i++)
	{
		bool		point = i < s->n;
		const double *p = point ? s->x + i * d : s->model.centroids + (i - s->n) * d;
		int			label = point ? s->label[i] : (int) (i - s->n);
		double		x = project(s, p, label, 0);
		double		y = project(s, p, label, 1);

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
	int			d = s->model.prep.d;
	/* the more points, the smaller and the more transparent */
	double		r = s->n > 5000 ? 1.5 : s->n > 1000 ? 2.2 : 3.2;
	double		opacity = s->n > 5000 ? 0.45 : s->n > 1000 ? 0.6 : 0.75;

	for (int c = 0; c < s->model.k; c++)
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
	int			d = s->model.prep.d;

	appendStringInfoString(out, "<g class=\"centroids\" font-size=\"11\" font-weight=\"bold\" text-anchor=\"middle\">\n");
	for (int c = 0; c < s->model.k; c++)
	{
		const double *p = s->model.centroids + (Size) c * d;
		double		x = km_svg_x(plot, project(s, p, c, 0));
		double		y = km_svg_y(plot, project(s, p, c, 1));

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
	int			lines = s->model.k <= room ? s->model.k : room - 1;

	appendStringInfoString(out, "<g class=\"legend\" font-size=\"12\" fill=\"#222222\">\n");
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">cluster (rows)</text>\n", left, top + 10);
	for (int c = 0; c < lines; c++)
	{
		double		y = top + 10 + (c + 1) * LEGEND_LINE;

		appendStringInfo(out, "<g class=\"entry\"><g fill=\"%s\">", km_svg_colour(c));
		km_svg_mark(out, c, left + 6, y - 4, 5);
		appendStringInfo(out, "</g><text x=\"%.1f\" y=\"%.1f\">%d (" INT64_FORMAT ")</text></g>\n",
						 left + 18, y, c, (int64) s->model.size[c]);
	}
	if (lines < s->model.k)
		appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\">and %d more</text>\n",
						 left, top + 10 + (lines + 1) * LEGEND_LINE, s->model.k - lines);
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
	KmPgHost   *host;
	StringInfoData out;
	char	   *title;
	int			points;
	int			width;
	int			height;
	bool		skip_nonfinite;
	bool		usable;

	km_require_arg(fcinfo, 0, "model");
	km_require_arg(fcinfo, 1, "relation");
	km_require_arg(fcinfo, 4, "points");
	points = PG_GETARG_INT32(4);
	if (points < 1 || points > 100000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("points must be between 1 and 100000, not %d", points)));
	width = km_svg_size_arg(fcinfo, 5, "width");
	height = km_svg_size_arg(fcinfo, 6, "height");
	title = km_parse_text(fcinfo, 7);
	skip_nonfinite = km_parse_nonfinite(fcinfo, 8);

	s.value = PG_GETARG_KMEANS_MODEL(0);
	kmeans_model_view(s.value, &s.model);
	s.columns = km_model_columns(s.value);
	choose_axes(&s, km_parse_text(fcinfo, 2), km_parse_text(fcinfo, 3));
	host = km_host_begin();
	usable = read_points(&s, host, PG_GETARG_OID(1), points, skip_nonfinite);
	if (!usable)
	{
		km_host_end(host);
		PG_RETURN_NULL();
	}

	plot = (KmSvgPlot) {.left = 80,.top = 46,.width = width - 80 - LEGEND_WIDTH - 16,.height = height - 46 - 56};
	choose_range(&s, &plot);
	if (title == NULL)
		title = psprintf("%d clusters, " INT64_FORMAT " rows drawn", s.model.k, (int64) s.n);
	initStringInfo(&out);
	km_svg_begin(&out, width, height, title,
				 psprintf("Scatter plot of %s and %s; k-means with %d clusters.",
						  axis_name(&s, 0), axis_name(&s, 1), s.model.k));
	km_svg_axes(&out, &plot, axis_name(&s, 0), axis_name(&s, 1), false);
	draw_points(&out, &s, &plot);
	draw_centroids(&out, &s, &plot);
	draw_legend(&out, &s, width - LEGEND_WIDTH, plot.top, plot.height);
	km_svg_end(&out);
	km_host_end(host);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
