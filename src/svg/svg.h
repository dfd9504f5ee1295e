/*
 * svg.h - what the pictures share: axes, colours, text.
 */
#ifndef GKMEANS_SVG_H
#define GKMEANS_SVG_H

#include "lib/stringinfo.h"

/* A plot's place in the picture, and what its edges stand for. */
typedef struct GkSvgPlot
{
	double		left,
				top,
				width,
				height;			/* pixels */
	double		x0,
				x1,
				y0,
				y1;				/* values at the edges; y0 below */
} GkSvgPlot;

extern void gk_svg_begin(StringInfo out, int width, int height, const char *title, const char *description);
extern void gk_svg_end(StringInfo out);
/* With &, < and > escaped. */
extern void gk_svg_text(StringInfo out, const char *text);
/* Widen [lo, hi] by a little, so that no mark sits on the edge. */
extern void gk_svg_range(double *lo, double *hi);
/* Grid, tick labels and names of both axes; whole_x: ticks at whole numbers only. */
extern void gk_svg_axes(StringInfo out, const GkSvgPlot *plot, const char *x_name, const char *y_name,
						bool whole_x);
extern double gk_svg_x(const GkSvgPlot *plot, double x);
extern double gk_svg_y(const GkSvgPlot *plot, double y);
/* Colours repeat after 8, shapes change then. */
extern const char *gk_svg_colour(int cluster);
extern void gk_svg_mark(StringInfo out, int cluster, double x, double y, double r);
/* The arguments width and height, checked. */
extern int	gk_svg_size_arg(FunctionCallInfo fcinfo, int arg, const char *name);

#endif							/* GKMEANS_SVG_H */
