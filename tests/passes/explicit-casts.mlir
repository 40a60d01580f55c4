// PIPELINE: explicit-casts
// CHECK-LABEL: @main
// CHECK: tosa.mul %arg0
// CHECK: tosa.add
// CHECK: tosa.clamp {{.*}}max_val = 1.270000e+02 : f32, min_val = -1.280000e+02 : f32
// CHECK: %[[Q:.*]] = tosa.cast {{.*}} -> tensor<4xi8>
// CHECK: tosa.cast %[[Q]] {{.*}} -> tensor<4xf32>
// CHECK: tosa.sub
// CHECK: tosa.mul
// CHECK-NOT: quant
!x = !quant.uniform<i8:f32, 0.5:3>
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = quant.qcast %a : tensor<4xf32> to tensor<4x!x>
  %1 = quant.dcast %0 : tensor<4x!x> to tensor<4xf32>
  return %1 : tensor<4xf32>
}
