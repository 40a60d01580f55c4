// PIPELINE: cheapest-transposes{target=ethos-u85-256}
// The planes of an image and a shuffle of channels are transposed as a MAXIMUM is made; where that has more than four
// dimensions, it only loses some. Behind a convolution whose weights are few bytes, however often they are fetched, Vela makes
// one op of both; behind a small one it would not.
// CHECK-LABEL: @main
// CHECK: tosa.maximum {{.*}} -> tensor<1x1x3x1024xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x1x3x1024xi8>) -> tensor<1x1x1024x3xi8>
// CHECK: tosa.maximum {{.*}} -> tensor<1x196x2x24xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x196x2x24xi8>) -> tensor<1x196x24x2xi8>
// CHECK: tosa.reshape {{.*}} -> tensor<1x14x14x24x2xi8>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 1, 0, 2>} : (tensor<9x6x16xi32>) -> tensor<6x9x16xi32>
// CHECK: %[[A:.*]] = tosa.rescale {{.*}} -> tensor<1x16x16x128xi8>
// CHECK: tosa.transpose %[[A]] {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
// CHECK: tosa.conv2d {{.*}} -> tensor<1x4x4x8xi32>
// CHECK: tosa.maximum {{.*}} -> tensor<1x1x16x8xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x1x16x8xi8>) -> tensor<1x1x8x16xi8>
// CHECK: return
func.func @main(%x: tensor<1x3x32x32xi8>, %y: tensor<1x14x14x2x24xi8>, %z: tensor<1x9x3x2x16xi32>, %v: tensor<1x16x16x128xi8>, %u: tensor<1x4x4x8xi8>) -> (tensor<1x32x32x3xi8>, tensor<1x14x14x24x2xi8>, tensor<3x1x2x9x16xi32>, tensor<1x128x16x16xi8>, tensor<1x8x4x4xi8>) {
  %0 = tosa.transpose %x {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x32x32xi8>) -> tensor<1x32x32x3xi8>
  %1 = tosa.transpose %y {perms = array<i32: 0, 1, 2, 4, 3>} : (tensor<1x14x14x2x24xi8>) -> tensor<1x14x14x24x2xi8>
  %2 = tosa.transpose %z {perms = array<i32: 2, 0, 3, 1, 4>} : (tensor<1x9x3x2x16xi32>) -> tensor<3x1x2x9x16xi32>
  %zp = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
  %w0 = "tosa.const"() <{values = dense<7> : tensor<128x3x3x128xi8>}> : () -> tensor<128x3x3x128xi8>
  %b0 = "tosa.const"() <{values = dense<9> : tensor<128xi32>}> : () -> tensor<128xi32>
  %c0 = tosa.conv2d %v, %w0, %b0, %zp, %zp {acc_type = i32, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x16x16x128xi8>, tensor<128x3x3x128xi8>, tensor<128xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x16x16x128xi32>
  %c1 = tosa.rescale %c0, %m, %s, %zero, %zp {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x16x16x128xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x16x16x128xi8>
  %c2 = tosa.transpose %c1 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x16x16x128xi8>) -> tensor<1x128x16x16xi8>
  %w1 = "tosa.const"() <{values = dense<7> : tensor<8x1x1x8xi8>}> : () -> tensor<8x1x1x8xi8>
  %b1 = "tosa.const"() <{values = dense<9> : tensor<8xi32>}> : () -> tensor<8xi32>
  %c3 = tosa.conv2d %u, %w1, %b1, %zp, %zp {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x4x4x8xi8>, tensor<8x1x1x8xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4x8xi32>
  %c4 = tosa.rescale %c3, %m, %s, %zero, %zp {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4x8xi8>
  %c5 = tosa.transpose %c4 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xi8>) -> tensor<1x8x4x4xi8>
  return %0, %1, %2, %c2, %c5 : tensor<1x32x32x3xi8>, tensor<1x14x14x24x2xi8>, tensor<3x1x2x9x16xi32>, tensor<1x128x16x16xi8>, tensor<1x8x4x4xi8>
}
