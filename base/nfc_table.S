/* The tables of Unicode Normalization Form C, made by scripts/make_nfc.py and read by base/nfc.c. */
#include "base/embed.inc"

        embed EMBED_SYMBOL(nfc_table), base/nfc_table.txt
