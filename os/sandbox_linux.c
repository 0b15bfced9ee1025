// The sandbox is a seccomp filter for all threads: the calls below are allowed, any other fails
// with EPERM. The Makefile says which architecture the numbers are for, as SECCOMP_ARCH. Where
// Landlock is there it bars the file system once more, for this thread and those it starts.
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

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(error)  RETURN(SECCOMP_RET_ERRNO | (error))
// Skips the n instructions behind it unless the condition holds.
#define UNLESS(test, value, n) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), 0, (n))
// Allows a call only if its argument (the low half of it) has one of these bits, or none of them.
#define ALLOW_WITH(call, arg, bits)                                                                \
    UNLESS(BPF_JEQ, SYS_##call, 4), LOAD(args[arg]), UNLESS(BPF_JSET, bits, 1),                    \
        RETURN(SECCOMP_RET_ALLOW), REFUSE(EPERM)
#define ALLOW_WITHOUT(call, arg, bits)                                                             \
    UNLESS(BPF_JEQ, SYS_##call, 4), LOAD(args[arg]), UNLESS(BPF_JSET, bits, 1), REFUSE(EPERM),     \
        RETURN(SECCOMP_RET_ALLOW)

// Arguments are loaded from their low half.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the filter reads little-endian arguments");

// What hangs on arguments; other calls go on behind it.
static const struct sock_filter head[] = {
    LOAD(arch),
    UNLESS(BPF_JEQ, SECCOMP_ARCH, 1),
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    REFUSE(EPERM),
    LOAD(nr),
    // memory, but no new code
    ALLOW_WITHOUT(mmap, 2, PROT_EXEC),
    ALLOW_WITHOUT(mprotect, 2, PROT_EXEC),
    // threads, but no processes; clone3 hides its flags, and the C library then does without
    ALLOW_WITH(clone, 0, CLONE_THREAD),
    UNLESS(BPF_JEQ, SYS_clone3, 1),
    REFUSE(ENOSYS),
    UNLESS(BPF_JEQ, SYS_ioctl, 6),
    LOAD(args[1]),
    UNLESS(BPF_JEQ, TCGETS, 1), // is it a terminal,
    RETURN(SECCOMP_RET_ALLOW),
    UNLESS(BPF_JEQ, TIOCGWINSZ, 1), // and how wide?
    RETURN(SECCOMP_RET_ALLOW),
    REFUSE(ENOTTY),
};

static const int allowed[] = {
    // the loop: threads, text in and out, time
    SYS_futex, SYS_read, SYS_write, SYS_sched_yield, SYS_clock_gettime, SYS_madvise, SYS_fstat,
    SYS_newfstatat, // how the C library spells fstat
    SYS_lseek, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_ppoll, SYS_nanosleep,
    SYS_clock_nanosleep,
#ifdef SYS_poll
    SYS_poll, // not on ARM
#endif
    // memory and threads
    SYS_munmap, SYS_mremap, SYS_brk, SYS_getrandom, SYS_set_robust_list, SYS_rseq,
    SYS_sched_getaffinity, SYS_membarrier, SYS_getpid, SYS_gettid, SYS_tgkill,
    // files that are open
    SYS_close, SYS_fcntl, SYS_ftruncate, SYS_fsync, SYS_flock,
    // signals and the end
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
    SYS_exit, SYS_exit_group};
enum { N_HEAD = sizeof head / sizeof *head, N_ALLOWED = sizeof allowed / sizeof *allowed };

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Where runs of allowed numbers begin and, one further, end, in order. Returns how many.
static size_t find_edges(int edges[2 * N_ALLOWED]) {
    int calls[N_ALLOWED];
    size_t n = 0;
    memcpy(calls, allowed, sizeof allowed);
    qsort(calls, N_ALLOWED, sizeof *calls, by_number);
    for (int i = 0; i < N_ALLOWED; i++) {
        if (i == 0 || calls[i] > calls[i - 1] + 1) edges[n++] = calls[i];
        if (i == N_ALLOWED - 1 || calls[i + 1] > calls[i] + 1) edges[n++] = calls[i] + 1;
    }
    return n;
}

// Searches n edges from `first` on, an instruction each, from out[at] on. Behind the n_edges of
// them all stand "allow" and "refuse". (The kernel converts a filter, and tries it with every call
// there is, when it is set: a list of comparisons costs twice as much as this.)
static void put_search(struct sock_filter *out, size_t at, const int *edges, size_t first, size_t n,
                       size_t n_edges) {
    size_t n_below = n / 2, middle = first + n_below, n_above = n - n_below - 1;
    size_t below = n_below ? at + 1 : n_edges + (first % 2 == 0),
           above = n_above ? at + 1 + n_below : n_edges + (middle % 2 == 1);
    out[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)edges[middle],
                                           (uint8_t)(above - at - 1), (uint8_t)(below - at - 1));
    if (n_below) put_search(out, at + 1, edges, first, n_below, n_edges);
    if (n_above) put_search(out, at + 1 + n_below, edges, middle + 1, n_above, n_edges);
}
_Static_assert(2 * N_ALLOWED < 256, "jumps have 8 bits");

// The whole filter; returns its length.
static size_t make_filter(struct sock_filter *out) {
    static const struct sock_filter tail[] = {RETURN(SECCOMP_RET_ALLOW), REFUSE(EPERM)};
    int edges[2 * N_ALLOWED];
    size_t n = find_edges(edges);
    memcpy(out, head, sizeof head);
    put_search(out + N_HEAD, 0, edges, 0, n, n);
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
    struct sock_fprog program = {(unsigned short)make_filter(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
    enter_landlock();
    // Older kernels slow a process with a filter down, unless it says that it guards itself against
    // speculation.
    unsigned long how = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, how, &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}
