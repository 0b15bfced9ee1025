// Errors: exit codes, messages for callers to report, and ways to end the program.
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit codes of the program; part of its contract (see README.md).
enum {
    EXIT_OK = 0,
    EXIT_RUNTIME = 1,      // I/O, memory, NaN
    EXIT_USAGE = 2,        // the command line is wrong
    EXIT_MODEL = 3,        // the model file is wrong
    EXIT_CONTEXT = 4,      // the prompt does not fit the context
    EXIT_RECORDS = 5,      // some batch records failed
    EXIT_INTERRUPTED = 130 // SIGINT
};

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

// What went wrong, for the caller to print or to put into a record. `code` is an exit code.
typedef struct {
    int code;
    char text[512];
} Error;

// Fills `err` and returns false, so that a function can `return error_set(...)`. Control bytes are
// escaped. Nothing here asks for memory: it may be what is short.
bool error_set(Error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

// The same (exit 1) with a file's name and what errno says.
bool error_file(Error *err, const char *path);

// Prints "llama31: TEXT" as one line on stderr with control bytes escaped; die ends the program
// with `code`.
_Noreturn void die(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Ends the program with what `err` says; with a file's name and what errno says (exit 1).
_Noreturn void die_error(const Error *err);
_Noreturn void die_file(const char *path);

#endif
