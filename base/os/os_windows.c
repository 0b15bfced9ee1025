// Windows: implements os.h, and the POSIX functions that this program uses, as declared in
// windows/posix.h (which base/os/platform.mk includes before every file). Only the behavior that
// the program relies on is implemented. Order: os.h, memory, files, the console, signals, text.
#include "base/os/os.h"

#include <stdarg.h>
#include <stdint.h>
#include <windows.h>
#include <shellapi.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some POSIX parameters are unused here

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    WaitOnAddress((volatile void *)word, &value, sizeof value, INFINITE);
}
void os_wake_all(_Atomic unsigned *word) { WakeByAddressAll((void *)word); }

OsCpus os_cpus(void) {
    OsCpus c = {.n_cpus = (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)};
    DWORD bytes = 0;
    GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, &bytes);
    char *list = posix_malloc(bytes); // records of different sizes
    int highest = 0;                  // efficiency class of the performance cores

    if (list && GetLogicalProcessorInformationEx(RelationProcessorCore, (void *)list, &bytes))
        for (SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *core = (void *)list;
             (char *)core < list + bytes; core = (void *)((char *)core + core->Size)) {
            int class = ((const BYTE *)&core->Processor)[1]; // EfficiencyClass, not in all headers
            if (class > highest) {
                highest = class;
                c.n_fast = 0;
            }
            c.n_fast += class == highest;
            c.n_cores++;
        }

    posix_free(list);
    return c.n_cores ? c : (OsCpus){c.n_cpus, c.n_cpus, c.n_cpus};
}

size_t os_stack_limit(void) { return SIZE_MAX; } // set by the linker

double os_cpu_quota(void) { return 1e9; }
bool os_has_numa(void) { return false; }
OsEnergy os_energy(void) { return (OsEnergy){0}; }
double os_energy_since(const OsEnergy *start) { return -1; }
const char *os_energy_directory(void) { return NULL; }
bool os_shell_reads_stdin(const struct stat *st) { return false; }

bool os_enable_amx(void) { return false; }
enum { ARM_V82_DP = 43, ARM_V82_I8MM = 66 }; // PF_..._INSTRUCTIONS_AVAILABLE, not in all headers
bool os_has_dotprod(void) { return IsProcessorFeaturePresent(ARM_V82_DP); }
bool os_has_i8mm(void) { return IsProcessorFeaturePresent(ARM_V82_I8MM); }

size_t os_memory_available(void) {
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    return GlobalMemoryStatusEx(&status) ? (size_t)status.ullAvailPhys : SIZE_MAX;
}

long sysconf(int name) {
    SYSTEM_INFO info;
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    GetSystemInfo(&info);
    if (name == _SC_PAGESIZE) return (long)info.dwPageSize;
    return GlobalMemoryStatusEx(&status) ? (long)(status.ullTotalPhys / info.dwPageSize) : -1;
}

int gethostname(char *out, size_t size) {
    return GetComputerNameA(out, &(DWORD){(DWORD)size}) ? 0 : -1;
}

unsigned geteuid(void) { return 0; }
int64_t os_ctime_ns(int fd, const struct stat *st) { return 0; }
int os_open_temporary(const char *directory, unsigned mode) { return -1; }
bool os_link_temporary(int fd, const char *path) { return false; }

// Memory. free() must accept blocks of posix_memalign(), so _aligned_malloc() allocates all blocks.

enum { ALIGNMENT = 64 };

void *posix_malloc(size_t n) { return _aligned_malloc(n, ALIGNMENT); }
void *posix_realloc(void *p, size_t n) { return _aligned_realloc(p, n, ALIGNMENT); }
void posix_free(void *p) { _aligned_free(p); }

int posix_memalign(void **out, size_t alignment, size_t n) {
    *out = alignment <= ALIGNMENT ? posix_malloc(n) : NULL;
    return *out ? 0 : ENOMEM;
}

// Files.

// Sets errno from the last Windows error. Returns -1.
static int set_errno(void) {
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME: errno = ENOENT; break;
    case ERROR_ALREADY_EXISTS:
    case ERROR_FILE_EXISTS: errno = EEXIST; break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: errno = EACCES; break;
    case ERROR_DISK_FULL: errno = ENOSPC; break;
    case ERROR_NOT_ENOUGH_MEMORY: errno = ENOMEM; break;
    case ERROR_LOCK_VIOLATION:
    case ERROR_IO_PENDING: errno = EWOULDBLOCK; break;
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA: errno = EPIPE; break;
    default: errno = EIO;
    }

    return -1;
}

// Paths are UTF-8 in this program, UTF-16 in Windows.
typedef struct {
    wchar_t text[4096];
} WidePath;

static const wchar_t *wide(const char *path, WidePath *w) {
    if (!strcmp(path, "/dev/null")) path = "NUL";
    if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, w->text, 4096)) w->text[0] = 0;
    return w->text;
}

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

// Opens a file as POSIX does: other processes may read, write, rename and delete it meanwhile.
static HANDLE open_shared(const char *path, DWORD access, DWORD disposition, DWORD flags) {
    WidePath w;
    DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    HANDLE h = CreateFileW(wide(path, &w), access, sharing, NULL, disposition, flags, NULL);
    if (h == INVALID_HANDLE_VALUE) set_errno();
    return h;
}

int posix_open(const char *path, int flags, ...) {
    int how = flags & (O_RDONLY | O_WRONLY | O_RDWR);
    DWORD access = GENERIC_READ | GENERIC_WRITE;
    if (how == O_RDONLY) access = GENERIC_READ;
    if (how == O_WRONLY) access = GENERIC_WRITE;

    DWORD begin = flags & O_CREAT ? OPEN_ALWAYS : OPEN_EXISTING;
    if (flags & O_EXCL) begin = CREATE_NEW;
    if (flags & O_TRUNC) begin = flags & O_CREAT ? CREATE_ALWAYS : TRUNCATE_EXISTING;
    HANDLE h = open_shared(path, access, begin, FILE_ATTRIBUTE_NORMAL);
    if (h == INVALID_HANDLE_VALUE) return -1;
    return _open_osfhandle((intptr_t)h, _O_BINARY | _O_NOINHERIT | (flags & O_APPEND));
}

enum { NSEC = 1000000000, TICK_NSEC = 100 };
static const int64_t epoch = 11644473600; // seconds from 1601, the epoch of Windows, to 1970

static int stat_handle(HANDLE h, struct posix_stat *st) {
    BY_HANDLE_FILE_INFORMATION info;
    DWORD type = GetFileType(h);
    memset(st, 0, sizeof *st);

    if (type != FILE_TYPE_DISK) {
        st->st_mode = type == FILE_TYPE_PIPE ? S_IFIFO : S_IFCHR;
        return 0;
    }

    if (!GetFileInformationByHandle(h, &info)) return set_errno();

    bool is_directory = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
    st->st_mode = (unsigned short)((is_directory ? S_IFDIR : S_IFREG) | 0644);
    st->st_size = (off_t)((uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow);

    // st_dev and st_ino have 48 bits together: a hash of the volume and the file id.
    uint64_t id = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    uint64_t hash = (id ^ (uint64_t)info.dwVolumeSerialNumber << 20) * 0x9e3779b97f4a7c15u;
    st->st_dev = (unsigned)(hash >> 32);
    st->st_ino = (unsigned short)(hash >> 16);

    uint64_t ticks =
        (uint64_t)info.ftLastWriteTime.dwHighDateTime << 32 | info.ftLastWriteTime.dwLowDateTime;
    st->st_mtim.tv_sec = (time_t)(ticks / (NSEC / TICK_NSEC)) - epoch;
    st->st_mtim.tv_nsec = (long)(ticks % (NSEC / TICK_NSEC)) * TICK_NSEC;
    return 0;
}

int posix_fstat(int fd, struct posix_stat *st) { return stat_handle(handle_of(fd), st); }

int posix_stat(const char *path, struct posix_stat *st) {
    HANDLE h = open_shared(path, 0, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS); // directories too
    if (h == INVALID_HANDLE_VALUE) return -1;
    int code = stat_handle(h, st);
    CloseHandle(h);
    return code;
}

int posix_unlink(const char *path) {
    WidePath w;
    return DeleteFileW(wide(path, &w)) ? 0 : set_errno();
}

int posix_rename(const char *from, const char *to) {
    WidePath a, b;
    return MoveFileExW(wide(from, &a), wide(to, &b), MOVEFILE_REPLACE_EXISTING) ? 0 : set_errno();
}

int posix_access(const char *path, int mode) {
    WidePath w;
    DWORD found = GetFileAttributesW(wide(path, &w));
    if (found == INVALID_FILE_ATTRIBUTES) return set_errno();
    errno = EACCES;
    return (mode & W_OK) && (found & FILE_ATTRIBUTE_READONLY) ? -1 : 0;
}

int posix_mkdir(const char *path, int mode) {
    WidePath w;
    return CreateDirectoryW(wide(path, &w), NULL) ? 0 : set_errno();
}

// fstatat() refers to the directory of the last dirfd() call.
static _Thread_local const char *directory_pattern; // "NAME/*"

int dirfd(DIR *d) {
    directory_pattern = d->dd_name;
    return 0;
}

int fstatat(int directory, const char *name, struct posix_stat *st, int flags) {
    char path[4096];
    size_t n = strlen(directory_pattern) - 1; // without the *
    snprintf(path, sizeof path, "%.*s%s", (int)n, directory_pattern, name);
    return posix_stat(path, st);
}

int utimensat(int directory, const char *path, const struct timespec times[2], int flags) {
    uint64_t ticks = (uint64_t)(times[1].tv_sec + epoch) * (NSEC / TICK_NSEC) +
                     (uint64_t)times[1].tv_nsec / TICK_NSEC;
    FILETIME time = {(DWORD)ticks, (DWORD)(ticks >> 32)};
    HANDLE h = open_shared(path, FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, 0);
    if (h == INVALID_HANDLE_VALUE) return -1;
    int code = SetFileTime(h, NULL, NULL, &time) ? 0 : set_errno();
    CloseHandle(h);
    return code;
}

int link(const char *from, const char *to) {
    WidePath a, b;
    return CreateHardLinkW(wide(to, &b), wide(from, &a), NULL) ? 0 : set_errno();
}

ssize_t readlink(const char *path, char *out, size_t n) {
    errno = EINVAL; // "not a link": Windows follows links itself
    return -1;
}

int fchmod(int fd, int mode) { return 0; }
int fsync(int fd) { return FlushFileBuffers(handle_of(fd)) ? 0 : set_errno(); }

int flock(int fd, int how) {
    // Windows locks deny reading and writing of the locked bytes, so the locked byte is far beyond
    // the end of the file.
    OVERLAPPED far_away = {.OffsetHigh = 0x40000000};
    DWORD flags = LOCKFILE_EXCLUSIVE_LOCK | (how & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0);
    return LockFileEx(handle_of(fd), flags, 0, 1, 0, &far_away) ? 0 : set_errno();
}

int fcntl(int fd, int command, ...) { return handle_of(fd) == INVALID_HANDLE_VALUE ? -1 : 0; }

ssize_t pread(int fd, void *out, size_t n, off_t at) {
    OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)((uint64_t)at >> 32)};
    DWORD done = 0, most = n < 1u << 30 ? (DWORD)n : 1u << 30;
    if (ReadFile(handle_of(fd), out, most, &done, &where) || GetLastError() == ERROR_HANDLE_EOF)
        return (ssize_t)done;
    return set_errno();
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)((uint64_t)at >> 32)};
    DWORD done = 0, most = n < 1u << 30 ? (DWORD)n : 1u << 30;
    return WriteFile(handle_of(fd), data, most, &done, &where) ? (ssize_t)done : set_errno();
}

int pipe(int fds[2]) { return _pipe(fds, 4096, _O_BINARY | _O_NOINHERIT); }

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    HANDLE mapping = CreateFileMappingW(handle_of(fd), NULL, PAGE_READONLY, 0, 0, NULL);
    void *p = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    if (!p) set_errno();
    if (mapping) CloseHandle(mapping);
    return p ? p : MAP_FAILED;
}

int munmap(void *p, size_t n) { return UnmapViewOfFile(p) ? 0 : set_errno(); }

int madvise(void *p, size_t n, int advice) { return 0; }

// The console.

int ioctl(int fd, int request, void *out) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(handle_of(fd), &info)) return set_errno();
    *(struct winsize *)out =
        (struct winsize){(unsigned short)(info.srWindow.Bottom - info.srWindow.Top + 1),
                         (unsigned short)(info.srWindow.Right - info.srWindow.Left + 1)};
    return 0;
}

int tcgetattr(int fd, struct termios *t) {
    DWORD mode;
    if (!GetConsoleMode(handle_of(fd), &mode)) return set_errno();
    *t = (struct termios){.c_lflag = ICANON | ECHO | IEXTEN, .mode = mode};
    return 0;
}

int tcsetattr(int fd, int when, const struct termios *t) {
    enum { KEYS = 0x200 }; // ENABLE_VIRTUAL_TERMINAL_INPUT
    DWORD lines = ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT;
    return SetConsoleMode(handle_of(fd), t->c_lflag & ICANON ? t->mode : (t->mode & ~lines) | KEYS)
               ? 0
               : set_errno();
}

static bool has_key(HANDLE console) {
    INPUT_RECORD records[64];
    DWORD n = 0;
    if (!PeekConsoleInputW(console, records, 64, &n)) return true;
    for (DWORD i = 0; i < n; i++)
        if (records[i].EventType == KEY_EVENT && records[i].Event.KeyEvent.bKeyDown) return true;
    return false;
}

static bool is_readable(int fd) {
    HANDLE h = handle_of(fd);
    DWORD n = 0, type = GetFileType(h);
    if (type == FILE_TYPE_CHAR) return has_key(h);
    return type != FILE_TYPE_PIPE || !PeekNamedPipe(h, NULL, 0, NULL, &n, NULL) ||
           n; // end of file counts as readable
}

int poll(struct pollfd *fds, unsigned n, int timeout_ms) {
    for (int waited = 0;; waited += 5) {
        int n_ready = 0;
        for (unsigned i = 0; i < n; i++) {
            fds[i].revents = fds[i].events & POLLIN && !is_readable(fds[i].fd) ? 0 : fds[i].events;
            n_ready += fds[i].revents != 0;
        }
        if (n_ready || (timeout_ms >= 0 && waited >= timeout_ms)) return n_ready;
        Sleep(5);
    }
}

// Signals: the signals of ISO C, and Ctrl-C in the console.

static struct sigaction actions[NSIG];

static BOOL WINAPI on_control(DWORD event) {
    void (*handler)(int) = actions[SIGINT].sa_handler;
    if (event != CTRL_C_EVENT || handler == SIG_DFL) return FALSE;
    if (handler != SIG_IGN) handler(SIGINT);
    return TRUE;
}

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    bool is_known = number > 0 && number < NSIG;
    if (before) *before = is_known ? actions[number] : (struct sigaction){0};
    if (!action || !is_known) return is_known ? 0 : -1;
    actions[number] = *action;
    if (number == SIGINT) return SetConsoleCtrlHandler(on_control, TRUE) ? 0 : set_errno();
    return signal(number, action->sa_handler) == SIG_ERR ? -1 : 0;
}

// Text.

void *memmem(const void *hay, size_t n, const void *needle, size_t n_needle) {
    const char *at = hay;
    for (size_t i = 0; i + n_needle <= n; i++)
        if (!memcmp(at + i, needle, n_needle)) return (void *)(uintptr_t)(at + i);
    return NULL;
}

// Columns of a character, by Unicode blocks that are wide or combining as a whole.
int wcwidth(wchar_t c) {
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return -1;
    if ((c >= 0x300 && c < 0x370) || (c >= 0x200b && c < 0x2010) || (c >= 0xfe00 && c < 0xfe10))
        return 0;
    bool is_wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) ||
                   (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
                   (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61);
    return is_wide ? 2 : 1;
}

// The program's main(). The real one converts the arguments to UTF-8 and sets up the console.
int posix_main(int argc, char **argv);

int main(void) {
    enum { ESCAPE_SEQUENCES = 4 }; // ENABLE_VIRTUAL_TERMINAL_PROCESSING
    int argc;
    wchar_t **wide_args = CommandLineToArgvW(GetCommandLineW(), &argc);
    char **args = posix_malloc(((size_t)argc + 1) * sizeof *args);

    // Convert the arguments to UTF-8.
    for (int i = 0; i < argc; i++) {
        int n = WideCharToMultiByte(CP_UTF8, 0, wide_args[i], -1, NULL, 0, NULL, NULL);
        args[i] = posix_malloc((size_t)n);
        WideCharToMultiByte(CP_UTF8, 0, wide_args[i], -1, args[i], n, NULL, NULL);
    }
    args[argc] = NULL;

    // Make streams binary, and let consoles interpret escape sequences.
    for (int fd = 0; fd < 3; fd++) {
        DWORD mode;
        _setmode(fd, _O_BINARY);

        bool is_console = fd && GetConsoleMode(handle_of(fd), &mode);
        if (is_console && !SetConsoleMode(handle_of(fd), mode | ESCAPE_SEQUENCES))
            putenv("TERM=dumb");
    }

    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);

    return posix_main(argc, args);
}
