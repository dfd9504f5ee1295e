/*
 * gk_test.h - the whole test framework: ok(), skip() and a closing count.
 *
 * One line for each check, as in TAP; done_testing() prints 'N passed, N failed'
 * and returns the exit status.  A program that checks nothing has failed.
 * TEST_FULL=1 in the environment: tests of many problems try all of few_or_all().
 * TEST_EMULATED=1: where floats take a hundred times as long, the widest points are left out.
 */
#ifndef GK_TEST_H
#define GK_TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int	gk_test_passed;
static int	gk_test_failed;
static int	gk_test_skipped;

__attribute__((format(printf, 2, 3), unused)) static bool
ok(bool condition, const char *name,...)
{
	va_list		ap;

	printf("%s %d - ", condition ? "ok" : "not ok",
		   gk_test_passed + gk_test_failed + gk_test_skipped + 1);
	va_start(ap, name);
	vprintf(name, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	*(condition ? &gk_test_passed : &gk_test_failed) += 1;
	return condition;
}

/* How many: few, for which there is time after every change, or all, before a release. */
__attribute__((unused)) static int
few_or_all(int few, int all)
{
	return getenv("TEST_FULL") != NULL ? all : few;
}

/* Sums of 113 bits, by the compiler. */
#ifdef __SIZEOF_FLOAT128__
typedef __float128 quad;
#else
typedef long double quad;
#endif

__attribute__((unused)) static bool
emulated(void)
{
	return getenv("TEST_EMULATED") != NULL;
}

/* What this machine cannot check, and why. */
__attribute__((format(printf, 1, 2), unused)) static void
skip(const char *why,...)
{
	va_list		ap;

	printf("ok %d # skip ", gk_test_passed + gk_test_failed + gk_test_skipped + 1);
	va_start(ap, why);
	vprintf(why, ap);
	va_end(ap);
	putchar('\n');
	gk_test_skipped++;
}

static int
done_testing(void)
{
	printf("1..%d\n", gk_test_passed + gk_test_failed + gk_test_skipped);
	printf("%d passed, %d failed", gk_test_passed, gk_test_failed);
	if (gk_test_skipped > 0)
		printf(", %d skipped", gk_test_skipped);
	putchar('\n');
	return gk_test_failed > 0 || gk_test_passed + gk_test_skipped == 0;
}

#endif							/* GK_TEST_H */
