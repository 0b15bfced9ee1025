// Tests that the sandbox blocks files, network and programs, and allows the files that it is given.
// A child process enters it.
#include "base/os/sandbox.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
    remove_directories();
}
