#define VL 4
#define ATTEND_NAME attend_plain
#include "cpu/attend_kernel.h"
