INLINE void group(const int8_t *p0, const int8_t *w, const int32_t *t, int8_t *o,
  int32_t zero_point, int32_t low, int32_t high, const int8_t *lookup)
{
  const int8x16_t w0 = vldrbq_s8(w + 0);
  const int8x16_t w1 = vldrbq_s8(w + 16);
  const int8x16_t w2 = vldrbq_s8(w + 32);
  const int8x16_t w3 = vldrbq_s8(w + 48);
  const int32x4_t bias = vldrwq_s32(t + 0);
  const int32x4_t multiplier = vldrwq_s32(t + 4);
  __asm__ volatile(
      "vldrw.u32 q1, [%[p0]], #16\n"
      "vmladav.s8 r0, q1, %q[w0]\n"
      "vmladav.s8 r2, q1, %q[w1]\n"
      "vmladav.s8 r4, q1, %q[w2]\n"
      "vmladav.s8 r6, q1, %q[w3]\n"
      "vmov q0[2], q0[0], r0, r4\n"
      "vmov q0[3], q0[1], r2, r6\n"
      "movw lr, #6\n"
      "dls lr, lr\n"
      "1:\n"
      "vadd.i32 q0, q0, %q[bias]\n"
      "vqrdmlash.s32 q0, %q[multiplier], %[zero_point]\n"
      "vldrw.u32 q1, [%[p0]], #16\n"
      "vmladav.s8 r0, q1, %q[w0]\n"
      "vqshl.s32 q0, q0, #24\n"
      "vmladav.s8 r2, q1, %q[w1]\n"
      "vshr.u32 q0, q0, #24\n"
      "vmladav.s8 r4, q1, %q[w2]\n"
      "vstrb.32 q0, [%[o]], #8\n"
      "vmladav.s8 r6, q1, %q[w3]\n"
      "vmov q0[2], q0[0], r0, r4\n"
      "vmov q0[3], q0[1], r2, r6\n"
      "le lr, 1b\n"
      "vadd.i32 q0, q0, %q[bias]\n"
      "vqrdmlash.s32 q0, %q[multiplier], %[zero_point]\n"
      "vqshl.s32 q0, q0, #24\n"
      "vshr.u32 q0, q0, #24\n"
      "vstrb.32 q0, [%[o]], #8\n"
      : [p0] "+r"(p0), [o] "+l"(o)
      : [zero_point] "r"(zero_point), [w0] "w"(w0), [w1] "w"(w1), [w2] "w"(w2), [w3] "w"(w3), [bias] "w"(bias), [multiplier] "w"(multiplier)
      : "memory", "lr", "q0", "q1", "r0", "r2", "r4", "r6");
}
INLINE void strip(int8_t *to, const int8_t *image, int iy, int ix, int8x16_t zero)
{
  const int first = ix < 0 ? -ix : 0;
  const int last = 8 - ix < 2 ? 8 - ix : 2;
  for (int ky = 0; ky < 2; ky++, to += 16, iy += 1) {
    for (int i = 0; i < 16; i += 16) vstrbq_s8(to + i, zero);
    if ((unsigned)iy < 8)
      copy(to + first * 4, image + iy * 32 + (ix + first) * 4, (last - first) * 4);
  }
}
void kernel(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)
{
  const int32_t *range = (const int32_t *)params;
  const int8_t *packed = params + 80;
  const int32_t zero_point = range[0], low = range[1], high = range[2];
  const int8_t *lookup = 0;
  const int8x16_t zero = vdupq_n_s8(range[3]);
  for (int x_ = 0; x_ < 49; x_ += 7) {
    const int x = x_;
    const int row = x / 7;
    int column = x - row * 7;
    const int8_t *image = in;
    int iy = row * 1 - 0;
    int ix = column * 1 - 0;
    int8_t *p0 = scratch + 0;
    for (int r = 0, count = 7; r < 7; r += count, count = 7) {
      int8_t *to = p0 + r * 16;
      const int8_t *from = image + iy * 32 + ix * 4;
      if (from <= in + 208) {
        if (count > 7 - column) count = 7 - column;
        if (count > 7 - r) count = 7 - r;
        if (count > (in + 208 - from) / 4 + 1) count = (in + 208 - from) / 4 + 1;
        for (int i = 0; i < count; i++, from += 4, to += 16) {
          vstrbq_s8(to + 0, vldrbq_s8(from + 0));
          vstrbq_s8(to + 8, vldrbq_s8(from + 32));
        }
      } else {
        count = 1;
        strip(scratch + 128, image, iy, ix, zero);
        from = scratch + 128;
        for (int ky = 0; ky < 2; ky++, from += 16, to += 8) {
          vstrbq_s8(to + 0, vldrbq_s8(from + 0));
        }
      }
      ix += count * 1;
      column += count;
      if (column == 7) {
        column = 0; ix = 0; iy += 1;
      }
    }
    for (int n = 0; n < 8; n += 8) {
      const int8_t *w = packed + n / 8 * 128;
      const int32_t *t = (const int32_t *)(params + 16) + n / 8 * 16;
      int8_t *o = out + (x) * 8 + n;
      for (int c = 0; c < 8; c += 4) {
        group(p0 + 0, w + c * 16, t + c / 4 * 8, o + 0 + c, zero_point, low, high, lookup);
      }
    }
  }
}
