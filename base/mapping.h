// Read-only memory mappings of model files: opening, prefetching, and noticing that the file
// changed under the mapping.
#pragma once

#include "base/error.h"

typedef struct {
    const char *path; // owned; NULL for bytes in memory
    const uint8_t *data;
    size_t bytes;
    int fd;           // still open, for mapping_is_intact; -1: bytes in memory, no file
    int64_t mtime_ns; // when the file was mapped
} FileMapping;

// Maps a regular file. An empty file has no data and fd -1. The file counts as an input of this run
// (files.h). False with err.
bool mapping_open(FileMapping *m, const char *path, Error *err);
void mapping_close(FileMapping *m);

// Starts a thread that reads n files into the page cache, in order; with fill_page_table also maps
// the pages, so that compute threads do not page-fault. Does nothing if the files exceed three
// quarters of the machine's memory, or if the memory has several nodes. The mappings may be closed
// meanwhile.
void mapping_prefetch(const FileMapping *list, int n, bool fill_page_table);
// Unmaps the memory pages that are completely inside the n bytes at `data`. They stay in the page
// cache, and are mapped again when they are read.
void mapping_release(const FileMapping *m, const void *data, size_t n);
// False with err if the size or modification time of a file has changed. Data read from that file
// is then invalid. (A file that shrinks also raises SIGBUS, see signals.h.)
bool mapping_is_intact(const FileMapping *list, int n, Error *err);
