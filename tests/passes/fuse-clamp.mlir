// PIPELINE: fuse-clamp
// CHECK-LABEL: @main
// CHECK: %[[C:.*]] = tosa.clamp %arg0 {max_val = 40 : i8, min_val = -10 : i8}
// CHECK-NEXT: return %[[C]]
func.func @main(%x: tensor<2x8xi8>) -> tensor<2x8xi8> {
  %0 = tosa.clamp %x {min_val = -10 : i8, max_val = 100 : i8} : (tensor<2x8xi8>) -> tensor<2x8xi8>
  %1 = tosa.clamp %0 {min_val = -50 : i8, max_val = 40 : i8} : (tensor<2x8xi8>) -> tensor<2x8xi8>
  return %1 : tensor<2x8xi8>
}
