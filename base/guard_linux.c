// The sandbox is a seccomp filter for all threads: the calls below are allowed, any other fails
// with EPERM. The Makefile says which architecture the numbers are for, as SECCOMP_ARCH. Where
// Landlock is there it bars the file system once more, for this thread and those it starts.
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(error)  RETURN(SECCOMP_RET_ERRNO | (error))
// Skips the n instructions behind it unless the condition holds.
#define UNLESS(test, value, n) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), 0, (n))
#define ALLOW(call)            UNLESS(BPF_JEQ, SYS_##call, 1), RETURN(SECCOMP_RET_ALLOW)
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

static const struct sock_filter filter[] = {
    LOAD(arch),
    UNLESS(BPF_JEQ, SECCOMP_ARCH, 1),
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    REFUSE(EPERM),
    LOAD(nr),
    // the loop: threads, text in and out, time
    ALLOW(futex),
    ALLOW(read),
    ALLOW(write),
    ALLOW(sched_yield),
    ALLOW(clock_gettime),
    ALLOW(madvise),
    ALLOW(fstat),
    ALLOW(newfstatat), // how the C library spells fstat
    ALLOW(lseek),
    ALLOW(pread64),
    ALLOW(pwrite64),
    ALLOW(readv),
    ALLOW(writev),
    ALLOW(ppoll),
#ifdef SYS_poll
    ALLOW(poll), // not on ARM
#endif
    ALLOW(nanosleep),
    ALLOW(clock_nanosleep),
    // memory, but no new code
    ALLOW_WITHOUT(mmap, 2, PROT_EXEC),
    ALLOW_WITHOUT(mprotect, 2, PROT_EXEC),
    ALLOW(munmap),
    ALLOW(mremap),
    ALLOW(brk),
    ALLOW(getrandom),
    // threads, but no processes; clone3 hides its flags, and the C library then does without
    ALLOW_WITH(clone, 0, CLONE_THREAD),
    UNLESS(BPF_JEQ, SYS_clone3, 1),
    REFUSE(ENOSYS),
    ALLOW(set_robust_list),
    ALLOW(rseq),
    ALLOW(sched_getaffinity),
    ALLOW(membarrier),
    ALLOW(getpid),
    ALLOW(gettid),
    ALLOW(tgkill),
    // files that are open
    ALLOW(close),
    ALLOW(fcntl),
    ALLOW(ftruncate),
    ALLOW(fsync),
    ALLOW(flock),
    UNLESS(BPF_JEQ, SYS_ioctl, 6),
    LOAD(args[1]),
    UNLESS(BPF_JEQ, TCGETS, 1), // is it a terminal,
    RETURN(SECCOMP_RET_ALLOW),
    UNLESS(BPF_JEQ, TIOCGWINSZ, 1), // and how wide?
    RETURN(SECCOMP_RET_ALLOW),
    REFUSE(ENOTTY),
    // signals and the end
    ALLOW(rt_sigaction),
    ALLOW(rt_sigprocmask),
    ALLOW(rt_sigreturn),
    ALLOW(sigaltstack),
    ALLOW(restart_syscall),
    ALLOW(exit),
    ALLOW(exit_group),
    REFUSE(EPERM),
};

static void enter_landlock(void) {
    struct landlock_ruleset_attr all = {.handled_access_fs =
                                            (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return;
    syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
}

bool sandbox_enter(void) {
    struct sock_fprog program = {sizeof filter / sizeof *filter,
                                 (struct sock_filter *)(uintptr_t)filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
    enter_landlock();
    // Older kernels slow a process with a filter down, unless it says that it guards itself against
    // speculation.
    unsigned long how = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, how, &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int file_unnamed(const char *folder, unsigned mode) {
    if (access("/proc/self/fd", X_OK)) return -1; // how it gets its name
    return open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t)mode);
}

bool file_name(int fd, const char *path) {
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

static const char MARK[] = "user.llama31";

void file_mark(int fd, const char *text) {
    if (fsetxattr(fd, MARK, text, strlen(text), 0)) return;
}

void file_marked(int fd, char *text, size_t size) {
    ssize_t n = fgetxattr(fd, MARK, text, size - 1);
    text[n > 0 ? n : 0] = 0;
}
