#if defined(__x86_64__)
#define VL 8
#define ATTEND_NAME attend_avx2
#include "cpu/attend_kernel.h"
#else
typedef int not_on_this_machine;
#endif
