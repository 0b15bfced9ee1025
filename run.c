#include "base/util.h"
int main(void) { return EXIT_USAGE; }
