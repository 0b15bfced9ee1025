#include "os/windows/posix.h"
