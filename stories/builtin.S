/* The built-in model: models/stories.gguf, under the symbol builtin_model. */
#include "../base/embed.inc"

        embed EMBED_SYMBOL(builtin_model), models/stories.gguf
