// PIPELINE: quantize-boundary
// CHECK: @main(%arg0: tensor<4xi8> {tosaic.scale = 5.000000e-01 : f64, tosaic.zero_point = 3 : i64}, %arg1: tensor<4xi1>)
// CHECK-SAME: -> (tensor<4xi8> {tosaic.scale = 5.000000e-01 : f64, tosaic.zero_point = 3 : i64}, tensor<4xi1>)
!x = !quant.uniform<i8:f32, 0.5:3>
func.func @main(%a: tensor<4xf32>, %c: tensor<4xi1>) -> (tensor<4xf32>, tensor<4xi1>) {
  %0 = quant.qcast %a : tensor<4xf32> to tensor<4x!x>
  %1 = quant.dcast %0 : tensor<4x!x> to tensor<4xf32>
  return %1, %c : tensor<4xf32>, tensor<4xi1>
}
