/* The NPU's registers, by their offsets in Arm's published interface headers. */
#ifndef NPU_REGISTERS_H
#define NPU_REGISTERS_H

#include "tosaic.h"

static inline volatile uint32_t *at(uint32_t offset)
{
    return (volatile uint32_t *)(tosaic_npu_address + offset);
}

static inline void set(uint32_t offset, uint32_t value)
{
    *at(offset) = value;
}

static inline uint32_t get(uint32_t offset)
{
    return *at(offset);
}

#endif
