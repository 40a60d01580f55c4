/* One model: its self-test, and the cycles of an inference and of its NPU calls. Inputs and outputs are described in model.h. */
#include <stdint.h>

#include "host.h"
#include "model.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define DEMCR REGISTER(0xE000EDFC)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL REGISTER(0xE0001000)
#define DWT_CYCCNT REGISTER(0xE0001004)

/* A line that `tosaic npu measured` reads, behind each call of an NPU. */
#ifdef WITH_NPU
static void counted(const tosaic_npu_counts *counts)
{
    host_say("npu call ");
    host_say_number(counts->number);
    host_say(": ");
    host_say_number((uint32_t)counts->cycles);
    host_say(" cycles\n");
}
#endif

int main(void)
{
    static model_instance model;
    int status = model_init_static(&model);
    if (status == TOSAIC_OK)
        status = model_selftest(&model);
    host_say(status == TOSAIC_OK ? "self-test: exact\n" : "self-test: failed\n");

    DEMCR |= DEMCR_TRCENA;
    DWT_CTRL |= 1;
    uint32_t start = DWT_CYCCNT;
#ifdef WITH_NPU
    tosaic_npu_count(counted);
#endif
    if (status == TOSAIC_OK)
        status = model_invoke(&model);
    uint32_t cycles = DWT_CYCCNT - start;
    host_say("cycles of an inference (0 where nothing counts them): ");
    host_say_number(cycles);
    host_say("\n");
    return status;
}
