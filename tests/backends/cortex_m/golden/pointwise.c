void kernel(const int8_t *in0, const int8_t *in1, int8_t *out, const int8_t *params, int8_t *scratch)
{
  const int32_t *numbers = (const int32_t *)(params + 0);
  const int32_t k0 = numbers[0];
  const int32_t k1 = numbers[1];
  const int32_t k2 = numbers[2];
  const int32_t k3 = numbers[3];
  const int32_t k4 = numbers[4];
  const int32_t k5 = numbers[5];
  const int32_t k6 = numbers[6];
  const int32_t k7 = numbers[7];
  const int32x4_t c0 = vdupq_n_s32(k3);
  const int32x4_t c1 = vdupq_n_s32((uint8_t)(k6) * 0x01010101u);
  const int32x4_t c2 = vdupq_n_s32((uint8_t)(k7) * 0x01010101u);
  {
    int8_t *p0 = out;
    const int8_t *p1 = in1;
    const int8_t *p2 = in0;
    {
      const int32_t n0 = k2;
      const int32_t n1 = k4;
      const int32_t n2 = k3;
      const int32_t n3 = k1;
      const int32_t n4 = k5;
      const int32_t n5 = k0;
      __asm__ volatile(
          "movw lr, #512\n"
          "dls lr, lr\n"
          "1:\n"
          "vldrb.s32 q2, [%[p1]], #4\n"
          "vmlas.s32 q2, %q[c0], %[n0]\n"
          "vldrb.s32 q3, [%[p1]], #4\n"
          "vmlas.s32 q3, %q[c0], %[n0]\n"
          "vldrb.s32 q1, [%[p2]], #4\n"
          "vqrdmulh.s32 q2, q2, %[n1]\n"
          "vldrb.s32 q4, [%[p2]], #4\n"
          "vqrdmulh.s32 q3, q3, %[n1]\n"
          "vldrb.s32 q0, [%[p1]], #4\n"
          "vmla.s32 q2, q1, %[n2]\n"
          "vldrb.s32 q1, [%[p1]], #4\n"
          "vmla.s32 q3, q4, %[n2]\n"
          "vadd.i32 q2, q2, %[n3]\n"
          "vqdmulh.s32 q2, q2, %[n4]\n"
          "vadd.i32 q3, q3, %[n3]\n"
          "vqdmulh.s32 q3, q3, %[n4]\n"
          "vrshr.s32 q2, q2, #19\n"
          "vmlas.s32 q0, %q[c0], %[n0]\n"
          "vrshr.s32 q3, q3, #19\n"
          "vmlas.s32 q1, %q[c0], %[n0]\n"
          "vadd.i16 q2, q2, %[n5]\n"
          "vqrdmulh.s32 q0, q0, %[n1]\n"
          "vadd.i16 q3, q3, %[n5]\n"
          "vqrdmulh.s32 q1, q1, %[n1]\n"
          "vqmovnb.s16 q2, q2\n"
          "vldrb.s32 q4, [%[p2]], #4\n"
          "vqmovnb.s16 q3, q3\n"
          "vmla.s32 q0, q4, %[n2]\n"
          "vmax.s8 q2, q2, %q[c1]\n"
          "vldrb.s32 q4, [%[p2]], #4\n"
          "vmax.s8 q3, q3, %q[c1]\n"
          "vmla.s32 q1, q4, %[n2]\n"
          "vmin.s8 q2, q2, %q[c2]\n"
          "vstrb.32 q2, [%[p0]], #4\n"
          "vmin.s8 q3, q3, %q[c2]\n"
          "vstrb.32 q3, [%[p0]], #4\n"
          "vadd.i32 q0, q0, %[n3]\n"
          "vqdmulh.s32 q0, q0, %[n4]\n"
          "vadd.i32 q1, q1, %[n3]\n"
          "vqdmulh.s32 q1, q1, %[n4]\n"
          "vrshr.s32 q0, q0, #19\n"
          "vldrb.s32 q3, [%[p1]], #4\n"
          "vrshr.s32 q1, q1, #19\n"
          "vmlas.s32 q3, %q[c0], %[n0]\n"
          "vadd.i16 q0, q0, %[n5]\n"
          "vldrb.s32 q2, [%[p1]], #4\n"
          "vadd.i16 q1, q1, %[n5]\n"
          "vmlas.s32 q2, %q[c0], %[n0]\n"
          "vqmovnb.s16 q0, q0\n"
          "vqrdmulh.s32 q3, q3, %[n1]\n"
          "vqmovnb.s16 q1, q1\n"
          "vqrdmulh.s32 q2, q2, %[n1]\n"
          "vmax.s8 q0, q0, %q[c1]\n"
          "vldrb.s32 q4, [%[p2]], #4\n"
          "vmax.s8 q1, q1, %q[c1]\n"
          "vmla.s32 q3, q4, %[n2]\n"
          "vmin.s8 q0, q0, %q[c2]\n"
          "vstrb.32 q0, [%[p0]], #4\n"
          "vmin.s8 q1, q1, %q[c2]\n"
          "vstrb.32 q1, [%[p0]], #4\n"
          "vadd.i32 q3, q3, %[n3]\n"
          "vqdmulh.s32 q3, q3, %[n4]\n"
          "vldrb.s32 q1, [%[p2]], #4\n"
          "vmla.s32 q2, q1, %[n2]\n"
          "vrshr.s32 q3, q3, #19\n"
          "vldrb.s32 q1, [%[p1]], #4\n"
          "vadd.i32 q2, q2, %[n3]\n"
          "vqdmulh.s32 q2, q2, %[n4]\n"
          "vadd.i16 q3, q3, %[n5]\n"
          "vmlas.s32 q1, %q[c0], %[n0]\n"
          "vrshr.s32 q2, q2, #19\n"
          "vldrb.s32 q0, [%[p1]], #4\n"
          "vadd.i16 q2, q2, %[n5]\n"
          "vmlas.s32 q0, %q[c0], %[n0]\n"
          "vqmovnb.s16 q3, q3\n"
          "vqrdmulh.s32 q1, q1, %[n1]\n"
          "vqmovnb.s16 q2, q2\n"
          "vqrdmulh.s32 q0, q0, %[n1]\n"
          "vmax.s8 q3, q3, %q[c1]\n"
          "vldrb.s32 q4, [%[p2]], #4\n"
          "vmax.s8 q2, q2, %q[c1]\n"
          "vmla.s32 q1, q4, %[n2]\n"
          "vmin.s8 q3, q3, %q[c2]\n"
          "vstrb.32 q3, [%[p0]], #4\n"
          "vmin.s8 q2, q2, %q[c2]\n"
          "vstrb.32 q2, [%[p0]], #4\n"
          "vadd.i32 q1, q1, %[n3]\n"
          "vqdmulh.s32 q1, q1, %[n4]\n"
          "vldrb.s32 q2, [%[p2]], #4\n"
          "vmla.s32 q0, q2, %[n2]\n"
          "vrshr.s32 q1, q1, #19\n"
          "vadd.i32 q0, q0, %[n3]\n"
          "vqdmulh.s32 q0, q0, %[n4]\n"
          "vadd.i16 q1, q1, %[n5]\n"
          "vrshr.s32 q0, q0, #19\n"
          "vadd.i16 q0, q0, %[n5]\n"
          "vqmovnb.s16 q1, q1\n"
          "vqmovnb.s16 q0, q0\n"
          "vmax.s8 q1, q1, %q[c1]\n"
          "vmax.s8 q0, q0, %q[c1]\n"
          "vmin.s8 q1, q1, %q[c2]\n"
          "vstrb.32 q1, [%[p0]], #4\n"
          "vmin.s8 q0, q0, %q[c2]\n"
          "vstrb.32 q0, [%[p0]], #4\n"
          "le lr, 1b\n"
          : [p0] "+l"(p0), [p1] "+l"(p1), [p2] "+l"(p2)
          : [n0] "r"(n0), [n1] "r"(n1), [n2] "r"(n2), [n3] "r"(n3), [n4] "r"(n4), [n5] "r"(n5), [c0] "w"(c0), [c1] "w"(c1), [c2] "w"(c2)
          : "memory", "lr", "q0", "q1", "q2", "q3", "q4");
    }
  }
}
