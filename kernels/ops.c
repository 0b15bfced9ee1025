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

static const MatKernel *pick_kernel(const Tensor *w, int n, bool invariant) {
    const MatKernel *gemm = &kernel.gemm[w->type];
    return !invariant && gemm->rows && n >= gemm->min_tokens ? gemm : &kernel.mat[w->type];
}

static size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

size_t ops_encode_bytes(const Tensor *w, int n) {
    size_t bytes = kernel.mat[w->type].encoded_bytes(n, w->cols);
    if (kernel.gemm[w->type].rows && n >= kernel.gemm[w->type].min_tokens) {
        size_t gemm_bytes = kernel.gemm[w->type].encoded_bytes(n, w->cols);
        if (gemm_bytes > bytes) bytes = gemm_bytes;
    }
    return round_up(bytes, 64);
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
// share, a unit is one page, and the same merge, in the same order, follows as a second step: the same bits.

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

static bool splits_pages(const AttendShape *shape, int n_threads, int n_tiles, int n_pages) {
    return n_pages > 1 && n_threads > 1 && n_tiles * shape->n_kv_heads < 2 * n_threads;
}

// Query i of a unit is head i % group of the KV head's group, of step i / group of the tile.
typedef struct {
    const AttendTile *tile;
    const AttendShape *shape;
    int kv_head, group, n_queries;
} AttendUnit;

static AttendUnit attend_unit(const AttendTile *tiles, const AttendShape *shape, int index) {
    AttendUnit u = {.tile = &tiles[index / shape->n_kv_heads], .shape = shape, .kv_head = index % shape->n_kv_heads};
    u.group = shape->n_heads / shape->n_kv_heads;
    u.n_queries = u.tile->n_steps * u.group;
    return u;
}

static size_t query_offset(const AttendUnit *u, int query) {
    int step = u->tile->first_step + query / u->group, head = u->kv_head * u->group + query % u->group;
    return ((size_t)step * (size_t)u->shape->n_heads + (size_t)head) * (size_t)u->shape->head_dim;
}

// Queries [first, first + n_q) against one page; n_q <= ATTEND_MAX_QUERIES, q gathered.
static void attend_page(const AttendUnit *u, int layer, int page, int first, int n_q, const float *q, float *max,
                        float *sum, float *acc) {
    const AttendShape *shape = u->shape;
    int n_keys[ATTEND_MAX_QUERIES];
    for (int i = 0; i < n_q; i++) {
        int n = u->tile->first_pos + (first + i) / u->group + 1 - page * KV_PAGE;
        n_keys[i] = n < 0 ? 0 : n > KV_PAGE ? KV_PAGE : n;
    }
    size_t at = (size_t)layer * u->tile->layer_stride + (size_t)page;
    size_t head = (size_t)u->kv_head * KV_PAGE * quant_row_bytes(shape->kv_type, (size_t)shape->head_dim);
    kernel.attend(
        &(AttendPage){.q = q,
                      .k = (const char *)u->tile->k[at] + head,
                      .v = (const char *)u->tile->v[at] + head,
                      .next_k = page + 1 < tile_pages(u->tile) ? (const char *)u->tile->k[at + 1] + head : NULL,
                      .n_keys = n_keys,
                      .kv_type = shape->kv_type,
                      .n_q = n_q,
                      .head_dim = shape->head_dim,
                      .max = max,
                      .sum = sum,
                      .acc = acc});
}

static void gather_queries(const AttendUnit *u, const float *q, int first, int n_q, float *out) {
    for (int i = 0; i < n_q; i++)
        memcpy(out + i * u->shape->head_dim, q + query_offset(u, first + i),
               (size_t)u->shape->head_dim * sizeof(float));
}

// (max, sum, acc) += the same of one more page, for one query
static void merge_page(float *max, float *sum, float *acc, float page_max, float page_sum, const float *page_acc,
                       int dim) {
    if (page_sum == 0) return; // no keys in this page
    float top = page_max > *max ? page_max : *max;
    float a = expf(*max - top), b = expf(page_max - top);
    for (int d = 0; d < dim; d++) acc[d] = acc[d] * a + page_acc[d] * b;
    *sum = *sum * a + page_sum * b;
    *max = top;
}

static void finish_query(float *out, const float *acc, float sum, int dim) {
    for (int d = 0; d < dim; d++) out[d] = acc[d] / sum;
}

enum { MAX_HEAD_DIM = 256 };

static void attend_all_pages(const AttendUnit *u, float *out, const float *q, int layer) {
    float queries[ATTEND_MAX_QUERIES * MAX_HEAD_DIM], page_acc[ATTEND_MAX_QUERIES * MAX_HEAD_DIM],
        acc[ATTEND_MAX_QUERIES * MAX_HEAD_DIM];
    float max[ATTEND_MAX_QUERIES], sum[ATTEND_MAX_QUERIES], page_max[ATTEND_MAX_QUERIES], page_sum[ATTEND_MAX_QUERIES];
    int dim = u->shape->head_dim, n_pages = tile_pages(u->tile);
    for (int first = 0; first < u->n_queries; first += ATTEND_MAX_QUERIES) {
        int n_q = u->n_queries - first < ATTEND_MAX_QUERIES ? u->n_queries - first : ATTEND_MAX_QUERIES;
        gather_queries(u, q, first, n_q, queries);
        attend_page(u, layer, 0, first, n_q, queries, max, sum, acc);
        for (int page = 1; page < n_pages; page++) {
            attend_page(u, layer, page, first, n_q, queries, page_max, page_sum, page_acc);
            for (int i = 0; i < n_q; i++)
                merge_page(&max[i], &sum[i], acc + i * dim, page_max[i], page_sum[i], page_acc + i * dim, dim);
        }
        for (int i = 0; i < n_q; i++) finish_query(out + query_offset(u, first + i), acc + i * dim, sum[i], dim);
    }
}

// Where the partial result of one page of one unit lies: max, sum (n_queries each), acc (n_queries, head_dim).
static size_t partial_floats(const AttendShape *shape) {
    int group = shape->n_heads / shape->n_kv_heads;
    return (size_t)(ops_attend_tile_steps(shape) * group) * (size_t)(shape->head_dim + 2);
}

size_t ops_attend_floats(const AttendShape *shape, int n_threads, const AttendTile *tiles, int n_tiles) {
    int n_pages = most_pages(tiles, n_tiles);
    if (!splits_pages(shape, n_threads, n_tiles, n_pages)) return 0;
    return (size_t)n_tiles * (size_t)shape->n_kv_heads * (size_t)n_pages * partial_floats(shape);
}

static void attend_one_page(const AttendUnit *u, const float *q, int layer, int page, float *partial) {
    float queries[ATTEND_MAX_QUERIES * MAX_HEAD_DIM];
    float *max = partial, *sum = max + u->n_queries, *acc = sum + u->n_queries;
    for (int first = 0; first < u->n_queries; first += ATTEND_MAX_QUERIES) {
        int n_q = u->n_queries - first < ATTEND_MAX_QUERIES ? u->n_queries - first : ATTEND_MAX_QUERIES;
        gather_queries(u, q, first, n_q, queries);
        attend_page(u, layer, page, first, n_q, queries, max + first, sum + first, acc + first * u->shape->head_dim);
    }
}

static void merge_unit(const AttendUnit *u, float *out, float *partials) {
    int dim = u->shape->head_dim, n = u->n_queries;
    float *max = partials, *sum = max + n, *acc = sum + n;
    for (int page = 1; page < tile_pages(u->tile); page++) {
        const float *p = partials + (size_t)page * partial_floats(u->shape);
        for (int i = 0; i < n; i++)
            merge_page(&max[i], &sum[i], acc + i * dim, p[i], p[n + i], p + 2 * n + i * dim, dim);
    }
    for (int i = 0; i < n; i++) finish_query(out + query_offset(u, i), acc + i * dim, sum[i], dim);
}

void ops_attend(Team *team, float *out, const float *q, const AttendTile *tiles, int n_tiles, int layer,
                const AttendShape *shape, float *partial) {
    int n_units = n_tiles * shape->n_kv_heads, n_pages = most_pages(tiles, n_tiles), i, end;
    if (!splits_pages(shape, team->n_threads, n_tiles, n_pages)) {
        while (take(team, n_units, 1, &i, &end)) {
            // the last tiles see the most keys: first, so that threads finish together
            AttendUnit u = attend_unit(tiles, shape, n_units - 1 - i);
            attend_all_pages(&u, out, q, layer);
        }
        team_barrier(team, OP_ATTEND);
        return;
    }
    size_t unit_floats = (size_t)n_pages * partial_floats(shape);
    while (take(team, n_units * n_pages, 1, &i, &end)) {
        AttendUnit u = attend_unit(tiles, shape, i / n_pages);
        int page = i % n_pages;
        if (page < tile_pages(u.tile))
            attend_one_page(&u, q, layer, page,
                            partial + (size_t)(i / n_pages) * unit_floats + (size_t)page * partial_floats(shape));
    }
    team_barrier(team, OP_ATTEND);
    while (take(team, n_units, 1, &i, &end)) {
        AttendUnit u = attend_unit(tiles, shape, i);
        merge_unit(&u, out, partial + (size_t)i * unit_floats);
    }
    team_barrier(team, OP_ATTEND);
}
