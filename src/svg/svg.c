/*
 * svg.c - drawing: axes with round numbers, colours, marks, text.
 *
 * SVG 1.1 without scripts, styles or fonts of its own: it looks the same in a
 * browser, a document and Grafana.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "mb/pg_wchar.h"

#include "svg/svg.h"

#define FONT	"font-family=\"Helvetica, Arial, sans-serif\""

/*
 * The colours of Okabe and Ito (2008), told apart with any kind of colour vision; for their yellow,
 * too light on white, and their black, which is the text's, a dark brown and a grey.
 */
static const char *const colours[] = {
	"#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d1f", "#555555"
};

const char *
km_svg_colour(int cluster)
{
	return colours[cluster % (int) lengthof(colours)];
}

/* U+FFFE and U+FFFF are not allowed in XML. */
static bool
is_no_character(const char *s)
{
	return GetDatabaseEncoding() == PG_UTF8 && (strncmp(s, "\xef\xbf\xbe", 3) == 0 || strncmp(s, "\xef\xbf\xbf", 3) == 0);
}

/* Text with &, < and > escaped. */
static void
put_text(StringInfo out, const char *text)
{
	for (const char *s = text; *s; s++)
	{
		if (*s == '&')
			appendStringInfoString(out, "&amp;");
		else if (*s == '<')
			appendStringInfoString(out, "&lt;");
		else if (*s == '>')
			appendStringInfoString(out, "&gt;");
		else if (is_no_character(s))
		{
			appendStringInfoString(out, "\xef\xbf\xbd");
			s += 2;
		}
		else
			/* other control characters are not allowed in XML */
			appendStringInfoChar(out, (unsigned char) *s < ' ' ? ' ' : *s);
	}
}

void
km_svg_begin(StringInfo out, int width, int height, const char *title, const char *description)
{
	appendStringInfo(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
					 FONT ">\n<title>", width, height, width, height);
	put_text(out, title);
	appendStringInfoString(out, "</title>\n<desc>");
	put_text(out, description);
	appendStringInfo(out, "</desc>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height);
	appendStringInfoString(out, "<text class=\"title\" x=\"24\" y=\"28\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">");
	put_text(out, title);
	appendStringInfoString(out, "</text>\n");
}

void
km_svg_end(StringInfo out)
{
	appendStringInfoString(out, "</svg>\n");
}

/* Where v is between lo and hi, as a share; they may be farther apart than a double can say. */
static double
share(double v, double lo, double hi)
{
	double		s = fmax(fabs(lo), fabs(hi)) > DBL_MAX / 4 ? 0.25 : 1.0;

	return (v * s - lo * s) / (hi * s - lo * s);
}

double
km_svg_x(const KmSvgPlot *p, double x)
{
	return p->left + share(x, p->x0, p->x1) * p->width;
}

double
km_svg_y(const KmSvgPlot *p, double y)
{
	return p->top + p->height - share(y, p->y0, p->y1) * p->height;
}

void
km_svg_range(double *lo, double *hi)
{
	double		margin = *hi * 0.03 - *lo * 0.03;

	/* a single value, or so near that doubles can hardly tell */
	if (!(margin > fabs(*lo) * 1e-12))
		margin = *lo != 0 ? fabs(*lo) * 0.1 : 1.0;
	*lo = fmax(*lo - margin, -DBL_MAX);
	*hi = fmin(*hi + margin, DBL_MAX);
}

/* 1, 2 or 5 times a power of ten, so that there are about that many ticks. */
static double
tick_step(double lo, double hi, int about, bool whole)
{
	double		raw = hi / about - lo / about;
	double		power = pow(10.0, floor(log10(raw)));
	double		step = raw / power;

	step = (step < 1.5 ? 1 : step < 3.5 ? 2 : step < 7.5 ? 5 : 10) * power;
	return whole && step < 1 ? 1 : step;
}

/* As many decimals as the step has; 12,000,000 as 12M.  Far from 0 there are enough digits to tell two ticks apart. */
static const char *
tick_text(double v, double step)
{
	int			decimals = step < 1 ? (int) ceil(-log10(step) - 1e-9) : 0;
	int			digits;

	if (fabs(v) < step * 1e-6)
		return "0";
	digits = Max(6, Min(DBL_DIG, (int) ceil(log10(fabs(v)) - log10(step)) + 1));
	if (fabs(v) >= 1e15 || step < 1e-6)
		return psprintf("%.*g", digits, v);
	if (step >= 1e9)
		return psprintf("%.*gG", digits, v / 1e9);
	if (step >= 1e6)
		return psprintf("%.*gM", digits, v / 1e6);
	if (step >= 1e4)
		return psprintf("%.*gk", digits, v / 1e3);
	return psprintf("%.*f", decimals, v);
}

void
km_svg_axes(StringInfo out, const KmSvgPlot *p, const char *x_name, const char *y_name, bool whole_x)
{
	double		step = tick_step(p->x0, p->x1, (int) Max(p->width / 90, 2), whole_x);
	double		bottom = p->top + p->height;

	appendStringInfoString(out, "<g class=\"axes\" font-size=\"11\" fill=\"#555555\" stroke=\"none\">\n");
	for (double t = ceil(p->x0 / step) * step; t <= p->x1; t += step)
	{
		double		x = km_svg_x(p, t);

		appendStringInfo(out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#e4e4e4\"/>", x, p->top, bottom);
		appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
						 x, bottom + 16, tick_text(t, step));
	}
	step = tick_step(p->y0, p->y1, (int) Max(p->height / 60, 2), false);
	for (double t = ceil(p->y0 / step) * step; t <= p->y1; t += step)
	{
		double		y = km_svg_y(p, t);

		appendStringInfo(out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#e4e4e4\"/>", p->left, y, p->left + p->width);
		appendStringInfo(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
						 p->left - 7, y + 4, tick_text(t, step));
	}
	appendStringInfo(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#999999\"/>\n",
					 p->left, p->top, p->width, p->height);
	appendStringInfo(out, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"13\" fill=\"#222222\">",
					 p->left + p->width / 2, bottom + 38);
	put_text(out, x_name);
	appendStringInfo(out, "</text>\n<text class=\"axis\" transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\" fill=\"#222222\">",
					 p->left - 50, p->top + p->height / 2);
	put_text(out, y_name);
	appendStringInfoString(out, "</text>\n</g>\n");
}

/* Circle, square, triangle, diamond, triangle upside down. */
void
km_svg_mark(StringInfo out, int cluster, double x, double y, double r)
{
	switch (cluster / (int) lengthof(colours) % 5)
	{
		case 0:
			appendStringInfo(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
			break;
		case 1:
			appendStringInfo(out, "<path d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\"/>", x - r, y - r, 2 * r, 2 * r, -2 * r);
			break;
		case 2:
			appendStringInfo(out, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - 1.3 * r, 1.3 * r, 2.2 * r, -2.6 * r);
			break;
		case 3:
			appendStringInfo(out, "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>",
							 x, y - 1.4 * r, 1.4 * r, 1.4 * r, -1.4 * r, 1.4 * r, -1.4 * r, -1.4 * r);
			break;
		default:
			appendStringInfo(out, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y + 1.3 * r, 1.3 * r, -2.2 * r, -2.6 * r);
			break;
	}
}
