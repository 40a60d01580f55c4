void kernel(const int8_t *restrict in0, int8_t *restrict out, const void *params, void *scratch)
{
  for (int i0 = 0; i0 < 3; i0++)
  {
    const int8_t *from = in0 + 0 + i0 * 32;
    int8_t *to = out + 0 + i0 * 1;
    const uint8x16_t offsets = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45};
    for (int i = 0; i < 32; i += 16) {
    vstrbq_scatter_offset_s8((int8_t *)(to + i * 3), offsets, vldrbq_s8((const int8_t *)(from + i * 1)));
    }
  }
}
