// logits: writes the raw logits of given tokens as float32, for comparison with other programs.
#include "cli/commands/commands.h"
#include "cli/commands/check.h"
#include "base/files.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/request.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

// True if the output may be overwritten without --force: only if it looks like an earlier result,
// that is, like floats of plausible size, some of them negative. Text never looks like that.
static bool is_logits_file(const char *path) {
    float x[1024] = {0};
    bool has_negative = false;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return false;
    bool may_be = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size % 4 == 0;
    ssize_t n = may_be ? read(fd, x, sizeof x) : 0;
    close(fd);
    for (ssize_t i = 0; i < n / 4; i++) {
        if (!(fabsf(x[i]) < 1e4f)) return false;
        has_negative |= x[i] < 0;
    }
    return has_negative;
}

int command_logits(const Options *o) {
    static Model model;
    static Ids ids;
    static OutFile out;
    static Workspace *ws;
    static Session *session;
    Error err;

    if (!o->ids || !o->output)
        die(EXIT_USAGE, "logits: needs --ids LIST and -o FILE (llama31 help logits)");
    if (!model_open(&model, o->model, &o->model_options, &err)) die_error(&err);

    // All ids must be in the vocabulary, and their number must fit the context.
    int n_vocab = model.config.vocab_size;
    ids_parse(o->ids, n_vocab, &ids);
    if (ids.len == 0) die(EXIT_USAGE, "--ids: no tokens");
    int context = o->ctx ? o->ctx : model.config.max_context;
    if (model.family.window > 0 && context > model.family.window)
        context = (int)model.family.window;
    if (!context_fits(ids.len, false, context, &err)) die_error(&err);

    // Each forward pass computes the logits of all its tokens, so their memory bounds the chunk.
    int fit = MAX_LOGITS_BYTES / (4 * n_vocab);
    int chunk = fit < GENERATE_CHUNK ? fit : GENERATE_CHUNK;
    if (o->chunk || chunk < 1) chunk = o->chunk ? o->chunk : 1;
    if (chunk > ids.len) chunk = ids.len;

    bool is_stdout = !strcmp(o->output, "-");
    unsigned flags = FILE_STREAM;
    if (o->is_forced || is_logits_file(o->output)) flags |= FILE_FORCE;
    if (!is_stdout && !outfile_open(&out, o->output, flags, &err)) die_error(&err);

    ws = workspace_new(&model, chunk, chunk);
    session = session_new(&model.kv);
    for (int first = 0; first < ids.len; first += chunk) {
        int n_left = ids.len - first;
        int skip = o->last_only ? n_left - 1 : 0; // tokens without logits
        int n = workspace_feed(ws, session, ids.data + first, n_left < chunk ? n_left : chunk, skip,
                               &err);
        if (n < 0) die_error(&err);

        const float *logits = model_forward(&model, ws, 0);
        size_t n_logits = n > skip ? (size_t)(n - skip) * (size_t)n_vocab : 0;
        if (!floats_are_finite(logits, n_logits))
            die(EXIT_RUNTIME, "the logits contain NaN or infinity");
        output_write(is_stdout ? STDOUT_FILENO : out.fd, o->output, logits,
                     n_logits * sizeof *logits);
    }

    if (!is_stdout && !outfile_close(&out, &err)) die_error(&err);
    return EXIT_OK;
}
