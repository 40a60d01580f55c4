// PIPELINE: cheapest-products{target=ethos-u85-256}
// Keys that lie row by row are the first operand, values that lie column by column the pixels of a convolution. To which a mask
// is added has the places of keys in two parts, and is transposed with the sum.
// CHECK-LABEL: @main
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x4x2x8xi8>) -> tensor<1x4x8x2xi8>
// CHECK: tosa.matmul %arg1, {{.*}} (tensor<4x512x8xi8>, tensor<4x8x2xi8>, {{.*}} -> tensor<4x512x2xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 2, 1>} : {{.*}} -> tensor<4x2x512xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x1x32x512xi8>, tensor<8x1x1x512xi8>, {{.*}} -> tensor<1x1x32x8xi32>
// CHECK: tosa.transpose {{.*}} -> tensor<8x32xi8>
// CHECK: tosa.concat {{.*}} -> tensor<4x2x1x8xi8>
// CHECK: tosa.maximum {{.*}} -> tensor<1x4x2x16xi32>
// CHECK: tosa.matmul {{.*}} (tensor<8x256x8xi8>, tensor<8x8x2xi8>, {{.*}} -> tensor<8x256x2xi32>
// CHECK: tosa.add {{.*}} (tensor<1x4x512x2xi32>, tensor<1x1x512x1xi32>) -> tensor<1x4x512x2xi32>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 0, 1, 3, 2>} : {{.*}} -> tensor<1x4x2x512xi8>
// CHECK: return
func.func @main(%q: tensor<4x2x8xi8>, %k: tensor<4x512x8xi8>, %p: tensor<4x2x512xi8>, %v: tensor<4x8x512xi8>, %mask: tensor<1x1x1x512xi8>) -> (tensor<4x2x512xi8>, tensor<4x2x8xi8>, tensor<1x8x1x512xi8>) {
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
  %t = tosa.matmul %q, %kt, %zero, %zero : (tensor<4x2x8xi8>, tensor<4x8x512xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4x2x512xi32>
  %2 = tosa.rescale %t, %one, %shift, %wide, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4x2x512xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<4x2x512xi8>
  %shape = tosa.const_shape {values = dense<[1, 8, 1, 512]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %3 = tosa.reshape %2, %shape : (tensor<4x2x512xi8>, !tosa.shape<4>) -> tensor<1x8x1x512xi8>
  %ten = "tosa.const"() <{values = dense<20> : tensor<1xi8>}> : () -> tensor<1xi8>
  %4 = tosa.rescale %3, %one, %ten, %zero, %wide {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x8x1x512xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x8x1x512xi32>
  %5 = tosa.rescale %mask, %one, %ten, %zero, %wide {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x512xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x1x1x512xi32>
  %6 = tosa.add %4, %5 : (tensor<1x8x1x512xi32>, tensor<1x1x1x512xi32>) -> tensor<1x8x1x512xi32>
  %7 = tosa.rescale %6, %one, %shift, %wide, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x8x1x512xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x8x1x512xi8>
  return %0, %1, %7 : tensor<4x2x512xi8>, tensor<4x2x8xi8>, tensor<1x8x1x512xi8>
}
