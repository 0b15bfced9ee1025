// The identity of a run of batch: what its answers depend on beside their requests. The first
// result of an output has it in the member "run"; --resume compares it.
//
//     {"version":3,"command":"batch","arithmetic":"avx512","shard":"1/3:prefix",
//      "options":{"--model":{"file":"HASH"},"--seed":7,"--temp":0.5}}
//
// The options are those of the table that can change an answer and differ from their defaults
// (option_values.h). "shard" is left out if there is one. SOURCE_DATE_EPOCH, the date that
// templates write, is a member if it is set.
#include "cli/commands/batch_output.h"
#include "cli/option_values.h"
#include "cli/output.h"

#include <stdio.h>
#include <unistd.h>

enum { IDENTITY_VERSION = 3 }; // increased when the value of an option is written in another way

static void put_identity(Buffer *out, const Pipeline *p, const char *shard) {
    const Options *o = p->options;
    const char *date = getenv("SOURCE_DATE_EPOCH");
    Buffer arithmetic = {0};
    kernels_put_arithmetic(&arithmetic, o->model.load.is_batch_invariant);

    JsonWriter w = json_object(out);
    json_write_int(&w, "version", IDENTITY_VERSION);
    json_write_string(&w, "command", str_of(o->command));
    json_write_string(&w, "arithmetic", buffer_str(&arithmetic));
    if (*shard) json_write_string(&w, "shard", str_of(shard));
    if (date && *date) json_write_string(&w, "SOURCE_DATE_EPOCH", str_of(date));

    json_begin_object(&w, "options");
    OptionWalk walk = option_walk(o->flag, o, &p->settings, p);
    while (option_walk_next(&walk))
        if (option_walk_has_changed(&walk)) json_write_format(&w, walk.name, "%s", walk.value);
    json_end_object(&w);

    json_end_object(&w);
    buffer_free(&arithmetic);
}

// Appends a value to a message: of a file or a long text, {"text":"HASH"}, only the hash is known.
static void put_shown(Buffer *out, const char *value) {
    char kind[8], hash[24];
    if (!strcmp(value, "null"))
        buffer_puts(out, "not set");
    else if (sscanf(value, "{\"%7[a-z]\":\"%23[0-9a-f]\"}", kind, hash) == 2)
        buffer_printf(out, "%s %s", kind, hash);
    else
        buffer_printf(out, "%.120s", value);
}

// Compares a member of two objects; where it is absent, it has the value `usual`.
static void compare_member(Buffer *out, const char *name, const Json *old, const Json *now,
                           const char *usual) {
    const Json *members[] = {json_get(old, name), json_get(now, name)};
    Buffer values[2] = {0};
    for (int i = 0; i < 2; i++)
        if (members[i])
            json_write_value(&(JsonWriter){.out = &values[i]}, NULL, members[i], NULL);
        else
            buffer_puts(&values[i], usual);

    if (strcmp(values[0].data, values[1].data) != 0) {
        buffer_printf(out, "%s%s ", out->len ? "; " : "", name);
        put_shown(out, values[0].data);
        buffer_puts(out, ", now ");
        put_shown(out, values[1].data);
    }

    for (int i = 0; i < 2; i++) buffer_free(&values[i]);
}

// Appends all differences between the identities of two runs of a command.
static void put_differences(Buffer *out, const Json *old, const Json *now, const Options *o) {
    const Json *old_options = json_get(old, "options"), *options = json_get(now, "options");
    Options defaults = options_default(o->command, o->flag);
    int n_known = 0;

    compare_member(out, "command", old, now, "null");
    compare_member(out, "arithmetic", old, now, "null");
    compare_member(out, "shard", old, now, "null");
    compare_member(out, "SOURCE_DATE_EPOCH", old, now, "null");

    OptionWalk walk = option_walk(o->flag, &defaults, &defaults.settings, NULL);
    while (option_walk_next(&walk)) {
        compare_member(out, walk.name, old_options, options, walk.usual);
        n_known += json_get(old_options, walk.name) != NULL;
    }
    if (old_options && n_known < old_options->n_items)
        buffer_printf(out, "%soptions that this command lacks", out->len ? "; " : "");
}

// The seed of the run that started an output; the text of a number, or empty.
static Str stored_seed(const Json *old) {
    const Json *seed = json_get(json_get(old, "options"), "--seed");
    return seed && seed->kind == JSON_NUMBER ? seed->string : (Str){0};
}

bool batch_output_shard(const BatchOutput *out, Shard *stored) {
    JsonDoc doc = {0};
    Error err;
    bool ok = out->run.len && json_parse(&doc, out->run.data, out->run.len, &err);
    const Json *shard = ok ? json_get_string(doc.root, "shard") : NULL;
    char text[SHARD_TEXT] = "";
    if (shard) {
        const char *rule = str_contains(shard->string, ":") ? "" : ":lines";
        snprintf(text, sizeof text, "%.*s%s", SHOWN(shard->string), rule);
    }
    json_free(&doc);
    return shard_parse(stored, text);
}

void batch_output_use_rule(const BatchOutput *out, Shard *shard) {
    Shard stored;
    if (!shard->has_rule && batch_output_shard(out, &stored)) shard->by_lines = stored.by_lines;
}

// Another version writes values in another way, so nothing can be compared.
static void check_version(const Json *old, const char *path) {
    const Json *version = json_get(old, "version");
    if (version && version->number == IDENTITY_VERSION) return;
    die(EXIT_USAGE,
        "%s: the identity of its run has version %.0f, this program writes version %d; complete it "
        "with the program that started it, start another output, or --force",
        path, version ? version->number : 1, IDENTITY_VERSION);
}

void batch_output_resume(BatchOutput *out, Pipeline *p, const Shard *shard) {
    const Options *o = p->options;
    char place[SHARD_TEXT];
    JsonDoc old = {0}, new = {0};
    Buffer now = {0}, differences = {0};
    Error err;

    if (!out->journal.is_file || out->journal.fd == STDOUT_FILENO) return;
    shard_put(shard, place);

    bool is_compared = out->run.len && !o->output.is_forced;
    if (is_compared && !json_parse(&old, out->run.data, out->run.len, &err)) die_error(&err);
    if (is_compared) check_version(old.root, out->journal.path);

    // A resumed run uses the seed of the first run, unless --seed is given.
    Str seed = stored_seed(old.root);
    if (seed.len && !p->settings.has_seed) p->settings.sample.seed = strtoull(seed.data, NULL, 10);

    put_identity(&now, p, place);
    if (is_compared && json_parse(&new, now.data, now.len, &err))
        put_differences(&differences, old.root, new.root, o);
    if (differences.len) {
        note(NULL, "llama31: %s was started with other options: %s; --force resumes anyway",
             out->journal.path, differences.data);
        exit(EXIT_USAGE);
    }

    out->adds_run = !str_eq(buffer_str(&out->run), buffer_str(&now));
    buffer_free(&out->run);
    out->run = now;
    json_free(&old);
    json_free(&new);
}
