/*
 * Rows by key (gk_key_partition.h): every row is in the group of its key, in the order of
 * the rows, whatever the keys and the width of the values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/groups/gk_key_partition.h"
#include "gk_test.h"
#include "gk_testhost.h"

#define D	3

static int64_t
key_of(int64_t i, int kind)
{
	switch (kind)
	{
		case 0:
			return i % 1000;
		case 1:
			return -(i * i % 77);
		case 2:
			return 5;
		case 3:
			return (i % 2 ? 1 : -1) * (((int64_t) 1 << 53) - 1 - i % 3);
		default:
			return i << 20;
	}
}

/* Row number, so that the order can be seen; from row 3,000 on no float. */
static double
value_of(int64_t i, int j)
{
	return j == 0 ? (double) i : i >= 3000 ? i + 0.1 * j : i * 0.5;
}

static GkStatus
fill(GkKeyPartition *k, int64_t n, int kind, GkError *err)
{
	static double memory[8 * GK_BATCH_ROWS];
	GkBatch		b;
	GkStatus	st = GK_OK;

	gk_batch_init(&b, memory, D + 1, 0, 1000);
	for (int64_t i = 0; i < n && st == GK_OK; i++)
	{
		gk_batch_put(&b, 0, (double) key_of(i, kind));
		for (int j = 0; j < D; j++)
			gk_batch_put(&b, j + 1, value_of(i, j));
		b.rows++;
		if (b.rows == 1000 || i == n - 1)
		{
			st = gk_key_partition_add(k, &b, err);
			b.rows = 0;
		}
	}
	return st;
}

/* How many rows are where they should be; all groups of all parts. */
static int64_t
right_rows(const TestHost *host, const GkKeyPartition *k, int kind, int64_t *groups, int *floats)
{
	int64_t		right = 0;

	*groups = *floats = 0;
	for (int part = 0; part < GK_KEY_PARTITION_PARTS; part++)
	{
		GkKeyGroups g;
		GkError		err;

		if (gk_key_partition_groups(k, part, &host->host, &g, &err) != GK_OK)
			return -1;
		*groups += g.n;
		*floats += g.n > 0 && g.floats;
		for (int i = 0; i < g.n; i++)
		{
			double		last = -1.0;

			for (int64_t r = g.start[i]; r < g.start[i + 1]; r++)
			{
				double		x[D];
				bool		good;

				for (int j = 0; j < D; j++)
					x[j] = g.floats ? ((float *) g.rows)[r * D + j] : ((double *) g.rows)[r * D + j];
				good = x[0] > last && key_of((int64_t) x[0], kind) == g.key[i];

				for (int j = 1; j < D; j++)
					good &= x[j] == value_of((int64_t) x[0], j);
				right += good;
				last = x[0];
			}
		}
		gk_key_partition_groups_free(&host->host, &g);
	}
	return right;
}

int
main(void)
{
	static const int64_t expect[] = {1000, 24, 1, 6, 20000};
	TestHost	host;
	GkKeyPartition *k;
	GkError		err;
	int64_t		groups;
	int			floats;

	for (int kind = 0; kind < 5; kind++)
	{
		bool		good;

		test_host_init(&host, 1);
		good = gk_key_partition_create(&host.host, D, &k, &err) == GK_OK && fill(k, 20000, kind, &err) == GK_OK &&
			right_rows(&host, k, kind, &groups, &floats) == 20000 && groups == expect[kind] && floats == 0 &&
			gk_key_partition_bytes(k) >= 20000 * (D + 1) * sizeof(float);
		ok(good, "keys of kind %d: %lld groups, all rows in theirs", kind, (long long) groups);
		gk_key_partition_free(k);
		good = gk_key_partition_create(&host.host, D, &k, &err) == GK_OK && fill(k, 3000, kind, &err) == GK_OK &&
			right_rows(&host, k, kind, &groups, &floats) == 3000 && floats > 0;
		ok(good, "rows that are floats stay floats (%d parts)", floats);
		gk_key_partition_free(k);
		ok(host.live == 0, "nothing is left behind");
		test_host_end(&host);
	}

	test_host_init(&host, 1);
	ok(gk_key_partition_create(&host.host, D, &k, &err) == GK_OK && right_rows(&host, k, 0, &groups, &floats) == 0 && groups == 0,
	   "no rows, no groups");
	{
		static double memory[8 * 16];
		static const double keys[] = {0x1p53, -0x1p53, 0x1p63, 0x1p60 + 0x1p20};
		int			refused = 0;
		GkBatch		b;

		for (int i = 0; i < 4; i++)
		{
			gk_batch_init(&b, memory, D + 1, 0, 16);
			for (int j = 0; j <= D; j++)
				gk_batch_put(&b, j, j == 0 ? keys[i] : 1.0);
			b.rows = 1;
			refused += gk_key_partition_add(k, &b, &err) == GK_ERR_LIMIT;
		}
		ok(refused == 4, "keys that a double may not have exactly are refused");
	}
	gk_key_partition_free(k);
	test_host_end(&host);

	{
		int64_t		nth = 1;
		int			bad = 0;

		for (bool more = true; more; nth++)
		{
			GkStatus	st;

			test_host_init(&host, 1);
			host.fail_at = nth;
			st = gk_key_partition_create(&host.host, D, &k, &err);
			if (st == GK_OK)
				st = fill(k, 4000, 1, &err);
			for (int part = 0; st == GK_OK && part < GK_KEY_PARTITION_PARTS; part++)
			{
				GkKeyGroups g;

				st = gk_key_partition_groups(k, part, &host.host, &g, &err);
				gk_key_partition_groups_free(&host.host, &g);
			}
			gk_key_partition_free(k);
			bad += host.live != 0 || (st != GK_OK && st != GK_ERR_MEMORY);
			more = st != GK_OK;
			test_host_end(&host);
		}
		ok(bad == 0 && nth > 10, "failing allocations leave nothing behind (%d bad of %lld)", bad, (long long) nth - 1);
	}
	return done_testing();
}
