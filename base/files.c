// See files.h.
// Order: files in use, reading, temporary names, output files, journals.
#include "base/files.h"
#include "base/blake2b.h"
#include "base/clock.h"
#include "base/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_STREAM_BYTES = 1 << 30, READ_BYTES = 1 << 16 };
enum { MAX_LINKS = 40, MAX_ATTEMPTS = 100, MAX_TEMPORARY = 16 };

static struct stat *in_use; // (n_in_use) the inputs and journals of this run
static size_t n_in_use;

// What file_read() has read.
static struct {
    char *path;
    uint64_t hash;
} * contents; // (n_contents)
static int n_contents;

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_in_use(const struct stat *st) {
    for (size_t i = 0; i < n_in_use; i++)
        if (is_same_file(&in_use[i], st)) return true;
    return false;
}

static void mark_in_use(const struct stat *st) {
    if (!S_ISREG(st->st_mode) || is_in_use(st)) return;
    in_use = xrealloc(in_use, n_in_use + 1, sizeof *in_use);
    in_use[n_in_use++] = *st;
}

// The number of a file that no longer exists may be given to another one.
static void unmark_in_use(const struct stat *st) {
    for (size_t i = 0; i < n_in_use; i++)
        if (is_same_file(&in_use[i], st)) in_use[i] = in_use[--n_in_use];
}

void file_register_input(const char *path) {
    struct stat st;
    bool is_stdin = !path || !strcmp(path, "-");
    if ((is_stdin ? fstat(STDIN_FILENO, &st) : stat(path, &st)) == 0) mark_in_use(&st);
}

const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *file_directory(const char *path) {
    int n = (int)(file_name(path) - path);
    return text_format("%.*s", n ? n : 1, n ? path : ".");
}

bool file_wait(int fd, short events) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    return poll(&(struct pollfd){.fd = fd, .events = events}, 1, -1) > 0 || errno == EINTR;
}

// Says once that the end of standard input is awaited, after a second. An open pipe may never end.
static void warn_if_waiting(void) {
    static bool was_said;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (was_said || poll(&in, 1, 1000)) return;
    was_said = true;
    warn("waiting for the end of standard input (< /dev/null passes none)");
}

static void note_content(const char *path, Str content) {
    contents = list_grow(contents, n_contents, sizeof *contents);
    contents[n_contents].path = text_format("%s", path);
    contents[n_contents++].hash = blake2b_64(content.data, content.len);
}

// Reads a file up to its end, or until more than max_bytes have been read. False with errno.
static bool read_to_end(int fd, size_t max_bytes, Buffer *out) {
    size_t start = out->len;
    while (out->len - start <= max_bytes) {
        if (fd == STDIN_FILENO) warn_if_waiting();
        ssize_t n = read(fd, buffer_reserve(out, READ_BYTES), READ_BYTES);
        if (n == 0) break;
        if (n > 0)
            out->len += (size_t)n;
        else if (errno != EINTR && !file_wait(fd, POLLIN))
            return false;
    }
    return true;
}

bool file_read(const char *path, Buffer *out, Error *err) {
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0) return error_file(err, path);

    struct stat st;
    bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    size_t start = out->len, max_bytes = is_file ? SIZE_MAX : MAX_STREAM_BYTES;

    bool ok = read_to_end(fd, max_bytes, out);
    if (!ok) error_file(err, fd == STDIN_FILENO ? "standard input" : path);
    out->data[out->len] = 0;
    if (fd != STDIN_FILENO) close(fd);
    if (out->len - start > max_bytes)
        return error_set(err, EXIT_RUNTIME, "%s: a pipe or device with more than %d MiB", path,
                         MAX_STREAM_BYTES >> 20);
    if (ok) note_content(path, (Str){out->data + start, out->len - start});
    return ok;
}

uint64_t file_hash(const char *path) {
    for (int i = n_contents - 1; i >= 0; i--)
        if (!strcmp(contents[i].path, path)) return contents[i].hash;
    return 0;
}

bool file_read_text(const char *path, Buffer *out, Error *err) {
    size_t begin = out->len;
    if (!file_read(path, out, err)) return false;

    Str text = {out->data + begin, out->len - begin};
    bool is_utf16 = str_begins_with(text, "\xff\xfe") || str_begins_with(text, "\xfe\xff");
    if (is_utf16 || memchr(text.data, 0, text.len))
        return error_set(err, EXIT_RUNTIME, "%s: expected a text in UTF-8, found %s",
                         strcmp(path, "-") ? path : "standard input",
                         is_utf16 ? "UTF-16" : "a NUL byte");

    text = str_skip_bom(text);
    memmove(out->data + begin, text.data, text.len + 1);
    out->len = begin + text.len;
    return true;
}

const char *file_kind(unsigned mode) {
    if (S_ISDIR(mode)) return "directory";
    return S_ISFIFO(mode) ? "pipe" : "device";
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

// Names of temporary files, for files_cleanup(), which may run in a signal handler at any time: a
// slot is filled before its file is created, and emptied after the file is removed or renamed.
static char *volatile temporary_files[MAX_TEMPORARY];

void files_cleanup(void) {
    for (int i = 0; i < MAX_TEMPORARY; i++)
        if (temporary_files[i]) unlink(temporary_files[i]);
}

bool files_remove_at_exit(char *path) {
    int slot = 0;
    while (slot < MAX_TEMPORARY && temporary_files[slot]) slot++;
    if (slot < MAX_TEMPORARY) temporary_files[slot] = path;
    return slot < MAX_TEMPORARY;
}

uint64_t random_number(void) {
    uint64_t number;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &number, sizeof number) != sizeof number)
        number = (uint64_t)(now_sec() * 1e9) ^ (uint64_t)getpid() << 40;
    if (fd >= 0) close(fd);
    return number;
}

// Chooses an unpredictable name in the directory of the target. (Without a random source, O_EXCL
// still rejects a name that someone has guessed.)
static bool choose_temporary_name(OutFile *f, Error *err) {
    f->temporary = text_format("%s.%016llx.tmp", f->target, (unsigned long long)random_number());
    return files_remove_at_exit(f->temporary) ||
           error_set(err, EXIT_RUNTIME, "%s: too many files are being written", f->path);
}

static void forget_temporary_name(OutFile *f) {
    for (int i = 0; i < MAX_TEMPORARY; i++)
        if (temporary_files[i] == f->temporary) temporary_files[i] = NULL;
    free(f->temporary);
    f->temporary = NULL;
}

char *file_resolve_links(const char *path, Error *err) {
    char link[4096];
    Buffer at = {0};
    buffer_puts(&at, path);

    for (int i = 0; i < MAX_LINKS; i++) {
        ssize_t n = readlink(at.data, link, sizeof link);
        if (n < 0) return at.data;
        if (n == sizeof link) break;

        // A relative target starts at the directory of the link.
        at.len = *link == '/' ? 0 : (size_t)(file_name(at.data) - at.data);
        buffer_append(&at, link, (size_t)n);
    }

    buffer_free(&at);
    errno = ELOOP;
    error_file(err, path);
    return NULL;
}

static bool check_not_in_use(const struct stat *st, const char *path, Error *err) {
    return !is_in_use(st) ||
           error_set(err, EXIT_USAGE, "%s: input and output of this run are the same file", path);
}

bool file_check_stdout(Error *err) {
    struct stat st;
    return fstat(STDOUT_FILENO, &st) || check_not_in_use(&st, "standard output", err);
}

// Rejects an existing file that must not be written to.
static bool check_output(const struct stat *st, const char *path, unsigned flags, Error *err) {
    bool is_directory = S_ISDIR(st->st_mode), is_block_device = S_ISBLK(st->st_mode);
    if (!check_not_in_use(st, path, err)) return false;
    if (S_ISREG(st->st_mode) || ((flags & FILE_STREAM) && !is_directory && !is_block_device))
        return true;
    return error_set(err, EXIT_RUNTIME, "%s: expected a file, found a %s", path,
                     file_kind(st->st_mode));
}

// Creates the temporary file, without a name if the system supports that.
static bool create_temporary(OutFile *f, mode_t mode, Error *err) {
    f->fd = os_open_temporary(f->directory, mode);
    for (int i = 0; f->fd < 0 && i < MAX_ATTEMPTS; i++) {
        if (!choose_temporary_name(f, err)) return false;
        f->fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (f->fd >= 0) break;
        forget_temporary_name(f);
        if (errno != EEXIST) break;
    }
    return f->fd >= 0 || error_file(err, f->path);
}

// Starts a temporary file that will replace the target. st: the existing target, if any, whose mode
// the file gets.
static bool begin_output(OutFile *f, const struct stat *st, unsigned flags, Error *err) {
    // A write-protected file must not be replaced, even if its directory is writable.
    if (!f->is_new && access(f->path, W_OK)) return error_file(err, f->path);
    f->target = file_resolve_links(f->path, err);
    if (!f->target) return false;
    f->directory = file_directory(f->target);
    mode_t mode = flags & FILE_PRIVATE ? 0600 : 0666;
    if (!f->is_new) mode = st->st_mode & 0777;
    bool ok = create_temporary(f, mode, err);
    if (ok && !f->is_new && fchmod(f->fd, mode)) ok = error_file(err, f->path);
    if (!ok) outfile_discard(f);
    return ok;
}

bool outfile_open(OutFile *f, const char *path, unsigned flags, Error *err) {
    struct stat st;
    *f = (OutFile){.path = path, .fd = -1, .is_new = stat(path, &st) != 0};
    if (!f->is_new && !check_output(&st, path, flags, err)) return false;
    if (!f->is_new && !S_ISREG(st.st_mode)) { // a stream, which rename cannot replace
        f->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return f->fd >= 0 || error_file(err, path);
    }
    if (!f->is_new && st.st_size > 0 && !(flags & FILE_FORCE))
        return error_set(err, EXIT_USAGE, "%s exists; replace it with --force", path);
    return begin_output(f, &st, flags, err);
}

bool outfile_is_same(const OutFile *a, const OutFile *b) {
    struct stat in_a, in_b;
    if (!a->target || !b->target || stat(a->directory, &in_a) || stat(b->directory, &in_b))
        return false;
    return is_same_file(&in_a, &in_b) && !strcmp(file_name(a->target), file_name(b->target));
}

// Moves the file to its target. link() never replaces a file, but some file systems lack it.
// rename() replaces, and needs a temporary name first.
static bool name_target(OutFile *f, Error *err) {
    bool has_name = f->temporary;
    if (f->is_new &&
        (has_name ? link(f->temporary, f->target) == 0 : os_link_temporary(f->fd, f->target))) {
        if (has_name) unlink(f->temporary);
        return true;
    }
    if (f->is_new && errno == EEXIST)
        return error_set(err, EXIT_RUNTIME,
                         "%s: created by another program meanwhile; not replaced", f->path);
    if (!has_name && (!choose_temporary_name(f, err) || !os_link_temporary(f->fd, f->temporary)))
        return error_file(err, f->path);
    return rename(f->temporary, f->target) == 0 || error_file(err, f->path);
}

// False with errno set. EINVAL: a file that cannot be synced.
static bool sync_file(int fd) {
    int status;
    while ((status = fsync(fd)) && errno == EINTR) continue;
    return status == 0 || errno == EINVAL;
}

// Makes the file durable under its name, and leaves it open. The new name is durable once the
// directory is synced, which some file systems cannot do.
static bool commit_output(OutFile *f, Error *err) {
    if (!f->target) return true;
    if (!sync_file(f->fd)) return error_file(err, f->path);
    if (!name_target(f, err)) return false;
    int directory = open(f->directory, O_RDONLY | O_CLOEXEC);
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
    if (f->temporary) forget_temporary_name(f);
    return true;
}

bool outfile_close(OutFile *f, Error *err) {
    bool ok = commit_output(f, err);
    int fd = f->fd;
    f->fd = -1; // closed even if close() fails: the number may be another file's by now
    if (close(fd) && errno != EINTR && ok) ok = error_file(err, f->path);
    outfile_discard(f);
    return ok;
}

void outfile_discard(OutFile *f) {
    if (f->fd >= 0) close(f->fd);
    if (f->temporary) {
        unlink(f->temporary);
        forget_temporary_name(f);
    }
    free(f->target);
    free(f->directory);
    *f = (OutFile){.fd = -1};
}

bool journal_open(Journal *j, const char *path, unsigned flags, Error *err) {
    struct stat st, at_path;
    bool exists = stat(path, &st) == 0;
    bool is_file = !exists || S_ISREG(st.st_mode);
    *j = (Journal){.path = path, .fd = -1, .is_file = is_file};
    if (exists && !check_output(&st, path, flags, err)) return false;

    // The lock belongs to the file, not to the path. If journal_replace() of another run has
    // replaced the file between open and lock, open the new file.
    int how = is_file ? O_RDWR | O_APPEND | O_CREAT : O_WRONLY | O_NOCTTY;
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        j->fd = open(path, how | O_CLOEXEC, flags & FILE_PRIVATE ? 0600 : 0666);
        if (j->fd < 0 || fstat(j->fd, &st)) return error_file(err, path);
        if (!is_file) return true;

        // Other errors mean that the file system has no locks.
        j->is_locked = flock(j->fd, LOCK_EX | LOCK_NB) == 0;
        if (!j->is_locked && errno == EWOULDBLOCK) {
            close(j->fd);
            j->is_busy = true;
            return error_set(err, EXIT_RUNTIME, "%s: in use by another run", path);
        }

        if (stat(path, &at_path) == 0 && is_same_file(&st, &at_path)) {
            mark_in_use(&st);
            return true;
        }
        close(j->fd);
    }

    return error_set(err, EXIT_RUNTIME, "%s: replaced by another run again and again", path);
}

bool journal_repair(Journal *j, size_t n_truncated, Error *err) {
    struct stat st;
    char last = '\n';
    if (!j->is_file) return true;
    if (fstat(j->fd, &st)) return error_file(err, j->path);
    off_t whole = st.st_size - (off_t)n_truncated;
    if (n_truncated && ftruncate(j->fd, whole)) return error_file(err, j->path);
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
    if (is_file && ftruncate(j->fd, st.st_size)) { // the next append tries again
        j->is_truncated = true;
        j->n_whole_bytes = st.st_size;
    }
    return false;
}

bool journal_replace(Journal *j, Str content, Error *err) {
    struct stat st;
    OutFile f = {.path = j->path, .fd = -1};
    if (fstat(j->fd, &st)) return error_file(err, j->path);
    if (!begin_output(&f, &st, 0, err)) return false;

    bool ok = write_all(f.fd, content.data, content.len) || error_file(err, j->path);

    // Lock the new file before it gets the old name.
    if (ok) flock(f.fd, LOCK_EX | LOCK_NB);
    ok = ok && commit_output(&f, err);

    if (ok) {
        unmark_in_use(&st);
        close(j->fd);
        *j = (Journal){.path = j->path, .fd = f.fd, .is_file = true};
        f.fd = -1;
        ok = (fcntl(j->fd, F_SETFL, O_APPEND) == 0 && fstat(j->fd, &st) == 0) ||
             error_file(err, j->path);
    }

    if (ok) mark_in_use(&st);
    outfile_discard(&f);
    return ok;
}

bool journal_close(Journal *j, Error *err) {
    bool ok = !j->is_file || sync_file(j->fd) || error_file(err, j->path);
    if (close(j->fd) && errno != EINTR && ok) ok = error_file(err, j->path);
    return ok;
}
