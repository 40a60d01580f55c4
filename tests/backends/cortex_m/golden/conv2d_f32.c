INLINE void block(const float *p, const float *w, const float *t, float *o, int left,
                  float low, float high)
{
  const float *x0 = p + 0;
  const float *x1 = p + 16;
  const float *x2 = p + 32;
  float32x4_t s0_0 = vldrwq_f32(t + 0);
  float32x4_t s1_0 = s0_0;
  float32x4_t s2_0 = s0_0;
  __asm__ volatile(
      "movw lr, #2\n"
      "dls lr, lr\n"
      "1:\n"
      "vldrw.u32 q5, [%[w]], #16\n"
      "ldrd r0, r2, [%[x0]], #8\n"
      "ldrd r4, r8, [%[x1]], #8\n"
      "vfma.f32 %q[s0_0], q5, r0\n"
      "ldrd r10, r12, [%[x2]], #8\n"
      "vfma.f32 %q[s1_0], q5, r4\n"
      "vldrw.u32 q4, [%[w]], #16\n"
      "vfma.f32 %q[s2_0], q5, r10\n"
      "vldrw.u32 q5, [%[w]], #16\n"
      "vfma.f32 %q[s0_0], q4, r2\n"
      "ldrd r0, r2, [%[x0]], #8\n"
      "vfma.f32 %q[s1_0], q4, r8\n"
      "ldrd r4, r8, [%[x1]], #8\n"
      "vfma.f32 %q[s2_0], q4, r12\n"
      "ldrd r10, r12, [%[x2]], #8\n"
      "vfma.f32 %q[s0_0], q5, r0\n"
      "vldrw.u32 q4, [%[w]], #16\n"
      "vfma.f32 %q[s1_0], q5, r4\n"
      "vldrw.u32 q6, [%[w]], #16\n"
      "vfma.f32 %q[s2_0], q5, r10\n"
      "vldrw.u32 q5, [%[w]], #16\n"
      "vfma.f32 %q[s0_0], q4, r2\n"
      "ldrd r0, r2, [%[x0]], #8\n"
      "vfma.f32 %q[s1_0], q4, r8\n"
      "ldrd r4, r8, [%[x1]], #8\n"
      "vfma.f32 %q[s2_0], q4, r12\n"
      "ldrd r10, r12, [%[x2]], #8\n"
      "vfma.f32 %q[s0_0], q6, r0\n"
      "vldrw.u32 q4, [%[w]], #16\n"
      "vfma.f32 %q[s1_0], q6, r4\n"
      "vldrw.u32 q3, [%[w]], #16\n"
      "vfma.f32 %q[s2_0], q6, r10\n"
      "vfma.f32 %q[s0_0], q5, r2\n"
      "ldrd r0, r2, [%[x0]], #8\n"
      "vfma.f32 %q[s1_0], q5, r8\n"
      "ldrd r4, r8, [%[x1]], #8\n"
      "vfma.f32 %q[s2_0], q5, r12\n"
      "ldrd r10, r12, [%[x2]], #8\n"
      "vfma.f32 %q[s0_0], q4, r0\n"
      "vfma.f32 %q[s1_0], q4, r4\n"
      "vfma.f32 %q[s2_0], q4, r10\n"
      "vfma.f32 %q[s0_0], q3, r2\n"
      "vfma.f32 %q[s1_0], q3, r8\n"
      "vfma.f32 %q[s2_0], q3, r12\n"
      "le lr, 1b\n"
      : [w] "+r"(w), [x0] "+r"(x0), [x1] "+r"(x1), [x2] "+r"(x2), [s0_0] "+w"(s0_0), [s1_0] "+w"(s1_0), [s2_0] "+w"(s2_0)
      : 
      : "memory", "lr", "q3", "q4", "q5", "q6", "q7", "r0", "r2", "r4", "r8", "r10", "r12");
  vstrwq_f32(o + 0, s0_0);
  vstrwq_f32(o + 20, s1_0);
  vstrwq_f32(o + 40, s2_0);
}
void kernel(const float *restrict in, float *restrict out, const int8_t *restrict params,
              int8_t *restrict scratch)
{
  const float *range = (const float *)params;
  const int8_t *packed = params + 96;
  for (int n = 0; n < 20; n += 20) {
    const int channels = 20 - n < 20 ? 20 - n : 20;
    const float *w = (const float *)packed + n / 20 * 320;
    const float *t = (const float *)(params + 16) + n / 20 * 20;
    for (int x_ = 0; x_ < 15; x_ += 3) {
      const int x = x_;
      const float *p = in + x * 16;
      float *o = out + x * 20 + n;
      for (int j = 0; j < channels; j += 4)
        block(p, w + j * 16, t + j, o + j, channels - j, range[0], range[1]);
    }
  }
}
