// PIPELINE: selects-to-scatters
// CHECK-LABEL: @main
// CHECK: tosa.maximum
// CHECK: %[[AT:.*]] = tosa.minimum
// CHECK: %[[THERE:.*]] = tosa.equal %[[AT]]
// CHECK: %[[PLACES:.*]] = tosa.tile %[[AT]]
// CHECK: %[[BEFORE:.*]] = tosa.gather %[[X:.*]], %[[PLACES]] : (tensor<2x8x128xi8>, tensor<2x1xi32>) -> tensor<2x1x128xi8>
// CHECK: %[[ROW:.*]] = tosa.select {{.*}}, {{.*}}, %[[BEFORE]] : (tensor<1x1x1xi1>, tensor<2x1x128xi8>, tensor<2x1x128xi8>)
// CHECK: tosa.scatter %[[X]], %[[PLACES]], %[[ROW]]
// CHECK-NOT: tosa.scatter
// Two places are no place, other numbers do not count places, and few elements are selected as fast.
func.func @main(%x: tensor<1x2x8x128xi8>, %row: tensor<1x2x1x128xi8>, %at: tensor<1xi32>, %two: tensor<1x2x1x1xi32>) -> (tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>) {
  %numbers = "tosa.const"() <{values = dense<[0, 1, 2, 3, 4, 5, 6, 7]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %odd = "tosa.const"() <{values = dense<[0, 1, 2, 3, 4, 5, 7, 6]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %flags = tosa.const_shape {values = dense<[1, 1, 8, 1]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %one = tosa.const_shape {values = dense<1> : tensor<4xindex>} : () -> !tosa.shape<4>
  %0 = tosa.equal %numbers, %at : (tensor<8xi32>, tensor<1xi32>) -> tensor<8xi1>
  %1 = tosa.reshape %0, %flags : (tensor<8xi1>, !tosa.shape<4>) -> tensor<1x1x8x1xi1>
  %2 = tosa.select %1, %row, %x : (tensor<1x1x8x1xi1>, tensor<1x2x1x128xi8>, tensor<1x2x8x128xi8>) -> tensor<1x2x8x128xi8>
  %3 = tosa.reshape %numbers, %flags : (tensor<8xi32>, !tosa.shape<4>) -> tensor<1x1x8x1xi32>
  %4 = tosa.equal %two, %3 : (tensor<1x2x1x1xi32>, tensor<1x1x8x1xi32>) -> tensor<1x2x8x1xi1>
  %5 = tosa.select %4, %row, %x : (tensor<1x2x8x1xi1>, tensor<1x2x1x128xi8>, tensor<1x2x8x128xi8>) -> tensor<1x2x8x128xi8>
  %6 = tosa.equal %odd, %at : (tensor<8xi32>, tensor<1xi32>) -> tensor<8xi1>
  %7 = tosa.reshape %6, %flags : (tensor<8xi1>, !tosa.shape<4>) -> tensor<1x1x8x1xi1>
  %8 = tosa.select %7, %row, %x : (tensor<1x1x8x1xi1>, tensor<1x2x1x128xi8>, tensor<1x2x8x128xi8>) -> tensor<1x2x8x128xi8>
  %wide = tosa.const_shape {values = dense<[1, 16, 8, 16]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %narrow = tosa.const_shape {values = dense<[1, 16, 1, 16]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %back = tosa.const_shape {values = dense<[1, 2, 8, 128]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %9 = tosa.reshape %x, %wide : (tensor<1x2x8x128xi8>, !tosa.shape<4>) -> tensor<1x16x8x16xi8>
  %10 = tosa.reshape %row, %narrow : (tensor<1x2x1x128xi8>, !tosa.shape<4>) -> tensor<1x16x1x16xi8>
  %11 = tosa.select %1, %10, %9 : (tensor<1x1x8x1xi1>, tensor<1x16x1x16xi8>, tensor<1x16x8x16xi8>) -> tensor<1x16x8x16xi8>
  %12 = tosa.reshape %11, %back : (tensor<1x16x8x16xi8>, !tosa.shape<4>) -> tensor<1x2x8x128xi8>
  return %2, %5, %8, %12 : tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>, tensor<1x2x8x128xi8>
}
