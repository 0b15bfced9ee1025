// See open_answer.h.
#include "cli/open_answer.h"
#include "cli/output.h"
#include "base/intern.h"

// Constraints.

// Sets the constraint of the command line.
static bool use_own_source(const ConstraintSettings *s, ConstraintSpec *spec, JsonDoc *doc,
                           Error *err) {
    Error why;
    if (s->json_schema) spec->schema_text = str_of(s->json_schema);
    if (s->grammar) spec->grammar = str_of(s->grammar);
    if (s->regex) spec->regex = str_of(s->regex);
    if (!s->choices) return true;
    spec->choices = json_list(doc, s->choices, &spec->n_choices, &why);
    return spec->choices || error_set(err, why.code, "--choices: %s", why.text);
}

bool constraint_open(ConstraintCache *cache, const Options *o, const Settings *s,
                     const ConstraintSpec *own, CompiledConstraint **out, Error *err) {
    ConstraintSpec spec = *own;
    bool is_own = constraint_n_sources(own), ok = false;
    Buffer unknown = {0};
    JsonDoc doc = {0}; // of the choices
    *out = NULL;

    spec.is_ordered = !s->constraint.any_order;
    spec.is_closed = !s->constraint.extra_properties;
    if (!is_own && !use_own_source(&s->constraint, &spec, &doc, err)) return false;

    if (s->ignore_eos && constraint_n_sources(&spec))
        error_set(err, EXIT_USAGE,
                  "expected either --ignore-eos or a constraint, which ends its text");
    else
        ok = constraint_compile(cache, &spec, out, &unknown, err);
    if (ok && unknown.len) note(o, "JSON Schema: ignored: %s", unknown.data);

    if (!is_own) free((void *)spec.choices);
    json_free(&doc);
    buffer_free(&unknown);
    return ok;
}

// Tool calls.

// Appends the schema of a tool's parameters, which are an object; NULL: any object. A reference
// such as "#/$defs/x" is relative to the parameters, so they get their own base URI.
static void put_parameters(Buffer *out, const Json *parameters, int i) {
    Buffer text = {0};
    if (parameters) json_write_value(&(JsonWriter){.out = &text}, NULL, parameters, NULL);
    bool is_any = !text.data || !strcmp(text.data, "{}") || !strcmp(text.data, "true");
    bool has_members = !is_any && *text.data == '{';
    const Json *type = json_get(parameters, "type");
    bool has_other_type = type && !json_is(type, "object"); // such as ["object", "null"]

    if (has_other_type) buffer_puts(out, "{\"allOf\":[");
    if (is_any || has_members) buffer_puts(out, "{");
    if (is_any || (has_members && !type)) buffer_puts(out, "\"type\":\"object\"");
    if (has_members && !type) buffer_puts(out, ",");
    if (has_members && str_contains(buffer_str(&text), "\"$ref\"") && !json_get(parameters, "$id"))
        buffer_printf(out, "\"$id\":\"tool:/%d\",", i);
    buffer_puts(out, is_any ? "}" : text.data + has_members);
    if (has_other_type) buffer_puts(out, "],\"type\":\"object\"}");
    buffer_free(&text);
}

// Prints a note, unless an earlier request has printed an equal one, and appends it to `notes` (may
// be NULL).
static void note_once(const Options *o, const char *text, Buffer *notes) {
    static InternTable noted;
    bool is_new = false;
    if (notes) buffer_printf(notes, "%s%s", notes->len ? "; " : "", text);
    intern_add(&noted, text, strlen(text), &is_new);
    if (is_new) note(o, "%s", text);
}

static bool compile_calls(const Pipeline *p, const Settings *s, Str schema,
                          CompiledConstraint **out, Buffer *unknown, Error *err) {
    ConstraintSpec source = {.schema_text = schema,
                             .is_ordered = true, // the name comes before the parameters
                             .is_closed = !s->constraint.extra_properties};
    return constraint_compile(p->constraints, &source, out, unknown, err);
}

// Appends the JSON Schema of calls of the tools, or of the only one that can be called:
// {"name": NAME, KEY: PARAMETERS} or, as the form says, an array of them. The parameters of a tool
// whose own schema cannot be compiled or has no text are any JSON object, and a note names the tool
// and the reason.
static bool put_calls(const Pipeline *p, const Settings *s, const Json *tools,
                      const ToolOffer *offer, const CallForm *form, Buffer *out, Buffer *notes,
                      Error *err) {
    CompiledConstraint *compiled;
    Buffer parameters = {0}, unknown = {0};
    Error why;
    int n = 0;

    if (form->is_list) buffer_puts(out, "{\"type\":\"array\",\"minItems\":1,\"items\":");
    buffer_puts(out, "{\"anyOf\":[");
    for (const Json *tool = tools ? tools->child : NULL; tool; tool = tool->next) {
        const Json *function = json_get(tool, "function");
        Str name = json_get(function, "name")->string;
        if (offer->only.data && !str_eq(offer->only, name)) continue;

        parameters.len = unknown.len = 0;
        put_parameters(&parameters, json_get_value(function, "parameters"), n);
        bool ok = compile_calls(p, s, buffer_str(&parameters), &compiled, &unknown, &why);
        constraint_release(compiled);
        if (ok && unknown.len && !offer->is_forced) // else constraint_open() does
            note(p->options, "tool %.*s: JSON Schema: ignored: %s", SHOWN(name), unknown.data);
        if (!ok && !generate_interrupted)
            buffer_printf(notes, "%stool %.*s: its arguments are only a JSON object: %s",
                          notes->len ? "; " : "", SHOWN(name), why.text);

        buffer_puts(out, n++ ? "," : "");
        buffer_puts(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
        json_quote(out, name);
        buffer_printf(out, "},\"%s\":", form->key);
        buffer_put(out, ok ? buffer_str(&parameters) : str_of("{\"type\":\"object\"}"));
        buffer_printf(out, "},\"required\":[\"name\",\"%s\"],\"additionalProperties\":false}",
                      form->key);
    }
    buffer_puts(out, form->is_list ? "]}}" : "]}");

    buffer_free(&parameters);
    buffer_free(&unknown);
    return n || error_set(err, EXIT_RUNTIME, "tool_choice: the request has no such tool");
}

// Sets *out to the schema of the calls of an offer, which is valid until the next call. Most
// requests of a batch have the same tools, so the last schema is kept.
static bool find_calls(const Pipeline *p, const Settings *s, const Json *tools,
                       const ToolOffer *offer, const CallForm *form, Buffer *notes, Str *out,
                       Error *err) {
    static Buffer last, schema, problems;
    Buffer key = {0};
    buffer_printf(&key, "%d %s %.*s ", s->constraint.extra_properties, form->opener,
                  (int)offer->only.len, offer->only.data ? offer->only.data : "");
    buffer_put(&key, offer->tools);

    bool is_last = str_eq(buffer_str(&key), buffer_str(&last));
    buffer_free(&last);
    last = key;
    if (!is_last) {
        problems.len = schema.len = 0;
        if (!put_calls(p, s, tools, offer, form, &schema, &problems, err)) {
            buffer_free(&last);
            return false;
        }
    }

    if (generate_interrupted) last.len = 0; // a tool may not have been compiled
    if (problems.len) note_once(p->options, problems.data, notes);
    *out = buffer_str(&schema);
    return true;
}

// Constrains tool calls in a free answer, or bans them. Returns the constraint of a call, or NULL.
static CompiledConstraint *constrain_calls(const Pipeline *p, const Settings *s, const Json *tools,
                                           const ToolOffer *offer, AnswerSpec *spec,
                                           Buffer *notes) {
    const CallForm *form = p->tpl.call_forms[0];
    CompiledConstraint *constraint = NULL;
    Str schema;
    Error err;

    spec->n_openers = p->tpl.n_call_forms;
    for (int i = 0; i < spec->n_openers; i++)
        spec->openers[i] = str_of(p->tpl.call_forms[i]->opener);

    bool ok = form || error_set(&err, EXIT_USAGE, "unknown form of the template");
    if (form && !offer->is_banned) {
        ok = find_calls(p, s, tools, offer, form, notes, &schema, &err) &&
             compile_calls(p, s, schema, &constraint, NULL, &err);
        if (!ok) spec->n_openers = 0;
        spec->closer = str_of(form->closer);
        spec->has_more = !form->is_list && !*form->closer;
    }

    if (!ok && !generate_interrupted) {
        char *text = text_format("tool calls are not enforced: %s", err.text);
        note_once(p->options, text, notes);
        free(text);
    }
    return constraint;
}

// The answer.

bool answer_open(const Pipeline *p, const Settings *s, const ConstraintSpec *own,
                 bool has_reasoning, const ToolOffer *offer, Request *r, AnswerState **out,
                 Buffer *notes, Error *err) {
    static const CallForm forced = {.opener = "", .closer = "", .key = "parameters"};
    CompiledConstraint *constraint;
    ConstraintSpec source = *own;
    JsonDoc doc = {0};
    *out = NULL;

    // Reasoning before the answer.
    Reasoning reasoning = settings_reasoning(s);
    AnswerSpec spec = {.may_think = has_reasoning || reasoning == REASONING_ON};
    if (s->reasoning_budget > 0 || s->reasoning_budget == BUDGET_AUTO)
        spec.budget = s->reasoning_budget;
    if (s->reasoning_message) spec.message = str_of(s->reasoning_message);
    if (reasoning == REASONING_OFF) spec = (AnswerSpec){.no_think = true};

    // The constraint of the request, or else of the options, or else of the offered tools.
    bool has_tools = offer->tools.len &&
                     json_parse(&doc, offer->tools.data, offer->tools.len, &(Error){0}) &&
                     doc.root->n_items;
    bool ok = !offer->is_forced || find_calls(p, s, has_tools ? doc.root : NULL, offer, &forced,
                                              notes, &source.schema_text, err);
    ok = ok && constraint_open(p->constraints, p->options, s, &source, &constraint, err);
    bool is_whole = ok && constraint; // applies to the answer as a whole
    if (ok && !constraint && has_tools)
        constraint = constrain_calls(p, s, doc.root, offer, &spec, notes);
    json_free(&doc);
    if (!ok) return false;
    if (!constraint && !spec.n_openers && !spec.budget) return true;

    *out = answer_new(p->tokenizer, &spec, constraint, r);
    if (!answer_matches(*out, (Str){0}, false))
        return error_set(err, EXIT_USAGE,
                         "the constraint allows no answer that begins with \"%.*s\"",
                         SHOWN(r->start.text));
    if (is_whole && answer_may_think(*out))
        note_once(p->options, "the constraint begins after the reasoning", NULL);
    else if (is_whole && has_reasoning)
        note_once(p->options, "the constraint begins with the first token, without reasoning",
                  NULL);
    return true;
}
