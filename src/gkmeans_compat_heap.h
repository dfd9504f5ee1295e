/*
 * gkmeans_compat_heap.h - what differs between PostgreSQL 13 and 18 in scans of
 * heap tables.
 */
#ifndef GKMEANS_COMPAT_HEAP_H
#define GKMEANS_COMPAT_HEAP_H

#include "access/heapam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#endif

/*
 * Go to page number block, which is the next one, of a sequential scan in page
 * mode, and find its visible rows: rs_cbuf, rs_vistuples, rs_ntuples.  False
 * after the last page.
 */
static inline bool
gk_heap_next_page(HeapScanDesc scan, BlockNumber block)
{
	if (block >= scan->rs_nblocks)
		return false;
#if PG_VERSION_NUM >= 170000
	CHECK_FOR_INTERRUPTS();
	if (BufferIsValid(scan->rs_cbuf))
		ReleaseBuffer(scan->rs_cbuf);
	scan->rs_cbuf = read_stream_next_buffer(scan->rs_read_stream, NULL);
	if (!BufferIsValid(scan->rs_cbuf))
		return false;
	scan->rs_cblock = BufferGetBlockNumber(scan->rs_cbuf);
	heap_prepare_pagescan(&scan->rs_base);
#else
	heapgetpage(&scan->rs_base, block);
#endif
	return true;
}

#endif							/* GKMEANS_COMPAT_HEAP_H */
