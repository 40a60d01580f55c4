// PIPELINE: cheapest-products{target=ethos-u85-256}
// Keys that lie row by row are the first operand, values that lie column by column the weights of a
// convolution.
// CHECK-LABEL: @main
// CHECK: %[[Q:.*]] = tosa.transpose %arg0 {perms = array<i32: 0, 2, 1>} : {{.*}} -> tensor<4x8x2xi8>
// CHECK: %[[S:.*]] = tosa.matmul {{.*}}, %[[Q]], {{.*}} (tensor<4x512x8xi8>, tensor<4x8x2xi8>, {{.*}} -> tensor<4x512x2xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 2, 1>} : {{.*}} -> tensor<4x2x512xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x1x8x512xi8>, tensor<32x1x1x512xi8>, {{.*}} -> tensor<1x1x8x32xi32>
// CHECK: tosa.concat {{.*}} -> tensor<4x2x1x8xi8>
// CHECK: return
func.func @main(%q: tensor<4x2x8xi8>, %k: tensor<4x512x8xi8>, %p: tensor<4x2x512xi8>, %v: tensor<4x8x512xi8>) -> (tensor<4x2x512xi8>, tensor<4x2x8xi8>) {
  %zero = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %wide = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
  %kt = tosa.transpose %k {perms = array<i32: 0, 2, 1>} : (tensor<4x512x8xi8>) -> tensor<4x8x512xi8>
  %s = tosa.matmul %q, %kt, %zero, %zero : (tensor<4x2x8xi8>, tensor<4x8x512xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4x2x512xi32>
  %0 = tosa.rescale %s, %one, %shift, %wide, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4x2x512xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<4x2x512xi8>
  %vt = tosa.transpose %v {perms = array<i32: 0, 2, 1>} : (tensor<4x8x512xi8>) -> tensor<4x512x8xi8>
  %o = tosa.matmul %p, %vt, %zero, %zero : (tensor<4x2x512xi8>, tensor<4x512x8xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4x2x8xi32>
  %1 = tosa.rescale %o, %one, %shift, %wide, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4x2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<4x2x8xi8>
  return %0, %1 : tensor<4x2x512xi8>, tensor<4x2x8xi8>
}
