// PIPELINE: cheapest-reductions{target=ethos-u85-256}
// The halves of an even row are compared, a row of 49 is seven pixels of seven channels; a short row stays.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = tosa.slice %arg0, {{.*}} -> tensor<1x8x1x32xi8>
// CHECK: %[[B:.*]] = tosa.slice %arg0, {{.*}} -> tensor<1x8x1x32xi8>
// CHECK: tosa.maximum {{.*}} -> tensor<1x8x1x32xi32>
// CHECK: tosa.maximum {{.*}} -> tensor<1x8x1x1xi32>
// CHECK: %[[P:.*]] = tosa.reshape %arg1, {{.*}} -> tensor<1x196x7x7xi8>
// CHECK: %[[S:.*]] = tosa.reduce_max %[[P]] {axis = 2 : i32{{.*}}} : {{.*}} -> tensor<1x196x1x7xi8>
// CHECK: tosa.reduce_max {{.*}} -> tensor<1x1x1x196xi8>
// CHECK: tosa.reduce_max %arg2 {axis = 3 : i32{{.*}}} : {{.*}} -> tensor<1x5x1x1xi8>
// CHECK: return
func.func @main(%x: tensor<1x8x1x64xi8>, %y: tensor<1x4x49x49xi8>, %z: tensor<1x5x1x12xi8>) -> (tensor<1x8x1x1xi8>, tensor<1x4x1x49xi8>, tensor<1x5x1x1xi8>) {
  %0 = tosa.reduce_max %x {axis = 3 : i32} : (tensor<1x8x1x64xi8>) -> tensor<1x8x1x1xi8>
  %1 = tosa.transpose %y {perms = array<i32: 0, 1, 3, 2>} : (tensor<1x4x49x49xi8>) -> tensor<1x4x49x49xi8>
  %2 = tosa.reduce_max %1 {axis = 2 : i32} : (tensor<1x4x49x49xi8>) -> tensor<1x4x1x49xi8>
  %3 = tosa.reduce_max %z {axis = 3 : i32} : (tensor<1x5x1x12xi8>) -> tensor<1x5x1x1xi8>
  return %0, %2, %3 : tensor<1x8x1x1xi8>, tensor<1x4x1x49xi8>, tensor<1x5x1x1xi8>
}
