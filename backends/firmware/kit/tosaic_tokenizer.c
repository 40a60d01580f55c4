#include "tosaic_tokenizer.h"

/* The bytes of the character of UTF-8 that begins here; 1 where it is none. */
static uint32_t length_of_character(const uint8_t *at)
{
    uint32_t length = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : *at >= 0xc0 ? 2 : 1;
    for (uint32_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 1;
    return length;
}

/* As strcmp, of the bytes of a token and so many others. */
static int compare(const tosaic_tokenizer *with, int32_t token, const uint8_t *bytes, uint32_t count)
{
    uint32_t own;
    const uint8_t *text = tosaic_decode(with, token, &own);
    for (uint32_t i = 0; i < own && i < count; i++)
        if (text[i] != bytes[i])
            return text[i] < bytes[i] ? -1 : 1;
    return own < count ? -1 : own > count;
}

/* The token of a character, or -1. */
static int32_t token_of_character(const tosaic_tokenizer *with, const uint8_t *bytes, uint32_t count)
{
    uint32_t low = 0, high = with->character_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = compare(with, with->characters[middle], bytes, count);
        if (!order)
            return with->characters[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static const tosaic_merge *merge_of(const tosaic_tokenizer *with, int32_t left, int32_t right)
{
    uint32_t low = 0, high = with->merge_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const tosaic_merge *merge = &with->merges[middle];
        if (merge->left == left && merge->right == right)
            return merge;
        if (merge->left < left || (merge->left == left && merge->right < right))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Merges pairs, the one of smallest rank first, of equal ones the first: how many tokens are left. */
static uint32_t merged(const tosaic_tokenizer *with, int32_t *tokens, uint32_t count)
{
    for (;;) {
        const tosaic_merge *best = 0;
        uint32_t at = 0;
        for (uint32_t i = 0; i + 1 < count; i++) {
            const tosaic_merge *merge = merge_of(with, tokens[i], tokens[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) {
                best = merge;
                at = i;
            }
        }
        if (!best)
            return count;
        tokens[at] = best->merged;
        count--;
        for (uint32_t i = at + 1; i < count; i++)
            tokens[i] = tokens[i + 1];
    }
}

int32_t tosaic_encode(const tosaic_tokenizer *with, const char *text, int32_t *tokens, uint32_t room)
{
    const uint8_t *at = (const uint8_t *)text;
    uint32_t own = with->first >= 0, count = own;
    int space = *at && (with->spaced == TOSAIC_ALWAYS_SPACED || (with->spaced == TOSAIC_SPACED_ONCE && *at != ' '));
    if (own > room)
        return -1;
    if (own)
        tokens[0] = with->first;
    while (*at || space) {
        const uint8_t *from = space ? (const uint8_t *)" " : at;
        uint32_t length = length_of_character(from);
        int32_t whole = token_of_character(with, from, length);
        uint32_t needed = whole >= 0 ? 1 : length;
        if (count + needed > room)
            return -1;
        for (uint32_t i = 0; i < needed; i++)
            tokens[count++] = whole >= 0 ? whole : with->bytes[from[i]];
        at += space ? 0 : length;
        space = 0;
    }
    return (int32_t)(own + merged(with, tokens + own, count - own));
}

const uint8_t *tosaic_decode(const tosaic_tokenizer *with, int32_t token, uint32_t *bytes)
{
    if (token < 0 || (uint32_t)token >= with->count) {
        *bytes = 0;
        return with->text;
    }
    *bytes = with->begins[token + 1] - with->begins[token];
    return with->text + with->begins[token];
}
