INLINE void copy(int8_t *to, const int8_t *from, int bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16, from += 16) {
    const mve_pred16_t inside = vctp8q(bytes);
    vstrbq_p_s8(to, vldrbq_z_s8(from, inside), inside);
  }
}
INLINE void sums(const int8_t *p0, const int8_t *w, int8_t *a)
{
  const int8_t *x0_0 = p0 + 0;
  __asm__ volatile(
      "vldrw.u32 q0, [%[x0_0], #0]\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "movw lr, #3\n"
      "dls lr, lr\n"
      "1:\n"
      "vldrw.u32 q6, [%[x0_0], #20]\n"
      "vmladav.s8 r0, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #40]\n"
      "vmladav.s8 r2, q6, q1\n"
      "vldrw.u32 q6, [%[x0_0], #60]\n"
      "vmladav.s8 r4, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #80]\n"
      "vmladav.s8 r8, q6, q1\n"
      "vldrw.u32 q6, [%[x0_0], #100]\n"
      "vmladav.s8 r10, q0, q1\n"
      "vldrw.u32 q0, [%[x0_0], #120]\n"
      "vmladav.s8 r12, q6, q1\n"
      "vldrw.u32 q6, [%[x0_0], #16]\n"
      "vmladav.s8 r6, q0, q1\n"
      "vldrb.u8 q0, [%[w]], #16\n"
      "vmladava.s8 r0, q6, q0\n"
      "vldrw.u32 q1, [%[x0_0], #36]\n"
      "vmladava.s8 r2, q1, q0\n"
      "vldrw.u32 q1, [%[x0_0], #56]\n"
      "vmladava.s8 r4, q1, q0\n"
      "vldrw.u32 q1, [%[x0_0], #76]\n"
      "vmladava.s8 r8, q1, q0\n"
      "vldrw.u32 q1, [%[x0_0], #96]\n"
      "vmladava.s8 r10, q1, q0\n"
      "vldrw.u32 q1, [%[x0_0], #116]\n"
      "vmladava.s8 r12, q1, q0\n"
      "vldrw.u32 q1, [%[x0_0], #136]\n"
      "vmladava.s8 r6, q1, q0\n"
      "vldrw.u32 q6, [%[x0_0], #0]\n"
      "str.w r6, [%[a], #288]\n"
      "vldrb.u8 q4, [%[w]], #16\n"
      "str.w r12, [%[a], #240]\n"
      "vldrw.u32 q5, [%[x0_0], #20]\n"
      "str.w r10, [%[a], #192]\n"
      "vldrw.u32 q2, [%[x0_0], #40]\n"
      "str.w r8, [%[a], #144]\n"
      "vldrw.u32 q7, [%[x0_0], #60]\n"
      "str.w r4, [%[a], #96]\n"
      "vldrw.u32 q3, [%[x0_0], #80]\n"
      "str.w r2, [%[a], #48]\n"
      "vldrw.u32 q0, [%[x0_0], #100]\n"
      "str r0, [%[a]], #4\n"
      "vldrw.u32 q1, [%[x0_0], #120]\n"
      "vmladav.s8 r0, q6, q4\n"
      "vldrw.u32 q6, [%[x0_0], #16]\n"
      "vmladav.s8 r2, q5, q4\n"
      "vldrb.u8 q5, [%[w]], #16\n"
      "vmladav.s8 r4, q2, q4\n"
      "vldrw.u32 q2, [%[x0_0], #36]\n"
      "vmladav.s8 r8, q7, q4\n"
      "vldrw.u32 q7, [%[x0_0], #56]\n"
      "vmladav.s8 r10, q3, q4\n"
      "vldrw.u32 q3, [%[x0_0], #76]\n"
      "vmladav.s8 r12, q0, q4\n"
      "vldrw.u32 q0, [%[x0_0], #96]\n"
      "vmladav.s8 r6, q1, q4\n"
      "vldrw.u32 q1, [%[x0_0], #116]\n"
      "vmladava.s8 r0, q6, q5\n"
      "vldrw.u32 q6, [%[x0_0], #136]\n"
      "vmladava.s8 r2, q2, q5\n"
      "vldrw.u32 q2, [%[x0_0], #0]\n"
      "vmladava.s8 r4, q7, q5\n"
      "vldrb.u8 q7, [%[w]], #16\n"
      "vmladava.s8 r8, q3, q5\n"
      "vldrw.u32 q3, [%[x0_0], #20]\n"
      "vmladava.s8 r10, q0, q5\n"
      "vldrw.u32 q0, [%[x0_0], #40]\n"
      "vmladava.s8 r12, q1, q5\n"
      "vldrw.u32 q1, [%[x0_0], #60]\n"
      "vmladava.s8 r6, q6, q5\n"
      "vldrw.u32 q6, [%[x0_0], #80]\n"
      "str.w r6, [%[a], #288]\n"
      "vldrw.u32 q5, [%[x0_0], #100]\n"
      "str.w r12, [%[a], #240]\n"
      "vldrw.u32 q4, [%[x0_0], #120]\n"
      "str.w r10, [%[a], #192]\n"
      "str.w r8, [%[a], #144]\n"
      "str.w r4, [%[a], #96]\n"
      "str.w r2, [%[a], #48]\n"
      "str r0, [%[a]], #4\n"
      "vmladav.s8 r0, q2, q7\n"
      "vldrw.u32 q2, [%[x0_0], #16]\n"
      "vmladav.s8 r2, q3, q7\n"
      "vldrb.u8 q3, [%[w]], #16\n"
      "vmladav.s8 r4, q0, q7\n"
      "vldrw.u32 q0, [%[x0_0], #36]\n"
      "vmladav.s8 r8, q1, q7\n"
      "vldrw.u32 q1, [%[x0_0], #56]\n"
      "vmladav.s8 r10, q6, q7\n"
      "vldrw.u32 q6, [%[x0_0], #76]\n"
      "vmladav.s8 r12, q5, q7\n"
      "vldrw.u32 q5, [%[x0_0], #96]\n"
      "vmladav.s8 r6, q4, q7\n"
      "vldrw.u32 q4, [%[x0_0], #116]\n"
      "vmladava.s8 r0, q2, q3\n"
      "vldrw.u32 q2, [%[x0_0], #136]\n"
      "vmladava.s8 r2, q0, q3\n"
      "vldrw.u32 q0, [%[x0_0], #0]\n"
      "vmladava.s8 r4, q1, q3\n"
      "vldrb.u8 q1, [%[w]], #16\n"
      "vmladava.s8 r8, q6, q3\n"
      "str.w r4, [%[a], #96]\n"
      "vmladava.s8 r10, q5, q3\n"
      "str.w r8, [%[a], #144]\n"
      "vmladava.s8 r12, q4, q3\n"
      "str.w r10, [%[a], #192]\n"
      "vmladava.s8 r6, q2, q3\n"
      "str.w r12, [%[a], #240]\n"
      "str.w r6, [%[a], #288]\n"
      "str.w r2, [%[a], #48]\n"
      "str r0, [%[a]], #4\n"
      "le lr, 1b\n"
      : [w] "+r"(w), [a] "+r"(a)
      : [x0_0] "r"(x0_0)
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "r0", "r2", "r4", "r8", "r10", "r12", "r6");
}
INLINE void finish1(const int32_t *restrict a, const int32_t *restrict t, int8_t *restrict o, int32_t zero, int32_t low, int32_t high, const int8_t *lookup, int32_t term0)
{
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 0);
    int8_t *o0 = (void *)(o + 0);
    const int8_t *table = (void *)(t + 0);
    __asm__ volatile(
        "vldrw.u32 q3, [%[a0]], #16\n"
        "vldrw.u32 q0, [%[table]], #16\n"
        "vadd.i32 q3, q3, q0\n"
        "vldrw.u32 q0, [%[table]], #16\n"
        "vadd.i32 q3, q3, %[term0]\n"
        "vqdmulh.s32 q3, q3, q0\n"
        "vldrw.u32 q0, [%[table]], #16\n"
        "vrshl.s32 q3, q3, q0\n"
        "vldrw.u32 q0, [%[a0]], #16\n"
        "vadd.i32 q3, q3, %[zero]\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vqmovnb.s32 q3, q3\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vadd.i32 q0, q0, q1\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vqmovnb.s16 q3, q3\n"
        "vadd.i32 q0, q0, %[term0]\n"
        "vstrb.32 q3, [%[o0]], #4\n"
        "vqdmulh.s32 q0, q0, q2\n"
        "vrshl.s32 q0, q0, q1\n"
        "vadd.i32 q0, q0, %[zero]\n"
        "vqmovnb.s32 q0, q0\n"
        "vqmovnb.s16 q0, q0\n"
        "vstrb.32 q0, [%[o0]], #4\n"
        : [a0] "+r"(a0), [o0] "+l"(o0), [table] "+r"(table)
        : [zero] "r"(zero), [term0] "r"(term0)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 32);
    int8_t *o0 = (void *)(o + 8);
    const int8_t *table = (void *)(t + 24);
    const int32_t left = 1;
    __asm__ volatile(
        "vmrs lr, p0\n"
        "vctp.32 %[left]\n"
        "vldrw.u32 q0, [%[a0]], #16\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vadd.i32 q0, q0, q1\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vadd.i32 q0, q0, %[term0]\n"
        "vqdmulh.s32 q0, q0, q1\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vrshl.s32 q0, q0, q1\n"
        "vadd.i32 q0, q0, %[zero]\n"
        "vqmovnb.s32 q0, q0\n"
        "vqmovnb.s16 q0, q0\n"
        "vpst\nvstrbt.32 q0, [%[o0]], #4\n"
        "vmsr p0, lr\n"
        : [a0] "+r"(a0), [o0] "+l"(o0), [table] "+r"(table)
        : [zero] "r"(zero), [term0] "r"(term0), [left] "r"(left)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
}
INLINE void finish2(const int32_t *restrict a, const int32_t *restrict t, int8_t *restrict o, int32_t zero, int32_t low, int32_t high, const int8_t *lookup, int32_t term0, int32_t term1)
{
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 0);
    const int8_t *a1 = (void *)((const int8_t *)a + 48);
    int8_t *o0 = (void *)(o + 0);
    int8_t *o1 = (void *)(o + 9);
    const int8_t *table = (void *)(t + 0);
    __asm__ volatile(
        "vldrw.u32 q4, [%[table]], #16\n"
        "vldrw.u32 q6, [%[a0]], #16\n"
        "vadd.i32 q6, q6, q4\n"
        "vldrw.u32 q1, [%[table]], #16\n"
        "vadd.i32 q6, q6, %[term0]\n"
        "vqdmulh.s32 q6, q6, q1\n"
        "vldrw.u32 q3, [%[table]], #16\n"
        "vrshl.s32 q6, q6, q3\n"
        "vldrw.u32 q5, [%[a1]], #16\n"
        "vadd.i32 q5, q5, q4\n"
        "vldrw.u32 q4, [%[table]], #16\n"
        "vadd.i32 q5, q5, %[term1]\n"
        "vqdmulh.s32 q5, q5, q1\n"
        "vadd.i32 q6, q6, %[zero]\n"
        "vldrw.u32 q1, [%[a0]], #16\n"
        "vrshl.s32 q5, q5, q3\n"
        "vldrw.u32 q3, [%[table]], #16\n"
        "vqmovnb.s32 q6, q6\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vadd.i32 q5, q5, %[zero]\n"
        "vldrw.u32 q0, [%[a1]], #16\n"
        "vqmovnb.s16 q6, q6\n"
        "vqmovnb.s32 q5, q5\n"
        "vstrb.32 q6, [%[o0]], #4\n"
        "vadd.i32 q1, q1, q4\n"
        "vqmovnb.s16 q5, q5\n"
        "vadd.i32 q1, q1, %[term0]\n"
        "vstrb.32 q5, [%[o1]], #4\n"
        "vadd.i32 q0, q0, q4\n"
        "vqdmulh.s32 q1, q1, q3\n"
        "vadd.i32 q0, q0, %[term1]\n"
        "vqdmulh.s32 q0, q0, q3\n"
        "vrshl.s32 q1, q1, q2\n"
        "vrshl.s32 q0, q0, q2\n"
        "vadd.i32 q1, q1, %[zero]\n"
        "vqmovnb.s32 q1, q1\n"
        "vadd.i32 q0, q0, %[zero]\n"
        "vqmovnb.s16 q1, q1\n"
        "vqmovnb.s32 q0, q0\n"
        "vstrb.32 q1, [%[o0]], #4\n"
        "vqmovnb.s16 q0, q0\n"
        "vstrb.32 q0, [%[o1]], #4\n"
        : [a0] "+r"(a0), [a1] "+r"(a1), [o0] "+l"(o0), [o1] "+l"(o1), [table] "+r"(table)
        : [zero] "r"(zero), [term0] "r"(term0), [term1] "r"(term1)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
  {
    const int8_t *a0 = (void *)((const int8_t *)a + 32);
    const int8_t *a1 = (void *)((const int8_t *)a + 80);
    int8_t *o0 = (void *)(o + 8);
    int8_t *o1 = (void *)(o + 17);
    const int8_t *table = (void *)(t + 24);
    const int32_t left = 1;
    __asm__ volatile(
        "vmrs lr, p0\n"
        "vctp.32 %[left]\n"
        "vldrw.u32 q4, [%[table]], #16\n"
        "vldrw.u32 q1, [%[a0]], #16\n"
        "vadd.i32 q1, q1, q4\n"
        "vldrw.u32 q3, [%[table]], #16\n"
        "vadd.i32 q1, q1, %[term0]\n"
        "vqdmulh.s32 q1, q1, q3\n"
        "vldrw.u32 q2, [%[table]], #16\n"
        "vrshl.s32 q1, q1, q2\n"
        "vldrw.u32 q0, [%[a1]], #16\n"
        "vadd.i32 q0, q0, q4\n"
        "vadd.i32 q0, q0, %[term1]\n"
        "vqdmulh.s32 q0, q0, q3\n"
        "vadd.i32 q1, q1, %[zero]\n"
        "vrshl.s32 q0, q0, q2\n"
        "vqmovnb.s32 q1, q1\n"
        "vadd.i32 q0, q0, %[zero]\n"
        "vqmovnb.s16 q1, q1\n"
        "vqmovnb.s32 q0, q0\n"
        "vpst\nvstrbt.32 q1, [%[o0]], #4\n"
        "vqmovnb.s16 q0, q0\n"
        "vpst\nvstrbt.32 q0, [%[o1]], #4\n"
        "vmsr p0, lr\n"
        : [a0] "+r"(a0), [a1] "+r"(a1), [o0] "+l"(o0), [o1] "+l"(o1), [table] "+r"(table)
        : [zero] "r"(zero), [term0] "r"(term0), [term1] "r"(term1), [left] "r"(left)
        : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  }
}
INLINE void strip(int8_t *to, const int8_t *image, int iy, int ix, int8x16_t zero)
{
  const int first = ix < 0 ? -ix : 0;
  const int last = 7 - ix < 7 ? 7 - ix : 7;
  for (int ky = 0; ky < 1; ky++, to += 160, iy += 1) {
    for (int i = 0; i < 160; i += 16) vstrbq_s8(to + i, zero);
    if ((unsigned)iy < 1)
      copy(to + first * 20, image + iy * 140 + (ix + first) * 20, (last - first) * 20);
  }
}
INLINE int32_t row_sum(const int8_t *row)
{
  int32_t sum = 0;
  for (int k = 0; k < 1; k++, row += 16) sum = vaddvaq_s8(sum, vldrbq_s8(row));
  sum = vaddvaq_s8(sum, vldrbq_z_s8(row, vctp8q(4)));
  return sum;
}
INLINE void pack(int8_t *w, int32_t *factors, const int8_t *b, const int32_t *range, const int32_t *order)
{
  const uint16x8_t steps = vmulq_n_u16(vidupq_n_u16(0, 1), 9);
  for (int tile = 0; tile < 9; tile++, w += 32)
    for (int c = 0; c < 1; c++, order += 2) {
      int8_t *to = w + c * 16;
      const int column = order[0], bias = order[1];
      const int8_t *from = b + column;
      int32_t sum = 0;
      for (int k = 0; k < 1; k++, from += 144, to += 16) {
        const int16x8_t low = vldrbq_gather_offset_s16(from, steps);
        vstrbq_s16(to, low);
        const int16x8_t high = vldrbq_gather_offset_s16(from + 8 * 9, steps);
        vstrbq_s16(to + 8, high);
        sum = vaddvaq_s16(vaddvaq_s16(sum, low), high);
      }
      const int16x8_t low = vldrbq_gather_offset_z_s16(from, steps, vctp16q(4));
      vstrbq_s16(to, low);
      const int16x8_t high = vldrbq_gather_offset_z_s16(from + 8 * 9, steps, vctp16q(0));
      vstrbq_s16(to + 8, high);
      sum = vaddvaq_s16(vaddvaq_s16(sum, low), high);
      factors[bias] = range[3] * (20 * range[4] - sum);
    }
}
void kernel(const int8_t *restrict a, const int8_t *restrict b, int8_t *restrict results,
              const int8_t *restrict params, int8_t *restrict scratch)
{
  const int32_t *range = (const int32_t *)params;
  copy(scratch + 864, params + 112, 144);
  for (int i = 0; i < 1; i++) {
    const int8_t *in = a + i * 140;
    int8_t *out = results + i * 63;
    pack(scratch + 544, (int32_t *)(scratch + 864), b + i * 180, range,
         (const int32_t *)(params + 32));
    const int32_t zero_point = range[0], low = range[1], high = range[2];
    const int8_t *lookup = 0;
    const int8x16_t zero = vdupq_n_s8(range[3]);
    for (int y_ = 0; y_ < 1; y_ += 1) {
      const int y = y_;
      for (int x_ = 0; x_ < 7; x_ += 7) {
        const int x = x_;
        const int row = y;
        int column = x;
        const int8_t *image = in;
        int iy = row * 1 - 0;
        int ix = column * 1 - 0;
        const int8_t *from;
        int step;
        from = image + iy * 140 + ix * 20;
        step = 140;
        if (!(0)) {
          strip(scratch + 336, image, iy, ix, zero);
          from = scratch + 336;
          step = 160;
        }
        const int8_t *p0 = from + 0 * step;
        int32_t *terms = (int32_t *)(scratch + 512);
        for (int r = 0; r < 7; r++)
          terms[r] = -range[4] * row_sum(p0 + r * 20);
        for (int n = 0; n < 9; n += 9) {
          const int8_t *w = scratch + 544 + n / 9 * 288;
          const int32_t *t = (const int32_t *)(scratch + 864) + n / 9 * 36;
          int8_t *o = out + ((y * 7 + x) * 9 + n) * 1;
          int32_t *totals = (int32_t *)(scratch + 0);
          for (int r = 0; r <= 7 - 7; r += 7)
            sums(p0 + r * 20, w, (int8_t *)totals + r * 48);
          for (int r = 0; r <= 7 - 2; r += 2)
            finish2(totals + r * 12, t, o + r * 9, zero_point, low, high, lookup, terms[r + 0], terms[r + 1]);
          finish1(totals + 6 * 12, t, o + 6 * 9, zero_point, low, high, lookup, terms[6 + 0]);
        }
      }
    }
  }
}
