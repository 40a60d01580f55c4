/* Arm semihosting, as OpenOCD (`arm semihosting enable`), pyOCD, J-Link and QEMU serve it. Without any of them the core
 * stops at the first call. */
#include "host.h"

enum { SYS_WRITE0 = 0x04, SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

static void call(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void host_say(const char *text)
{
    call(SYS_WRITE0, text);
}

void host_say_number(uint32_t number)
{
    char digits[11] = "0000000000";
    int first = 9;
    for (int place = 9; place >= 0; place--, number /= 10) {
        digits[place] = '0' + number % 10;
        if (number % 10)
            first = place;
    }
    host_say(digits + first);
}

_Noreturn void host_end(int status)
{
    const uint32_t argument[] = {APPLICATION_EXIT, (uint32_t)status};
    call(SYS_EXIT_EXTENDED, argument);
    for (;;)
        ;
}
