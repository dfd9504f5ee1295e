/*
 * svg_choose_k.c - kmeans_scan_svg(): inertia and silhouette against k.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "functions/functions.h"
#include "svg/svg.h"

PG_FUNCTION_INFO_V1(kmeans_scan_svg);

/* Arguments after those of kmeans_scan(). */
#define ARG_WIDTH	(GKMEANS_NOPTIONS + 6)
#define ARG_HEIGHT	(ARG_WIDTH + 1)
#define ARG_TITLE	(ARG_WIDTH + 2)

/* A measure's line in the picture. */
typedef struct Line
{
	Size		at;				/* place of the measure, a double, in KmChooseKRow */
	const char *name;
	int			colour;
	bool		dashed;
} Line;

static const Line inertia = {offsetof(KmChooseKRow, inertia), "inertia", 0, false};
static const Line silhouette = {offsetof(KmChooseKRow, measures.silhouette), "silhouette", 3, false};
static const Line simplified = {offsetof(KmChooseKRow, measures.simplified), "simplified_silhouette", 2, true};

static double
measure(const KmChooseK *choice, int i, const Line *line)
{
	return *(const double *) ((const char *) &choice->row[i] + line->at);
}

static void
find_range(const KmChooseK *choice, const Line *line, double *lo, double *hi)
{
	for (int i = 0; i < choice->n; i++)
	{
		double		v = measure(choice, i, line);

		if (isfinite(v))
		{
			*lo = fmin(*lo, v);
			*hi = fmax(*hi, v);
		}
	}
}

/* Line and marks; nothing where the measure is not defined. */
static void
draw_line(StringInfo out, const KmChooseK *choice, const KmSvgPlot *plot, const Line *line)
{
	bool		pen = false;

	appendStringInfo(out, "<g class=\"line\" data-measure=\"%s\"><path d=\"", line->name);
	for (int i = 0; i < choice->n; i++)
	{
		double		v = measure(choice, i, line);

		if (!isfinite(v))
			continue;
		appendStringInfo(out, "%c%.1f %.1f", pen ? 'L' : 'M', km_svg_x(plot, choice->row[i].k), km_svg_y(plot, v));
		pen = true;
	}
	appendStringInfo(out, "%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n<g fill=\"%s\">",
					 pen ? "" : "M0 0", km_svg_colour(line->colour), line->dashed ? " stroke-dasharray=\"5 4\"" : "",
					 km_svg_colour(line->colour));
	for (int i = 0; i < choice->n; i++)
		if (isfinite(measure(choice, i, line)))
			km_svg_mark(out, line->colour, km_svg_x(plot, choice->row[i].k), km_svg_y(plot, measure(choice, i, line)), 3.5);
	appendStringInfoString(out, "</g></g>\n");
}

static void
draw_suggestion(StringInfo out, const KmChooseK *choice, const KmSvgPlot *plot, const Line *line, int at,
				const char *name, double text_y)
{
	double		x;
	bool		right;

	if (at < 0 || !isfinite(measure(choice, at, line)))
		return;
	x = km_svg_x(plot, choice->row[at].k);
	right = x < plot->left + plot->width * 0.8;
	appendStringInfo(out, "<g class=\"suggested\" data-k=\"%d\"><path d=\"M%.1f %.1fV%.1f\" stroke=\"#777777\" stroke-dasharray=\"3 3\"/>",
					 choice->row[at].k, x, plot->top, plot->top + plot->height);
	appendStringInfo(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>",
					 x, km_svg_y(plot, measure(choice, at, line)), km_svg_colour(line->colour));
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" fill=\"#222222\" text-anchor=\"%s\">%s: k = %d</text></g>\n",
					 right ? x + 8 : x - 8, text_y, right ? "start" : "end", name, choice->row[at].k);
}

static void
draw_key(StringInfo out, double x, double y, const char *name, const Line *line)
{
	appendStringInfo(out, "<g class=\"entry\"><path d=\"M%.1f %.1fh24\" stroke=\"%s\" stroke-width=\"2\"%s/>",
					 x, y - 4, km_svg_colour(line->colour), line->dashed ? " stroke-dasharray=\"5 4\"" : "");
	appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" fill=\"#222222\">%s</text></g>\n", x + 30, y, name);
}

/*
 * kmeans_scan_svg(relation, columns, k_min, k_max, step, <options>, sample,
 *                 width int, height int, title text) returns text
 */
Datum
kmeans_scan_svg(PG_FUNCTION_ARGS)
{
	int			width = km_svg_parse_size(fcinfo, ARG_WIDTH, "width");
	int			height = km_svg_parse_size(fcinfo, ARG_HEIGHT, "height");
	char	   *title = km_parse_text(fcinfo, ARG_TITLE);
	KmSvgPlot	upper = {.left = 80,.top = 46,.width = width - 80 - 24};
	KmSvgPlot	lower;
	StringInfoData out;
	KmChooseK	choice;

	km_choose_k(fcinfo, &choice);
	if (choice.n == 0)
		PG_RETURN_NULL();

	upper.height = (height - 46 - 56 - 70) / 2;
	upper.x0 = choice.row[0].k;
	upper.x1 = choice.row[choice.n - 1].k;
	km_svg_range(&upper.x0, &upper.x1);
	lower = upper;
	lower.top = upper.top + upper.height + 70;
	upper.y0 = 0;
	find_range(&choice, &inertia, &upper.y0, &upper.y1);
	km_svg_range(&upper.y0, &upper.y1);
	upper.y0 = 0;
	lower.y0 = INFINITY;
	lower.y1 = -INFINITY;
	find_range(&choice, &silhouette, &lower.y0, &lower.y1);
	find_range(&choice, &simplified, &lower.y0, &lower.y1);
	if (lower.y0 > lower.y1)
	{
		lower.y0 = 0;
		lower.y1 = 1;
	}
	km_svg_range(&lower.y0, &lower.y1);

	if (title == NULL)
		title = psprintf("How many clusters? k = %d to %d", choice.row[0].k, choice.row[choice.n - 1].k);
	initStringInfo(&out);
	km_svg_begin(&out, width, height, title, "Inertia and silhouette against the number of clusters.");
	km_svg_axes(&out, &upper, "k", "inertia", true);
	draw_suggestion(&out, &choice, &upper, &inertia, choice.elbow, "elbow", upper.top + 16);
	draw_line(&out, &choice, &upper, &inertia);
	km_svg_axes(&out, &lower, "k", "silhouette", true);
	draw_suggestion(&out, &choice, &lower, &silhouette, choice.silhouette, "best silhouette",
					lower.top + lower.height - 8);
	draw_line(&out, &choice, &lower, &simplified);
	draw_line(&out, &choice, &lower, &silhouette);
	draw_key(&out, lower.left + 4, lower.top - 10, "silhouette", &silhouette);
	draw_key(&out, lower.left + 124, lower.top - 10, "simplified silhouette", &simplified);
	km_svg_end(&out);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
