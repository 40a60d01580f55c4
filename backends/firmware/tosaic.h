/* What all generated models share: status codes, the description of a tensor, and the call of an NPU. */
#ifndef TOSAIC_H
#define TOSAIC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tosaic_status {
    TOSAIC_OK = 0,
    TOSAIC_MORE = 1, /* rows of the input are still to come */
    TOSAIC_FULL = 2, /* the context of a model that generates holds no further token */
    TOSAIC_NPU_RESET_FAILED = -1,
    TOSAIC_NPU_BUS_ERROR = -2,
    TOSAIC_NPU_BAD_STREAM = -3,
    TOSAIC_NPU_FAULT = -4,
    TOSAIC_NPU_HOST_ERROR = -5,
    TOSAIC_NPU_TIMEOUT = -6,
    TOSAIC_BAD_ARENA = -7, /* null, or not aligned to 16 bytes */
    TOSAIC_WRONG = -8,     /* a self-test gave other outputs than expected */
    TOSAIC_NPU_UNREACHABLE = -9, /* memory that `tosaic_npu_memories` does not have */
};

/* An input or output, and what its elements mean: real = (element - zero_point) * scale; scale 0: they are the values. */
typedef struct {
    const char *name;
    uint32_t bytes;
    const char *dtype;
    uint32_t rank;
    uint32_t shape[6];
    float scale;
    int32_t zero_point;
} tosaic_tensor;

#define TOSAIC_NPU_REGIONS 8

/* A command stream and the memory it works on: base pointer i and the bytes behind it. Region 0 is read only.
 * `payload` is the stream in the container that Arm's core driver takes, `command_stream` its bare words. */
typedef struct {
    uint32_t number;
    const void *payload;
    uint32_t payload_bytes;
    const void *command_stream;
    uint32_t command_stream_bytes;
    struct {
        void *base;
        uint32_t bytes;
    } regions[TOSAIC_NPU_REGIONS];
} tosaic_npu_call;

/* Runs a command stream to its end; a `tosaic_status`. Two archives define it, and the image links one of them:
 *   libtosaic_npu.a     a driver of its own, which polls; calls of several tasks must not overlap;
 *   libtosaic_ethosu.a  hands the call to Arm's ethos-u-core-driver, which the image links too. */
int tosaic_npu_invoke(const tosaic_npu_call *call);

/* A memory as the core and the NPU see it. Ports are the NPU's: SRAM is M0 of U55 and U65, EXT is M1. */
enum tosaic_npu_port { TOSAIC_NPU_SRAM, TOSAIC_NPU_EXT };
typedef struct {
    uint32_t base;
    uint32_t bytes;
    uint32_t npu_base;
    uint32_t port;
} tosaic_npu_memory;

/* The small driver's, each of which the image may define anew.
 *
 * From the target: where the NPU's registers are, and the memories that it reaches; a row of no bytes ends them. */
extern const uint32_t tosaic_npu_address;
extern const tosaic_npu_memory tosaic_npu_memories[];

/* Whether to give up after so many polls (0: poll on). A definition of one's own may wait for an interrupt, let other
 * tasks run, read a timer. */
int tosaic_npu_expired(uint32_t polls);

/* Called with 1 before the registers are touched and with 0 behind: clock and power. By itself it does nothing. */
void tosaic_npu_power(int on);

/* Write what the data cache holds of this memory back, and forget it: before and behind a call, for all that it may
 * write. By themselves they do so line by line where the data cache is on. Constants are not written back: code that
 * copies them to RAM does that once. Who writes beside an arena while the NPU runs aligns both to lines. */
void tosaic_npu_clean(const void *start, uint32_t bytes);
void tosaic_npu_invalidate(void *start, uint32_t bytes);

#define TOSAIC_NPU_EVENTS 4

/* What the NPU's performance monitor counted in a call: cycles, and four events. */
typedef struct {
    uint32_t number; /* of the call */
    uint64_t cycles;
    uint32_t events[TOSAIC_NPU_EVENTS];
} tosaic_npu_counts;

/* Count from now on, and hand the counts of each call to `counted`, null to stop. Images that do not call it hold none of
 * it. */
void tosaic_npu_count(void (*counted)(const tosaic_npu_counts *));

/* Which events, by the numbers of the NPU's reference manual; 0: none. By itself, on U55 and U65, cycles in which the
 * NPU, and in which its MAC units were active, and data beats read at the ports SRAM and EXT. */
extern const uint16_t tosaic_npu_events[TOSAIC_NPU_EVENTS];

/* Where a simulator without an NPU takes the call over: nonzero once it has, with the outcome in `status`. */
int tosaic_npu_take_over(const tosaic_npu_call *call, int *status);

#ifdef __cplusplus
}
#endif

#endif
