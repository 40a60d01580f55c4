// PIPELINE: drop-padding-taps
// On one pixel a 3x3 kernel is its middle; of 2x5 taps the middle ones of the second row read pixels, of the last row; a
// kernel that is applied to padding alone leaves the bias; one with 2x2 taps that all read pixels stays.
// CHECK-LABEL: @main
// CHECK: tosa.depthwise_conv2d %arg0, {{.*}}dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>{{.*}}tensor<1x1x2x2xi8>
// CHECK: %[[ROW:.*]] = tosa.slice %arg1
// CHECK: %[[TAPS:.*]] = tosa.slice %arg3
// CHECK: tosa.conv2d %[[ROW]], %[[TAPS]], {{.*}}dilation = array<i64: 1, 3>, pad = array<i64: 0, 0, 1, 1>{{.*}}tensor<2x1x3x2xi8>
// CHECK: %[[PADDING:.*]] = "tosa.const"() <{values = dense<0> : tensor<1x2x2x3xi16>
// CHECK: tosa.conv2d %[[PADDING]], 
// CHECK: tosa.conv2d %arg1, {{.*}}pad = array<i64: 1, 0, 0, 0>
func.func @main(%one: tensor<1x1x1x2xi8>, %x: tensor<1x4x8x2xi8>, %wide: tensor<1x3x4x3xi16>, %some: tensor<2x2x5x2xi8>)
    -> (tensor<1x1x1x4xi32>, tensor<1x1x4x2xi32>, tensor<1x2x2x2xi48>, tensor<1x4x7x2xi32>) {
  %zp = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero16 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %w0 = "tosa.const"() <{values = dense<[[[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 1], [2, 3]]], [[[4, 5], [6, 7]], [[8, 9], [10, 11]], [[1, 2], [3, 4]]], [[[5, 6], [7, 8]], [[9, 1], [2, 3]], [[4, 5], [6, 7]]]]> : tensor<3x3x2x2xi8>}> : () -> tensor<3x3x2x2xi8>
  %b0 = "tosa.const"() <{values = dense<[1, 2, 3, 4]> : tensor<4xi32>}> : () -> tensor<4xi32>
  %0 = tosa.depthwise_conv2d %one, %w0, %b0, %zp, %zero {acc_type = i32, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>} : (tensor<1x1x1x2xi8>, tensor<3x3x2x2xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x4xi32>
  %b1 = "tosa.const"() <{values = dense<[5, -6]> : tensor<2xi32>}> : () -> tensor<2xi32>
  %1 = tosa.conv2d %x, %some, %b1, %zp, %zero {acc_type = i32, pad = array<i64: 5, 0, 4, 4>, stride = array<i64: 1, 1>, dilation = array<i64: 8, 3>} : (tensor<1x4x8x2xi8>, tensor<2x2x5x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x2xi32>
  %w2 = "tosa.const"() <{values = dense<7> : tensor<2x1x2x3xi8>}> : () -> tensor<2x1x2x3xi8>
  %b2 = "tosa.const"() <{values = dense<[50, -60]> : tensor<2xi48>}> : () -> tensor<2xi48>
  %2 = tosa.conv2d %wide, %w2, %b2, %zero16, %zero {acc_type = i48, pad = array<i64: 5, 1, 0, 0>, stride = array<i64: 8, 2>, dilation = array<i64: 1, 1>} : (tensor<1x3x4x3xi16>, tensor<2x1x2x3xi8>, tensor<2xi48>, tensor<1xi16>, tensor<1xi8>) -> tensor<1x2x2x2xi48>
  %w3 = "tosa.const"() <{values = dense<7> : tensor<2x2x2x2xi8>}> : () -> tensor<2x2x2x2xi8>
  %3 = tosa.conv2d %x, %w3, %b1, %zp, %zero {acc_type = i32, pad = array<i64: 1, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x4x8x2xi8>, tensor<2x2x2x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x7x2xi32>
  return %0, %1, %2, %3 : tensor<1x1x1x4xi32>, tensor<1x1x4x2xi32>, tensor<1x2x2x2xi48>, tensor<1x4x7x2xi32>
}
