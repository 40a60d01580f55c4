/* Text to tokens and back, by byte pairs (Sennrich et al. 2016).
 *
 * `tosaic tokenizer tokenizer.json` writes a tosaic_tokenizer as C. */
#ifndef TOSAIC_TOKENIZER_H
#define TOSAIC_TOKENIZER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Two tokens that become one; the smallest rank goes first. */
typedef struct {
    uint16_t left;
    uint16_t right;
    uint16_t merged;
    uint16_t rank;
} tosaic_merge;

/* Whether a space is put before a text that has any characters. */
enum tosaic_spaced { TOSAIC_AS_IT_IS, TOSAIC_ALWAYS_SPACED, TOSAIC_SPACED_ONCE /* unless it begins with one */ };

/* The bytes of token t are text[begins[t]] to text[begins[t + 1]]. `merges` are in order of left, then right. A byte by
 * itself is the token bytes[byte]; a character of UTF-8 by itself one of `characters`, in the order of their bytes, if it
 * is there. A text begins with the token `first`, unless that is -1, and with a space, if `spaced` says so. */
typedef struct {
    uint32_t count;
    const uint32_t *begins;
    const uint8_t *text;
    uint32_t merge_count;
    const tosaic_merge *merges;
    const int32_t *bytes;
    uint32_t character_count;
    const int32_t *characters;
    int32_t first;
    enum tosaic_spaced spaced;
} tosaic_tokenizer;

/* The tokens of a text of UTF-8, which ends with a null: how many there are. Where they are more than `room`, -1.
 * `room` for two tokens more than the text has bytes is always enough. */
int32_t tosaic_encode(const tosaic_tokenizer *with, const char *text, int32_t *tokens, uint32_t room);

/* The bytes of a token, without a null behind them; `bytes` takes how many there are. A token that the tokenizer does
 * not have, and one that stands for no text, has none. */
const uint8_t *tosaic_decode(const tosaic_tokenizer *with, int32_t token, uint32_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
