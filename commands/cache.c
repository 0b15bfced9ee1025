// cache: what the prefix cache holds, for each model; its files checked, or removed.
#include "commands.h"
#include "../cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// The pages of one model.
typedef struct {
    uint64_t model, bytes;
    int n_pages, longest; // longest: positions that the last of its pages ends
    int64_t used;
} Share;

static Share *share_of(Share *shares, int *n, uint64_t model) {
    for (int i = 0; i < *n; i++)
        if (shares[i].model == model) return &shares[i];
    shares[*n] = (Share){.model = model};
    return &shares[(*n)++];
}

static void remove_file(const char *dir, const CacheFile *file, long *n, uint64_t *bytes) {
    Buffer path = {0};
    buffer_printf(&path, "%s/%s", dir, file->name);
    if (unlink(path.data)) die_file(path.data);
    buffer_free(&path);
    ++*n;
    *bytes += file->bytes;
}

static void print_shares(const Share *shares, int n, uint64_t bytes) {
    if (n) printf("%-16s %8s %10s %10s  %s\n", "model", "pages", "MiB", "positions", "last used");
    for (int i = 0; i < n; i++) {
        char when[32];
        time_t used = (time_t)(shares[i].used / 1000000000);
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&used));
        printf("%016llx %8d %10.1f %10d  %s\n", (unsigned long long)shares[i].model,
               shares[i].n_pages, (double)shares[i].bytes / (1 << 20), shares[i].longest, when);
    }
    printf("%.1f MiB in all\n", (double)bytes / (1 << 20));
}

int command_cache(const Options *o) {
    const char *dir = o->n_args ? o->args[0] : getenv("LLAMA31_CACHE");
    CacheFile *files;
    Error err;
    if (!dir || !*dir) die(EXIT_USAGE, "cache: expected DIR, or $LLAMA31_CACHE");
    int n = cache_list(dir, &files, &err), n_shares = 0;
    if (n < 0) die_error(&err);
    Share *shares = xalloc((size_t)n + 1, sizeof *shares);
    long n_removed = 0;
    uint64_t bytes = 0, bytes_removed = 0;
    for (int i = 0; i < n; i++) {
        uint64_t model;
        int n_tokens;
        bool is_good = !o->is_empty && files[i].is_page &&
                       cache_check(dir, &files[i], o->is_verify, &model, &n_tokens);
        if (o->is_empty || (o->is_verify && !is_good)) {
            remove_file(dir, &files[i], &n_removed, &bytes_removed);
            continue;
        }
        bytes += files[i].bytes;
        if (!is_good) continue;
        Share *share = share_of(shares, &n_shares, model);
        share->n_pages++;
        share->bytes += files[i].bytes;
        if (n_tokens > share->longest) share->longest = n_tokens;
        if (files[i].used > share->used) share->used = files[i].used;
    }
    print_shares(shares, n_shares, bytes);
    if (o->is_empty || o->is_verify)
        printf("removed %ld file%s, %.1f MiB\n", n_removed, n_removed == 1 ? "" : "s",
               (double)bytes_removed / (1 << 20));
    free(shares);
    free(files);
    return EXIT_OK;
}
