// Files: read whole, and written in one of two ways. An OutFile appears under its name when it is
// whole; a Journal grows by whole lines. Neither follows what a link says into a device, writes
// over what this run reads, or replaces anything unasked; what was begun and not finished is
// removed however the program ends, as far as it can know.
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "text.h"

// Appends all of a file ("-" is stdin). False with err (exit 1) if it cannot be read, or is an
// endless device.
bool file_read(const char *path, Buffer *out, Error *err);
// Says that this run reads a file (NULL or "-" is stdin), over which nothing is to be written.
void file_register_input(const char *path);
// Waits until a descriptor that would block can be read or written; false with errno kept if it is
// something else.
bool file_wait(int fd, short events);
// Writes all bytes, whatever write() returns at once. False with errno set.
bool write_all(int fd, const void *data, size_t n);
bool write_all_at(int fd, const void *data, size_t n, int64_t at); // at < 0: where the file stands

enum {
    FILE_FORCE = 1,   // replaces what is there
    FILE_STREAM = 2,  // a pipe, a socket or a character device is written as it is
    FILE_PRIVATE = 4, // a new file is for its owner alone
};

// A file that is written beside its name, and takes it when it is whole.
typedef struct {
    const char *path; // as given, for messages
    char *target;     // the file itself, links followed; NULL: a stream, written as it is
    char *folder;     // where it stands
    char *beside; // its name until then, on a list that every end of the program removes; NULL: it
                  // has none
    int fd;
    bool is_new; // nothing stood there
} OutFile;

// Begins a file. An existing one that is not empty is replaced only with FILE_FORCE. False with err
// (exit 1, or 2 for a file that must stay).
bool outfile_open(OutFile *f, const char *path, unsigned flags, Error *err);
// Syncs it and gives it its name, which a new file takes only if nobody else took it meanwhile.
// False with err; then nothing is left, as after outfile_discard.
bool outfile_close(OutFile *f, Error *err);
void outfile_discard(OutFile *f);
// Removes what is not finished. Safe in a signal handler.
void files_cleanup(void);

// A file that grows by whole lines, locked against other runs.
typedef struct {
    const char *path; // for messages
    int fd;
    bool is_file;          // not a pipe or a device
    bool is_truncated;     // a failed write left a part of a line
    int64_t n_whole_bytes; // if so: bytes of whole lines
} Journal;

// Opens it, or makes it. False with err (exit 1; 2 if it must not be written).
bool journal_open(Journal *j, const char *path, unsigned flags, Error *err);
// Makes the last line whole: cuts off the n_torn bytes of a torn one, and adds a newline that is
// missing.
bool journal_repair(Journal *j, size_t n_torn, Error *err);
// Adds bytes that end with a newline: all of them or, with err, none (a pipe may have got a part).
bool journal_append(Journal *j, Str lines, Error *err);
// Puts other content in its place, all or nothing, and keeps the lock.
bool journal_replace(Journal *j, Str all, Error *err);
bool journal_close(Journal *j, Error *err); // synced

#endif
