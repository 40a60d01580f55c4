// PIPELINE: cheapest-moves{target=ethos-u85-256}
// What is repeated, and each part of what is put together, is the greater of itself and the least value. A row of several
// elements that is repeated stays, and so does what no slice is put together of.
// CHECK-LABEL: @main
// CHECK: tosa.maximum %arg0, {{.*}} (tensor<1x1xi32>, tensor<32x1xi32>) -> tensor<32x1xi32>
// CHECK: tosa.maximum {{.*}} (tensor<1x1x2x8xi32>, tensor<1x1x1x1xi32>) -> tensor<1x1x2x8xi32>
// CHECK: tosa.maximum {{.*}} (tensor<1x1x2x8xi32>, tensor<1x1x1x1xi32>) -> tensor<1x1x2x8xi32>
// CHECK: tosa.concat {{.*}} -> tensor<1x1x4x8xi8>
// CHECK: tosa.tile {{.*}} -> tensor<2x4xi8>
// CHECK: tosa.concat %arg2, %arg2 {{.*}} -> tensor<2x2xi8>
// CHECK: return
func.func @main(%x: tensor<1x1xi32>, %y: tensor<1x1x4x16xi8>, %z: tensor<1x2xi8>) -> (tensor<32x1xi32>, tensor<1x1x4x8xi8>, tensor<2x4xi8>, tensor<2x2xi8>) {
  %many = tosa.const_shape {values = dense<[32, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = tosa.tile %x, %many : (tensor<1x1xi32>, !tosa.shape<2>) -> tensor<32x1xi32>
  %size = tosa.const_shape {values = dense<[1, 1, 2, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %first = tosa.const_shape {values = dense<0> : tensor<4xindex>} : () -> !tosa.shape<4>
  %last = tosa.const_shape {values = dense<[0, 0, 2, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %1 = tosa.slice %y, %first, %size : (tensor<1x1x4x16xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x2x8xi8>
  %2 = tosa.slice %y, %last, %size : (tensor<1x1x4x16xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x2x8xi8>
  %3 = tosa.concat %1, %2 {axis = 2 : i32} : (tensor<1x1x2x8xi8>, tensor<1x1x2x8xi8>) -> tensor<1x1x4x8xi8>
  %two = tosa.const_shape {values = dense<2> : tensor<2xindex>} : () -> !tosa.shape<2>
  %4 = tosa.tile %z, %two : (tensor<1x2xi8>, !tosa.shape<2>) -> tensor<2x4xi8>
  %5 = tosa.concat %z, %z {axis = 0 : i32} : (tensor<1x2xi8>, tensor<1x2xi8>) -> tensor<2x2xi8>
  return %0, %3, %4, %5 : tensor<32x1xi32>, tensor<1x1x4x8xi8>, tensor<2x4xi8>, tensor<2x2xi8>
}
