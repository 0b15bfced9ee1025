// The option table says which options name files, and the name of the first shard of a model gives
// the names of the others. All files are therefore known before any of them is read, and every
// parser of untrusted input runs inside the sandbox. Three commands differ:
//
//   bench   reads the energy counters of the system
//   chat    with commands (on a terminal, or --commands): reads any file (/file, /load,
//           completion), and writes (/save) below the current directory and the directory of
//           temporary files
//   help    reads no file, and does not enter the sandbox
#include "cli/privileges.h"
#include "cli/output.h"
#include "base/files.h"
#include "base/os/os.h"
#include "base/os/sandbox.h"
#include "base/os/threads.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    SandboxPath *items; // (n)
    int n;
} PathList;

static void add_path(PathList *p, const char *path, SandboxAccess access) {
    p->items = list_grow(p->items, p->n, sizeof *p->items);
    p->items[p->n++] = (SandboxPath){path, access};
}

static void add_input(PathList *p, const char *path) {
    add_path(p, path, SANDBOX_READ);
    unsigned n = gguf_n_shards(path);
    for (unsigned i = 2; i <= n; i++) {
        Buffer shard = {0};
        gguf_put_shard_path(&shard, path, i, n);
        add_path(p, shard.data, SANDBOX_READ);
    }
}

// The file is created in the directory of its target, or replaced from a temporary file there. A
// device is written directly.
static void add_output(PathList *p, const char *path) {
    struct stat st;
    Error err;
    char *target = file_resolve_links(path, &err);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        add_path(p, path, S_ISDIR(st.st_mode) ? SANDBOX_READ : SANDBOX_WRITE);
    else if (target)
        add_path(p, file_directory(target), SANDBOX_WRITE);
    free(target);
}

// Adds the files that an option names. "-" is a standard stream.
static void add_option(PathList *p, const Options *o, const Option *option) {
    const ModelOptions *m = &o->model.load;
    bool names_file = option->kind >= OPTION_TEXT && option->kind <= OPTION_DIRECTORY;
    const char *path = names_file ? *(const char *const *)((const char *)o + option->offset) : NULL;

    if (option->kind == OPTION_LORA)
        for (int i = 0; i < m->n_adapters; i++) add_input(p, str_copy(m->adapters[i].path).data);

    if (option->kind == OPTION_TEXT && path) path = *path == '@' ? path + 1 : NULL;
    if (!path || !*path || !strcmp(path, "-")) return;

    switch (option->kind) {
    case OPTION_OUTPUT: add_output(p, path); break;
    case OPTION_DIRECTORY:
        mkdir(path, 0700);
        add_path(p, path, SANDBOX_WRITE);
        break;
    default: add_input(p, path);
    }
}

const char *history_path(const Options *o) {
    static Buffer path;
    const char *named = getenv("LLAMA31_HISTORY");
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");

    if (o->chat.no_history || (named && !*named)) return NULL;
    if (named) return named;

    path.len = 0;
    if (state && *state == '/')
        buffer_puts(&path, state);
    else if (home && *home == '/')
        buffer_printf(&path, "%s/.local/state", home);
    else
        return NULL;
    buffer_puts(&path, "/llama31/history");

    // Create its directories.
    for (char *at = path.data + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path.data, 0700);
        *at = '/';
    }

    return path.data;
}

const char *history_missing(const Options *o) {
    if (o->chat.no_history) return "--no-history";
    if (getenv("LLAMA31_HISTORY")) return "$LLAMA31_HISTORY names no file";
    return "neither $XDG_STATE_HOME nor $HOME is an absolute path";
}

char *history_beside(const Options *o, const char *suffix) {
    const char *history = history_path(o);
    struct stat st;
    if (!history || (stat(history, &st) == 0 && !S_ISREG(st.st_mode))) return NULL; // /dev/null
    return text_format("%s%s", history, suffix);
}

static void add_chat(PathList *p, const Options *o) {
    const char *temporary = getenv("TMPDIR"), *history = history_path(o);
    if (o->chat.has_commands || isatty(STDIN_FILENO)) {
        add_path(p, "/", SANDBOX_READ_TREE);
        add_path(p, ".", SANDBOX_WRITE);
        add_path(p, temporary ? temporary : "/tmp", SANDBOX_WRITE);
    }
    if (history) add_output(p, history); // allows its directory, thus all files beside it
}

static bool is_disabled(const Options *o) { return o->sandbox && !strcmp(o->sandbox, "none"); }

// The files that the command line names. An empty list would deny all files, including those of the
// system.
static void add_all(PathList *p, const Options *o) {
    add_path(p, "/dev/null", SANDBOX_READ);
    for (const Option *row = option_table; row < option_table + n_option_rows; row++)
        if (row->names[0] && row->commands & o->flag) add_option(p, o, row);
    if (o->flag & (CMD_SHOW | CMD_QUANTIZE) && o->n_args) add_input(p, o->args[0]);
    if (o->flag == CMD_QUANTIZE && o->n_args > 1) add_output(p, o->args[1]);
    if (o->flag == CMD_CHAT) add_chat(p, o);
    if (o->flag == CMD_BENCH && os_energy_directory())
        add_path(p, os_energy_directory(), SANDBOX_READ_TREE);
}

// What the system lacks, if not all layers could be entered.
static const char *missing_layers(unsigned layers) {
    if (!layers) return "seccomp and Landlock";
    return layers & SANDBOX_FILES ? "seccomp (system calls)" : "Landlock (files)";
}

void enter_sandbox(const Options *o) {
    static PathList paths; // static: its strings have no other owner
    const char *mode = o->sandbox ? o->sandbox : "auto";
    bool is_required = !strcmp(mode, "require");
    if (!str_is_one_of(str_of(mode), "auto require none"))
        die(EXIT_USAGE, "--sandbox: expected auto, require or none, found \"%s\"", mode);

    add_all(&paths, o);
    tzset(); // reads the files of the time zone, which templates may need later

    if (is_disabled(o) || o->flag == CMD_HELP) return;
    threads_available(); // starts the OpenMP runtime; LLVM's aborts if it cannot create a file

    // The sandbox opens two descriptors. It would deny all files that it cannot open itself.
    int spare[2];
    if (pipe(spare)) die(EXIT_RUNTIME, "sandbox: %s", strerror(errno));
    close(spare[0]);
    close(spare[1]);

    unsigned layers = sandbox_enter(paths.items, paths.n);
    if (layers == SANDBOX_ALL) return;
    if (is_required)
        die(EXIT_RUNTIME, "--sandbox require: this system lacks %s", missing_layers(layers));
    if (o->is_verbose) note(o, "sandbox: this system lacks %s", missing_layers(layers));
}

void close_file_access_except(const Options *o, const char *directory) {
    SandboxPath paths[2];
    int n = 0;
    if (o->model.cache && *o->model.cache)
        paths[n++] = (SandboxPath){o->model.cache, SANDBOX_WRITE};
    if (directory) paths[n++] = (SandboxPath){directory, SANDBOX_REMOVE};
    if (!is_disabled(o)) sandbox_enter(paths, n);
}

void close_file_access(const Options *o) { close_file_access_except(o, NULL); }
