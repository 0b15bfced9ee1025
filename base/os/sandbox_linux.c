// The Linux sandbox has two layers. A seccomp filter for all threads allows the system calls of a
// list; all others fail with EPERM. A Landlock ruleset allows the files below some paths, for this
// thread and the threads that it starts. Without paths, the filter allows no call that opens files,
// so files are also protected on kernels without Landlock.
//
// The filter is a classic BPF program that the kernel runs on every system call:
//
//   head    checks the architecture, then the calls that are allowed only with certain arguments
//           (mmap, clone, ioctl, tgkill ...)
//   calls   the calls that are allowed, in the order of the lists below
//   end     refuses all others
//
// base/os/platform.mk defines SECCOMP_ARCH, the architecture that the call numbers belong to.
#include "base/os/sandbox.h"
#include "base/os/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// BPF instructions. LOAD reads a field of struct seccomp_data into the accumulator; CHECK skips n
// instructions unless the comparison holds.
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define RETURN(action)        BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(error)         RETURN(SECCOMP_RET_ERRNO | (error))
#define CHECK(test, value, n) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), 0, (n))
// Returns one of two results for a call: `if_holds` if the low 32 bits of an argument pass a test.
#define CHECK_ARG(call, arg, test, value, if_holds, otherwise)                                     \
    CHECK(BPF_JEQ, SYS_##call, 4), LOAD(args[arg]), CHECK(test, value, 1), if_holds, otherwise
#define ALLOW RETURN(SECCOMP_RET_ALLOW)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the filter loads the low half of 64-bit arguments");

static const struct sock_filter head[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SECCOMP_ARCH, 1, 0),
    REFUSE(EPERM),
    LOAD(nr),
    // memory, unless it is executable
    CHECK_ARG(mmap, 2, BPF_JSET, PROT_EXEC, REFUSE(EPERM), ALLOW),
    CHECK_ARG(mprotect, 2, BPF_JSET, PROT_EXEC, REFUSE(EPERM), ALLOW),
    // threads, but no processes. clone3 passes its flags in memory, which a filter cannot read;
    // after ENOSYS, libc falls back to clone.
    CHECK_ARG(clone, 0, BPF_JSET, CLONE_THREAD, ALLOW, REFUSE(EPERM)),
    CHECK(BPF_JEQ, SYS_clone3, 1),
    REFUSE(ENOSYS),
    CHECK(BPF_JEQ, SYS_ioctl, 8),
    LOAD(args[1]),
    CHECK(BPF_JEQ, TCSETS, 1), // tcsetattr() of the line editor
    ALLOW,
    CHECK(BPF_JEQ, TCGETS, 1), // isatty()
    ALLOW,
    CHECK(BPF_JEQ, TIOCGWINSZ, 1), // width of the terminal
    ALLOW,
    REFUSE(ENOTTY),
    // flags of descriptors. The other commands include F_SETOWN and F_SETSIG, which send signals to
    // other processes; O_ASYNC of a terminal sends SIGIO to its foreground processes.
    CHECK(BPF_JEQ, SYS_fcntl, 12),
    LOAD(args[1]),
    CHECK(BPF_JEQ, F_GETFD, 1),
    ALLOW,
    CHECK(BPF_JEQ, F_SETFD, 1),
    ALLOW,
    CHECK(BPF_JEQ, F_GETFL, 1),
    ALLOW,
    CHECK(BPF_JEQ, F_SETFL, 2),
    LOAD(args[2]),
    CHECK(BPF_JSET, O_ASYNC, 1),
    REFUSE(EPERM),
    ALLOW,
};

// Allowed while there are paths: the limits of this process, and the second call of
// sandbox_enter().
static const struct sock_filter head_with_paths[] = {
    CHECK_ARG(prlimit64, 0, BPF_JEQ, 0, ALLOW, REFUSE(EPERM)),
    CHECK_ARG(prctl, 0, BPF_JEQ, PR_SET_NO_NEW_PRIVS, ALLOW, REFUSE(EPERM)),
};

static const int allowed[] = {
    // generation: threads, input and output, time
    SYS_futex, SYS_read, SYS_write, SYS_sched_yield, SYS_clock_gettime, SYS_madvise, SYS_fstat,
    SYS_newfstatat, // fstat() of glibc
    SYS_lseek, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_ppoll, SYS_nanosleep,
    SYS_clock_nanosleep,
#ifdef SYS_poll
    SYS_poll, // not on ARM64
#endif
    // memory and threads
    SYS_munmap, SYS_mremap, SYS_brk, SYS_getrandom, SYS_set_robust_list, SYS_rseq,
    SYS_sched_getaffinity, SYS_membarrier, SYS_getpid, SYS_gettid,
    SYS_sysinfo, // qsort() of glibc
    // open files
    SYS_close, SYS_ftruncate, SYS_fsync, SYS_flock,
    // signals and exit
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
    SYS_exit, SYS_exit_group};

// Allowed while there are paths; Landlock decides which files these calls reach.
static const int allowed_with_paths[] = {
    SYS_openat, SYS_faccessat, SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_unlinkat, SYS_linkat,
    SYS_renameat2, SYS_utimensat, SYS_fchmod, SYS_fdatasync, SYS_fstatfs, SYS_fallocate,
    SYS_mkdirat, SYS_pipe2, SYS_statx,
#ifdef SYS_renameat // not on RISC-V
    SYS_renameat,
#endif
#ifdef SYS_faccessat2 // Linux 5.8
    SYS_faccessat2,
#endif
#ifdef SYS_open // not on ARM64; glibc uses some of these, musl all
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_unlink, SYS_link, SYS_rename,
    SYS_mkdir, SYS_pipe,
#endif
    // the machine, and the owner of files
    SYS_uname, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    // the second call of sandbox_enter()
    SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self};
// Allowed if files can only be removed. glibc on x86-64 uses the second one.
static const int allowed_with_removal[] = {SYS_unlinkat,
#ifdef SYS_unlink
                                           SYS_unlink
#endif
};
enum {
    N_HEAD = sizeof head / sizeof *head,
    N_HEAD_WITH_PATHS = sizeof head_with_paths / sizeof *head_with_paths,
    N_OWN = 3 * 5, // instructions of write_own()
    N_ALWAYS = sizeof allowed / sizeof *allowed,
    N_WITH_PATHS = sizeof allowed_with_paths / sizeof *allowed_with_paths,
    N_WITH_REMOVAL = sizeof allowed_with_removal / sizeof *allowed_with_removal
};

// Appends the calls that act on a process or thread, which are allowed for this process only.
// OpenMP binds each thread that it starts by the number of the thread, which the filter cannot
// know: if binding is requested, the affinity of other processes is not protected.
static struct sock_filter *write_own(struct sock_filter *out) {
    const struct sock_filter bind =
        threads_are_bound() ? (struct sock_filter)ALLOW : (struct sock_filter)REFUSE(EPERM);
    const struct sock_filter own[] = {
        CHECK_ARG(tgkill, 0, BPF_JEQ, getpid(), ALLOW, REFUSE(EPERM)), // raise() of glibc
        CHECK_ARG(tkill, 0, BPF_JEQ, getpid(), ALLOW, REFUSE(EPERM)), // of musl, in the main thread
        CHECK_ARG(sched_setaffinity, 0, BPF_JEQ, 0, ALLOW, bind),
    };
    _Static_assert(sizeof own == N_OWN * sizeof *own, "the size of the filter");
    memcpy(out, own, sizeof own);
    return out + N_OWN;
}

// Appends two instructions for each call that allow it. Returns the end of the filter.
//
// The kernel runs a new filter once for every call number and caches the results. That takes
// 0.27 ms; a binary search of the call numbers takes 0.18 ms (Linux 6.18, 2026-11).
static struct sock_filter *write_calls(struct sock_filter *out, const int *calls, int n) {
    for (int i = 0; i < n; i++) {
        *out++ = (struct sock_filter)CHECK(BPF_JEQ, calls[i], 1);
        *out++ = (struct sock_filter)ALLOW;
    }
    return out;
}

// Headers may be older than the kernel, and lack members and constants.
typedef struct {
    uint64_t handled_access_fs;
    uint64_t handled_access_net; // not handled: seccomp allows no network
    uint64_t scoped;             // since version 6 of Landlock (Linux 6.12)
} LandlockRuleset;

// Landlock rights.
enum {
    SCOPE_SIGNAL = 1 << 1,    // no signals to processes outside the sandbox
    RIGHT_TRUNCATE = 1 << 14, // since version 3 of Landlock
    RIGHTS_V1 = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1,
    RIGHTS_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    RIGHTS_WRITE = RIGHTS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                   LANDLOCK_ACCESS_FS_REMOVE_FILE | RIGHT_TRUNCATE,
    RIGHTS_FILE = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE
};

static const uint64_t rights[] = {[SANDBOX_READ] = RIGHTS_READ,
                                  [SANDBOX_READ_TREE] = RIGHTS_READ,
                                  [SANDBOX_WRITE] = RIGHTS_WRITE,
                                  [SANDBOX_REMOVE] = LANDLOCK_ACCESS_FS_REMOVE_FILE};

// Landlock accepts no rule for a pipe and does not restrict pipes. A path that does not exist gets
// no rule.
static void add_rule(int rules, SandboxPath path, uint64_t handled) {
    struct stat st;
    struct landlock_path_beneath_attr rule = {
        .allowed_access = handled & rights[path.access],
        .parent_fd = open(path.path, O_PATH | O_CLOEXEC),
    };
    if (rule.parent_fd < 0) return;

    if (fstat(rule.parent_fd, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            rule.allowed_access &= RIGHTS_FILE;
        else if (path.access == SANDBOX_READ)
            rule.allowed_access = LANDLOCK_ACCESS_FS_READ_DIR;

        syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    }

    close(rule.parent_fd);
}

// System files that describe the memory, the CPUs and their limits, and the source of random bytes.
static const SandboxPath system_paths[] = {{"/proc/meminfo", SANDBOX_READ},
                                           {"/proc/self/cgroup", SANDBOX_READ},
                                           {"/sys/fs/cgroup", SANDBOX_READ_TREE},
                                           {"/sys/devices/system/cpu", SANDBOX_READ_TREE},
                                           {"/sys/devices/cpu_core/cpus", SANDBOX_READ},
                                           {"/dev/urandom", SANDBOX_READ}};

static bool enter_landlock(const SandboxPath *paths, int n) {
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    LandlockRuleset handled = {.handled_access_fs = RIGHTS_V1 | (version >= 3 ? RIGHT_TRUNCATE : 0),
                               .scoped = version >= 6 ? SCOPE_SIGNAL : 0};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0) return false;
    if (n)
        for (size_t i = 0; i < sizeof system_paths / sizeof *system_paths; i++)
            add_rule(rules, system_paths[i], handled.handled_access_fs);
    for (int i = 0; i < n; i++) add_rule(rules, paths[i], handled.handled_access_fs);
    bool is_entered = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return is_entered;
}

// Removes the file in shared memory by which LLVM's OpenMP runtime finds other copies of itself. In
// the sandbox the runtime cannot remove it when the process ends.
static void remove_runtime_file(void) {
    char path[80];
    snprintf(path, sizeof path, "/dev/shm/__KMP_REGISTERED_LIB_%d_%d", (int)getpid(),
             (int)getuid());
    unlink(path);
}

// Without paths, the filter alone protects files as well. A filter applies in addition to earlier
// ones.
unsigned sandbox_enter(const SandboxPath *paths, int n) {
    struct sock_filter
        filter[N_HEAD + N_OWN + N_HEAD_WITH_PATHS + 2 * (N_ALWAYS + N_WITH_PATHS) + 1];
    remove_runtime_file();

    // Assemble the filter: head, allowed calls, end.
    memcpy(filter, head, sizeof head);
    struct sock_filter *end = write_own(filter + N_HEAD);
    end = write_calls(end, allowed, N_ALWAYS);
    bool can_open = false;
    for (int i = 0; i < n; i++) can_open |= paths[i].access != SANDBOX_REMOVE;
    if (can_open) {
        memcpy(end, head_with_paths, sizeof head_with_paths);
        end = write_calls(end + N_HEAD_WITH_PATHS, allowed_with_paths, N_WITH_PATHS);
    } else if (n)
        end = write_calls(end, allowed_with_removal, N_WITH_REMOVAL);
    *end++ = (struct sock_filter)REFUSE(EPERM);
    struct sock_fprog program = {(unsigned short)(end - filter), filter};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    unsigned layers = enter_landlock(paths, n) ? SANDBOX_FILES : 0;

    // Without SPEC_ALLOW, kernels before 5.16 disable speculative execution features of the
    // process, which costs speed. Kernels that do not know the flag reject it; the second call
    // omits it.
    unsigned long how = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, how, &program) == 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0)
        layers |= SANDBOX_CALLS | (n ? 0 : SANDBOX_FILES);

    return layers;
}
