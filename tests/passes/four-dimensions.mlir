// PIPELINE: four-dimensions
// What an image is made of has four dimensions, as the image has; what a MATMUL makes keeps three up to its RESCALE.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<1x1x6x8xi8>
// CHECK: tosa.clamp {{.*}} (tensor<1x1x6x8xi8>) -> tensor<1x1x6x8xi8>
// CHECK-NOT: tosa.reshape
// CHECK: tosa.max_pool2d {{.*}} (tensor<1x1x6x8xi8>)
// CHECK-NOT: tosa.reshape
// CHECK: tosa.reduce_max {{.*}} {axis = 3 : i32} : (tensor<1x1x6x8xi8>) -> tensor<1x1x6x1xi8>
// CHECK: tosa.reshape {{.*}} -> tensor<1x6x1xi8>
// CHECK: tosa.matmul
// CHECK-NOT: tosa.reshape
// CHECK: tosa.rescale {{.*}} -> tensor<1x6x6xi8>
// CHECK: return
func.func @main(%x: tensor<1x6x8xi8>, %y: tensor<1x8x6xi8>) -> (tensor<1x6x1xi8>, tensor<1x6x6xi8>) {
  %image = tosa.const_shape {values = dense<[1, 1, 6, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %tokens = tosa.const_shape {values = dense<[1, 6, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %multiplier = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<38> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %0 = tosa.clamp %x {max_val = 9 : i8, min_val = -9 : i8} : (tensor<1x6x8xi8>) -> tensor<1x6x8xi8>
  %1 = tosa.reshape %0, %image : (tensor<1x6x8xi8>, !tosa.shape<4>) -> tensor<1x1x6x8xi8>
  %2 = tosa.max_pool2d %1 {kernel = array<i64: 1, 3>, pad = array<i64: 0, 0, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x1x6x8xi8>) -> tensor<1x1x6x8xi8>
  %3 = tosa.reshape %2, %tokens : (tensor<1x1x6x8xi8>, !tosa.shape<3>) -> tensor<1x6x8xi8>
  %4 = tosa.reduce_max %3 {axis = 2 : i32} : (tensor<1x6x8xi8>) -> tensor<1x6x1xi8>
  %5 = tosa.matmul %x, %y, %zero, %zero : (tensor<1x6x8xi8>, tensor<1x8x6xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x6x6xi32>
  %6 = tosa.rescale %5, %multiplier, %shift, %none, %zero {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x6x6xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x6x6xi8>
  return %4, %6 : tensor<1x6x1xi8>, tensor<1x6x6xi8>
}
