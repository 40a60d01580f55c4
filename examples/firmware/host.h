/* Words to whoever watches: here a debugger or a simulator, by semihosting. A product has a UART of its own here. */
#ifndef HOST_H
#define HOST_H

#include <stdint.h>

void host_say(const char *text);
void host_say_number(uint32_t number);
_Noreturn void host_end(int status);

#endif
