/* The built-in chat templates: the text of each file in chat/templates/, under the symbol template_NAME.
   chat/template.c lists them. */
#include "base/embed.inc"

        embed EMBED_SYMBOL(template_alpaca), chat/templates/alpaca.jinja
        embed EMBED_SYMBOL(template_chatml), chat/templates/chatml.jinja
        embed EMBED_SYMBOL(template_llama2), chat/templates/llama2.jinja
        embed EMBED_SYMBOL(template_llama3), chat/templates/llama3.jinja
        embed EMBED_SYMBOL(template_llama3_1), chat/templates/llama3.1.jinja
        embed EMBED_SYMBOL(template_mistral), chat/templates/mistral.jinja
        embed EMBED_SYMBOL(template_none), chat/templates/none.jinja
        embed EMBED_SYMBOL(template_vicuna), chat/templates/vicuna.jinja
        embed EMBED_SYMBOL(template_zephyr), chat/templates/zephyr.jinja
