/* One model: its self-test, and the cycles of an inference. Inputs and outputs are described in model.h. */
#include <stdint.h>

#include "host.h"
#include "model.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define DEMCR REGISTER(0xE000EDFC)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL REGISTER(0xE0001000)
#define DWT_CYCCNT REGISTER(0xE0001004)

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
    if (status == TOSAIC_OK)
        status = model_invoke(&model);
    host_say_number("cycles of an inference (0 where nothing counts them): ", DWT_CYCCNT - start);
    return status;
}
