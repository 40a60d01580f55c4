/* The firmware of a simulator: `inputs.bin` holds a number of samples and their inputs, `outputs.bin` gets the outputs.
 *
 * HEADER is the model's header, MODEL(x) its symbol x, INPUTS and OUTPUTS how many there are.
 */
#include HEADER
#include "semihosting.h"

enum { EXIT_FILES = 71, EXIT_STATUS = 72 };

static void fail(const char *reason, int code)
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
        for (uint32_t i = 0; i < INPUTS; i++)
            if (host_read(inputs, model.inputs[i], MODEL(inputs)[i].bytes) != MODEL(inputs)[i].bytes)
                fail("inputs.bin is too short", EXIT_FILES);
        check(MODEL(invoke)(&model));
        for (uint32_t i = 0; i < OUTPUTS; i++)
            if (host_write(outputs, model.outputs[i], MODEL(outputs)[i].bytes) != MODEL(outputs)[i].bytes)
                fail("outputs.bin cannot be written", EXIT_FILES);
    }
    host_close(outputs);
    return 0;
}
