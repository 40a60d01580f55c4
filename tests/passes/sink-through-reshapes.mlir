// PIPELINE: sink-through-reshapes
// The transposes around a channel shuffle cancel, and one within the channels is left.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<5x6x2x4xi8>
// CHECK: %[[T:.*]] = tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : (tensor<5x6x2x4xi8>) -> tensor<5x6x4x2xi8>
// CHECK: %[[R:.*]] = tosa.reshape %[[T]], {{.*}} -> tensor<1x5x6x8xi8>
// CHECK-NOT: tosa.transpose
// CHECK: return %[[R]]
func.func @main(%x: tensor<1x5x6x8xi8>) -> tensor<1x5x6x8xi8> {
  %split = tosa.const_shape {values = dense<[1, 2, 4, 5, 6]> : tensor<5xindex>} : () -> !tosa.shape<5>
  %whole = tosa.const_shape {values = dense<[1, 8, 5, 6]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %0 = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x5x6x8xi8>) -> tensor<1x8x5x6xi8>
  %1 = tosa.reshape %0, %split : (tensor<1x8x5x6xi8>, !tosa.shape<5>) -> tensor<1x2x4x5x6xi8>
  %2 = tosa.transpose %1 {perms = array<i32: 0, 2, 1, 3, 4>} : (tensor<1x2x4x5x6xi8>) -> tensor<1x4x2x5x6xi8>
  %3 = tosa.reshape %2, %whole : (tensor<1x4x2x5x6xi8>, !tosa.shape<4>) -> tensor<1x8x5x6xi8>
  %4 = tosa.transpose %3 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x8x5x6xi8>) -> tensor<1x5x6x8xi8>
  return %4 : tensor<1x5x6x8xi8>
}
