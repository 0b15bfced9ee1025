// logits: raw logits of given tokens, for comparison with other implementations.
#include "commands.h"
#include "../base/files.h"
#include "../cli/prompt.h"
#include "../cli/request.h"
#include "../cli/output.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool all_finite(const float *x, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * 0; // 0, or NaN
    return sum == 0;
}

// With --force anything; without it what can only be logits: floats of their size, of both signs,
// which no text has.
static bool may_replace(const Options *o) {
    float x[1024] = {0};
    bool has_negative = false;
    struct stat st;
    if (o->is_forced) return true;
    int fd = open(o->output, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size % 4
                    ? 0
                    : read(fd, x, sizeof x);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i < n / 4; i++) {
        if (!(fabsf(x[i]) < 1e4f)) return false;
        has_negative |= x[i] < 0;
    }
    return has_negative;
}

int command_logits(const Options *o) {
    static Model model;
    static Ids ids;
    static Buffer text;
    static Workspace *ws;
    static Session *session;
    static OutFile out;
    Error err;
    bool is_stdout = o->output && !strcmp(o->output, "-");
    if (!o->ids || !o->output)
        die(EXIT_USAGE, "logits: expected --ids LIST and -o FILE (llama31 help logits)");
    if (o->ids[0] != '@')
        buffer_puts(&text, o->ids);
    else if (!file_read(o->ids + 1, &text, &err))
        die_error(&err);
    else
        file_register_input(o->ids + 1);
    if (!model_open(&model, o->model, &o->model_options, &err)) die_error(&err);
    int n_vocab = model.config.vocab_size;
    ids_parse(text.data, n_vocab, &ids);
    int context = o->ctx ? o->ctx : model.config.max_context;
    if (ids.len == 0) die(EXIT_USAGE, "--ids: expected at least one token");
    if (!context_fits(ids.len, false, context, &err)) die_error(&err);

    int fit = MAX_LOGITS_BYTES / (4 * n_vocab), chunk = fit < GENERATE_CHUNK ? fit : GENERATE_CHUNK;
    if (o->chunk || chunk < 1) chunk = o->chunk ? o->chunk : 1;
    if (chunk > ids.len) chunk = ids.len;
    if (!is_stdout &&
        !outfile_open(&out, o->output, FILE_STREAM | (may_replace(o) ? FILE_FORCE : 0), &err))
        die_error(&err);
    ws = workspace_new(&model, chunk, chunk);
    session = session_new(&model.kv);
    for (int first = 0; first < ids.len; first += chunk) {
        int wanted = o->last_only ? ids.len - 1 - first : 0, n_left = ids.len - first;
        int n = workspace_feed(ws, session, ids.data + first, n_left < chunk ? n_left : chunk,
                               wanted, &err);
        if (n < 0) die_error(&err);
        const float *logits = model_forward(&model, ws, 0);
        int n_wanted = n > wanted ? n - wanted : 0;
        if (!all_finite(logits, (size_t)n_wanted * (size_t)n_vocab))
            die(EXIT_RUNTIME, "the logits hold NaN or infinity");
        output_write(is_stdout ? STDOUT_FILENO : out.fd, o->output, logits,
                     (size_t)n_wanted * (size_t)n_vocab * sizeof *logits);
    }
    if (!is_stdout && !outfile_close(&out, &err)) die_error(&err);
    return EXIT_OK;
}
