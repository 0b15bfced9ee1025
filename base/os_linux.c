#include "os.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of the kernel's interface; not every libc brings its headers.
enum {
    WAIT_PRIVATE = 128,
    WAKE_PRIVATE = 129,
    REQUEST_TILES = 0x1023,
    TILE_DATA = 18,
    HAS_DOTPROD = 1 << 20
};

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    syscall(SYS_futex, word, WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_wake_all(_Atomic unsigned *word) {
    syscall(SYS_futex, word, WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

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

// What a control group may still take. `folder` has its files, named as in v1 or v2.
static size_t group_left(const char *folder, int is_v1) {
    static const char *const names[2][4] = {
        {"memory.max", "memory.current", "\ninactive_file ", "\nactive_file "},
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file ",
         "\ntotal_active_file "}};
    const char *const *name = names[is_v1];
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name[0]);
    size_t limit = number_in(path, "", SIZE_MAX);
    snprintf(path, sizeof path, "%s/%s", folder, name[1]);
    size_t used = number_in(path, "", SIZE_MAX);
    if (limit == SIZE_MAX || used > limit) return SIZE_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    return limit - used + number_in(path, name[2], 0) +
           number_in(path, name[3], 0); // given up when memory is wanted
}

// The same for the groups of this process, v1 or v2, and all above them.
static size_t groups_left(void) {
    static const char root[] = "/sys/fs/cgroup";
    char line[2048], folder[4096];
    size_t least = SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *memory = strstr(line, ":memory:"), *path = memory                     ? memory + 8
                                                         : !strncmp(line, "0::", 3) ? line + 3
                                                                                    : NULL;
        if (!path) continue;
        path[strcspn(path, "\n")] = 0;
        size_t n = (size_t)snprintf(folder, sizeof folder, "%s%s", root, memory ? "/memory" : "");
        snprintf(folder + n, sizeof folder - n, "%s", path);
        for (char *end = folder + strlen(folder); end && end >= folder + n;
             end = strrchr(folder, '/')) {
            *end = 0; // this group, then the one above it
            size_t left = group_left(folder, !!memory);
            if (left < least) least = left;
        }
    }
    if (f) fclose(f);
    return least;
}

size_t os_memory_available(void) {
    size_t kib = number_in("/proc/meminfo", "MemAvailable:", SIZE_MAX);
    size_t available = kib < SIZE_MAX / 1024 ? kib * 1024 : SIZE_MAX, left = groups_left();
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
