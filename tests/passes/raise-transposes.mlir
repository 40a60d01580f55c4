// PIPELINE: raise-transposes
// A transpose of floats goes up to the bytes that they come from; one of a value with another reader stays.
// CHECK-LABEL: @main
// CHECK: %[[T:.*]] = tosa.transpose %arg0 {{.*}} -> tensor<1x3x4x5xi8>
// CHECK: %[[C:.*]] = tosa.cast %[[T]]
// CHECK: %[[M:.*]] = tosa.mul %[[C]], {{.*}} : (tensor<1x3x4x5xf32>, tensor<1x3x1x1xf32>, tensor<1xi8>)
// CHECK: %[[W:.*]] = tosa.cast %arg1
// CHECK: %[[U:.*]] = tosa.transpose %[[W]] {{.*}} -> tensor<1x3x4x5xf32>
// CHECK: return %[[M]], %[[W]], %[[U]]
func.func @main(%x: tensor<1x4x5x3xi8>, %y: tensor<1x4x5x3xi8>) -> (tensor<1x3x4x5xf32>, tensor<1x4x5x3xf32>, tensor<1x3x4x5xf32>) {
  %s = "tosa.const"() <{values = dense<[[[[0.5, 0.25, 2.0]]]]> : tensor<1x1x1x3xf32>}> : () -> tensor<1x1x1x3xf32>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.cast %x : (tensor<1x4x5x3xi8>) -> tensor<1x4x5x3xf32>
  %1 = tosa.mul %0, %s, %z : (tensor<1x4x5x3xf32>, tensor<1x1x1x3xf32>, tensor<1xi8>) -> tensor<1x4x5x3xf32>
  %2 = tosa.transpose %1 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %3 = tosa.cast %y : (tensor<1x4x5x3xi8>) -> tensor<1x4x5x3xf32>
  %4 = tosa.transpose %3 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  return %2, %3, %4 : tensor<1x3x4x5xf32>, tensor<1x4x5x3xf32>, tensor<1x3x4x5xf32>
}
