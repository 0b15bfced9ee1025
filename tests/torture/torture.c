// A library to preload: it lets chosen calls of the C library fail, as a machine short of memory or
// disk does.
//
//   TORTURE_ALLOC=N[+]     the N-th allocation fails (from 1); with + all from there on
//   TORTURE_WRITE=N[+]HOW  the N-th write, sync, truncation or rename: e ENOSPC, i EINTR (then as
//   usual), s one byte only,
//                          a EAGAIN (then as usual)
//   TORTURE_COUNT=FILE     at the end, the number of allocations and of writes
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    long at;
    bool goes_on;
    char how;
    atomic_long n;
} Plan;

static Plan allocs, writes;
static bool is_ready;

static void plan_read(Plan *p, const char *text) {
    char *end;
    if (!text) return;
    p->at = strtol(text, &end, 10);
    p->goes_on = *end == '+';
    p->how = end[p->goes_on];
}

static int count_fd = -1; // opened at the start: the program may give up opening files

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_COUNT");
    if (path) count_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    plan_read(&allocs, getenv("TORTURE_ALLOC"));
    plan_read(&writes, getenv("TORTURE_WRITE"));
    is_ready = true;
}

__attribute__((destructor)) static void end(void) {
    char text[64];
    int n = snprintf(text, sizeof text, "%ld %ld\n", (long)allocs.n, (long)writes.n);
    is_ready = false;
    if (count_fd >= 0 && write(count_fd, text, (size_t)n) != n) _exit(99);
}

static bool is_hit(Plan *p) {
    if (!is_ready) return false;
    long n = atomic_fetch_add(&p->n, 1) + 1;
    return p->at && (n == p->at || (p->goes_on && n > p->at));
}

static bool is_short(void) {
    if (!is_hit(&allocs)) return false;
    errno = ENOMEM;
    return true;
}

// The C library's own, under their internal names: to look them up would need memory.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n) { return is_short() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return is_short() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return is_short() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) {
    return is_short() ? NULL : __libc_memalign(align, n);
}
int posix_memalign(void **out, size_t align, size_t n) {
    if (is_short()) return ENOMEM;
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

// Whether this call fails; *n may shrink to a short write.
static bool fails(size_t *n) {
    if (!is_hit(&writes)) return false;
    if (writes.how == 's') {
        *n = *n > 1;
        return false;
    }
    errno = writes.how == 'i' ? EINTR : writes.how == 'a' ? EAGAIN : ENOSPC;
    return true;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *data, size_t n) {
    if (fd != STDERR_FILENO && fails(&n)) return -1;
    return REAL(ssize_t, "write", int, const void *, size_t)(fd, data, n);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
    return fails(&n) ? -1
                     : REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t)(fd, data, n, at);
}
int fsync(int fd) { return fails(&(size_t){0}) ? -1 : REAL(int, "fsync", int)(fd); }
int ftruncate64(int fd, off_t n) {
    return fails(&(size_t){0}) ? -1 : REAL(int, "ftruncate64", int, off_t)(fd, n);
}
int rename(const char *a, const char *b) {
    return fails(&(size_t){0}) ? -1 : REAL(int, "rename", const char *, const char *)(a, b);
}
int link(const char *a, const char *b) {
    return fails(&(size_t){0}) ? -1 : REAL(int, "link", const char *, const char *)(a, b);
}
