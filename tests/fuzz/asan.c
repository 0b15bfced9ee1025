// Default options of AddressSanitizer, linked into programs that are built with it. $ASAN_OPTIONS
// overrides them.

const char *__asan_default_options(void); // called by the runtime library

// Without this option gcc's instrumentation does not detect a use after return.
const char *__asan_default_options(void) { return "detect_stack_use_after_return=1"; }
