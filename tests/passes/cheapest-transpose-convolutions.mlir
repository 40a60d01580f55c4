// PIPELINE: cheapest-transpose-convolutions{target=ethos-u55-128}
// A kernel as large as its stride makes pixels that do not overlap: channels of a 1x1 convolution.
// CHECK-LABEL: @main
// CHECK-NOT: tosa.transpose_conv2d
// CHECK: tosa.conv2d %arg0, {{.*}} -> tensor<1x8x8x16xi32>
// CHECK: tosa.rescale {{.*}} per_channel = true{{.*}} -> tensor<1x8x8x16xi8>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 2, 1, 3>} : (tensor<8x8x2x8xi8>) -> tensor<8x2x8x8xi8>
// CHECK: tosa.reshape {{.*}} -> tensor<1x16x16x4xi8>
// CHECK: return
func.func @main(%x: tensor<1x8x8x8xi8>) -> tensor<1x16x16x4xi8> {
  %weights = "tosa.const"() <{values = dense<"0x0b30557a9fc4e90e33587da2c7ec11365b80a5caef14395e83a8cdf2173c6186abd0f51a3f6489aed3f81d42678cb1d6fb20456a8fb4d9fe23486d92b7dc01264b7095badf04294e7398bde2072c51769bc0e50a2f54799ec3e80d32577ca1c6eb10355a7fa4c9ee13385d82a7ccf1163b6085aacff4193e6388add2f71c4166"> : tensor<4x2x2x8xi8>}> : () -> tensor<4x2x2x8xi8>
  %bias = "tosa.const"() <{values = dense<[7, 8, 9, 10]> : tensor<4xi32>}> : () -> tensor<4xi32>
  %zero = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %wide = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %factor = "tosa.const"() <{values = dense<[1073741824, 1173741824, 1273741824, 1373741824]> : tensor<4xi32>}> : () -> tensor<4xi32>
  %shift = "tosa.const"() <{values = dense<[37, 38, 39, 38]> : tensor<4xi8>}> : () -> tensor<4xi8>
  %0 = tosa.transpose_conv2d %x, %weights, %bias, %zero, %none {acc_type = i32, out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x8x8xi8>, tensor<4x2x2x8xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x16x16x4xi32>
  %1 = tosa.rescale %0, %factor, %shift, %wide, %zero {input_unsigned = false, output_unsigned = false, per_channel = true, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x16x16x4xi32>, tensor<4xi32>, tensor<4xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x16x16x4xi8>
  return %1 : tensor<1x16x16x4xi8>
}
