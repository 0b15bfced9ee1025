// What guards a process and its files where a system has it: sandbox_linux.c, sandbox_openbsd.c,
// sandbox_none.c for all others.
#ifndef OS_SANDBOX_H
#define OS_SANDBOX_H

#include "../base/util.h"

// From here on no thread of this process opens a file, reaches the network, starts a program or
// makes new code; what is open stays open. On Linux by seccomp, and by Landlock where the kernel
// has it; on OpenBSD by pledge. False where the system offers nothing of the kind, or refuses; the
// program then runs as it is.
bool sandbox_enter(void);

// A file without a name, which is gone with the process unless file_name gives it one; -1 where
// there is no such thing.
int os_open_temporary(const char *folder, unsigned mode);
bool os_link_temporary(int fd, const char *path); // never over another. False with errno set

// A text kept beside an open file's content, in an extended attribute; a mark that cannot be set or
// read is none.
void os_set_attribute(int fd, const char *text);
void os_get_attribute(int fd, char *text, size_t size); // "": no mark

#endif
