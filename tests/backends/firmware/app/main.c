/* Two models in one image, one in an arena of the application's. `inputs.bin` holds a number of samples and the inputs of
 * both models for each, `outputs.bin` gets the outputs of both, then words: see `struct facts`. */
#include "models.h"
#include "semihosting.h"

#define PAINT 0x5aa55aa5u
#define PAINTED 4096

static uint8_t arena[FIRST_MACRO(ARENA_BYTES)] __attribute__((aligned(FIRST_MACRO(ARENA_ALIGNMENT))));

struct facts {
    int32_t null_arena, odd_arena, first_selftest, second_selftest, first_stack, second_stack;
};

/* Bytes of stack that a call of `invoke` writes to. */
#define STACK_OF(invoke)                                              \
    ({                                                                \
        volatile uint32_t *stack;                                     \
        __asm__ volatile("mov %0, sp" : "=r"(stack));                 \
        for (volatile uint32_t *p = stack - PAINTED; p < stack; p++)  \
            *p = PAINT;                                               \
        invoke;                                                       \
        volatile uint32_t *deepest = stack - PAINTED;                 \
        while (deepest < stack && *deepest == PAINT)                  \
            deepest++;                                                \
        4 * (stack - deepest);                                        \
    })

#define READ(model, count)                                                     \
    for (uint32_t i = 0; i < count; i++)                                       \
        host_read(inputs, model.inputs[i], model##_inputs[i].bytes)
#define WRITE(model, count)                                                    \
    for (uint32_t i = 0; i < count; i++)                                       \
        host_write(outputs, model.outputs[i], model##_outputs[i].bytes)

int main(void)
{
    static FIRST(instance) first;
    static SECOND(instance) second;
    static const tosaic_tensor *const first_inputs = FIRST(inputs), *const first_outputs = FIRST(outputs);
    static const tosaic_tensor *const second_inputs = SECOND(inputs), *const second_outputs = SECOND(outputs);
    struct facts facts = {FIRST(init)(&first, 0), FIRST(init)(&first, arena + 4), 0, 0, 0, 0};
    if (FIRST(init)(&first, arena) || SECOND(init_static)(&second))
        return 1;
    host_file inputs = host_open("inputs.bin", HOST_READ), outputs = host_open("outputs.bin", HOST_WRITE);
    uint32_t samples;
    host_read(inputs, &samples, sizeof samples);
    for (; samples; samples--) {
        READ(first, FIRST_MACRO(INPUTS));
        READ(second, SECOND_MACRO(INPUTS));
        int status = FIRST(invoke)(&first);
        if (!status)
            status = SECOND(invoke)(&second);
        if (status) {
            host_print_hex((uint32_t)status);
            return 2;
        }
        WRITE(first, FIRST_MACRO(OUTPUTS));
        WRITE(second, SECOND_MACRO(OUTPUTS));
    }
    facts.first_selftest = FIRST(selftest)(&first);
    facts.second_selftest = SECOND(selftest)(&second);
    facts.first_stack = STACK_OF(FIRST(invoke)(&first));
    facts.second_stack = STACK_OF(SECOND(invoke)(&second));
    host_write(outputs, &facts, sizeof facts);
    return 0;
}
