// A file holds one page: a head, the tokens of all positions up to its end, zeros up to a multiple
// of 4096 bytes, and the page as it lies in memory. All before the page follows from what the
// reader knows and the page's checksum, so that a file is checked by making the head anew and
// comparing. It is written under another name and renamed; it is not synced, for a file that a
// crash of the system has cut is a miss.
//
// Warm equals cold bit for bit: only pages that lie in one forward of a prefill are kept and taken
// (then the kernels are those for many tokens), and what follows them is fed with the kernels of
// the forward it would have been part of.
#include "cache.h"
#include "../lora/lora.h"
#include "../base/files.h"
#include "../os/os.h"
#include "../kernels/attention.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const bool cache_is_built = true;

enum {
    ALIGN = 4096,       // of the page in its file
    NSEC = 1000000000,  // in a second
    STALE_SEC = 3600,   // nobody writes a page for so long
    WRITES_A_SCAN = 16, // other processes write too: how much there is, is counted again
    SAMPLES = 16        // of a tensor's bytes, 64 each
};

typedef struct {
    uint64_t a, b;
} Hash;

typedef struct {
    char magic[8];
    Hash model, name, sum; // sum: of the page
    uint64_t n_tokens, page_bytes;
} Head;

struct PrefixCache {
    const char *dir;
    uint64_t most_bytes, bytes; // allowed; there when counted last, and written since
    Hash model;
    int chunk,
        n_again; // n_again: tokens at the end of a page that attend as the last of a full page does
    bool is_batch_invariant, is_read_only;
    int n_writes;
};

// Hashes and sums

static uint64_t mix(uint64_t z) { // SplitMix64 (Steele, Lea and Flood 2014)
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Two chains of multiplications over 8-byte words. Not against an enemy: tokens are compared
// besides.
static Hash hash_add(Hash h, const void *data, size_t n) {
    const char *p = data;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, p + i, n - i < 8 ? n - i : 8);
        h.a = (h.a ^ w) * 0x9e3779b97f4a7c15u;
        h.a ^= h.a >> 29;
        h.b = (h.b + w) * 0xd1342543de82ef95u;
        h.b ^= h.b >> 31;
    }
    return (Hash){mix(h.a ^ n), mix(h.b + h.a)};
}

// Sums of 8-byte words and sums of the sums (Fletcher 1982), in lanes, at the speed of memory. n is
// a multiple of 64.
static Hash checksum(const char *data, size_t n) {
    uint64_t sum[8] = {0}, sums[8] = {0}, w[8];
    for (size_t i = 0; i < n; i += sizeof w) {
        memcpy(w, data + i, sizeof w);
        for (int j = 0; j < 8; j++) sum[j] += w[j], sums[j] += sum[j];
    }
    return hash_add(hash_add((Hash){0}, sum, sizeof sum), sums, sizeof sums);
}

// A file's head and size, and samples of every tensor.
static Hash add_file(Hash h, const Gguf *g) {
    for (int i = 0; i < g->n_shards; i++)
        h = hash_add(h, &g->shards[i].bytes, sizeof g->shards[i].bytes);
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
            size_t at = t->bytes / SAMPLES * k, n = t->bytes - at < 64 ? t->bytes - at : 64;
            h = hash_add(h, (const char *)t->data + at, n);
        }
    }
    return h;
}

// What the cached numbers depend on: the files, RoPE, the kind of cache, and the arithmetic
// (program, compiler, instruction set, --deterministic).
static Hash model_hash(const Model *m) {
    const RopeParams *r = &m->rope;
    Buffer settings = {0};
    buffer_printf(&settings, "%s %s %s %s %d kv %d %d %d %d rope %d %d %d %a %a %a %a %a %a %a",
                  VERSION, BUILD_COMMIT, BUILD_COMPILER, kernel.name, m->is_batch_invariant,
                  m->kv.type, m->kv.n_layers, m->kv.n_kv_heads, m->kv.head_dim, r->rule, r->dim,
                  r->orig_ctx, r->theta, r->factor, r->low_freq_factor, r->high_freq_factor,
                  r->beta_fast, r->beta_slow, r->attn_factor);
    Hash h = hash_add((Hash){0}, settings.data, settings.len);
    buffer_free(&settings);
    h = add_file(h, &m->file);
    for (int i = 0; i < m->n_adapters; i++) {
        h = hash_add(h, &m->adapters[i].scale, sizeof m->adapters[i].scale);
        h = add_file(h, &m->adapters[i].file);
    }
    return h;
}

// Files

static char *path_of(const char *dir, const char *name) {
    Buffer path = {0};
    buffer_printf(&path, "%s/%s", dir, name);
    return path.data;
}

static char *page_path(const PrefixCache *c, Hash name) {
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx.kv", (unsigned long long)name.a,
             (unsigned long long)name.b);
    return path_of(c->dir, text);
}

// All of a page's file that is before the page; its length is where the page begins.
static Buffer make_head(Hash model, Hash name, Hash sum, const int *tokens, size_t n,
                        size_t page_bytes) {
    Buffer head = {0};
    static const char zeros[ALIGN];
    Head h = {{'L', '3', '1', 'P', 'A', 'G', 'E', 1}, model, name, sum, n, page_bytes};
    buffer_append(&head, &h, sizeof h);
    buffer_append(&head, tokens, n * sizeof *tokens);
    buffer_append(&head, zeros, (ALIGN - head.len % ALIGN) % ALIGN);
    return head;
}

static size_t head_bytes(size_t n_tokens) {
    return (sizeof(Head) + n_tokens * sizeof(int) + ALIGN - 1) / ALIGN * ALIGN;
}

// The name of the page that ends n tokens: each page's follows from the one before.
static Hash page_name(Hash model, const int *tokens, size_t n) {
    Hash h = model;
    for (size_t i = 0; i + KV_PAGE <= n; i += KV_PAGE)
        h = hash_add(h, tokens + i, KV_PAGE * sizeof *tokens);
    return h;
}

// A file that is mapped whole; data NULL if it cannot be.
typedef struct {
    char *data;
    size_t bytes;
} Mapping;

static Mapping map_file(const char *path) {
    Mapping map = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return map;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= ALIGN) {
        map.bytes = (size_t)st.st_size;
        void *data = mmap(NULL, map.bytes, PROT_READ, MAP_SHARED, fd, 0);
        map.data = data == MAP_FAILED ? NULL : data;
#if defined(MADV_WILLNEED)
        if (map.data) madvise(map.data, map.bytes, MADV_WILLNEED);
#endif
    }
    close(fd);
    return map;
}

// Whether a mapped file is the page that it should be.
static bool is_page(Mapping map, Hash model, Hash name, const int *tokens, size_t n,
                    size_t page_bytes) {
    size_t at = head_bytes(n);
    if (!map.data || map.bytes != at + page_bytes) return false;
    if (memcmp(map.data + sizeof(Head), tokens, n * sizeof *tokens)) return false;
    Buffer head =
        make_head(model, name, checksum(map.data + at, page_bytes), tokens, n, page_bytes);
    bool is_same = !memcmp(map.data, head.data, at);
    buffer_free(&head);
    return is_same;
}

static int by_use(const void *a, const void *b) {
    const CacheFile *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used)
                              : strcmp(x->name, y->name);
}

int cache_list(const char *dir, CacheFile **files, Error *err) {
    DIR *d = opendir(dir);
    int n = 0;
    *files = NULL;
    if (!d) return error_file(err, dir), -1;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        size_t len = strlen(e->d_name);
        bool is_page = len == 35 && !strcmp(e->d_name + 32, ".kv") &&
                       strspn(e->d_name, "0123456789abcdef") == 32;
        if (!is_page && strncmp(e->d_name, ".page-", 6)) continue;
        if (len >= sizeof(*files)->name || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (!S_ISREG(st.st_mode)) continue;
        if ((n & (n - 1)) == 0) *files = xrealloc(*files, n ? 2 * (size_t)n : 1, sizeof **files);
        CacheFile *f = &(*files)[n++];
        *f = (CacheFile){
            .bytes = (uint64_t)st.st_size, .used = os_mtime_ns(&st), .is_page = is_page};
        memcpy(f->name, e->d_name, len + 1);
    }
    closedir(d);
    if (n) qsort(*files, (size_t)n, sizeof **files, by_use);
    return n;
}

bool cache_check(const char *dir, const CacheFile *file, bool all_bytes, uint64_t *model,
                 int *n_tokens) {
    char *path = path_of(dir, file->name), name[40];
    bool is_good = false;
    Mapping map = map_file(path);
    Head h;
    *model = 0, *n_tokens = 0;
    if (map.data) {
        memcpy(&h, map.data, sizeof h);
        *model = h.model.a;
        is_good = h.n_tokens % KV_PAGE == 0 && h.n_tokens > 0 &&
                  h.n_tokens < map.bytes / sizeof(int) &&
                  head_bytes(h.n_tokens) + h.page_bytes == map.bytes && h.page_bytes % 64 == 0;
    }
    if (is_good) {
        const int *tokens = (const int *)(const void *)(map.data + sizeof h);
        Hash hash = page_name(h.model, tokens, h.n_tokens);
        snprintf(name, sizeof name, "%016llx%016llx.kv", (unsigned long long)hash.a,
                 (unsigned long long)hash.b);
        is_good = !strcmp(name, file->name) &&
                  (!all_bytes || is_page(map, h.model, hash, tokens, h.n_tokens, h.page_bytes));
        *n_tokens = (int)h.n_tokens;
    }
    if (map.data) munmap(map.data, map.bytes);
    free(path);
    return is_good;
}

// The cache of a model

PrefixCache *cache_open(const char *dir, uint64_t most_bytes, const Model *m, int chunk,
                        Error *err) {
    struct stat st;
    if (mkdir(dir, 0700) && errno != EEXIST) return error_file(err, dir), NULL;
    if (stat(dir, &st)) return error_file(err, dir), NULL;
    if (!S_ISDIR(st.st_mode))
        return error_set(err, EXIT_RUNTIME, "%s: expected a folder", dir), NULL;
    signal(SIGXFSZ, SIG_IGN); // a file size limit is an error of write()
    AttentionShape shape = {m->config.n_heads, m->config.n_kv_heads, m->config.head_dim,
                            m->kv.type};
    PrefixCache *c = xalloc(1, sizeof *c);
    *c = (PrefixCache){.dir = str_copy(str_of(dir)).data,
                       .most_bytes = most_bytes,
                       .model = model_hash(m),
                       .chunk = chunk};
    int tile = attention_tile_steps(&shape), last = KV_PAGE - (KV_PAGE - 1) / tile * tile;
    int many = ATTEND_MANY_ABOVE * m->config.n_kv_heads / m->config.n_heads +
               1; // tokens that have more than ATTEND_MANY_ABOVE queries
    c->n_again = last < many ? last : many;
    c->is_batch_invariant = m->is_batch_invariant;
    return c;
}

void cache_close(PrefixCache *c) {
    if (!c) return;
    free((char *)c->dir);
    free(c);
}

// Whether a prefill that begins at position `begin` feeds this page in one forward.
static bool is_whole(const PrefixCache *c, int page, int begin) {
    int first = page * KV_PAGE - begin;
    return c->is_batch_invariant || first / c->chunk == (first + KV_PAGE - 1) / c->chunk;
}

// Pages are used: the first of them last, since those behind it are of no use without it.
static void touch(const PrefixCache *c, const int *tokens, int n_pages) {
    struct timespec now;
    Hash name = c->model;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int page = 0; page < n_pages; page++) {
        name = hash_add(name, tokens + page * KV_PAGE, KV_PAGE * sizeof *tokens);
        int64_t nsec = (int64_t)now.tv_sec * NSEC + now.tv_nsec - page;
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {(time_t)(nsec / NSEC), (long)(nsec % NSEC)}};
        char *path = page_path(c, name);
        utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
        free(path);
    }
}

static bool take_page(PrefixCache *c, Session *s, const int *tokens, Hash name) {
    char *path = page_path(c, name);
    Mapping map = map_file(path);
    size_t n = (size_t)s->n_tokens + KV_PAGE, page_bytes = KV_PAGE * kv_position_bytes(&s->shape);
    bool is_good = is_page(map, c->model, name, tokens, n, page_bytes);
    if (is_good)
        session_append_mapped(s, tokens + s->n_tokens, map.data + head_bytes(n), map.data,
                              map.bytes);
    else if (map.data)
        munmap(map.data, map.bytes), unlink(path); // to be written anew
    free(path);
    return is_good;
}

int cache_load(PrefixCache *c, Session *s, const int *tokens, int n) {
    int begin = s->n_tokens;
    if (begin % KV_PAGE || s->n_reproducible < begin) return 0;
    while (s->n_tokens + KV_PAGE <= n && is_whole(c, s->n_tokens / KV_PAGE, begin))
        if (!take_page(c, s, tokens, page_name(c->model, tokens, (size_t)s->n_tokens + KV_PAGE)))
            break;
    touch(c, tokens, s->n_tokens / KV_PAGE);
    // The last token's logits are wanted, by the attention that it had: it is fed again, with so
    // many others.
    if (s->n_tokens == n && n > begin) session_rewind(s, n - c->n_again);
    return s->n_tokens - begin;
}

// Removes what was used longest ago until so many bytes more are allowed, and rests of old writes.
// False if they never are.
static bool make_room(PrefixCache *c, uint64_t bytes) {
    CacheFile *files;
    Error err;
    if (bytes > c->most_bytes) return false;
    if (c->n_writes++ % WRITES_A_SCAN && c->bytes + bytes <= c->most_bytes) return true;
    int n = cache_list(c->dir, &files, &err);
    int64_t stale = (int64_t)(time(NULL) - STALE_SEC) * NSEC;
    c->bytes = 0;
    for (int i = 0; i < n; i++) c->bytes += files[i].bytes;
    for (int i = 0; i < n; i++) {
        if (files[i].is_page ? c->bytes + bytes <= c->most_bytes : files[i].used > stale) continue;
        char *path = path_of(c->dir, files[i].name);
        if (unlink(path) == 0) c->bytes -= files[i].bytes;
        free(path);
    }
    free(files);
    return n >= 0;
}

static bool write_page(PrefixCache *c, const Session *s, int page, const char *path, Hash name) {
    size_t page_bytes = KV_PAGE * kv_position_bytes(&s->shape), n = ((size_t)page + 1) * KV_PAGE;
    const char *data = session_page(s, page);
    Buffer head = make_head(c->model, name, checksum(data, page_bytes), s->tokens, n, page_bytes);
    char *beside = path_of(c->dir, ".page-XXXXXX");
    bool is_done = true;
    if (make_room(c, head.len + page_bytes)) {
        int fd = mkstemp(beside);
        is_done = fd >= 0 && write_all(fd, head.data, head.len) && write_all(fd, data, page_bytes);
        if (fd >= 0 && close(fd)) is_done = false;
        if (is_done && rename(beside, path)) is_done = false;
        if (is_done)
            c->bytes += head.len + page_bytes;
        else
            warn("%s: %s (going on without writing to the cache)", c->dir, strerror(errno));
        if (!is_done && fd >= 0) unlink(beside);
    }
    free(beside);
    buffer_free(&head);
    return is_done;
}

int cache_store(PrefixCache *c, const Session *s, int first) {
    for (; (first + 1) * KV_PAGE <= s->n_reproducible && !c->is_read_only; first++) {
        Hash name = page_name(c->model, s->tokens, ((size_t)first + 1) * KV_PAGE);
        char *path = page_path(c, name);
        if (access(path, F_OK)) c->is_read_only = !write_page(c, s, first, path, name);
        free(path);
        touch(c, s->tokens, first + 1); // now: the time of a write is that of the last tick
    }
    return first;
}
