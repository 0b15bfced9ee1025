// The text of records with "stream": true while it is generated: batch_stream().
//
//     {"id": ..., "delta": TEXT, "reasoning_content": TEXT, "logprobs": [...], "tool_calls": [...]}
//
// A line has the text since the last one. Members without new text are left out, except "delta".
// The record itself follows as if it were not streamed.
//
// Invariant: the deltas of a choice, joined, are its text, and so are those of its reasoning. So
// what may become a part of a tag, or a tool call, is held back until that is decided. White space
// beside a call, which the text of the record lacks, is the exception.
#include "cli/commands/batch.h"
#include "cli/completion.h"

enum { MAX_CALL_TAGS = 3 };

// The length of the final part of a text that may contain a tag: up to the first tag, or to the
// beginning of one at the end of the text.
static size_t final_length(Str text, const Str *tags, int n_tags, bool *has_tag) {
    size_t tag, partial;
    stops_find(&(Stops){.strings = tags, .n_strings = n_tags}, text, 0, &tag, &partial);
    *has_tag = tag != SIZE_MAX;
    return *has_tag ? tag : partial;
}

// The bytes of the content that cannot become a tool call: those before the tag of a call. A call
// without a tag is an object that fills the content.
static size_t final_content(const Record *r, Str content) {
    const RequestTools *tools = &r->parent->tools;
    const Template *tpl = &r->pipeline->tpl;
    Str tags[MAX_CALL_TAGS] = {str_of("<|python_tag|>"), str_of("<tool_call>"),
                               str_of("[TOOL_CALLS]")};
    int n_tags = tools->is_offered ? 3 : 1; // without tools, only the built-in ones
    Ids ids = {0};
    Buffer raw = {0}; // a tag may be a control token, which the content lacks
    bool has_tag, unused;

    if (r->parent->is_plain || !tpl->takes_calls) return content.len;
    if (tools->is_offered && str_begins_with(content_skip_space(content), "{")) return 0;

    completion_ids(&r->sequence, &ids);
    reply_put_raw(r->pipeline->tokenizer, ids.data, ids.len, &raw);
    final_length(buffer_str(&raw), tags, n_tags, &has_tag);
    size_t n = has_tag ? r->stream.n_text : final_length(content, tags, n_tags, &unused);

    free(ids.data);
    buffer_free(&raw);
    return content_strip((Str){content.data, n}).len ? n : 0;
}

// Parses the text so far, up to the last complete character that no stop string may take away, and
// returns the content without the beginning that the request has.
static Str parse_begun(const Record *r, Reply *reply) {
    const Pipeline *p = r->pipeline;
    Sequence begun = r->sequence;
    size_t n = r->sequence.decoded.n_emitted;
    begun.n_cut = (int)(begun.text.len - n);
    begun.text.len = n;
    completion_parse(reply, r->parent->is_plain ? NULL : &p->tpl, p->tokenizer, &begun,
                     (ToolOffer){0}, 0);
    return completion_rest(reply, &begun);
}

// The bytes of the reasoning and of the content of an unfinished reply that are final.
static void find_final(const Record *r, const Reply *reply, Str content, size_t *n_reasoning,
                       size_t *n_content) {
    static const Str open = {"<think>", 7}, close = {"</think>", 8};
    bool may_think = r->sequence.request.reasoning != REASONING_NEVER;
    bool is_open = reply->reasoning.data && !reply->content.len;
    bool unused;

    *n_reasoning = reply->reasoning.len;
    if (is_open) *n_reasoning = final_length(reply->reasoning, &close, 1, &unused);
    *n_content = final_content(r, content);
    Str first = content_skip_space(content);
    if (may_think && !reply->reasoning.data && str_has_prefix(open, first)) *n_content = 0;

    // White space at the end may belong to a tag.
    while (*n_content && strchr(" \t\r\n", content.data[*n_content - 1])) --*n_content;
}

// The part [*n_sent, n) of a text, which counts as sent then.
static Str take_new(Str text, size_t n, size_t *n_sent) {
    if (n <= *n_sent) return (Str){0};
    Str part = {text.data + *n_sent, n - *n_sent};
    *n_sent = n;
    return part;
}

static void write_line(Batch *b, Record *r, Str delta, const Reply *reply) {
    const Record *parent = r->parent;
    const Sequence *s = &r->sequence;
    int n_tokens = s->n_generated - r->stream.n_tokens;
    bool is_own = parent->line.form == FORM_SHORT;
    Buffer line = {0};

    JsonWriter w = record_begin_line(parent, &line);
    if (parent->n_choices > 1) json_write_int(&w, "index", r->index);
    json_write_string(&w, "delta", delta);
    reply_write_extras(&w, reply, true);
    if (parent->n_logprobs >= 0)
        completion_write_logprobs(&w, "logprobs", r->pipeline->tokenizer,
                                  s->logprobs + r->stream.n_tokens, n_tokens,
                                  is_own ? s->request.n_logprobs : parent->n_logprobs, !is_own);
    json_end_object(&w);
    buffer_puts(&line, "\n");

    r->stream.n_tokens = s->n_generated;
    batch_output_write_delta(&b->output, buffer_str(&line));
    buffer_free(&line);
}

// Writes the new text of a choice.
static void stream_choice(Batch *b, Record *r) {
    const Sequence *s = &r->sequence;
    bool is_finished = s->finish != FINISH_NONE;
    Reply reply;
    Str content;
    size_t n_content, n_reasoning;

    if (is_finished) {
        record_parse_reply(r, &reply);
        content = completion_rest(&reply, s);
        n_content = content.len;
        n_reasoning = reply.reasoning.len;
    } else {
        content = parse_begun(r, &reply);
        find_final(r, &reply, content, &n_reasoning, &n_content);
    }

    Str whole = reply.reasoning;
    Str delta = take_new(content, n_content, &r->stream.n_text);
    reply.reasoning = take_new(whole, n_reasoning, &r->stream.n_reasoning);
    bool has_tokens = r->parent->n_logprobs >= 0 && s->n_generated > r->stream.n_tokens;
    if (delta.len || reply.reasoning.len || reply.n_calls || (is_finished && has_tokens))
        write_line(b, r, delta, &reply);

    reply.reasoning = whole;
    reply_free(&reply);
}

void batch_stream(Batch *b) {
    for (int i = 0; i < b->n_running; i++) {
        Record *r = b->running[i];
        const Sequence *s = &r->sequence;
        bool has_answer = s->finish != FINISH_CANCEL && !s->lacks_memory;
        if (r->parent->stream.is_on && s->n_generated && has_answer) stream_choice(b, r);
    }
}
