// Limits of control groups, in folders made here: base/os_linux.c is compiled once more, with its
// files looked for in them.
#include "test.h"
#include "../base/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
static char root[] = "/tmp/llama31-os-XXXXXX";

static FILE *open_below(const char *path, const char *mode) {
    char text[5000];
    snprintf(text, sizeof text, "%s%s", root, path);
    return fopen(text, mode);
}

#define os_open_temporary   below_open_temporary
#define os_link_temporary   below_link_temporary
#define os_set_attribute    below_set_attribute
#define os_get_attribute    below_get_attribute
#define os_sleep_while      below_sleep_while
#define os_cpus             below_cpus
#define os_mtime_ns         below_changed_ns
#define os_wake_all         below_wake_all
#define os_cpu_quota        below_cpu_quota
#define os_memory_available below_memory_available
#define os_enable_amx       below_allows_tiles
#define os_has_dotprod      below_has_dotprod
#define fopen               open_below
#include "../os/os_linux.c"
#undef fopen

static void put(const char *path, const char *text) {
    char name[500];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *at = name + sizeof root; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(name, 0700);
        *at = '/';
    }
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write_all(fd, text, strlen(text)) && !close(fd), "%s", name);
}

static void expect(double cpus, size_t kib) {
    double found = below_cpu_quota();
    CHECK(found == cpus, "%g CPUs, found %g", cpus, found);
    size_t free_kib = below_memory_available() / 1024;
    CHECK(free_kib == kib, "%zu KiB, found %zu", kib, free_kib);
}

// The numbers of a group of version 2 and of the one above it, then of version 1.
static void limits(void) {
    CHECK(mkdtemp(root), "%s", root);
    expect(1e9, SIZE_MAX / 1024);
    put("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
    expect(1e9, 8000);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "4096\n");
    expect(1e9, 8000);
    put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/a/memory.max", "4096000\n");
    put("/sys/fs/cgroup/a/memory.current", "2048000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1024\nactive_file 2048\n");
    expect(1.5, 2003);
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/a/b/memory.max", "1024\n"); // and more is used
    expect(0.5, 0);
    put("/proc/self/cgroup", "3:cpuset:/x\n2:cpuacct,cpu:/c\n1:memory:/gone/m\n0::/\n");
    expect(1e9, 8000);
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "10000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1024000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "512000\n");
    put("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 0\ntotal_active_file 1024\n");
    expect(2, 501);
    char remove[100];
    snprintf(remove, sizeof remove, "rm -r %s", root);
    CHECK(system(remove) == 0, "%s", remove);
}
#else
static void limits(void) { test_skip("this system has no control groups"); }
#endif

void test_os(void) { test_case("os: limits of control groups", limits); }
