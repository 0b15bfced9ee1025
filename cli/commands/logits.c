// logits: writes the raw logits of given tokens as float32, for comparison with other programs.
#include "cli/commands/commands.h"
#include "cli/commands/check.h"
#include "base/files.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/request.h"
#include "cli/resolve.h"

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

typedef struct {
    Model model;
    Ids ids;
    int chunk; // tokens per forward pass
    OutFile out;
    int fd; // of the output
} LogitsRun;

// Opens the model and reads the ids, which must be in the vocabulary and fit the context.
static void open_input(LogitsRun *run, const Options *o) {
    Model *m = &run->model;
    Error err;
    if (!model_open(m, o->model.path, &o->model.load, &err)) die_error(&err);

    ids_parse(text_resolve(o->logits.ids), m->config.vocab_size, &run->ids);
    if (run->ids.len == 0) die(EXIT_USAGE, "--ids: no tokens");

    int context = o->model.ctx ? o->model.ctx : m->config.max_context;
    if (m->family.window > 0 && context > m->family.window) context = (int)m->family.window;
    if (!context_fits(run->ids.len, false, context, &err)) die_error(&err);
}

// Each forward pass computes the logits of all its tokens, so their memory bounds the chunk.
static int choose_chunk(const LogitsRun *run, const Options *o) {
    int fit = MAX_LOGITS_BYTES / (4 * run->model.config.vocab_size);
    int chunk = fit < GENERATE_CHUNK ? fit : GENERATE_CHUNK;
    if (chunk < 1) chunk = 1;
    if (o->model.chunk) chunk = o->model.chunk;
    return chunk < run->ids.len ? chunk : run->ids.len;
}

static void open_output(LogitsRun *run, const Options *o) {
    const char *path = o->output.path;
    unsigned flags = FILE_STREAM;
    Error err;

    run->fd = STDOUT_FILENO;
    if (!strcmp(path, "-")) return;
    if (o->output.is_forced || is_logits_file(path)) flags |= FILE_FORCE;
    if (!outfile_open(&run->out, path, flags, &err)) die_error(&err);
    run->fd = run->out.fd;
}

static void write_logits(LogitsRun *run, const Options *o) {
    Model *m = &run->model;
    Workspace *ws = workspace_new(m, run->chunk, run->chunk);
    Session *session = session_new(&m->kv);
    Error err;

    for (int first = 0; first < run->ids.len; first += run->chunk) {
        int n_left = run->ids.len - first;
        int skip = o->logits.last_only ? n_left - 1 : 0; // tokens without logits
        int n = workspace_feed(ws, session, run->ids.data + first,
                               n_left < run->chunk ? n_left : run->chunk, skip, &err);
        if (n < 0) die_error(&err);

        const float *logits = model_forward(m, ws, 0);
        size_t n_logits = n > skip ? (size_t)(n - skip) * (size_t)m->config.vocab_size : 0;
        if (!floats_are_finite(logits, n_logits))
            die(EXIT_RUNTIME, "the logits contain NaN or infinity");
        output_write(run->fd, o->output.path, logits, n_logits * sizeof *logits);
    }

    session_free(session);
    workspace_free(ws);
}

int command_logits(const Options *o) {
    static LogitsRun run;
    Error err;

    if (!o->logits.ids || !o->output.path)
        die(EXIT_USAGE, "logits: needs --ids LIST and -o FILE (llama31 help logits)");

    open_input(&run, o);
    run.chunk = choose_chunk(&run, o);
    open_output(&run, o);
    write_logits(&run, o);
    if (run.fd != STDOUT_FILENO && !outfile_close(&run.out, &err)) die_error(&err);
    return EXIT_OK;
}
