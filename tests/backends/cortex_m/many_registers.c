#include <stdint.h>
#define INLINE static inline __attribute__((always_inline))

void many_registers(const int32_t *a0, const int32_t *a1, const int16_t *a2, int8_t *out, const int8_t *restrict params, int8_t *restrict scratch)
{
  const int32_t *const k = (const int32_t *)(params + 0);
  const int8_t *packed = params + 32;
  const int16_t *const w = (const int16_t *)packed;
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
      int32_t *const R0 = (int32_t *)(scratch + 0);
      {
        const int32_t r = 0;
        const int8_t *p0 = (const int8_t *)a0 + 24 * r;
        const int8_t *p1 = (const int8_t *)a1 + 24 * r;
        const int8_t *p2 = (const int8_t *)w + 0;
        const int8_t *p3 = (const int8_t *)w + 2;
        const int8_t *p4 = (const int8_t *)R0 + 24 * r;
        __asm__ volatile(
            "vmrs lr, p0\n"
            "mov r0, #2\n"
            "vctp.32 r0\n"
            "vldrw.u32 q2, [%[p0]]\n"
            "vadd.i32 q0, q2, %[kr__0]\n"
            "vldrw.u32 q7, [%[p1]]\n"
            "vshl.u32 q7, q7, q0\n"
            "vadd.i32 q7, q7, %[kr__1]\n"
            "vqrshrnb.s32 q7, q7, #14\n"
            "vdup.16 q0, %[kr__3]\n"
            "vpst\nvldrwt.u32 q6, [%[p1], #16]\n"
            "vshr.s16 q3, q7, #7\n"
            "vpst\nvldrwt.u32 q1, [%[p0], #16]\n"
            "vadd.i16 q3, q3, %[kr__2]\n"
            "vmovlb.s16 q3, q3\n"
            "vand q7, q7, q0\n"
            "vmovlb.s16 q7, q7\n"
            "vldrh.s32 q4, [%[p3], q3, uxtw #1]\n"
            "vadd.i32 q2, q2, %[kr__5]\n"
            "vldrh.s32 q5, [%[p2], q3, uxtw #1]\n"
            "vadd.i32 q3, q1, %[kr__0]\n"
            "vsub.i32 q4, q4, q5\n"
            "vmul.i32 q4, q4, q7\n"
            "vshl.u32 q3, q6, q3\n"
            "vmla.s32 q4, q5, %[kr__4]\n"
            "vadd.i32 q3, q3, %[kr__1]\n"
            "vrshr.s32 q4, q4, #7\n"
            "vshl.i32 q4, q4, #2\n"
            "vshl.s32 q4, q4, q2\n"
            "vqrshrnb.s32 q4, q4, #1\n"
            "vqrshrnb.s32 q3, q3, #14\n"
            "vmovlb.s16 q4, q4\n"
            "vstrw.32 q4, [%[p4]]\n"
            "vshr.s16 q4, q3, #7\n"
            "vadd.i16 q4, q4, %[kr__2]\n"
            "vmovlb.s16 q4, q4\n"
            "vand q3, q3, q0\n"
            "vmovlb.s16 q3, q3\n"
            "vldrh.s32 q0, [%[p3], q4, uxtw #1]\n"
            "vadd.i32 q1, q1, %[kr__5]\n"
            "vldrh.s32 q2, [%[p2], q4, uxtw #1]\n"
            "vsub.i32 q0, q0, q2\n"
            "vmul.i32 q0, q0, q3\n"
            "vmla.s32 q0, q2, %[kr__4]\n"
            "vrshr.s32 q0, q0, #7\n"
            "vshl.i32 q0, q0, #2\n"
            "vshl.s32 q0, q0, q1\n"
            "vqrshrnb.s32 q0, q0, #1\n"
            "vmovlb.s16 q0, q0\n"
            "vpst\nvstrwt.32 q0, [%[p4], #16]\n"
            "vmsr p0, lr\n"
            : 
            : [p0] "r"(p0), [p1] "r"(p1), [p2] "r"(p2), [p3] "r"(p3), [p4] "r"(p4), [kr__3] "r"(kr__3), [kr__0] "r"(kr__0), [kr__1] "r"(kr__1), [kr__2] "r"(kr__2), [kr__4] "r"(kr__4), [kr__5] "r"(kr__5)
            : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "r0");
      }
      for (int32_t y = 0; y < 6; y += 1) {
        {
          int32_t R0r__0;
          R0r__0 = R0[y];
          {
            const int32_t x = 0;
            const int8_t *p0 = (const int8_t *)a2 + 512 * x + 512 * y;
            const int8_t *p1 = (const int8_t *)out + 256 * x + 256 * y;
            __asm__ volatile(
                "vdup.16 q7, %[R0r__0]\n"
                "movw lr, #4\n"
                "dls lr, lr\n"
                "1:\n"
                "vldrw.u32 q1, [%[p0]], #16\n"
                "vmullb.s16 q6, q1, q7\n"
                "vldrw.u32 q3, [%[p0]], #16\n"
                "vmullb.s16 q5, q3, q7\n"
                "vldrw.u32 q4, [%[p0]], #16\n"
                "vqdmulh.s32 q6, q6, %[kr__6]\n"
                "vldrw.u32 q2, [%[p0]], #16\n"
                "vrshr.s32 q6, q6, #22\n"
                "vqdmulh.s32 q5, q5, %[kr__6]\n"
                "vmovnb.i32 q6, q6\n"
                "vmullt.s16 q1, q1, q7\n"
                "vrshr.s32 q5, q5, #22\n"
                "vmullt.s16 q3, q3, q7\n"
                "vmovnb.i32 q5, q5\n"
                "vqdmulh.s32 q1, q1, %[kr__6]\n"
                "vldrw.u32 q0, [%[p0]], #16\n"
                "vrshr.s32 q1, q1, #22\n"
                "vqdmulh.s32 q3, q3, %[kr__6]\n"
                "vmovnt.i32 q6, q1\n"
                "vmullb.s16 q1, q4, q7\n"
                "vrshr.s32 q3, q3, #22\n"
                "vqdmulh.s32 q1, q1, %[kr__6]\n"
                "vmovnt.i32 q5, q3\n"
                "vmullb.s16 q3, q2, q7\n"
                "vadd.i16 q6, q6, %[kr__7]\n"
                "vqdmulh.s32 q3, q3, %[kr__6]\n"
                "vadd.i16 q5, q5, %[kr__7]\n"
                "vmullt.s16 q4, q4, q7\n"
                "vqmovnb.s16 q6, q6\n"
                "vmullt.s16 q2, q2, q7\n"
                "vqmovnb.s16 q5, q5\n"
                "vstrb.16 q6, [%[p1]], #8\n"
                "vrshr.s32 q1, q1, #22\n"
                "vstrb.16 q5, [%[p1]], #8\n"
                "vrshr.s32 q3, q3, #22\n"
                "vqdmulh.s32 q4, q4, %[kr__6]\n"
                "vmovnb.i32 q1, q1\n"
                "vqdmulh.s32 q2, q2, %[kr__6]\n"
                "vrshr.s32 q4, q4, #22\n"
                "vmullb.s16 q5, q0, q7\n"
                "vrshr.s32 q2, q2, #22\n"
                "vldrw.u32 q6, [%[p0]], #16\n"
                "vmovnb.i32 q3, q3\n"
                "vqdmulh.s32 q5, q5, %[kr__6]\n"
                "vmovnt.i32 q1, q4\n"
                "vmullb.s16 q4, q6, q7\n"
                "vmovnt.i32 q3, q2\n"
                "vqdmulh.s32 q4, q4, %[kr__6]\n"
                "vadd.i16 q1, q1, %[kr__7]\n"
                "vmullt.s16 q0, q0, q7\n"
                "vadd.i16 q3, q3, %[kr__7]\n"
                "vmullt.s16 q6, q6, q7\n"
                "vqmovnb.s16 q1, q1\n"
                "vqdmulh.s32 q0, q0, %[kr__6]\n"
                "vqmovnb.s16 q3, q3\n"
                "vstrb.16 q1, [%[p1]], #8\n"
                "vrshr.s32 q5, q5, #22\n"
                "vstrb.16 q3, [%[p1]], #8\n"
                "vrshr.s32 q4, q4, #22\n"
                "vqdmulh.s32 q6, q6, %[kr__6]\n"
                "vrshr.s32 q0, q0, #22\n"
                "vldrw.u32 q3, [%[p0]], #16\n"
                "vrshr.s32 q6, q6, #22\n"
                "vmullb.s16 q1, q3, q7\n"
                "vmovnb.i32 q5, q5\n"
                "vldrw.u32 q2, [%[p0]], #16\n"
                "vmovnb.i32 q4, q4\n"
                "vqdmulh.s32 q1, q1, %[kr__6]\n"
                "vmovnt.i32 q5, q0\n"
                "vmullb.s16 q0, q2, q7\n"
                "vmovnt.i32 q4, q6\n"
                "vqdmulh.s32 q0, q0, %[kr__6]\n"
                "vadd.i16 q5, q5, %[kr__7]\n"
                "vmullt.s16 q3, q3, q7\n"
                "vadd.i16 q4, q4, %[kr__7]\n"
                "vmullt.s16 q2, q2, q7\n"
                "vqmovnb.s16 q5, q5\n"
                "vqdmulh.s32 q3, q3, %[kr__6]\n"
                "vqmovnb.s16 q4, q4\n"
                "vstrb.16 q5, [%[p1]], #8\n"
                "vrshr.s32 q1, q1, #22\n"
                "vstrb.16 q4, [%[p1]], #8\n"
                "vrshr.s32 q0, q0, #22\n"
                "vqdmulh.s32 q2, q2, %[kr__6]\n"
                "vrshr.s32 q3, q3, #22\n"
                "vrshr.s32 q2, q2, #22\n"
                "vmovnb.i32 q1, q1\n"
                "vmovnb.i32 q0, q0\n"
                "vmovnt.i32 q1, q3\n"
                "vmovnt.i32 q0, q2\n"
                "vadd.i16 q1, q1, %[kr__7]\n"
                "vadd.i16 q0, q0, %[kr__7]\n"
                "vqmovnb.s16 q1, q1\n"
                "vqmovnb.s16 q0, q0\n"
                "vstrb.16 q1, [%[p1]], #8\n"
                "vstrb.16 q0, [%[p1]], #8\n"
                "le lr, 1b\n"
                : [p0] "+r"(p0), [p1] "+l"(p1)
                : [R0r__0] "r"(R0r__0), [kr__6] "r"(kr__6), [kr__7] "r"(kr__7)
                : "memory", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7");
          }
        }
      }
    }
  }
}
