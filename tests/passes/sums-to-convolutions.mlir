// PIPELINE: sums-to-convolutions{target=ethos-u55-128}
// 2^19 (x - 3) + 33 * 2^13 (y + 9): weights of 64 and 33, and an offset of 9 * 33 - 3 * 64. Others read x too.
// CHECK-LABEL: @main
// CHECK: tosa.depthwise_conv2d %arg0
// CHECK: %[[COPY:.*]] = tosa.rescale
// CHECK: tosa.conv2d %arg1
// CHECK: %[[MADE:.*]] = tosa.rescale
// CHECK: tosa.concat %[[COPY]], %[[MADE]] {axis = 3 : i32} : (tensor<1x32x32x16xi8>, tensor<1x32x32x16xi8>) -> tensor<1x32x32x32xi8>
// CHECK: dense<105> : tensor<16xi32>
// CHECK: tosa.conv2d {{.*}} (tensor<1x32x32x32xi8>, tensor<16x1x1x32xi8>, {{.*}} -> tensor<1x32x32x16xi32>
// CHECK-NOT: tosa.add
// CHECK: return
func.func @main(%x: tensor<1x32x32x16xi8>, %z: tensor<1x32x32x16xi8>) -> (tensor<1x32x32x16xi8>, tensor<1x32x32x16xi8>) {
  %ones = "tosa.const"() <{values = dense<1> : tensor<16x1x1x16xi8>}> : () -> tensor<16x1x1x16xi8>
  %bias = "tosa.const"() <{values = dense<0> : tensor<16xi32>}> : () -> tensor<16xi32>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %3 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %9 = "tosa.const"() <{values = dense<-9> : tensor<1xi8>}> : () -> tensor<1xi8>
  %unit = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %part = "tosa.const"() <{values = dense<1107296256> : tensor<1xi32>}> : () -> tensor<1xi32>
  %11 = "tosa.const"() <{values = dense<11> : tensor<1xi8>}> : () -> tensor<1xi8>
  %12 = "tosa.const"() <{values = dense<12> : tensor<1xi8>}> : () -> tensor<1xi8>
  %37 = "tosa.const"() <{values = dense<37> : tensor<1xi8>}> : () -> tensor<1xi8>
  %50 = "tosa.const"() <{values = dense<50> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %z, %ones, %bias, %zero, %zero {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x32x32x16xi8>, tensor<16x1x1x16xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x32x32x16xi32>
  %y = tosa.rescale %0, %unit, %37, %none, %9 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x32x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x32x32x16xi8>
  %a = tosa.rescale %x, %unit, %11, %3, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x32x16xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x32x32x16xi32>
  %b = tosa.rescale %y, %part, %12, %9, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x32x16xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x32x32x16xi32>
  %sum = tosa.add %a, %b : (tensor<1x32x32x16xi32>, tensor<1x32x32x16xi32>) -> tensor<1x32x32x16xi32>
  %result = tosa.rescale %sum, %unit, %50, %none, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x32x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x32x32x16xi8>
  return %result, %x : tensor<1x32x32x16xi8>, tensor<1x32x32x16xi8>
}
