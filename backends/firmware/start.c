/* Where an image starts once the units are on: .bss cleared, `main`, and its end told to the host. */
#include <stdint.h>
#include <string.h>

#include "semihosting.h"

extern uint32_t __bss_start__[], __bss_end__[];
int main(void);

#define FPSCR_NO_TAIL_PREDICATION (4u << 16)

_Noreturn void start(void);
_Noreturn void start(void)
{
#ifdef __ARM_FEATURE_MVE
    /* What ran before may have ended within a tail-predicated loop. */
    __asm__ volatile("vmsr fpscr, %0" ::"r"(FPSCR_NO_TAIL_PREDICATION));
#endif
    memset(__bss_start__, 0, (size_t)((char *)__bss_end__ - (char *)__bss_start__));
    host_exit(main());
}
