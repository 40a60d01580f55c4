/* The Ethos-U driver: registers written directly, completion polled, one stream at a time.
 *
 * The data cache is off, as the core leaves reset; firmware that turns it on cleans it before and invalidates it after
 * `tosaic_npu_invoke`. Offsets and bits are those of Arm's published interface headers, the same on U55, U65 and U85.
 */
#include <stddef.h>

#include "tosaic.h"

#ifndef TOSAIC_NPU_ADDRESS
#error "TOSAIC_NPU_ADDRESS is the address of the NPU's registers"
#endif

__attribute__((weak)) const uint32_t tosaic_npu_address = TOSAIC_NPU_ADDRESS;

/* Each poll is a read from a device, some ten cycles: seconds at hundreds of megahertz. */
__attribute__((weak)) int tosaic_npu_expired(uint32_t polls)
{
    return polls >= 100000000u;
}

enum {
    STATUS = 0x04,
    CMD = 0x08,
    RESET = 0x0C,
    QBASE = 0x10,
    QCONFIG = 0x1C,
    QSIZE = 0x20,
    REGIONCFG = 0x3C,
    BASEP = 0x80,
};

enum {
    STATUS_IRQ_RAISED = 1 << 1,
    STATUS_BUS_ERROR = 1 << 2,
    STATUS_IN_RESET = 1 << 3,
    STATUS_PARSE_ERROR = 1 << 4,
    STATUS_END_REACHED = 1 << 5,
};

enum { CMD_RUN = 1 << 0, CMD_CLEAR_IRQ = 1 << 1 };
enum { RESET_PRIVILEGED_SECURE = 1 };
enum { ROUTE_SRAM = 0, ROUTE_EXTERNAL = 3 };
enum { RESET_POLLS = 100000 };

#define EXTERNAL_MEMORY 0x60000000u

/* Read when it runs: compilers take a constant for what is written here, weak or not. */
static volatile uint32_t *at(uint32_t offset)
{
    return (volatile uint32_t *)(*(const volatile uint32_t *)&tosaic_npu_address + offset);
}

static void set(uint32_t offset, uint32_t value)
{
    *at(offset) = value;
}

static uint32_t get(uint32_t offset)
{
    return *at(offset);
}

static void set_pointer(uint32_t offset, const void *pointer)
{
    set(offset, (uint32_t)pointer);
    set(offset + 4, 0);
}

static uint32_t route(const void *pointer)
{
    return (uint32_t)pointer < EXTERNAL_MEMORY ? ROUTE_SRAM : ROUTE_EXTERNAL;
}

static int reset(void)
{
    set(RESET, RESET_PRIVILEGED_SECURE);
    for (int i = 0; i < RESET_POLLS; i++)
        if (!(get(STATUS) & STATUS_IN_RESET))
            return 1;
    return 0;
}

static int drive(const tosaic_npu_call *call)
{
    if (!reset())
        return TOSAIC_NPU_RESET_FAILED;
    uint32_t routes = 0;
    for (uint32_t i = 0; i < TOSAIC_NPU_REGIONS; i++) {
        set_pointer(BASEP + 8 * i, call->regions[i].base);
        routes |= route(call->regions[i].base) << 2 * i;
    }
    set(REGIONCFG, routes);
    set(QCONFIG, route(call->command_stream));
    set_pointer(QBASE, call->command_stream);
    set(QSIZE, call->command_stream_bytes);
    __asm__ volatile("dsb" ::: "memory");
    set(CMD, CMD_RUN);

    uint32_t status, polls = 0;
    while (!((status = get(STATUS)) & STATUS_IRQ_RAISED))
        if (tosaic_npu_expired(++polls)) {
            reset(); /* so that it leaves the memory alone */
            return TOSAIC_NPU_TIMEOUT;
        }
    set(CMD, CMD_CLEAR_IRQ);
    __asm__ volatile("dsb" ::: "memory");
    if (status & STATUS_BUS_ERROR)
        return TOSAIC_NPU_BUS_ERROR;
    if (status & STATUS_PARSE_ERROR)
        return TOSAIC_NPU_BAD_STREAM;
    return status & STATUS_END_REACHED ? TOSAIC_OK : TOSAIC_NPU_FAULT;
}

__attribute__((weak)) int tosaic_npu_take_over(const tosaic_npu_call *call, int *status)
{
    (void)call;
    (void)status;
    return 0;
}

int tosaic_npu_invoke(const tosaic_npu_call *call)
{
    int status;
    return tosaic_npu_take_over(call, &status) ? status : drive(call);
}
