/* The UART of Nordic's nRF51 (nRF51 Series Reference Manual, 29), on the pins of the BBC micro:bit. */
#include "uart.h"

#define REGISTER(offset) (*(volatile uint32_t *)(UART_BASE + (offset)))
#define START_RECEIVER REGISTER(0x000)
#define START_TRANSMITTER REGISTER(0x008)
#define RECEIVED REGISTER(0x108)
#define SENT REGISTER(0x11c)
#define ENABLE REGISTER(0x500)
#define TRANSMIT_PIN REGISTER(0x50c)
#define RECEIVE_PIN REGISTER(0x514)
#define RECEIVE REGISTER(0x518)
#define TRANSMIT REGISTER(0x51c)
#define BAUD_RATE REGISTER(0x524)

enum { UART_ON = 4, TRANSMIT_TO = 24, RECEIVE_FROM = 25, ROUND_TO = 0x1000 };

void uart_init(uint32_t baud)
{
    uint32_t step = (uint32_t)(((uint64_t)baud << 32) / UART_CLOCK);
    TRANSMIT_PIN = TRANSMIT_TO;
    RECEIVE_PIN = RECEIVE_FROM;
    BAUD_RATE = (step + ROUND_TO / 2) & ~(uint32_t)(ROUND_TO - 1);
    ENABLE = UART_ON;
    START_RECEIVER = 1;
    START_TRANSMITTER = 1;
}

uint8_t uart_get(void)
{
    while (!RECEIVED)
        ;
    RECEIVED = 0;
    return (uint8_t)RECEIVE;
}

void uart_put(uint8_t byte)
{
    SENT = 0;
    TRANSMIT = byte;
    while (!SENT)
        ;
}
