/* The firmware that generates on a simulator: `prompt.bin` holds how, and the prompt; `tokens.bin` gets the tokens, and
 * `scores.bin` the scores that each of them was drawn by.
 *
 * HEADER is the model's generate.h, MODEL(x) its symbol x, PROMPT how many tokens the prompt has, SCORES the
 * output with the scores. */
#include HEADER
#include "semihosting.h"

enum { EXIT_FILES = 71, EXIT_STATUS = 72 };

static struct {
    tosaic_sampler sampler;
    uint32_t most;
    int32_t end; /* the token that ends a text; -1: none */
    int32_t prompt[PROMPT];
} asked;

static MODEL(decoder) decoder;
static host_file tokens, scores;

static _Noreturn void fail(const char *reason, int code)
{
    host_print("tosaic: ");
    host_print(reason);
    host_print("\n");
    host_exit(code);
}

static int write_token(void *context, int32_t token)
{
    (void)context;
    uint32_t bytes = MODEL(outputs)[SCORES].bytes;
    if (host_write(scores, decoder.model.outputs[SCORES], bytes) != bytes ||
        host_write(tokens, &token, sizeof token) != sizeof token)
        fail("tokens.bin or scores.bin cannot be written", EXIT_FILES);
    return token == asked.end;
}

int main(void)
{
    host_file prompt = host_open("prompt.bin", HOST_READ);
    tokens = host_open("tokens.bin", HOST_WRITE);
    scores = host_open("scores.bin", HOST_WRITE);
    if (prompt < 0 || tokens < 0 || scores < 0 || host_read(prompt, &asked, sizeof asked) != sizeof asked)
        fail("prompt.bin, tokens.bin or scores.bin cannot be opened", EXIT_FILES);
    int status = MODEL(init_static)(&decoder.model);
    if (!status)
        status = MODEL(generate)(&decoder, &asked.sampler, asked.prompt, PROMPT, asked.most, write_token, 0);
    if (status && status != TOSAIC_FULL) {
        host_print("tosaic status ");
        host_print_hex((uint32_t)status);
        fail("", EXIT_STATUS);
    }
    host_close(tokens);
    host_close(scores);
    return 0;
}
