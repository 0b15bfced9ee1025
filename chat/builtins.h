// Chat templates for files that bring none: Jinja, as the files' own are.
#ifndef CHAT_BUILTINS_H
#define CHAT_BUILTINS_H

typedef struct {
    const char *name, *source;
} BuiltinTemplate;

extern const BuiltinTemplate builtin_templates[]; // up to a name NULL

#endif
