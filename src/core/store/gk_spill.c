/*
 * gk_spill.c - reading the spill file.
 *
 * Writing is the host's: it has limits and quotas to keep.  Reading is what every
 * pass waits for, so all threads do it, each a piece of the chunk, straight to
 * where the values are needed.  Meanwhile the system is told what comes next.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/store/gk_store.h"

/* Read by one thread at a time. */
#define PIECE	((size_t) 256 * 1024)

typedef struct Read
{
	int			fd;
	int64_t		at;
	char	   *to;
	size_t		bytes;
	int			error;			/* errno; -1: the file is too short */
} Read;

static void
read_piece(void *arg, int64_t job, int thread)
{
	Read	   *r = arg;
	size_t		from = (size_t) job * PIECE;
	size_t		end = r->bytes - from > PIECE ? from + PIECE : r->bytes;

	(void) thread;
	while (from < end)
	{
		ssize_t		got = pread(r->fd, r->to + from, end - from, (off_t) (r->at + (int64_t) from));

		if (got > 0)
			from += (size_t) got;
		else if (got == 0 || errno != EINTR)
		{
			__atomic_store_n(&r->error, got == 0 ? -1 : errno, __ATOMIC_RELAXED);
			return;
		}
	}
}

GkStatus
gk_spill_read(const GkHost *host, int64_t at, void *to, size_t bytes, GkError *err)
{
	Read		r = {.fd = host->spill_fd(host->ctx),.at = at,.to = to,.bytes = bytes};

	if (r.fd < 0)
		return gk_fail(err, GK_ERR_HOST, "could not read the temporary file");
	if (!gk_parallel_for(host, (int64_t) ((bytes + PIECE - 1) / PIECE), read_piece, &r))
		return GK_STOPPED;
	if (r.error != 0)
		return gk_fail(err, GK_ERR_SPILL, "could not read %zu bytes at %lld of the temporary file: %s",
					   bytes, (long long) at, r.error < 0 ? "it is too short" : strerror(r.error));
	return GK_OK;
}

GkStatus
gk_spill_soon(const GkHost *host, int64_t at, size_t bytes, GkError *err)
{
	int			fd = host->spill_fd(host->ctx);

	if (fd < 0)
		return gk_fail(err, GK_ERR_HOST, "could not read the temporary file");
#ifdef POSIX_FADV_WILLNEED
	/* only a hint: what goes wrong will be seen by the read */
	(void) posix_fadvise(fd, (off_t) at, (off_t) bytes, POSIX_FADV_WILLNEED);
#endif
	return GK_OK;
}
