// Fuzz target: templates from a grammar. Every input is a template that parses and that keeps,
// calls, compares and prints values of all kinds.
#include "tests/fuzz/productions.h"
#include "base/json.h"
#include "chat/jinja/jinja.h"

// In a production, '@' is an expression, '$' a variable, '#' a list of statements.
// clang-format off
static const char *const names[] = {
    "a", "b", "c", "s", "l", "d", "n", "missing", "m", "loop", "ns.a", "ns.b", "ns", "q",
    "huge", "ns.c", "t",
};
static const char *const expressions[] = {
    "$", "1", "'x.y'", "none", "[]", "'a'", "-1", "2.5", "9223372036854775807", "$", "true", "{}",
    "loop", "m", "range(3)", "[@, @]", "(@, @)", "(@,)", "{'a': @, 'k': @}", "{@: @}", "(@ + @)",
    "(@ - @)", "(@ * @)", "(@ / @)", "(@ // @)", "(@ % @)", "(@ ** @)", "(@ ~ @)", "(@ == @)",
    "(@ < @)", "(@ < @ <= @)", "(@ in @ != @)", "('%s-%5d' % (@, @))", "('%r%x' % @)",
    "('%(a)s%(k)5.2f' % @)", "('%*.*e' % (@, @, @))", "(@ % (@, @))", "((@)|string % @)",
    "'{}{1:>5}'.format(@)", "'{:{}}{a!r:*^9}'.format(@, @, a=@)", "'{0[a]}{0.k:,}'.format(@)",
    "((@)|string).format(@, k=@)", "'{:08.3f}{:x}'.format(@, @)", "'{a}'.format_map(@)",
    "(@ in @)", "(@ and @)", "(@ or @)", "(not @)", "(-@)", "(@ if @ else @)", "(@).a",
    "(@).k", "(@)[@]", "(@)[@:@]", "(@)[::@]", "(@)[@:@:@]", "loop.index", "loop.last",
    "loop.length", "loop.nextitem", "loop.previtem", "loop.revindex",
    "loop.depth", "loop.cycle(@, @)", "loop.changed(@)",
    "(@).index", "(@).length", "(@).last", "(@).nextitem", "loop(@)", "(@)(@)",
    "(@)()", "m(@)", "m(a=@, b=@)", "m(*@)", "m(**@)", "v(@, *@, k=@, **@)", "namespace(a=@)",
    "namespace(@)", "dict(@, k=@)", "cycler(@, @).next()", "joiner(@)()",
    "range(@, @, @)", "range(@)", "(@)|default(@)",
    "(@)|list", "(@)|first", "(@)|last", "(@)|length", "(@)|string", "(@)|int",
    "(@)|upper", "(@)|trim", "(@)|tojson", "(@)|tojson(sort_keys=true)", "(@)|tojson(indent=@)",
    "(@)|join(@)", "(@)|join(attribute=@)", "(@)|map('string')|list", "(@)|map(attribute=@)|list",
    "(@)|map(attribute='k', default=@)|list", "(@)|map(@, @)", "(@)|select|list",
    "(@)|select(@, @)|list", "(@)|reject('none')", "(@)|selectattr(@)|list",
    "(@)|selectattr('a', 'eq', @)|list", "(@)|sort", "(@)|sort(attribute=@)",
    "(@)|reverse", "(@)|items|list", "(@)|dictsort", "(@)|replace(@, @)", "(@)|indent(@)",
    "(@)|escape", "(@)|safe", "(@)|title", "((@) is defined)", "((@) is mapping)",
    "((@) is iterable)", "((@) is eq(@))", "((@) is in(@))", "((@) is callable)",
    "((@) is string)", "(@).keys()|list", "(@).items()|list",
    "(@).values()", "(@).get(@, @)", "(@).get", "(@).split(@)", "(@).split(@, @)", "(@).strip(@)",
    "(@).startswith(@)", "(@).endswith((@, @))",
    "(@).replace(@, @, @)", "(@).find(@)", "(@).join(@)", "(@).upper",
    "(@).split(@, @)", "(@).title()", "(@).1", "(@).rsplit(@, @)", "(@).partition(@)",
    "(@).rpartition(@)", "(@).splitlines(@)", "(@).count(@, @)", "(@).rfind(@, @, @)",
    "(@).index(@)", "(@).center(@, @)", "(@).zfill(@)", "(@).ljust(@)", "(@).islower()",
    "(@)|min", "(@)|max(attribute=@)", "(@)|unique|list", "(@)|sum", "(@)|sum(start=@)",
    "(@)|groupby(@)", "(@)|groupby('k', default=@)", "(@)|batch(@, @)|list", "(@)|slice(@)|list",
    "(@)|sort(attribute='a,k')", "(@)|map(attribute='a.0')|list", "(@)|dictsort(by='value')",
    "(@)|float(@)", "(@)|int(@, 16)", "(@)|round(@)", "(@)|round(@, 'ceil')", "(@)|abs",
    "(@)|format(@)", "(@)|format(a=@)", "(@)|truncate(@, @)", "(@)|center(@)", "(@)|wordcount",
    "(@)|urlencode", "(@)|attr(@)", "(@)|lower", "(@)|capitalize", "(@)|forceescape",
    "((@) is divisibleby(@))", "((@) is sameas(@))", "((@) is upper)", "((@) is escaped)",
    "((@) is even)", "((@) is filter)",
};
static const char *const statements[] = {
    "x", "{{ @ }}", "{{ @ }}", "{% set a = @ %}", "{% set b = @ %}", "{% set ns.a = @ %}",
    "{% set ns.b = ns.b + [@] %}", "{% set ns.c = loop %}", "{% set b, c = @ %}",
    "{% set c %}#{% endset %}", "{% set c | replace(@, @) %}#{% endset %}",
    "{% if @ %}#{% endif %}", "{% if @ %}#{% elif @ %}#{% else %}#{% endif %}",
    "{% for a in @ %}#{% endfor %}", "{% for a in l %}#{% else %}#{% endfor %}",
    "{% for a in l if @ %}#{% endfor %}", "{% for a, b in @ %}#{% endfor %}",
    "{% for a in l %}#{% break %}{% endfor %}",
    "{% for a in l %}{% set ns.c = loop %}#{% endfor %}", "{% macro m(a, b=@) %}#{% endmacro %}",
    "{% macro m(a=ns) %}#{{ @ }}{% set ns.a = m %}{% endmacro %}",
    "{% filter upper %}#{% endfilter %}", "{% filter format(@) %}#{% endfilter %}",
    "{% for a in @ recursive %}#{{ loop(@) }}{% endfor %}",
    "{% for a, b in l if @ recursive %}#{{ loop.length }}{% endfor %}",
    "{% for a, (b, c) in @ %}#{% endfor %}",
    "{% with a = @, b = @ %}#{% endwith %}", "{% with a, b = @ %}#{% endwith %}",
    "{% raw %}{{ @ }}{% endraw %}",
    "{% macro v(a) %}#{{ varargs }}{{ kwargs }}{{ caller(@) if caller }}{% endmacro %}",
    "{% call(q) v(@, @) %}#{{ q }}{% endcall %}", "{% call m(@) %}#{% endcall %}",
    "{% call(a=@) v(k=@) %}#{% endcall %}",
};
// clang-format on

static const Symbol symbols[] = {
    SYMBOL('@', expressions),
    LEAF_SYMBOL('$', names),
    {'#', statements, sizeof statements / sizeof *statements, 3, false},
    {0}};

static void put_template(const uint8_t *data, size_t n, Buffer *out) {
    enum { MAX_BYTES = 16000, MAX_DEPTH = 7 };
    Productions p = {.symbols = symbols, .max_depth = MAX_DEPTH, .data = data, .n = n};
    buffer_puts(&p.text, "{% set ns = namespace(a=1, b=[], c=0) %}"
                         "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}"
                         "{% macro v(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}");
    while (p.n && p.text.len < MAX_BYTES) {
        size_t i = production_choose(&p, sizeof statements / sizeof *statements);
        production_put(&p, statements[i]);
    }
    buffer_puts(&p.text, "{{ ns.a }}{{ ns.c.index }}{{ ns.c.last }}{{ a }}");
    fuzz_show(buffer_str(&p.text));
    *out = p.text;
}

// The template parses. Rendering it fails with a message, or gives a text and its mask; doing it
// again gives the same.
void fuzz_templates(const uint8_t *data, size_t n) {
    static const char variables[] =
        "{\"s\":\"a b\\nC\",\"l\":[3,1,2],\"d\":{\"a\":[{\"k\":1}],\"k\":\"v\"},\"n\":null,"
        "\"huge\":123456789012345678901234567890,\"t\":[[\"a\",1],[\"b\",2]]}";
    static JsonDoc doc;
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    Buffer source = {0}, text[2] = {{0}}, mask[2] = {{0}};
    Error err[2] = {{0}};
    bool ok[2];
    if (!doc.root) HOLDS(json_parse(&doc, variables, sizeof variables - 1, err));
    put_template(data, n, &source);
    Jinja *t = jinja_open(buffer_str(&source), "fuzz", err);
    HOLDS(t);
    for (int i = 0; i < 2; i++) {
        const JinjaInput in = {
            .objects = (const Json *const[]){doc.root}, .n_objects = 1, .now = &now};
        ok[i] = jinja_render(t, &in, &text[i], &mask[i], &err[i]);
        HOLDS(ok[i] || *err[i].text);
        HOLDS(text[i].len == mask[i].len);
    }
    HOLDS(ok[0] == ok[1] && str_eq(str_of(err[0].text), str_of(err[1].text)));
    HOLDS(str_eq(buffer_str(&text[0]), buffer_str(&text[1])));
    HOLDS(str_eq(buffer_str(&mask[0]), buffer_str(&mask[1])));
    jinja_close(t);
    buffer_free(&source);
    for (int i = 0; i < 2; i++) {
        buffer_free(&text[i]);
        buffer_free(&mask[i]);
    }
}
