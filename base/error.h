// Errors: exit codes, messages that callers report, and ways to end the program.
//
// Functions that can fail take an Error and return false or NULL after filling it in. Commands end
// the program with die_error(). Control bytes in messages are escaped, because messages quote file
// names and model data.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit codes of the program, a part of its interface.
enum {
    EXIT_OK = 0,
    EXIT_RUNTIME = 1,      // I/O, memory, NaN in the activations
    EXIT_USAGE = 2,        // invalid command line
    EXIT_MODEL = 3,        // invalid model file
    EXIT_CONTEXT = 4,      // the prompt exceeds the context
    EXIT_RECORDS = 5,      // some batch records failed
    EXIT_INCOMPLETE = 6,   // a text was cut before it satisfied its constraint
    EXIT_INTERRUPTED = 130 // SIGINT
};

// Makes the compiler check a call against its printf format. fmt and args are the positions of the
// format and of its first argument, counted from 1.
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

typedef struct {
    int code;       // an exit code
    char text[512]; // one line, without newline
} Error;

// Fills err and returns false, for `return error_set(...)`. Arguments may point into *err.
bool error_set(Error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Fills err with EXIT_RUNTIME and "PATH: " followed by the message for errno. Returns false.
bool error_file(Error *err, const char *path);

// Print "llama31: MESSAGE" on stderr as one line. die(), die_error() and die_file() then end the
// program.
_Noreturn void die(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
_Noreturn void die_error(const Error *err);
_Noreturn void die_file(const char *path);
