/*
 * gk_error.c - errors and the clock, which every other file may use.
 */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "core/gk_core.h"

GkStatus
gk_fail(GkError *err, GkStatus code, const char *fmt,...)
{
	va_list		ap;

	err->code = code;
	err->gpu = 0;
	err->detail[0] = err->hint[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	return code;
}

double
gk_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}
