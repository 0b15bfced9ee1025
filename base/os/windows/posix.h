// The parts of POSIX that mingw's headers lack. base/os/platform.mk includes this header before
// every file of a Windows build; os_windows.c implements it. Paths are UTF-8, files are binary, and
// a file may be renamed while it is open.
#pragma once

#include <direct.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Constants that mingw lacks, by the functions that take them. Flags that have no effect here are
// 0.
enum { O_CLOEXEC = 0, O_NONBLOCK = 0, O_NOCTTY = 0, O_NOFOLLOW = 0 }; // no programs are started
enum { F_GETFD = 1, F_GETFL = 3, F_SETFL = 4 };
enum { AT_FDCWD = -100, AT_SYMLINK_NOFOLLOW = 0, UTIME_OMIT = -2 };
enum { LOCK_EX = 2, LOCK_NB = 4 };
enum { PROT_READ = 1, MAP_SHARED = 1 };
#define MAP_FAILED ((void *)-1)
enum { MADV_NORMAL = 0, MADV_WILLNEED = 3, MADV_DONTNEED = 4 };
enum { POLLIN = 1, POLLOUT = 4 };
enum { _SC_PAGESIZE = 1, _SC_PHYS_PAGES = 2 };
enum { TIOCGWINSZ = 1 };
enum { ICANON = 1, ECHO = 2, IEXTEN = 4, ICRNL = 1, INLCR = 2, IXON = 4 };
enum { VMIN = 0, VTIME = 1, TCSANOW = 0 };
enum { SA_RESTART = 1, SA_NODEFER = 2 };
// Signals that Windows never sends.
enum { SIGHUP = 41, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGBUS };
enum { SIGPIPE = 51, SIGXFSZ, SIGTSTP, SIGWINCH };

struct sigaction {
    void (*sa_handler)(int);
    int sa_flags;
};
#undef stat
#undef fstat
struct posix_stat {
    dev_t st_dev, st_rdev; // st_rdev is always 0
    ino_t st_ino;
    unsigned short st_mode;
    unsigned st_uid; // always 0
    off_t st_size;
    struct timespec st_mtim;
};
struct winsize {
    unsigned short ws_row, ws_col;
};
typedef unsigned tcflag_t;
struct termios {
    tcflag_t c_lflag, c_iflag;
    unsigned char c_cc[2];
    unsigned long mode; // of the console
};
struct pollfd {
    int fd;
    short events, revents;
};

int posix_open(const char *path, int flags, ...);
int posix_stat(const char *path, struct posix_stat *st);
int posix_fstat(int fd, struct posix_stat *st);
int posix_unlink(const char *path);
int posix_rename(const char *from, const char *to);
int posix_access(const char *path, int mode);
int posix_mkdir(const char *path, int mode);
// `directory` is the result of the last dirfd() call.
int dirfd(DIR *d);
int fstatat(int directory, const char *name, struct posix_stat *st, int flags);
// Sets times[1] only.
int utimensat(int directory, const char *path, const struct timespec times[2], int flags);
int link(const char *from, const char *to);
ssize_t readlink(const char *path, char *out, size_t n);
int fchmod(int fd, int mode);
int fsync(int fd);
int flock(int fd, int how);
int fcntl(int fd, int command, ...);
ssize_t pread(int fd, void *out, size_t n, off_t at);
ssize_t pwrite(int fd, const void *data, size_t n, off_t at);
int pipe(int fds[2]);
int poll(struct pollfd *fds, unsigned n, int timeout_ms);
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int munmap(void *p, size_t n);
int madvise(void *p, size_t n, int advice);
long sysconf(int name);
int gethostname(char *out, size_t size);
unsigned geteuid(void); // 0
int ioctl(int fd, int request, void *out);
int tcgetattr(int fd, struct termios *t);
int tcsetattr(int fd, int when, const struct termios *t);
int sigaction(int number, const struct sigaction *action, struct sigaction *before);
void *memmem(const void *hay, size_t n, const void *needle, size_t n_needle);
int wcwidth(wchar_t c);

// free() must accept aligned blocks, so all allocation is replaced.
void *posix_malloc(size_t n);
void *posix_realloc(void *p, size_t n);
void posix_free(void *p);
int posix_memalign(void **out, size_t alignment, size_t n);

#ifndef POSIX_IMPLEMENTATION
#define open    posix_open
#define tell    posix_tell // declared by io.h
#define stat    posix_stat // also the struct
#define fstat   posix_fstat
#define unlink  posix_unlink
#define rename  posix_rename
#define access  posix_access
#define mkdir   posix_mkdir
#define malloc  posix_malloc
#define calloc  posix_calloc // missing: nothing calls it
#define realloc posix_realloc
#define free    posix_free
#define main    posix_main // called by the main() of os_windows.c
#endif
