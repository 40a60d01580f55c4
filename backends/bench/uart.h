/* What the monitor asks of a board's serial port: 8 data bits, no parity, one stop bit, no flow control. */
#ifndef TOSAIC_UART_H
#define TOSAIC_UART_H

#include <stdint.h>

/* Called once after reset, before anything else: clocks and pins of the board too, as far as its reset leaves them. */
void uart_init(uint32_t baud);
/* The next byte, as soon as there is one. Nothing is received while a candidate runs. */
uint8_t uart_get(void);
void uart_put(uint8_t byte);

#endif
