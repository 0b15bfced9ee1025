// logits: raw logits of given tokens, for comparison with other implementations.
#include "verbs.h"
#include "../cli/engine.h"
#include "../cli/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOGITS_BYTES = 128 << 20 };

int verb_logits(const Options *o) {
    static Model model;
    static Ids ids;
    static Buffer text;
    static Workspace *ws;
    static Session *session;
    Error err;
    if (!o->ids || !o->output) die(EXIT_USAGE, "logits: expected --ids LIST and -o FILE (llama31 help logits)");
    if (o->ids[0] != '@')
        buffer_puts(&text, o->ids);
    else if (!file_read(o->ids + 1, &text, &err))
        die_error(&err);
    if (!model_open(&model, o->model, &o->model_options, &err)) die_error(&err);
    int n_vocab = model.config.vocab_size;
    ids_parse(text.data, n_vocab, &ids);
    int context = o->ctx ? o->ctx : model.config.max_context;
    if (ids.len == 0) die(EXIT_USAGE, "--ids: expected at least one token");
    if (!context_fits(ids.len, false, context, &err)) die_error(&err);

    int fit = LOGITS_BYTES / (4 * n_vocab), chunk = o->chunk ? o->chunk : fit < 1 ? 1 : fit < 512 ? fit : 512;
    if (chunk > ids.len) chunk = ids.len;
    int fd = strcmp(o->output, "-") ? open(o->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : STDOUT_FILENO;
    if (fd < 0) die_file(o->output);
    ws = workspace_new(&model, chunk, chunk);
    session = session_new(&model.kv);
    for (int first = 0; first < ids.len; first += chunk) {
        int wanted = o->last_only ? ids.len - 1 - first : 0, n_left = ids.len - first;
        int n = workspace_feed(ws, session, ids.data + first, n_left < chunk ? n_left : chunk, wanted, &err);
        if (n < 0) die_error(&err);
        const float *logits = model_forward(&model, ws, 0);
        int n_wanted = n > wanted ? n - wanted : 0;
        output_write(fd, o->output, logits, (size_t)n_wanted * (size_t)n_vocab * sizeof *logits);
    }
    if (fd != STDOUT_FILENO && close(fd)) die_file(o->output);
    return EXIT_OK;
}
