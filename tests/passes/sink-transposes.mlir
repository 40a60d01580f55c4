// PIPELINE: sink-transposes
// Two transposes meet behind a sum with a constant, a pad and a concat, and cancel.
// CHECK-LABEL: @main
// CHECK-NOT: tosa.transpose
// CHECK: tosa.add %arg0, {{.*}} : (tensor<1x4x5x3xi32>, tensor<1x1x1x3xi32>)
// CHECK: tosa.pad {{.*}} -> tensor<1x6x5x3xi32>
// CHECK: tosa.concat {{.*}}axis = 3 : i32
// CHECK: return
func.func @main(%x: tensor<1x4x5x3xi32>) -> tensor<1x6x5x6xi32> {
  %c = "tosa.const"() <{values = dense<[[[[1]], [[2]], [[3]]]]> : tensor<1x3x1x1xi32>}> : () -> tensor<1x3x1x1xi32>
  %z = "tosa.const"() <{values = dense<9> : tensor<1xi32>}> : () -> tensor<1xi32>
  %p = tosa.const_shape {values = dense<[0, 0, 0, 0, 1, 1, 0, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
  %0 = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x5x3xi32>) -> tensor<1x3x4x5xi32>
  %1 = tosa.add %0, %c : (tensor<1x3x4x5xi32>, tensor<1x3x1x1xi32>) -> tensor<1x3x4x5xi32>
  %2 = tosa.pad %1, %p, %z : (tensor<1x3x4x5xi32>, !tosa.shape<8>, tensor<1xi32>) -> tensor<1x3x6x5xi32>
  %3 = tosa.concat %2, %2 {axis = 1 : i32} : (tensor<1x3x6x5xi32>, tensor<1x3x6x5xi32>) -> tensor<1x6x6x5xi32>
  %4 = tosa.transpose %3 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x6x6x5xi32>) -> tensor<1x6x5x6xi32>
  return %4 : tensor<1x6x5x6xi32>
}
