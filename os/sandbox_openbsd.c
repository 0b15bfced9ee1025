// OpenBSD: pledge and unveil. See sandbox.h.
#include "sandbox.h"

#include <stdbool.h>
#include <unistd.h>

// The list of visible files is final after the first call. A later call only reduces the promises.
unsigned sandbox_enter(const SandboxPath *paths, int n) {
    static bool is_final;
    if (!is_final) {
        unveil("/dev/urandom", "r");
        for (int i = 0; i < n; i++)
            unveil(paths[i].path, paths[i].access == SANDBOX_WRITE ? "rwc" : "r");
        if (unveil(NULL, NULL)) return 0;
        is_final = true;
    }
    if (pledge(n ? "stdio rpath wpath cpath fattr flock tty" : "stdio tty", NULL)) return 0;
    return SANDBOX_ALL;
}
