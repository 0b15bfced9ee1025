// Parses requests of score and encodes their items: score_record_parse().
// Order: encoding of an item, items of each kind, fields, records.
#include "cli/commands/score_record.h"
#include "base/unicode.h"
#include "cli/open_answer.h"
#include "cli/request.h"

enum { MAX_ITEMS = 1024 }; // of a request

// Text, or token ids in its place.
typedef struct {
    Str text;
    Ids ids; // if has_ids
    bool has_ids;
} Source;

static bool parse_source(const Record *r, const char *name, const Json *v, Source *out,
                         Error *err) {
    *out = (Source){.has_ids = v && v->kind == JSON_ARRAY};
    if (out->has_ids) return record_parse_ids(r, name, v, &out->ids, err);
    if (!v || v->kind != JSON_STRING)
        return record_mismatch(err, name, "a string or an array of token ids", v);
    out->text = v->string;
    return true;
}

// The token that precedes a text without context: BOS or, in a vocabulary without it, EOS.
static int prefix_token(const Tokenizer *t) {
    return tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t);
}

static void push_all(Ids *out, const Ids *ids) {
    for (int i = 0; i < ids->len; i++) ids_push(out, ids->data[i]);
}

// Encodes context and continuation together, after white space at the end of the context has moved
// to the continuation. Scoring begins with the first token that differs from the tokens of the
// context alone (`alone`). That is the first token of the continuation, unless a token spans the
// boundary.
static void encode_joint(const Record *r, Str context, Str continuation, const Ids *alone,
                         ScoreItem *item) {
    const Pipeline *p = r->pipeline;
    Buffer joint = {0};
    Error err;
    int k = 0;

    buffer_put(&joint, context);
    buffer_put(&joint, continuation);
    prompt_encode(p, &p->settings, buffer_str(&joint), true, &item->ids, &err); // cannot fail
    buffer_free(&joint);

    while (k < alone->len && k < item->ids.len - 1 && item->ids.data[k] == alone->data[k]) k++;
    item->first_scored = k;
}

// Encodes a continuation alone, after the tokens of the context.
static bool encode_after(const Record *r, const Source *context, const Source *s, ScoreItem *item,
                         Error *err) {
    const Tokenizer *t = r->pipeline->tokenizer;
    Ids ids = {0};
    int prefix = prefix_token(t);

    push_all(&ids, &s->ids);
    if (!s->has_ids) tokenizer_encode(t, s->text, false, &ids);

    push_all(&item->ids, &context->ids);
    if (context->ids.len == 0 && prefix >= 0 && !(ids.len > 1 && ids.data[0] == prefix))
        ids_push(&item->ids, prefix);
    item->first_scored = item->ids.len ? item->ids.len : 1;
    push_all(&item->ids, &ids);
    free(ids.data);
    return item->ids.len > item->first_scored ||
           error_set(err, EXIT_RUNTIME, "there is no token to score");
}

// Puts the prefix token before an item whose first token is scored.
static bool add_prefix(const Record *r, ScoreItem *item, Error *err) {
    int prefix = prefix_token(r->pipeline->tokenizer);
    if (prefix < 0) return error_set(err, EXIT_RUNTIME, "the context has no token");
    ids_push(&item->ids, prefix);
    memmove(item->ids.data + 1, item->ids.data, (size_t)(item->ids.len - 1) * sizeof(int));
    item->ids.data[0] = prefix;
    item->first_scored = 1;
    return true;
}

// Sets text, bytes and characters of an item. The text of ids is decoded.
static void set_text(const Record *r, const Source *s, ScoreItem *item) {
    Buffer text = {0};
    buffer_put(&text, s->text);
    for (int i = 0; i < s->ids.len; i++)
        buffer_put(&text, tokenizer_piece(r->pipeline->tokenizer, s->ids.data[i], false));
    item->text = buffer_str(&text);
    item->n_bytes = text.len;
    item->n_chars = utf8_length(text.data, text.len);
}

static int context_size(const Record *r) {
    const Pipeline *p = r->pipeline;
    return p->ctx ? p->ctx : p->model.config.max_context;
}

// Removes tokens from the beginning of the context until an item fits.
static bool truncate_item(Record *r, ScoreItem *item, Error *err) {
    int n_over = item->ids.len - 1 - context_size(r);
    if (n_over <= 0) return true;
    if (r->score->is_whole) return context_fits(item->ids.len - 1, false, context_size(r), err);
    if (n_over >= item->first_scored)
        return error_set(err, EXIT_CONTEXT,
                         "the continuation does not fit the context: %d tokens, context %d",
                         item->ids.len - item->first_scored, context_size(r));
    item->ids.len -= n_over;
    item->first_scored -= n_over;
    memmove(item->ids.data, item->ids.data + n_over, (size_t)item->ids.len * sizeof(int));
    if (n_over > r->answer.n_truncated) r->answer.n_truncated = n_over;
    return true;
}

static bool new_items(Record *r, int n, Error *err) {
    if (n > MAX_ITEMS)
        return error_set(err, EXIT_RUNTIME, "expected at most %d choices or windows, found %d",
                         MAX_ITEMS, n);
    r->score->items = xalloc((size_t)n, sizeof *r->score->items);
    r->score->n_items = r->n_choices = n;
    return true;
}

// Encodes a continuation. The first n_text bytes of the context stay there; the white space after
// them moves to the continuation.
static bool encode_pair(Record *r, const Source *context, size_t n_text, Source s, ScoreItem *item,
                        Error *err) {
    Str text = context->text;
    bool is_joint = !context->has_ids && !s.has_ids && n_text;
    Buffer spaced = {0};

    set_text(r, &s, item);
    if (s.has_ids ? !s.ids.len : !s.text.len)
        return error_set(err, EXIT_RUNTIME, "a continuation is empty");

    if (is_joint) {
        encode_joint(r, text, s.text, &context->ids, item);
        return true;
    }

    buffer_put(&spaced, (Str){text.data + n_text, text.len - n_text});
    buffer_put(&spaced, s.text);
    s.text = buffer_str(&spaced);
    bool ok = encode_after(r, context, &s, item, err);
    buffer_free(&spaced);
    return ok;
}

// Encodes one item per continuation (n). The choices of a plain text are all scored from the first
// token in which any of them differs from the context, so that their sums are comparable.
static bool encode_pairs(Record *r, Source *context, const Source *continuations, int n,
                         Error *err) {
    ScoreRequest *score = r->score;
    Str text = context->text;
    size_t n_text = unicode_strip_end(text).len;
    int first = INT_MAX;
    Error unused;

    if (!new_items(r, n, err)) return false;

    // The context.
    for (int i = 0; i < n; i++)
        if (continuations[i].has_ids) n_text = text.len; // white space cannot move there
    if (!context->has_ids && n_text)
        prompt_encode(r->pipeline, &r->pipeline->settings, (Str){text.data, n_text}, true,
                      &context->ids, &unused); // cannot fail

    for (int i = 0; i < n; i++) {
        ScoreItem *item = &score->items[i];
        if (!encode_pair(r, context, n_text, continuations[i], item, err)) return false;
        if (item->first_scored < first) first = item->first_scored;
    }

    for (ScoreItem *item = score->items; item < score->items + n; item++) {
        item->first_scored = first;
        if ((first == 0 && !add_prefix(r, item, err)) || !truncate_item(r, item, err)) return false;
    }
    return true;
}

// Divides a text into windows that score each token once: the first after the prefix token, the
// others after at least one token of context. The last window has the full length.
static bool encode_windows(Record *r, const Source *text, Error *err) {
    ScoreItem all = {0};
    int size = context_size(r);

    bool ok = encode_after(r, &(Source){0}, text, &all, err);
    int n_tokens = all.ids.len - 1;
    ok = ok && new_items(r, (n_tokens + size - 1) / size, err);

    for (int i = 0; i < r->score->n_items; i++) {
        ScoreItem *item = &r->score->items[i];
        int begin = i * size; // the window scores ids (begin, end]
        int end = begin + size < n_tokens ? begin + size : n_tokens;
        int from = end > size ? end - size : 0;

        for (int k = from; k <= end; k++) ids_push(&item->ids, all.ids.data[k]);
        item->first_scored = begin + 1 - from;
    }

    free(all.ids.data);
    if (ok) set_text(r, text, r->score->items);
    return ok;
}

// Parses the context: "context", or "prompt" or "messages" through the chat template.
static bool parse_context(Record *r, const Json *root, Source *out, Error *err) {
    const Pipeline *p = r->pipeline;
    const Json *context = json_get_value(root, "context");
    const Json *prompt = json_get_value(root, "prompt");
    bool is_plain = r->pipeline->options->prompt.is_raw || p->tpl.is_none;

    if (context) return parse_source(r, "context", context, out, err);
    if (prompt && (is_plain || prompt->kind != JSON_STRING))
        return parse_source(r, "prompt", prompt, out, err);

    *out = (Source){.has_ids = true};
    bool ok = prompt ? prompt_encode(p, &p->settings, prompt->string, false, &r->prompt, err)
                     : record_parse_messages(r, root, err);
    out->ids = r->prompt;
    r->prompt = (Ids){0};
    return ok;
}

// Reads "continuation" or "choices" to `list`, which has space for all of them.
static bool parse_continuations(Record *r, const Json *root, Source *list, Error *err) {
    const Json *choices = json_get_value(root, "choices");
    const Json *one = json_get_value(root, "continuation");

    if (!choices) return parse_source(r, "continuation", one, list, err);
    r->score->has_choices = true;
    if (one || choices->kind != JSON_ARRAY || !choices->n_items)
        return record_mismatch(err, "choices", "an array, without \"continuation\"", choices);
    for (const Json *v = choices->child; v; v = v->next)
        if (!parse_source(r, "choices", v, list++, err)) return false;
    return true;
}

// Sets prompt and request of the record of an item.
static void begin_item(Record *r) {
    ScoreItem *item = &r->parent->score->items[r->index];
    int n_logprobs = r->parent->n_logprobs;

    r->prompt = item->ids;
    item->ids = (Ids){0};
    r->request = (Request){.prompt = r->prompt.data,
                           .n_prompt = r->prompt.len,
                           .max_context = r->prompt.len,
                           .n_logprobs = n_logprobs > 0 ? n_logprobs : 1, // for is_greedy
                           .first_scored = item->first_scored};
}

// Sets the request to choices (n) after a context, which is refused if it is too long.
static bool set_choices(Record *r, Source *context, const Str *texts, int n, Error *err) {
    Source *list = xalloc((size_t)n, sizeof *list);
    r->score->has_choices = r->score->is_whole = true;
    for (int i = 0; i < n; i++) list[i].text = texts[i];
    bool ok = encode_pairs(r, context, list, n, err);
    if (ok) begin_item(r);
    free(list);
    return ok;
}

bool score_record_set(Record *r, const Ids *context, const Str *texts, int n, Error *err) {
    r->score = xalloc(1, sizeof *r->score);
    return set_choices(r, &(Source){.ids = *context, .has_ids = true}, texts, n, err);
}

static bool parse_line(Record *r, const Json *root, Error *err) {
    static const char members[] =
        "id text context prompt messages continuation choices logprobs tools tool_choice";
    const Json *text = root->kind == JSON_STRING ? root : json_get_value(root, "text");
    const Json *choices = json_get_value(root, "choices");
    const Json *logprobs = json_get_value(root, "logprobs");
    int n = choices && choices->n_items ? choices->n_items : 1; // continuations or texts
    int n_contexts = !!text + !!json_get_value(root, "context") + !!json_get_value(root, "prompt") +
                     !!json_get_value(root, "messages");
    if (n_contexts != 1)
        return error_set(err, EXIT_RUNTIME,
                         "expected one of \"context\", \"prompt\", \"messages\" and \"text\"");
    if (text && (choices || json_get_value(root, "continuation")))
        return error_set(err, EXIT_RUNTIME,
                         "text: expected \"context\" with a continuation or choices");

    if (!record_note_unknown(r, root, members, err)) return false;

    Source context = {0}, *list = xalloc((size_t)n, sizeof *list);
    bool ok = !logprobs || record_parse_logprobs(r, logprobs, err);
    if (ok && text)
        ok = parse_source(r, "text", text, &list[0], err) && encode_windows(r, &list[0], err);
    else if (ok)
        ok = parse_context(r, root, &context, err) && parse_continuations(r, root, list, err) &&
             encode_pairs(r, &context, list, n, err);
    if (ok) begin_item(r);

    free(context.ids.data);
    for (int i = 0; i < n; i++) free(list[i].ids.data);
    free(list);
    return ok;
}

// score --choices: the prompt and the choices of the command line.
static bool parse_command_line(Record *r, Str prompt, Error *err) {
    Json request = {JSON_OBJECT,
                    .child = &(Json){JSON_STRING, .key = str_of("prompt"), .string = prompt}};
    JsonDoc doc = {0};
    Source context;
    int n;
    Error why;
    Str *items = json_list(&doc, r->pipeline->options->score.choices, &n, &why);
    if (!items) return error_set(err, why.code, "--choices: %s", why.text);

    choices_note(r->pipeline, items, n);
    bool ok = parse_context(r, &request, &context, err) && set_choices(r, &context, items, n, err);

    free(context.ids.data);
    free(items);
    json_free(&doc);
    return ok;
}

bool score_record_parse(Record *r, const Json *root, Str text, Error *err) {
    r->score = xalloc(1, sizeof *r->score);
    return root ? parse_line(r, root, err) : parse_command_line(r, text, err);
}

Record *score_record_item(Record *parent, int index) {
    Record *r = record_new(parent->line.number, parent->line.form, parent->pipeline);
    r->parent = parent;
    r->index = index;
    begin_item(r);
    return r;
}

void score_record_free(Record *r) {
    ScoreRequest *score = r->score;
    if (!score) return;
    for (int i = 0; i < score->n_items; i++) {
        free(score->items[i].ids.data);
        free((char *)score->items[i].text.data);
    }
    free(score->items);
    free(score);
}
