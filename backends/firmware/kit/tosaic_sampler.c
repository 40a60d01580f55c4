/* A token is drawn by its distance from the likeliest one: the negative binary logarithm of its relative probability,
 * an integer in steps of 2^-16 (`tosaic_sampler.h`). */
#include "tosaic_sampler.h"

enum { FRACTION = 16, DISTANCE_BITS = 21, DIGIT_BITS = 7, DIGITS = 1 << DIGIT_BITS };

#define FARTHEST ((1u << DISTANCE_BITS) - 1)
#define LOG2_OF_E 1.44269504f

typedef struct {
    const tosaic_tensor *described;
    const void *data;
    uint32_t count;
    uint64_t step;  /* the distance of one integer, in steps of 2^-32 */
    float scale;    /* the distance of 1.0, of floats */
    int32_t best;   /* the largest integer */
    float best_float;
} scores;

static int is_float(const tosaic_tensor *described)
{
    return described->dtype[0] == 'f';
}

static uint32_t element_count(const tosaic_tensor *described)
{
    uint32_t count = 1;
    for (uint32_t i = 0; i < described->rank; i++)
        count *= described->shape[i];
    return count;
}

static int32_t integer_at(const scores *from, uint32_t i)
{
    if (from->described->bytes == 2 * from->count)
        return ((const int16_t *)from->data)[i];
    return from->described->dtype[0] == 'u' ? ((const uint8_t *)from->data)[i] : ((const int8_t *)from->data)[i];
}

static float float_at(const scores *from, uint32_t i)
{
    return ((const float *)from->data)[i];
}

/* Finds the largest score: its number, the first of equal ones. */
static uint32_t find_best(scores *from)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < from->count; i++) {
        if (is_float(from->described) ? float_at(from, i) > float_at(from, best)
                                      : integer_at(from, i) > integer_at(from, best))
            best = i;
    }
    if (is_float(from->described))
        from->best_float = float_at(from, best);
    else
        from->best = integer_at(from, best);
    return best;
}

static uint32_t distance(const scores *from, uint32_t i)
{
    if (is_float(from->described)) {
        float apart = (from->best_float - float_at(from, i)) * from->scale;
        return apart < (float)FARTHEST ? (uint32_t)apart : FARTHEST;
    }
    uint64_t apart = ((uint32_t)(from->best - integer_at(from, i)) * from->step) >> (32 - FRACTION);
    return apart < FARTHEST ? (uint32_t)apart : FARTHEST;
}

static int64_t scaled(int64_t a, int64_t b)
{
    return (a * b) >> 30;
}

/* 2^-distance in steps of 2^-30: a polynomial of degree 5, wrong by 6e-8 at most. */
static uint32_t weight(uint32_t distance)
{
    static const int32_t terms[] = {1073741824, -744256846, 257890763, -59377501, 9890102, -1017428};
    int64_t fraction = (int64_t)(distance & ((1u << FRACTION) - 1)) << (30 - FRACTION), sum = 0;
    for (int i = 5; i >= 0; i--)
        sum = scaled(sum, fraction) + terms[i];
    return (uint32_t)sum >> (distance >> FRACTION);
}

/* The smallest distance within which the tokens, of those within `limit`, reach `wanted` together: their number, or the
 * sum of their weights. It is found digit by digit. */
static uint32_t reach(const scores *from, uint32_t limit, uint64_t wanted, int weighed)
{
    uint64_t before = 0;
    uint32_t found = 0;
    for (int shift = DISTANCE_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sums[DIGITS] = {0};
        for (uint32_t i = 0; i < from->count; i++) {
            uint32_t apart = distance(from, i);
            if (apart <= limit && apart >> (shift + DIGIT_BITS) == found >> (shift + DIGIT_BITS))
                sums[(apart >> shift) & (DIGITS - 1)] += weighed ? weight(apart) : 1;
        }
        uint32_t digit = 0;
        while (digit < DIGITS - 1 && before + sums[digit] < wanted)
            before += sums[digit++];
        found |= digit << shift;
    }
    return found < limit ? found : limit;
}

static uint64_t weight_within(const scores *from, uint32_t limit)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t apart = distance(from, i);
        if (apart <= limit)
            total += weight(apart);
    }
    return total;
}

/* Xorshift (Marsaglia 2003). */
static uint32_t drawn(uint32_t *state)
{
    uint32_t next = *state ? *state : 1;
    next ^= next << 13;
    next ^= next >> 17;
    next ^= next << 5;
    return *state = next;
}

uint32_t tosaic_sample(tosaic_sampler *sampler, const tosaic_tensor *described, const void *data)
{
    scores from = {.described = described, .data = data, .count = element_count(described)};
    uint32_t best = find_best(&from);
    if (!(sampler->temperature > 0))
        return best;
    float of_one = LOG2_OF_E / sampler->temperature;
    from.scale = of_one * (float)(1u << FRACTION);
    float step = of_one * described->scale;
    from.step = step < 32768.0f ? (uint64_t)(step * 4294967296.0f) : (uint64_t)32768 << 32;
    uint32_t limit = FARTHEST;
    if (sampler->top_k && sampler->top_k < from.count)
        limit = reach(&from, limit, sampler->top_k, 0);
    uint64_t total = weight_within(&from, limit);
    if (sampler->top_p < 1) {
        uint64_t share = sampler->top_p > 0 ? (uint64_t)(sampler->top_p * 4294967296.0f) : 0;
        limit = reach(&from, limit, (total >> 16) * share >> 16, 1);
        total = weight_within(&from, limit);
    }
    uint64_t random = drawn(&sampler->state), left = ((total >> 16) * random >> 16) + ((total & 0xffff) * random >> 32);
    for (uint32_t i = 0; i < from.count; i++) {
        uint32_t apart = distance(&from, i), own = apart <= limit ? weight(apart) : 0;
        if (left < own)
            return i;
        left -= own;
    }
    return best;
}
