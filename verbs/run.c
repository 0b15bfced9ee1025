// run: one prompt, one text.
#include "verbs.h"
#include "../base/endings.h"
#include "../cli/answers.h"
#include "../cli/engine.h"
#include "../cli/output.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void print_json(const Tokenizer *t, const Sequence *s) {
    Buffer out = {0};
    answer_put(&out, "{\"text\":", buffer_str(&s->text), s, s->request.n_prompt);
    buffer_printf(&out, ",\"prefill_sec\":%.6f,\"decode_sec\":%.6f", s->prefill_sec, s->decode_sec);
    if (s->request.n_logprobs) {
        buffer_puts(&out, ",\"logprobs\":");
        logprobs_put(&out, t, s, s->request.n_logprobs, false);
    }
    buffer_puts(&out, "}\n");
    text_print(&out);
}

int verb_run(const Options *o) {
    static Engine e;
    static Buffer prompt;
    static Ids ids;
    static Generator g;
    static Sequence s;
    Request request;
    Error err;
    if (o->logprobs && !o->is_json) die(EXIT_USAGE, "--logprobs: expected --json beside it");
    prompt_read(o, &prompt);
    engine_open(&e, o);
    prompt_encode(&e, buffer_str(&prompt), o->is_raw, &ids);
    if (!request_make(&e, o, &ids, o->is_raw, &request, &err)) die_error(&err);
    memory_check(&e.model, (size_t)(request.max_tokens >= 0 ? ids.len : request.max_context));
    request.emit = o->is_json ? NULL : text_emit;
    engine_generator(&e, &g, o->chunk ? o->chunk : ids.len < 512 ? ids.len : 512, 1);
    if (o->has_echo && !o->is_json) text_write(prompt.data, prompt.len);
    endings_defer();
    answer_generate(o, &g, &s, &request, session_new(&e.model.kv));
    if (s.finish == FINISH_ERROR) die_error(&s.error);
    if (o->is_json)
        print_json(e.tokenizer, &s);
    else if (s.text.len == 0 || s.text.data[s.text.len - 1] != '\n')
        text_write("\n", 1);
    ending_print(o, &g, &s);
    stats_print(o, &g, o->sample.seed);
    return s.finish == FINISH_CANCEL ? EXIT_INTERRUPTED : EXIT_OK;
}
