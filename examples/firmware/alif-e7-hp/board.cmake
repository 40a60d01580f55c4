set(BOARD_FLAGS -mcpu=cortex-m55 -mthumb -mfloat-abi=hard)
set(BOARD_DEFINITIONS WITH_CACHES)
