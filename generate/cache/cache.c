// See cache.h. A page file:
//
//     offset  bytes
//     0       8            "L31PAGE" and 2, the version
//     8       16           hash of the model
//     24      16           name: hash of the model and the tokens
//     40      16           checksum of the page
//     56      8            n_tokens: positions up to the end of the page
//     64      8            page_bytes
//     72      4 n_tokens   the tokens
//             ...          zeros up to a multiple of 4096
//             page_bytes   the page as it is in memory (session.c): it is mapped, not read
//
// The head, which is everything before the page, follows from the model, the tokens and the page's
// checksum. To check a file, the reader builds the head again and compares. Files are written under
// a temporary name and renamed, but not synced: a file that a system crash truncates is a cache
// miss.
//
// Why a loaded session computes the same bits (exactness.h): a page is stored or loaded only if one
// forward pass of a prefill computes it as a whole. Every prefill computes such a page with the
// kernels for many rows. The tokens after the cached pages are fed with the kernels that an
// uncached prefill would use for them (generate.c, feed_prompt).
//
// Order: hashes, page files, the list of files, then loading and storing for a model.
#include "generate/cache/cache.h"
#include "gguf/checksum.h"
#include "base/bits.h"
#include "base/files.h"
#include "kernels/attention.h"
#include "model/lora/lora.h"
#include "base/os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE_ALIGN = 4096, // alignment of the page in its file, for mmap
    NSEC_PER_SEC = 1000000000,
    STALE_SEC = 3600, // a temporary file of this age was left by an interrupted write
    // Writes between two scans of the directory's size. Other processes write there, too.
    WRITES_PER_SCAN = 16,
    SAMPLES = 16, // pieces of a tensor's data that are hashed, of SAMPLE_BYTES each
    SAMPLE_BYTES = 64
};

typedef struct {
    uint64_t a, b; // the bytes of a BLAKE2b hash
} Hash128;

typedef struct {
    char magic[8];
    Hash128 model, name, checksum;
    uint64_t n_tokens, page_bytes;
} PageHead;

struct PrefixCache {
    const char *dir;
    uint64_t max_bytes; // limit of the directory
    uint64_t bytes;     // size of the directory at the last scan, plus the pages written since
    Hash128 model;
    int chunk;    // prompt tokens per forward pass
    int n_refeed; // see cache_open
    size_t page_bytes;
    bool is_batch_invariant;
    bool is_read_only; // a write has failed
    int n_writes;
};

// Hashes.

// Returns the hash of h and n more bytes: hash(h, hash(bytes)).
static Hash128 hash_add(Hash128 h, const void *data, size_t n) {
    Hash128 pair[2] = {h};
    blake2b(data, n, (uint8_t *)&pair[1]);
    blake2b(pair, sizeof pair, (uint8_t *)&h);
    return h;
}

// Checksum of a page, at the speed of memory: sums of 8-byte words and sums of these sums (Fletcher
// 1982), in 8 lanes. n is a multiple of 64.
static Hash128 page_checksum(const char *data, size_t n) {
    uint64_t sum[8] = {0}, sums[8] = {0}, w[8];
    for (size_t i = 0; i < n; i += sizeof w) {
        memcpy(w, data + i, sizeof w);
        for (int j = 0; j < 8; j++) {
            sum[j] += w[j];
            sums[j] += sum[j];
        }
    }
    return hash_add(hash_add((Hash128){0}, sum, sizeof sum), sums, sizeof sums);
}

// Adds a GGUF file: its metadata, its tensors with samples of their data, and the inode, size and
// times of each shard. Every change to a file changes its ctime, even if the modification time is
// restored afterwards. A file without a ctime is hashed whole, as are adapters (is_whole). Moving
// or copying a model costs one cache miss per page.
static Hash128 hash_add_gguf(Hash128 h, const Gguf *g, bool is_whole) {
    for (const FileMapping *m = g->shards; m < g->shards + g->n_shards; m++) {
        struct stat st = {0};
        int64_t ctime_ns = fstat(m->fd, &st) == 0 ? os_ctime_ns(m->fd, &st) : 0;
        uint64_t version[] = {m->bytes, st.st_ino, (uint64_t)m->mtime_ns, (uint64_t)ctime_ns};
        h = hash_add(h, version, sizeof version);
        is_whole |= !ctime_ns;
    }

    if (is_whole) return hash_add(h, &(uint64_t){checksum_files(g)}, sizeof(uint64_t));
    for (int i = 0; i < g->n_values; i++) {
        h = hash_add(h, g->values[i].key.data, g->values[i].key.len);
        h = hash_add(h, g->values[i].data, g->values[i].bytes);
    }

    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        h = hash_add(h, t->name.data, t->name.len);
        h = hash_add(h, &(uint64_t[]){t->type, t->bytes, t->dims[0], t->dims[1]},
                     4 * sizeof(uint64_t));
        for (size_t k = 0; k < SAMPLES; k++) {
            size_t at = t->bytes / SAMPLES * k, n_left = t->bytes - at;
            h = hash_add(h, (const char *)t->data + at,
                         n_left < SAMPLE_BYTES ? n_left : SAMPLE_BYTES);
        }
    }

    return h;
}

// Hash of everything that determines keys and values, except the tokens: model and adapter files,
// RoPE, shape and types of the KV cache, and what can change the last bits: the arithmetic and,
// unless it is shared, program, compiler and batch invariance. With --deterministic, machines with
// different CPUs therefore share the pages of a model in a network file system.
static Hash128 model_hash(const Model *m) {
    const RopeParams *r = &m->rope;
    Buffer settings = {0};

    if (!kernels_put_arithmetic(&settings, m->is_batch_invariant))
        buffer_printf(&settings, " %s %s %s %d", VERSION, BUILD_COMMIT, BUILD_COMPILER,
                      m->is_batch_invariant);
    buffer_printf(&settings, " kv %d %d %d %d %d rope %d %d %d %a %a %a %a %a %a %a", m->kv.k_type,
                  m->kv.v_type, m->kv.n_layers, m->kv.n_kv_heads, m->kv.head_dim, r->rule, r->dim,
                  r->orig_ctx, r->theta, r->factor, r->low_freq_factor, r->high_freq_factor,
                  r->yarn.beta_fast, r->yarn.beta_slow, r->yarn.attn_factor);

    Hash128 h = hash_add((Hash128){0}, settings.data, settings.len);
    buffer_free(&settings);

    h = hash_add_gguf(h, &m->file, false);
    for (int i = 0; i < m->n_adapters; i++) {
        h = hash_add(h, &m->adapters[i].scale, sizeof m->adapters[i].scale);
        h = hash_add_gguf(h, &m->adapters[i].file, true);
    }

    return h;
}

// Page files.

// Name of the last page of n tokens that follow the page named `name`. Before the first page,
// `name` is the model's hash.
static Hash128 page_name(Hash128 name, const int *tokens, size_t n) {
    for (size_t i = 0; i + KV_PAGE <= n; i += KV_PAGE)
        name = hash_add(name, tokens + i, KV_PAGE * sizeof *tokens);
    return name;
}

static char *page_path(const char *dir, Hash128 name) {
    return text_format("%s/%016llx%016llx.kv", dir, (unsigned long long)name.a,
                       (unsigned long long)name.b);
}

static size_t head_bytes(size_t n_tokens) {
    return size_round_up(sizeof(PageHead) + n_tokens * sizeof(int), PAGE_ALIGN);
}

// Builds the head of the file of a page: head_bytes(n) bytes.
static Buffer build_head(const PrefixCache *c, Hash128 name, const char *page, const int *tokens,
                         size_t n) {
    Buffer head = {0};
    static const char zeros[PAGE_ALIGN];
    PageHead h = {{'L', '3', '1', 'P', 'A', 'G', 'E', 2}, c->model, name,
                  page_checksum(page, c->page_bytes),     n,        c->page_bytes};
    buffer_append(&head, &h, sizeof h);
    buffer_append(&head, tokens, n * sizeof *tokens);
    buffer_append(&head, zeros, head_bytes(n) - head.len);
    return head;
}

// Only this user and root may own or write a file of the cache, or the directory. A verified page
// therefore stays unchanged: only users who control this process anyway can write to it. Parent
// directories may be writable by others: a replaced directory or file belongs to the user who
// replaced it, and is refused.
static bool check_trust(const struct stat *st, const char *path, Error *err) {
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return error_set(err, EXIT_RUNTIME,
                         "%s: belongs to another user (id %ld); use a cache directory of your own",
                         path, (long)st->st_uid);
    return !(st->st_mode & (S_IWGRP | S_IWOTH)) ||
           error_set(err, EXIT_RUNTIME, "%s: others can write to it; run chmod go-w on it", path);
}

// Maps a file of this size. NULL if there is none, or if it cannot be trusted.
static char *map_page(const char *path, size_t bytes) {
    void *data = MAP_FAILED;
    struct stat st;
    Error err;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && check_trust(&st, path, &err) &&
        (uint64_t)st.st_size == bytes)
        data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);

    if (data == MAP_FAILED) return NULL;
    madvise(data, bytes, MADV_WILLNEED);
    return data;
}

// A file of the directory.
typedef struct {
    char name[40];
    uint64_t bytes;
    int64_t used; // time of the last use, in nanoseconds since 1970
} CacheFile;

static int compare_use(const void *a, const void *b) {
    const CacheFile *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used)
                              : strcmp(x->name, y->name);
}

// Lists the files of the directory, least recently used first; free them. Returns their number, or
// -1 with err, also if others can write to the directory.
static int list_files(const char *dir, CacheFile **files, Error *err) {
    DIR *d = opendir(dir);
    struct stat own;
    int n = 0;
    *files = NULL;

    bool is_open = d && fstat(dirfd(d), &own) == 0;
    bool ok = is_open ? check_trust(&own, dir, err) : error_file(err, dir);
    if (!ok && d) closedir(d);
    if (!ok) return -1;

    // Lists pages (32 hexadecimal digits and ".kv") and temporary files. Other files are ignored.
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        size_t len = strlen(e->d_name);
        bool is_page = len == 35 && !strcmp(e->d_name + 32, ".kv") &&
                       strspn(e->d_name, "0123456789abcdef") == 32;
        if (!is_page && strncmp(e->d_name, ".page-", 6)) continue;
        if (len >= sizeof(*files)->name || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;

        *files = list_grow(*files, n, sizeof **files);
        CacheFile *f = &(*files)[n++];
        *f = (CacheFile){.bytes = (uint64_t)st.st_size, .used = os_time_ns(st.st_mtim)};
        memcpy(f->name, e->d_name, len + 1);
    }

    closedir(d);
    if (n) qsort(*files, (size_t)n, sizeof **files, compare_use);
    return n;
}

// The cache of a model.

// Creates the directory if it does not exist.
static bool prepare_directory(const char *dir, Error *err) {
    struct stat st;
    if ((mkdir(dir, 0700) && errno != EEXIST) || stat(dir, &st)) return error_file(err, dir);
    if (!S_ISDIR(st.st_mode)) return error_set(err, EXIT_RUNTIME, "%s: not a directory", dir);
    return check_trust(&st, dir, err);
}

PrefixCache *cache_open(const char *dir, uint64_t max_bytes, const Model *m, int chunk,
                        Error *err) {
    if (!prepare_directory(dir, err)) return NULL;

    PrefixCache *c = xalloc(1, sizeof *c);
    *c = (PrefixCache){.dir = dir,
                       .max_bytes = max_bytes,
                       .model = model_hash(m),
                       .chunk = chunk,
                       .page_bytes = KV_PAGE * kv_position_bytes(&m->kv),
                       .is_batch_invariant = m->is_batch_invariant};

    // If a prompt ends with a cached page, its last n_refeed tokens are fed again, because the
    // logits of the last token are needed. Attention chooses its kernel by the number of queries in
    // a tile. n_refeed is therefore the number of tokens in the page's last tile, or the smallest
    // number with more than attend_many_above queries, whichever is less: both give the last token
    // the kernel of an uncached prefill.
    AttentionShape shape = {m->config.n_heads, m->config.n_kv_heads, m->config.head_dim,
                            m->kv.k_type, m->kv.v_type};
    int tile = attention_tile_steps(&shape);
    int n_last_tile = KV_PAGE - (KV_PAGE - 1) / tile * tile;
    int n_many = kernel.attend_many_above * m->config.n_kv_heads / m->config.n_heads + 1;
    c->n_refeed = n_last_tile < n_many ? n_last_tile : n_many;
    return c;
}

// Sets the last use of a prompt's pages to now. Earlier pages of the prompt get later times,
// because a page is useless without the pages before it: the last page is removed first.
static void touch_pages(const PrefixCache *c, const int *tokens, int n_pages) {
    struct timespec now;
    Hash128 name = c->model;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int page = 0; page < n_pages; page++) {
        name = page_name(name, tokens + page * KV_PAGE, KV_PAGE);
        int64_t nsec = (int64_t)now.tv_sec * NSEC_PER_SEC + now.tv_nsec - page;
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {(time_t)(nsec / NSEC_PER_SEC), (long)(nsec % NSEC_PER_SEC)}};
        char *path = page_path(c->dir, name);
        utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
        free(path);
    }
}

// Extends a session by a page, if its file exists and is undamaged.
static bool load_page(PrefixCache *c, Session *s, const int *tokens, Hash128 name) {
    size_t n = (size_t)s->n_tokens + KV_PAGE;
    size_t begin = head_bytes(n);
    char *path = page_path(c->dir, name);
    char *data = map_page(path, begin + c->page_bytes);
    Buffer head = {0};

    if (data) head = build_head(c, name, data + begin, tokens, n);
    bool is_good = data && !memcmp(data, head.data, begin);
    if (is_good)
        session_append_mapped(s, tokens + s->n_tokens, data + begin, data, begin + c->page_bytes);
    else
        unlink(path); // damaged, if it exists: it will be written again
    if (!is_good && data) munmap(data, begin + c->page_bytes);

    buffer_free(&head);
    free(path);
    return is_good;
}

int cache_load(PrefixCache *c, Session *s, const int *tokens, int n) {
    int begin = s->n_tokens;
    if (begin % KV_PAGE || s->n_reproducible < begin) return 0;
    Hash128 name = page_name(c->model, tokens, (size_t)begin);
    while (s->n_tokens + KV_PAGE <= n) {
        // A page that an uncached prefill divides between two passes may have different bits.
        int first = s->n_tokens - begin, last = first + KV_PAGE - 1;
        if (!c->is_batch_invariant && first / c->chunk != last / c->chunk) break;
        name = page_name(name, tokens + s->n_tokens, KV_PAGE);
        if (!load_page(c, s, tokens, name)) break;
    }
    touch_pages(c, tokens, s->n_tokens / KV_PAGE);
    if (s->n_tokens == n && n > begin) session_rewind(s, n - c->n_refeed);
    return s->n_tokens - begin;
}

// Removes the pages used least recently until a file of `bytes` fits, and stale temporary files.
// False if the file can never fit, or if the directory cannot be read.
static bool evict_pages(PrefixCache *c, uint64_t bytes) {
    CacheFile *files;
    Error err;

    // The directory is scanned once in WRITES_PER_SCAN writes, and when the known size reaches the
    // limit.
    if (bytes > c->max_bytes) return false;
    if (c->n_writes++ % WRITES_PER_SCAN && c->bytes + bytes <= c->max_bytes) return true;

    int n = list_files(c->dir, &files, &err);
    int64_t stale = (int64_t)(time(NULL) - STALE_SEC) * NSEC_PER_SEC;
    c->bytes = 0;
    if (n < 0) warn("%s; a page is not written to the cache", err.text);
    for (int i = 0; i < n; i++) c->bytes += files[i].bytes;

    // Files are sorted, least recently used first. Temporary files, which an interrupted write
    // left, have names that begin with a dot. They are removed when stale.
    for (int i = 0; i < n; i++) {
        bool is_page = files[i].name[0] != '.';
        if (is_page ? c->bytes + bytes <= c->max_bytes : files[i].used > stale) continue;

        char *path = text_format("%s/%s", c->dir, files[i].name);
        if (unlink(path) == 0) c->bytes -= files[i].bytes;
        free(path);
    }

    free(files);
    return n >= 0;
}

// Writes a page under a temporary name and renames it. False, after a warning, if that fails. A
// page that does not fit in the cache is skipped without an error.
static bool write_page(PrefixCache *c, const Session *s, int page, const char *path, Hash128 name) {
    size_t n = ((size_t)page + 1) * KV_PAGE; // tokens up to the end of the page
    const char *data = session_page(s, page);
    Buffer head = build_head(c, name, data, s->tokens, n);
    char *temporary = text_format("%s/%s", c->dir, ".page-XXXXXX");
    bool is_done = true;

    if (evict_pages(c, head.len + c->page_bytes)) {
        int fd = mkstemp(temporary);
        is_done =
            fd >= 0 && write_all(fd, head.data, head.len) && write_all(fd, data, c->page_bytes);
        if (fd >= 0) is_done = close(fd) == 0 && is_done && rename(temporary, path) == 0;

        if (is_done)
            c->bytes += head.len + c->page_bytes;
        else
            warn("%s: %s; continuing without writing to the cache", c->dir, strerror(errno));
        if (!is_done && fd >= 0) unlink(temporary);
    }

    free(temporary);
    buffer_free(&head);
    return is_done;
}

int cache_store(PrefixCache *c, const Session *s, int first) {
    for (; (first + 1) * KV_PAGE <= s->n_reproducible && !c->is_read_only; first++) {
        Hash128 name = page_name(c->model, s->tokens, ((size_t)first + 1) * KV_PAGE);
        char *path = page_path(c->dir, name);
        if (access(path, F_OK)) c->is_read_only = !write_page(c, s, first, path, name);
        free(path);
        touch_pages(c, s->tokens, first + 1); // before the next write may evict pages
    }
    return first;
}
