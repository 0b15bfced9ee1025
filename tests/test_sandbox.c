// Tests that the sandbox blocks files, network and programs. A child process enters it.
#include "../os/sandbox.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// Returns a bit for each forbidden action that succeeded.
static int try_everything(void) {
    int done = 0, fd;
    char *const argv[] = {(char *)"true", NULL};
    if (open("/etc/passwd", O_RDONLY) >= 0) done |= 1;
    if (open("/tmp/llama31-sandbox", O_WRONLY | O_CREAT, 0600) >= 0) done |= 2;
    if ((fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0) done |= 4;
    if ((fd = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0) done |= 8;
    if (fork() >= 0) done |= 16;
    if (unlink("/tmp/llama31-sandbox") == 0 || errno != EPERM) done |= 32;
    execv("/bin/true", argv);
    return done | (errno == EPERM ? 0 : 64);
}

static void forbidden_actions(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(sandbox_enter() ? try_everything() : 99);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "child status %d", status);
    if (WEXITSTATUS(status) == 99) {
        test_skip("no sandbox on this system");
        return;
    }
    CHECK(WEXITSTATUS(status) == 0, "succeeded: bits %#x", (unsigned)WEXITSTATUS(status));
}

void test_sandbox(void) {
    test_case("sandbox: open, connect, fork and exec fail", forbidden_actions);
}
