// What each system does in its own way, a file for each: os_linux.c, os_bsd.c (FreeBSD, macOS),
// os_windows.c.
#ifndef OS_OS_H
#define OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

// Sleeps while *word is `value`, until os_wake_all; may return early.
void os_sleep_while(_Atomic unsigned *word, unsigned value);
void os_wake_all(_Atomic unsigned *word);
// CPUs that this process may run on.
int os_cpus(void);
// CPUs worth of time that this process may use beside its affinity mask, or a large number.
double os_cpu_quota(void);
// Bytes of memory that can still be had without swapping, or SIZE_MAX where the system does not
// tell.
size_t os_memory_available(void);
// When a file was changed, in nanoseconds since 1970.
int64_t os_mtime_ns(const struct stat *st);
// Whether the system lets this process use the CPU's tile registers (AMX); whether the CPU has
// ARM's dot products.
bool os_enable_amx(void);
bool os_has_dotprod(void);

#endif
