/*
 * fail_nth.c - fails the n-th call of the system that a process of a server makes.
 *
 * Loaded into a server by LD_PRELOAD; GK_FAIL_NTH names a file that the test maps, too, and
 * writes into whom to fail, at which call, of which kind.  So every allocation is reached,
 * PostgreSQL's, the engine's and libgomp's, and no build of its own is needed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEMORY	1
#define OURS	16				/* the same, but only where gkmeans or libgomp is among the callers */
#define THREAD	2
#define WRITE	4				/* to temporary files */
#define READ	8				/* from them */

/* allocations.py knows the offsets. */
typedef struct Control
{
	volatile int64_t pid;		/* 0: nobody; -1: processes that began after `generation` was raised */
	volatile int64_t kinds;
	volatile int64_t fail_at;	/* from 1 on */
	volatile int64_t last;		/* the last one that fails */
	volatile int64_t calls;
	volatile int64_t failed;
	volatile int64_t generation;
} Control;

static Control *control;
static int64_t born;			/* the generation that forked this process */
static int	(*real_thread) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);
static pid_t (*real_fork) (void);

/* From glibc: what malloc() and the others are without us. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

__attribute__((constructor))
static void
begin(void)
{
	const char *path = getenv("GK_FAIL_NTH");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *at = fd < 0 ? MAP_FAILED : (void *) syscall(SYS_mmap, NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	real_thread = (int (*) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *)) dlsym(RTLD_NEXT, "pthread_create");
	real_fork = (pid_t (*) (void)) dlsym(RTLD_NEXT, "fork");
	if (fd >= 0)
		close(fd);
	if (at != MAP_FAILED)
		control = at;
}

static int
fails(int kind)
{
	int64_t		n;

	if (control == NULL || control->pid == 0 || !(control->kinds & kind))
		return 0;
	if (control->pid == -1 ? born != control->generation : control->pid != getpid())
		return 0;
	n = __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
	if (n < control->fail_at || n > control->last)
		return 0;
	__atomic_add_fetch(&control->failed, 1, __ATOMIC_RELAXED);
	return 1;
}

/* Does gkmeans, or libgomp, call? */
static int
by_us(void)
{
	static __thread int looking;	/* to look may ask for memory */
	void	   *frame[40];
	int			found = 0;
	int			n;

	if (looking)
		return 0;
	looking = 1;
	n = backtrace(frame, 40);
	for (int i = 0; i < n && !found; i++)
	{
		struct dl_find_object o;	/* dladdr() would look through all symbols */

		found = _dl_find_object(frame[i], &o) == 0 &&
			(strstr(o.dlfo_link_map->l_name, "gkmeans.so") != NULL || strstr(o.dlfo_link_map->l_name, "libgomp") != NULL);
	}
	looking = 0;
	return found;
}

static int
no_memory(void)
{
	if (control == NULL || control->pid == 0 || !(control->kinds & (MEMORY | OURS)))
		return 0;
	if ((control->kinds & OURS) && !by_us())
		return 0;
	if (!fails(MEMORY | OURS))
		return 0;
	errno = ENOMEM;
	return 1;
}

void *
malloc(size_t size)
{
	return no_memory() ? NULL : __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	return no_memory() ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *p, size_t size)
{
	return no_memory() ? NULL : __libc_realloc(p, size);
}

void *
memalign(size_t alignment, size_t size)
{
	return no_memory() ? NULL : __libc_memalign(alignment, size);
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	return no_memory() ? NULL : __libc_memalign(alignment, size);
}

int
posix_memalign(void **p, size_t alignment, size_t size)
{
	void	   *got = no_memory() ? NULL : __libc_memalign(alignment, size);

	if (got == NULL)
		return ENOMEM;
	*p = got;
	return 0;
}

void *
mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	if (no_memory())
		return MAP_FAILED;
	return (void *) syscall(SYS_mmap, at, size, prot, flags, fd, offset);
}

void	   *mmap64(void *, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

int
pthread_create(pthread_t *t, const pthread_attr_t * attr, void *(*fn) (void *), void *arg)
{
	return fails(THREAD) ? EAGAIN : real_thread(t, attr, fn, arg);
}

pid_t
fork(void)
{
	pid_t		pid = real_fork();

	if (pid == 0 && control != NULL)
		born = control->generation;
	return pid;
}

/* ---- temporary files ---- */

static int
temporary(int fd)
{
	char		link[40];
	char		name[256];
	ssize_t		len;

	if (control == NULL || control->pid == 0 || !(control->kinds & (READ | WRITE)))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	if (len <= 0)
		return 0;
	name[len] = '\0';
	return strstr(name, "pgsql_tmp") != NULL;
}

ssize_t
pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
	if (temporary(fd) && fails(WRITE))
	{
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_pwrite64, fd, from, bytes, at);
}

ssize_t
pwrite(int fd, const void *from, size_t bytes, off_t at)
{
	return pwrite64(fd, from, bytes, at);
}

ssize_t
pread64(int fd, void *to, size_t bytes, off64_t at)
{
	if (temporary(fd) && fails(READ))
	{
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pread64, fd, to, bytes, at);
}

ssize_t
pread(int fd, void *to, size_t bytes, off_t at)
{
	return pread64(fd, to, bytes, at);
}
