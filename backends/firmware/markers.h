/* The ends of a region that the simulator counts: instructions of two bytes that change nothing, which no compiler makes. */
#ifndef TOSAIC_MARKERS_H
#define TOSAIC_MARKERS_H

/* Under a monitor they are calls of it. Else they move a register to itself. */
#if defined(TOSAIC_MONITOR)
#define TOSAIC_BEGIN "svc #1"
#define TOSAIC_END "svc #2"
#define TOSAIC_EMPTY_CACHES "svc #4"
#else
#define TOSAIC_BEGIN "mov r9, r9"
#define TOSAIC_END "mov r10, r10"
#define TOSAIC_EMPTY_CACHES "mov r11, r11"
#endif

#define TOSAIC_MARK(marker) __asm__ volatile(marker ::: "memory")
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
