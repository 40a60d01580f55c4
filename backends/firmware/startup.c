/* Reset and faults of a bare-metal Cortex-M: units on, the image started, and faults told to the host. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t __stack[];

enum { EXIT_FAULT = 70 };

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define CCR REGISTER(0xE000ED14)
#if __ARM_ARCH_ISA_THUMB > 1
#define CFSR REGISTER(0xE000ED28)
#define HFSR REGISTER(0xE000ED2C)
#define BFAR REGISTER(0xE000ED38)
#else /* the baselines do not say why */
#define CFSR 0u
#define HFSR 0u
#define BFAR 0u
#endif
#define CPACR REGISTER(0xE000ED88)
#define CCR_UNALIGN_TRP (1u << 3)
#define CCR_LOB (1u << 19)
#define CPACR_CP10_CP11_FULL (0xfu << 20)

static void enable_units(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    CPACR |= CPACR_CP10_CP11_FULL;
#endif
#if __ARM_ARCH >= 8 && defined(__ARM_FEATURE_MVE)
    CCR |= CCR_LOB;
#endif
#if __ARM_ARCH_ISA_THUMB == 1
    CCR |= CCR_UNALIGN_TRP; /* what the baselines always do, and a core that stands in for one does not */
#endif
    __asm__ volatile("dsb\n isb" ::: "memory");
}

/* Compiled code may use the FPU in any prologue, so nothing but `enable_units` runs before it is on. */
__attribute__((noreturn)) void Reset_Handler(void)
{
    enable_units();
    __asm__ volatile("bl start");
    for (;;)
        ;
}

struct frame { /* what the core pushes on an exception */
    uint32_t r0, r1, r2, r3, r12, lr, pc, xpsr;
};

/* One line that `tosaic.backends.simulators.qemu` reads. */
__attribute__((used)) static void report(const struct frame *frame)
{
    host_print("tosaic fault pc=");
    host_print_hex(frame->pc);
    host_print(" lr=");
    host_print_hex(frame->lr);
    host_print(" cfsr=");
    host_print_hex(CFSR);
    host_print(" hfsr=");
    host_print_hex(HFSR);
    host_print(" bfar=");
    host_print_hex(BFAR);
    host_print("\n");
    host_exit(EXIT_FAULT);
}

__attribute__((naked)) static void Fault_Handler(void)
{
    __asm__ volatile("mov r0, sp\n"
                     "bl report\n");
}

#define SYSTEM_EXCEPTIONS 16

__attribute__((section(".vectors"), used)) static const void *const vectors[SYSTEM_EXCEPTIONS] = {
    __stack, (const void *)Reset_Handler, [2 ... SYSTEM_EXCEPTIONS - 1] = (const void *)Fault_Handler,
};
