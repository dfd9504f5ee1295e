/*
 * rel_conveyor.h - slots of rows on their way: filled in any order, emptied in order.
 *
 * What is read is cut into numbered pieces.  Number n goes through slot n % nslots, and the
 * slot's turn says which number it serves and how far that is:
 *
 *   FREE     it may be filled, or be given work
 *   GIVEN    pages are pinned for it: any thread may fill it (threads only)
 *   FILLED   rows are in its batch: the leader may place them, in the order of the numbers
 *   PLACED   their places in the store are known: any thread may move them (threads only)
 *
 * and then it is FREE for number n + nslots.  A turn is all that threads and processes tell each
 * other: what was written before it was set may be read when it is seen.  How to wait for one is
 * up to the caller: threads look again, processes sleep on condition variables.
 *
 * It cannot get stuck.  The lowest number that is not placed has its slot, since the number
 * before it there was freed; the one that claimed it fills numbers in order, so it is being filled now;
 * and the leader waits for no other number.
 */
#ifndef REL_CONVEYOR_H
#define REL_CONVEYOR_H

#include <stdalign.h>

#include "relation/relation.h"

typedef enum KmSlotState
{
	KM_SLOT_FREE, KM_SLOT_GIVEN, KM_SLOT_FILLED, KM_SLOT_PLACED,
	KM_SLOT_STATES
} KmSlotState;

/* What a slot begins with; alone in its line, since others look at it again and again. */
typedef struct KmSlot
{
	alignas(GK_CACHE_LINE) uint64 turn; /* number * KM_SLOT_STATES + state */
} KmSlot;

/* One process's view of the slots. */
typedef struct KmConveyor
{
	char	   *slots;			/* [nslots] of slot_bytes, in lines of their own */
	Size		slot_bytes;
	uint64		nslots;
} KmConveyor;

static inline void *
km_slot(const KmConveyor *c, uint64 number)
{
	return c->slots + number % c->nslots * c->slot_bytes;
}

static inline bool
km_slot_in(const KmConveyor *c, uint64 number, KmSlotState state)
{
	const KmSlot *slot = km_slot(c, number);

	return __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE) == number * KM_SLOT_STATES + state;
}

static inline void
km_slot_set(const KmConveyor *c, uint64 number, KmSlotState state)
{
	KmSlot	   *slot = km_slot(c, number);

	__atomic_store_n(&slot->turn, number * KM_SLOT_STATES + state, __ATOMIC_RELEASE);
}

/* The number is done: its slot is free for the one that comes next there. */
static inline void
km_slot_free(const KmConveyor *c, uint64 number)
{
	km_slot_set(c, number + c->nslots, KM_SLOT_FREE);
}

/* Is the number done?  Its slot may serve a later one by now. */
static inline bool
km_slot_freed(const KmConveyor *c, uint64 number)
{
	const KmSlot *slot = km_slot(c, number);

	return __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE) >= (number + c->nslots) * KM_SLOT_STATES;
}

/* Before other threads or processes see them. */
static inline void
km_slots_init(const KmConveyor *c)
{
	for (uint64 i = 0; i < c->nslots; i++)
		km_slot_set(c, i, KM_SLOT_FREE);
}

/* Take the next number, if its slot is in that state, for this thread alone. */
static inline bool
km_slot_claim(const KmConveyor *c, uint64 *next, KmSlotState state, uint64 *number)
{
	*number = __atomic_load_n(next, __ATOMIC_RELAXED);
	while (km_slot_in(c, *number, state))
		if (__atomic_compare_exchange_n(next, number, *number + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Memory that begins with a line, all zero. */
static inline void *
km_alloc_lines(Size size)
{
	char	   *memory = palloc0(size + GK_CACHE_LINE);
	void	  **lines = (void **) TYPEALIGN(GK_CACHE_LINE, memory + sizeof(void *));

	lines[-1] = memory;
	return lines;
}

static inline void
km_free_lines(void *lines)
{
	pfree(((void **) lines)[-1]);
}

#endif							/* REL_CONVEYOR_H */
