// See open_answer.h.
#include "cli/open_answer.h"
#include "cli/output.h"

// Sets the modes of a spec to those of the settings.
static void set_modes(ConstraintSpec *spec, const Settings *s) {
    spec->any_order = s->constraint.any_order;
    spec->extra_properties = s->constraint.extra_properties;
    spec->is_strict = s->constraint.is_strict;
}

bool constraint_open(ConstraintCache *cache, const Settings *s, const ConstraintSpec *own,
                     CompiledConstraint **out, Error *err) {
    ConstraintSpec spec = own->kind || own->calls.tools.len ? *own : s->constraint;
    set_modes(&spec, s);

    *out = NULL;
    if (s->ignore_eos && (spec.kind || spec.calls.tools.len))
        return error_set(err, EXIT_USAGE,
                         "expected either --ignore-eos or a constraint, which ends its text");
    return constraint_compile(cache, &spec, out, err);
}

// Notes.

// Prints a note, unless an earlier request has printed an equal one, and appends it to `notes` (may
// be NULL).
static void note_once(const Pipeline *p, const char *text, Buffer *notes) {
    bool is_new;
    if (notes) buffer_printf(notes, "%s%s", notes->len ? "; " : "", text);
    intern_add(p->noted, text, strlen(text), &is_new);
    if (is_new) note(p->options, "%s", text);
}

static void note_constraint(const Pipeline *p, const CompiledConstraint *c, Buffer *notes) {
    const ConstraintNotes *found = constraint_notes(c);
    if (found->problems.len) note_once(p, found->problems.data, notes);
    if (found->ignored.len) note_once(p, found->ignored.data, NULL);
    if (found->checked.len) note_once(p, found->checked.data, NULL);
}

// Notes the samplers that would have an effect, but are not in the order; to `notes` if the order
// is the request's own.
static void note_samplers(const Pipeline *p, const SampleOptions *o, Buffer *notes) {
    Buffer text = {0};
    for (int i = 0; i < N_SAMPLERS; i++) {
        SamplerKind kind = (SamplerKind)i;
        if (samplers_have(&o->order, kind) || !sample_has_effect(o, kind)) continue;
        buffer_printf(&text, "%s%s",
                      text.len ? ", " : "not among the samplers, so off: ", sampler_name(kind));
    }
    bool is_own = memcmp(&o->order, &p->settings.sample.order, sizeof o->order) != 0;
    if (text.len) note_once(p, text.data, is_own ? notes : NULL);
    buffer_free(&text);
}

void choices_note(const Pipeline *p, const Str *choices, int n) {
    InternTable seen = {0}, repeated = {0};
    Buffer text = {0};
    for (int i = 0; i < n; i++) {
        bool is_new, is_first = false;
        intern_add(&seen, choices[i].data, choices[i].len, &is_new);
        if (!is_new) intern_add(&repeated, choices[i].data, choices[i].len, &is_first);
        if (!is_first) continue;
        buffer_puts(&text, text.len ? ", " : "repeated choices: ");
        json_quote(&text, choices[i]);
    }

    if (seen.n == 1) {
        text.len = 0;
        buffer_puts(&text, "the only choice is ");
        json_quote(&text, *choices);
    }
    if (text.len) note_once(p, text.data, NULL);

    intern_free(&seen);
    intern_free(&repeated);
    buffer_free(&text);
}

// Tool calls.

// The calls of the offered tools in the template's forms, or in that of Llama 3.1 without any.
static CallSpec calls_spec(const Pipeline *p, const AnswerInput *in) {
    const Template *tpl = &p->tpl;
    CallSpec calls = {.tools = in->offer.tools,
                      .only = in->offer.only,
                      .closer = "",
                      .key = "parameters",
                      .is_single = in->offer.is_single};

    calls.n_openers = tpl->n_call_forms;
    for (int i = 0; i < tpl->n_call_forms; i++) calls.openers[i] = tpl->call_forms[i]->opener;
    if (!tpl->n_call_forms) return calls;

    calls.closer = tpl->call_forms[0]->closer;
    calls.key = tpl->call_forms[0]->key;
    calls.is_list = tpl->call_forms[0]->is_list;
    return calls;
}

// Constrains tool calls in a free answer, or bans them. Sets *out to the constraint of a call, or
// to NULL. False with err only if the schemas of tools must be enforced.
static bool constrain_calls(const Pipeline *p, const AnswerInput *in, AnswerSpec *spec,
                            CompiledConstraint **out, Error *err) {
    ConstraintSpec source = {.calls = calls_spec(p, in)};
    set_modes(&source, in->settings);

    spec->n_openers = source.calls.n_openers;
    for (int i = 0; i < spec->n_openers; i++) spec->openers[i] = str_of(source.calls.openers[i]);
    spec->is_last = !*source.calls.closer || in->offer.is_single;

    bool ok = spec->n_openers || error_set(err, EXIT_USAGE, "unknown call form of the template");
    if (ok && !in->offer.is_banned) {
        source.calls.is_opened = true;
        ok = constraint_compile(p->constraints, &source, out, err);
        if (!ok && source.is_strict) return false;
        if (!ok) spec->n_openers = 0;
    }

    if (!ok && !generate_interrupted) {
        char *text = text_format("tool calls are not enforced: %s", err->text);
        note_once(p, text, in->notes);
        free(text);
    }
    return true;
}

// The answer.

static AnswerSpec reasoning_spec(const AnswerInput *in) {
    const Settings *s = in->settings;
    Reasoning reasoning = settings_reasoning(s);
    if (reasoning == REASONING_OFF) return (AnswerSpec){.no_think = true};

    AnswerSpec spec = {.may_think = in->has_reasoning || reasoning == REASONING_ON};
    if (s->reasoning_budget > 0 || s->reasoning_budget == BUDGET_AUTO)
        spec.budget = s->reasoning_budget;
    if (s->reasoning_message) spec.message = str_of(s->reasoning_message);
    return spec;
}

// True if the answer may be a call of an offered tool.
static bool may_call(const AnswerInput *in) {
    return str_contains(in->offer.tools, "{") && !in->offer.is_banned; // tools_check() has seen it
}

// Sets *out to the constraint of the answer as a whole; NULL: none. With tools, the answer is a
// call or, unless the offer is forced, what the constraint allows.
static bool constrain_whole(const Pipeline *p, const AnswerInput *in, CompiledConstraint **out,
                            Error *err) {
    ConstraintSpec source = in->constraint.kind ? in->constraint : in->settings->constraint;
    bool has_form = p->tpl.n_call_forms;

    if (in->offer.is_forced && !str_contains(in->offer.tools, "{"))
        return error_set(err, EXIT_RUNTIME, "tool_choice: the request has no tools");

    if (in->offer.is_forced) {
        if (source.kind)
            note_once(p, "the answer is a tool call, so the constraint has no effect", NULL);
        if (!has_form)
            note_once(p,
                      "the call form of the template is unknown; a forced call is "
                      "{\"name\": ..., \"parameters\": ...}",
                      NULL);
        source = (ConstraintSpec){.calls = calls_spec(p, in)};
    } else if (source.kind && may_call(in)) {
        if (!has_form)
            return error_set(err, EXIT_USAGE,
                             "tools cannot be combined with a constraint: the call form of chat "
                             "template %s is unknown; omit one of the two, or use "
                             "\"tool_choice\": \"none\"",
                             p->tpl.name);
        source.calls = calls_spec(p, in);
    }
    if (source.kind == CONSTRAINT_CHOICES) choices_note(p, source.choices.at, source.choices.n);
    return constraint_open(p->constraints, in->settings, &source, out, err);
}

bool answer_open(const Pipeline *p, const AnswerInput *in, Request *r, AnswerState **out,
                 Error *err) {
    AnswerSpec spec = reasoning_spec(in);
    CompiledConstraint *constraint;
    *out = NULL;
    note_samplers(p, &in->settings->sample, in->notes);

    // The constraint of the request or of its settings or, without one, of the offered tools.
    if (!constrain_whole(p, in, &constraint, err)) return false;
    bool is_whole = constraint;
    bool has_tools = str_contains(in->offer.tools, "{");
    if (!is_whole && has_tools && !constrain_calls(p, in, &spec, &constraint, err)) return false;
    if (constraint) note_constraint(p, constraint, in->notes);
    if (!constraint && !spec.n_openers && !spec.budget) return true;

    *out = answer_new(p->tokenizer, &spec, constraint, r);
    if (!answer_matches(*out, (Str){0}, false))
        return error_set(err, EXIT_USAGE,
                         "the constraint allows no answer that begins with \"%.*s\"",
                         SHOWN(r->start.text));

    if (is_whole && answer_may_think(*out))
        note_once(p, "the constraint begins after the reasoning", NULL);
    else if (is_whole && in->has_reasoning)
        note_once(p, "the constraint begins with the first token, without reasoning", NULL);
    return true;
}
