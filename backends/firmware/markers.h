/* The ends of a region that the simulator counts: architectural NOPs on every core from Armv7-M on. */
#ifndef TOSAIC_MARKERS_H
#define TOSAIC_MARKERS_H

/* Aligned, because QEMU shows a plugin only half of an instruction that crosses one of its 1 KiB pages. */
#define TOSAIC_REGION_BEGIN() __asm__ volatile(".balign 4\n\tdbg #1" ::: "memory")
#define TOSAIC_REGION_END() __asm__ volatile(".balign 4\n\tdbg #2" ::: "memory")

/* One call of a model. */
#define TOSAIC_CALL(number, call) \
    do {                          \
        TOSAIC_REGION_BEGIN();    \
        call;                     \
        TOSAIC_REGION_END();      \
    } while (0)

#endif
