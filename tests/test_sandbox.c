// Tests that the sandbox blocks files, network and programs, and allows the files that it is given.
// A child process enters it.
#include "base/os/sandbox.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/llama31-sandbox-XXXXXX";

// The path of a file of the test: a static string for each of the last 32 calls.
static const char *in_directory(const char *name) {
    static char paths[32][64];
    static int n;
    char *path = paths[n++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static bool may_open(const char *name, int flags) {
    int fd = open(*name == '/' ? name : in_directory(name), flags, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

// Returns a bit for each action that succeeded although no sandbox permits it.
static int try_everything(void) {
    char *const argv[] = {(char *)"true", NULL};
    int done = 0;

    if (may_open("/etc/passwd", O_RDONLY)) done |= 1;
    if (may_open("closed/new", O_WRONLY | O_CREAT)) done |= 2;

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0) done |= 4;
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0) done |= 8;

    if (fork() >= 0) done |= 16;
    if (unlink(in_directory("closed/file")) == 0) done |= 32;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        done |= 64;

    execv("/bin/true", argv);
    return done | (errno == EPERM || errno == EACCES ? 0 : 128);
}

static pthread_mutex_t outside = PTHREAD_MUTEX_INITIALIZER; // locked until the sandbox is entered

static void *try_in_thread(void *out) {
    pthread_mutex_lock(&outside);
    *(int *)out = try_everything();
    pthread_mutex_unlock(&outside);
    return NULL;
}

// As try_everything(), in this thread and in one that was started before.
static int try_no_paths(void) {
    int done = -1;
    pthread_t thread;
    pthread_mutex_lock(&outside);
    if (pthread_create(&thread, NULL, try_in_thread, &done)) return 254;
    if (!sandbox_enter(NULL, 0)) return 255;
    pthread_mutex_unlock(&outside);
    pthread_join(thread, NULL);
    return done | try_everything();
}

// A directory to write, a file and two directories to read; then only the first; then nothing.
static int try_paths(void) {
    const SandboxPath paths[] = {{in_directory("open"), SANDBOX_WRITE},
                                 {in_directory("link"), SANDBOX_READ}, // to closed/file
                                 {in_directory("closed"), SANDBOX_READ},
                                 {in_directory("tree"), SANDBOX_READ_TREE},
                                 {"/nonexistent", SANDBOX_WRITE}};

    if (sandbox_enter(paths, 5) != SANDBOX_ALL) return 255;
    const char *const file = "closed/file";
    const char *const renamed = "open/renamed";

    if (!may_open(file, O_RDONLY)) return 1;
    if (may_open(file, O_WRONLY) || may_open(file, O_RDONLY | O_TRUNC)) return 2;
    if (!may_open("closed", O_RDONLY | O_DIRECTORY)) return 3;
    if (may_open("closed/other", O_RDONLY)) return 4;
    if (!may_open("tree/file", O_RDONLY)) return 5;
    if (may_open("tree/new", O_WRONLY | O_CREAT)) return 6;

    if (!may_open("open/new", O_RDWR | O_CREAT | O_EXCL)) return 7;
    if (rename(in_directory("open/new"), in_directory(renamed))) return 8;
    if (rename(in_directory(renamed), in_directory("closed/new")) == 0) return 9;

    if (try_everything()) return 10;

    // Only the directory to write, then nothing.
    sandbox_enter(paths, 1);
    if (may_open(file, O_RDONLY) || !may_open(renamed, O_RDONLY)) return 11;
    if (unlink(in_directory(renamed))) return 12;

    sandbox_enter(NULL, 0);
    return may_open("open", O_RDONLY) ? 13 : try_everything();
}

// Calls f in a child process; 255 is "no sandbox".
static void check_child(int (*f)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(f());

    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "child status %d", status);
    if (WEXITSTATUS(status) == 255)
        test_skip("this system lacks a layer of the sandbox");
    else
        CHECK(WEXITSTATUS(status) == 0, "child returned %d", WEXITSTATUS(status));
}

// System calls.

// The last stage that allows a call. Every command enters the first one. When their files are open,
// `run`, `score` and `tokenize` enter the last one, `batch` the second or last
// (cli/privileges.c).
typedef enum { NO_STAGE, WITH_PATHS, WITH_REMOVAL, LAST_STAGE } Stage;

// A system call with arguments that let it fail without an effect where it is allowed: descriptor
// -1, NULL as a path, an unknown operation.
typedef struct {
    const char *name;
    long number;
    long args[4];
    Stage last;
} SystemCall;

#define ROW_OF(name, number, last, ...)                                                            \
    { name, number, {__VA_ARGS__}, last }
#define ROW(call, last, ...) ROW_OF(#call, SYS_##call, last, __VA_ARGS__)

static const SystemCall system_calls[] = {
    // generation: threads, input and output, time, memory
    ROW(futex, LAST_STAGE, 0, -1), ROW(read, LAST_STAGE, -1), ROW(write, LAST_STAGE, -1),
    ROW(readv, LAST_STAGE, -1), ROW(writev, LAST_STAGE, -1), ROW(pread64, LAST_STAGE, -1),
    ROW(pwrite64, LAST_STAGE, -1), ROW(lseek, LAST_STAGE, -1), ROW(fstat, LAST_STAGE, -1),
    ROW(newfstatat, LAST_STAGE, -1), ROW(ppoll, LAST_STAGE, 0, 1 << 30), ROW(close, LAST_STAGE, -1),
    ROW(ftruncate, LAST_STAGE, -1), ROW(fsync, LAST_STAGE, -1), ROW(flock, LAST_STAGE, -1),
    ROW(getpid, LAST_STAGE, 0), ROW(gettid, LAST_STAGE, 0), ROW(sched_yield, LAST_STAGE, 0),
    ROW(munmap, LAST_STAGE, 1), ROW(madvise, LAST_STAGE, 1), ROW(mremap, LAST_STAGE, 1),
    ROW(brk, LAST_STAGE, 0), ROW(getrandom, LAST_STAGE, 0, 0), ROW(sysinfo, LAST_STAGE, 0),
    ROW(sched_getaffinity, LAST_STAGE, 0, 0), ROW(membarrier, LAST_STAGE, 0),
    ROW(rt_sigaction, LAST_STAGE, -1), ROW(rt_sigprocmask, LAST_STAGE, -1),
    ROW(sigaltstack, LAST_STAGE, 0), ROW(clock_gettime, LAST_STAGE, -1),
    ROW(nanosleep, LAST_STAGE, 0), ROW(clock_nanosleep, LAST_STAGE, -1),
    // files, while there are paths
    ROW(openat, WITH_PATHS, -1), ROW(faccessat, WITH_PATHS, -1), ROW(readlinkat, WITH_PATHS, -1),
    ROW(getdents64, WITH_PATHS, -1), ROW(getcwd, WITH_PATHS, 0), ROW(linkat, WITH_PATHS, -1),
    ROW(renameat2, WITH_PATHS, -1), ROW(utimensat, WITH_PATHS, -1, 0, 1),
    ROW(fchmod, WITH_PATHS, -1), ROW(fdatasync, WITH_PATHS, -1), ROW(fstatfs, WITH_PATHS, -1),
    ROW(fallocate, WITH_PATHS, -1), ROW(mkdirat, WITH_PATHS, -1), ROW(pipe2, WITH_PATHS, 0),
    ROW(statx, WITH_PATHS, -1), ROW(uname, WITH_PATHS, 0), ROW(getuid, WITH_PATHS, 0),
    ROW(getegid, WITH_PATHS, 0), ROW(prlimit64, WITH_PATHS, 0, -1), ROW(unlinkat, WITH_REMOVAL, -1),
    // checked arguments
    ROW(mmap, NO_STAGE, 0, 0, PROT_EXEC), ROW(mmap, LAST_STAGE, 0, 0, 0),
    ROW(mprotect, NO_STAGE, 0, 0, PROT_EXEC), ROW(mprotect, LAST_STAGE, 1, 0, 0),
    ROW(clone, NO_STAGE, SIGCHLD), ROW(fcntl, LAST_STAGE, -1, F_GETFD),
    ROW(fcntl, LAST_STAGE, -1, F_SETFD), ROW(fcntl, LAST_STAGE, -1, F_GETFL),
    ROW(fcntl, LAST_STAGE, -1, F_SETFL, O_NONBLOCK), ROW(fcntl, NO_STAGE, -1, F_SETFL, O_ASYNC),
    ROW(fcntl, NO_STAGE, -1, F_SETOWN, 1), ROW(fcntl, NO_STAGE, -1, F_SETOWN_EX),
    ROW(fcntl, NO_STAGE, -1, F_SETSIG, SIGKILL), ROW(fcntl, NO_STAGE, -1, F_NOTIFY),
    ROW(fcntl, NO_STAGE, -1, F_SETLEASE), ROW(fcntl, NO_STAGE, -1, F_DUPFD),
    ROW(ioctl, LAST_STAGE, -1, TCGETS), ROW(ioctl, NO_STAGE, -1, TIOCSTI),
    ROW(prlimit64, NO_STAGE, 1, -1), ROW(prctl, NO_STAGE, PR_SET_PDEATHSIG, -1),
    ROW(sched_setaffinity, LAST_STAGE, 0, 0), ROW(sched_setaffinity, NO_STAGE, 1, 0),
    ROW(tgkill, NO_STAGE, 1, 1, 0), ROW(tkill, NO_STAGE, 1, 0),
    // other processes
    ROW(kill, NO_STAGE, 0, -1), ROW(rt_sigqueueinfo, NO_STAGE, 1, 0, 0),
    ROW(rt_tgsigqueueinfo, NO_STAGE, 1, 1, 0, 0), ROW(pidfd_send_signal, NO_STAGE, -1),
    ROW(pidfd_open, NO_STAGE, -1), ROW(ptrace, NO_STAGE, -1), ROW(process_vm_readv, NO_STAGE, 1),
    ROW(process_vm_writev, NO_STAGE, 1), ROW(setpriority, NO_STAGE, -1), ROW(kcmp, NO_STAGE, 1),
    ROW(sched_setscheduler, NO_STAGE, 1), ROW(sched_setparam, NO_STAGE, 1),
    ROW(ioprio_set, NO_STAGE, -1), ROW(setpgid, NO_STAGE, -1), ROW(timer_create, NO_STAGE, -1),
    ROW(mq_notify, NO_STAGE, -1), ROW(migrate_pages, NO_STAGE, 1), ROW(move_pages, NO_STAGE, 1),
    ROW(pidfd_getfd, NO_STAGE, -1), ROW(process_madvise, NO_STAGE, -1), ROW(setsid, NO_STAGE, 0),
    ROW(sched_setattr, NO_STAGE, 1),
    // programs and privileges
    ROW(execve, NO_STAGE, 0), ROW(execveat, NO_STAGE, -1), ROW(clone3, NO_STAGE, 0),
    ROW(unshare, NO_STAGE, -1), ROW(setns, NO_STAGE, -1), ROW(setuid, NO_STAGE, 0),
    ROW(setgid, NO_STAGE, 0), ROW(capset, NO_STAGE, 0), ROW(bpf, NO_STAGE, -1),
    ROW(perf_event_open, NO_STAGE, 0), ROW(userfaultfd, NO_STAGE, -1), ROW(keyctl, NO_STAGE, -1),
    ROW(init_module, NO_STAGE, 0), ROW(io_uring_setup, NO_STAGE, 0), ROW(personality, NO_STAGE, -1),
    ROW(io_uring_enter, NO_STAGE, -1), ROW(add_key, NO_STAGE, 0),
    ROW(pkey_mprotect, NO_STAGE, 1, 0, PROT_EXEC), ROW(remap_file_pages, NO_STAGE, 1),
    ROW_OF("getpid of the x32 ABI", 0x40000000 | SYS_getpid, NO_STAGE, 0),
    // network, and memory of several processes
    ROW(socket, NO_STAGE, -1), ROW(socketpair, NO_STAGE, -1), ROW(connect, NO_STAGE, -1),
    ROW(bind, NO_STAGE, -1), ROW(sendto, NO_STAGE, -1), ROW(sendmsg, NO_STAGE, -1),
    ROW(recvmsg, NO_STAGE, -1), ROW(accept4, NO_STAGE, -1), ROW(shmget, NO_STAGE, 0),
    ROW(memfd_create, NO_STAGE, 0), ROW(msgget, NO_STAGE, 0), ROW(semget, NO_STAGE, 0),
    ROW(mq_open, NO_STAGE, 0),
    // files that Landlock does not protect
    ROW(fchmodat, NO_STAGE, -1), ROW(fchownat, NO_STAGE, -1), ROW(fchown, NO_STAGE, -1),
    ROW(symlinkat, NO_STAGE, -1), ROW(mknodat, NO_STAGE, -1), ROW(setxattr, NO_STAGE, 0),
    ROW(fsetxattr, NO_STAGE, -1), ROW(mount, NO_STAGE, 0), ROW(chroot, NO_STAGE, 0),
    ROW(fanotify_init, NO_STAGE, -1), ROW(inotify_add_watch, NO_STAGE, -1), ROW(dup, NO_STAGE, -1),
    ROW(open_by_handle_at, NO_STAGE, -1), ROW(openat2, NO_STAGE, -1), ROW(truncate, NO_STAGE, 0),
    ROW(chdir, NO_STAGE, 0)};

// True if the sandbox refuses a call. Calls that are allowed fail with another error or succeed.
static bool is_refused(const SystemCall *c) {
    long r = syscall(c->number, c->args[0], c->args[1], c->args[2], c->args[3], 0L, 0L);
    return r == -1 && (errno == EPERM || (c->number == SYS_clone3 && errno == ENOSYS) ||
                       (c->number == SYS_ioctl && errno == ENOTTY));
}

// Returns the number of calls whose result differs from the table.
static int count_differences(Stage stage) {
    int n = 0;
    for (size_t i = 0; i < sizeof system_calls / sizeof *system_calls; i++) {
        const SystemCall *c = &system_calls[i];
        bool is_expected = stage > c->last;
        if (is_refused(c) == is_expected) continue;

        n++;
        printf("stage %d: %s(%ld, %ld, %ld) is %s\n", (int)stage, c->name, c->args[0], c->args[1],
               c->args[2], is_expected ? "allowed" : "refused");
    }
    return n;
}

static pid_t victim; // a process outside the sandbox

// Tries to signal the victim by every call that can, with the null signal where it has one.
// Returns a bit for each that succeeded.
static int try_victim(void) {
    const struct f_owner_ex owner = {F_OWNER_PID, victim};
    const struct rlimit limit = {1, 1};
    const uint64_t cpus = 1;
    int done = 0;

    if (syscall(SYS_tgkill, victim, victim, 0) == 0) done |= 1;
    if (syscall(SYS_tkill, victim, 0) == 0) done |= 2;
    if (fcntl(STDERR_FILENO, F_SETOWN, victim) == 0) done |= 4;
    if (fcntl(STDERR_FILENO, F_SETOWN_EX, &owner) == 0) done |= 8;
    if (fcntl(STDERR_FILENO, F_SETSIG, SIGKILL) == 0) done |= 16;
    if (syscall(SYS_prlimit64, victim, RLIMIT_CPU, &limit, NULL) == 0) done |= 32;
    if (syscall(SYS_sched_setaffinity, victim, sizeof cpus, &cpus) == 0) done |= 64;

    return done;
}

static volatile sig_atomic_t n_raised;

static void count_signal(int number) { n_raised += number == SIGUSR1; }

static Stage last_stage; // of a test

// The calls of the table and the victim in the first stage, then in another one. This process can
// still signal itself.
static int try_calls(void) {
    const SandboxPath path = {in_directory("open"), SANDBOX_WRITE};
    const SandboxPath removal = {in_directory("open"), SANDBOX_REMOVE};
    if (try_victim() != 127) return 254; // the test itself: all of them work outside
    signal(SIGUSR1, count_signal);

    if (!(sandbox_enter(&path, 1) & SANDBOX_CALLS)) return 255;
    int differences = count_differences(WITH_PATHS);
    if (try_victim()) return 253;

    if (last_stage != WITH_PATHS) {
        sandbox_enter(&removal, last_stage == WITH_REMOVAL);
        differences += count_differences(last_stage);
        if (try_victim()) return 252;
    }

    fflush(stdout);
    raise(SIGUSR1);
    if (n_raised != 1) return 251;
    return differences > 200 ? 200 : differences;
}

// As on kernels before 5.13.
static int try_calls_without_landlock(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 255;
    return try_calls();
}

static void check_calls(int (*f)(void)) {
    victim = fork();
    if (victim == 0) {
        pause();
        _exit(0);
    }

    for (last_stage = WITH_PATHS; last_stage <= LAST_STAGE; last_stage++) check_child(f);
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
}

static void calls_of_all_stages(void) { check_calls(try_calls); }
static void calls_without_landlock(void) { check_calls(try_calls_without_landlock); }

static void forbidden_actions(void) { check_child(try_no_paths); }
static void permitted_paths(void) { check_child(try_paths); }

static void make_directories(void) {
    static const char *const names[] = {"open", "closed", "tree"};
    static const char *const files[] = {"closed/file", "closed/other", "tree/file"};

    if (!mkdtemp(directory)) abort();
    for (int i = 0; i < 3; i++) mkdir(in_directory(names[i]), 0700);
    for (int i = 0; i < 3; i++) may_open(files[i], O_WRONLY | O_CREAT);
    if (symlink("closed/file", in_directory("link"))) abort();
}

static void remove_directories(void) {
    static const char *const names[] = {"link",   "closed/file", "closed/other", "tree/file",
                                        "closed", "tree",        "open"};
    for (int i = 0; i < 7; i++) remove(in_directory(names[i]));
    rmdir(directory);
}

void test_sandbox(void) {
    make_directories();
    test_case("sandbox: open, connect, fork and exec fail", forbidden_actions);
    test_case("sandbox: only the given paths can be opened", permitted_paths);
    test_case("sandbox: the system calls of every stage", calls_of_all_stages);
    test_case("sandbox: the same without Landlock", calls_without_landlock);
    remove_directories();
}
