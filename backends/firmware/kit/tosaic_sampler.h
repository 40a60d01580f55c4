/* Which token comes next: the likeliest, or one that is drawn.
 *
 * Probabilities are integers: 2^30 for the likeliest token, and so on. A draw is the same on every core, and needs no
 * memory beside 1.5 KiB of stack. */
#ifndef TOSAIC_SAMPLER_H
#define TOSAIC_SAMPLER_H

#include "tosaic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a token is drawn. Scores are divided by `temperature`; 0 takes the likeliest token, the first of equal ones. Only
 * the `top_k` likeliest tokens may come (0: all), and of these only the likeliest that have `top_p` of the probability
 * together (1: all); a token that is as likely as the last of them may come too. `state` is the random generator's: a
 * seed, then what the last draw left. 0 is no seed. */
typedef struct {
    float temperature;
    float top_p;
    uint32_t top_k;
    uint32_t state;
} tosaic_sampler;

/* The next token: its number among the scores, of int8, uint8, int16 or float32 as `described` says. */
uint32_t tosaic_sample(tosaic_sampler *sampler, const tosaic_tensor *described, const void *scores);

#ifdef __cplusplus
}
#endif

#endif
