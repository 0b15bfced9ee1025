#include "ops.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

// The threads live in one parallel region around the whole program (team_serve) and meet at barriers of our own, which
// spin for some microseconds and then sleep. Sleeping matters when another process wants the core: a spinning thread
// would keep it from the thread that everyone waits for. OpenMP's own end of a region spins for milliseconds.
enum { MAX_THREADS = 1024 };

struct Team {
    int n_threads;
    _Atomic int next;       // first unit of work that nobody has taken
    _Atomic int n_arrived;  // at the barrier
    _Atomic unsigned phase; // counts barriers
    _Atomic int n_sleeping; // until the phase changes
    double mark;            // when the last barrier fell (profile)
    struct {
        _Alignas(64) _Atomic int next;
    } shares[MAX_THREADS]; // of the work that begins divided
};

// A thread other than the first, and the word it sleeps on.
typedef struct {
    _Atomic unsigned n_jobs; // handed to it so far
    _Atomic int is_sleeping;
} Worker;

static struct {
    int n_threads; // 0 outside team_serve
    Worker workers[MAX_THREADS];
    Team team; // of the job under way
    void (*body)(Team *team, void *arg);
    void *arg;
} service;

bool ops_profile;
double ops_sec[OP_COUNT];

const char *ops_kind_name(OpKind kind) {
    static const char *const names[] = {"embed", "norm", "encode", "matmul", "rope", "attend", "rest"};
    return names[kind];
}

enum { SPINS = 1000 }; // some 40 microseconds

static void sleep_while(_Atomic unsigned *word, unsigned value) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    if (atomic_load(word) == value) sched_yield();
#endif
}

static void wake_all(_Atomic unsigned *word) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
#else
    (void)word;
#endif
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Called by the last to arrive: what ends here took the time since the last barrier.
static void profile(Team *team, OpKind kind) {
    double now = now_sec();
    ops_sec[kind] += now - team->mark;
    team->mark = now;
}

// Returns when *word is no longer `value`: spinning first, then asleep, which *n_sleeping tells whoever changes it.
static void wait_while(_Atomic unsigned *word, unsigned value, _Atomic int *n_sleeping) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        relax();
    }
    atomic_fetch_add(n_sleeping, 1);
    while (atomic_load(word) == value) sleep_while(word, value);
    atomic_fetch_sub(n_sleeping, 1);
}

static void advance(_Atomic unsigned *word, _Atomic int *n_sleeping) {
    atomic_fetch_add(word, 1);
    if (atomic_load(n_sleeping)) wake_all(word);
}

static void team_barrier(Team *team, OpKind kind) {
    int n_threads = team->n_threads; // read before the others can go on to a job of another size
    unsigned phase = atomic_load(&team->phase);
    if (atomic_fetch_add(&team->n_arrived, 1) + 1 < n_threads) {
        wait_while(&team->phase, phase, &team->n_sleeping);
        return;
    }
    if (ops_profile) profile(team, kind);
    atomic_store(&team->n_arrived, 0);
    atomic_store(&team->next, 0);
    for (int i = 0; i < n_threads; i++) atomic_store_explicit(&team->shares[i].next, 0, memory_order_relaxed);
    advance(&team->phase, &team->n_sleeping);
}

void team_run(int n_threads, void (*body)(Team *team, void *arg), void *arg) {
    Team *team = &service.team;
    team->n_threads = n_threads < service.n_threads ? n_threads : service.n_threads > 1 ? service.n_threads : 1;
    team->mark = ops_profile ? now_sec() : 0;
    service.body = body;
    service.arg = arg;
    for (int i = 1; i < team->n_threads; i++) advance(&service.workers[i].n_jobs, &service.workers[i].is_sleeping);
    body(team, arg);
    team_barrier(team, OP_REST); // nobody is in the body any more
}

#if defined(_OPENMP)
static void worker_serve(Worker *worker) {
    for (unsigned n_done = 0;; n_done++) {
        wait_while(&worker->n_jobs, n_done, &worker->is_sleeping);
        if (!service.body) return;
        service.body(&service.team, service.arg);
        team_barrier(&service.team, OP_REST);
    }
}
#endif

int team_serve(int n_threads, int (*program)(void *arg), void *arg) {
    int code = 0;
#if defined(_OPENMP)
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    if (n_threads > 1) {
#pragma omp parallel num_threads(n_threads)
        {
            if (omp_get_thread_num() > 0) {
                worker_serve(&service.workers[omp_get_thread_num()]);
            } else {
                service.n_threads = omp_get_num_threads();
                code = program(arg);
                service.body = NULL;
                for (int i = 1; i < service.n_threads; i++)
                    advance(&service.workers[i].n_jobs, &service.workers[i].is_sleeping);
            }
        }
        service.n_threads = 0;
        return code;
    }
#endif
    (void)n_threads;
    code = program(arg);
    return code;
}

// CPUs worth of time that the process's cgroup allows, or a large number.
static double cgroup_cpus(void) {
    double quota, period = 100000;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        int n = fscanf(f, "%lf %lf", &quota, &period); // "max 100000" reads nothing
        fclose(f);
        return n == 2 && quota > 0 && period > 0 ? quota / period : 1e9;
    }
    f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
    if (!f) return 1e9;
    int n = fscanf(f, "%lf", &quota);
    fclose(f);
    return n == 1 && quota > 0 ? quota / period : 1e9;
}

int team_default_threads(void) {
    int n = 1;
#if defined(_OPENMP)
    n = omp_get_num_procs(); // honours the affinity mask
    if (omp_get_max_threads() < n) n = omp_get_max_threads();
#endif
    double cpus = cgroup_cpus();
    return cpus >= n ? n : cpus < 1 ? 1 : (int)cpus;
}

// Takes the next `chunk` units of n; false when there are none left.
static bool take(Team *team, int n, int chunk, int *begin, int *end) {
    *begin = atomic_fetch_add(&team->next, chunk);
    *end = n - *begin < chunk ? n : *begin + chunk;
    return *begin < n;
}

// Takes the next unit of n from this thread's own share, which lies together in memory and is fetched ahead, or, when
// that is done, from another's.
static bool take_near(Team *team, int n, int *unit) {
    int me = 0, n_threads = team->n_threads;
#if defined(_OPENMP)
    me = omp_get_thread_num();
#endif
    for (int i = 0; i < n_threads; i++) {
        int share = (me + i) % n_threads;
        int begin = (int)((int64_t)n * share / n_threads), end = (int)((int64_t)n * (share + 1) / n_threads);
        *unit = begin + atomic_load(&team->shares[share].next);
        if (*unit < end) *unit = begin + atomic_fetch_add(&team->shares[share].next, 1);
        if (*unit < end) return true;
    }
    return false;
}

void ops_for(Team *team, int n, int chunk, void (*fn)(void *arg, int i), void *arg) {
    int begin, end;
    while (take(team, n, chunk, &begin, &end))
        for (int i = begin; i < end; i++) fn(arg, i);
    team_barrier(team, OP_ROPE);
}

void ops_embed(Team *team, float *out, const Tensor *w, const int *tokens, int n) {
    int begin, end;
    while (take(team, n, 1, &begin, &end))
        quant_decode(w->type, (const char *)w->data + (size_t)tokens[begin] * w->row_bytes,
                     out + (size_t)begin * (size_t)w->cols, (size_t)w->cols);
    team_barrier(team, OP_EMBED);
}

void ops_rmsnorm(Team *team, float *out, const float *x, const float *weight, float eps, int n, int dim) {
    int i, end;
    while (take(team, n, 1, &i, &end))
        kernel.rmsnorm(out + (size_t)i * (size_t)dim, x + (size_t)i * (size_t)dim, weight, eps, dim);
    team_barrier(team, OP_NORM);
}

void ops_gather(Team *team, float *out, const float *x, const int *index, int n, int dim) {
    int i, end;
    while (take(team, n, 1, &i, &end))
        memcpy(out + (size_t)i * (size_t)dim, x + (size_t)index[i] * (size_t)dim, (size_t)dim * sizeof(float));
    team_barrier(team, OP_REST);
}

// The elementwise operations cut (n, dim) into pieces of at most PIECE values.
enum { PIECE = 4096 };

void ops_swiglu(Team *team, float *gate, const float *up, int n, int dim) {
    int i, end, pieces = (dim + PIECE - 1) / PIECE;
    while (take(team, n * pieces, 1, &i, &end)) {
        int first = i % pieces * PIECE, count = dim - first < PIECE ? dim - first : PIECE;
        size_t at = (size_t)(i / pieces) * (size_t)dim + (size_t)first;
        kernel.swiglu(gate + at, up + at, count);
    }
    team_barrier(team, OP_REST);
}

void ops_add(Team *team, float *x, const float *y, int n, int dim) {
    int i, end, pieces = (dim + PIECE - 1) / PIECE;
    while (take(team, n * pieces, 1, &i, &end)) {
        int first = i % pieces * PIECE, count = dim - first < PIECE ? dim - first : PIECE;
        size_t at = (size_t)(i / pieces) * (size_t)dim + (size_t)first;
        kernel.add(x + at, y + at, count);
    }
    team_barrier(team, OP_REST);
}

static bool is_for(const MatKernel *k, int n) { return k->rows && n >= k->min_tokens; }

static const MatKernel *pick_kernel(const Tensor *w, int n, bool invariant) {
    if (!invariant && is_for(&kernel.tiles[w->type], n)) return &kernel.tiles[w->type];
    return !invariant && is_for(&kernel.gemm[w->type], n) ? &kernel.gemm[w->type] : &kernel.mat[w->type];
}

static size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

size_t ops_encode_bytes(const Tensor *w, int n) {
    const MatKernel *kernels[] = {&kernel.mat[w->type], &kernel.gemm[w->type], &kernel.tiles[w->type]};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes = is_for(kernels[i], n) ? kernels[i]->encoded_bytes(n, w->cols) : 0;
        if (bytes > most) most = bytes;
    }
    return round_up(most, 64);
}

enum { MAX_PRODUCTS = 4, ROW_CHUNK = 64 };

void ops_matmul(Team *team, const Product *products, int n_products, const float *x, int n, void *scratch,
                bool invariant) {
    const MatKernel *kernels[MAX_PRODUCTS];
    char *encoded[MAX_PRODUCTS], *free_space = scratch;
    int cols = products[0].w->cols, begin, end, total_rows = 0;
    for (int p = 0; p < n_products; p++) {
        kernels[p] = pick_kernel(products[p].w, n, invariant);
        total_rows += products[p].w->rows;
        encoded[p] = NULL;
        for (int other = 0; other < p; other++)
            if (kernels[other]->encode == kernels[p]->encode) encoded[p] = encoded[other];
        if (encoded[p]) continue;
        encoded[p] = free_space;
        free_space += round_up(kernels[p]->encoded_bytes(n, cols), 64);
        while (take(team, n, kernels[p]->token_step, &begin, &end))
            kernels[p]->encode(encoded[p], x, n, cols, begin, end);
        team_barrier(team, OP_ENCODE);
    }
    // Chunks of rows: small enough that threads finish together, large enough to stream.
    int chunk = total_rows / (team->n_threads * 8);
    chunk = chunk < 8 ? 8 : chunk > ROW_CHUNK ? ROW_CHUNK : chunk;
    int chunks[MAX_PRODUCTS], n_chunks[MAX_PRODUCTS], total = 0, unit;
    for (int p = 0; p < n_products; p++) {
        chunks[p] = (int)round_up((size_t)chunk, (size_t)kernels[p]->row_step);
        n_chunks[p] = (products[p].w->rows + chunks[p] - 1) / chunks[p];
        total += n_chunks[p];
    }
    while (take_near(team, total, &unit)) {
        int p = 0;
        while (unit >= n_chunks[p]) unit -= n_chunks[p++];
        const Product *product = &products[p];
        int row_begin = unit * chunks[p], row_end = row_begin + chunks[p];
        if (row_end > product->w->rows) row_end = product->w->rows;
        kernels[p]->rows(product->out, product->out_stride, product->w, encoded[p], n, row_begin, row_end);
    }
    team_barrier(team, OP_MATMUL);
}

// Attention. The unit of work is one KV head of one tile: its queries are computed page after page and the pages'
// partial softmaxes merged in order (Milakov and Gimelshein 2018; Dao et al. 2022). With fewer units than threads can
// share, each page is computed for itself, and the same merge, in the same order, follows as a second step: the same
// bits. More than ATTEND_MAX_QUERIES heads for one KV head make several units.

enum { MAX_HEAD_DIM = 256, MAX_PARTIAL = ATTEND_MAX_QUERIES * (MAX_HEAD_DIM + 2) };

int ops_attend_tile_steps(const AttendShape *shape) {
    int group = shape->n_heads / shape->n_kv_heads;
    return group < ATTEND_MAX_QUERIES ? ATTEND_MAX_QUERIES / group : 1;
}

static int tile_pages(const AttendTile *tile) { return (tile->first_pos + tile->n_steps - 1) / KV_PAGE + 1; }

static int most_pages(const AttendTile *tiles, int n_tiles) {
    int most = 0;
    for (int i = 0; i < n_tiles; i++)
        if (tile_pages(&tiles[i]) > most) most = tile_pages(&tiles[i]);
    return most;
}

static int units_per_head(const AttendShape *shape) {
    return (shape->n_heads / shape->n_kv_heads + ATTEND_MAX_QUERIES - 1) / ATTEND_MAX_QUERIES;
}

static bool splits_pages(int n_units, int n_threads, int n_pages) {
    return n_pages > 1 && n_threads > 1 && n_units < 2 * n_threads;
}

// Query i of a unit is one of a tile's queries: number first_query + i, which is head number % group of the KV head's
// group, of step number / group of the tile.
typedef struct {
    const AttendTile *tile;
    const AttendShape *shape;
    int layer, kv_head, group, first_query, n_queries;
} AttendUnit;

// Units follow each other by tile, then by KV head: what the tiles of a sequence share is still in the cache.
static AttendUnit attend_unit(const AttendTile *tiles, int n_tiles, const AttendShape *shape, int layer, int index) {
    int per_head = units_per_head(shape), head = index / per_head;
    AttendUnit u = {&tiles[head % n_tiles], shape, layer, .kv_head = head / n_tiles};
    u.group = shape->n_heads / shape->n_kv_heads;
    u.first_query = index % per_head * ATTEND_MAX_QUERIES;
    u.n_queries = u.tile->n_steps * u.group - u.first_query;
    if (u.n_queries > ATTEND_MAX_QUERIES) u.n_queries = ATTEND_MAX_QUERIES;
    return u;
}

static size_t query_offset(const AttendUnit *u, int i) {
    int query = u->first_query + i;
    int step = u->tile->first_step + query / u->group, head = u->kv_head * u->group + query % u->group;
    return ((size_t)step * (size_t)u->shape->n_heads + (size_t)head) * (size_t)u->shape->head_dim;
}

// The softmax of a unit over some keys, not yet divided: max and sum (n_queries), acc (n_queries, head_dim).
typedef struct {
    float *max, *sum, *acc;
} Partial;

static Partial partial_at(float *memory, const AttendUnit *u) {
    return (Partial){memory, memory + u->n_queries, memory + 2 * u->n_queries};
}

static size_t partial_floats(const AttendShape *shape) {
    return (size_t)ATTEND_MAX_QUERIES * (size_t)(shape->head_dim + 2);
}

static void attend_page(const AttendUnit *u, const float *q, int page, Partial out) {
    int n_keys[ATTEND_MAX_QUERIES];
    for (int i = 0; i < u->n_queries; i++) {
        int n = u->tile->first_pos + (u->first_query + i) / u->group + 1 - page * KV_PAGE;
        n_keys[i] = n < 0 ? 0 : n > KV_PAGE ? KV_PAGE : n;
    }
    size_t at = (size_t)u->layer * u->tile->layer_stride + (size_t)page;
    size_t head = (size_t)u->kv_head * KV_PAGE * quant_row_bytes(u->shape->kv_type, (size_t)u->shape->head_dim);
    bool is_many = !u->shape->is_invariant && u->n_queries > ATTEND_FEW && u->shape->kv_type != TYPE_F32;
    (is_many && kernel.attend_many ? kernel.attend_many : kernel.attend)(
        &(AttendPage){.q = q,
                      .k = (const char *)u->tile->k[at] + head,
                      .v = (const char *)u->tile->v[at] + head,
                      .next_k = page + 1 < tile_pages(u->tile) ? (const char *)u->tile->k[at + 1] + head : NULL,
                      .n_keys = n_keys,
                      .kv_type = u->shape->kv_type,
                      .n_q = u->n_queries,
                      .head_dim = u->shape->head_dim,
                      .max = out.max,
                      .sum = out.sum,
                      .acc = out.acc});
}

// a += b, the softmax over the keys that follow
static void merge(const AttendUnit *u, Partial a, Partial b) {
    int dim = u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++) {
        if (b.sum[i] == 0) continue; // no keys in this page
        float top = b.max[i] > a.max[i] ? b.max[i] : a.max[i];
        float scale_a = expf(a.max[i] - top), scale_b = expf(b.max[i] - top);
        for (int d = i * dim; d < (i + 1) * dim; d++) a.acc[d] = a.acc[d] * scale_a + b.acc[d] * scale_b;
        a.sum[i] = a.sum[i] * scale_a + b.sum[i] * scale_b;
        a.max[i] = top;
    }
}

static void finish(const AttendUnit *u, float *out, Partial p) {
    int dim = u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++)
        for (int d = 0; d < dim; d++) out[query_offset(u, i) + (size_t)d] = p.acc[i * dim + d] / p.sum[i];
}

// Pages [begin, end).
static void attend_pages(const AttendUnit *u, const float *q, int begin, int end, Partial out) {
    float queries[ATTEND_MAX_QUERIES * MAX_HEAD_DIM], memory[MAX_PARTIAL];
    Partial one = partial_at(memory, u);
    size_t dim = (size_t)u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++)
        memcpy(queries + (size_t)i * dim, q + query_offset(u, i), dim * sizeof(float));
    attend_page(u, queries, begin, out);
    for (int page = begin + 1; page < end; page++) {
        attend_page(u, queries, page, one);
        merge(u, out, one);
    }
}

size_t ops_attend_floats(const AttendShape *shape, int n_threads, const AttendTile *tiles, int n_tiles) {
    int n_pages = most_pages(tiles, n_tiles), n_units = n_tiles * shape->n_kv_heads * units_per_head(shape);
    return splits_pages(n_units, n_threads, n_pages) ? (size_t)n_units * (size_t)n_pages * partial_floats(shape) : 0;
}

void ops_attend(Team *team, float *out, const float *q, const AttendTile *tiles, int n_tiles, int layer,
                const AttendShape *shape, float *partial) {
    int n_units = n_tiles * shape->n_kv_heads * units_per_head(shape), n_pages = most_pages(tiles, n_tiles), i, end;
    if (!splits_pages(n_units, team->n_threads, n_pages)) {
        while (take(team, n_units, 1, &i, &end)) {
            // the last tiles see the most keys: first, so that threads finish together
            AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, n_units - 1 - i);
            float memory[MAX_PARTIAL];
            attend_pages(&u, q, 0, tile_pages(u.tile), partial_at(memory, &u));
            finish(&u, out, partial_at(memory, &u));
        }
        team_barrier(team, OP_ATTEND);
        return;
    }
    size_t page_floats = partial_floats(shape), unit_floats = (size_t)n_pages * page_floats;
    while (take(team, n_units * n_pages, 1, &i, &end)) {
        AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, i / n_pages);
        int page = i % n_pages;
        if (page < tile_pages(u.tile))
            attend_pages(&u, q, page, page + 1, partial_at(partial + (size_t)i * page_floats, &u));
    }
    team_barrier(team, OP_ATTEND);
    while (take(team, n_units, 1, &i, &end)) {
        AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, i);
        float *first = partial + (size_t)i * unit_floats;
        for (int page = 1; page < tile_pages(u.tile); page++)
            merge(&u, partial_at(first, &u), partial_at(first + (size_t)page * page_floats, &u));
        finish(&u, out, partial_at(first, &u));
    }
    team_barrier(team, OP_ATTEND);
}
