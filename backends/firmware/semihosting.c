/* Arm semihosting calls ("Semihosting for AArch32 and AArch64", Arm's abi-aa); under a monitor, by `svc`. */
#include "semihosting.h"

enum operation {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE0 = 0x04,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_EXIT_EXTENDED = 0x20,
};

enum { ADP_STOPPED_APPLICATION_EXIT = 0x20026 };

#ifdef TOSAIC_MONITOR
#define TRAP "svc"
#else
#define TRAP "bkpt"
#endif

static uint32_t call(enum operation operation, const void *arguments)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile(TRAP " 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

host_file host_open(const char *path, enum host_mode mode)
{
    const volatile char *end = path; /* volatile, or compilers call strlen, and newlib's takes 220 bytes */
    while (*end)
        end++;
    uint32_t arguments[] = {(uint32_t)path, mode, (uint32_t)(end - path)};
    return (host_file)call(SYS_OPEN, arguments);
}

void host_close(host_file file)
{
    uint32_t arguments[] = {(uint32_t)file};
    call(SYS_CLOSE, arguments);
}

/* SYS_READ and SYS_WRITE answer the bytes *not* transferred; a pipe transfers what it holds at the moment. */
static size_t transfer(enum operation operation, host_file file, uint8_t *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        uint32_t arguments[] = {(uint32_t)file, (uint32_t)(data + done), size - done};
        uint32_t left = call(operation, arguments);
        if (left >= size - done)
            break;
        done = size - left;
    }
    return done;
}

size_t host_read(host_file file, void *data, size_t size)
{
    return transfer(SYS_READ, file, data, size);
}

size_t host_write(host_file file, const void *data, size_t size)
{
    return transfer(SYS_WRITE, file, (uint8_t *)data, size);
}

void host_print(const char *text)
{
    call(SYS_WRITE0, text);
}

void host_print_hex(uint32_t value)
{
    char text[] = "0x00000000";
    for (int digit = 0; digit < 8; digit++)
        text[9 - digit] = "0123456789abcdef"[value >> 4 * digit & 15];
    host_print(text);
}

_Noreturn void host_exit(int code)
{
    uint32_t arguments[] = {ADP_STOPPED_APPLICATION_EXIT, (uint32_t)code};
    call(SYS_EXIT_EXTENDED, arguments);
    for (;;)
        ;
}
