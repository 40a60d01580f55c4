// PIPELINE: pixels-to-rows{target=ethos-u85-256}
// Vela reads the weights of an image once for each of its blocks: its pixels go in a row. A row stays, and so does a window.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<1x1x125x64xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x1x125x64xi8>, tensor<64x1x1x64xi8>, {{.*}} -> tensor<1x1x125x64xi32>
// CHECK: tosa.reshape {{.*}} -> tensor<1x25x5x64xi32>
// CHECK: tosa.conv2d %arg1, {{.*}} (tensor<1x1x125x64xi8>,
// CHECK: tosa.conv2d %arg0, {{.*}} (tensor<1x25x5x64xi8>, tensor<64x3x3x64xi8>,
// CHECK: return
func.func @main(%x: tensor<1x25x5x64xi8>, %y: tensor<1x1x125x64xi8>) -> (tensor<1x25x5x64xi32>, tensor<1x1x125x64xi32>, tensor<1x23x3x64xi32>) {
  %point = "tosa.const"() <{values = dense<3> : tensor<64x1x1x64xi8>}> : () -> tensor<64x1x1x64xi8>
  %window = "tosa.const"() <{values = dense<2> : tensor<64x3x3x64xi8>}> : () -> tensor<64x3x3x64xi8>
  %bias = "tosa.const"() <{values = dense<7> : tensor<64xi32>}> : () -> tensor<64xi32>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %x, %point, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x25x5x64xi8>, tensor<64x1x1x64xi8>, tensor<64xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x25x5x64xi32>
  %1 = tosa.conv2d %y, %point, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x1x125x64xi8>, tensor<64x1x1x64xi8>, tensor<64xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x125x64xi32>
  %2 = tosa.conv2d %x, %window, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x25x5x64xi8>, tensor<64x3x3x64xi8>, tensor<64xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x23x3x64xi32>
  return %0, %1, %2 : tensor<1x25x5x64xi32>, tensor<1x1x125x64xi32>, tensor<1x23x3x64xi32>
}
