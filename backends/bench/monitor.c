/* A resident monitor: takes images into RAM over a serial line, runs them, and tells what they ask, cost and die of.
 *
 * The host asks, and every request has one reply. Only the host repeats: what has the sequence number of the request
 * before is that request again, and gets the same reply without being done again. A frame is
 *
 *     kind, sequence number, length of the payload (2 bytes), payload, CRC-32 of all before (4 bytes)
 *
 * between END bytes of SLIP (RFC 1055); numbers are little-endian, the CRC is that of zlib (polynomial 0x04c11db7,
 * reflected). A damaged frame gets DAMAGED, whose sequence number means nothing.
 *
 *     HELLO                            who answers; also the first frame after a silence, whatever its number
 *     CHECK  address, bytes, count     the CRC-32 of each of `count` blocks of so many bytes
 *     LOAD   address, data             writes memory
 *     DUMP   address, bytes            reads memory
 *     RUN    entry, stack, limit       starts an image; the reply is its first event
 *     RESUME value                     goes on after a CALL or a REGION; the reply is the next event
 *
 * An image runs in thread mode on its own stack, under the monitor's vectors. Its events are
 *
 *     CALL   r0, r1, three words at r1 `svc 0xab`: semihosting, which the host does; `value` is what r0 gets
 *     REGION cycles (8 bytes)          what ran between `svc 1` and `svc 2`
 *     FAULT  pc, lr, CFSR, HFSR, BFAR  the image cannot go on; the last three are 0 where the core has none
 *     LIMIT  pc                        a region took more than `limit` cycles, or all between two events too many
 *
 * `svc 4` writes the data cache back and empties both caches; it is no event.
 *
 * Everything is answered on the level of SVC; a fault or a tick that ends an image goes there by a thread of its own.
 */
#include <stdint.h>
#include <string.h>

#include "uart.h"

enum kind {
    HELLO = 1,
    CHECK,
    LOAD,
    DUMP,
    RUN,
    RESUME,
    CALL = 0x40,
    REGION,
    FAULT,
    LIMIT,
    REFUSED = 0x7e,
    DAMAGED,
};

enum { PAYLOAD = 1024, HEADER = 4, TRAILER = 4 };

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define ICSR REGISTER(0xE000ED04)
#define AIRCR REGISTER(0xE000ED0C)
#define CCR REGISTER(0xE000ED14)
#define CFSR REGISTER(0xE000ED28)
#define HFSR REGISTER(0xE000ED2C)
#define BFAR REGISTER(0xE000ED38)
#define CPUID REGISTER(0xE000ED00)
#define CPACR REGISTER(0xE000ED88)
#define FPCCR REGISTER(0xE000EF34)
#define ICIALLU REGISTER(0xE000EF50)
#define DCCISW REGISTER(0xE000EF74)
#define CCSIDR REGISTER(0xE000ED80)
#define CSSELR REGISTER(0xE000ED84)
#define DEMCR REGISTER(0xE000EDFC)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define DWT_CTRL REGISTER(0xE0001000)
#define DWT_CYCCNT REGISTER(0xE0001004)
#define DWT_LAR REGISTER(0xE0001FB0)

#define CCR_DC (1u << 16)
#define CCR_IC (1u << 17)
#define CCR_LOB (1u << 19)
#define CPACR_CP10_CP11_FULL (0xfu << 20)
#define FPCCR_LAZY_AND_AUTOMATIC (3u << 30)
#define AIRCR_RESET 0x05FA0004u
#define ICSR_TICK_PENDING (1u << 26)
#define STACKING_FAILED 0x3030u
#define SYST_ON 7u /* enabled, interrupts, counts the core's cycles */
#define SYST_MOST 0x1000000u
#define CYCLES_BETWEEN_EVENTS 0x40000000u

#define THREAD_MODE 8u
#define THREAD_ON_PSP 0x1cu /* bits of EXC_RETURN, with a frame without floats */

struct frame { /* what the core pushes on an exception */
    uint32_t r0, r1, r2, r3, r12, lr, pc, xpsr;
};

struct range {
    uint32_t base, size;
};

static const struct range memories[] = {MEMORIES};
static const uint32_t crc_of_nibble[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

static uint8_t request[HEADER + PAYLOAD + TRAILER], reply[HEADER + PAYLOAD + TRAILER];
static uint32_t reply_bytes;
static int resumable;

static int counts_by_systick;
static uint32_t limit, period, laps, laps_left, started, overhead, calibrating;
static uint32_t words[5]; /* of the event that ended an image */
static enum kind ended;

/* ---- frames */

static uint32_t crc32(const uint8_t *data, uint32_t size)
{
    uint32_t crc = ~0u;
    while (size--) {
        crc ^= *data++;
        crc = crc >> 4 ^ crc_of_nibble[crc & 15];
        crc = crc >> 4 ^ crc_of_nibble[crc & 15];
    }
    return ~crc;
}

static uint32_t word(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

enum { END = 0xc0, ESCAPE = 0xdb, ESCAPED_END = 0xdc, ESCAPED_ESCAPE = 0xdd };

/* Waits for a frame; 0 where it is damaged. */
static int receive(void)
{
    uint32_t size = 0;
    int escaped = 0;
    for (;;) {
        uint8_t byte = uart_get();
        if (byte == END) {
            if (size)
                break;
            continue;
        }
        if (byte == ESCAPE) {
            escaped = 1;
            continue;
        }
        if (escaped)
            byte = byte == ESCAPED_END ? END : ESCAPE;
        escaped = 0;
        if (size < sizeof request)
            request[size] = byte;
        size++;
    }
    if (size < HEADER + TRAILER || size > sizeof request)
        return 0;
    size -= TRAILER;
    return request[2] + 256u * request[3] == size - HEADER && crc32(request, size) == word(request + size);
}

/* Puts the CRC behind `size` bytes of a frame and sends it. */
static void send(uint8_t *frame, uint32_t size)
{
    uint32_t crc = crc32(frame, size);
    memcpy(frame + size, &crc, sizeof crc);
    uart_put(END);
    for (uint32_t i = 0; i < size + TRAILER; i++) {
        uint8_t byte = frame[i];
        if (byte == END || byte == ESCAPE) {
            uart_put(ESCAPE);
            byte = byte == END ? ESCAPED_END : ESCAPED_ESCAPE;
        }
        uart_put(byte);
    }
    uart_put(END);
    uart_put(END); /* where one is damaged, the other ends the frame */
}

/* The reply to the request at hand, whose payload is in place where `payload` is null. */
static void answer(enum kind kind, const void *payload, uint32_t size)
{
    reply[0] = (uint8_t)kind;
    reply[1] = request[1];
    reply[2] = (uint8_t)size;
    reply[3] = (uint8_t)(size >> 8);
    if (payload)
        memcpy(reply + HEADER, payload, size);
    reply_bytes = HEADER + size;
    send(reply, reply_bytes);
}

/* ---- time and caches */

static void disarm(void)
{
    SYST_CSR = 0;
}

/* Lets SysTick end the image after `cycles`. */
static void arm(uint32_t cycles)
{
    laps = laps_left = cycles / SYST_MOST + 1;
    period = cycles / laps + 1;
    SYST_RVR = period - 1;
    SYST_CVR = 0;
    SYST_CSR = SYST_ON;
}

/* Cycles since `started`, given the counter as it was then. */
static uint32_t elapsed(uint32_t now)
{
    if (!counts_by_systick)
        return now - started;
    uint32_t done = laps - laps_left;
    if (ICSR & ICSR_TICK_PENDING) {
        done++;
        now = SYST_CVR;
    }
    return done * period + (now ? period - now : 0);
}

#ifdef BASELINE /* Armv6-M and the baseline of Armv8-M: no counter of cycles, no caches, no registers of faults */
static void start_counter(void)
{
    counts_by_systick = 1;
}

static void empty_caches(void)
{
    __asm__ volatile("dsb\n isb" ::: "memory");
}
#else
static void start_counter(void)
{
    DEMCR |= 1u << 24;
    DWT_LAR = 0xC5ACCE55;
    DWT_CYCCNT = 0;
    DWT_CTRL |= 1;
    uint32_t before = DWT_CYCCNT;
    __asm__ volatile("nop\n nop\n nop\n nop");
    counts_by_systick = DWT_CYCCNT == before;
}

/* Cleans and invalidates the data cache by set and way, and invalidates the code cache, where they are on
 * (Armv7-M and Armv8-M Architecture Reference Manuals, "Cache maintenance operations"). */
static void empty_caches(void)
{
    __asm__ volatile("dsb" ::: "memory");
    if (CCR & CCR_DC) {
        CSSELR = 0;
        __asm__ volatile("dsb" ::: "memory");
        uint32_t line_bits = (CCSIDR & 7) + 4, last_way = CCSIDR >> 3 & 0x3ff, last_set = CCSIDR >> 13 & 0x7fff;
        uint32_t way_shift = last_way ? (uint32_t)__builtin_clz(last_way) : 0;
        for (uint32_t set = 0; set <= last_set; set++)
            for (uint32_t way = 0; way <= last_way; way++)
                DCCISW = way << way_shift | set << line_bits;
    }
    if (CCR & CCR_IC)
        ICIALLU = 0;
    __asm__ volatile("dsb\n isb" ::: "memory");
}
#endif

/* ---- requests */

static int allowed(uint32_t address, uint32_t size)
{
    for (uint32_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (address >= memories[i].base && size <= memories[i].size &&
            address - memories[i].base <= memories[i].size - size)
            return 1;
    return 0;
}

static void hello(void)
{
    const char identity[] = IDENTITY;
    const uint32_t numbers[] = {CPUID, overhead, (uint32_t)counts_by_systick};
    memcpy(reply + HEADER, numbers, sizeof numbers);
    memcpy(reply + HEADER + sizeof numbers, identity, sizeof identity - 1);
    answer(HELLO, 0, sizeof numbers + sizeof identity - 1);
}

static int check(const uint8_t *payload, uint32_t size)
{
    uint32_t address = word(payload), bytes = word(payload + 4), count = word(payload + 8);
    if (size != 12 || count > PAYLOAD / 4 || bytes > 0x10000 || !allowed(address, bytes * count))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t crc = crc32((const uint8_t *)address + i * bytes, bytes);
        memcpy(reply + HEADER + 4 * i, &crc, sizeof crc);
    }
    answer(CHECK, 0, 4 * count);
    return 1;
}

static int load(const uint8_t *payload, uint32_t size)
{
    if (size < 4 || !allowed(word(payload), size - 4))
        return 0;
    memcpy((void *)word(payload), payload + 4, size - 4);
    answer(LOAD, 0, 0);
    return 1;
}

static int dump(const uint8_t *payload, uint32_t size)
{
    if (size != 8 || word(payload + 4) > PAYLOAD || !allowed(word(payload), word(payload + 4)))
        return 0;
    answer(DUMP, (const void *)word(payload), word(payload + 4));
    return 1;
}

/* Answers requests until one lets an image run, which is then `request`. */
static void serve(void)
{
    for (;;) {
        if (!receive()) {
            uint8_t damaged[HEADER + TRAILER] = {DAMAGED};
            send(damaged, HEADER);
            continue;
        }
        enum kind kind = request[0];
        const uint8_t *payload = request + HEADER;
        uint32_t size = request[2] + 256u * request[3];
        int done = 0;
        if (kind == HELLO) {
            hello();
            continue;
        }
        if (request[1] == reply[1]) {
            send(reply, reply_bytes);
            continue;
        }
        if (kind == CHECK)
            done = check(payload, size);
        else if (kind == LOAD)
            done = load(payload, size);
        else if (kind == DUMP)
            done = dump(payload, size);
        else if ((kind == RUN && size == 12 && allowed(word(payload + 4) - sizeof(struct frame), sizeof(struct frame))) ||
                 (kind == RESUME && size == 4 && resumable))
            return;
        if (!done)
            answer(REFUSED, 0, 0);
    }
}

/* ---- exceptions */

/* EXC_RETURN into thread mode at `entry`, on its own stack, as if from reset. */
static uint32_t enter(uint32_t exc_return, uint32_t entry, uint32_t stack)
{
    struct frame *frame = (struct frame *)(stack & ~7u) - 1;
    *frame = (struct frame){.lr = ~0u, .pc = entry & ~1u, .xpsr = 1u << 24};
#ifndef BASELINE
    __asm__ volatile("msr basepri, %0" ::"r"(0));
#endif
    __asm__ volatile("msr psp, %0\n"
                     "cpsie i\n"
                     "dsb\n isb" ::"r"(frame)
                     : "memory");
    return exc_return | THREAD_ON_PSP;
}

static struct frame ending[2] __attribute__((aligned(8)));

__attribute__((naked)) static void end(void)
{
    __asm__ volatile("svc 3");
}

static uint32_t end_image(uint32_t exc_return, enum kind kind)
{
    disarm();
    ended = kind;
    return enter(exc_return, (uint32_t)end, (uint32_t)(ending + 2));
}

__attribute__((used)) static uint32_t fault(uint32_t exc_return, const struct frame *frame)
{
#ifdef BASELINE
    const uint32_t why = 0;
#else
    const uint32_t why = CFSR;
#endif
    if (!(exc_return & THREAD_MODE)) { /* the monitor's own */
        AIRCR = AIRCR_RESET;
        for (;;)
            ;
    }
    memset(words, 0, sizeof words);
    if (!(why & STACKING_FAILED) && allowed((uint32_t)frame, sizeof *frame)) {
        words[0] = frame->pc;
        words[1] = frame->lr;
    }
#ifndef BASELINE
    words[2] = why;
    words[3] = HFSR;
    words[4] = BFAR;
    CFSR = why;
    HFSR = words[3];
#endif
    return end_image(exc_return, FAULT);
}

__attribute__((used)) static uint32_t tick(uint32_t exc_return, const struct frame *frame)
{
    if (--laps_left)
        return exc_return;
    words[0] = frame->pc;
    return end_image(exc_return, LIMIT);
}

__attribute__((used)) static uint32_t call(uint32_t exc_return, struct frame *frame, uint32_t now)
{
    uint32_t number = *(const uint8_t *)(frame->pc - 2);
    resumable = 1;
    if (number == 4) {
        empty_caches();
        return exc_return;
    }
    if (number == 1) {
        arm(limit);
        started = counts_by_systick ? 0 : DWT_CYCCNT;
        return exc_return;
    }
    if (number == 2) {
        uint32_t cycles = elapsed(now);
        disarm();
        if (calibrating) {
            if (cycles < overhead)
                overhead = cycles;
            return exc_return;
        }
        uint32_t pair[2] = {cycles > overhead ? cycles - overhead : 0, 0};
        answer(REGION, pair, sizeof pair);
    } else if (number == 0xab) {
        disarm();
        uint32_t asked[5] = {frame->r0, frame->r1};
        if (allowed(frame->r1, 12))
            memcpy(asked + 2, (const void *)frame->r1, 12);
        answer(CALL, asked, sizeof asked);
    } else {
        calibrating = resumable = 0;
        if (ended)
            answer(ended, words, sizeof words);
    }
    serve();
    const uint8_t *payload = request + HEADER;
    if (request[0] == RUN) {
        limit = word(payload + 8);
        exc_return = enter(exc_return, word(payload), word(payload + 4));
        empty_caches();
    } else if (number == 0xab)
        frame->r0 = word(payload);
    arm(CYCLES_BETWEEN_EVENTS);
    return exc_return;
}

/* Each takes EXC_RETURN and the frame of what it interrupted, and gives the EXC_RETURN to leave by. */
#define HANDLER(name, function)                                \
    __attribute__((naked)) static void name(void)              \
    {                                                          \
        __asm__ volatile("mov r0, lr\n"                        \
                         "mrs r1, psp\n"                       \
                         "bl " #function "\n"                  \
                         "bx r0\n");                           \
    }
HANDLER(Fault_Handler, fault)
HANDLER(Tick_Handler, tick)

/* The counter is read first: whatever the rest takes is no part of a region. */
static volatile uint32_t *counter __attribute__((used));

__attribute__((naked)) static void Call_Handler(void)
{
    __asm__ volatile("ldr r2, =counter\n"
                     "ldr r2, [r2]\n"
                     "ldr r2, [r2]\n"
                     "mov r0, lr\n"
                     "mrs r1, psp\n"
                     "bl call\n"
                     "bx r0\n");
}

extern uint32_t __stack[], __data_start__[], __data_end__[], __data_load__[], __bss_start__[], __bss_end__[];

/* What an empty region takes is measured first. */
__attribute__((used, naked)) static void first(void)
{
    __asm__ volatile(".rept 8\n"
                     "svc 1\n"
                     "svc 2\n"
                     ".endr\n"
                     "svc 3\n");
}

static uint32_t first_stack[32] __attribute__((aligned(8)));

__attribute__((used)) static void start(void)
{
    memcpy(__data_start__, __data_load__, (size_t)((char *)__data_end__ - (char *)__data_start__));
    memset(__bss_start__, 0, (size_t)((char *)__bss_end__ - (char *)__bss_start__));
#ifdef HAS_FLOATS
    CPACR |= CPACR_CP10_CP11_FULL;
    FPCCR &= ~FPCCR_LAZY_AND_AUTOMATIC; /* the monitor uses no float registers: an image keeps its own through a call */
#endif
#ifdef HAS_LOOPS
    CCR |= CCR_LOB;
#endif
    __asm__ volatile("dsb\n isb" ::: "memory");
    uart_init(BAUD);
    start_counter();
    counter = counts_by_systick ? &SYST_CVR : &DWT_CYCCNT;
    reply[1] = 0xff;
    limit = overhead = CYCLES_BETWEEN_EVENTS;
    calibrating = 1;
    __asm__ volatile("msr psp, %0\n"
                     "msr control, %1\n"
                     "isb\n"
                     "bl first" ::"r"(first_stack + 32), "r"(2)
                     : "memory");
    __builtin_unreachable();
}

__attribute__((noreturn)) void Reset_Handler(void);
__attribute__((noreturn, naked)) void Reset_Handler(void)
{
    __asm__ volatile("bl start");
}

enum { SYSTEM_EXCEPTIONS = 16, SVC = 11, SYSTICK = 15 };

__attribute__((section(".vectors"), used)) static const void *const vectors[SYSTEM_EXCEPTIONS] = {
    __stack,
    (const void *)Reset_Handler,
    [2 ... SVC - 1] = (const void *)Fault_Handler,
    [SVC] = (const void *)Call_Handler,
    [SVC + 1 ... SYSTICK - 1] = (const void *)Fault_Handler,
    [SYSTICK] = (const void *)Tick_Handler,
};
