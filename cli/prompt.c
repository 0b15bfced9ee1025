// See prompt.h.
#include "cli/prompt.h"
#include "base/files.h"
#include "base/os/os.h"

#include <errno.h>
#include <poll.h>
#include <strings.h>
#include <unistd.h>

bool argument_is_model(const char *arg) {
    return str_ends_with(str_of(arg), ".gguf") && (!strchr(arg, ' ') || access(arg, F_OK) == 0);
}

// True if a name without blanks begins, after its last slash, with a family (in any case) and
// continues with a number, a dash or a tag, or not at all.
static bool is_of_family(const char *name, const char *family) {
    const char *at = file_name(name);
    size_t n = strlen(family);
    return !strncasecmp(at, family, n) && strchr("-:0123456789", at[n]) && !strpbrk(name, " \n");
}

void model_take_argument(Options *o) {
    if (o->model.path && o->model.path != getenv("LLAMA31_MODEL")) return; // -m was given
    if (!o->n_args || !argument_is_model(o->args[0])) return;
    o->model.path = *o->args++;
    o->n_args--;
}

void prompt_prepare(Options *o) {
    struct stat st;
    model_take_argument(o);
    if (fstat(STDIN_FILENO, &st)) return;
    o->prompt.shares_stdin =
        S_ISREG(st.st_mode) ? lseek(STDIN_FILENO, 0, SEEK_CUR) > 0 : os_shell_reads_stdin(&st);
}

void run_prepare(Options *o) {
    static const char *const families[] = {"llama", "meta-llama", "tinyllama", "qwen",   "mistral",
                                           "gemma", "phi",        "deepseek",  "gpt-oss"};
    const char *before = o->model.path, *arg = o->n_args ? o->args[0] : "";

    prompt_prepare(o);
    bool is_taken = o->model.path != before;
    bool is_given = o->model.path && o->model.path != getenv("LLAMA31_MODEL");
    if (is_taken || is_given) return;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (is_of_family(arg, families[i]))
            die(EXIT_USAGE,
                "run: \"%s\" names a model; models are files (docs/models.md); text: -p TEXT", arg);
}

// Appends a text file without its final newline, which editors and `echo` add; with --keep-newline,
// a file of any bytes as it is.
static void append_file(const Options *o, const char *path, Buffer *out) {
    Error err;
    size_t begin = out->len;
    bool ok = o->prompt.keep_newline ? file_read(path, out, &err) : file_read_text(path, out, &err);
    if (!ok) die_error(&err);
    if (o->prompt.keep_newline) return;

    // "\n" or "\r\n"
    if (out->len == begin || out->data[out->len - 1] != '\n') return;
    out->data[--out->len] = 0;
    if (out->len > begin && out->data[out->len - 1] == '\r') out->data[--out->len] = 0;
}

// Appends stdin after an empty line, if it is no terminal or other device and has anything to read.
static void append_stdin(const Options *o, Buffer *out) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    struct stat st;
    size_t begin = out->len;
    if (fstat(STDIN_FILENO, &st) || S_ISCHR(st.st_mode)) return;

    bool is_file = S_ISREG(st.st_mode);
    bool is_at_end = is_file ? lseek(STDIN_FILENO, 0, SEEK_CUR) >= st.st_size
                             : poll(&in, 1, 0) > 0 && !(in.revents & POLLIN);
    if (is_at_end) return;
    if (o->prompt.shares_stdin)
        die(EXIT_USAGE,
            "%s: a calling script may read standard input, too; the argument - reads it, "
            "< /dev/null passes none",
            o->command);

    buffer_puts(out, begin ? "\n\n" : "");
    size_t end = out->len;
    append_file(o, "-", out);
    if (out->len == end) out->len = begin;
}

void prompt_read(const Options *o, Buffer *out) {
    bool has_stdin = o->prompt.file && !strcmp(o->prompt.file, "-");

    buffer_puts(out, "");
    if (o->prompt.text) buffer_puts(out, o->prompt.text);
    if (o->prompt.file) append_file(o, o->prompt.file, out);

    for (int i = 0; i < o->n_args; i++) {
        bool is_stdin = !strcmp(o->args[i], "-");
        if (i) buffer_puts(out, " ");
        if (is_stdin)
            append_file(o, "-", out);
        else
            buffer_puts(out, o->args[i]);
        has_stdin |= is_stdin;
    }

    bool has_text = o->prompt.text || o->prompt.file || o->n_args;
    if (!has_text && isatty(STDIN_FILENO))
        die(EXIT_USAGE, "%s: no prompt; pass TEXT, -f FILE or standard input", o->command);
    if (!has_text)
        append_file(o, "-", out);
    else if (!has_stdin)
        append_stdin(o, out);
}

void prompt_check(const Options *o, const Buffer *prompt) {
    bool is_given = o->prompt.text || o->n_args;
    bool is_bos = o->prompt.is_raw && !prompt->len && !o->prompt.file && is_given; // --raw ""
    if (str_is_blank(buffer_str(prompt)) && !is_bos) die(EXIT_USAGE, "the prompt is empty");
}

Str system_prompt_read(const Options *o, const Template *tpl) {
    Buffer file = {0};
    if (!o->prompt.system) return (Str){0};
    if (o->prompt.is_raw) die(EXIT_USAGE, "-sys: cannot be combined with --raw");
    if (tpl->is_none)
        die(EXIT_USAGE, "-sys: the model has no chat template; choose one (--template)");
    if (o->prompt.system[0] != '@') return str_copy(str_of(o->prompt.system));
    if (o->prompt.system[1] == '@') return str_copy(str_of(o->prompt.system + 1));
    append_file(o, o->prompt.system + 1, &file);
    return buffer_str(&file);
}

Str tools_read(const Options *o, const Template *tpl) {
    Buffer text = {0}, tools = {0};
    JsonDoc doc = {0};
    Error err;
    if (!o->prompt.tools) return (Str){0};
    if (o->prompt.is_raw) die(EXIT_USAGE, "--tools: cannot be combined with --raw");
    if (!file_read_text(o->prompt.tools, &text, &err)) die_error(&err);
    if (!json_parse(&doc, text.data, text.len, &err) || !tools_check(doc.root, tpl, &err))
        die(EXIT_USAGE, "%s: %s", o->prompt.tools, err.text);

    tools_put(doc.root, &tools);
    json_free(&doc);
    buffer_free(&text);
    return buffer_str(&tools);
}

// The name of a tool, or NULL.
static const Json *tool_name(const Json *tool) {
    return json_get_string(json_get(tool, "function"), "name");
}

// Checks one of an array of tools. Of equal names, only one could be called. A schema under another
// name than "parameters" would be ignored.
static bool tool_check(const Json *tools, const Json *tool, Error *err) {
    static const char form[] = "{\"type\":\"function\",\"function\":{\"name\":\"...\",...}}";
    const Json *type = json_get_string(tool, "type");
    const Json *function = json_get(tool, "function");
    const Json *name = tool_name(tool);

    if (!type) return error_set(err, EXIT_RUNTIME, "expected %s, found no type", form);
    if (!json_is(type, "function"))
        return error_set(err, EXIT_RUNTIME, "expected %s, found type \"%.*s\"", form,
                         SHOWN(type->string));
    if (!name || !name->string.len)
        return error_set(err, EXIT_RUNTIME, "expected %s, found no name beside type \"function\"",
                         form);

    for (const Json *other = tools->child; other != tool; other = other->next)
        if (str_eq(tool_name(other)->string, name->string))
            return error_set(err, EXIT_RUNTIME, "\"%.*s\" is the name of two tools",
                             SHOWN(name->string));

    bool has_parameters = json_get_value(function, "parameters");
    for (const Json *m = function->child; m && !has_parameters; m = m->next)
        if (m->kind == JSON_OBJECT)
            return error_set(err, EXIT_RUNTIME, "function: found \"%.*s\"; write \"parameters\"",
                             SHOWN(m->key));
    return true;
}

bool tools_check(const Json *tools, const Template *tpl, Error *err) {
    int i = 0;
    Error why;
    if (tools->kind != JSON_ARRAY) return error_set(err, EXIT_RUNTIME, "tools: not an array");
    for (const Json *tool = tools->child; tool; tool = tool->next, i++)
        if (!tool_check(tools, tool, &why))
            return error_set(err, EXIT_RUNTIME, "tools[%d]: %s", i, why.text);
    return !tools->n_items || tpl->takes_tools ||
           error_set(err, EXIT_RUNTIME, "tools: chat template %s does not support tools",
                     tpl->name);
}

void ids_parse(const char *text, int n_vocab, Ids *out) {
    static const char separators[] = " ,\t\r\n";
    const char *at = text + strspn(text, separators);
    while (*at) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id >= n_vocab || (*end && !strchr(separators, *end)))
            die(EXIT_USAGE, "token ids: expected numbers from 0 to %d, found \"%.20s\"",
                n_vocab - 1, at);
        ids_push(out, (int)id);
        at = end + strspn(end, separators);
    }
}
