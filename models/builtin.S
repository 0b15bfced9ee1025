/* Links models/stories.gguf into the program, aligned to 64 bytes: builtin_model up to builtin_model_end. */
#if defined(__APPLE__)
#define SYMBOL(name) _##name
        .section __TEXT,__const
#else
#define SYMBOL(name) name
        .section .rodata
#endif
        .balign 64
        .globl SYMBOL(builtin_model)
        .globl SYMBOL(builtin_model_end)
SYMBOL(builtin_model):
        .incbin "models/stories.gguf"
SYMBOL(builtin_model_end):
        .byte 0
#if defined(__ELF__)
        .section .note.GNU-stack, "", %progbits
#endif
