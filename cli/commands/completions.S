/* The completion scripts: the text of each file in cli/commands/completions/, under the symbol
   completion_NAME, which cli/commands/completion.c lists, and sections of the manual page (cli/commands/help.c). */
#include "base/embed.inc"

        embed EMBED_SYMBOL(completion_bash), cli/commands/completions/bash
        embed EMBED_SYMBOL(completion_zsh), cli/commands/completions/zsh
        embed EMBED_SYMBOL(completion_fish), cli/commands/completions/fish
        embed EMBED_SYMBOL(manual_sections), cli/commands/manual.roff
