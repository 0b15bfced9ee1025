// Operating system services beyond POSIX. Each system has one file: os_linux.c, os_bsd.c (macOS and
// other POSIX systems) or os_windows.c, which also provides the POSIX calls that Windows lacks.
//
// This directory includes nothing of the rest of the program.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

// Sleeps until os_wake_all(word), unless *word differs from `value`. May return early.
void os_sleep_while(_Atomic unsigned *word, unsigned value);
void os_wake_all(_Atomic unsigned *word);

// The CPUs in this process's affinity mask. Where the system does not describe them, all are
// performance cores.
typedef struct {
    int n_cpus;  // logical CPUs
    int n_cores; // physical cores, each with at least one of these CPUs
    int n_fast;  // performance cores: all cores that are not efficiency cores
} OsCpus;
OsCpus os_cpus(void);
// CPU time limit of this process in CPUs (Linux control groups); 1e9 without a limit.
double os_cpu_quota(void);
// Bytes that can be allocated without swapping, within the limits of control groups; SIZE_MAX if
// unknown.
size_t os_memory_available(void);
// Largest stack of the main thread in bytes; SIZE_MAX without a limit.
size_t os_stack_limit(void);
// True if the memory is divided into several nodes (NUMA), such as the sockets of a server.
bool os_has_numa(void);

// Energy counters of the CPU packages. A counter wraps around at its range.
enum { OS_MAX_PACKAGES = 64 };
typedef struct {
    int n; // packages; 0 if the system has no counters, or this process may not read them
    double joules[OS_MAX_PACKAGES]; // (n) since some time in the past
    double range[OS_MAX_PACKAGES];  // (n)
} OsEnergy;
OsEnergy os_energy(void);
// Joules that all packages have used since `start` was read, if no counter wrapped around twice; -1
// if unknown.
double os_energy_since(const OsEnergy *start);
// Below it are the files that os_energy() reads; NULL if it reads none.
const char *os_energy_directory(void);

// Nanoseconds since 1970 of a time such as st_mtim.
static inline int64_t os_time_ns(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#if defined(__APPLE__) // names from before POSIX defined them
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif
// Time of the last change of a file's content or attributes, which no program can set back. 0 if
// the system (Windows) or the file system (FAT, FUSE) has no such time.
int64_t os_ctime_ns(int fd, const struct stat *st);
// Opens a file without a name in `directory`. It vanishes with the process unless
// os_link_temporary() gives it a name. Returns -1 if the system or the file system lacks such
// files.
int os_open_temporary(const char *directory, unsigned mode);
// Gives such a file a name. Never replaces an existing file. False with errno set.
bool os_link_temporary(int fd, const char *path);

// True if a calling shell may read what is left of the pipe or socket `st`, the standard input: its
// own is the same, and it has read something before, as a loop does. Other programs pass their
// standard input on. If the pipe is open but empty, waits for its end, a second at most: cron and
// sshd close it after the shell has started. False if the system cannot tell (all but Linux).
bool os_shell_reads_stdin(const struct stat *st);

// Requests the use of the AMX tile registers for this process; false if the system refuses.
bool os_enable_amx(void);
// True if the CPU has these ARM instructions: dot products (ARMv8.2), 8-bit matrix multiplication
// (ARMv8.6).
bool os_has_dotprod(void);
bool os_has_i8mm(void);
