/* What the driver asks of the chip, from the target: where the NPU's registers are, and how it reaches each memory. */
#include "tosaic.h"

__attribute__((weak)) const uint32_t tosaic_npu_address = TOSAIC_NPU_ADDRESS;

__attribute__((weak)) const tosaic_npu_memory tosaic_npu_memories[] = {TOSAIC_NPU_MEMORIES{0, 0, 0, 0}};
