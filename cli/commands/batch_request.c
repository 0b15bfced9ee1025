// Parses batch requests. An error names the field, the expected kind and the value found.
//
// A field is looked up in the table `fields`, then among the options of the command line (those
// with CMD_REQUEST in cli/options.c). Of the others, a misspelled field is an error; the rest are
// collected for a warning, or an error with --strict. A field that is null counts as absent.
//
// Order: ids, the functions that parse a field, the table, look-up, prompts, the whole request.
#include "cli/commands/batch_record.h"
#include "cli/open_answer.h"
#include "cli/prompt.h"
#include "cli/request.h"
#include "cli/resolve.h"
#include "cli/spellings.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

enum { MAX_STRINGS = 64 }; // of "stop", for which OpenAI's API allows 4, and of DRY's breakers

// True if a number is written without fraction and exponent.
static bool has_only_digits(const Json *j) {
    for (size_t i = 0; i < j->string.len; i++)
        if (strchr(".eE", j->string.data[i])) return false;
    return true;
}

// True if a number is an integer from min to max. A double distinguishes decimals of up to 15
// digits. A longer number with a fraction or an exponent may be rounded to an integer, and is
// therefore refused.
static bool is_integer(const Json *j, double min, double max) {
    return j && j->kind == JSON_NUMBER && j->number >= min && j->number <= max &&
           j->number == floor(j->number) && (has_only_digits(j) || j->string.len <= 16);
}

#define NOTHING "false [] {} \"\"" // values that mean the same as no field

// True if a value is one of some JSON values without white space, separated by spaces.
static bool has_value(const Json *v, const char *values) {
    Buffer text = {0};
    if (v->kind == JSON_NUMBER)
        buffer_put_double(&text, v->number);
    else
        json_write_value(&(JsonWriter){.out = &text}, NULL, v, NULL);
    bool found = str_is_one_of(buffer_str(&text), values);
    buffer_free(&text);
    return found;
}

bool record_mismatch(Error *err, const char *name, const char *expected, const Json *found) {
    Buffer text = {0};
    Json shown = found ? *found : (Json){0};
    if (shown.string.len > 60) shown.string.len = 60;
    if (!found)
        buffer_puts(&text, "nothing");
    else if (found->kind >= JSON_ARRAY)
        buffer_puts(&text, found->kind == JSON_ARRAY ? "an array" : "an object");
    else
        json_write_value(&(JsonWriter){.out = &text}, NULL, &shown, NULL);
    error_set(err, EXIT_RUNTIME, "%s: expected %s, found %s", name, expected, text.data);
    buffer_free(&text);
    return false;
}

// record_mismatch() of a field.
static bool field_mismatch(Error *err, const Json *v, const char *expected) {
    char name[40];
    snprintf(name, sizeof name, "%.*s", SHOWN(v->key));
    return record_mismatch(err, name, expected, v);
}

uint64_t record_hash(uint64_t seed, Str text) {
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.len; i++) h = (h ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

// Ids

bool record_put_id(Buffer *out, const Json *id) {
    if (id && id->kind == JSON_STRING)
        json_quote(out, id->string);
    else if (id && id->kind == JSON_NUMBER && id->number != 0 && has_only_digits(id))
        buffer_put(out, id->string); // exact for any length
    else if (is_integer(id, -0x1p53, 0x1p53))
        buffer_printf(out, "%.0f", id->number + 0.0); // -0 becomes 0
    else
        return false;
    return true;
}

bool record_parse_id(Record *r, const Json *root, Error *err) {
    r->line.form = FORM_SHORT;
    r->line.has_id = true;
    if (root && root->kind != JSON_OBJECT)
        return record_mismatch(err, "request", "an object", root);

    const Json *custom_id = json_get(root, "custom_id");
    const Json *id = json_get_value(root, "id");
    r->line.is_named = id || custom_id;
    if (custom_id || json_get(root, "body") || json_get(root, "url")) {
        r->line.form =
            json_is(json_get(root, "url"), "/v1/completions") ? FORM_COMPLETION : FORM_CHAT;
        if (!custom_id || custom_id->kind != JSON_STRING)
            return record_mismatch(err, "custom_id", "a string", custom_id);
        return record_put_id(&r->line.id, custom_id);
    }

    if (!id) {
        buffer_printf(&r->line.id, "%ld", r->line.number);
        return true;
    }
    return record_put_id(&r->line.id, id) ||
           record_mismatch(err, "id", "a string or an integer", id);
}

// Fields

// "stop", or the breakers of DRY, of which ["none"] is none; llama.cpp refuses an empty array as
// well. The strings of a request replace those of the command line.
static bool parse_strings(Record *r, const Json *v, Error *err) {
    bool is_stop = str_is(v->key, "stop");
    const char *name = is_stop ? "stop" : "dry_sequence_breakers";
    DryOptions *dry = &r->settings.sample.dry;
    Str **list = is_stop ? &r->settings.stops : &dry->breakers;
    int *n_list = is_stop ? &r->settings.n_stops : &dry->n_breakers;
    const Json *item = v->kind == JSON_STRING ? v : v->child;
    int n = v->kind == JSON_STRING ? 1 : v->n_items;

    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY)
        return record_mismatch(err, name, "a string or an array of strings", v);
    if (!is_stop && !n) return record_mismatch(err, name, "at least one string", v);
    if (n > MAX_STRINGS)
        return error_set(err, EXIT_RUNTIME, "%s: expected at most %d strings, found %d", name,
                         MAX_STRINGS, n);
    settings_clear_strings(list, n_list);
    *list = xalloc((size_t)n, sizeof **list);

    for (int i = 0; i < n; i++, item = item->next) {
        if (item->kind != JSON_STRING || !item->string.len)
            return record_mismatch(err, name, "strings that are not empty", item);
        (*list)[(*n_list)++] = str_copy(item->string);
    }

    return true;
}

static bool parse_stop_ids(Record *r, const Json *v, Error *err) {
    r->settings.stop_ids.len = 0;
    return record_parse_ids(r, "stop_token_ids", v, &r->settings.stop_ids, err);
}

static bool parse_n(Record *r, const Json *v, Error *err) {
    if (!is_integer(v, 1, MAX_CHOICES))
        return field_mismatch(err, v, "an integer from 1 to 64 (for more, repeat the request)");
    r->n_per_prompt = (int)v->number;
    return true;
}

// An object from token id to bias; -100 bans the token.
static bool parse_logit_bias(Record *r, const Json *v, Error *err) {
    if (v->kind != JSON_OBJECT) return field_mismatch(err, v, "an object of numbers");
    settings_clear_biases(&r->settings.sample);

    for (const Json *j = v->child; j; j = j->next) {
        char key[24];
        int64_t id;

        snprintf(key, sizeof key, "%.*s", SHOWN(j->key));
        if (strlen(key) != j->key.len || !parse_i64(key, &id) || id < 0 || id > INT_MAX)
            return error_set(err, EXIT_RUNTIME, "logit_bias: expected token ids, found \"%.*s\"",
                             SHOWN(j->key));
        if (j->kind != JSON_NUMBER || fabs(j->number) > 100)
            return record_mismatch(err, "logit_bias", "numbers from -100 to 100", j);

        float bias = j->number == -100 ? -INFINITY : (float)j->number;
        settings_add_bias(&r->settings.sample, (LogitBias){(int)id, bias});
    }

    return logit_bias_check(&r->settings.sample, r->pipeline->model.config.vocab_size, err);
}

// In chats, "logprobs" is a boolean and "top_logprobs" the number.
bool record_parse_logprobs(Record *r, const Json *v, Error *err) {
    bool is_top = str_is(v->key, "top_logprobs");
    bool takes_number = is_top || r->line.form != FORM_CHAT;
    if (takes_number && is_integer(v, 0, MAX_LOGPROBS)) {
        r->n_logprobs = (int)v->number;
        return true;
    }

    if (is_top || v->kind != JSON_BOOL)
        return field_mismatch(err, v, takes_number ? "an integer from 0 to 100" : "true or false");
    if (v->boolean && r->n_logprobs < 0) r->n_logprobs = 0;
    return true;
}

// Constraints. The fields of llama.cpp's server, OpenAI's API, vLLM and Ollama set r->spec.

static bool set_kind(Record *r, ConstraintKind kind, Error *err) {
    if (r->spec.kind) return error_set(err, EXIT_RUNTIME, "expected one constraint, found more");
    r->spec.kind = kind;
    return true;
}

// A schema as a JSON value, or a string with the text of a schema.
static bool parse_json_schema(Record *r, const Json *v, Error *err) {
    bool is_text = v->kind == JSON_STRING;
    if (!set_kind(r, is_text ? CONSTRAINT_SCHEMA_TEXT : CONSTRAINT_SCHEMA, err)) return false;
    if (is_text)
        r->spec.text = v->string;
    else
        r->spec.schema = v;
    return true;
}

static const Json any_object = {.kind = JSON_STRING, .string = {"{\"type\":\"object\"}", 17}};

static bool parse_json_object(Record *r, const Json *v, Error *err) {
    if (v->kind != JSON_BOOL) return field_mismatch(err, v, "true or false");
    return !v->boolean || parse_json_schema(r, &any_object, err);
}

static bool parse_choices(Record *r, const Json *v, Error *err) {
    if (!set_kind(r, CONSTRAINT_CHOICES, err)) return false;
    if (v->kind != JSON_ARRAY || !v->n_items)
        return field_mismatch(err, v, "an array with at least one string");
    Str *choices = xalloc((size_t)v->n_items, sizeof *choices);
    r->spec.choices.at = choices;
    for (const Json *item = v->child; item; item = item->next) {
        if (item->kind != JSON_STRING)
            return record_mismatch(err, "choices", "an array of strings", item);
        choices[r->spec.choices.n++] = item->string;
    }
    return true;
}

static void free_choices(Record *r) {
    if (r->spec.kind == CONSTRAINT_CHOICES) free((void *)r->spec.choices.at);
    r->spec = (ConstraintSpec){0};
}

// A grammar or, as the name of the field says, a regular expression.
static bool parse_grammar(Record *r, const Json *v, Error *err) {
    bool is_regex = str_ends_with(v->key, "regex");
    if (!set_kind(r, is_regex ? CONSTRAINT_REGEX : CONSTRAINT_GRAMMAR, err)) return false;
    r->spec.text = v->string;
    return v->kind == JSON_STRING || field_mismatch(err, v, "a string");
}

// Refuses the members of a field that are not `known`, because they may ask for a constraint.
static bool check_members(const Json *field, const char *known, Error *err) {
    for (const Json *v = field->child; v; v = v->next)
        if (v->kind != JSON_NULL && !str_is_one_of(v->key, known))
            return error_set(err, EXIT_RUNTIME, "%.*s: \"%.*s\" is not supported",
                             SHOWN(field->key), SHOWN(v->key));
    return true;
}

// {"type": "json_schema", "json_schema": {"schema": {...}}} or {"type": "json_object"}. Both may
// have a "schema" instead.
static bool parse_response_format(Record *r, const Json *v, Error *err) {
    const Json *type = json_get(v, "type");
    const Json *object = json_get_value(v, "json_schema");
    const Json *schema = json_get_value(object ? object : v, "schema");
    const char *members = object ? "type json_schema" : "type schema";

    if (json_is(type, "text")) return check_members(v, "type", err);
    if (!json_is(type, "json_object") && !json_is(type, "json_schema"))
        return record_mismatch(err, "response_format",
                               "{\"type\": \"text\", \"json_object\" or \"json_schema\", ...}",
                               type ? type : v);
    if (!check_members(v, members, err) ||
        (object && !check_members(object, "name description schema strict", err)))
        return false;

    if (!schema && (object || json_is(type, "json_schema")))
        return record_mismatch(err, "response_format", "a \"schema\" in its \"json_schema\"",
                               schema);
    return parse_json_schema(r, schema ? schema : &any_object, err);
}

// "json" or a schema.
static bool parse_format(Record *r, const Json *v, Error *err) {
    if (v->kind != JSON_OBJECT && !json_is(v, "json"))
        return field_mismatch(err, v, "\"json\" or a schema");
    return parse_json_schema(r, v->kind == JSON_OBJECT ? v : &any_object, err);
}

// An object with one of these members.
static bool parse_structured_outputs(Record *r, const Json *v, Error *err) {
    static const struct {
        const char *name;
        bool (*parse)(Record *r, const Json *v, Error *err);
    } members[] = {{"json", parse_json_schema},
                   {"json_object", parse_json_object},
                   {"regex", parse_grammar},
                   {"choice", parse_choices},
                   {"grammar", parse_grammar}};
    bool ok = check_members(v, "json json_object regex choice grammar", err);
    for (size_t i = 0; i < sizeof members / sizeof *members && ok; i++) {
        const Json *member = json_get_value(v, members[i].name);
        ok = !member || members[i].parse(r, member, err);
    }
    if (v->kind != JSON_OBJECT) return field_mismatch(err, v, "an object");
    return ok;
}

// Variables of the template, some of which concern reasoning.
static bool parse_template_kwargs(Record *r, const Json *v, Error *err) {
    Error why;
    return settings_set_variables(&r->settings, v, &why) ||
           error_set(err, EXIT_RUNTIME, "chat_template_kwargs: %s", why.text);
}

// A boolean. The options of "ordered_properties" and "stop_loops" name the opposite.
static bool parse_flag(Record *r, const Json *v, Error *err) {
    if (v->kind != JSON_BOOL) return field_mismatch(err, v, "true or false");
    if (str_is(v->key, "ordered_properties"))
        r->settings.constraint.any_order = !v->boolean;
    else if (str_is(v->key, "stop_loops"))
        r->settings.no_loop_stop = !v->boolean;
    else if (str_is(v->key, "stream"))
        r->stream.is_on = v->boolean;
    else if (str_is(v->key, "continue_final_message"))
        r->start.is_given = v->boolean;
    else if (str_is(v->key, "parallel_tool_calls"))
        r->tools.is_single = !v->boolean;
    else
        settings_think(&r->settings, v->boolean);
    return true;
}

// Collects the name of an unknown field; with --strict, refuses it.
static bool note_unknown(const Record *r, const Json *v, Error *err) {
    if (r->pipeline->options->batch.is_strict)
        return error_set(err, EXIT_RUNTIME, "unknown field \"%.*s\"", SHOWN(v->key));
    if (v->kind != JSON_NULL && r->unknown && r->unknown->n <= MAX_UNKNOWN)
        intern_add(r->unknown, v->key.data, v->key.len < 60 ? v->key.len : 60, NULL);
    return true;
}

// A field that record_parse() has read from its object.
static bool parse_elsewhere(Record *r, const Json *v, Error *err) {
    (void)r;
    (void)v;
    (void)err;
    return true;
}

// Where a field may be: in a request, in one of its messages, in a part of a message's content.
enum { IN_REQUEST = 1, IN_MESSAGE = 2, IN_PART = 4 };

typedef struct {
    const char *names;                                   // separated by spaces
    unsigned places;                                     // IN_* bits
    bool (*parse)(Record *r, const Json *v, Error *err); // NULL: without effect on the answer
    const char *instead; // of an unsupported field: what to write instead; NULL: it is supported
    const char *neutral; // values of an unsupported field that are accepted, see has_value()
} Field;

// A row of a field that has an effect, or none (parse NULL); one of a field that is refused.
#define READ(names, parse)                                                                         \
    { names, IN_REQUEST, parse, NULL, NULL }
#define REFUSED(neutral, names, instead)                                                           \
    { names, IN_REQUEST, NULL, instead, neutral }
#define TEXT_ONLY "llama31 runs text models only"

// Fields of OpenAI's API, vLLM, SGLang, TGI, Ollama, llama.cpp, Mistral, Anthropic, Gemini, Cohere
// and transformers that can change an answer. Options of the command line, with CMD_REQUEST in
// cli/options.c, are fields as well. Names in camel case ("maxTokens") are refused, too.
static const Field fields[] = {
    // clang-format off
    READ("id model user store metadata service_tier stream_options", NULL),
    READ("prompt messages tools tool_choice", parse_elsewhere),

    // The answer.
    READ("n", parse_n),
    READ("stop dry_sequence_breakers", parse_strings),
    READ("stop_token_ids", parse_stop_ids),
    READ("logit_bias", parse_logit_bias),
    READ("logprobs top_logprobs", record_parse_logprobs),
    READ("chat_template_kwargs", parse_template_kwargs),
    READ("stop_loops ordered_properties continue_final_message parallel_tool_calls think enable_thinking stream",
         parse_flag),

    // Its constraint.
    READ("response_format", parse_response_format),
    READ("format", parse_format),
    READ("structured_outputs", parse_structured_outputs),
    READ("json_schema guided_json", parse_json_schema),
    READ("grammar regex guided_grammar guided_regex", parse_grammar),
    READ("choices guided_choice", parse_choices),

    // Refused: objects whose members belong in the record.
    REFUSED(NOTHING, "extra_body options sampling_params parameters generation_config",
            "write its members in the record itself"),

    // Refused: constraints under other names.
    REFUSED(NOTHING, "response_schema response_json_schema output_config output_format json_mode",
            "write \"response_format\""),
    REFUSED(NOTHING " \"text/plain\"", "response_mime_type", "write \"response_format\""),
    REFUSED(NOTHING " {\"format\":{\"type\":\"text\"}}", "text", "write \"response_format\" for \"text.format\""),
    REFUSED(NOTHING, "schema output_schema", "write \"json_schema\""),
    REFUSED(NOTHING, "guided_decoding", "write \"structured_outputs\""),
    REFUSED(NOTHING, "ebnf grammar_string", "write \"grammar\", in GBNF"),
    REFUSED(NOTHING, "structural_tag grammar_lazy grammar_triggers", "write \"tools\" or \"response_format\""),
    REFUSED(NOTHING, "guided_whitespace_pattern whitespace_pattern", "white space in JSON is not configurable"),
    REFUSED(NOTHING, "logits_processor logits_processors custom_logit_processor allowed_token_ids constraints "
                     "force_words_ids sequence_bias", "write a constraint or \"logit_bias\""),
    REFUSED(NOTHING, "bad_words bad_words_ids banned_tokens banned_strings custom_token_bans suppress_tokens",
            "write \"logit_bias\" with -100"),

    // Refused: tools.
    REFUSED(NOTHING, "functions", "write \"tools\""),
    REFUSED(NOTHING " \"none\"", "function_call", "write \"tool_choice\""),
    REFUSED(NOTHING, "tool_config", "write \"tool_choice\""),
    REFUSED(NOTHING, "max_tool_calls", "write \"parallel_tool_calls\": false for at most one"),
    REFUSED("false []", "web_search_options search_parameters enable_search plugins connectors mcp_servers",
            "llama31 runs no tools"),

    // Refused: limits and stops.
    REFUSED(NOTHING, "max_output_tokens max_tokens_to_sample", "write \"max_tokens\""),
    REFUSED(NOTHING " 0 -1", "max_time t_max_predict_ms t_max_prompt_ms", "write \"max_tokens\""),
    REFUSED(NOTHING " 0", "min_length min_new_tokens", "write \"min_tokens\""),
    REFUSED(NOTHING, "stop_sequences stop_sequence stop_strings stop_words stop_regex", "write \"stop\""),
    REFUSED("", "eos_token_id", "write \"stop_token_ids\""),
    REFUSED(NOTHING, "ignore_eos_token ban_eos_token bypass_eos", "write \"ignore_eos\""),
    REFUSED(NOTHING, "repetition_detection", "write \"stop_loops\""),
    REFUSED(NOTHING, "include_stop_str_in_output no_stop_trim", "stop strings are not part of an answer"),
    REFUSED(NOTHING " true -1 \"disabled\" \"error\"",
            "truncate truncation truncate_prompt_tokens prompt_truncate_len prompt_truncate_length transforms "
            "context_length_exceeded_behavior", "a prompt is never shortened"),

    // Refused: sampling.
    REFUSED("true", "do_sample", "write \"temperature\": 0 for greedy decoding"),
    REFUSED("", "random_seed sampler_seed", "write \"seed\""),
    REFUSED("", "p k", "write \"top_p\", \"top_k\""),
    REFUSED(NOTHING " 1", "best_of num_return_sequences candidate_count n_cmpl", "write \"n\""),
    REFUSED(NOTHING " 0 1", "num_beams num_beam_groups beam_width use_beam_search diversity_penalty",
            "there is no beam search; write \"n\""),
    REFUSED(NOTHING " 0", "no_repeat_ngram_size", "write \"dry_multiplier\""),
    REFUSED(NOTHING " 0 1", "rep_pen rep_pen_range rep_pen_slope", "write \"repeat_penalty\", \"repeat_last_n\""),
    REFUSED(NOTHING " 0", "top_a epsilon_cutoff eta_cutoff penalty_alpha smoothing_factor mirostat_mode "
                          "dynamic_temperature dola_layers", "write \"min_p\" or \"top_p\""),
    REFUSED(NOTHING " 1", "tfs tfs_z typ_p", "write \"min_p\" or \"top_p\""),
    REFUSED(NOTHING, "sampler_order sampler_priority temperature_last", "write \"samplers\""),
    REFUSED(NOTHING " 1", "guidance_scale cfg_scale", "there is no classifier-free guidance"),
    REFUSED(NOTHING, "negative_prompt", "there is no classifier-free guidance"),
    REFUSED(NOTHING, "watermark watermarking_config", "there is no watermark"),
    REFUSED(NOTHING " 0", "n_probs return_logprob response_logprobs top_logprobs_num top_n_tokens",
            "write \"logprobs\""),

    // Refused: prompts.
    REFUSED(NOTHING, "input inputs contents message chat_history", "write \"messages\" or \"prompt\""),
    REFUSED(NOTHING, "input_ids prompt_token_ids", "write \"prompt\", an array of token ids"),
    REFUSED(NOTHING, "prompt_embeds input_embeds inputs_embeds", "a prompt is a text or token ids"),
    REFUSED(NOTHING, "system system_prompt instructions system_instruction preamble safe_prompt",
            "write a message with the role \"system\""),
    REFUSED(NOTHING, "suffix input_prefix input_suffix input_extra", "there is no fill-in-the-middle"),
    REFUSED(NOTHING, "context previous_response_id conversation cached_content",
            "write the whole dialogue as \"messages\""),
    REFUSED(NOTHING, "return_full_text return_prompt", "write \"echo\""),
    REFUSED(NOTHING, "documents", "write \"chat_template_kwargs\": {\"documents\": ...}"),
    REFUSED(NOTHING, "chat_template_args template_kwargs", "write \"chat_template_kwargs\""),
    REFUSED(NOTHING, "template chat_template instruction_template", "use the option --template"),
    REFUSED(NOTHING, "raw raw_prompting", "use the option --raw"),
    REFUSED("true", "add_generation_prompt", "an answer is always begun; see \"continue_final_message\""),
    REFUSED("true", "skip_special_tokens add_special_tokens add_bos add_bos_token", "it cannot be turned off"),
    REFUSED(NOTHING, "thinking reasoning thinking_config thinking_mode prompt_mode",
            "write \"think\" and \"reasoning_budget\""),
    REFUSED("", "reasoning_effort", "write \"think\", \"reasoning_budget\" or \"chat_template_kwargs\""),
    REFUSED("true \"auto\" \"deepseek\" \"parsed\"", "reasoning_format separate_reasoning include_reasoning",
            "reasoning is always in \"reasoning_content\""),
    REFUSED(NOTHING, "lora lora_request lora_path adapter adapter_id", "use the option --lora"),
    REFUSED(NOTHING " [\"text\"] [\"TEXT\"]", "modalities response_modalities", TEXT_ONLY),
    {"images image image_data audio video multimodal_data", IN_REQUEST | IN_MESSAGE, NULL, TEXT_ONLY, NOTHING},

    // Members of messages, beside those that the chat template reads.
    {"role content name tool_calls tool_call_id function_call", IN_MESSAGE, NULL, NULL, NULL},
    {"weight annotations", IN_MESSAGE, NULL, NULL, NULL},
    {"type text", IN_PART, NULL, NULL, NULL},
    {"cache_control", IN_MESSAGE | IN_PART, NULL, NULL, NULL},
    {"prefix partial", IN_MESSAGE, NULL, "write \"continue_final_message\" in the request", NOTHING},
    {"parts", IN_MESSAGE, NULL, "write \"content\"", NOTHING},
    // clang-format on
};

// A name in the spelling of the fields: "topP" is top_p.
static void put_snake(Str name, char *out, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < name.len && n + 2 < size; i++) {
        bool is_upper = isupper((unsigned char)name.data[i]);
        if (is_upper && i) out[n++] = '_';
        out[n++] = (char)tolower((unsigned char)name.data[i]);
    }
    out[n] = 0;
}

// The row of a field; that of a refused one in either spelling. NULL: none.
static const Field *find_field(Str name, unsigned place) {
    char snake[80];
    put_snake(name, snake, sizeof snake);
    for (const Field *f = fields; f < fields + sizeof fields / sizeof *fields; f++) {
        Str wanted = f->instead ? str_of(snake) : name;
        if ((f->places & place) && str_is_one_of(wanted, f->names)) return f;
    }
    return NULL;
}

static bool parse_known(Record *r, const Field *field, const Json *v, Error *err) {
    if (v->kind == JSON_NULL) return true;
    if (field->instead)
        return has_value(v, field->neutral) ||
               error_set(err, EXIT_RUNTIME, "%.*s: not supported; %s", SHOWN(v->key),
                         field->instead);
    return !field->parse || field->parse(r, v, err);
}

bool record_note_unknown(const Record *r, const Json *object, const char *known, Error *err) {
    for (const Json *v = object->child; v; v = v->next)
        if (!str_is_one_of(v->key, known) && !note_unknown(r, v, err)) return false;
    return true;
}

// An array of names of samplers, or the text of --samplers.
static bool set_samplers(Record *r, const Option *option, const char *name, const Json *v,
                         Error *err) {
    const Json *item = v->kind == JSON_ARRAY ? v->child : v;
    int n = v->kind == JSON_ARRAY ? v->n_items : 1;
    Buffer names = {0};
    bool ok = true;

    buffer_puts(&names, "");
    for (int i = 0; i < n && ok; i++) {
        Str text = item->string;
        bool is_name = item->kind == JSON_STRING && text.len && !memchr(text.data, 0, text.len);
        ok = is_name || record_mismatch(err, name, "names of samplers", item);
        if (i) buffer_puts(&names, ";");
        if (ok) buffer_put(&names, item->string);
        item = item->next;
    }

    ok = ok && setting_set(&r->settings, option, name, names.data, err);
    buffer_free(&names);
    return ok;
}

// Sets an option to the value of a field. Integers are exact: up to 64 bits.
static bool set_option(Record *r, const Option *option, const char *name, const Json *v,
                       Error *err) {
    bool is_flag = option->kind == OPTION_FLAG, is_budget = option->kind == OPTION_BUDGET;
    char number[40];

    if (is_budget && json_is(v, "auto"))
        return setting_set(&r->settings, option, name, "auto", err);
    if (option->kind == OPTION_SAMPLERS) return set_samplers(r, option, name, v, err);
    if (v->kind != (is_flag ? JSON_BOOL : JSON_NUMBER)) {
        const char *expected = is_budget ? "a number or \"auto\"" : "a number";
        return record_mismatch(err, name, is_flag ? "true or false" : expected, v);
    }
    if (is_flag) return setting_set_number(&r->settings, option, name, v->boolean, err);

    if (has_only_digits(v) && v->string.len < sizeof number) {
        snprintf(number, sizeof number, "%.*s", SHOWN(v->string));
        return setting_set(&r->settings, option, name, number, err);
    }
    if (option->kind == OPTION_SEED && !is_integer(v, -0x1p53, 0x1p53))
        return record_mismatch(err, name, "a whole number of 64 bits", v);
    return setting_set_number(&r->settings, option, name, v->number, err);
}

// Finds the option of the command line that a field sets, under its name or one that other programs
// have for it. *out is NULL if there is none. False with err for a sampling method that llama31
// lacks.
static bool find_option(const Json *v, const Option **out, Error *err) {
    char name[40], spelled[42], number[40];
    *out = NULL;
    snprintf(name, sizeof name, "%.*s", SHOWN(v->key));
    if (memchr(v->key.data, 0, v->key.len))
        return error_set(err, EXIT_RUNTIME, "a field has a NUL in its name, after \"%s\"", name);

    snprintf(spelled, sizeof spelled, "--%s", name);
    TypedOption typed = {.name = spelled};
    if (v->kind == JSON_NUMBER) {
        snprintf(number, sizeof number, "%.*s", SHOWN(v->string));
        typed.value = number;
    }

    Spelling spelling = spelling_translate(&typed, err);
    *out = option_find(NULL, CMD_REQUEST, typed.name, NULL);
    return *out || v->kind == JSON_NULL || spelling != SPELLING_SAMPLER ||
           error_set(err, EXIT_RUNTIME, "%s%s", name, strchr(err->text, ':'));
}

// True if two words of at least six letters differ by one letter, or by two letters that are
// swapped. A digit makes a word another one.
static bool is_typo(Str a, Str b) {
    enum { MIN_LETTERS = 6 };
    Str longer = a.len > b.len ? a : b, shorter = a.len > b.len ? b : a;
    size_t n = shorter.len, begin = 0, end = 0; // equal bytes at the beginning and at the end
    if (n < MIN_LETTERS || longer.len - n > 1) return false;

    while (begin < n && longer.data[begin] == shorter.data[begin]) begin++;
    while (end < n - begin && longer.data[longer.len - 1 - end] == shorter.data[n - 1 - end]) end++;

    size_t n_other = longer.len - begin - end;
    const char *l = longer.data + begin, *s = shorter.data + begin;
    bool is_exchanged = longer.len == n;
    if (n_other == 2) return is_exchanged && l[0] == s[1] && l[1] == s[0];
    if (n_other != 1 || isdigit((unsigned char)*l)) return false;
    return !is_exchanged || !isdigit((unsigned char)*s);
}

// The first of some names, separated by spaces, of which a name is a misspelling; len 0: none.
static Str find_meant(const char *names, Str name) {
    while (*names) {
        Str item = {names, strcspn(names, " ")};
        if (is_typo(name, item)) return item;
        names += item.len;
        names += *names == ' ';
    }
    return (Str){"", 0};
}

// The field or option with an effect of which a name is a misspelling; len 0: none. `option` is
// space for the name of an option.
static Str find_misspelled(Str name, char *option, size_t size) {
    Str meant = {"", 0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !meant.len; i++)
        if (fields[i].parse) meant = find_meant(fields[i].names, name);

    for (const Option *row = option_table; row < option_table + n_option_rows && !meant.len; row++)
        for (int k = 0; k < 3 && row->names[k] && (row->commands & CMD_REQUEST); k++) {
            snprintf(option, size, "%s", row->names[k] + strspn(row->names[k], "-"));
            for (char *c = option; *c; c++)
                if (*c == '-') *c = '_';
            if (is_typo(name, str_of(option))) return str_of(option);
        }
    return meant;
}

// Refuses an unknown field whose name resembles that of a field with an effect.
static bool check_similar(const Json *v, Error *err) {
    char snake[80], space[80];
    const Option *option;
    Json renamed = *v;

    put_snake(v->key, snake, sizeof snake);
    renamed.key = str_of(snake);
    const Field *field = find_field(renamed.key, IN_REQUEST);
    if (!field && !find_option(&renamed, &option, err)) return false;

    bool is_known = field ? field->parse != NULL : option != NULL;
    Str meant = is_known ? renamed.key : find_misspelled(v->key, space, sizeof space);
    return v->kind == JSON_NULL || !meant.len ||
           error_set(err, EXIT_RUNTIME, "%.*s: not supported; write \"%.*s\"", SHOWN(v->key),
                     SHOWN(meant));
}

// True if two values are equal numbers, such as 1 and 1.0, or equal as JSON text.
static bool is_same_value(const Json *a, const Json *b) {
    Buffer text[2] = {{0}};
    if (a->kind == JSON_NUMBER && b->kind == JSON_NUMBER) return a->number == b->number;

    json_write_value(&(JsonWriter){.out = &text[0]}, NULL, a, NULL);
    json_write_value(&(JsonWriter){.out = &text[1]}, NULL, b, NULL);
    bool is_same = str_eq(buffer_str(&text[0]), buffer_str(&text[1]));
    buffer_free(&text[0]);
    buffer_free(&text[1]);
    return is_same;
}

// set_by: (MAX_OPTIONS) the fields that have set options of the command line, by their rows. An
// option has several names, but one value.
static bool parse_field(Record *r, const Json *v, const Json **set_by, Error *err) {
    const Field *field = find_field(v->key, IN_REQUEST);
    const Option *option;
    char name[40];

    if (field) return parse_known(r, field, v, err);
    if (!find_option(v, &option, err)) return false;
    if (!option) return check_similar(v, err) && note_unknown(r, v, err);
    if (v->kind == JSON_NULL) return true;

    const Json **first = &set_by[option - option_table];
    if (*first && !is_same_value(*first, v))
        return error_set(err, EXIT_RUNTIME, "%.*s: \"%.*s\" sets the same option to another value",
                         SHOWN(v->key), SHOWN((*first)->key));
    *first = v;
    snprintf(name, sizeof name, "%.*s", SHOWN(v->key));
    return set_option(r, option, name, v, err);
}

// Checks the members next to a "body". Those that can change an answer belong in the body.
static bool check_outside(const Record *r, const Json *root, Error *err) {
    for (const Json *v = root->child; v; v = v->next) {
        const Field *field = find_field(v->key, IN_REQUEST);
        const Option *option = NULL;
        if (str_is_one_of(v->key, "custom_id method url body")) continue;
        if (!field && !find_option(v, &option, err)) return false;
        if (!field && !option && !check_similar(v, err)) return false;

        bool has_effect = option || (field && (field->parse || field->instead));
        if (v->kind != JSON_NULL && has_effect)
            return error_set(err, EXIT_RUNTIME, "%.*s: expected inside \"body\"", SHOWN(v->key));
        if (!note_unknown(r, v, err)) return false;
    }
    return true;
}

// Prompts

// Requires calls of any tools, or one call of the tool that `choice` names, as OpenAI defines both.
static bool force_tool_call(Record *r, const Json *choice, Error *err) {
    const Json *wanted = json_get_string(json_get(choice, "function"), "name"); // NULL: any

    if (!wanted && !json_is(choice, "required"))
        return record_mismatch(err, "tool_choice",
                               "\"auto\", \"none\", \"required\" or {\"type\": \"function\", "
                               "\"function\": {\"name\": ...}}",
                               choice);
    r->tools.is_forced = true;
    if (!wanted) return true;
    r->tools.forced = wanted->string;
    r->tools.is_single = true;
    return true;
}

// Sets r->tools.text: the tools of the request, or of the command line.
static bool parse_tools(Record *r, const Json *body, Error *err) {
    const Pipeline *p = r->pipeline;
    const Json *tools = json_get_value(body, "tools");
    const Json *choice = json_get_value(body, "tool_choice");
    bool is_none = json_is(choice, "none"), is_free = !choice || is_none || json_is(choice, "auto");
    if (tools && !tools_check(tools, &p->tpl, err)) return false;
    if (!is_free && !force_tool_call(r, choice, err)) return false;
    if (tools && tools->n_items)
        tools_put(tools, &r->tools.text);
    else if (!tools && p->tools.data)
        buffer_put(&r->tools.text, p->tools);
    r->tools.is_offered = r->tools.text.len && !is_none;
    return true;
}

// True if the chat template reads a member of messages: m.NAME, m['NAME'] or m["NAME"].
static bool template_reads(const Template *tpl, Str name) {
    static const char *const forms[] = {".%.*s", "'%.*s'", "\"%.*s\""};
    bool found = false;
    for (int i = 0; i < 3 && !found; i++) {
        char *text = text_format(forms[i], (int)name.len, name.data);
        found = str_contains(jinja_source(tpl->plain), text) ||
                str_contains(jinja_source(tpl->with_tools), text);
        free(text);
    }
    return found;
}

// Checks the members of a message, or of a part of its content.
static bool check_message(Record *r, const Json *object, unsigned place, Error *err) {
    if (object->kind != JSON_OBJECT) return true; // message_read() refuses it
    for (const Json *v = object->child; v; v = v->next) {
        if (v->kind == JSON_NULL) continue; // message_read() drops it
        const Field *field = find_field(v->key, place);
        bool is_read = place == IN_MESSAGE && template_reads(&r->pipeline->tpl, v->key);
        bool ok = field ? parse_known(r, field, v, err) : is_read || note_unknown(r, v, err);
        if (!ok) return false;
    }

    const Json *content = place == IN_MESSAGE ? json_get(object, "content") : NULL;
    const Json *part = content && content->kind == JSON_ARRAY ? content->child : NULL;
    while (part && check_message(r, part, IN_PART, err)) part = part->next;
    return !part;
}

// Reads the items of "messages" (*n of them), after the system prompt of the command line.
static bool read_messages(Record *r, const Json *array, Message *out, int *n, Error *err) {
    const Pipeline *p = r->pipeline;
    int i = 0;
    if (p->system.data && !json_is(json_get(array->child, "role"), "system"))
        out[(*n)++] = message_make(str_of("system"), p->system);

    for (const Json *m = array->child; m; m = m->next, i++) {
        Error why;
        bool ok = message_read(m, &out[*n], &why);
        *n += ok;
        ok = ok && check_message(r, m, IN_MESSAGE, &why);
        if (ok && out[*n - 1].has_calls && !p->tpl.takes_calls)
            ok = error_set(&why, EXIT_RUNTIME,
                           "tool_calls: the chat template %s does not support them", p->tpl.name);
        if (!ok) return error_set(err, EXIT_RUNTIME, "messages[%d]: %s", i, why.text);
    }
    return true;
}

// Checks the last message, which may be the beginning of the answer.
static bool check_last(const Record *r, const Message *last, Error *err) {
    if (r->start.is_given && (!str_is(last->role, "assistant") || last->has_calls))
        return error_set(
            err, EXIT_RUNTIME,
            "continue_final_message: the last message must be a text of the assistant");
    if (str_is(last->role, "user") && str_is_blank(last->content))
        return error_set(err, EXIT_RUNTIME, "the prompt is empty");
    return true;
}

bool record_parse_messages(Record *r, const Json *body, Error *err) {
    const Pipeline *p = r->pipeline;
    const Json *v = json_get_value(body, "messages");

    if (v->kind != JSON_ARRAY) return record_mismatch(err, "messages", "an array of messages", v);
    if (!v->n_items) return error_set(err, EXIT_RUNTIME, "messages: expected at least one");
    if (p->tpl.is_none)
        return error_set(err, EXIT_RUNTIME,
                         "messages: the model has no chat template; choose one with --template");

    Message *messages = xalloc((size_t)v->n_items + 1, sizeof *messages);
    int n = 0;
    bool ok = parse_tools(r, body, err) && read_messages(r, v, messages, &n, err) &&
              check_last(r, &messages[n - 1], err);

    if (ok) {
        TemplateInput in = {.messages = messages,
                            .n_messages = n - r->start.is_given,
                            .tools = r->tools.is_offered ? buffer_str(&r->tools.text) : (Str){0},
                            .variables = r->settings.variables,
                            .wants_answer = true,
                            .reasoning = settings_reasoning(&r->settings)};
        ok = template_encode(&p->tpl, p->tokenizer, &in, &r->prompt, err);
    }
    if (ok && r->start.is_given) r->start.text = str_copy(messages[n - 1].content);

    while (n--) message_free(&messages[n]);
    free(messages);
    return ok;
}

bool record_parse_ids(const Record *r, const char *name, const Json *array, Ids *out, Error *err) {
    if (array->kind != JSON_ARRAY)
        return record_mismatch(err, name, "an array of token ids", array);
    for (const Json *j = array->child; j; j = j->next) {
        if (!is_integer(j, 0, r->pipeline->model.config.vocab_size - 1))
            return record_mismatch(err, name, "token ids of the vocabulary", j);
        ids_push(out, (int)j->number);
    }
    return true;
}

// A string, or an array of token ids.
static bool parse_prompt(Record *r, const Json *v, Ids *out, Error *err) {
    if (v->kind == JSON_STRING)
        return prompt_encode(r->pipeline, &r->settings, v->string, r->is_plain, out, err);
    if (v->kind != JSON_ARRAY || !v->n_items)
        return record_mismatch(err, "prompt", "a string or an array of token ids", v);
    return record_parse_ids(r, "prompt", v, out, err);
}

// One prompt, or an array of prompts of one kind.
static bool parse_prompts(Record *r, const Json *v, Error *err) {
    bool is_list = v->kind == JSON_ARRAY && v->n_items && v->child->kind != JSON_NUMBER;
    const Json *first = is_list ? v->child : v;
    int n_prompts = is_list ? v->n_items : 1;

    if (n_prompts > MAX_COMPLETIONS / r->n_per_prompt)
        return error_set(err, EXIT_RUNTIME, "prompt: expected at most %d, found %d",
                         MAX_COMPLETIONS / r->n_per_prompt, n_prompts);

    // Prompts are plain text, or go through the chat template.
    r->is_plain = first->kind == JSON_ARRAY || r->line.form != FORM_SHORT ||
                  r->pipeline->options->prompt.is_raw;
    r->tools.is_offered = !r->is_plain && r->pipeline->tools.data;
    if (r->tools.is_offered) buffer_put(&r->tools.text, r->pipeline->tools);
    if (!parse_prompt(r, first, &r->prompt, err)) return false;

    r->more_prompts = xalloc((size_t)n_prompts, sizeof *r->more_prompts);
    for (const Json *item = first->next; is_list && item; item = item->next) {
        if (item->kind != first->kind)
            return record_mismatch(err, "prompt", "texts only or token ids only", item);
        if (!parse_prompt(r, item, &r->more_prompts[r->n_prompts++ - 1], err)) return false;
    }
    r->n_choices = n_prompts * r->n_per_prompt;
    return true;
}

// Finds the object that holds the request: the line itself, or its "body".
static bool find_body(const Record *r, const Json *root, const Json **out, Error *err) {
    const Json *method = json_get(root, "method");
    const Json *url = json_get(root, "url");
    const Json *body = json_get(root, "body");

    *out = r->line.form == FORM_SHORT ? root : body;
    if (r->line.form == FORM_SHORT) return true;
    if (!json_is(method, "POST")) return record_mismatch(err, "method", "\"POST\"", method);
    if (r->line.form == FORM_CHAT && !json_is(url, "/v1/chat/completions"))
        return record_mismatch(err, "url", "\"/v1/chat/completions\" or \"/v1/completions\"", url);
    if (!body || body->kind != JSON_OBJECT) return record_mismatch(err, "body", "an object", body);
    return check_outside(r, root, err);
}

static bool parse_body(Record *r, const Json *body, Error *err) {
    const Json *prompt = json_get_value(body, "prompt");
    const Json *messages = json_get_value(body, "messages");
    const Json *logprobs = json_get_value(body, "logprobs");
    const Json *tools = json_get_value(body, "tools");
    const Json *set_by[MAX_OPTIONS] = {0};

    for (const Json *v = body->child; v; v = v->next)
        if (!parse_field(r, v, set_by, err)) return false;
    if (r->line.form == FORM_CHAT && json_get_value(body, "top_logprobs") &&
        !(logprobs && logprobs->boolean))
        return error_set(err, EXIT_RUNTIME, "top_logprobs: needs \"logprobs\": true");
    if (r->line.form == FORM_CHAT && !messages)
        return record_mismatch(err, "messages", "an array of messages", NULL);
    if (r->line.form == FORM_COMPLETION && !prompt)
        return record_mismatch(err, "prompt", "a string", NULL);
    if (!prompt == !messages)
        return error_set(err, EXIT_RUNTIME, "expected either \"prompt\" or \"messages\"");
    if (prompt && r->start.is_given)
        return error_set(err, EXIT_RUNTIME, "continue_final_message: needs \"messages\"");
    if (prompt && tools && !has_value(tools, NOTHING))
        return error_set(err, EXIT_RUNTIME, "tools: need \"messages\"");

    if (prompt) return parse_prompts(r, prompt, err);
    r->n_choices = r->n_per_prompt;
    return record_parse_messages(r, body, err);
}

// Compiles the constraint of the request or, if it has none, of the command line or of the tools.
static bool make_constraint(Record *r, Error *err) {
    const RequestTools *tools = &r->tools;
    AnswerInput in = {
        .settings = &r->settings,
        .constraint = r->spec,
        .offer = {.tools = buffer_str(&tools->text),
                  .is_forced = tools->is_forced,
                  .is_banned = !tools->is_offered,
                  .is_single = tools->is_single,
                  .only = tools->forced},
        .has_reasoning = r->pipeline->tpl.has_reasoning && !r->is_plain,
        .notes = &r->answer.notes,
    };
    bool ok = answer_open(r->pipeline, &in, &r->request, &r->constraint, err);
    free_choices(r);
    return ok;
}

// Makes the request, and checks that every prompt fits the context.
static bool make_request(Record *r, bool is_completion, Error *err) {
    const Pipeline *p = r->pipeline;
    if (!request_from_settings(p, &r->settings, &r->prompt, is_completion, &r->request, err))
        return false;
    for (int i = 1; i < r->n_prompts; i++) {
        Request unused = r->request;
        Error why;
        if (!request_set_prompt(p, &r->more_prompts[i - 1], &unused, &why))
            return error_set(err, why.code, "prompt[%d]: %s", i, why.text);
    }

    if (r->start.text.len && !request_begin_answer(p, r->start.text, &r->prompt, &r->request, err))
        return false;
    r->request.first_scored = r->settings.has_echo && r->n_logprobs >= 0;
    return true;
}

bool record_parse(Record *r, const Json *root, Str text, Error *err) {
    const Json line = {.kind = JSON_STRING, .string = text}, *body = NULL;
    bool ok = root ? find_body(r, root, &body, err) && parse_body(r, body, err)
                   : parse_prompts(r, &line, err);
    if (!ok) return false;
    if (r->settings.has_echo && r->stream.is_on)
        return error_set(err, EXIT_RUNTIME, "stream: cannot be combined with \"echo\"");
    if (r->settings.has_echo && !r->is_plain && !r->pipeline->tpl.is_none)
        return error_set(err, EXIT_RUNTIME,
                         "echo: needs a prompt without chat template (/v1/completions, or --raw)");

    // The seed has 32 bits, because JSON readers may store numbers as double.
    if (!r->settings.has_seed)
        r->settings.sample.seed =
            (uint32_t)record_hash(r->pipeline->settings.sample.seed, buffer_str(&r->line.id));

    // At least one alternative is computed, because 0 turns log-probabilities off.
    r->settings.n_logprobs = r->n_logprobs < 0 ? 0 : r->n_logprobs + !r->n_logprobs;

    bool is_text = !root || json_get_value(body, "prompt");
    bool is_completion =
        is_text && (r->line.form != FORM_SHORT || r->pipeline->options->prompt.is_raw);
    return make_request(r, is_completion, err) && make_constraint(r, err);
}

// Lifetime

Record *record_new(long line, RequestForm form, const Pipeline *p) {
    Record *r = xalloc(1, sizeof *r);
    *r = (Record){.line = {.number = line, .form = form},
                  .pipeline = p,
                  .settings = settings_copy(&p->settings),
                  .n_logprobs = -1,
                  .parent = r,
                  .n_prompts = 1,
                  .n_per_prompt = 1,
                  .n_choices = 1};
    r->settings.has_seed = false;
    return r;
}

Record *record_new_choice(Record *parent, int index) {
    Record *r = xalloc(1, sizeof *r);
    int i = index / parent->n_per_prompt;
    const Ids *prompt = i ? &parent->more_prompts[i - 1] : &parent->prompt;
    char text[16];
    Error unused;

    *r = (Record){
        .pipeline = parent->pipeline, .parent = parent, .index = index, .request = parent->request};
    for (int k = 0; k < prompt->len; k++) ids_push(&r->prompt, prompt->data[k]);
    request_set_prompt(r->pipeline, &r->prompt, &r->request, &unused); // checked by record_parse()

    if (parent->constraint) r->constraint = answer_clone(parent->constraint, &r->request);
    snprintf(text, sizeof text, "%d", index);
    r->request.sample.seed = (uint32_t)record_hash(parent->request.sample.seed, str_of(text));
    return r;
}

void record_free(Record *r) {
    if (r->state == RECORD_RUNNING) sequence_free(&r->sequence);
    session_free(r->session);
    answer_free(r->constraint);
    free_choices(r);
    free(r->answer.failure);
    buffer_free(&r->answer.notes);
    buffer_free(&r->tools.text);
    settings_free(&r->settings);

    if (r->parent == r) free((char *)r->request.start.all.data);
    free((char *)r->start.text.data);
    buffer_free(&r->stream.raw);
    buffer_free(&r->line.id);
    free(r->prompt.data);
    for (int i = 1; i < r->n_prompts; i++) free(r->more_prompts[i - 1].data);
    free(r->more_prompts);
    buffer_free(&r->answer.text);
    for (int i = 0; r->answer.choices && i < r->n_choices; i++) buffer_free(&r->answer.choices[i]);
    free(r->answer.choices);
    free(r);
}
