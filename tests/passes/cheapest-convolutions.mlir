// PIPELINE: cheapest-convolutions{target=ethos-u85-256}
// A column of tokens becomes a row, patches become channels; what overlaps stays.
// CHECK-LABEL: @main
// CHECK: tosa.conv2d {{.*}} (tensor<1x1x32x16xi8>, tensor<16x1x1x16xi8>, {{.*}} -> tensor<1x1x32x16xi32>
// CHECK: tosa.reshape {{.*}} -> tensor<1x32x1x16xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 2, 1, 3>} : (tensor<4x8x4x24xi8>) -> tensor<4x4x8x24xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x4x4x192xi8>, tensor<16x1x1x192xi8>, {{.*}} -> tensor<1x4x4x16xi32>
// CHECK: tosa.conv2d %arg1, {{.*}} -> tensor<1x4x4x16xi32>
// CHECK: return
func.func @main(%x: tensor<1x32x1x16xi8>, %y: tensor<1x32x32x3xi8>) -> (tensor<1x32x1x16xi32>, tensor<1x4x4x16xi32>, tensor<1x4x4x16xi32>) {
  %point = "tosa.const"() <{values = dense<3> : tensor<16x1x1x16xi8>}> : () -> tensor<16x1x1x16xi8>
  %patch = "tosa.const"() <{values = dense<5> : tensor<16x8x8x3xi8>}> : () -> tensor<16x8x8x3xi8>
  %wide = "tosa.const"() <{values = dense<2> : tensor<16x9x9x3xi8>}> : () -> tensor<16x9x9x3xi8>
  %bias = "tosa.const"() <{values = dense<7> : tensor<16xi32>}> : () -> tensor<16xi32>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %x, %point, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x32x1x16xi8>, tensor<16x1x1x16xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x32x1x16xi32>
  %1 = tosa.conv2d %y, %patch, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 8, 8>} : (tensor<1x32x32x3xi8>, tensor<16x8x8x3xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4x16xi32>
  %2 = tosa.conv2d %y, %wide, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 1, 0, 1>, stride = array<i64: 8, 8>} : (tensor<1x32x32x3xi8>, tensor<16x9x9x3xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4x16xi32>
  return %0, %1, %2 : tensor<1x32x1x16xi32>, tensor<1x4x4x16xi32>, tensor<1x4x4x16xi32>
}
