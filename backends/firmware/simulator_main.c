/* The firmware of a simulator: `inputs.bin` holds a number of samples and their inputs, `outputs.bin` gets the outputs.
 *
 * HEADER is the model's header, MODEL(x) its symbol x, INPUTS and OUTPUTS how many there are. ROWS and ROW_BYTES are
 * those of an input that the model takes row by row; it then has no other, and each sample is a number of rows and
 * these. ROWS_AT_ONCE of them come at a time; WHOLE hands over all of them as a tensor, without the number.
 */
#include HEADER
#include "semihosting.h"

enum { EXIT_FILES = 71, EXIT_STATUS = 72 };

static _Noreturn void fail(const char *reason, int code)
{
    host_print("tosaic: ");
    host_print(reason);
    host_print("\n");
    host_exit(code);
}

static void check(int status)
{
    if (!status)
        return;
    host_print("tosaic status ");
    host_print_hex((uint32_t)status);
    fail("", EXIT_STATUS);
}

#ifdef ROWS
#ifdef WHOLE
#define ROWS_AT_ONCE ROWS
#elif !defined ROWS_AT_ONCE
#define ROWS_AT_ONCE 1
#endif

/* What a camera or a microphone delivers. */
static uint8_t rows[ROWS_AT_ONCE * ROW_BYTES] __attribute__((aligned(16)));

static void read_rows(host_file inputs)
{
    if (host_read(inputs, rows, sizeof rows) != sizeof rows)
        fail("inputs.bin is too short", EXIT_FILES);
}

#ifdef WHOLE
static void infer(MODEL(instance) *model, host_file inputs)
{
    read_rows(inputs);
    model->inputs[0] = rows;
    check(MODEL(invoke)(model));
}
#else
/* `inputs.bin` says how many rows come; as many as the model has begin a new window. */
static void infer(MODEL(instance) *model, host_file inputs)
{
    int status = TOSAIC_MORE;
    uint32_t left;
    if (host_read(inputs, &left, sizeof left) != sizeof left)
        fail("inputs.bin is too short", EXIT_FILES);
    if (left == ROWS)
        MODEL(begin)(model);
    for (; left; left -= ROWS_AT_ONCE) {
        read_rows(inputs);
        if (status == TOSAIC_MORE)
            status = MODEL(feed)(model, rows, ROWS_AT_ONCE);
    }
    check(status);
}
#endif
#else
static void infer(MODEL(instance) *model, host_file inputs)
{
    for (int i = 0; i < INPUTS; i++)
        if (host_read(inputs, model->inputs[i], MODEL(inputs)[i].bytes) != MODEL(inputs)[i].bytes)
            fail("inputs.bin is too short", EXIT_FILES);
    check(MODEL(invoke)(model));
}
#endif

int main(void)
{
    MODEL(instance) model;
    check(MODEL(init_static)(&model));
    host_file inputs = host_open("inputs.bin", HOST_READ);
    host_file outputs = host_open("outputs.bin", HOST_WRITE);
    uint32_t samples;
    if (inputs < 0 || outputs < 0 || host_read(inputs, &samples, sizeof samples) != sizeof samples)
        fail("inputs.bin or outputs.bin cannot be opened", EXIT_FILES);
    for (; samples; samples--) {
        infer(&model, inputs);
        for (uint32_t i = 0; i < OUTPUTS; i++)
            if (host_write(outputs, model.outputs[i], MODEL(outputs)[i].bytes) != MODEL(outputs)[i].bytes)
                fail("outputs.bin cannot be written", EXIT_FILES);
    }
    host_close(outputs);
    return 0;
}
