/* The Ethos-U driver: registers written directly, completion polled, one stream at a time.
 *
 * Offsets and bits are those of Arm's published interface headers. TOSAIC_NPU_GENERATION is 55, 65 or 85.
 */
#include <stddef.h>

#include "npu_registers.h"
#include "tosaic.h"

/* Each poll is a read from a device, some ten cycles: seconds at hundreds of megahertz. */
__attribute__((weak)) int tosaic_npu_expired(uint32_t polls)
{
    return polls >= 100000000u;
}

/* Power and clock are the application's, and on. */
__attribute__((weak)) void tosaic_npu_power(int on)
{
    (void)on;
}

/* By line, as Armv7-M and Armv8-M have it; nothing to do where the data cache is off. */
#ifndef SCB_BASE
#define SCB_BASE 0xE000ED00u
#endif
#define SCB(offset) (*(volatile uint32_t *)(SCB_BASE + (offset)))
enum { CCR = 0x14, CTR = 0x7C, DCIMVAC = 0x25C, DCCMVAC = 0x268 };
#define CCR_DC (1u << 16)

static void by_line(uint32_t operation, const void *start, uint32_t bytes)
{
    if (!(SCB(CCR) & CCR_DC))
        return;
    const uint32_t line = 4u << (SCB(CTR) >> 16 & 15), end = (uint32_t)start + bytes;
    __asm__ volatile("dsb" ::: "memory");
    for (uint32_t address = (uint32_t)start & ~(line - 1); address < end; address += line)
        SCB(operation) = address;
    __asm__ volatile("dsb" ::: "memory");
}

__attribute__((weak)) void tosaic_npu_clean(const void *start, uint32_t bytes)
{
    by_line(DCCMVAC, start, bytes);
}

__attribute__((weak)) void tosaic_npu_invalidate(void *start, uint32_t bytes)
{
    by_line(DCIMVAC, start, bytes);
}

/* Of npu_counters.c, in images that ask for counts: called before a stream starts, and with the call at its end. */
__attribute__((weak)) void tosaic_npu_counting(const tosaic_npu_call *ended);

enum {
    STATUS = 0x04,
    CMD = 0x08,
    RESET = 0x0C,
    QBASE = 0x10,
    QCONFIG = 0x1C,
    QSIZE = 0x20,
    REGIONCFG = 0x3C,
    ATTRIBUTES = 0x40, /* AXI_LIMIT of U55 and U65, MEM_ATTR of U85: four words */
    AXI_SRAM = 0x50,
    AXI_EXT = 0x54,
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
/* Which of the four attributes a port has. */
enum { SRAM_ATTRIBUTE = 0, EXT_ATTRIBUTE = 3 };
enum { RESET_POLLS = 100000 };

/* Write where the NPU finds `pointer`, and give the attribute of its port; -1 where it does not reach it. */
static int set_pointer(uint32_t offset, const void *pointer)
{
    const uint32_t address = (uint32_t)pointer;
    for (const tosaic_npu_memory *memory = tosaic_npu_memories; memory->bytes; memory++)
        if (address - memory->base < memory->bytes) {
            set(offset, address - memory->base + memory->npu_base);
            set(offset + 4, 0);
            return memory->port == TOSAIC_NPU_SRAM ? SRAM_ATTRIBUTE : EXT_ATTRIBUTE;
        }
    return -1;
}

/* As many reads and writes at a time as a port can have; a reset leaves one. */
static void set_attributes(void)
{
#if TOSAIC_NPU_GENERATION == 85
    set(ATTRIBUTES + 4 * SRAM_ATTRIBUTE, 0);
    set(ATTRIBUTES + 4 * EXT_ATTRIBUTE, 1 << 2); /* axi_port */
    set(AXI_SRAM, 0x1F3F);
    set(AXI_EXT, 0x1F3F);
#else
    const uint32_t most = TOSAIC_NPU_GENERATION == 65 ? 0x1F3F0000u : 0x0F1F0000u;
    set(ATTRIBUTES + 4 * SRAM_ATTRIBUTE, most);
    set(ATTRIBUTES + 4 * EXT_ATTRIBUTE, most);
#endif
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
    set_attributes();
    uint32_t attributes = 0;
    for (uint32_t i = 0; i < TOSAIC_NPU_REGIONS; i++) {
        if (!call->regions[i].bytes)
            continue;
        const int attribute = set_pointer(BASEP + 8 * i, call->regions[i].base);
        if (attribute < 0)
            return TOSAIC_NPU_UNREACHABLE;
        attributes |= (uint32_t)attribute << 2 * i;
    }
    const int attribute = set_pointer(QBASE, call->command_stream);
    if (attribute < 0)
        return TOSAIC_NPU_UNREACHABLE;
    set(REGIONCFG, attributes);
    set(QCONFIG, (uint32_t)attribute);
    set(QSIZE, call->command_stream_bytes);
    if (tosaic_npu_counting)
        tosaic_npu_counting(NULL);
    __asm__ volatile("dsb" ::: "memory");
    set(CMD, CMD_RUN);

    uint32_t status, polls = 0;
    while (!((status = get(STATUS)) & STATUS_IRQ_RAISED))
        if (tosaic_npu_expired(++polls)) {
            reset(); /* so that it leaves the memory alone */
            return TOSAIC_NPU_TIMEOUT;
        }
    if (tosaic_npu_counting)
        tosaic_npu_counting(call);
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
    if (tosaic_npu_take_over(call, &status))
        return status;
    for (uint32_t i = 1; i < TOSAIC_NPU_REGIONS; i++)
        if (call->regions[i].bytes)
            tosaic_npu_clean(call->regions[i].base, call->regions[i].bytes);
    tosaic_npu_power(1);
    status = drive(call);
    tosaic_npu_power(0);
    for (uint32_t i = 1; i < TOSAIC_NPU_REGIONS; i++)
        if (call->regions[i].bytes)
            tosaic_npu_invalidate(call->regions[i].base, call->regions[i].bytes);
    return status;
}
