// PIPELINE: one-batch
// Known indices count the rows of all batches; computed ones are added to, but not those of a SCATTER, which may name no row.
// CHECK-LABEL: @main
// CHECK: %[[V:.*]] = tosa.reshape %arg0, {{.*}} -> tensor<1x6x4xi8>
// CHECK: tosa.gather %[[V]], {{.*}} -> tensor<1x4x4xi8>
// CHECK: tosa.add %{{.*}}, %{{.*}} : (tensor<2x2xi32>, tensor<2x1xi32>) -> tensor<2x2xi32>
// CHECK: tosa.gather {{.*}} -> tensor<1x4x4xi8>
// CHECK: tosa.scatter {{.*}} -> tensor<1x6x4xi8>
// CHECK: tosa.scatter {{.*}} -> tensor<2x3x4xi8>
// CHECK: tosa.gather {{.*}} -> tensor<1x2x4xi8>
// CHECK: return
func.func @main(%v: tensor<2x3x4xi8>, %n: tensor<2x2x3xi8>, %x: tensor<2x2x4xi8>, %one: tensor<1x3x4xi8>, %m: tensor<2x1x3xi8>, %y: tensor<2x1x4xi8>) -> (tensor<2x2x4xi8>, tensor<2x2x4xi8>, tensor<2x3x4xi8>, tensor<2x3x4xi8>, tensor<1x2x4xi8>) {
  %i = tosa.argmax %n {axis = 2 : i32, nan_mode = PROPAGATE} : (tensor<2x2x3xi8>) -> tensor<2x2xi32>
  %j = tosa.argmax %m {axis = 2 : i32, nan_mode = PROPAGATE} : (tensor<2x1x3xi8>) -> tensor<2x1xi32>
  %k = "tosa.const"() <{values = dense<[[2, 0], [1, 2]]> : tensor<2x2xi32>}> : () -> tensor<2x2xi32>
  %0 = tosa.gather %v, %k : (tensor<2x3x4xi8>, tensor<2x2xi32>) -> tensor<2x2x4xi8>
  %1 = tosa.gather %v, %i : (tensor<2x3x4xi8>, tensor<2x2xi32>) -> tensor<2x2x4xi8>
  %2 = tosa.scatter %v, %k, %x : (tensor<2x3x4xi8>, tensor<2x2xi32>, tensor<2x2x4xi8>) -> tensor<2x3x4xi8>
  %3 = tosa.scatter %v, %j, %y : (tensor<2x3x4xi8>, tensor<2x1xi32>, tensor<2x1x4xi8>) -> tensor<2x3x4xi8>
  %l = "tosa.const"() <{values = dense<[[2, 0]]> : tensor<1x2xi32>}> : () -> tensor<1x2xi32>
  %4 = tosa.gather %one, %l : (tensor<1x3x4xi8>, tensor<1x2xi32>) -> tensor<1x2x4xi8>
  return %0, %1, %2, %3, %4 : tensor<2x2x4xi8>, tensor<2x2x4xi8>, tensor<2x3x4xi8>, tensor<2x3x4xi8>, tensor<1x2x4xi8>
}
