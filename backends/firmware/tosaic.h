/* What generated models are made of. */
#ifndef TOSAIC_H
#define TOSAIC_H

#include <stdint.h>

#include "markers.h"

/* An input or output: where it is, and what its elements mean (real = (element - zero_point) * scale; scale 0: none). */
typedef struct {
    const char *name;
    void *data;
    uint32_t bytes;
    const char *dtype;
    uint32_t rank;
    uint32_t shape[6];
    float scale;
    int32_t zero_point;
} tosaic_tensor;

/* One call of a model; the markers let a simulator count what it costs. */
#define TOSAIC_CALL(number, call) \
    do {                          \
        TOSAIC_REGION_BEGIN();    \
        call;                     \
        TOSAIC_REGION_END();      \
    } while (0)

#define TOSAIC_NPU_REGIONS 8

/* A command stream and the memory it works on: base pointer i and the bytes behind it. Region 0 is read only. */
typedef struct {
    uint32_t number;
    const void *command_stream;
    uint32_t command_stream_bytes;
    struct {
        void *base;
        uint32_t bytes;
    } regions[TOSAIC_NPU_REGIONS];
} tosaic_npu_call;

enum tosaic_npu_status {
    TOSAIC_NPU_OK = 0,
    TOSAIC_NPU_RESET_FAILED = -1,
    TOSAIC_NPU_BUS_ERROR = -2,
    TOSAIC_NPU_BAD_STREAM = -3,
    TOSAIC_NPU_FAULT = -4,
    TOSAIC_NPU_HOST_ERROR = -5,
};

/* Runs a command stream to its end. */
int tosaic_npu_invoke(const tosaic_npu_call *call);

/* Where a simulator without an NPU takes the call over: nonzero once it has, with the outcome in `status`. */
int tosaic_npu_take_over(const tosaic_npu_call *call, int *status);

#endif
