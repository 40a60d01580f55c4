// PIPELINE: rescale-to-table
// The first RESCALE reads i32 and the last one what a TRANSPOSE moves; only the one between becomes a table.
// CHECK-LABEL: @main
// CHECK: %[[R:.*]] = tosa.rescale %arg0
// CHECK: %[[M:.*]] = tosa.transpose %[[R]]
// CHECK: %[[T:.*]] = "tosa.const"() <{values = dense<"0x{{.*}}"> : tensor<256xi8>}>
// CHECK: tosa.table %[[R]], %[[T]]
// CHECK: tosa.rescale %[[M]]
func.func @main(%x: tensor<16x16xi32>) -> (tensor<16x16xi8>, tensor<16x16xi8>) {
  %m = "tosa.const"() <{values = dense<1610612736> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<31> : tensor<1xi8>}> : () -> tensor<1xi8>
  %d = "tosa.const"() <{values = dense<54> : tensor<1xi8>}> : () -> tensor<1xi8>
  %i = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %a = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %b = "tosa.const"() <{values = dense<-9> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.rescale %x, %m, %d, %i, %a {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<16x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<16x16xi8>
  %1 = tosa.transpose %0 {perms = array<i32: 1, 0>} : (tensor<16x16xi8>) -> tensor<16x16xi8>
  %2 = tosa.rescale %0, %m, %s, %a, %b {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<16x16xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<16x16xi8>
  %3 = tosa.rescale %1, %m, %s, %a, %b {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<16x16xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<16x16xi8>
  return %2, %3 : tensor<16x16xi8>, tensor<16x16xi8>
}
