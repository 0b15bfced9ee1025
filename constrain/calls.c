// Tool calls. The schema of a tool's arguments is a document of its own, so that its references,
// its draft and its failure do not concern other tools.
#include "constrain/constrain.h"

// Appends a note about a tool.
static void put_note(Buffer *out, Str tool, const char *what, const char *why) {
    buffer_printf(out, "%stool %.*s: %s: %s", out->len ? "; " : "", SHOWN(tool), what, why);
}

// Adds the value of a tool's arguments: an object that its schema, if there is one, allows. NONE
// only after an interrupt.
static int add_arguments(Grammar *g, const Json *schema, Str tool, unsigned modes,
                         ConstraintNotes *notes, Error *err) {
    static const Json any = {.kind = JSON_BOOL, .boolean = true};
    Buffer unknown = {0};

    modes |= SCHEMA_OBJECT;
    int value = grammar_add_schema(g, schema ? schema : &any, modes, &unknown, err);
    if (value == NONE) {
        put_note(&notes->problems, tool, "its arguments are only a JSON object", err->text);
        value = grammar_add_schema(g, &any, modes, NULL, err);
    } else if (unknown.len) {
        put_note(&notes->ignored, tool, "JSON Schema: ignored", unknown.data);
    }

    buffer_free(&unknown);
    return value;
}

// Adds a value with one alternative, which is possible.
static int add_value(Grammar *g, Def def) {
    int value = grammar_add_value(g);
    grammar_add_alt(g, value, grammar_add(g, def));
    g->values[value].is_possible = true;
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
    ObjectDef call = {.other = NONE, .min = 2, .max = 2};
    grammar_add_alt(g, value, grammar_add_object(g, call, sorted, 2));
}

// Adds the calls of all tools of a spec to a value. Returns their number, or -1 with err after an
// interrupt.
static int add_calls(Grammar *g, int value, const Json *tools, const CallSpec *spec, unsigned modes,
                     ConstraintNotes *notes, Error *err) {
    int n = 0;
    for (const Json *tool = tools->child; tool; tool = tool->next) {
        const Json *function = json_get(tool, "function");
        Str name = json_get(function, "name")->string;
        if (spec->only.data && !str_eq(spec->only, name)) continue;

        const Json *schema = json_get_value(function, "parameters");
        int arguments = add_arguments(g, schema, name, modes, notes, err);
        if (arguments == NONE) return -1;
        add_call(g, value, name, str_of(spec->key), arguments);
        n++;
    }
    return n;
}

Grammar *grammar_calls(const CallSpec *spec, unsigned modes, ConstraintNotes *notes, Error *err) {
    JsonDoc doc = {0};
    Str tools = spec->tools.len ? spec->tools : str_of("[]");
    if (!json_parse(&doc, tools.data, tools.len, err)) return NULL;

    Grammar *g = xalloc(1, sizeof *g);
    g->is_ordered = true;
    g->root = grammar_add_value(g);
    g->values[g->root].is_possible = true;
    int n = add_calls(g, g->root, doc.root, spec, modes, notes, err);
    json_free(&doc);

    if (n == 0) error_set(err, EXIT_RUNTIME, "tool_choice: the request has no such tool");
    if (n <= 0) {
        grammar_free(g);
        return NULL;
    }

    if (spec->is_list) {
        ArrayDef list = {
            .items = arena_alloc(&g->arena, 1, sizeof(int)), .min = 1, .max = NO_LIMIT};
        list.items[0] = g->root;
        g->root = add_value(g, (Def){DEF_ARRAY, .array = list});
    }
    return g;
}
