// The text of records with "stream": true while it is generated: batch_stream().
//
//     {"id": ..., "delta": TEXT, "reasoning_content": TEXT, "logprobs": [...], "tool_calls": [...]}
//
// A line has the text since the last one. Members without new text are left out, except "delta".
// The record itself follows as if it were not streamed.
//
// A step reads only the tokens that are new, and writes the part of the text that is final:
//
//     <think> reasoning </think> answer
//             [-------)          [----)
//
// White space at the end may belong to a tag. The answer also waits for what may become a stop
// string or the tag of a tool call.
//
// From the beginning of a tool call on, the answer waits for its end (reply_parse). Invariant: the
// deltas of a choice, joined, are its text, and so are those of its reasoning. White space beside a
// call, which the text of the record lacks, is the exception.
#include "cli/commands/batch.h"
#include "cli/completion.h"

// Reading

// Appends the tokens that are new to the text.
static void read_tokens(Record *r) {
    RecordStream *stream = &r->stream;
    ReasoningStart start = r->parent->is_plain ? REASONING_NEVER : r->sequence.request.reasoning;
    Ids ids = {0};

    if (!stream->n_read) stream->parts = text_parts_begin(start);
    completion_ids_from(&r->sequence, stream->n_read, &ids);
    reply_put_raw(r->pipeline->tokenizer, ids.data, ids.len, &stream->raw);
    stream->n_read += ids.len;
    text_parts_read(&stream->parts, buffer_str(&stream->raw), false);
    free(ids.data);
}

// True if a text has a tag of a call behind its first `from` bytes. *end: where it ends with the
// beginning of a tag.
static bool find_tag(const Record *r, Str text, size_t from, size_t *end) {
    static const Str tags[] = {{"<|python_tag|>", 14}, {"[TOOL_CALLS]", 12}, {"<tool_call>", 11}};
    int n_tags = r->parent->tools.is_offered ? 3 : 1; // without tools, only the built-in ones
    size_t tag;

    stops_find(&(Stops){.strings = tags, .n_strings = n_tags}, text, from, &tag, end);
    return tag != SIZE_MAX;
}

// Looks for the beginning of a tool call in the answer: a tag, which may be a control token, or an
// object without a tag. Returns true while the answer may become such an object.
static bool read_call(Record *r) {
    RecordStream *stream = &r->stream;
    const RequestTools *tools = &r->parent->tools;
    size_t begin = stream->parts.answer, unused;
    if (stream->has_call || begin >= stream->raw.len) return false;

    Str answer = {stream->raw.data + begin, stream->raw.len - begin};
    stream->has_call = find_tag(r, answer, stream->n_searched, &unused);
    stream->n_searched = answer.len;
    if (stream->n_text) return false; // the answer begins with text

    stream->has_call |= reply_is_call(answer);
    Str first = content_skip_space(answer);
    if (!tools->is_offered || !str_begins_with(first, "{")) return false;

    CallStart start = reply_call_start(&r->pipeline->tpl, buffer_str(&tools->text), first);
    stream->has_call |= start == CALL_BEGUN;
    return start == CALL_POSSIBLE;
}

// What is final

static size_t without_space(Str text, size_t n) {
    while (n && strchr(" \t\r\n\v\f", text.data[n - 1])) n--;
    return n;
}

// The reasoning so far. *n: its final bytes.
static Str begun_reasoning(const RecordStream *stream, size_t *n) {
    const TextParts *p = &stream->parts;
    size_t end = p->end < p->n_assigned ? p->end : p->n_assigned;
    *n = 0;
    if (p->begin >= end) return (Str){"", 0};

    Str reasoning = {stream->raw.data + p->begin, end - p->begin};
    *n = utf8_complete(reasoning.data + stream->n_reasoning, reasoning.len - stream->n_reasoning);
    *n = without_space(reasoning, stream->n_reasoning + *n);
    return reasoning;
}

// The answer so far, without the beginning that the request has. *n: its final bytes, which no stop
// string can take away.
static Str begun_answer(Record *r, size_t *n) {
    const Sequence *s = &r->sequence;
    RecordStream *stream = &r->stream;
    size_t begin = r->parent->is_plain ? 0 : s->decoded.parts.answer, end = s->decoded.n_emitted;
    *n = stream->n_text;

    bool takes_calls = r->pipeline->tpl.takes_calls || r->parent->tools.is_forced;
    takes_calls &= !r->parent->is_plain;
    bool is_open = takes_calls && read_call(r);
    if (begin >= end) return (Str){"", 0};

    Str answer = {s->text.data + begin, end - begin};
    if (is_open || stream->has_call) return answer;

    *n = answer.len;
    if (!takes_calls) return answer;
    find_tag(r, answer, stream->n_text, n);
    *n = without_space(answer, *n);
    return answer;
}

// Writing

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

// Writes the final text that is new.
static void write_begun(Batch *b, Record *r) {
    RecordStream *stream = &r->stream;
    size_t n_reasoning, n_answer;

    read_tokens(r);
    Str reasoning = begun_reasoning(stream, &n_reasoning);
    Str answer = begun_answer(r, &n_answer);

    Reply reply = {.reasoning = take_new(reasoning, n_reasoning, &stream->n_reasoning)};
    Str delta = take_new(answer, n_answer, &stream->n_text);
    if (delta.len || reply.reasoning.len) write_line(b, r, delta, &reply);
}

// Writes the rest of a finished choice, and its tool calls. The text before a call lacks the white
// space with which it began.
static void write_rest(Batch *b, Record *r) {
    const Sequence *s = &r->sequence;
    RecordStream *stream = &r->stream;
    Reply reply;

    record_parse_reply(r, &reply);
    Str whole = reply.reasoning;
    Str answer = completion_rest(&reply, s);
    if (reply.n_calls && stream->n_text) {
        Str sent = {s->text.data + s->decoded.parts.answer, stream->n_text};
        stream->n_text = content_skip_space(sent).len;
    }

    Str delta = take_new(answer, answer.len, &stream->n_text);
    reply.reasoning = take_new(whole, whole.len, &stream->n_reasoning);
    bool has_tokens = r->parent->n_logprobs >= 0 && s->n_generated > stream->n_tokens;
    if (delta.len || reply.reasoning.len || reply.n_calls || has_tokens)
        write_line(b, r, delta, &reply);

    reply.reasoning = whole;
    reply_free(&reply);
}

void batch_stream(Batch *b) {
    for (int i = 0; i < b->n_running; i++) {
        Record *r = b->running[i];
        const Sequence *s = &r->sequence;
        bool has_answer = s->finish != FINISH_CANCEL && !s->lacks_memory;
        if (!r->parent->stream.is_on || !s->n_generated || !has_answer) continue;

        if (s->finish == FINISH_NONE)
            write_begun(b, r);
        else
            write_rest(b, r);
    }
}
