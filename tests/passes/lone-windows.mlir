// PIPELINE: lone-windows
// Three columns eight apart come together; of a 2x2 kernel that stands alone in its columns, and has two rows of results,
// the columns alone; with padding, or with more results, all stays.
// CHECK-LABEL: @main
// CHECK-DAG: %[[FIRST:.*]] = tosa.slice %arg0
// CHECK: %[[ROW:.*]] = tosa.concat %{{.*}}, %{{.*}}, %{{.*}} {axis = 2 : i32}{{.*}}-> tensor<1x1x3x2xi8>
// CHECK: tosa.conv2d %[[ROW]], {{.*}}dilation = array<i64: 1, 1>
// CHECK: %[[COLUMNS:.*]] = tosa.concat %{{.*}}, %{{.*}} {axis = 2 : i32}{{.*}}-> tensor<1x6x2x2xi8>
// CHECK: tosa.conv2d %[[COLUMNS]], {{.*}}dilation = array<i64: 3, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 1>
// CHECK: tosa.conv2d %arg0, {{.*}}dilation = array<i64: 1, 9>
// CHECK: tosa.conv2d %arg0, {{.*}}dilation = array<i64: 1, 4>
func.func @main(%x: tensor<1x1x17x2xi8>, %image: tensor<1x6x5x2xi8>)
    -> (tensor<1x1x1x2xi32>, tensor<1x2x1x2xi32>, tensor<1x1x1x2xi32>, tensor<1x1x9x2xi32>) {
  %zp = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %b = "tosa.const"() <{values = dense<[5, -6]> : tensor<2xi32>}> : () -> tensor<2xi32>
  %w3 = "tosa.const"() <{values = dense<[[[[1, 2], [3, 4], [5, 6]]], [[[-7, 8], [9, -10], [11, 12]]]]> : tensor<2x1x3x2xi8>}> : () -> tensor<2x1x3x2xi8>
  %w4 = "tosa.const"() <{values = dense<[[[[1, 2], [3, 4]], [[5, 6], [-7, 8]]], [[[9, 1], [2, -3]], [[4, 5], [6, 7]]]]> : tensor<2x2x2x2xi8>}> : () -> tensor<2x2x2x2xi8>
  %0 = tosa.conv2d %x, %w3, %b, %zp, %zero {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 8>} : (tensor<1x1x17x2xi8>, tensor<2x1x3x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x2xi32>
  %1 = tosa.conv2d %image, %w4, %b, %zp, %zero {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 3>, dilation = array<i64: 3, 4>} : (tensor<1x6x5x2xi8>, tensor<2x2x2x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x1x2xi32>
  %2 = tosa.conv2d %x, %w3, %b, %zp, %zero {acc_type = i32, pad = array<i64: 0, 0, 1, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 9>} : (tensor<1x1x17x2xi8>, tensor<2x1x3x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x2xi32>
  %3 = tosa.conv2d %x, %w3, %b, %zp, %zero {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 4>} : (tensor<1x1x17x2xi8>, tensor<2x1x3x2xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x9x2xi32>
  return %0, %1, %2, %3 : tensor<1x1x1x2xi32>, tensor<1x2x1x2xi32>, tensor<1x1x1x2xi32>, tensor<1x1x9x2xi32>
}
