// cache: lists the pages of a prefix cache by model, removes damaged pages (--verify) or all pages
// (--empty).
#include "commands.h"
#include "../cache/cache.h"
#include "../cli/output.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint64_t model, bytes;
    int n_pages;
    int n_tokens;      // of the longest prefix
    int64_t last_used; // nanoseconds since 1970
} CachedModel;

static void print_models(const CachedModel *models, int n) {
    if (n) printf("%-16s %8s %10s %10s  %s\n", "model", "pages", "MiB", "positions", "last used");
    for (const CachedModel *m = models; m < models + n; m++) {
        char when[32];
        time_t used = (time_t)(m->last_used / 1000000000);
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&used));
        printf("%016llx %8d %10.1f %10d  %s\n", (unsigned long long)m->model, m->n_pages,
               (double)m->bytes / (1 << 20), m->n_tokens, when);
    }
}

int command_cache(const Options *o) {
    const char *dir = o->n_args ? o->args[0] : o->cache;
    CacheFile *files;
    Error err;

    if (!dir || !*dir) die(EXIT_USAGE, "cache: needs DIR, or $LLAMA31_CACHE");
    int n = cache_list(dir, &files, &err), n_models = 0, n_removed = 0;
    if (n < 0) die_error(&err);

    CachedModel *models = xalloc((size_t)n + 1, sizeof *models);
    uint64_t bytes = 0, bytes_removed = 0;
    for (CacheFile *file = files; file < files + n; file++) {
        bool is_valid = !o->is_empty && file->is_page && cache_check(dir, file, o->is_verify);
        if (o->is_empty || (o->is_verify && !is_valid)) {
            char *path = text_format("%s/%s", dir, file->name);
            if (unlink(path)) die_file(path);
            free(path);
            n_removed++;
            bytes_removed += file->bytes;
            continue;
        }

        bytes += file->bytes;
        if (!is_valid) continue;

        CachedModel *m = models;
        while (m < models + n_models && m->model != file->model) m++;
        if (m == models + n_models) models[n_models++].model = file->model;
        m->n_pages++;
        m->bytes += file->bytes;
        if (file->n_tokens > m->n_tokens) m->n_tokens = file->n_tokens;
        if (file->used > m->last_used) m->last_used = file->used;
    }

    print_models(models, n_models);
    printf("%.1f MiB in all\n", (double)bytes / (1 << 20));
    if (o->is_empty || o->is_verify)
        printf("removed %s, %.1f MiB\n", count_of(n_removed, "file"),
               (double)bytes_removed / (1 << 20));
    free(models);
    free(files);

    return EXIT_OK;
}
