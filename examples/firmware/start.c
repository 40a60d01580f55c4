/* From reset to main: the units of the core on, code and data copied to where they run, .bss cleared, caches on.
 *
 * Clocks, pins and power are the vendor's: call their code from main. What runs before the copy lies in .boot, and calls
 * nothing that does not; accesses by `volatile` keep the compiler from calling memcpy.
 */
#include <stdint.h>

#include "host.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define CCR REGISTER(0xE000ED14)
#define CCR_DC (1u << 16)
#define CCR_IC (1u << 17)
#define CCR_LOB (1u << 19)
#define CCSIDR REGISTER(0xE000ED80)
#define CSSELR REGISTER(0xE000ED84)
#define CPACR REGISTER(0xE000ED88)
#define CPACR_CP10_CP11 (0xfu << 20)
#define ICIALLU REGISTER(0xE000EF50)
#define DCISW REGISTER(0xE000EF60)

#define BOOT __attribute__((section(".boot")))

extern uint32_t __stack[];
extern volatile uint32_t __code_load[], __code_start[], __code_end[];
extern volatile uint32_t __data_load[], __data_start[], __data_end[];
extern volatile uint32_t __bss_start[], __bss_end[];
int main(void);

/* Before anything else: compiled code may use these units in any function. */
BOOT static void units_on(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    CPACR |= CPACR_CP10_CP11; /* FPU and MVE share their registers, and this switch */
#endif
#if __ARM_ARCH >= 8 && defined(__ARM_FEATURE_MVE)
    CCR |= CCR_LOB; /* hardware loops */
#endif
    __asm__ volatile("dsb\n isb" ::: "memory");
}

BOOT static void copy(volatile uint32_t *to, volatile uint32_t *end, volatile const uint32_t *from)
{
    if (to == from)
        return;
    while (to < end)
        *to++ = *from++;
}

#ifdef WITH_CACHES
BOOT static void caches_on(void)
{
    CSSELR = 0; /* the data cache */
    __asm__ volatile("dsb" ::: "memory");
    uint32_t geometry = CCSIDR;
    uint32_t last_set = geometry >> 13 & 0x7fff, last_way = geometry >> 3 & 0x3ff, line_bits = (geometry & 7) + 4;
    int way_shift = last_way ? __builtin_clz(last_way) : 0;
    for (uint32_t set = 0; set <= last_set; set++)
        for (uint32_t way = 0; way <= last_way; way++)
            DCISW = set << line_bits | way << way_shift; /* what it holds since power-on is noise */
    ICIALLU = 0;
    __asm__ volatile("dsb\n isb" ::: "memory");
    CCR |= CCR_IC | CCR_DC;
    __asm__ volatile("dsb\n isb" ::: "memory");
}
#endif

/* Called once code is where it runs. */
__attribute__((noreturn, noinline)) static void started(void)
{
    for (volatile uint32_t *word = __bss_start; word < __bss_end; word++)
        *word = 0;
    host_end(main());
}

BOOT __attribute__((noreturn, used)) void Reset_Handler(void)
{
    units_on();
    copy(__code_start, __code_end, __code_load);
    copy(__data_start, __data_end, __data_load);
#ifdef WITH_CACHES
    caches_on();
#endif
    __asm__ volatile("dsb\n isb" ::: "memory");
    void (*volatile next)(void) = started; /* a call that reaches every address */
    next();
    for (;;)
        ;
}

BOOT static void Fault_Handler(void)
{
    host_say("a fault: look at CFSR (0xE000ED28) and BFAR (0xE000ED38)\n");
    host_end(1);
}

/* A product's interrupts follow, in the order of its data sheet. */
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    __stack, (const void *)Reset_Handler, [2 ... 15] = (const void *)Fault_Handler,
};
