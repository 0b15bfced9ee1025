// See mapping.h.
#include "base/mapping.h"
#include "base/os/os.h"
#include "base/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PREFETCH_BYTES = 4 << 20 }; // per madvise call

// Advice that only Linux has. Elsewhere, the most similar advice is used.
#if !defined(MADV_HUGEPAGE)
#define MADV_HUGEPAGE MADV_NORMAL
#endif
#if !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ MADV_WILLNEED
#endif

bool mapping_open(FileMapping *m, const char *path, Error *err) {
    struct stat st;
    *m = (FileMapping){.fd = -1};

    // Non-blocking, so that a FIFO or a terminal is refused instead of waited for.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return error_file(err, path);

    bool ok = fstat(fd, &st) == 0 || error_file(err, path);
    if (ok && !S_ISREG(st.st_mode))
        ok = error_set(err, EXIT_RUNTIME, "%s: expected a file, found a %s", path,
                       file_kind(st.st_mode));

    if (ok && st.st_size > 0) {
        size_t bytes = (size_t)st.st_size;
        void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            // With this advice, file systems with large folios read the file in large pages. These
            // map about 100 times faster, in this process and in later ones.
            madvise(p, bytes, MADV_HUGEPAGE);
            file_register_input(path);
            *m = (FileMapping){str_copy(str_of(path)).data, p, bytes, fd, os_time_ns(st.st_mtim)};
            return true;
        }
        ok = error_file(err, path);
    }

    close(fd);
    return ok;
}

void mapping_close(FileMapping *m) {
    if (m->fd >= 0) {
        munmap((void *)(uintptr_t)m->data, m->bytes);
        close(m->fd);
        free((void *)(uintptr_t)m->path);
    }
    *m = (FileMapping){.fd = -1};
}

typedef struct {
    int advice, n;
    FileMapping list[]; // copies: the caller may close its own
} PrefetchTask;

static void *prefetch_thread(void *arg) {
    PrefetchTask *p = arg;
    for (const FileMapping *m = p->list; m < p->list + p->n; m++)
        // Advises piece by piece. One call for the whole file would read only its first megabytes
        // (WILLNEED), or block other changes of the address space until all is read
        // (POPULATE_READ).
        for (size_t at = 0; at < m->bytes; at += PREFETCH_BYTES) {
            size_t n = m->bytes - at < PREFETCH_BYTES ? m->bytes - at : PREFETCH_BYTES;
            void *piece = (void *)(uintptr_t)(m->data + at);
            if (madvise(piece, n, p->advice)) madvise(piece, n, MADV_WILLNEED); // before Linux 5.14
        }
    free(p);
    return NULL;
}

void mapping_prefetch(const FileMapping *list, int n, bool fill_page_table) {
    size_t bytes = 0;
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    PrefetchTask *p = xrealloc(NULL, 1, sizeof *p + (size_t)n * sizeof *p->list);
    *p = (PrefetchTask){.advice = fill_page_table ? MADV_POPULATE_READ : MADV_WILLNEED};

    for (int i = 0; i < n; i++) {
        if (list[i].fd >= 0) p->list[p->n++] = list[i];
        bytes += list[i].bytes;
    }

    // A larger file would evict its own beginning, which is needed first. The system places a page
    // on the memory node of the thread that reads it first. With several nodes, the compute threads
    // therefore read the file, each its share of every matrix.
    pthread_t thread;
    if (bytes > memory / 4 * 3 || os_has_numa() ||
        pthread_create(&thread, NULL, prefetch_thread, p))
        free(p);
    else
        pthread_detach(thread);
}

void mapping_release(const FileMapping *m, const void *data, size_t n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)data + n) & ~(page - 1);
    if (to > from && m->fd >= 0) madvise((void *)from, to - from, MADV_DONTNEED);
}

bool mapping_is_intact(const FileMapping *list, int n, Error *err) {
    for (const FileMapping *m = list; m < list + n; m++) {
        struct stat st;
        if (m->fd < 0) continue;
        if (fstat(m->fd, &st) || (uint64_t)st.st_size != m->bytes ||
            os_time_ns(st.st_mtim) != m->mtime_ns)
            return error_set(err, EXIT_RUNTIME, "%s: the model file changed while in use", m->path);
    }
    return true;
}
