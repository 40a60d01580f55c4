INLINE void copy(int8_t *to, const int8_t *from, int bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16, from += 16) {
    const mve_pred16_t inside = vctp8q(bytes);
    vstrbq_p_s8(to, vldrbq_z_s8(from, inside), inside);
  }
}
INLINE void sums(const int8_t *p0, const int8_t *p1, const int8_t *p2, const int8_t *w, int8_t *a)
{
  const int8_t *x0_0 = p0 + 0;
  const int8_t *x1_0 = p1 + 0;
  const int8_t *x2_0 = p2 + 0;
  __asm__ volatile(
      "vldrw.u32 q0, [%[x0_0], #0]\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "movw lr, #5\n"
      "dls lr, lr\n"
      "1:\n"
      "vmladav.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #16]\n"
      "vmladav.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladav.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #16]\n"
      "vmladav.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #16]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #16]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #16]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #16]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "strd r4, r8, [%[a], #80]\n"
      "strd r0, r2, [%[a]], #8\n"
      "vmladav.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #16]\n"
      "vmladav.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladav.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #16]\n"
      "vmladav.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x0_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #16]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #16]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x1_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x1_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #16]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #16]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #32]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x2_0], #32]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r0, q0, q1\n"
      "vldrw.u32 q2, [%[x2_0], #48]\n"
      "vmladava.s8 r4, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r2, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #0]\n"
      "vmladava.s8 r8, q2, q1\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "strd r4, r8, [%[a], #80]\n"
      "strd r0, r2, [%[a]], #8\n"
      "le lr, 1b\n"
      : [w] "+r"(w), [a] "+r"(a)
      : [x0_0] "r"(x0_0), [x1_0] "r"(x1_0), [x2_0] "r"(x2_0)
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "r0", "r2", "r4", "r8");
}
INLINE void finish2(const int32_t *restrict a, const int32_t *restrict t, int8_t *restrict o, int32_t zero, int32_t low, int32_t high, const int8_t *lookup)
{
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 0);
    const int8_t *a1 = (void *)((const int8_t *)a + 80);
    int8_t *o0 = (void *)(o + 0);
    int8_t *o1 = (void *)(o + 20);
    const int8_t *table = (void *)(t + 0);
    __asm__ volatile(
        "vldrw.u32 q5, [%[table]], #16\n"
        "vldrw.u32 q1, [%[a0]], #16\n"
        "vadd.i32 q1, q1, q5\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vqrdmlash.s32 q1, q2, %[zero]\n"
        "vldrw.u32 q0, [%[a1]], #16\n"
        "vadd.i32 q0, q0, q5\n"
        "vqrdmlash.s32 q0, q2, %[zero]\n"
        "vqmovnb.s32 q1, q1\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vqmovnb.s32 q0, q0\n"
        "vldrw.u32 q5, [%[a0]], #16\n"
        "vadd.i32 q5, q5, q2\n"
        "vldrw.u32 q7, [%[table]], #16\n"
        "vqrdmlash.s32 q5, q7, %[zero]\n"
        "vldrw.u32 q3, [%[a1]], #16\n"
        "vadd.i32 q3, q3, q2\n"
        "vqrdmlash.s32 q3, q7, %[zero]\n"
        "vqmovnt.s32 q1, q5\n"
        "vldrw.u32 q5, [%[table]], #16\n"
        "vqmovnt.s32 q0, q3\n"
        "vldrw.u32 q3, [%[a0]], #16\n"
        "vadd.i32 q3, q3, q5\n"
        "vldrw.u32 q7, [%[table]], #16\n"
        "vqmovnb.s16 q1, q1\n"
        "vqrdmlash.s32 q3, q7, %[zero]\n"
        "vqmovnb.s16 q0, q0\n"
        "vldrw.u32 q2, [%[a1]], #16\n"
        "vadd.i32 q2, q2, q5\n"
        "vqrdmlash.s32 q2, q7, %[zero]\n"
        "vqmovnb.s32 q3, q3\n"
        "vldrw.u32 q7, [%[table]], #16\n"
        "vqmovnb.s32 q2, q2\n"
        "vldrw.u32 q5, [%[a0]], #16\n"
        "vadd.i32 q5, q5, q7\n"
        "vldrw.u32 q6, [%[table]], #16\n"
        "vqrdmlash.s32 q5, q6, %[zero]\n"
        "vldrw.u32 q4, [%[a1]], #16\n"
        "vadd.i32 q4, q4, q7\n"
        "vqrdmlash.s32 q4, q6, %[zero]\n"
        "vqmovnt.s32 q3, q5\n"
        "vqmovnt.s32 q2, q4\n"
        "vqmovnt.s16 q1, q3\n"
        "vqmovnt.s16 q0, q2\n"
        "vstrb.8 q1, [%[o0]], #16\n"
        "vstrb.8 q0, [%[o1]], #16\n"
        : [a0] "+r"(a0), [a1] "+r"(a1), [o0] "+r"(o0), [o1] "+r"(o1), [table] "+r"(table)
        : [zero] "r"(zero)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 64);
    const int8_t *a1 = (void *)((const int8_t *)a + 144);
    int8_t *o0 = (void *)(o + 16);
    int8_t *o1 = (void *)(o + 36);
    const int8_t *table = (void *)(t + 32);
    __asm__ volatile(
        "vldrw.u32 q3, [%[table]], #16\n"
        "vldrw.u32 q1, [%[a0]], #16\n"
        "vadd.i32 q1, q1, q3\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vqrdmlash.s32 q1, q2, %[zero]\n"
        "vldrw.u32 q0, [%[a1]], #16\n"
        "vadd.i32 q0, q0, q3\n"
        "vqrdmlash.s32 q0, q2, %[zero]\n"
        "vqmovnb.s32 q1, q1\n"
        "vqmovnb.s32 q0, q0\n"
        "vqmovnb.s16 q1, q1\n"
        "vqmovnb.s16 q0, q0\n"
        "vstrb.32 q1, [%[o0]], #4\n"
        "vstrb.32 q0, [%[o1]], #4\n"
        : [a0] "+r"(a0), [a1] "+r"(a1), [o0] "+l"(o0), [o1] "+l"(o1), [table] "+r"(table)
        : [zero] "r"(zero)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
}
void kernel(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)
{
  const int32_t *range = (const int32_t *)params;
  const int8_t *packed = params + 176;
  const int32_t zero_point = range[0], low = range[1], high = range[2];
  const int8_t *lookup = 0;
  const int8x16_t zero = vdupq_n_s8(range[3]);
  int8_t *padded = scratch + 160;
  for (int i = 0; i < 1104; i += 16) vstrbq_s8(padded + i, zero);
  for (int row = 0; row < 6; row++)
    copy(padded + 144 + row * 128, in + row * 96, 96);
  for (int y_ = 0; y_ < 6; y_ += 1) {
    const int y = y_;
    for (int x_ = 0; x_ < 6; x_ += 2) {
      const int x = x_;
      const int row = y;
      int column = x;
      const int8_t *image = scratch + 160;
      int iy = row * 1 - 0;
      int ix = column * 1 - 0;
      const int8_t *from;
      int step;
      from = image + iy * 128 + ix * 16;
      step = 128;
      const int8_t *p0 = from + 0 * step;
      const int8_t *p1 = from + 1 * step;
      const int8_t *p2 = from + 2 * step;
      for (int n = 0; n < 20; n += 20) {
        const int8_t *w = packed + n / 20 * 2880;
        const int32_t *t = (const int32_t *)(params + 16) + n / 20 * 40;
        int8_t *o = out + ((y * 6 + x) * 20 + n) * 1;
        int32_t *totals = (int32_t *)(scratch + 0);
        for (int r = 0; r <= 2 - 2; r += 2)
          sums(p0 + r * 16, p1 + r * 16, p2 + r * 16, w, (int8_t *)totals + r * 80);
        for (int r = 0; r <= 2 - 2; r += 2)
          finish2(totals + r * 20, t, o + r * 20, zero_point, low, high, lookup);
      }
    }
  }
}
