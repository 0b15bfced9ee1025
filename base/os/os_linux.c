// Linux. See os.h.
// Order: futexes, CPUs, control groups, energy, files, CPU features.
#include "base/os/os.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// Constants of the kernel, because not every libc has headers for them.
enum {
    FUTEX_WAIT_PRIVATE_OP = 128,
    FUTEX_WAKE_PRIVATE_OP = 129,
    ARCH_REQUEST_XCOMP_PERMISSION = 0x1023, // ARCH_REQ_XCOMP_PERM
    XFEATURE_TILE_DATA = 18,
    HWCAP_DOTPROD = 1 << 20, // HWCAP_ASIMDDP
    HWCAP2_MATMUL = 1 << 13  // HWCAP2_I8MM
};

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE_OP, value, NULL, NULL, 0);
}

void os_wake_all(_Atomic unsigned *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE_OP, 1 << 30, NULL, NULL, 0);
}

// Reads the number after `name` in a file. Returns `absent` if the file, the name or the number is
// missing (a limit may be "max").
static double read_number(const char *directory, const char *file, const char *name,
                          double absent) {
    char path[4200], text[16384];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    FILE *f = fopen(path, "re");
    if (!f) return absent;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strstr(text, name);
    if (at) sscanf(at + strlen(name), "%lf", &absent);
    return absent;
}

// Reads a list of CPUs, for example "0-3,8". Returns an empty set if the file is missing.
static cpu_set_t read_cpus(const char *path) {
    cpu_set_t set = {{0}};
    int first, last;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &first) == 1) {
        if (fscanf(f, "-%d", &last) != 1) last = first;
        for (int i = first; i <= last && i < CPU_SETSIZE; i++) CPU_SET(i, &set);
        if (fgetc(f) != ',') break;
    }
    if (f) fclose(f);
    return set;
}

// A core is identified by the first CPU in its list of SMT siblings. Its speed is 1 or 0 on hybrid
// Intel CPUs, which list their performance cores, elsewhere its capacity or maximum frequency.
// Performance cores have at least two thirds of the highest speed: preferred cores of one type
// differ by less, efficiency cores by more.
OsCpus os_cpus(void) {
    cpu_set_t mask, cores = {{0}};
    cpu_set_t intel_p_cores = read_cpus("/sys/devices/cpu_core/cpus");
    double speeds[CPU_SETSIZE], highest = 0; // of each core; only ratios matter
    OsCpus c = {0};

    if (sched_getaffinity(0, sizeof mask, &mask)) return (OsCpus){1, 1, 1};

    for (int i = 0; i < CPU_SETSIZE; i++) {
        char cpu[64];
        if (!CPU_ISSET(i, &mask)) continue;
        c.n_cpus++;

        // Hardware threads of one core list the same siblings; count only the first.
        snprintf(cpu, sizeof cpu, "/sys/devices/system/cpu/cpu%d", i);
        int core = (int)read_number(cpu, "topology/thread_siblings_list", "", i);
        if (CPU_ISSET(core, &cores)) continue;
        CPU_SET(core, &cores);

        // The core's speed: from Intel's list, ARM's capacity, or the maximum clock rate.
        double speed = CPU_COUNT(&intel_p_cores) ? CPU_ISSET(i, &intel_p_cores)
                                                 : read_number(cpu, "cpu_capacity", "", -1);
        if (speed < 0) speed = read_number(cpu, "cpufreq/cpuinfo_max_freq", "", 1);
        if (speed > highest) highest = speed;
        speeds[c.n_cores++] = speed;
    }

    for (int i = 0; i < c.n_cores; i++) c.n_fast += speeds[i] >= highest * 2 / 3;
    return c;
}

// Control groups (cgroups(7)) exist in two versions with different file names. A limit applies to
// the group and all groups below it.

// Bytes that a group may still allocate. Pages of the file cache count as free: the kernel drops
// them under pressure.
static double group_memory(const char *group, bool is_v1) {
    static const char *const names[2][4] = {
        {"memory.max", "memory.current", "\ninactive_file ", "\nactive_file "},
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file ",
         "\ntotal_active_file "}};
    const char *const *name = names[is_v1];
    double limit = read_number(group, name[0], "", INFINITY);
    if (limit > 1e18) return INFINITY; // version 1: no limit
    double used = read_number(group, name[1], "", INFINITY);
    if (used == INFINITY) return INFINITY;
    double left = limit - used + read_number(group, "memory.stat", name[2], 0) +
                  read_number(group, "memory.stat", name[3], 0);
    return left > 0 ? left : 0;
}

// The CPU time that a group may use, in CPUs: quota divided by period.
static double group_cpus(const char *group, bool is_v1) {
    double quota = read_number(group, is_v1 ? "cpu.cfs_quota_us" : "cpu.max", "", INFINITY);
    if (quota <= 0 || quota == INFINITY) return INFINITY;
    double period = is_v1 ? read_number(group, "cpu.cfs_period_us", "", 0)
                          : read_number(group, "cpu.max", " ", 0);
    return period > 0 ? quota / period : INFINITY;
}

// True if a comma-separated list contains a name.
static bool list_contains(const char *list, const char *name) {
    size_t n = strcspn(list, ",");
    bool is_equal = n == strlen(name) && !strncmp(list, name, n);
    return is_equal || (list[n] && list_contains(list + n + 1, name));
}

// The smallest limit() of all groups that this process belongs to: its group of version 2, its
// group of this controller of version 1, and their ancestors. A line of /proc/self/cgroup is
// NUMBER:CONTROLLER,...:PATH, without controllers for version 2.
static double smallest_group_limit(const char *controller,
                                   double (*limit)(const char *group, bool is_v1)) {
    char line[2048], group[4096];
    double smallest = INFINITY;
    FILE *f = fopen("/proc/self/cgroup", "re");

    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;

        // Version 1 has one hierarchy per controller, version 2 a single one.
        bool is_v1 = controllers[1];
        if (is_v1 && !list_contains(controllers + 1, controller)) continue;
        size_t n = (size_t)snprintf(group, sizeof group, "/sys/fs/cgroup%s%s", is_v1 ? "/" : "",
                                    is_v1 ? controller : "");
        snprintf(group + n, sizeof group - n, "%s", path);

        // Apply the limits of the group and of its ancestors.
        char *end = group + strlen(group);
        while (end && end >= group + n) {
            *end = 0;
            smallest = fmin(smallest, limit(group, is_v1));
            end = strrchr(group, '/');
        }
    }

    if (f) fclose(f);
    return smallest;
}

double os_cpu_quota(void) {
    double cpus = smallest_group_limit("cpu", group_cpus);
    return cpus < 1e9 ? cpus : 1e9;
}

size_t os_memory_available(void) {
    double machine = 1024 * read_number("/proc", "meminfo", "MemAvailable:", INFINITY);
    double groups = smallest_group_limit("memory", group_memory);
    double available = groups < machine ? groups : machine;
    return available < (double)SIZE_MAX ? (size_t)available : SIZE_MAX;
}

size_t os_stack_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

bool os_has_numa(void) { return access("/sys/devices/system/node/node1", F_OK) == 0; }

// Zones of the power capping framework (Documentation/power/powercap in the kernel). Zones of the
// first level are packages, or the whole machine ("psys"); those below them are parts of a package.
OsEnergy os_energy(void) {
    OsEnergy e = {0};

    for (int i = 0; i < OS_MAX_PACKAGES; i++) {
        char zone[64];
        snprintf(zone, sizeof zone, "/sys/class/powercap/intel-rapl:%d", i);
        if (read_number(zone, "name", "package-", -1) < 0) continue;

        // One package without a valid counter leaves the sum unknown.
        double used = read_number(zone, "energy_uj", "", -1);
        double range = read_number(zone, "max_energy_range_uj", "", -1);
        if (!(used >= 0 && used <= range && range < INFINITY)) return (OsEnergy){0};
        e.joules[e.n] = used * 1e-6;
        e.range[e.n++] = range * 1e-6;
    }

    return e;
}

double os_energy_since(const OsEnergy *start) {
    OsEnergy now = os_energy();
    double sum = 0;
    if (!now.n || now.n != start->n) return -1;

    for (int i = 0; i < now.n; i++) {
        double used = now.joules[i] - start->joules[i];
        sum += used < 0 ? used + now.range[i] : used;
    }

    return sum;
}

// The entries of /sys/class/powercap are links to it.
const char *os_energy_directory(void) { return "/sys/devices/virtual/powercap"; }

int64_t os_ctime_ns(int fd, const struct stat *st) {
    enum { FAT = 0x4d44, EXFAT = 0x2011bab0, FUSE = 0x65735546 }; // statfs(2)
    struct statfs fs;
    if (fstatfs(fd, &fs) || fs.f_type == FAT || fs.f_type == EXFAT || fs.f_type == FUSE) return 0;
    return os_time_ns(st->st_ctim);
}

int os_open_temporary(const char *directory, unsigned mode) {
    if (access("/proc/self/fd", X_OK)) return -1; // os_link_temporary() needs it
    return open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t)mode);
}

bool os_link_temporary(int fd, const char *path) {
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

static bool has_stdin(const char *process, const struct stat *st) {
    char path[48];
    struct stat its;
    snprintf(path, sizeof path, "%s/fd/0", process);
    return stat(path, &its) == 0 && its.st_dev == st->st_dev && its.st_ino == st->st_ino;
}

// True if the executable of a process is a shell, or cannot be seen.
static bool is_shell(const char *process) {
    static const char shells[] =
        "sh bash dash zsh ksh ksh93 mksh oksh lksh loksh ash yash posh rbash "
        "busybox toybox fish tcsh csh rc es elvish nu pwsh xonsh";
    char path[48], target[PATH_MAX];
    snprintf(path, sizeof path, "%s/exe", process);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return true;
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    return str_is_one_of(str_of(slash ? slash + 1 : target), shells);
}

// True if standard input, a pipe or socket, ends within a second and without a byte.
static bool is_stdin_empty(void) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (poll(&in, 1, 1000) <= 0) return false;
    return !(in.revents & POLLIN) || recv(STDIN_FILENO, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// Walks up the processes that have the same standard input. A shell that has only been forked, for
// a function or a group of commands, has read no byte; a loop has.
bool os_shell_reads_stdin(const struct stat *st) {
    char process[32];
    bool is_shared = S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode);
    for (long pid = (long)getppid(); pid > 1 && is_shared;) {
        snprintf(process, sizeof process, "/proc/%ld", pid);
        if (!has_stdin(process, st)) return false;
        if (is_shell(process) && read_number(process, "io", "rchar:", 1) > 0)
            return !is_stdin_empty();
        pid = (long)read_number(process, "status", "PPid:", 0);
    }
    return false;
}

bool os_enable_amx(void) {
#ifdef SYS_arch_prctl // x86 only
    return syscall(SYS_arch_prctl, ARCH_REQUEST_XCOMP_PERMISSION, XFEATURE_TILE_DATA) == 0;
#else
    return false;
#endif
}

bool os_has_dotprod(void) { return getauxval(AT_HWCAP) & HWCAP_DOTPROD; }
bool os_has_i8mm(void) { return getauxval(AT_HWCAP2) & HWCAP2_MATMUL; }
