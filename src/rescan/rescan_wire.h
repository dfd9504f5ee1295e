/*
 * rescan_wire.h - passes (core/rescan/gk_pass.h) as bytes, to be sent to other servers.
 */
#ifndef RESCAN_WIRE_H
#define RESCAN_WIRE_H

#include "lib/stringinfo.h"

#include "core/rescan/gk_pass.h"
#include "gkmeans.h"

/* How rows are read; a relation has to be read like that on every server. */
typedef struct KmPassReading
{
	GkDistance	distance;
	bool		skip_nonfinite;
	int			expect_d;		/* 0: any */
} KmPassReading;

extern bytea *km_pass_bytes(const GkPass *pass, const KmPassReading *reading);
/*
 * An answer to the pass, in memory of the engine's; ERROR when the bytes are none.
 */
extern void km_pass_answer(const GkHost *engine, const GkPass *pass, bytea *bytes,
						   GkPassResult *out, KmReadCounts *counts, GkPassAnswererNames *names);

#endif							/* RESCAN_WIRE_H */
