/* The NPU of a simulator that has none: the host executes the stream on the bytes of the guest's memory.
 *
 * Two pipes in the guest's working folder carry a call. `npu.request`: call number, bytes of the stream, bytes of each of
 * the regions, then the stream and the regions. `npu.reply`: a status word and, where that is 0, all regions but the
 * first. Without the pipes there is no such host, and the driver talks to a device.
 */
#include "semihosting.h"
#include "tosaic.h"

enum bridge { UNKNOWN, ABSENT, PRESENT };

static enum bridge bridge;
static host_file request, reply;

static void find_host(void)
{
    request = host_open("npu.request", HOST_WRITE_EXISTING);
    bridge = request < 0 ? ABSENT : PRESENT;
    if (bridge == PRESENT)
        reply = host_open("npu.reply", HOST_READ);
}

static int hand_over(const tosaic_npu_call *call)
{
    __asm__ volatile("mov r11, r11" ::: "memory"); /* to the simulator: the data cache is cleaned and emptied */
    uint32_t header[2 + TOSAIC_NPU_REGIONS] = {call->number, call->command_stream_bytes};
    for (uint32_t i = 0; i < TOSAIC_NPU_REGIONS; i++)
        header[2 + i] = call->regions[i].bytes;
    host_write(request, header, sizeof header);
    host_write(request, call->command_stream, call->command_stream_bytes);
    for (uint32_t i = 0; i < TOSAIC_NPU_REGIONS; i++)
        host_write(request, call->regions[i].base, call->regions[i].bytes);

    uint32_t status;
    if (host_read(reply, &status, sizeof status) != sizeof status || status != 0)
        return TOSAIC_NPU_HOST_ERROR;
    for (uint32_t i = 1; i < TOSAIC_NPU_REGIONS; i++)
        if (host_read(reply, call->regions[i].base, call->regions[i].bytes) != call->regions[i].bytes)
            return TOSAIC_NPU_HOST_ERROR;
    return TOSAIC_OK;
}

int tosaic_npu_take_over(const tosaic_npu_call *call, int *status)
{
    if (bridge == UNKNOWN)
        find_host();
    if (bridge == ABSENT)
        return 0;
    *status = hand_over(call);
    return 1;
}
