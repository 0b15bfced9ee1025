/* The completion scripts: the text of each file in commands/completions/, under the symbol
   completion_NAME, which commands/completion.c lists, and sections of the manual page (commands/help.c). */
#include "../base/embed.inc"

        embed EMBED_SYMBOL(completion_bash), commands/completions/bash
        embed EMBED_SYMBOL(completion_zsh), commands/completions/zsh
        embed EMBED_SYMBOL(completion_fish), commands/completions/fish
        embed EMBED_SYMBOL(manual_sections), commands/manual.roff
