/* The built-in chat templates: the text of each file in chat/templates/, ended by a NUL byte, under the symbol
   template_NAME. chat/template.c lists them. */
#if defined(__APPLE__)
#define SYMBOL(name) _##name
        .section __TEXT,__const
#else
#define SYMBOL(name) name
        .section .rodata
#endif
        .macro template symbol, file
        .globl \symbol
\symbol:
        .incbin "chat/templates/\file"
        .byte 0
        .endm

        template SYMBOL(template_alpaca), alpaca.jinja
        template SYMBOL(template_chatml), chatml.jinja
        template SYMBOL(template_llama2), llama2.jinja
        template SYMBOL(template_llama3), llama3.jinja
        template SYMBOL(template_llama3_1), llama3.1.jinja
        template SYMBOL(template_mistral), mistral.jinja
        template SYMBOL(template_none), none.jinja
        template SYMBOL(template_vicuna), vicuna.jinja
        template SYMBOL(template_zephyr), zephyr.jinja
#if defined(__ELF__)
        .section .note.GNU-stack, "", %progbits
#endif
