// The Linux sandbox: a seccomp filter for all threads. System calls on a list are allowed, all
// others fail with EPERM. Landlock, where the kernel has it, additionally closes the file system
// for this thread and the threads it starts.
//
// The filter is a classic BPF program that the kernel runs on every system call:
//
//   head    checks the architecture, then the calls that are allowed only with certain arguments
//           (mmap, clone, ioctl ...)
//   search  binary search for the call number among the allowed ranges
//   tail    the results "allow" and "refuse"
//
// The Makefile defines SECCOMP_ARCH, the architecture that the call numbers belong to.
#include "sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// BPF instructions. LOAD reads a field of struct seccomp_data into the accumulator; CHECK skips n
// instructions unless the comparison holds.
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define RETURN(action)        BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(error)         RETURN(SECCOMP_RET_ERRNO | (error))
#define CHECK(test, value, n) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), 0, (n))
// Allows a call only if the low 32 bits of an argument contain some of these bits, or none of them.
#define ALLOW_WITH(call, arg, bits)                                                                \
    CHECK(BPF_JEQ, SYS_##call, 4), LOAD(args[arg]), CHECK(BPF_JSET, bits, 1),                      \
        RETURN(SECCOMP_RET_ALLOW), REFUSE(EPERM)
#define ALLOW_WITHOUT(call, arg, bits)                                                             \
    CHECK(BPF_JEQ, SYS_##call, 4), LOAD(args[arg]), CHECK(BPF_JSET, bits, 1), REFUSE(EPERM),       \
        RETURN(SECCOMP_RET_ALLOW)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the filter loads the low half of 64-bit arguments");

static const struct sock_filter head[] = {
    LOAD(arch),
    CHECK(BPF_JEQ, SECCOMP_ARCH, 1),
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    REFUSE(EPERM),
    LOAD(nr),
    // memory, unless it is executable
    ALLOW_WITHOUT(mmap, 2, PROT_EXEC),
    ALLOW_WITHOUT(mprotect, 2, PROT_EXEC),
    // threads, but no processes. clone3 passes its flags in memory, where a filter cannot see them;
    // after ENOSYS, libc falls back to clone.
    ALLOW_WITH(clone, 0, CLONE_THREAD),
    CHECK(BPF_JEQ, SYS_clone3, 1),
    REFUSE(ENOSYS),
    CHECK(BPF_JEQ, SYS_ioctl, 6),
    LOAD(args[1]),
    CHECK(BPF_JEQ, TCGETS, 1), // isatty()
    RETURN(SECCOMP_RET_ALLOW),
    CHECK(BPF_JEQ, TIOCGWINSZ, 1), // width of the terminal
    RETURN(SECCOMP_RET_ALLOW),
    REFUSE(ENOTTY),
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
    SYS_sched_getaffinity, SYS_membarrier, SYS_getpid, SYS_gettid, SYS_tgkill,
    // open files
    SYS_close, SYS_fcntl, SYS_ftruncate, SYS_fsync, SYS_flock,
    // signals and exit
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
    SYS_exit, SYS_exit_group};
enum { N_HEAD = sizeof head / sizeof *head, N_ALLOWED = sizeof allowed / sizeof *allowed };

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Sorts the allowed call numbers into ranges [edges[0], edges[1]), [edges[2], edges[3]), ...
// Returns the number of edges.
static size_t find_edges(int edges[2 * N_ALLOWED]) {
    int calls[N_ALLOWED];
    size_t n = 0;
    memcpy(calls, allowed, sizeof allowed);
    qsort(calls, N_ALLOWED, sizeof *calls, compare_ints);
    for (int i = 0; i < N_ALLOWED; i++) {
        if (i == 0 || calls[i] > calls[i - 1] + 1) edges[n++] = calls[i];
        if (i == N_ALLOWED - 1 || calls[i + 1] > calls[i] + 1) edges[n++] = calls[i] + 1;
    }
    return n;
}

// Writes a binary search for the call number among n edges from `first` on, one instruction per
// edge, starting at out[at]. A number is in a range if the last edge that is not above it has an
// even index. Jumps end at the tail: out[n_edges] allows, out[n_edges + 1] refuses.
//
// A list of comparisons would be simpler. But the kernel runs a new filter once for every possible
// call, which takes twice as long with a list.
static void write_search(struct sock_filter *out, size_t at, const int *edges, size_t first,
                         size_t n, size_t n_edges) {
    size_t n_below = n / 2, middle = first + n_below, n_above = n - n_below - 1;
    size_t below = n_below ? at + 1 : n_edges + (first % 2 == 0),
           above = n_above ? at + 1 + n_below : n_edges + (middle % 2 == 1);
    out[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)edges[middle],
                                           (uint8_t)(above - at - 1), (uint8_t)(below - at - 1));
    if (n_below) write_search(out, at + 1, edges, first, n_below, n_edges);
    if (n_above) write_search(out, at + 1 + n_below, edges, middle + 1, n_above, n_edges);
}
_Static_assert(2 * N_ALLOWED < 256, "jumps have 8 bits");

// Returns the number of instructions.
static size_t write_filter(struct sock_filter *out) {
    static const struct sock_filter tail[] = {RETURN(SECCOMP_RET_ALLOW), REFUSE(EPERM)};
    int edges[2 * N_ALLOWED];
    size_t n = find_edges(edges);
    memcpy(out, head, sizeof head);
    write_search(out + N_HEAD, 0, edges, 0, n, n);
    memcpy(out + N_HEAD + n, tail, sizeof tail);
    return N_HEAD + n + 2;
}

static void enter_landlock(void) {
    struct landlock_ruleset_attr all = {.handled_access_fs =
                                            (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return;
    syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
}

bool sandbox_enter(void) {
    struct sock_filter filter[N_HEAD + 2 * N_ALLOWED + 2];
    struct sock_fprog program = {(unsigned short)write_filter(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
    enter_landlock();
    // Without SPEC_ALLOW, kernels before 5.16 disable speculative execution features of the
    // process, which costs speed. Kernels that do not know the flag reject it; the second call is
    // for them.
    unsigned long how = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, how, &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}
