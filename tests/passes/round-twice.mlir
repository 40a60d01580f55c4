// PIPELINE: round-twice
// The first rounds once by 31 and once by 6 more; of the second, whose channels shift by 31 and 38, only one rounds twice.
// CHECK-LABEL: @main
// CHECK: %[[Y:.*]] = tosa.rescale %arg0, {{.*}} rounding_mode = SINGLE_ROUND{{.*}} -> tensor<64x2xi32>
// CHECK: %[[S:.*]] = tosa.arithmetic_right_shift %[[Y]]
// CHECK: %[[A:.*]] = tosa.add %[[Y]], %[[S]]
// CHECK: tosa.rescale %[[A]], {{.*}} rounding_mode = SINGLE_ROUND{{.*}} -> tensor<64x2xi8>
// CHECK: tosa.bitwise_and
// CHECK-NOT: DOUBLE_ROUND
func.func @main(%x: tensor<64x2xi16>) -> (tensor<64x2xi8>, tensor<64x2xi16>) {
  %m = "tosa.const"() <{values = dense<1610612737> : tensor<1xi32>}> : () -> tensor<1xi32>
  %d = "tosa.const"() <{values = dense<37> : tensor<1xi8>}> : () -> tensor<1xi8>
  %n = "tosa.const"() <{values = dense<[1073741824, 1610612736]> : tensor<2xi32>}> : () -> tensor<2xi32>
  %e = "tosa.const"() <{values = dense<[31, 38]> : tensor<2xi8>}> : () -> tensor<2xi8>
  %i = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
  %a = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.rescale %x, %m, %d, %i, %a {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = DOUBLE_ROUND, scale32 = true} : (tensor<64x2xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi8>) -> tensor<64x2xi8>
  %1 = tosa.rescale %x, %n, %e, %i, %i {input_unsigned = false, output_unsigned = false, per_channel = true, rounding_mode = DOUBLE_ROUND, scale32 = true} : (tensor<64x2xi16>, tensor<2xi32>, tensor<2xi8>, tensor<1xi16>, tensor<1xi16>) -> tensor<64x2xi16>
  return %0, %1 : tensor<64x2xi8>, tensor<64x2xi16>
}
