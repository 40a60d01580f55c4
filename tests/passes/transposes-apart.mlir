// PIPELINE: transposes-apart{target=ethos-u85-256}
// Weights of one number are few bytes, however often they are fetched: the transpose stays the convolution's. The one behind
// the small kernel is cheaper apart: it has two dimensions, so that Vela does not fuse it. One that reads no convolution
// stays.
// CHECK-LABEL: @main
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
// CHECK: tosa.reshape {{.*}} -> tensor<16x8xi8>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 1, 0>} : (tensor<16x8xi8>) -> tensor<8x16xi8>
// CHECK: tosa.reshape {{.*}} -> tensor<1x8x4x4xi8>
// CHECK: tosa.transpose %arg0 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
func.func @main(%x: tensor<1x16x16x128xi8>, %y: tensor<1x4x4x8xi8>) -> (tensor<1x128x16x16xi8>, tensor<1x8x4x4xi8>, tensor<1x128x16x16xi8>) {
  %zp = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
  %w0 = "tosa.const"() <{values = dense<7> : tensor<128x3x3x128xi8>}> : () -> tensor<128x3x3x128xi8>
  %b0 = "tosa.const"() <{values = dense<9> : tensor<128xi32>}> : () -> tensor<128xi32>
  %0 = tosa.conv2d %x, %w0, %b0, %zp, %zp {acc_type = i32, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x16x16x128xi8>, tensor<128x3x3x128xi8>, tensor<128xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x16x16x128xi32>
  %1 = tosa.rescale %0, %m, %s, %zero, %zp {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x16x16x128xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x16x16x128xi8>
  %2 = tosa.transpose %1 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
  %w1 = "tosa.const"() <{values = dense<7> : tensor<8x1x1x8xi8>}> : () -> tensor<8x1x1x8xi8>
  %b1 = "tosa.const"() <{values = dense<9> : tensor<8xi32>}> : () -> tensor<8xi32>
  %3 = tosa.conv2d %y, %w1, %b1, %zp, %zp {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x4x4x8xi8>, tensor<8x1x1x8xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4x8xi32>
  %4 = tosa.rescale %3, %m, %s, %zero, %zp {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4x8xi8>
  %5 = tosa.transpose %4 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xi8>) -> tensor<1x8x4x4xi8>
  %6 = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
  return %2, %5, %6 : tensor<1x128x16x16xi8>, tensor<1x8x4x4xi8>, tensor<1x128x16x16xi8>
}
