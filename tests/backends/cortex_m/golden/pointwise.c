void kernel(const int8_t *a0, const int8_t *a1, int8_t *out, const int8_t *restrict params, int8_t *restrict scratch)
{
  const int32_t *const k = (const int32_t *)(params + 0);
  {
    int32_t kr__0, kr__1, kr__2, kr__3, kr__4, kr__5, kr__6, kr__7;
    kr__0 = k[0];
    kr__1 = k[1];
    kr__2 = k[2];
    kr__3 = k[3];
    kr__4 = k[4];
    kr__5 = k[5];
    kr__6 = k[6];
    kr__7 = k[7];
    {
      const int32_t x = 0;
      const int8_t *p0 = (const int8_t *)a1 + 16384 * x;
      const int8_t *p1 = (const int8_t *)a0 + 16384 * x;
      const int8_t *p2 = (const int8_t *)out + 16384 * x;
      __asm__ volatile(
          "vdup.32 q7, %[kr__0]\n"
          "vdup.8 q6, %[kr__6]\n"
          "vdup.8 q5, %[kr__7]\n"
          "vldrb.s16 q2, [%[p0]], #8\n"
          "vmovlb.s16 q4, q2\n"
          "vldrb.s16 q3, [%[p1]], #8\n"
          "vmlas.s32 q4, q7, %[kr__1]\n"
          "vmovlb.s16 q1, q3\n"
          "vqrdmulh.s32 q0, q4, %[kr__2]\n"
          "movw lr, #1023\n"
          "dls lr, lr\n"
          "1:\n"
          "vmla.s32 q0, q1, %[kr__0]\n"
          "vmovlt.s16 q4, q2\n"
          "vmlas.s32 q4, q7, %[kr__1]\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q2, q0, %[kr__4]\n"
          "vmovlt.s16 q3, q3\n"
          "vqrdmulh.s32 q0, q4, %[kr__2]\n"
          "vrshr.s32 q4, q2, #19\n"
          "vmla.s32 q0, q3, %[kr__0]\n"
          "vldrb.s16 q3, [%[p0]], #8\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q2, q0, %[kr__4]\n"
          "vmovlb.s16 q0, q3\n"
          "vmlas.s32 q0, q7, %[kr__1]\n"
          "vrshr.s32 q2, q2, #19\n"
          "vqrdmulh.s32 q0, q0, %[kr__2]\n"
          "vmovnt.i32 q4, q2\n"
          "vldrb.s16 q2, [%[p1]], #8\n"
          "vmovlt.s16 q3, q3\n"
          "vmlas.s32 q3, q7, %[kr__1]\n"
          "vadd.i16 q4, q4, %[kr__5]\n"
          "vqrdmulh.s32 q3, q3, %[kr__2]\n"
          "vqmovnb.s16 q4, q4\n"
          "vmovlb.s16 q1, q2\n"
          "vmla.s32 q0, q1, %[kr__0]\n"
          "vmax.s8 q4, q4, q6\n"
          "vmin.s8 q4, q4, q5\n"
          "vstrb.16 q4, [%[p2]], #8\n"
          "vmovlt.s16 q2, q2\n"
          "vmla.s32 q3, q2, %[kr__0]\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q0, q0, %[kr__4]\n"
          "vadd.i32 q3, q3, %[kr__3]\n"
          "vqdmulh.s32 q3, q3, %[kr__4]\n"
          "vrshr.s32 q4, q0, #19\n"
          "vldrb.s16 q2, [%[p0]], #8\n"
          "vrshr.s32 q0, q3, #19\n"
          "vldrb.s16 q3, [%[p1]], #8\n"
          "vmovnt.i32 q4, q0\n"
          "vmovlb.s16 q0, q2\n"
          "vmlas.s32 q0, q7, %[kr__1]\n"
          "vadd.i16 q4, q4, %[kr__5]\n"
          "vqrdmulh.s32 q0, q0, %[kr__2]\n"
          "vqmovnb.s16 q4, q4\n"
          "vmovlb.s16 q1, q3\n"
          "vmax.s8 q4, q4, q6\n"
          "vmin.s8 q4, q4, q5\n"
          "vstrb.16 q4, [%[p2]], #8\n"
          "le lr, 1b\n"
          "vmla.s32 q0, q1, %[kr__0]\n"
          "vmovlt.s16 q4, q2\n"
          "vmlas.s32 q4, q7, %[kr__1]\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q2, q0, %[kr__4]\n"
          "vmovlt.s16 q3, q3\n"
          "vqrdmulh.s32 q0, q4, %[kr__2]\n"
          "vrshr.s32 q4, q2, #19\n"
          "vmla.s32 q0, q3, %[kr__0]\n"
          "vldrb.s16 q3, [%[p0]], #8\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q2, q0, %[kr__4]\n"
          "vmovlb.s16 q0, q3\n"
          "vmlas.s32 q0, q7, %[kr__1]\n"
          "vrshr.s32 q2, q2, #19\n"
          "vqrdmulh.s32 q0, q0, %[kr__2]\n"
          "vmovnt.i32 q4, q2\n"
          "vldrb.s16 q2, [%[p1]], #8\n"
          "vmovlt.s16 q3, q3\n"
          "vmlas.s32 q3, q7, %[kr__1]\n"
          "vadd.i16 q4, q4, %[kr__5]\n"
          "vqrdmulh.s32 q3, q3, %[kr__2]\n"
          "vqmovnb.s16 q4, q4\n"
          "vmovlb.s16 q1, q2\n"
          "vmla.s32 q0, q1, %[kr__0]\n"
          "vmax.s8 q4, q4, q6\n"
          "vmin.s8 q4, q4, q5\n"
          "vstrb.16 q4, [%[p2]], #8\n"
          "vmovlt.s16 q2, q2\n"
          "vmla.s32 q3, q2, %[kr__0]\n"
          "vadd.i32 q0, q0, %[kr__3]\n"
          "vqdmulh.s32 q0, q0, %[kr__4]\n"
          "vadd.i32 q3, q3, %[kr__3]\n"
          "vqdmulh.s32 q3, q3, %[kr__4]\n"
          "vrshr.s32 q4, q0, #19\n"
          "vrshr.s32 q0, q3, #19\n"
          "vmovnt.i32 q4, q0\n"
          "vadd.i16 q4, q4, %[kr__5]\n"
          "vqmovnb.s16 q4, q4\n"
          "vmax.s8 q4, q4, q6\n"
          "vmin.s8 q4, q4, q5\n"
          "vstrb.16 q4, [%[p2]], #8\n"
          : [p0] "+l"(p0), [p1] "+l"(p1), [p2] "+l"(p2)
          : [kr__0] "r"(kr__0), [kr__6] "r"(kr__6), [kr__7] "r"(kr__7), [kr__1] "r"(kr__1), [kr__2] "r"(kr__2), [kr__3] "r"(kr__3), [kr__4] "r"(kr__4), [kr__5] "r"(kr__5)
          : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
    }
  }
}
