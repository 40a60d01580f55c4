// PIPELINE: pixels-to-channels{target=ethos-u85-256}
// What follows from a sum of each row is computed of all rows as of one pixel; what has several channels stays.
// CHECK-LABEL: @main
// CHECK: %[[S:.*]] = tosa.reduce_sum {{.*}}
// CHECK: %[[C:.*]] = tosa.reshape %[[S]], {{.*}} -> tensor<1x1x1x8xi32>
// CHECK: %[[Z:.*]] = tosa.clz %[[C]] : (tensor<1x1x1x8xi32>) -> tensor<1x1x1x8xi32>
// CHECK: tosa.sub {{.*}}, %[[Z]] : (tensor<1x1x1x1xi32>, tensor<1x1x1x8xi32>) -> tensor<1x1x1x8xi32>
// CHECK: tosa.reshape {{.*}} -> tensor<1x8x1x1xi32>
// CHECK: tosa.sub {{.*}} -> tensor<1x8x1x64xi32>
// CHECK: return
func.func @main(%b: tensor<1x8x1x4xi8>, %y: tensor<1x8x1x64xi8>) -> tensor<1x8x1x64xi32> {
  %most = "tosa.const"() <{values = dense<17> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
  %zp = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %thirty = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %x = tosa.rescale %b, %one, %thirty, %zp, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x8x1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x8x1x4xi32>
  %sum = tosa.reduce_sum %x {axis = 3 : i32} : (tensor<1x8x1x4xi32>) -> tensor<1x8x1x1xi32>
  %0 = tosa.clz %sum : (tensor<1x8x1x1xi32>) -> tensor<1x8x1x1xi32>
  %1 = tosa.sub %most, %0 : (tensor<1x1x1x1xi32>, tensor<1x8x1x1xi32>) -> tensor<1x8x1x1xi32>
  %w = tosa.rescale %y, %one, %thirty, %zp, %none {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x8x1x64xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x8x1x64xi32>
  %2 = tosa.sub %w, %1 : (tensor<1x8x1x64xi32>, tensor<1x8x1x1xi32>) -> tensor<1x8x1x64xi32>
  return %2 : tensor<1x8x1x64xi32>
}
