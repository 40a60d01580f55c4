// PIPELINE: columns-to-channels{target=ethos-u55-128}
// Two columns of one channel become one of two, and the kernel three such columns wide; sixteen channels stay.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<1x49x5x2xi8>
// CHECK: tosa.conv2d {{.*}} pad = array<i64: 4, 5, 1, 1>, stride = array<i64: 2, 1>} : (tensor<1x49x5x2xi8>, tensor<64x10x3x2xi8>, {{.*}} -> tensor<1x25x5x64xi32>
// CHECK: tosa.rescale {{.*}} -> tensor<1x25x5x64xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x8x8x16xi8>, tensor<16x2x2x16xi8>,
// CHECK: return
func.func @main(%x: tensor<1x49x10x1xi8>, %y: tensor<1x8x8x16xi8>) -> (tensor<1x25x5x64xi8>, tensor<1x4x4x16xi8>) {
  %few = "tosa.const"() <{values = dense<3> : tensor<64x10x4x1xi8>}> : () -> tensor<64x10x4x1xi8>
  %many = "tosa.const"() <{values = dense<5> : tensor<16x2x2x16xi8>}> : () -> tensor<16x2x2x16xi8>
  %bias = "tosa.const"() <{values = dense<7> : tensor<64xi32>}> : () -> tensor<64xi32>
  %bias_16 = "tosa.const"() <{values = dense<7> : tensor<16xi32>}> : () -> tensor<16xi32>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %multiplier = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<38> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %x, %few, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 4, 5, 1, 1>, stride = array<i64: 2, 2>} : (tensor<1x49x10x1xi8>, tensor<64x10x4x1xi8>, tensor<64xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x25x5x64xi32>
  %1 = tosa.rescale %0, %multiplier, %shift, %none, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x25x5x64xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x25x5x64xi8>
  %2 = tosa.conv2d %y, %many, %bias_16, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x8x16xi8>, tensor<16x2x2x16xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4x16xi32>
  %3 = tosa.rescale %2, %multiplier, %shift, %none, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4x4x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4x16xi8>
  return %1, %3 : tensor<1x25x5x64xi8>, tensor<1x4x4x16xi8>
}
