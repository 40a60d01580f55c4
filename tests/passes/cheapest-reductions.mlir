// PIPELINE: cheapest-reductions{target=ethos-u85-256}
// The halves of an even row are compared, a row of 49 is seven pixels of seven channels; a short row stays.
// The squares of an int8 are summed by halves, and their sum is scaled.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = tosa.slice %arg0, {{.*}} -> tensor<1x8x1x32xi8>
// CHECK: %[[B:.*]] = tosa.slice %arg0, {{.*}} -> tensor<1x8x1x32xi8>
// CHECK: tosa.maximum {{.*}} -> tensor<1x8x1x32xi32>
// CHECK: tosa.maximum {{.*}} -> tensor<1x8x1x1xi32>
// CHECK: %[[P:.*]] = tosa.reshape %arg1, {{.*}} -> tensor<1x196x7x7xi8>
// CHECK: %[[S:.*]] = tosa.reduce_max %[[P]] {axis = 2 : i32{{.*}}} : {{.*}} -> tensor<1x196x1x7xi8>
// CHECK: tosa.reduce_max {{.*}} -> tensor<1x1x1x196xi8>
// CHECK: tosa.reduce_max %arg2 {axis = 3 : i32{{.*}}} : {{.*}} -> tensor<1x5x1x1xi8>
// CHECK: %[[W:.*]] = tosa.rescale %arg3, {{.*}} -> tensor<1x1x1x64xi32>
// CHECK: tosa.mul %[[W]], %[[W]], {{.*}} -> tensor<1x1x1x64xi32>
// CHECK: tosa.add {{.*}} -> tensor<1x1x1x32xi32>
// CHECK: tosa.add {{.*}} -> tensor<1x1x1x1xi32>
// CHECK: return
func.func @main(%x: tensor<1x8x1x64xi8>, %y: tensor<1x4x49x49xi8>, %z: tensor<1x5x1x12xi8>, %v: tensor<1x1x1x64xi8>) -> (tensor<1x8x1x1xi8>, tensor<1x4x1x49xi8>, tensor<1x5x1x1xi8>, tensor<1x1x1x1xi32>) {
  %0 = tosa.reduce_max %x {axis = 3 : i32} : (tensor<1x8x1x64xi8>) -> tensor<1x8x1x1xi8>
  %1 = tosa.transpose %y {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x4x49x49xi8>) -> tensor<1x4x49x49xi8>
  %2 = tosa.reduce_max %1 {axis = 2 : i32} : (tensor<1x4x49x49xi8>) -> tensor<1x4x1x49xi8>
  %3 = tosa.reduce_max %z {axis = 3 : i32} : (tensor<1x5x1x12xi8>) -> tensor<1x5x1x1xi8>
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %up = "tosa.const"() <{values = dense<23> : tensor<1xi8>}> : () -> tensor<1xi8>
  %down = "tosa.const"() <{values = dense<34> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zp = "tosa.const"() <{values = dense<-8> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %n16 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %n32 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %4 = tosa.rescale %v, %one, %up, %zp, %n16 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x64xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi16>) -> tensor<1x1x1x64xi16>
  %5 = tosa.mul %4, %4, %none : (tensor<1x1x1x64xi16>, tensor<1x1x1x64xi16>, tensor<1xi8>) -> tensor<1x1x1x64xi32>
  %6 = tosa.rescale %5, %one, %down, %n32, %n32 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x64xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi32>) -> tensor<1x1x1x64xi32>
  %7 = tosa.reduce_sum %6 {axis = 3 : i32} : (tensor<1x1x1x64xi32>) -> tensor<1x1x1x1xi32>
  return %0, %2, %3, %7 : tensor<1x8x1x1xi8>, tensor<1x4x1x49xi8>, tensor<1x5x1x1xi8>, tensor<1x1x1x1xi32>
}
