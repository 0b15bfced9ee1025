/* The built-in model: stories/stories.gguf, under the symbol builtin_model. */
#include "base/embed.inc"

        embed EMBED_SYMBOL(builtin_model), stories/stories.gguf
