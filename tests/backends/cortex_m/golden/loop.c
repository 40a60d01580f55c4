void kernel(const int8_t *in0, const int8_t *in1, int8_t *out0, int8_t *out1, const int8_t *params, int8_t *scratch)
{
  const int8_t *now2 = in1;
  int8_t *next0 = scratch + 128, *other0 = scratch + 160;
  for (int32_t t = 0; t < 7; t++) {
    copy(scratch + 32, in0 + t * 10, 10);
    conv2d_45a7b41f414b5337(scratch + 32, scratch + 0, params + 0, scratch + 48);
    pointwise_579f9d95121c72ad(scratch + 0, now2, next0, params + 0, scratch + 48);
    copy(out0 + t * 20, next0, 20);
    now2 = next0;
    int8_t *const made0 = next0;
    next0 = other0, other0 = made0;
  }
  copy(out1, now2, 20);
}
