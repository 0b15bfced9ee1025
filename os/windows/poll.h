// Declared in posix.h, which is included before every file.
