// PIPELINE: place
// CHECK-LABEL: func.func @main
// CHECK: call @cpu_0_clamp
// CHECK-NEXT: tosa.const_shape
// CHECK-NEXT: tosa.reshape
// CHECK-NEXT: call @cpu_1_transpose
// CHECK-NEXT: return
// CHECK-LABEL: func.func private @cpu_0_clamp
// CHECK-SAME: tosaic.processor = "cpu"
// CHECK-NEXT: tosa.clamp
// CHECK-NOT: tosaic.reason
// CHECK-LABEL: func.func private @cpu_1_transpose
// CHECK: tosa.transpose
func.func @main(%x: tensor<2x3xi8>) -> tensor<2x3xi8> {
  %0 = tosa.clamp %x {min_val = -5 : i8, max_val = 5 : i8} : (tensor<2x3xi8>) -> tensor<2x3xi8>
  %1 = tosa.const_shape {values = dense<[3, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %2 = tosa.reshape %0, %1 : (tensor<2x3xi8>, !tosa.shape<2>) -> tensor<3x2xi8>
  %3 = tosa.transpose %2 {perms = array<i32: 1, 0>} : (tensor<3x2xi8>) -> tensor<2x3xi8>
  return %3 : tensor<2x3xi8>
}
