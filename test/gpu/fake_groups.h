/*
 * fake_groups.h - a device for packed groups without a device: the GPU's own code
 * (gk_gpu_block_lloyd.h), compiled for the CPU, with a team of threads for each group.
 *
 * Define FAKE_TEAM, the threads of a team (a power of two), before including it.
 */
#ifndef FAKE_GROUPS_H
#define FAKE_GROUPS_H

#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_TEAM
#define FAKE_TEAM	1
#endif

#ifdef _OPENMP
#define GK_BLOCK_RANK		omp_get_thread_num()
#define GK_BLOCK_SIZE		omp_get_num_threads()
#define GK_BLOCK_SYNC()	fake_sync()
static void
fake_sync(void)
{
#pragma omp barrier
}
#else
#define GK_BLOCK_RANK		0
#define GK_BLOCK_SIZE		1
#define GK_BLOCK_SYNC()
#endif

#include "core/gk_backend.h"
#include "gpu/gk_gpu_block_lloyd.h"

#define FAKE_SLOTS			3
#define FAKE_SLOT_BYTES		((size_t) 256 << 10)
/* As much as a block's shared memory. */
#define FAKE_GROUP_BYTES	((size_t) 96 << 10)

typedef struct FakePacks
{
	GkGroupSession pub;			/* must be first */
	const GkHost *host;
	const GkCore *core;
	GkGroupBatchTask task;
	/* Of those that play several devices, which may fail. */
	int			number;
	long		left;			/* calls until it does, < 0: never */
	GkStatus	fault;
	char	   *slot[FAKE_SLOTS];
	char	   *memory;
	/* What start() was given: the device works when it is waited for. */
	GkGroupBatchItem groups[FAKE_SLOTS][GK_GROUP_BATCH_GROUPS];
	int			n[FAKE_SLOTS];
} FakePacks;

static void
fake_close(GkGroupSession *session)
{
	FakePacks  *p = (FakePacks *) session;

	if (p == NULL)
		return;
	for (int i = 0; i < FAKE_SLOTS; i++)
		p->core->free(p->host, p->slot[i]);
	p->core->free(p->host, p->memory);
	p->core->free(p->host, p);
}

static GkStatus
fake_open(const GkHost *host, const GkCore *core, const GkGroupBatchTask *task, GkGroupSession **out, GkError *err)
{
	FakePacks  *p = core->alloc(host, 1, sizeof(FakePacks));
	bool		good = p != NULL;

	*out = NULL;
	if (good)
	{
		memset(p, 0, sizeof(*p));
		p->host = host;
		p->core = core;
		p->task = *task;
		p->pub.slots = FAKE_SLOTS;
		p->pub.slot_bytes = FAKE_SLOT_BYTES;
		p->pub.slot = p->slot;
		p->memory = core->alloc(host, FAKE_GROUP_BYTES, 1);
		good = p->memory != NULL;
		for (int i = 0; i < FAKE_SLOTS; i++)
		{
			p->slot[i] = core->alloc(host, FAKE_SLOT_BYTES, 1);
			good &= p->slot[i] != NULL;
		}
	}
	if (!good)
	{
		fake_close((GkGroupSession *) p);
		memset(err, 0, sizeof(*err));
		return err->code = GK_ERR_MEMORY;
	}
	*out = &p->pub;
	return GK_OK;
}

static double
fake_share(const GkGroupSession *session, int64_t n, int k)
{
	const FakePacks *p = (const FakePacks *) session;

	return gk_block_bytes(n, p->task.d, k, 16, FAKE_TEAM) > FAKE_GROUP_BYTES ? 2.0 : n * k * 1e-5;
}

static GkStatus
fake_start(GkGroupSession *session, int slot, const GkGroupBatchItem *groups, int n, size_t read, size_t end, GkError *err)
{
	FakePacks  *p = (FakePacks *) session;

	(void) err;
	memcpy(p->groups[slot], groups, n * sizeof(GkGroupBatchItem));
	p->n[slot] = n;
	memset(p->slot[slot] + read, 0x55, end - read);
	return GK_OK;
}

static GkStatus
fake_wait(GkGroupSession *session, int slot, GkError *err)
{
	FakePacks  *p = (FakePacks *) session;

	(void) err;
	for (int i = 0; i < p->n[slot]; i++)
	{
#ifdef _OPENMP
#pragma omp parallel num_threads(FAKE_TEAM)
#endif
		gk_block_group(&p->task, &p->groups[slot][i], p->slot[slot], p->memory);
	}
	p->n[slot] = 0;
	return GK_OK;
}

static const GkGroupBatchBackend fake_groups = {fake_open, fake_share, fake_start, fake_wait, fake_close};

#endif							/* FAKE_GROUPS_H */
