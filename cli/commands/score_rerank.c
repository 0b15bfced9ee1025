// score --rerank: the relevance of documents, as P(yes) against P(no) after the reranking prompt.
#include "cli/commands/score_record.h"
#include "cli/output.h"

// The default instruction of Qwen3-Reranker's prompt, which --instruction replaces.
#define INSTRUCTION "Given a web search query, retrieve relevant passages that answer the query"

// The published prompt of Qwen3-Reranker (its model card, 2025-06).
static const char qwen3_reranker[] =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: " INSTRUCTION "\n"
    "<Query>: {query}\n"
    "<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

// The reranking template of the model file, in the form of llama.cpp's converter, or Qwen3's.
static Str rerank_template(const Pipeline *p) {
    Str text = gguf_get_text(&p->model.file, "tokenizer.chat_template.rerank");
    return text.data ? text : str_of(qwen3_reranker);
}

void score_rerank_open(Pipeline *p) {
    Str text = rerank_template(p);
    tokenizer_reserve_special(p->tokenizer, text);
    if (p->options->score.instruction && !str_contains(text, INSTRUCTION))
        die(EXIT_USAGE,
            "--instruction: the reranking template of the model contains no instruction");
}

// Encodes the template with query, document and instruction in their places. Only the template
// writes special tokens.
static void encode_pair(const Pipeline *p, Str query, Str document, Ids *out) {
    const char *instruction = p->options->score.instruction;
    const struct {
        const char *name;
        Str value;
    } places[] = {{"{query}", query},
                  {"{document}", document},
                  {INSTRUCTION, str_of(instruction ? instruction : INSTRUCTION)}};
    enum { N_PLACES = sizeof places / sizeof *places };
    Str left = rerank_template(p);
    Buffer text = {0}, mask = {0};

    while (left.len) {
        int i = 0;
        while (i < N_PLACES && !str_begins_with(left, places[i].name)) i++;
        bool is_data = i < N_PLACES;
        Str piece = is_data ? places[i].value : (Str){left.data, 1};
        size_t n = is_data ? strlen(places[i].name) : 1; // bytes of the template

        buffer_put(&text, piece);
        memset(buffer_reserve(&mask, piece.len), !is_data, piece.len);
        mask.len += piece.len;
        left = (Str){left.data + n, left.len - n};
    }

    template_tokenize(p->tokenizer, buffer_str(&text), mask.data, out);
    buffer_free(&text);
    buffer_free(&mask);
}

bool score_rerank_parse(Record *r, const Json *root, Str text, Error *err) {
    const Json *document = root->kind == JSON_STRING ? root : json_get(root, "text");
    const Str answers[] = {str_of("yes"), str_of("no")};
    Ids context = {0};
    (void)text;

    if (!document || document->kind != JSON_STRING)
        return record_mismatch(err, "text", "a string", document);
    encode_pair(r->pipeline, str_of(r->pipeline->options->score.rerank), document->string,
                &context);
    bool ok = score_record_set(r, &context, answers, 2, err);
    free(context.data);
    return ok;
}

// The answers to --rerank, for --sort.
typedef struct {
    double score; // -1: an error
    long line;
    Str text;
} Ranked;
static Ranked *ranked; // (n_ranked)
static int n_ranked;

void score_rerank_collect(const Record *r) {
    ranked = list_grow(ranked, n_ranked, sizeof *ranked);
    ranked[n_ranked++] =
        (Ranked){r->answer.has_failed ? -1 : score_share(r->score, &r->score->items[0]),
                 r->line.number, str_copy(buffer_str(&r->answer.text))};
}

// Descending by score, then in the order of the input.
static int compare_ranked(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->line < y->line ? -1 : 1;
}

void score_rerank_print(void) {
    if (ranked) qsort(ranked, (size_t)n_ranked, sizeof *ranked, compare_ranked);
    for (int i = 0; i < n_ranked; i++) text_write(ranked[i].text.data, ranked[i].text.len);
}
