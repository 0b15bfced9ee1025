#include "base/os/windows/posix.h"
