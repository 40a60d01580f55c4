// PIPELINE: cheapest-layers{target=ethos-u85-256}
// Weights are the rows of a MATMUL, as scales from DRAM take longer than they do; all multipliers have one shift.
// CHECK-LABEL: @main
// CHECK: %[[X:.*]] = tosa.maximum {{.*}} -> tensor<1x1x2x64xi32>
// CHECK: tosa.matmul {{.*}} : (tensor<2x86x64xi8>, tensor<2x64x1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x86x1xi32>
// CHECK: %[[S:.*]] = "tosa.const"() <{values = dense<31> : tensor<1xi8>}>
// CHECK: tosa.mul {{.*}}, %[[S]] : (tensor<1x1x1x172xi32>, tensor<1x1x1x172xi32>, tensor<1xi8>)
// CHECK-NOT: tosa.conv2d
// CHECK: return
func.func @main(%x: tensor<1x1x1x64xi8>) -> tensor<1x1x1x172xi8> {
  %w = "tosa.const"() <{values = dense<3> : tensor<172x1x1x64xi8>}> : () -> tensor<172x1x1x64xi8>
  %b = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %zp = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %none = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %m = "tosa.const"() <{values = dense<3000001> : tensor<172xi32>}> : () -> tensor<172xi32>
  %s = "tosa.const"() <{values = dense<31> : tensor<172xi8>}> : () -> tensor<172xi8>
  %0 = tosa.conv2d %x, %w, %b, %zp, %zp {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x1x1x64xi8>, tensor<172x1x1x64xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x172xi32>
  %1 = tosa.rescale %0, %m, %s, %none, %zp {input_unsigned = false, output_unsigned = false, per_channel = true, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x172xi32>, tensor<172xi32>, tensor<172xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x1x172xi8>
  return %1 : tensor<1x1x1x172xi8>
}
