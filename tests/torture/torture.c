// Fault injection: a library to preload, which makes chosen calls of the C library fail.
//
//   TORTURE_ALLOC=N[+]       allocation N fails (counted from 1); with +, all later ones too
//   TORTURE_WRITE=N[+]HOW    write, sync, truncation or rename N fails. HOW is e (ENOSPC),
//                            i (EINTR), a (EAGAIN) or s (a short write of one byte)
//   TORTURE_CALL=NAME        system call NAME, one of those below, is counted, and
//   TORTURE_AT=N[+]HOW       call N of it fails. HOW as above, but e is EIO
//   TORTURE_NAMED=1          files without a name (O_TMPFILE) are not supported
//   TORTURE_COUNT=FILE       on exit, writes the number of allocations, writes and calls to FILE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    long at;            // call that fails, from 1; 0: none
    bool fails_onwards; // and all later calls
    char how;
    atomic_long n; // calls so far
} Fault;

static Fault allocations, writes, calls;
static const char *call_name; // TORTURE_CALL; NULL: none
static bool is_ready;

static void fault_parse(Fault *f, const char *text) {
    char *end;
    if (!text) return;
    f->at = strtol(text, &end, 10);
    f->fails_onwards = *end == '+';
    f->how = end[f->fails_onwards];
}

static int count_fd = -1; // opened at the start: the sandbox forbids opening files later

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_COUNT");
    if (path) count_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    fault_parse(&allocations, getenv("TORTURE_ALLOC"));
    fault_parse(&writes, getenv("TORTURE_WRITE"));
    fault_parse(&calls, getenv("TORTURE_AT"));
    call_name = getenv("TORTURE_CALL");
    is_ready = true;
}

__attribute__((destructor)) static void end(void) {
    char text[64];
    int n = snprintf(text, sizeof text, "%ld %ld %ld\n", (long)allocations.n, (long)writes.n,
                     (long)calls.n);
    is_ready = false;
    if (count_fd >= 0 && write(count_fd, text, (size_t)n) != n) _exit(99);
}

// Counts a call. True if it must fail.
static bool is_hit(Fault *f) {
    if (!is_ready) return false;
    long n = atomic_fetch_add(&f->n, 1) + 1;
    return f->at && (n == f->at || (f->fails_onwards && n > f->at));
}

static bool allocation_fails(void) {
    if (!is_hit(&allocations)) return false;
    errno = ENOMEM;
    return true;
}

// glibc's internal names: dlsym() would allocate.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n) { return allocation_fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return allocation_fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return allocation_fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) {
    return allocation_fails() ? NULL : __libc_memalign(align, n);
}
int posix_memalign(void **out, size_t align, size_t n) {
    if (allocation_fails()) return ENOMEM;
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

// *n shrinks for a short write.
static bool write_fails(size_t *n) {
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
    if (fd != STDERR_FILENO && write_fails(&n)) return -1;
    return REAL(ssize_t, "write", int, const void *, size_t)(fd, data, n);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
    return write_fails(&n)
               ? -1
               : REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t)(fd, data, n, at);
}
int fsync(int fd) { return write_fails(&(size_t){0}) ? -1 : REAL(int, "fsync", int)(fd); }
int ftruncate64(int fd, off_t n) {
    return write_fails(&(size_t){0}) ? -1 : REAL(int, "ftruncate64", int, off_t)(fd, n);
}
int rename(const char *a, const char *b) {
    return write_fails(&(size_t){0}) ? -1 : REAL(int, "rename", const char *, const char *)(a, b);
}
int link(const char *a, const char *b) {
    return write_fails(&(size_t){0}) ? -1 : REAL(int, "link", const char *, const char *)(a, b);
}

// True if this call of the C library's function `name` must fail.
static bool call_fails(const char *name) {
    if (!call_name || strcmp(call_name, name) || !is_hit(&calls)) return false;
    errno = calls.how == 'i' ? EINTR : calls.how == 'a' ? EAGAIN : EIO;
    return true;
}

int open64(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
    va_end(ap);
    if ((flags & O_TMPFILE) == O_TMPFILE && getenv("TORTURE_NAMED")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (call_fails("open")) return -1;
    return REAL(int, "open64", const char *, int, ...)(path, flags, mode);
}
ssize_t read(int fd, void *data, size_t n) {
    return call_fails("read") ? -1 : REAL(ssize_t, "read", int, void *, size_t)(fd, data, n);
}
ssize_t pread64(int fd, void *data, size_t n, off_t at) {
    return call_fails("pread")
               ? -1
               : REAL(ssize_t, "pread64", int, void *, size_t, off_t)(fd, data, n, at);
}
int close(int fd) { // closes the file even if it fails, as Linux does
    int status = REAL(int, "close", int)(fd);
    return call_fails("close") ? -1 : status;
}
int flock(int fd, int how) {
    return call_fails("flock") ? -1 : REAL(int, "flock", int, int)(fd, how);
}
int fchmod(int fd, mode_t mode) {
    return call_fails("fchmod") ? -1 : REAL(int, "fchmod", int, mode_t)(fd, mode);
}
int access(const char *path, int how) {
    return call_fails("access") ? -1 : REAL(int, "access", const char *, int)(path, how);
}
int stat64(const char *path, struct stat64 *st) {
    return call_fails("stat") ? -1 : REAL(int, "stat64", const char *, struct stat64 *)(path, st);
}
int fstat64(int fd, struct stat64 *st) {
    return call_fails("fstat") ? -1 : REAL(int, "fstat64", int, struct stat64 *)(fd, st);
}
