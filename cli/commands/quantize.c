// quantize: converts a model file to smaller tensor types (quantize/).
#include "cli/commands/commands.h"
#include "base/clock.h"
#include "cli/output.h"
#include "quantize/quantize.h"

static void show_progress(void *arg, const char *line) {
    if (line)
        progress_print(arg, "%s", line);
    else
        progress_end();
}

int command_quantize(const Options *o) {
    if (o->n_args != 3)
        die(EXIT_USAGE, "quantize: expected IN.gguf OUT.gguf TYPE, found %s",
            count_of(o->n_args, "argument"));
    if (!strcmp(o->args[0], "-") || !strcmp(o->args[1], "-"))
        die(EXIT_USAGE, "quantize: expected names of files, found \"-\"");

    QuantizeOptions q = {.in = o->args[0],
                         .out = o->args[1],
                         .mixture = o->args[2],
                         .calibrate = o->quantize.calibrate,
                         .imatrix = o->quantize.imatrix,
                         .model_options = o->model.load,
                         .is_forced = o->output.is_forced,
                         .is_verbose = o->is_verbose,
                         .show_progress = show_progress,
                         .arg = (void *)(uintptr_t)o};
    uint64_t in_bytes, out_bytes;
    Error err;
    double start = now_sec();
    if (!quantize_file(&q, &in_bytes, &out_bytes, &err)) die_error(&err);

    note(o, "%s: %.3f GB -> %s: %.3f GB, %.1f s", q.in, (double)in_bytes * 1e-9, q.out,
         (double)out_bytes * 1e-9, now_sec() - start);
    return EXIT_OK;
}
