// PIPELINE: transpose-into-weights
// CHECK-LABEL: @main
// CHECK-NOT: tosa.transpose
// CHECK: tosa.reshape %arg0
// CHECK: tosa.conv2d
func.func @main(%x: tensor<1x2x3x2xi8>) -> tensor<1x1x1x2xi32> {
  %d = tosa.const_shape {values = dense<[1, 1, 1, 12]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %w = "tosa.const"() <{values = dense<[[[[-100, -93, -86, -79, -72, -65, -58, -51, -44, -37, -30, -23]]], [[[-69, -62, -55, -48, -41, -34, -27, -20, -13, -6, 1, 8]]]]> : tensor<2x1x1x12xi8>}> : () -> tensor<2x1x1x12xi8>
  %b = "tosa.const"() <{values = dense<[100, -7]> : tensor<2xi32>}> : () -> tensor<2xi32>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x2x3x2xi8>) -> tensor<1x2x2x3xi8>
  %1 = tosa.reshape %0, %d : (tensor<1x2x2x3xi8>, !tosa.shape<4>) -> tensor<1x1x1x12xi8>
  %2 = tosa.conv2d %1, %w, %b, %z, %z {acc_type = i32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x1x1x12xi8>, tensor<2x1x1x12xi8>, tensor<2xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x2xi32>
  return %2 : tensor<1x1x1x2xi32>
}
