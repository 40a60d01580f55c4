// PIPELINE: cheapest-transposes{target=ethos-u85-256}
// The planes of an image become its channels by a convolution over planes, four pixels at a time; channels are shuffled
// by a 1x1 convolution; what is no int8 only loses dimensions.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<1x3x256x4xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x3x256x4xi8>, tensor<12x3x1x4xi8>, {{.*}} -> tensor<1x1x256x12xi32>
// CHECK: tosa.reshape {{.*}} -> tensor<1x32x32x3xi8>
// CHECK: tosa.conv2d {{.*}} (tensor<1x14x14x48xi8>, tensor<48x1x1x48xi8>, {{.*}} -> tensor<1x14x14x48xi32>
// CHECK: tosa.reshape {{.*}} -> tensor<1x14x14x24x2xi8>
// CHECK: tosa.transpose {{.*}} {perms = array<i32: 1, 0, 2>} : (tensor<9x6x16xi32>) -> tensor<6x9x16xi32>
// CHECK: return
func.func @main(%x: tensor<1x3x32x32xi8>, %y: tensor<1x14x14x2x24xi8>, %z: tensor<1x9x3x2x16xi32>) -> (tensor<1x32x32x3xi8>, tensor<1x14x14x24x2xi8>, tensor<3x1x2x9x16xi32>) {
  %0 = tosa.transpose %x {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x32x32xi8>) -> tensor<1x32x32x3xi8>
  %1 = tosa.transpose %y {perms = array<i32: 0, 1, 2, 4, 3>} : (tensor<1x14x14x2x24xi8>) -> tensor<1x14x14x24x2xi8>
  %2 = tosa.transpose %z {perms = array<i32: 2, 0, 3, 1, 4>} : (tensor<1x9x3x2x16xi32>) -> tensor<3x1x2x9x16xi32>
  return %0, %1, %2 : tensor<1x32x32x3xi8>, tensor<1x14x14x24x2xi8>, tensor<3x1x2x9x16xi32>
}
