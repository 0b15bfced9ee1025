// FreeBSD and macOS: POSIX, and sysctl for what POSIX does not tell.
#include "os.h"

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

// As the headers of both have it, but for a const; so every system can check this file.
int sysctlbyname(const char *name, void *old, size_t *old_size, const void *new, size_t new_size);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; // some word

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    pthread_mutex_lock(&lock);
    if (*word == value) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void os_wake_all(_Atomic unsigned *word) {
    (void)word;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

double os_cpu_quota(void) { return 1e9; }

int os_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

// A number that the system keeps under this name, of 4 or 8 bytes; 0: it has none.
static uint64_t number_of(const char *name) {
    uint64_t n = 0;
    size_t size = sizeof n;
    if (sysctlbyname(name, &n, &size, NULL, 0)) return 0;
    return size == 4 ? *(uint32_t *)(void *)&n : n;
}

size_t os_memory_available(void) {
    // FreeBSD counts pages that are free or can be given up; macOS tells no such sum, so that all
    // memory has to do.
    uint64_t pages =
        number_of("vm.stats.vm.v_free_count") + number_of("vm.stats.vm.v_inactive_count");
    uint64_t bytes = pages ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : number_of("hw.memsize");
    return bytes && bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
}

int64_t os_mtime_ns(const struct stat *st) {
#if defined(__APPLE__) // which has POSIX's field under an older name
#define st_mtim st_mtimespec
#endif
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

bool os_enable_amx(void) { return false; }
// Every ARM64 Mac has them; FreeBSD keeps them under no name, and then they are not used.
bool os_has_dotprod(void) { return number_of("hw.optional.arm.FEAT_DotProd"); }

int os_open_temporary(const char *folder, unsigned mode) { return (void)folder, (void)mode, -1; }
bool os_link_temporary(int fd, const char *path) { return (void)fd, (void)path, false; }
void os_set_attribute(int fd, const char *text) { (void)fd, (void)text; }
void os_get_attribute(int fd, char *text, size_t size) { (void)fd, (void)size, *text = 0; }
