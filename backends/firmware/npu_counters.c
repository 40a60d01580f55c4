/* The NPU's performance monitor. An image holds it where it calls `tosaic_npu_count`. */
#include "npu_registers.h"
#include "tosaic.h"

/* A U85 has it on a page of its own. */
enum {
    PMU = TOSAIC_NPU_GENERATION == 85 ? 0x1000 : 0,
    PMCR = PMU + 0x180,
    PMCNTENSET = PMU + 0x184,
    PMCCNTR = PMU + 0x1A0,
    PMCCNTR_CFG = PMU + 0x1A8,
    PMEVCNTR = PMU + 0x300,
    PMEVTYPER = PMU + 0x380,
};

enum { PMCR_ENABLE = 1 << 0, PMCR_RESET_EVENTS = 1 << 1, PMCR_RESET_CYCLES = 1 << 2 };
enum { EVENT_CYCLE = 0x11, EVENT_NPU_ACTIVE = 0x23, EVENT_MAC_ACTIVE = 0x30 };
enum { EVENT_AXI0_READ_BEAT = 0x82, EVENT_AXI1_READ_BEAT = 0x182 };
#define CYCLE_COUNTER (1u << 31)

__attribute__((weak)) const uint16_t tosaic_npu_events[TOSAIC_NPU_EVENTS] = {
#if TOSAIC_NPU_GENERATION != 85
    EVENT_NPU_ACTIVE, EVENT_MAC_ACTIVE, EVENT_AXI0_READ_BEAT, EVENT_AXI1_READ_BEAT,
#endif
};

static void (*receiver)(const tosaic_npu_counts *);

void tosaic_npu_count(void (*counted)(const tosaic_npu_counts *))
{
    receiver = counted;
}

/* Behind a reset, which turned the counters off. */
static void start(void)
{
    set(PMCR, PMCR_ENABLE);
    set(PMCCNTR_CFG, EVENT_CYCLE); /* which starts the cycle counter; nothing stops it */
    for (uint32_t i = 0; i < TOSAIC_NPU_EVENTS; i++)
        set(PMEVTYPER + 4 * i, tosaic_npu_events[i]);
    set(PMCNTENSET, CYCLE_COUNTER | ((1u << TOSAIC_NPU_EVENTS) - 1));
    set(PMCR, PMCR_ENABLE | PMCR_RESET_EVENTS | PMCR_RESET_CYCLES);
}

static void tell(const tosaic_npu_call *call)
{
    set(PMCR, 0);
    tosaic_npu_counts counts = {.number = call->number,
                                .cycles = get(PMCCNTR) | (uint64_t)get(PMCCNTR + 4) << 32};
    for (uint32_t i = 0; i < TOSAIC_NPU_EVENTS; i++)
        counts.events[i] = get(PMEVCNTR + 4 * i);
    if (receiver)
        receiver(&counts);
}

void tosaic_npu_counting(const tosaic_npu_call *ended);
void tosaic_npu_counting(const tosaic_npu_call *ended)
{
    if (ended)
        tell(ended);
    else
        start();
}
