/* The UART of Arm's Cortex-M System Design Kit (DDI 0479), which the MPS boards have. */
#include "uart.h"

struct cmsdk_uart {
    volatile uint32_t data, state, control, interrupt, divider;
};

#define UART ((struct cmsdk_uart *)UART_BASE)
#define TRANSMITTER_FULL 1u
#define RECEIVER_FULL 2u
#define ENABLE_BOTH 3u

void uart_init(uint32_t baud)
{
    UART->divider = UART_CLOCK / baud;
    UART->control = ENABLE_BOTH;
}

uint8_t uart_get(void)
{
    while (!(UART->state & RECEIVER_FULL))
        ;
    return (uint8_t)UART->data;
}

void uart_put(uint8_t byte)
{
    while (UART->state & TRANSMITTER_FULL)
        ;
    UART->data = byte;
}
