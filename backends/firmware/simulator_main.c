/* The firmware of a simulator: `inputs.bin` holds a number of samples and their inputs, `outputs.bin` gets the outputs. */
#include "model.h"
#include "semihosting.h"

enum { EXIT_FILES = 71, EXIT_NPU = 72 };

static void fail(const char *reason, int code)
{
    host_print("tosaic: ");
    host_print(reason);
    host_print("\n");
    host_exit(code);
}

int main(void)
{
    host_file inputs = host_open("inputs.bin", HOST_READ);
    host_file outputs = host_open("outputs.bin", HOST_WRITE);
    uint32_t samples;
    if (inputs < 0 || outputs < 0 || host_read(inputs, &samples, sizeof samples) != sizeof samples)
        fail("inputs.bin or outputs.bin cannot be opened", EXIT_FILES);
    for (; samples; samples--) {
        for (uint32_t i = 0; i < TOSAIC_INPUTS; i++)
            if (host_read(inputs, tosaic_inputs[i].data, tosaic_inputs[i].bytes) != tosaic_inputs[i].bytes)
                fail("inputs.bin is too short", EXIT_FILES);
        int status = tosaic_invoke();
        if (status) {
            host_print("tosaic npu status ");
            host_print_hex((uint32_t)status);
            fail("", EXIT_NPU);
        }
        for (uint32_t i = 0; i < TOSAIC_OUTPUTS; i++)
            if (host_write(outputs, tosaic_outputs[i].data, tosaic_outputs[i].bytes) != tosaic_outputs[i].bytes)
                fail("outputs.bin cannot be written", EXIT_FILES);
    }
    host_close(outputs);
    return 0;
}
