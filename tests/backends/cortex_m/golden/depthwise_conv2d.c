INLINE void pack(int8_t *restrict to, const int8_t *in, const int8_t *zeros, int y)
{
  to += 64;
  const int8_t *r0 = (unsigned)(y + 0) < 9 ? in + (y + 0) * 80 : zeros;
  const int8_t *r1 = (unsigned)(y + 1) < 9 ? in + (y + 1) * 80 : zeros;
  const int8_t *r2 = (unsigned)(y + 2) < 9 ? in + (y + 2) * 80 : zeros;
  const int8_t *r3 = (unsigned)(y + 3) < 9 ? in + (y + 3) * 80 : zeros;
  __asm__ volatile(
      "movw lr, #2\n"
      "dls lr, lr\n"
      "1:\n"
      "vldrb.u8 q0, [%[r0]], #16\n"
      "vldrb.u8 q1, [%[r1]], #16\n"
      "vldrb.u8 q2, [%[r2]], #16\n"
      "vldrb.u8 q3, [%[r3]], #16\n"
      "vldrb.u8 q4, [%[r0]], #16\n"
      "vldrb.u8 q5, [%[r1]], #16\n"
      "vldrb.u8 q6, [%[r2]], #16\n"
      "vldrb.u8 q7, [%[r3]], #16\n"
      "vst40.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst41.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst42.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst43.8 {q0, q1, q2, q3}, [%[to]]!\n"
      "vst40.8 {q4, q5, q6, q7}, [%[to]]\n"
      "vst41.8 {q4, q5, q6, q7}, [%[to]]\n"
      "vst42.8 {q4, q5, q6, q7}, [%[to]]\n"
      "vst43.8 {q4, q5, q6, q7}, [%[to]]!\n"
      "le lr, 1b\n"
      : [r0] "+r"(r0), [r1] "+r"(r1), [r2] "+r"(r2), [r3] "+r"(r3), [to] "+r"(to)
      : 
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
  __asm__ volatile(
      "vldrb.u8 q0, [%[r0]], #16\n"
      "vldrb.u8 q1, [%[r1]], #16\n"
      "vldrb.u8 q2, [%[r2]], #16\n"
      "vldrb.u8 q3, [%[r3]], #16\n"
      "vst40.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst41.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst42.8 {q0, q1, q2, q3}, [%[to]]\n"
      "vst43.8 {q0, q1, q2, q3}, [%[to]]!\n"
      : [r0] "+r"(r0), [r1] "+r"(r1), [r2] "+r"(r2), [r3] "+r"(r3), [to] "+r"(to)
      : 
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
}
INLINE void looped(const int8_t *x, int8_t *o, const int32_t *factors, const int8_t *lookup, const int8_t *weights, uint32x4_t columns, uint32x4_t places,
  int32_t zero_point, int32_t low, int32_t high)
{
  int32_t bias = 0, multiplier = 0;
  const int8_t *p0 = x + 0;
  __asm__ volatile(
      "vldrw.u32 q3, [%[weights], #4]\n"
      "vshl.i32 q4, q3, #8\n"
      "vldrw.u32 q1, [%[weights], #0]\n"
      "vshl.i32 q2, q1, #8\n"
      "vldrw.u32 q5, [%[p0], %q[columns]]\n"
      "vmladav.s8 r0, q5, q3\n"
      "addw %[weights], %[weights], #16\n"
      "vmladav.s8 r2, q5, q1\n"
      "addw %[p0], %[p0], #192\n"
      "vmladav.s8 r4, q5, q4\n"
      "vmladav.s8 r6, q5, q2\n"
      "vmov q0[2], q0[0], r0, r4\n"
      "vmov q0[3], q0[1], r2, r6\n"
      "movw lr, #16\n"
      "dls lr, lr\n"
      "1:\n"
      "ldrd %[bias], %[multiplier], [%[factors]], #8\n"
      "vldrw.u32 q5, [%[p0], %q[columns]]\n"
      "vadd.i32 q0, q0, %[bias]\n"
      "vqrdmulh.s32 q0, q0, %[multiplier]\n"
      "subw %[p0], %[p0], #64\n"
      "vadd.i32 q0, q0, %[zero_point]\n"
      "vmladav.s8 r2, q5, q1\n"
      "vqshl.s32 q0, q0, #24\n"
      "vmladav.s8 r6, q5, q2\n"
      "vshr.u32 q0, q0, #24\n"
      "vstrb.32 q0, [%[o], %q[places]]\n"
      "addw %[o], %[o], #48\n"
      "vmov q5[3], q5[1], r2, r6\n"
      "vldrw.u32 q0, [%[p0], %q[columns]]\n"
      "vadd.i32 q5, q5, %[bias]\n"
      "vqrdmulh.s32 q5, q5, %[multiplier]\n"
      "subw %[p0], %[p0], #124\n"
      "vadd.i32 q5, q5, %[zero_point]\n"
      "vmladav.s8 r0, q0, q3\n"
      "vqshl.s32 q5, q5, #24\n"
      "vmladav.s8 r2, q0, q1\n"
      "vshr.u32 q5, q5, #24\n"
      "vstrb.32 q5, [%[o], %q[places]]\n"
      "subw %[o], %[o], #16\n"
      "vmladav.s8 r4, q0, q4\n"
      "vmov q5[2], q5[0], r0, r4\n"
      "vldrw.u32 q3, [%[weights], #4]\n"
      "vshl.i32 q4, q3, #8\n"
      "vldrw.u32 q1, [%[weights], #0]\n"
      "vmladav.s8 r6, q0, q2\n"
      "vldrw.u32 q0, [%[p0], %q[columns]]\n"
      "vmov q5[3], q5[1], r2, r6\n"
      "addw %[weights], %[weights], #16\n"
      "vadd.i32 q5, q5, %[bias]\n"
      "vqrdmulh.s32 q5, q5, %[multiplier]\n"
      "vshl.i32 q2, q1, #8\n"
      "vmladav.s8 r0, q0, q3\n"
      "vadd.i32 q5, q5, %[zero_point]\n"
      "vmladav.s8 r2, q0, q1\n"
      "vqshl.s32 q5, q5, #24\n"
      "vmladav.s8 r4, q0, q4\n"
      "vshr.u32 q5, q5, #24\n"
      "vstrb.32 q5, [%[o], %q[places]]\n"
      "subw %[o], %[o], #31\n"
      "vmladav.s8 r6, q0, q2\n"
      "vmov q0[2], q0[0], r0, r4\n"
      "vmov q0[3], q0[1], r2, r6\n"
      "addw %[p0], %[p0], #192\n"
      "le lr, 1b\n"
      : [o] "+r"(o), [p0] "+r"(p0), [weights] "+r"(weights), [factors] "+r"(factors), [bias] "+r"(bias), [multiplier] "+r"(multiplier)
      : [zero_point] "r"(zero_point), [columns] "w"(columns), [places] "w"(places)
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "r0", "r2", "r4", "r6");
}
void kernel(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)
{
  const int32_t *range = (const int32_t *)params;
  const int8_t *packed = params + 144;
  const int32_t zero_point = range[0], low = range[1], high = range[2];
  const int8_t *lookup = 0;
  int8_t *zeros = scratch + 512;
  const uint32x4_t columns = {0, 64, 128, 192};
  const uint32x4_t places = {0, 16, 80, 96};
  const int8x16_t zero = vdupq_n_s8(range[3]);
  for (int i = 0; i < 1; i++)
    for (int k = 0; k < 80; k += 16)
      vstrbq_s8(zeros + i * 0 + k, zero);
  for (int i = 0; i < 1; i++)
    for (int k = 0; k < 64; k += 16)
      vstrbq_s8(scratch + i * 512 + k, zero);
  for (int i = 0; i < 1; i++)
    for (int k = 384; k < 448; k += 16)
      vstrbq_s8(scratch + i * 512 + k, zero);
  for (int image = 0; image < 1; image++, in += 720, out += 720)
  for (int group = 0; group < 5; group += 1) {
    const int start = group < 4 ? group : 4;
    for (int s = 0; s < 1; s++) {
      const int row = (start + s) * 2;
      const int y = (row < 7 ? row : 7) * 1 - 1;
      for (int g = 0; g < 1; g++)
        pack(scratch + s * 512 + g * 512,
             in, zeros, y + g * 4);
    }
    const int8_t *weights = packed;
    const int32_t *factors = (const int32_t *)(params + 16);
    const int8_t *strip = scratch;
    for (int s = 0; s < 1; s++, strip += 512) {
      const int row = (start + s) * 2;
      int8_t *o = out + (row < 7 ? row : 7) * 80;
      for (int part = 0; part < 5; part += 5) {
        const int x = part < 0 ? part : 0;
        looped(strip + x * 64, o + x * 16, factors, lookup, weights, columns, places, zero_point, low, high);
      }
    }
  }
}
