// PIPELINE: slices-of-parts
// A SLICE within a part of a CONCAT reads that, behind a reshape by one, too; one of two parts reads both where nothing
// reads the whole. Of what a convolution reads, too, the SLICE of both stays.
// CHECK-LABEL: @main
// CHECK: %[[KEPT:.*]] = tosa.slice %arg0, {{.*}}-> tensor<1x3x2xi8>
// CHECK: %[[NEXT:.*]] = tosa.slice %arg1, {{.*}}-> tensor<1x1x2xi8>
// CHECK: %[[STATE:.*]] = tosa.concat %[[KEPT]], %[[NEXT]] {axis = 1 : i32}
// CHECK: %[[VIEW:.*]] = tosa.reshape %arg0, {{.*}}-> tensor<1x1x4x2xi8>
// CHECK: %[[TAP:.*]] = tosa.slice %[[VIEW]], {{.*}}-> tensor<1x1x1x2xi8>
// CHECK: %[[WHOLE:.*]] = tosa.concat %arg0, %arg1
// CHECK: tosa.slice %[[WHOLE]], {{.*}}-> tensor<1x4x2xi8>
// CHECK: tosa.clamp %[[WHOLE]]
func.func @main(%past: tensor<1x4x2xi8>, %x: tensor<1x1x2xi8>)
    -> (tensor<1x4x2xi8>, tensor<1x1x1x2xi8>, tensor<1x4x2xi8>, tensor<1x5x2xi8>) {
  %drop = tosa.const_shape {values = dense<[0, 1, 0]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %size = tosa.const_shape {values = dense<[1, 4, 2]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %four = tosa.const_shape {values = dense<[1, 1, 5, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %second = tosa.const_shape {values = dense<[0, 0, 2, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %one = tosa.const_shape {values = dense<[1, 1, 1, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %0 = tosa.concat %past, %x {axis = 1 : i32} : (tensor<1x4x2xi8>, tensor<1x1x2xi8>) -> tensor<1x5x2xi8>
  %1 = tosa.slice %0, %drop, %size : (tensor<1x5x2xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<1x4x2xi8>
  %2 = tosa.reshape %0, %four : (tensor<1x5x2xi8>, !tosa.shape<4>) -> tensor<1x1x5x2xi8>
  %3 = tosa.slice %2, %second, %one : (tensor<1x1x5x2xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x1x2xi8>
  %4 = tosa.concat %past, %x {axis = 1 : i32} : (tensor<1x4x2xi8>, tensor<1x1x2xi8>) -> tensor<1x5x2xi8>
  %5 = tosa.slice %4, %drop, %size : (tensor<1x5x2xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<1x4x2xi8>
  %6 = tosa.clamp %4 {min_val = -5 : i8, max_val = 5 : i8} : (tensor<1x5x2xi8>) -> tensor<1x5x2xi8>
  return %1, %3, %5, %6 : tensor<1x4x2xi8>, tensor<1x1x1x2xi8>, tensor<1x4x2xi8>, tensor<1x5x2xi8>
}
