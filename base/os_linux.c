#include "os.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of the kernel's interface; not every libc brings its headers.
enum { WAIT_PRIVATE = 128, WAKE_PRIVATE = 129, REQUEST_TILES = 0x1023, TILE_DATA = 18, HAS_DOTPROD = 1 << 20 };

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    syscall(SYS_futex, word, WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_wake_all(_Atomic unsigned *word) { syscall(SYS_futex, word, WAKE_PRIVATE, 1 << 30, NULL, NULL, 0); }

double os_cpu_quota(void) {
    double quota, period = 100000;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        int n = fscanf(f, "%lf %lf", &quota, &period); // "max 100000" reads nothing
        fclose(f);
        return n == 2 && quota > 0 && period > 0 ? quota / period : 1e9;
    }
    f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
    if (!f) return 1e9;
    int n = fscanf(f, "%lf", &quota);
    fclose(f);
    return n == 1 && quota > 0 ? quota / period : 1e9;
}

// The number behind `name` in a file of the system, or `absent`.
static size_t number_in(const char *path, const char *name, size_t absent) {
    char text[16384];
    unsigned long long n = absent;
    FILE *f = fopen(path, "re");
    if (!f) return absent;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strstr(text, name);
    if (at) sscanf(at + strlen(name), "%llu", &n);
    return n < SIZE_MAX ? (size_t)n : SIZE_MAX;
}

size_t os_memory_available(void) {
    size_t kib = number_in("/proc/meminfo", "MemAvailable:", SIZE_MAX);
    size_t available = kib < SIZE_MAX / 1024 ? kib * 1024 : SIZE_MAX;
    size_t limit = number_in("/sys/fs/cgroup/memory.max", "", SIZE_MAX);
    size_t used = number_in("/sys/fs/cgroup/memory.current", "", SIZE_MAX);
    if (limit == SIZE_MAX || used > limit) return available;
    size_t left = limit - used + number_in("/sys/fs/cgroup/memory.stat", "\ninactive_file ", 0) +
                  number_in("/sys/fs/cgroup/memory.stat", "\nactive_file ", 0); // given up when memory is wanted
    return left < available ? left : available;
}

bool os_allows_tiles(void) {
#ifdef SYS_arch_prctl // x86 has it
    return syscall(SYS_arch_prctl, REQUEST_TILES, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool os_has_dotprod(void) { return getauxval(AT_HWCAP) & HAS_DOTPROD; }
