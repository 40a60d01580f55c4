/* The ends of a region that the simulator counts: instructions that change nothing, which no compiler makes. */
#ifndef TOSAIC_MARKERS_H
#define TOSAIC_MARKERS_H

/* Under a monitor they are calls of it. Else NOPs of Armv7-M and up; the baselines, which lack these, move a register to
 * itself. Aligned, because QEMU shows a plugin only half of an instruction that crosses one of its 1 KiB pages. */
#if defined(TOSAIC_MONITOR)
#define TOSAIC_BEGIN "svc #1"
#define TOSAIC_END "svc #2"
#define TOSAIC_EMPTY_CACHES "svc #4"
#elif __ARM_ARCH_ISA_THUMB == 1
#define TOSAIC_BEGIN "mov r9, r9"
#define TOSAIC_END "mov r10, r10"
#define TOSAIC_EMPTY_CACHES "mov r11, r11"
#else
#define TOSAIC_BEGIN "dbg #1"
#define TOSAIC_END "dbg #2"
#define TOSAIC_EMPTY_CACHES "dbg #3"
#endif

#define TOSAIC_MARK(marker) __asm__ volatile(".balign 4\n\t" marker ::: "memory")
#define TOSAIC_REGION_BEGIN() TOSAIC_MARK(TOSAIC_BEGIN)
#define TOSAIC_REGION_END() TOSAIC_MARK(TOSAIC_END)

/* One call of a model. */
#define TOSAIC_CALL(number, call) \
    do {                          \
        TOSAIC_REGION_BEGIN();    \
        call;                     \
        TOSAIC_REGION_END();      \
    } while (0)

#endif
