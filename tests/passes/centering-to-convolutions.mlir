// PIPELINE: centering-to-convolutions{target=ethos-u55-128}
// Each of 64 channels less their mean, times 128: a kernel of 63 and -1, and a factor of 2.
// CHECK-LABEL: @main
// CHECK-NOT: tosa.reduce_sum
// CHECK: tosa.conv2d {{.*}} (tensor<1x1x32x64xi8>, tensor<64x1x1x64xi8>, {{.*}} -> tensor<1x1x32x64xi32>
// CHECK-NOT: tosa.sub
// CHECK: dense<29> : tensor<1xi8>
// CHECK: tosa.rescale {{.*}} -> tensor<1x1x32x64xi16>
// CHECK: return
func.func @main(%x: tensor<1x32x64xi8>) -> tensor<1x32x64xi16> {
  %unit = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %one = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %twice = "tosa.const"() <{values = dense<29> : tensor<1xi8>}> : () -> tensor<1xi8>
  %much = "tosa.const"() <{values = dense<23> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zp = "tosa.const"() <{values = dense<-7> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %none_16 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %0 = tosa.rescale %x, %unit, %one, %zp, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x32x64xi32>
  %1 = tosa.reduce_sum %0 {axis = 2 : i32} : (tensor<1x32x64xi32>) -> tensor<1x32x1xi32>
  %2 = tosa.rescale %x, %unit, %much, %zp, %none_16 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi16>) -> tensor<1x32x64xi16>
  %3 = tosa.rescale %1, %unit, %twice, %none, %none_16 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x1xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi16>) -> tensor<1x32x1xi16>
  %4 = tosa.rescale %2, %unit, %one, %none_16, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x32x64xi32>
  %5 = tosa.rescale %3, %unit, %one, %none_16, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x1xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x32x1xi32>
  %6 = tosa.sub %4, %5 : (tensor<1x32x64xi32>, tensor<1x32x1xi32>) -> tensor<1x32x64xi32>
  %7 = tosa.rescale %6, %unit, %one, %none, %none_16 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi16>) -> tensor<1x32x64xi16>
  return %7 : tensor<1x32x64xi16>
}
