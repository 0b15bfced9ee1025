#include "os.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

// Of the kernel's interface; not every libc brings its headers.
enum {
    WAIT_PRIVATE = 128,
    WAKE_PRIVATE = 129,
    REQUEST_TILES = 0x1023,
    TILE_DATA = 18,
    HAS_DOTPROD = 1 << 20
};

static const char ATTRIBUTE[] = "user.llama31"; // extended attribute

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    syscall(SYS_futex, word, WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_wake_all(_Atomic unsigned *word) {
    syscall(SYS_futex, word, WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

int os_cpus(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

// The number behind `name` in a file of the system, or `absent`.
static double number_in(const char *path, const char *name, double absent) {
    char text[16384];
    FILE *f = fopen(path, "re");
    if (!f) return absent;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strstr(text, name);
    if (at) sscanf(at + strlen(name), "%lf", &absent); // "max" is none
    return absent;
}

static double number_of(const char *folder, const char *file, const char *name, double absent) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return number_in(path, name, absent);
}

// What a control group, whose folder has files named as in v1 or v2, may still take of memory, and
// the CPUs it may use.
static double group_memory(const char *folder, bool is_v1) {
    static const char *const names[2][4] = {
        {"memory.max", "memory.current", "\ninactive_file ", "\nactive_file "},
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file ",
         "\ntotal_active_file "}};
    const char *const *name = names[is_v1];
    double limit = number_of(folder, name[0], "", INFINITY);
    if (limit > 1e18) return INFINITY; // v1 says "none" with a number
    double used = number_of(folder, name[1], "", INFINITY);
    if (used == INFINITY) return INFINITY;
    double left = limit - used + number_of(folder, "memory.stat", name[2], 0) +
                  number_of(folder, "memory.stat", name[3], 0); // given up when memory is wanted
    return left > 0 ? left : 0;
}

static double group_cpus(const char *folder, bool is_v1) {
    double quota = number_of(folder, is_v1 ? "cpu.cfs_quota_us" : "cpu.max", "", INFINITY);
    if (quota <= 0 || quota == INFINITY) return INFINITY;
    double period = is_v1 ? number_of(folder, "cpu.cfs_period_us", "", 0)
                          : number_of(folder, "cpu.max", " ", 0);
    return period > 0 ? quota / period : INFINITY;
}

// Whether a list with commas has a name.
static bool lists(const char *list, const char *name) {
    size_t n = strcspn(list, ",");
    bool is_it = n == strlen(name) && !strncmp(list, name, n);
    return is_it || (list[n] && lists(list + n + 1, name));
}

// The least of what the groups of this process leave it, v1 (of that controller) or v2, and all
// above them.
static double groups_least(const char *controller, double (*of)(const char *folder, bool is_v1)) {
    char line[2048], folder[4096];
    double least = INFINITY;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { // NUMBER:CONTROLLER,...:PATH
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        bool is_v1 = names[1];
        if (is_v1 && !lists(names + 1, controller)) continue;
        size_t n = (size_t)snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", is_v1 ? "/" : "",
                                    is_v1 ? controller : "");
        snprintf(folder + n, sizeof folder - n, "%s", path);
        for (char *end = folder + strlen(folder); end && end >= folder + n;
             end = strrchr(folder, '/')) {
            *end = 0; // this group, then the one above it
            double left = of(folder, is_v1);
            if (left < least) least = left;
        }
    }
    if (f) fclose(f);
    return least;
}

double os_cpu_quota(void) {
    double cpus = groups_least("cpu", group_cpus);
    return cpus < 1e9 ? cpus : 1e9;
}

size_t os_memory_available(void) {
    double free_bytes = 1024 * number_in("/proc/meminfo", "MemAvailable:", INFINITY),
           left = groups_least("memory", group_memory),
           least = left < free_bytes ? left : free_bytes;
    return least < (double)SIZE_MAX ? (size_t)least : SIZE_MAX;
}

int64_t os_mtime_ns(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

int os_open_temporary(const char *folder, unsigned mode) {
    if (access("/proc/self/fd", X_OK)) return -1; // needed by os_link_temporary
    return open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t)mode);
}

bool os_link_temporary(int fd, const char *path) {
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

void os_set_attribute(int fd, const char *text) {
    if (fsetxattr(fd, ATTRIBUTE, text, strlen(text), 0)) return;
}

void os_get_attribute(int fd, char *text, size_t size) {
    ssize_t n = fgetxattr(fd, ATTRIBUTE, text, size - 1);
    text[n > 0 ? n : 0] = 0;
}

bool os_enable_amx(void) {
#ifdef SYS_arch_prctl // x86 has it
    return syscall(SYS_arch_prctl, REQUEST_TILES, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool os_has_dotprod(void) { return getauxval(AT_HWCAP) & HAS_DOTPROD; }
