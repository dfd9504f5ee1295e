/*
 * rescan_wire.h - passes (core/rescan/gk_pass.h) as bytes, to be sent to other servers.
 */
#ifndef GKMEANS_PASS_H
#define GKMEANS_PASS_H

#include "lib/stringinfo.h"

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"

/* How rows are read; a relation has to be read like that on every server. */
typedef struct GkPassReading
{
	GkDistance	distance;
	bool		skip_nonfinite;
	int			expect_d;		/* 0: any */
} GkPassReading;

extern bytea *gk_pass_bytes(const GkPass *pass, const GkPassReading *reading);
/*
 * An answer to the pass, in memory of the engine's; ERROR when the bytes are none.
 */
extern void gk_pass_answer(const GkHost *engine, const GkPass *pass, bytea *bytes,
						   GkPassResult *out, GkReadCounts *counts, GkPasserNames *names);

#endif							/* GKMEANS_PASS_H */
