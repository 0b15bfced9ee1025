// The process sandbox: sandbox_linux.c (seccomp and Landlock), or sandbox_none.c elsewhere.
// SANDBOX= of the Makefile chooses one.
#pragma once

// Access to a path. A path that does not exist grants nothing.
typedef enum {
    SANDBOX_READ,      // read this file, or list this directory
    SANDBOX_READ_TREE, // read all files below this directory
    SANDBOX_WRITE,     // read and write this file, or create, replace and remove files below this
                       // directory
    SANDBOX_REMOVE,    // remove files of this directory; only Landlock limits this to the directory
} SandboxAccess;

typedef struct {
    const char *path;
    SandboxAccess access;
} SandboxPath;

// Layers of the sandbox.
enum {
    SANDBOX_CALLS = 1, // no network, no programs, no executable memory
    SANDBOX_FILES = 2, // no files except the given paths
    SANDBOX_ALL = SANDBOX_CALLS | SANDBOX_FILES
};

// Enters the sandbox. From now on no thread of this process can use the network, start a program or
// map executable memory, and it can open only the files of these n paths. With n = 0 it can open no
// file. Open descriptors keep working. After a second call, only what both calls allow is allowed.
// The first call must come before threads are started.
//
// Returns the layers that are in force; the others are missing on this system.
unsigned sandbox_enter(const SandboxPath *paths, int n);
