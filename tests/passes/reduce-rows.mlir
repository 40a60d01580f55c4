// PIPELINE: reduce-rows
// A single row needs no transpose, another axis is as good as a row, and 32 bits are not pooled.
// CHECK-LABEL: @main
// CHECK: %[[T:.*]] = tosa.transpose %arg0 {perms = array<i32: 0, 1, 3, 2>} : {{.*}} -> tensor<1x4x8x32xi8>
// CHECK: %[[R:.*]] = tosa.reduce_max %[[T]] {axis = 2 : i32{{.*}}} : {{.*}} -> tensor<1x4x1x32xi8>
// CHECK: tosa.reshape %[[R]], {{.*}} -> tensor<1x4x32x1xi8>
// CHECK-NOT: tosa.transpose
// CHECK: return
func.func @main(%x: tensor<1x4x32x8xi8>, %y: tensor<1x4x1x8xi8>, %z: tensor<5x6xi32>) -> (tensor<1x4x32x1xi8>, tensor<1x4x1x1xi8>, tensor<1x1x32x8xi8>, tensor<5x1xi32>) {
  %0 = tosa.reduce_max %x {axis = 3 : i32} : (tensor<1x4x32x8xi8>) -> tensor<1x4x32x1xi8>
  %1 = tosa.reduce_max %y {axis = 3 : i32} : (tensor<1x4x1x8xi8>) -> tensor<1x4x1x1xi8>
  %2 = tosa.reduce_min %x {axis = 1 : i32} : (tensor<1x4x32x8xi8>) -> tensor<1x1x32x8xi8>
  %3 = tosa.reduce_max %z {axis = 1 : i32} : (tensor<5x6xi32>) -> tensor<5x1xi32>
  return %0, %1, %2, %3 : tensor<1x4x32x1xi8>, tensor<1x4x1x1xi8>, tensor<1x1x32x8xi8>, tensor<5x1xi32>
}
