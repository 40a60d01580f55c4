// PIPELINE: drop-dead-channels
// Four of eight channels have weights of 0: what their biases become, 1 to 4 halves, is in the next bias.
// CHECK-LABEL: @main
// CHECK-SAME: tosaic.dropped = array<i64: 4, 16, 64>
// CHECK: tosa.conv2d %arg0, {{.*}}-> tensor<1x2x2x4xi32>
// CHECK: tosa.rescale {{.*}}-> tensor<1x2x2x4xi8>
// CHECK: dense<[110, 120]> : tensor<2xi32>
// CHECK: tosa.conv2d {{.*}}tensor<2x1x1x4xi8>{{.*}}-> tensor<1x2x2x2xi32>
func.func @main(%x: tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi32> {
  %zp = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %w0 = "tosa.const"() <{values = dense<[[[[1, 2]]], [[[0, 0]]], [[[3, 4]]], [[[0, 0]]], [[[5, 6]]], [[[0, 0]]], [[[7, 8]]], [[[0, 0]]]]> : tensor<8x1x1x2xi8>}> : () -> tensor<8x1x1x2xi8>
  %b0 = "tosa.const"() <{values = dense<[9, 2, 9, 4, 9, 6, 9, 8]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %0 = tosa.conv2d %x, %w0, %b0, %zp, %zp {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x2x2x2xi8>, tensor<8x1x1x2xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x2x8xi32>
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<31> : tensor<1xi8>}> : () -> tensor<1xi8>
  %1 = tosa.rescale %0, %m, %s, %zero, %zp {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x2x2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x2x2x8xi8>
  %w1 = "tosa.const"() <{values = dense<[[[[1, 1, 1, 1, 1, 1, 1, 1]]], [[[1, 2, 1, 2, 1, 2, 1, 2]]]]> : tensor<2x1x1x8xi8>}> : () -> tensor<2x1x1x8xi8>
  %b1 = "tosa.const"() <{values = dense<100> : tensor<2xi32>}> : () -> tensor<2xi32>
  %2 = tosa.conv2d %1, %w1, %b1, %zp, %zp {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x2x2x8xi8>, tensor<2x1x1x8xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x2x2xi32>
  return %2 : tensor<1x2x2x2xi32>
}
