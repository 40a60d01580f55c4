/* The ends of a region that the simulator counts: architectural NOPs on every core from Armv7-M on. */
#ifndef TOSAIC_MARKERS_H
#define TOSAIC_MARKERS_H

#define TOSAIC_REGION_BEGIN() __asm__ volatile("dbg #1" ::: "memory")
#define TOSAIC_REGION_END() __asm__ volatile("dbg #2" ::: "memory")

#endif
