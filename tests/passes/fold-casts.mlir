// PIPELINE: fold-casts
// A convolution with relu, a table for the sigmoid, and a product that two roundings of one f32 value would differ from.
// CHECK-LABEL: @main
// CHECK: %[[ACC:.*]] = tosa.conv2d {{.*}}acc_type = i32{{.*}} -> tensor<1x2x2x2xi32>
// CHECK: %[[Y:.*]] = tosa.rescale %[[ACC]]{{.*}}per_channel = true, rounding_mode = SINGLE_ROUND
// CHECK: %[[S:.*]] = tosa.table %[[Y]]
// CHECK: tosa.mul {{.*}} -> tensor<1x2x2x2xi32>
// CHECK-NOT: quant.qcast
!x = !quant.uniform<i8:f32, 0.02:3>
!y = !quant.uniform<i8:f32, 0.05:-128>
!s = !quant.uniform<i8:f32, 0.00390625:-128>
!w = !quant.uniform<i8:f32:0, {0.01, 0.02}>
func.func @main(%a: tensor<1x2x2x1x!x>) -> tensor<1x2x2x2x!y> {
  %x = quant.dcast %a : tensor<1x2x2x1x!x> to tensor<1x2x2x1xf32>
  %w0 = "tosa.const"() <{values = dense<[[[[17]]], [[[-9]]]]> : tensor<2x1x1x1xi8>}> : () -> tensor<2x1x1x1xi8>
  %w1 = quant.scast %w0 : tensor<2x1x1x1xi8> to tensor<2x1x1x1x!w>
  %w = quant.dcast %w1 : tensor<2x1x1x1x!w> to tensor<2x1x1x1xf32>
  %b = "tosa.const"() <{values = dense<[0.5, -0.25]> : tensor<2xf32>}> : () -> tensor<2xf32>
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.conv2d %x, %w, %b, %z, %z {acc_type = f32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x2x2x1xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2x2xf32>
  %1 = tosa.clamp %0 {min_val = 0.0 : f32, max_val = 3.4e38 : f32} : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %2 = quant.qcast %1 : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!y>
  %3 = quant.dcast %2 : tensor<1x2x2x2x!y> to tensor<1x2x2x2xf32>
  %4 = tosa.sigmoid %3 : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %5 = quant.qcast %4 : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!s>
  %6 = quant.dcast %5 : tensor<1x2x2x2x!s> to tensor<1x2x2x2xf32>
  %shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %7 = tosa.mul %3, %6, %shift : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1xi8>) -> tensor<1x2x2x2xf32>
  %8 = quant.qcast %7 : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!y>
  return %8 : tensor<1x2x2x2x!y>
}
