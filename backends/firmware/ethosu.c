/* NPU calls through Arm's ethos-u-core-driver, which the image links: its API, as ethosu_driver.h declares it. */
#include <stddef.h>

#include "tosaic.h"

struct ethosu_driver;
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *custom_data_ptr, const int custom_data_size,
                     uint64_t *const base_addr, const size_t *base_addr_size, const int num_base_addr, void *user_arg);

int tosaic_npu_invoke(const tosaic_npu_call *call)
{
    uint64_t bases[TOSAIC_NPU_REGIONS];
    size_t sizes[TOSAIC_NPU_REGIONS];
    for (uint32_t i = 0; i < TOSAIC_NPU_REGIONS; i++) {
        bases[i] = (uint32_t)call->regions[i].base;
        sizes[i] = call->regions[i].bytes;
    }
    /* Null where the core driver was built for several variants, which then chooses by itself. */
    struct ethosu_driver *driver = ethosu_reserve_driver();
    const int failed =
        ethosu_invoke_v3(driver, call->payload, (int)call->payload_bytes, bases, sizes, TOSAIC_NPU_REGIONS, NULL);
    ethosu_release_driver(driver);
    return failed ? TOSAIC_NPU_FAULT : TOSAIC_OK;
}
