// The answer to a request of score as JSON, or as the table of score --choices.
#include "cli/commands/score_record.h"
#include "cli/completion.h"

#include <math.h>

void score_record_take(const Record *r) {
    const Sequence *s = &r->sequence;
    Record *parent = r->parent;
    ScoreItem *item = &parent->score->items[r->index];

    item->n_tokens = s->n_scored;
    item->is_greedy = true;
    for (const TokenLogprob *l = s->prompt_logprobs; l < s->prompt_logprobs + s->n_scored; l++) {
        item->logprob += (double)l->logprob;
        item->is_greedy = item->is_greedy && l->id == l->top[0].id;
    }

    if (parent->n_logprobs < 0) return;
    JsonWriter w = {.out = &parent->answer.choices[r->index]};
    completion_write_logprobs(&w, NULL, r->pipeline->tokenizer, s->prompt_logprobs, s->n_scored,
                              parent->n_logprobs, false);
}

// The log-probability of an item by measure: its sum, or its mean per token, byte or character.
enum { SUM, PER_TOKEN, PER_BYTE, PER_CHAR, N_MEASURES };
static const char *const measure_keys[][2] = {{"logprob", "best"},
                                              {"logprob_per_token", "best_per_token"},
                                              {"logprob_per_byte", "best_per_byte"},
                                              {"logprob_per_char", "best_per_char"}};

static double measure(const ScoreItem *item, int kind) {
    const size_t n[] = {1, (size_t)item->n_tokens, item->n_bytes, item->n_chars};
    return n[kind] ? item->logprob / (double)n[kind] : -INFINITY;
}

// The choice with the greatest measure, the first among equals.
static int best_choice(const ScoreRequest *score, int kind) {
    int best = 0;
    for (int i = 1; i < score->n_items; i++)
        if (measure(&score->items[i], kind) > measure(&score->items[best], kind)) best = i;
    return best;
}

double score_share(const ScoreRequest *score, const ScoreItem *item) {
    double sum = 0, best = score->items[best_choice(score, SUM)].logprob;
    for (int i = 0; i < score->n_items; i++) sum += exp(score->items[i].logprob - best);
    return exp(item->logprob - best) / sum;
}

static void write_counts(JsonWriter *w, const ScoreItem *item) {
    json_write_int(w, "n_tokens", item->n_tokens);
    json_write_int(w, "n_bytes", (int64_t)item->n_bytes);
    json_write_int(w, "n_chars", (int64_t)item->n_chars);
    json_write_bool(w, "is_greedy", item->is_greedy);
}

static void write_choices(JsonWriter *w, const Record *parent) {
    const ScoreRequest *score = parent->score;

    json_begin_array(w, "choices");
    for (int i = 0; i < score->n_items; i++) {
        const ScoreItem *item = &score->items[i];
        json_begin_object(w, NULL);
        json_write_string(w, "text", item->text);
        for (int k = 0; k < N_MEASURES; k++)
            json_write_number(w, measure_keys[k][0], measure(item, k));
        json_write_number(w, "probability", exp(item->logprob));
        json_write_number(w, "share", score_share(score, item));
        write_counts(w, item);
        if (parent->n_logprobs >= 0)
            json_write_format(w, "logprobs", "%s", parent->answer.choices[i].data);
        json_end_object(w);
    }
    json_end_array(w);

    for (int k = 0; k < N_MEASURES; k++)
        json_write_string(w, measure_keys[k][1], score->items[best_choice(score, k)].text);
}

// Writes the result of a continuation, or the sum over the windows of a text.
static void write_total(JsonWriter *w, const Record *parent) {
    const ScoreRequest *score = parent->score;
    ScoreItem total = score->items[0];
    Buffer tokens = {0};

    for (int i = 1; i < score->n_items; i++) {
        total.n_tokens += score->items[i].n_tokens;
        total.logprob += score->items[i].logprob;
        total.is_greedy = total.is_greedy && score->items[i].is_greedy;
    }

    json_write_number(w, "logprob", total.logprob);
    write_counts(w, &total);
    if (parent->n_logprobs < 0) return;

    // The arrays of all windows, without the brackets between them.
    for (int i = 0; i < score->n_items; i++) {
        Str array = buffer_str(&parent->answer.choices[i]);
        buffer_puts(&tokens, i ? "," : "");
        buffer_put(&tokens, (Str){array.data + 1, array.len - 2});
    }
    json_write_format(w, "logprobs", "[%s]", tokens.data);
    buffer_free(&tokens);
}

void score_record_write(JsonWriter *w, const Record *parent) {
    if (parent->pipeline->options->score.rerank) {
        json_write_number(w, "score", score_share(parent->score, &parent->score->items[0]));
        json_write_number(w, "logprob_yes", parent->score->items[0].logprob);
        json_write_number(w, "logprob_no", parent->score->items[1].logprob);
    } else if (parent->score->has_choices)
        write_choices(w, parent);
    else
        write_total(w, parent);
    if (parent->answer.n_truncated) json_write_int(w, "n_truncated", parent->answer.n_truncated);
}

void score_record_put_table(Buffer *out, const Record *parent) {
    const ScoreRequest *score = parent->score;
    int best = best_choice(score, SUM);

    buffer_printf(out, "%9s %12s %12s %6s\n", "share", "logprob", "per token", "tokens");
    for (int i = 0; i < score->n_items; i++) {
        const ScoreItem *item = &score->items[i];
        buffer_printf(out, "%7.2f %% %12.6f %12.6f %6d  ", 100 * score_share(score, item),
                      item->logprob, measure(item, PER_TOKEN), item->n_tokens);
        buffer_put(out, item->text);
        buffer_puts(out, i == best ? "  *\n" : "\n");
    }
}
