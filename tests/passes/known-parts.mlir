// PIPELINE: known-parts
// 3 (7 + 1) + 20 = 44 behind an offset of 1, then limited to 40; of the rest only what depends on x is left.
// CHECK-LABEL: @main
// CHECK: 30, 31, 32, 33], [34, 35, 36, 37{{.*}} : tensor<1x2x4xi32>
// CHECK: tosa.add {{.*}} (tensor<1x2x4xi32>, tensor<1x2x4xi32>) -> tensor<1x2x4xi32>
// CHECK: %[[KNOWN:.*]] = "tosa.const"() <{values = dense<40> : tensor<1x1x4xi8>}>
// CHECK: %[[REST:.*]] = tosa.clamp
// CHECK: tosa.concat %[[KNOWN]], %[[REST]] {axis = 1 : i32} : (tensor<1x1x4xi8>, tensor<1x2x4xi8>) -> tensor<1x3x4xi8>
// Elements do not get wider.
// CHECK: tosa.concat {{.*}} -> tensor<1x3x4xi8>
// CHECK-NEXT: tosa.rescale {{.*}} -> tensor<1x3x4xi32>
// CHECK-NEXT: return
func.func @main(%x: tensor<1x2x4xi8>) -> (tensor<1x3x4xi8>, tensor<1x3x4xi32>) {
  %token = "tosa.const"() <{values = dense<7> : tensor<1x1x4xi8>}> : () -> tensor<1x1x4xi8>
  %offsets = "tosa.const"() <{values = dense<[[[20, 20, 20, 20], [30, 31, 32, 33], [34, 35, 36, 37]]]> : tensor<1x3x4xi32>}> : () -> tensor<1x3x4xi32>
  %three = "tosa.const"() <{values = dense<1610612736> : tensor<1xi32>}> : () -> tensor<1xi32>
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %29 = "tosa.const"() <{values = dense<29> : tensor<1xi8>}> : () -> tensor<1xi8>
  %30 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zp = "tosa.const"() <{values = dense<-1> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %0 = tosa.concat %token, %x {axis = 1 : i32} : (tensor<1x1x4xi8>, tensor<1x2x4xi8>) -> tensor<1x3x4xi8>
  %1 = tosa.rescale %0, %three, %29, %zp, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x3x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x3x4xi32>
  %2 = tosa.add %1, %offsets : (tensor<1x3x4xi32>, tensor<1x3x4xi32>) -> tensor<1x3x4xi32>
  %3 = tosa.rescale %2, %one, %30, %none, %zp {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x3x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x3x4xi8>
  %4 = tosa.clamp %3 {min_val = -40 : i8, max_val = 40 : i8} : (tensor<1x3x4xi8>) -> tensor<1x3x4xi8>
  %5 = tosa.concat %token, %x {axis = 1 : i32} : (tensor<1x1x4xi8>, tensor<1x2x4xi8>) -> tensor<1x3x4xi8>
  %6 = tosa.rescale %5, %one, %30, %zp, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x3x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x3x4xi32>
  return %4, %6 : tensor<1x3x4xi8>, tensor<1x3x4xi32>
}
