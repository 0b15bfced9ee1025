// Files: reads them whole, and writes them so that no incomplete file is ever left behind.
//
// An OutFile is written to a temporary file and renamed when complete. A Journal (JSON Lines) grows
// by whole lines and is locked against other runs. Neither overwrites a file that this run reads,
// follows a link to a device, or replaces an existing file without FILE_FORCE. Temporary files are
// removed however the program ends; on Linux they have no name while they are written. One that
// replaces a file has a name for a moment, in which SIGKILL leaves it.
#pragma once

#include "base/text.h"

// Appends the content of a file to `out`; "-" is stdin. At most 1 GiB is accepted from a pipe or
// device. False with err (EXIT_RUNTIME).
bool file_read(const char *path, Buffer *out, Error *err);
// file_read() of a text: skips one UTF-8 byte order mark. UTF-16 and NUL bytes are errors.
bool file_read_text(const char *path, Buffer *out, Error *err);
// The hash of what file_read() has read from a path (the last time); 0: it has read nothing.
uint64_t file_hash(const char *path);
// What a path that is no regular file is called in messages: directory, pipe or device.
const char *file_kind(unsigned mode);
// 64 bits of the system's random source, or of the clock if there is none.
uint64_t random_number(void);
// Registers an input of this run, which no output may overwrite; NULL or "-" is stdin.
void file_register_input(const char *path);
// False with err (EXIT_USAGE) if standard output is such a file.
bool file_check_stdout(Error *err);
// The part of a path after its last slash.
const char *file_name(const char *path);
// The directory of a path, with a slash at its end, or "."; owned by the caller.
char *file_directory(const char *path);
// The file that a path refers to after all symbolic links, whether it exists or not. Owned by the
// caller; NULL with err.
char *file_resolve_links(const char *path, Error *err);
// If errno is EAGAIN, waits until the descriptor is ready (`events` as for poll) and returns true.
// False for any other errno.
bool file_wait(int fd, short events);
// Writes all n bytes, repeating short and interrupted writes. False with errno set.
bool write_all(int fd, const void *data, size_t n);
// write_all() at offset `at`, or at the current position if `at` is negative.
bool write_all_at(int fd, const void *data, size_t n, int64_t at);

enum {
    FILE_FORCE = 1,   // replace an existing file
    FILE_STREAM = 2,  // accept pipes, sockets and character devices, and write to them directly
    FILE_PRIVATE = 4, // create with mode 0600
};

typedef struct {
    const char *path; // as given, for messages
    char *target;     // path with links resolved; NULL: a stream
    char *directory;  // of target
    char *temporary;  // name of the temporary file; NULL: it has none
    int fd;
    bool is_new; // target did not exist
} OutFile;

// Starts an output file. An existing file that is not empty is replaced only with FILE_FORCE. False
// with err: EXIT_USAGE if the existing file must not be replaced, else EXIT_RUNTIME.
bool outfile_open(OutFile *f, const char *path, unsigned flags, Error *err);
// True if two open files would get the same name.
bool outfile_is_same(const OutFile *a, const OutFile *b);
// Syncs the file and renames it to its target. If the target did not exist at outfile_open() but
// exists now, it is not replaced. False with err; the file is then discarded.
bool outfile_close(OutFile *f, Error *err);
void outfile_discard(OutFile *f);
// Adds a file to the temporary files, which are removed however the program ends, except by
// SIGKILL. `path` must stay valid. False if there are too many.
bool files_remove_at_exit(char *path);
// Removes all temporary files. Async-signal-safe.
void files_cleanup(void);

typedef struct {
    const char *path; // for messages
    int fd;
    bool is_file;          // not a pipe or device
    bool is_locked;        // false: the file system has no locks
    bool is_busy;          // journal_open(): another run has locked the file
    bool is_truncated;     // a failed write left an incomplete line
    int64_t n_whole_bytes; // if is_truncated: length up to the last complete line
} Journal;

// Opens or creates a journal and locks it. False with err: EXIT_USAGE if the file is an input of
// this run, else EXIT_RUNTIME.
bool journal_open(Journal *j, const char *path, unsigned flags, Error *err);
// Removes an incomplete last line of n_truncated bytes; adds a missing newline.
bool journal_repair(Journal *j, size_t n_truncated, Error *err);
// Appends complete lines. On failure (false with err) nothing has been appended, except that a pipe
// may have received a part.
bool journal_append(Journal *j, Str lines, Error *err);
// Replaces the content atomically and keeps the lock.
bool journal_replace(Journal *j, Str content, Error *err);
bool journal_close(Journal *j, Error *err); // with a sync
