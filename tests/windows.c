// POSIX functions that only the tests call, for Windows (see tests/test.h).
#if defined(_WIN32)
#include <windows.h>

int mprotect(void *p, size_t n, int protection) {
    DWORD before;
    return VirtualProtect(p, n, protection ? PAGE_READWRITE : PAGE_NOACCESS, &before) ? 0 : -1;
}

char *mkdtemp(char *name) {
    char *end = name + strlen(name) - 6; // XXXXXX
    for (unsigned i = 0; i < 1000; i++) {
        unsigned number = (unsigned)(GetTickCount() * 1000 + GetCurrentProcessId() + i);
        snprintf(end, 7, "%06x", number & 0xffffff);
        if (posix_mkdir(name, 0700) == 0) return name;
    }
    return NULL;
}
#else
typedef int WindowsOnly; // an empty file is not valid C
#endif
