// CPUs, memory nodes, energy and limits of control groups; full pipes. base/os/os_linux.c is
// compiled a second time with other names. Its fopen() and access() work below a temporary
// directory, and the test sets the affinity mask.
#include "tests/test.h"
#include "base/files.h"

#include <fcntl.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
static char root[] = "/tmp/llama31-os-XXXXXX";

static FILE *fopen_below(const char *path, const char *mode) {
    char text[5000];
    snprintf(text, sizeof text, "%s%s", root, path);
    return fopen(text, mode);
}

static int access_below(const char *path, int mode) {
    char text[5000];
    snprintf(text, sizeof text, "%s%s", root, path);
    return access(text, mode);
}

// A set of CPUs: bit i is CPU i.
static unsigned affinity;

static int affinity_of_test(int process, size_t size, cpu_set_t *set) {
    CPU_ZERO(set);
    for (int i = 0; i < 32; i++)
        if (affinity >> i & 1) CPU_SET(i, set);
    return process || size != sizeof *set;
}

#define os_open_temporary    below_open_temporary
#define os_link_temporary    below_link_temporary
#define os_sleep_while       below_sleep_while
#define os_cpus              below_cpus
#define os_has_numa          below_has_numa
#define os_stack_limit       below_stack_limit
#define os_ctime_ns          below_ctime_ns
#define os_wake_all          below_wake_all
#define os_cpu_quota         below_cpu_quota
#define os_memory_available  below_memory_available
#define os_enable_amx        below_enable_amx
#define os_shell_reads_stdin below_shell_reads_stdin
#define os_has_dotprod       below_has_dotprod
#define os_has_i8mm          below_has_i8mm
#define os_energy            below_energy
#define os_energy_since      below_energy_since
#define os_energy_directory  below_energy_directory
#define fopen                fopen_below
#define access               access_below
#define sched_getaffinity    affinity_of_test
#include "base/os/os_linux.c"
#undef fopen
#undef access

static void write_text(const char *path, const char *text) {
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

// The next test has a directory of its own.
static void remove_root(void) {
    char remove[100];
    snprintf(remove, sizeof remove, "rm -r %s", root);
    CHECK(system(remove) == 0, "%s", remove);
    memcpy(strrchr(root, '-') + 1, "XXXXXX", 6);
}

static void expect_limits(double cpus, size_t kib) {
    double found = below_cpu_quota();
    CHECK(found == cpus, "%g CPUs, found %g", cpus, found);
    size_t free_kib = below_memory_available() / 1024;
    CHECK(free_kib == kib, "%zu KiB, found %zu", kib, free_kib);
}

// A group of version 2 and its parent, then groups of version 1.
static void group_limits(void) {
    CHECK(mkdtemp(root), "%s", root);

    // No limits, then the memory of the machine.
    expect_limits(1e9, SIZE_MAX / 1024);
    write_text("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
    expect_limits(1e9, 8000);

    // A group without limits, then limits of its parent. Cached files count as available memory.
    write_text("/proc/self/cgroup", "0::/a/b\n");
    write_text("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    write_text("/sys/fs/cgroup/a/b/memory.max", "max\n");
    write_text("/sys/fs/cgroup/a/b/memory.current", "4096\n");
    expect_limits(1e9, 8000);

    write_text("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    write_text("/sys/fs/cgroup/a/memory.max", "4096000\n");
    write_text("/sys/fs/cgroup/a/memory.current", "2048000\n");
    write_text("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1024\nactive_file 2048\n");
    expect_limits(1.5, 2003);

    // The limits of the group itself are lower.
    write_text("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    write_text("/sys/fs/cgroup/a/b/memory.max", "1024\n"); // less than is used
    expect_limits(0.5, 0);

    // Groups of version 1, without files and with files.
    write_text("/proc/self/cgroup", "3:cpuset:/x\n2:cpuacct,cpu:/c\n1:memory:/gone/m\n0::/\n");
    expect_limits(1e9, 8000);

    write_text("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    write_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
    write_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "10000\n");
    write_text("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1024000\n");
    write_text("/sys/fs/cgroup/memory/memory.usage_in_bytes", "512000\n");
    write_text("/sys/fs/cgroup/memory/memory.stat",
               "total_inactive_file 0\ntotal_active_file 1024\n");
    expect_limits(2, 501);

    remove_root();
}

static void memory_nodes(void) {
    CHECK(mkdtemp(root), "%s", root);
    write_text("/sys/devices/system/node/node0/cpulist", "0-1\n");
    CHECK(!below_has_numa(), "one node");
    write_text("/sys/devices/system/node/node1/cpulist", "2-3\n");
    CHECK(below_has_numa(), "two nodes");
    remove_root();
}

static void expect_cpus(unsigned mask, int n_cpus, int n_cores, int n_fast) {
    affinity = mask;
    OsCpus c = below_cpus();
    CHECK(c.n_cpus == n_cpus && c.n_cores == n_cores && c.n_fast == n_fast,
          "mask %x: %d CPUs, %d cores, %d performance cores, found %d, %d, %d", mask, n_cpus,
          n_cores, n_fast, c.n_cpus, c.n_cores, c.n_fast);
}

// A property of the CPUs [first, last].
static void write_cpus(int first, int last, const char *name, const char *text) {
    char path[100];
    for (int i = first; i <= last; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", i, name);
        write_text(path, text);
    }
}

// Four cores with two SMT siblings and four without. Their speeds come from the maximum frequency,
// the capacity, and Intel's list of performance cores, in ascending order of precedence.
static void cores(void) {
    static const char *const siblings[] = {"0-1\n", "2,8\n", "3-4\n", "5,7\n"};

    CHECK(mkdtemp(root), "%s", root);
    expect_cpus(0xfff, 12, 12, 12);

    // Siblings are 0 and 1, 2 and 8, 3 and 4, 5 and 7. The other CPUs have none.
    write_cpus(0, 1, "topology/thread_siblings_list", siblings[0]);
    write_cpus(2, 2, "topology/thread_siblings_list", siblings[1]);
    write_cpus(8, 8, "topology/thread_siblings_list", siblings[1]);
    write_cpus(3, 4, "topology/thread_siblings_list", siblings[2]);
    write_cpus(5, 5, "topology/thread_siblings_list", siblings[3]);
    write_cpus(7, 7, "topology/thread_siblings_list", siblings[3]);
    write_cpus(6, 6, "topology/thread_siblings_list", "6\n");
    expect_cpus(0xfff, 12, 8, 8);
    expect_cpus(0x102, 2, 2, 2); // siblings of CPUs outside the mask
    expect_cpus(0x1, 1, 1, 1);

    // Frequencies: the performance cores are those of 0 to 8.
    write_cpus(0, 8, "cpufreq/cpuinfo_max_freq", "5000000\n");
    write_cpus(2, 2, "cpufreq/cpuinfo_max_freq", "5400000\n"); // a preferred core
    write_cpus(9, 11, "cpufreq/cpuinfo_max_freq", "3300000\n");
    expect_cpus(0xfff, 12, 8, 5);
    expect_cpus(0xe00, 3, 3, 3); // efficiency cores alone

    // Capacities.
    write_cpus(0, 11, "cpu_capacity", "1024\n");
    expect_cpus(0xfff, 12, 8, 8);
    write_cpus(6, 6, "cpu_capacity", "400\n");
    expect_cpus(0xfff, 12, 8, 7);

    // Intel's list.
    write_text("/sys/devices/cpu_core/cpus", "0-3,8\n");
    expect_cpus(0xfff, 12, 8, 3);

    // Files that cannot be parsed are ignored.
    write_text("/sys/devices/cpu_core/cpus", "\n");
    write_cpus(0, 11, "topology/thread_siblings_list", "?\n");
    expect_cpus(0xfff, 12, 12, 11);

    remove_root();
}

static void write_zone(int i, const char *name, const char *used, const char *range) {
    char path[100];
    static const char zone[] = "/sys/class/powercap/intel-rapl:";
    snprintf(path, sizeof path, "%s%d/name", zone, i);
    write_text(path, name);
    snprintf(path, sizeof path, "%s%d/energy_uj", zone, i);
    write_text(path, used);
    snprintf(path, sizeof path, "%s%d/max_energy_range_uj", zone, i);
    write_text(path, range);
}

static void expect_energy(const OsEnergy *start, double joules) {
    double found = below_energy_since(start);
    CHECK(fabs(found - joules) < 1e-6, "%g J, found %g", joules, found);
}

// Two packages, and zones that are not added to them: the whole machine and its memory.
static void energy(void) {
    static const char *const invalid[] = {"", "-1\n", "nan\n", "inf\n", "262143328851\n", "max\n"};
    static const char range[] = "262143328850\n";

    CHECK(mkdtemp(root), "%s", root);
    OsEnergy e = below_energy();
    CHECK(e.n == 0, "no counters, found %d", e.n);
    expect_energy(&e, -1);

    write_zone(0, "package-0\n", "262143000000\n", range);
    write_zone(1, "psys\n", "5\n", range);
    write_zone(2, "package-1\n", "1000000\n", range);
    write_zone(3, "dram\n", "7\n", range);
    e = below_energy();
    CHECK(e.n == 2, "2 packages, found %d", e.n);
    expect_energy(&e, 0);

    // The second counter advances by 2.5 J, then the first one by 1 J: it wraps around.
    write_zone(2, "package-1\n", "3500000\n", range);
    expect_energy(&e, 2.5);
    write_zone(0, "package-0\n", "671150\n", range);
    expect_energy(&e, 3.5);

    // Counters that are no number or beyond their range, and a package that vanishes.
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        write_zone(2, "package-1\n", invalid[i], range);
        expect_energy(&e, -1);
        CHECK(below_energy().n == 0, "energy_uj %s", invalid[i]);
    }
    write_zone(2, "package-1\n", "3500000\n", "0\n");
    expect_energy(&e, -1);
    write_zone(2, "core\n", "3500000\n", range);
    expect_energy(&e, -1);

    // As many packages as there is room for.
    for (int i = 0; i <= OS_MAX_PACKAGES; i++) write_zone(i, "package-0\n", "1\n", range);
    CHECK(below_energy().n == OS_MAX_PACKAGES, "found %d", below_energy().n);

    remove_root();
}

// A full pipe in non-blocking mode is waited for.
static void full_pipe(void) {
    enum { N = 1 << 18 }; // bytes; a pipe holds 64 KiB
    static char sent[N], received[N];
    int fd[2], status = -1, n_waiting = 0; // -1: not ended
    size_t n = 0;
    ssize_t k;

    for (int i = 0; i < N; i++) sent[i] = (char)(i * 7 >> 3);
    if (pipe2(fd, O_CLOEXEC)) die_file("pipe");
    fcntl(fd[1], F_SETFL, O_NONBLOCK);

    pid_t child = fork();
    if (child == 0) _exit(!write_all(fd[1], sent, N));
    close(fd[1]);

    // Read only when the pipe is full.
    int capacity = fcntl(fd[0], F_GETPIPE_SZ);
    while (n_waiting < capacity && !waitpid(child, &status, WNOHANG))
        CHECK(ioctl(fd[0], FIONREAD, &n_waiting) == 0, "FIONREAD");
    while (n < N && (k = read(fd[0], received + n, N - n)) > 0) n += (size_t)k;
    if (!WIFEXITED(status)) waitpid(child, &status, 0);

    CHECK(n == N && !memcmp(sent, received, N) && status == 0, "%zu bytes, status %d", n, status);
    close(fd[0]);
}
#else
static void full_pipe(void) { test_skip("no F_GETPIPE_SZ on this system"); }
static void group_limits(void) { test_skip("no control groups on this system"); }
static void memory_nodes(void) { test_skip("no /sys on this system"); }
static void cores(void) { test_skip("no /sys on this system"); }
static void energy(void) { test_skip("no /sys on this system"); }
#endif

void test_os(void) {
    test_case("os: limits of control groups", group_limits);
    test_case("os: cores", cores);
    test_case("os: memory nodes", memory_nodes);
    test_case("os: energy counters", energy);
    test_case("os: a full pipe is waited for", full_pipe);
}
