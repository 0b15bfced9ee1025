// Tool calls: alternatives of a grammar's root, beside the texts of another constraint or alone.
//
// grammar_add_calls() is the entry point. A text of calls is a sequence of values: a tag, white
// space, the JSON of the call, a tag; then the same again. For example, with <tool_call> as opener:
//
//     root:  ... | one | one SEPARATOR | one SEPARATOR root of the calls
//     one:   <tool_call> CALL </tool_call>  |  <tool_call> SPACE CALL </tool_call>
//
// The schema of a tool's arguments is a document of its own, so that its references, its draft and
// its failure do not concern other tools.
#include "constrain/constrain.h"
#include "constrain/regex.h"

// Values.

// Adds a value with one alternative, which is possible.
static int add_value(Grammar *g, Def def) {
    int value = grammar_add_value(g);
    grammar_add_alt(g, value, grammar_add(g, def));
    g->values[value].is_possible = true;
    return value;
}

// Adds the alternatives of another value to those of a value.
static void add_alts(Grammar *g, int value, int other) {
    for (int i = 0; i < g->values[other].n_alts; i++)
        grammar_add_alt(g, value, g->values[other].alts[i]);
    g->values[value].is_possible = true;
}

// Adds a sequence of parts (n) to the alternatives of a value; NONE among them is no part.
static void add_sequence(Grammar *g, int value, const int *parts, int n) {
    SequenceDef s = {.parts = arena_alloc(&g->arena, (size_t)n, sizeof *s.parts)};
    for (int i = 0; i < n; i++)
        if (parts[i] != NONE) s.parts[s.n++] = parts[i];

    if (s.n == 1)
        add_alts(g, value, s.parts[0]);
    else
        grammar_add_alt(g, value, grammar_add(g, (Def){DEF_SEQUENCE, .sequence = s}));
    g->values[value].is_possible = true;
}

// Adds the texts of a pattern, of which none is empty.
static int add_pattern(Grammar *g, const char *pattern) {
    Error unused;
    Budget budget = {COMPILE_BUDGET, &unused};
    Def text = {.kind = DEF_TEXT};
    regex_compile(str_of(pattern), REGEX_WHOLE, &budget, &text.dfa);
    return add_value(g, text);
}

// Adds a tag, or returns NONE for an empty one. White space may precede the name of a control
// token.
static int add_tag(Grammar *g, const Tokenizer *t, const char *tag) {
    const char *name = tag + strspn(tag, " \n");
    int id = t ? tokenizer_special_id(t, name) : NONE;
    bool is_control = id >= 0 && tokenizer_is_control(t, id);
    Buffer text = {0};
    if (!*tag) return NONE;

    buffer_append(&text, tag, (size_t)(name - tag));
    if (is_control) buffer_puts(&text, CONTROL_MARK);
    buffer_puts(&text, name);
    char *copy = memcpy(arena_alloc(&g->arena, 1, text.len), text.data, text.len);
    int value = add_value(g, (Def){DEF_TAG, .tag = {copy, text.len}});
    buffer_free(&text);
    return value;
}

// The JSON of a call.

// Appends a note about a tool.
static void put_note(Buffer *out, Str tool, const char *what, const char *why) {
    buffer_printf(out, "%stool %.*s: %s: %s", out->len ? "; " : "", SHOWN(tool), what, why);
}

// Adds the value of a tool's arguments: an object that its schema allows. A tool without a schema
// has no arguments. NONE after an interrupt, and with err if the schema must be enforced.
static int add_arguments(Grammar *g, const Json *schema, Str tool, unsigned modes,
                         ConstraintNotes *notes, Error *err) {
    static const Json any = {.kind = JSON_BOOL, .boolean = true};
    Buffer unknown = {0}, of_others = g->unenforced;
    bool is_strict = !(modes & SCHEMA_CHECKED);

    if (!schema) {
        ObjectDef none = {.trie = NONE, .other = NONE};
        return add_value(g, (Def){DEF_OBJECT, .object = none});
    }

    g->unenforced = (Buffer){0};
    modes |= SCHEMA_OBJECT;
    int value = grammar_add_schema(g, schema, NULL, modes, &unknown, err);
    if (value == NONE && is_strict) {
        char *why = text_format("%s", err->text);
        error_set(err, EXIT_USAGE, "tool %.*s: %s", SHOWN(tool), why);
        free(why);
    } else if (value == NONE) {
        put_note(&notes->problems, tool, "its arguments are only a JSON object", err->text);
        value = grammar_add_schema(g, &any, NULL, modes, NULL, err);
    } else {
        if (unknown.len) put_note(&notes->ignored, tool, "JSON Schema: ignored", unknown.data);
        if (g->unenforced.len) {
            intern_add(&g->checked_tools, tool.data, tool.len, NULL);
            put_note(&notes->checked, tool, "checked at the end, not enforced", g->unenforced.data);
        }
    }
    buffer_free(&g->unenforced);
    g->unenforced = of_others;

    buffer_free(&unknown);
    return value;
}

// Adds {"name": NAME, KEY: ARGUMENTS} to the alternatives of a value.
static void add_call(Grammar *g, int value, Str name, Str key, int arguments) {
    StringDef string = {.trie = trie_add(g, &name, 1), .dfa = NONE, .max = NO_LIMIT};
    int string_value = add_value(g, (Def){DEF_STRING, .string = string});
    PropertyDef named = {str_of("name"), string_value, .order = 0, .is_required = true};
    PropertyDef other = {key, arguments, .order = 1, .is_required = true};

    bool is_named_first = str_compare(named.name, key) < 0;
    PropertyDef sorted[2] = {is_named_first ? named : other, is_named_first ? other : named};
    ObjectDef call = {.other = NONE, .min = 2, .max = 2, .is_ordered = true};
    grammar_add_alt(g, value, grammar_add_object(g, call, sorted, 2));
}

static Str tool_name(const Json *tool) {
    return json_get(json_get(tool, "function"), "name")->string;
}

// Adds a value of the calls of all tools of a spec. NONE with err if there are none, if a schema
// must be enforced and cannot be, or after an interrupt.
static int add_json(Grammar *g, const CallSpec *spec, unsigned modes, ConstraintNotes *notes,
                    Error *err) {
    JsonDoc doc = {0};
    int calls = grammar_add_value(g), n = 0, arguments = 0;
    if (!json_parse(&doc, spec->tools.data, spec->tools.len, err)) return NONE;

    g->values[calls].is_possible = true;
    const Json *tool = doc.root->child;
    for (; tool && arguments != NONE; tool = tool->next) {
        Str name = tool_name(tool);
        if (spec->only.data && !str_eq(spec->only, name)) continue;

        const Json *schema = json_get_value(json_get(tool, "function"), "parameters");
        arguments = add_arguments(g, schema, name, modes, notes, err);
        if (arguments != NONE) add_call(g, calls, name, str_of(spec->key), arguments);
        n++;
    }
    json_free(&doc);

    if (n == 0)
        error_set(err, EXIT_RUNTIME, "tool_choice: the request has no tool \"%.*s\"",
                  SHOWN(spec->only));
    if (n == 0 || arguments == NONE) return NONE;
    if (!spec->is_list) return calls;

    ArrayDef list = {.items = arena_alloc(&g->arena, 1, sizeof(int)), .min = 1};
    list.items[0] = calls;
    list.max = spec->is_single ? 1 : NO_LIMIT;
    return add_value(g, (Def){DEF_ARRAY, .array = list});
}

// Texts of calls.

// The values that texts of calls consist of.
typedef struct {
    int json, space, separator, closer; // closer may be NONE
    bool is_single;                     // no call follows another
} CallParts;

// Adds a value of one or more calls, the first one after a tag (NONE: no tag).
static int add_texts(Grammar *g, const CallParts *p, int opener, bool has_space) {
    int first = grammar_add_value(g), all = grammar_add_value(g);
    add_sequence(g, first, (int[]){opener, p->json, p->closer}, 3);
    if (has_space) add_sequence(g, first, (int[]){opener, p->space, p->json, p->closer}, 4);
    add_alts(g, all, first);
    if (p->is_single) return all;

    // Without a closer, only the first call has a tag. Otherwise all calls have the same form.
    bool has_one_tag = opener != NONE && p->closer == NONE;
    int others = has_one_tag ? add_texts(g, p, NONE, false) : all;
    add_sequence(g, all, (int[]){first, p->separator}, 2);
    add_sequence(g, all, (int[]){first, p->separator, others}, 3);
    return all;
}

static bool is_bare(const char *opener) { return *opener == '{'; }

bool grammar_add_calls(Grammar *g, const CallSpec *spec, const Tokenizer *t, unsigned modes,
                       ConstraintNotes *notes, Error *err) {
    int json = add_json(g, spec, modes, notes, err);
    if (json == NONE) return false;

    // A list holds all calls. In a free answer, a call with a closer is a text of its own.
    bool ends_at_closer = spec->is_opened && *spec->closer;
    CallParts parts = {.json = json,
                       .closer = add_tag(g, t, spec->closer),
                       .is_single = spec->is_list || spec->is_single || ends_at_closer};
    parts.space = add_pattern(g, "[ \\n]{1,2}");
    parts.separator = add_pattern(g, ";[ \\n]{0,2}|[ \\n]{1,2}");

    // Add the texts of each form to those of the source.
    int root = grammar_add_value(g);
    if (g->root != NONE) add_alts(g, root, g->root);
    if (spec->is_opened || !spec->n_openers)
        add_alts(g, root, add_texts(g, &parts, NONE, spec->is_opened));
    for (int i = 0; i < spec->n_openers && !spec->is_opened; i++) {
        const char *opener = spec->openers[i];
        bool has_tag = !is_bare(opener);
        add_alts(g, root, add_texts(g, &parts, has_tag ? add_tag(g, t, opener) : NONE, has_tag));
    }
    g->root = root;
    return true;
}

void calls_put_shape(const CallSpec *spec, Buffer *out) {
    JsonDoc doc = {0};
    bool has_bare = false;
    for (int i = 0; i < spec->n_openers; i++) has_bare |= is_bare(spec->openers[i]);
    if (!has_bare || !spec->tools.len) return;
    if (!json_parse(&doc, spec->tools.data, spec->tools.len, &(Error){0})) return;

    JsonWriter w = json_object(out);
    json_write_string(&w, "type", str_of("object"));
    json_write_format(&w, "required", "[\"name\",\"%s\"]", spec->key);
    json_begin_object(&w, "properties");
    json_begin_object(&w, "name");
    json_begin_array(&w, "enum");
    for (const Json *tool = doc.root->child; tool; tool = tool->next)
        json_write_string(&w, NULL, tool_name(tool));
    json_end_array(&w);
    json_end_object(&w);
    json_write_format(&w, spec->key, "{\"type\":\"object\"}");
    json_end_object(&w);
    json_end_object(&w);
    json_free(&doc);
}
