/*
 * svg_spectral.c - kmeans_spectral_svg(): eigenvalues, and representatives in their space.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"

#include "core/quality/gk_quality.h"
#include "core/spectral/gk_spectral.h"
#include "svg/svg.h"
#include "types/model.h"

PG_FUNCTION_INFO_V1(kmeans_spectral_svg);

/* Pixels between the plots and the edges of the picture, for the axes' text. */
#define LEFT		80
#define TOP			46
#define BOTTOM		56
#define RIGHT		24

/* A representative's mark has an area that grows with its points, around this radius. */
#define RADIUS		4.0
#define SMALLEST	1.5
#define LARGEST		12.0

/* Representatives as points of a plane. */
typedef struct Embedding
{
	int			n;
	double	   *x;				/* [n] NaN where cut off */
	double	   *y;
	const char *x_name;
	const char *y_name;
} Embedding;

/* ---- where the representatives are ---- */

/* Rows of q eigenvectors; of more than two, their principal components. */
static void
to_plane(KmPgHost *host, const GkSpace *space, int q, Embedding *e)
{
	double	   *row = palloc_extended((Size) space->graph.kept * q * sizeof(double), MCXT_ALLOC_HUGE);
	double	   *one = palloc(q * sizeof(double));
	GkPca		pca;
	GkError		err;

	for (int i = 0, at = 0; i < e->n; i++)
		if (space->graph.component[i] >= 0)
			gk_space_row(space, q, i, row + (Size) at++ * q);
	for (int j = 0; j < q; j++)
		one[j] = 1.0;
	km_check(host, gk_pca(km_host_engine(host), row, space->graph.kept, q, one, &pca, &err), &err);
	for (int i = 0, at = 0; i < e->n; i++)
	{
		if (space->graph.component[i] < 0)
			continue;
		e->x[i] = e->y[i] = 0.0;
		for (int j = 0; j < q; j++)
		{
			e->x[i] += (row[(Size) at * q + j] - pca.mean[j]) * pca.axis[0][j];
			e->y[i] += (row[(Size) at * q + j] - pca.mean[j]) * pca.axis[1][j];
		}
		at++;
	}
	e->x_name = psprintf("principal component 1 of %d eigenvectors (%.0f %%)", q, 100 * pca.share[0]);
	e->y_name = psprintf("principal component 2 (%.0f %%)", 100 * pca.share[1]);
	gk_pca_free(km_host_engine(host), &pca);
	pfree(row);
}

static void
take_vectors(const GkSpace *space, int q, Embedding *e)
{
	for (int i = 0; i < e->n; i++)
	{
		double		row[2] = {0.0, 0.0};

		if (space->graph.component[i] < 0)
			continue;
		gk_space_row(space, q, i, row);
		e->x[i] = row[0];
		e->y[i] = row[1];
	}
	e->x_name = "eigenvector 1";
	e->y_name = q > 1 ? "eigenvector 2" : "";
}

/* The space is that which the model's clusters were found in. */
static void
embed(KmPgHost *host, const GkModel *m, Embedding *e)
{
	const GkHost *engine = km_host_engine(host);
	const GkSpectral *s = &m->spectral;
	GkSpace		space;
	GkError		err;
	int			q;

	e->n = m->k;
	e->x = palloc(e->n * sizeof(double));
	e->y = palloc(e->n * sizeof(double));
	for (int i = 0; i < e->n; i++)
		e->x[i] = e->y[i] = NAN;
	km_check(host, gk_space_graph(engine, m, &s->asked, &space, &err), &err);
	if (s->asked.k > 0)
		km_check(host, gk_graph_join(engine, s->asked.k, &space.graph, &err), &err);
	km_check(host, gk_space_solve(engine, &space, Max(s->k, 2), &err), &err);
	q = Min(Max(s->k, 2), space.m);
	if (q > 2)
		to_plane(host, &space, q, e);
	else
		take_vectors(&space, q, e);
	gk_space_free(engine, &space);
}

/* ---- drawing ---- */

static void
draw_eigenvalues(StringInfo out, const GkSpectral *s, KmSvgPlot *plot)
{
	double		x;

	plot->x0 = 1;
	plot->x1 = s->neigenvalues;
	plot->y0 = 0;
	plot->y1 = s->neigenvalues > 0 ? s->eigenvalue[s->neigenvalues - 1] : 1;
	km_svg_range(&plot->x0, &plot->x1);
	km_svg_range(&plot->y0, &plot->y1);
	km_svg_axes(out, plot, "number", "eigenvalue", true);
	x = km_svg_x(plot, Min(s->k + 0.5, plot->x1));
	appendStringInfo(out, "<g class=\"suggested\" data-k=\"%d\"><path d=\"M%.1f %.1fV%.1f\" stroke=\"#777777\" stroke-dasharray=\"3 3\"/>",
					 s->k, x, plot->top, plot->top + plot->height);
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" fill=\"#222222\" text-anchor=\"%s\">k = %d</text></g>\n",
					 x < plot->left + plot->width * 0.8 ? x + 6 : x - 6, plot->top + 16,
					 x < plot->left + plot->width * 0.8 ? "start" : "end", s->k);
	appendStringInfo(out, "<g class=\"line\" data-measure=\"eigenvalue\"><g fill=\"%s\">", km_svg_colour(0));
	for (int i = 0; i < s->neigenvalues; i++)
		km_svg_mark(out, 0, km_svg_x(plot, i + 1), km_svg_y(plot, s->eigenvalue[i]), 3.5);
	appendStringInfoString(out, "</g></g>\n");
}

static void
choose_range(const Embedding *e, KmSvgPlot *plot)
{
	plot->x0 = plot->y0 = INFINITY;
	plot->x1 = plot->y1 = -INFINITY;
	for (int i = 0; i < e->n; i++)
	{
		plot->x0 = fmin(plot->x0, e->x[i]);
		plot->x1 = fmax(plot->x1, e->x[i]);
		plot->y0 = fmin(plot->y0, e->y[i]);
		plot->y1 = fmax(plot->y1, e->y[i]);
	}
	km_svg_range(&plot->x0, &plot->x1);
	km_svg_range(&plot->y0, &plot->y1);
}

/* A mark for each representative of cluster c. */
static void
draw_cluster(StringInfo out, const GkModel *m, const Embedding *e, const KmSvgPlot *plot, int c)
{
	double		mean = (double) m->rows_used / m->k;

	appendStringInfo(out, "<g class=\"cluster\" data-cluster=\"%d\" fill=\"%s\" fill-opacity=\"0.6\">\n", c, km_svg_colour(c));
	for (int i = 0; i < e->n; i++)
	{
		if (m->spectral.cluster[i] != c || isnan(e->x[i]))
			continue;
		km_svg_mark(out, c, km_svg_x(plot, e->x[i]), km_svg_y(plot, e->y[i]),
					fmin(fmax(RADIUS * sqrt((double) m->size[i] / mean), SMALLEST), LARGEST));
		appendStringInfoChar(out, '\n');
	}
	appendStringInfoString(out, "</g>\n");
}

/* Its number, in the middle of its rows. */
static void
draw_number(StringInfo out, const GkModel *m, const Embedding *e, const KmSvgPlot *plot, int c)
{
	double		x = 0.0;
	double		y = 0.0;
	double		mass = 0.0;

	for (int i = 0; i < e->n; i++)
	{
		if (m->spectral.cluster[i] != c || isnan(e->x[i]))
			continue;
		x += (double) m->size[i] * e->x[i];
		y += (double) m->size[i] * e->y[i];
		mass += (double) m->size[i];
	}
	if (mass > 0.0)
		appendStringInfo(out, "<text class=\"number\" x=\"%.1f\" y=\"%.1f\" font-size=\"12\" font-weight=\"bold\" text-anchor=\"middle\" "
						 "fill=\"#ffffff\" stroke=\"#222222\" stroke-width=\"2\" paint-order=\"stroke\">%d</text>\n",
						 km_svg_x(plot, x / mass), km_svg_y(plot, y / mass) + 4, c);
}

/*
 * kmeans_spectral_svg(model kmeans_model, width int, height int, title text) returns text
 */
Datum
kmeans_spectral_svg(PG_FUNCTION_ARGS)
{
	int			width = km_svg_parse_size(fcinfo, 1, "width");
	int			height = km_svg_parse_size(fcinfo, 2, "height");
	char	   *title = km_parse_text(fcinfo, 3);
	KmSvgPlot	left = {.left = LEFT,.top = TOP,.width = 0.4 * width - LEFT,.height = height - TOP - BOTTOM};
	KmSvgPlot	right = {.left = 0.4 * width + LEFT,.top = TOP,.width = 0.6 * width - LEFT - RIGHT,.height = left.height};
	KmeansModel *value;
	StringInfoData out;
	Embedding	e;
	GkModel		m;
	KmPgHost   *host;

	km_require_arg(fcinfo, 0, "model");
	value = PG_GETARG_KMEANS_MODEL(0);
	kmeans_model_require_spectral(value, "kmeans_spectral_svg()");
	kmeans_model_view(value, &m);
	km_apply_simd();
	host = km_host_begin();
	embed(host, &m, &e);
	km_host_end(host);

	if (title == NULL)
		title = psprintf("%d clusters of %d representatives", m.spectral.k, m.k);
	initStringInfo(&out);
	km_svg_begin(&out, width, height, title,
				 "The smallest eigenvalues of the graph's Laplacian, and the representatives in the space of the eigenvectors.");
	draw_eigenvalues(&out, &m.spectral, &left);
	choose_range(&e, &right);
	km_svg_axes(&out, &right, e.x_name, e.y_name, false);
	for (int c = 0; c < m.spectral.k; c++)
	{
		CHECK_FOR_INTERRUPTS();
		draw_cluster(&out, &m, &e, &right, c);
	}
	for (int c = 0; c < m.spectral.k; c++)
	{
		CHECK_FOR_INTERRUPTS();
		draw_number(&out, &m, &e, &right, c);
	}
	km_svg_end(&out);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
