// PIPELINE: fold-identities
// CHECK-LABEL: @main
// CHECK-NOT: tosa.{{clamp|identity|rescale|reshape}}
// CHECK: return %arg0
func.func @main(%x: tensor<2x8xi8>) -> tensor<2x8xi8> {
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %d0 = tosa.const_shape {values = dense<[16]> : tensor<1xindex>} : () -> !tosa.shape<1>
  %d1 = tosa.const_shape {values = dense<[2, 8]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %0 = tosa.clamp %x {min_val = -128 : i8, max_val = 127 : i8} : (tensor<2x8xi8>) -> tensor<2x8xi8>
  %1 = tosa.identity %0 : (tensor<2x8xi8>) -> tensor<2x8xi8>
  %2 = tosa.rescale %1, %m, %s, %z, %z {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x8xi8>
  %3 = tosa.reshape %2, %d0 : (tensor<2x8xi8>, !tosa.shape<1>) -> tensor<16xi8>
  %4 = tosa.reshape %3, %d1 : (tensor<16xi8>, !tosa.shape<2>) -> tensor<2x8xi8>
  return %4 : tensor<2x8xi8>
}
