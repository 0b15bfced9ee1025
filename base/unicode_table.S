/* Character classes of Unicode, made by scripts/make_unicode.py and read by base/unicode.c. */
#include "base/embed.inc"

        embed EMBED_SYMBOL(unicode_table), base/unicode_table.txt
