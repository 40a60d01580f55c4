// PIPELINE: transposes-to-reshapes
// CHECK-LABEL: @main
// CHECK: %[[R:.*]] = tosa.reshape %arg0, {{.*}} -> tensor<1x7xi8>
// CHECK-NEXT: return %[[R]]
func.func @main(%x: tensor<1x1x1x7xi8>) -> tensor<1x7xi8> {
  %d = tosa.const_shape {values = dense<[1, 7]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x1x1x7xi8>) -> tensor<1x7x1x1xi8>
  %1 = tosa.reshape %0, %d : (tensor<1x7x1x1xi8>, !tosa.shape<2>) -> tensor<1x7xi8>
  return %1 : tensor<1x7xi8>
}
