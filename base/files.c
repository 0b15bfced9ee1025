#include "files.h"
#include "clock.h"
#include "../os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAM_LIMIT = 1 << 30 }; // of text from a pipe or device, which may have no end
enum { READ_BYTES = 1 << 16, MAX_LINKS = 40, MAX_TRIES = 100, MAX_UNFINISHED = 16 };

// What the run reads or appends to
static struct {
    dev_t dev;
    ino_t ino;
} * in_use;
static size_t n_in_use;

static bool is_in_use(const struct stat *st) {
    for (size_t i = 0; i < n_in_use; i++)
        if (in_use[i].dev == st->st_dev && in_use[i].ino == st->st_ino) return true;
    return false;
}

static void use(const struct stat *st) {
    if (!S_ISREG(st->st_mode) || is_in_use(st)) return;
    in_use = xrealloc(in_use, n_in_use + 1, sizeof *in_use);
    in_use[n_in_use].dev = st->st_dev;
    in_use[n_in_use++].ino = st->st_ino;
}

void file_register_input(const char *path) {
    struct stat st;
    bool is_stdin = !path || !strcmp(path, "-");
    if ((is_stdin ? fstat(STDIN_FILENO, &st) : stat(path, &st)) == 0) use(&st);
}

bool file_wait(int fd, short events) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    return poll(&(struct pollfd){.fd = fd, .events = events}, 1, -1) > 0 || errno == EINTR;
}

bool file_read(const char *path, Buffer *out, Error *err) {
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0) return error_file(err, path);
    struct stat st;
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode), is_endless = false;
    size_t before = out->len;
    ssize_t n;
    do {
        n = read(fd, buffer_reserve(out, READ_BYTES), READ_BYTES);
        if (n > 0) out->len += (size_t)n;
        is_endless = !is_file && out->len - before > STREAM_LIMIT;
    } while ((n > 0 && !is_endless) || (n < 0 && (errno == EINTR || file_wait(fd, POLLIN))));
    if (n < 0) error_file(err, path);
    out->data[out->len] = 0;
    if (fd != STDIN_FILENO) close(fd);
    if (is_endless)
        return error_set(err, EXIT_RUNTIME,
                         "%s: expected at most %d MiB from a pipe or device, found more", path,
                         STREAM_LIMIT >> 20);
    return n == 0;
}

bool write_all_at(int fd, const void *data, size_t n, int64_t at) {
    const char *p = data;
    while (n) {
        ssize_t k = at < 0 ? write(fd, p, n) : pwrite(fd, p, n, at);
        if (k < 0 && (errno == EINTR || file_wait(fd, POLLOUT))) continue;
        if (k == 0) errno = ENOSPC;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
        if (at >= 0) at += k;
    }
    return true;
}

bool write_all(int fd, const void *data, size_t n) { return write_all_at(fd, data, n, -1); }

// What is unfinished
static char *volatile unfinished[MAX_UNFINISHED];

void files_cleanup(void) {
    for (int i = 0; i < MAX_UNFINISHED; i++)
        if (unfinished[i]) unlink(unfinished[i]);
}

static bool remember(char *beside) {
    for (int i = 0; i < MAX_UNFINISHED; i++)
        if (!unfinished[i]) return unfinished[i] = beside, true;
    return false;
}

static void forget(char *beside) {
    for (int i = 0; i < MAX_UNFINISHED; i++)
        if (unfinished[i] == beside) unfinished[i] = NULL;
    free(beside);
}

// The file that a name stands for: links are followed, to what is not there yet too. Owned by the
// caller.
static char *follow_links(const char *path, Error *err) {
    char link[4096];
    Buffer at = {0};
    buffer_puts(&at, path);
    for (int i = 0; i < MAX_LINKS; i++) {
        ssize_t n = readlink(at.data, link, sizeof link);
        if (n < 0) return at.data;
        if (n == sizeof link) break;
        char *slash = strrchr(at.data, '/');
        at.len = *link == '/' || !slash ? 0 : (size_t)(slash + 1 - at.data);
        buffer_append(&at, link, (size_t)n);
    }
    buffer_free(&at);
    errno = ELOOP;
    error_file(err, path);
    return NULL;
}

// Whether a file may be written at all. *is_stream if it is none that a name can be given to.
static bool may_write(const struct stat *st, const char *path, unsigned flags, bool *is_stream,
                      Error *err) {
    *is_stream = !S_ISREG(st->st_mode);
    if (is_in_use(st))
        return error_set(err, EXIT_USAGE,
                         "%s: the input and the output of this run are the same file", path);
    if (!*is_stream || ((flags & FILE_STREAM) && !S_ISDIR(st->st_mode) && !S_ISBLK(st->st_mode)))
        return true;
    return error_set(err, EXIT_RUNTIME, "%s: expected a file, found a %s", path,
                     S_ISDIR(st->st_mode) ? "directory" : "device");
}

// A name that nobody can foresee. Where there is no random source, O_EXCL still refuses what
// somebody put there.
static char *name_beside(const char *target) {
    uint64_t number = 0;
    Buffer name = {0};
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &number, sizeof number) != sizeof number)
        number = (uint64_t)(now_sec() * 1e9);
    if (fd >= 0) close(fd);
    buffer_printf(&name, "%s.%016llx.tmp", target, (unsigned long long)number);
    return name.data;
}

// The folder that a file stands in.
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    Buffer folder = {0};
    buffer_append(&folder, slash ? path : ".", slash ? (size_t)(slash + 1 - path) : 1);
    return folder.data;
}

// A name beside the target, on the list of those that every end removes.
static bool take_beside(OutFile *f, Error *err) {
    f->beside = name_beside(f->target);
    if (remember(f->beside)) return true;
    free(f->beside);
    f->beside = NULL;
    return error_set(err, EXIT_RUNTIME, "%s: too many files are being written", f->path);
}

// The file without a name where the system has that, else under another name.
static bool open_beside(OutFile *f, mode_t mode, Error *err) {
    f->folder = folder_of(f->target);
    f->fd = os_open_temporary(f->folder, mode);
    if (f->fd >= 0) return true;
    for (int i = 0; i < MAX_TRIES; i++) {
        if (!take_beside(f, err)) return false;
        f->fd = open(f->beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (f->fd >= 0) return true;
        forget(f->beside);
        f->beside = NULL;
        if (errno != EEXIST) break;
    }
    return error_file(err, f->path);
}

// Begins the file; st is what stands there, if anything.
static bool begin(OutFile *f, const struct stat *st, unsigned flags, Error *err) {
    // A file that may not be written may not be replaced either, whatever its folder allows.
    if (!f->is_new && access(f->path, W_OK)) return error_file(err, f->path);
    f->target = follow_links(f->path, err);
    if (!f->target) return false;
    mode_t mode = !f->is_new ? st->st_mode & 0777 : flags & FILE_PRIVATE ? 0600 : 0666;
    bool ok = open_beside(f, mode, err);
    if (ok && !f->is_new && fchmod(f->fd, mode)) ok = error_file(err, f->path);
    if (!ok) outfile_discard(f);
    return ok;
}

bool outfile_open(OutFile *f, const char *path, unsigned flags, Error *err) {
    struct stat st;
    bool is_stream = false;
    *f = (OutFile){.path = path, .fd = -1, .is_new = stat(path, &st) != 0};
    if (!f->is_new && !may_write(&st, path, flags, &is_stream, err)) return false;
    if (is_stream) {
        f->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return f->fd >= 0 || error_file(err, path);
    }
    if (!f->is_new && st.st_size > 0 && !(flags & FILE_FORCE))
        return error_set(err, EXIT_USAGE, "%s exists: --force replaces it", path);
    return begin(f, &st, flags, err);
}

// A rename is on the disk when its folder is; where folders cannot be synced, nothing can be done.
static void sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) fsync(fd), close(fd);
}

// A new file takes its name by link, which never replaces (some file systems have no links); one
// that replaces another needs a name of its own first.
static bool take_name(OutFile *f, Error *err) {
    bool is_named = f->beside;
    if (f->is_new &&
        (is_named ? link(f->beside, f->target) == 0 : os_link_temporary(f->fd, f->target))) {
        if (is_named) unlink(f->beside);
        return true;
    }
    if (f->is_new && errno == EEXIST)
        return error_set(err, EXIT_RUNTIME, "%s: another program made it meanwhile; it is kept",
                         f->path);
    if (!is_named && (!take_beside(f, err) || !os_link_temporary(f->fd, f->beside)))
        return error_file(err, f->path);
    return rename(f->beside, f->target) == 0 || error_file(err, f->path);
}

// Syncs the file and names it; it stays open.
static bool finish(OutFile *f, Error *err) {
    if (!f->target) return true;
    if (fsync(f->fd) && errno != EINVAL) return error_file(err, f->path);
    if (!take_name(f, err)) return false;
    sync_folder(f->folder);
    if (f->beside) forget(f->beside);
    f->beside = NULL;
    return true;
}

bool outfile_close(OutFile *f, Error *err) {
    bool ok = finish(f, err);
    if (ok && close(f->fd)) ok = error_file(err, f->path);
    if (ok) f->fd = -1;
    outfile_discard(f);
    return ok;
}

void outfile_discard(OutFile *f) {
    if (f->fd >= 0) close(f->fd);
    if (f->beside) unlink(f->beside), forget(f->beside);
    free(f->target);
    free(f->folder);
    *f = (OutFile){.fd = -1};
}

// Whether the name still stands for what was opened and locked: another run may have replaced it in
// between.
static bool is_named(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

bool journal_open(Journal *j, const char *path, unsigned flags, Error *err) {
    struct stat st;
    bool is_stream = false, is_there = stat(path, &st) == 0;
    *j = (Journal){.path = path, .fd = -1};
    if (is_there && !may_write(&st, path, flags, &is_stream, err)) return false;
    int how = is_stream ? O_WRONLY | O_NOCTTY : O_RDWR | O_APPEND | O_CREAT;
    for (int i = 0; i < MAX_TRIES; i++) {
        j->fd = open(path, how | O_CLOEXEC, flags & FILE_PRIVATE ? 0600 : 0666);
        if (j->fd < 0 || fstat(j->fd, &st)) return error_file(err, path);
        j->is_file = !is_stream;
        if (is_stream) return true;
        bool is_locked =
            flock(j->fd, LOCK_EX | LOCK_NB) == 0; // where there are no locks, go on without
        if (!is_locked && errno == EWOULDBLOCK) {
            close(j->fd);
            return error_set(err, EXIT_RUNTIME, "%s: another run is writing it", path);
        }
        if (is_named(j->fd, path)) return use(&st), true;
        close(j->fd);
    }
    return error_set(err, EXIT_RUNTIME, "%s: another run replaces it again and again", path);
}

bool journal_repair(Journal *j, size_t n_torn, Error *err) {
    struct stat st;
    char last = '\n';
    if (!j->is_file) return true;
    if (fstat(j->fd, &st)) return error_file(err, j->path);
    off_t whole = st.st_size - (off_t)n_torn;
    if (n_torn && ftruncate(j->fd, whole)) return error_file(err, j->path);
    if (whole > 0 && pread(j->fd, &last, 1, whole - 1) != 1) return error_file(err, j->path);
    return last == '\n' || journal_append(j, str_of("\n"), err);
}

bool journal_append(Journal *j, Str lines, Error *err) {
    struct stat st;
    if (j->is_truncated && ftruncate(j->fd, (off_t)j->n_whole_bytes))
        return error_file(err, j->path);
    bool is_file = j->is_file && fstat(j->fd, &st) == 0;
    j->is_truncated = false;
    if (write_all(j->fd, lines.data, lines.len)) return true;
    error_file(err, j->path);
    if (is_file && ftruncate(j->fd, st.st_size)) { // then the next write begins with it
        j->is_truncated = true;
        j->n_whole_bytes = st.st_size;
    }
    return false;
}

bool journal_replace(Journal *j, Str all, Error *err) {
    struct stat st;
    OutFile f = {.path = j->path, .fd = -1};
    if (fstat(j->fd, &st)) return error_file(err, j->path);
    if (!begin(&f, &st, 0, err)) return false;
    bool ok = write_all(f.fd, all.data, all.len) || error_file(err, j->path);
    char mark[256];
    os_get_attribute(j->fd, mark, sizeof mark);
    if (*mark) os_set_attribute(f.fd, mark);
    if (ok) flock(f.fd, LOCK_EX | LOCK_NB);
    ok = ok && finish(&f, err);
    if (ok) {
        close(j->fd);
        *j = (Journal){.path = j->path, .fd = f.fd, .is_file = true};
        f.fd = -1;
        ok = (fcntl(j->fd, F_SETFL, O_APPEND) == 0 && fstat(j->fd, &st) == 0) ||
             error_file(err, j->path);
    }
    if (ok) use(&st);
    outfile_discard(&f);
    return ok;
}

bool journal_close(Journal *j, Error *err) {
    bool ok = !j->is_file || fsync(j->fd) == 0 || errno == EINVAL || error_file(err, j->path);
    if (close(j->fd) && ok) ok = error_file(err, j->path);
    j->fd = -1;
    return ok;
}
