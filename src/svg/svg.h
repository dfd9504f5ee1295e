/*
 * svg.h - what the pictures share: axes, colours, text.
 */
#ifndef SVG_H
#define SVG_H

#include "lib/stringinfo.h"

#include "pg/pg.h"

/* A plot's place in the picture, and what its edges stand for. */
typedef struct KmSvgPlot
{
	double		left,
				top,
				width,
				height;			/* pixels */
	double		x0,
				x1,
				y0,
				y1;				/* values at the edges; y0 below */
} KmSvgPlot;

extern void km_svg_begin(StringInfo out, int width, int height, const char *title, const char *description);
extern void km_svg_end(StringInfo out);

/* Widen [lo, hi] by a little, so that no mark sits on the edge. */
extern void km_svg_range(double *lo, double *hi);

/* Grid, tick labels and names of both axes; whole_x: ticks at whole numbers only. */
extern void km_svg_axes(StringInfo out, const KmSvgPlot *plot, const char *x_name, const char *y_name,
						bool whole_x);
extern double km_svg_x(const KmSvgPlot *plot, double x);
extern double km_svg_y(const KmSvgPlot *plot, double y);

/* Colours repeat after 8, shapes change then. */
extern const char *km_svg_colour(int cluster);
extern void km_svg_mark(StringInfo out, int cluster, double x, double y, double r);

/* The arguments width and height, checked. */
static inline int
km_svg_parse_size(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return km_parse_int(fcinfo, arg, name, 300, 10000);
}

#endif							/* SVG_H */
