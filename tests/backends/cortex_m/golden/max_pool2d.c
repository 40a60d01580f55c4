INLINE void tile_0_0_0(const int8_t *p0, const int8_t *p1, const int8_t *p2, int8_t *o0)
{
  p0 += 256;
  p1 += 256;
  p2 += 256;
  o0 += 64;
  __asm__ volatile(
      "movw lr, #4\n"
      "dls lr, lr\n"
      "1:\n"
      "vldrw.u32 q2, [%[p0], #-256]\n"
      "vldrw.u32 q3, [%[p1], #-256]\n"
      "vmax.s8 q3, q2, q3\n"
      "vldrw.u32 q2, [%[p2], #-256]\n"
      "vmax.s8 q2, q3, q2\n"
      "vldrw.u32 q3, [%[p0], #-192]\n"
      "vldrw.u32 q1, [%[p1], #-192]\n"
      "vmax.s8 q1, q3, q1\n"
      "vldrw.u32 q3, [%[p2], #-192]\n"
      "vmax.s8 q3, q1, q3\n"
      "vldrw.u32 q1, [%[p0], #-128]\n"
      "vmax.s8 q3, q2, q3\n"
      "vldrw.u32 q2, [%[p1], #-128]\n"
      "vmax.s8 q2, q1, q2\n"
      "vldrw.u32 q1, [%[p2], #-128]\n"
      "vmax.s8 q1, q2, q1\n"
      "vldrw.u32 q2, [%[p0], #-64]\n"
      "vmax.s8 q3, q3, q1\n"
      "vldrw.u32 q0, [%[p1], #-64]\n"
      "vmax.s8 q0, q2, q0\n"
      "vldrw.u32 q2, [%[p2], #-64]\n"
      "vmax.s8 q2, q0, q2\n"
      "vldrw.u32 q0, [%[p0]], #16\n"
      "vldrw.u32 q4, [%[p1]], #16\n"
      "vmax.s8 q4, q0, q4\n"
      "vldrw.u32 q0, [%[p2]], #16\n"
      "vmax.s8 q0, q4, q0\n"
      "vstrb.8 q3, [%[o0], #-64]\n"
      "vmax.s8 q0, q2, q0\n"
      "vmax.s8 q0, q1, q0\n"
      "vstrb.8 q0, [%[o0]], #16\n"
      "le lr, 1b\n"
      : [p0] "+r"(p0), [p1] "+r"(p1), [p2] "+r"(p2), [o0] "+r"(o0)
      : 
      : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
}
void kernel(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)
{
  const int32_t *range = (const int32_t *)params;
  const int8_t *constants = params + 16;


  for (int n = 0; n < 1; n++, in += 5184, out += 1024) {
    for (int y = 0; y <= 3; y += 1) {
      const int8_t *r0 = in + (y * 2 + 0) * 576; const int step0 = 64;
      const int8_t *r1 = in + (y * 2 + 1) * 576; const int step1 = 64;
      const int8_t *r2 = in + (y * 2 + 2) * 576; const int step2 = 64;
      for (int x = 0; x <= 2; x += 2) {
        tile_0_0_0(r0 + (x * 2 - 0) * step0 + 0, r1 + (x * 2 - 0) * step1 + 0, r2 + (x * 2 - 0) * step2 + 0, out + ((y + 0) * 4 + x) * 64 + 0);
      }
    }
  }
}
