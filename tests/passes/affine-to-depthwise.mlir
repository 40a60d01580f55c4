// PIPELINE: affine-to-depthwise{target=ethos-u55-128}
// Sums of int16 and a constant for each of 64 channels: a 1x1 kernel of ones with 16-bit multipliers.
// CHECK-LABEL: @main
// CHECK-NOT: tosa.add
// CHECK: tosa.depthwise_conv2d {{.*}} (tensor<1x1x32x64xi16>, tensor<1x1x64x1xi8>, tensor<64xi48>, {{.*}} -> tensor<1x1x32x64xi48>
// CHECK: dense<16385> : tensor<1xi16>
// CHECK: dense<15> : tensor<1xi8>
// CHECK: tosa.rescale {{.*}} -> tensor<1x1x32x64xi8>
// CHECK: return
func.func @main(%x: tensor<1x32x64xi16>) -> tensor<1x32x64xi8> {
  %unit = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %one = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %factor = "tosa.const"() <{values = dense<1073807360> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<31> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %none_16 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %none_8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %offsets = "tosa.const"() <{values = dense<-70000> : tensor<1x1x64xi32>}> : () -> tensor<1x1x64xi32>
  %0 = tosa.rescale %x, %unit, %one, %none_16, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x32x64xi32>
  %1 = tosa.add %0, %offsets : (tensor<1x32x64xi32>, tensor<1x1x64xi32>) -> tensor<1x32x64xi32>
  %2 = tosa.rescale %1, %factor, %shift, %none, %none_8 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x32x64xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x32x64xi8>
  return %2 : tensor<1x32x64xi8>
}
