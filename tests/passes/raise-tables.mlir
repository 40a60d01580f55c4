// PIPELINE: raise-tables
// A table stands before the reshape of what another op gives it alone; one of an argument stays, and one of a value
// that has another reader.
// CHECK-LABEL: @main
// CHECK: %[[A:.*]] = tosa.clamp %arg0
// CHECK-NEXT: %[[B:.*]] = tosa.table %[[A]]
// CHECK: %[[R:.*]] = tosa.reshape %[[B]]
// CHECK: %[[C:.*]] = tosa.reshape %arg1
// CHECK-NEXT: %[[D:.*]] = tosa.table %[[C]]
// CHECK: %[[E:.*]] = tosa.clamp %arg2
// CHECK: %[[F:.*]] = tosa.reshape %[[E]]
// CHECK-NEXT: %[[G:.*]] = tosa.table %[[F]]
// CHECK: return %[[R]], %[[D]], %[[G]], %[[E]]
func.func @main(%x: tensor<2x8xi8>, %y: tensor<2x8xi8>, %z: tensor<2x8xi8>) -> (tensor<16xi8>, tensor<16xi8>, tensor<16xi8>, tensor<2x8xi8>) {
  %t = "tosa.const"() <{values = dense<[-128, -91, -54, -17, 20, 57, 94, -125, -88, -51, -14, 23, 60, 97, -122, -85, -48, -11, 26, 63, 100, -119, -82, -45, -8, 29, 66, 103, -116, -79, -42, -5, 32, 69, 106, -113, -76, -39, -2, 35, 72, 109, -110, -73, -36, 1, 38, 75, 112, -107, -70, -33, 4, 41, 78, 115, -104, -67, -30, 7, 44, 81, 118, -101, -64, -27, 10, 47, 84, 121, -98, -61, -24, 13, 50, 87, 124, -95, -58, -21, 16, 53, 90, 127, -92, -55, -18, 19, 56, 93, -126, -89, -52, -15, 22, 59, 96, -123, -86, -49, -12, 25, 62, 99, -120, -83, -46, -9, 28, 65, 102, -117, -80, -43, -6, 31, 68, 105, -114, -77, -40, -3, 34, 71, 108, -111, -74, -37, 0, 37, 74, 111, -108, -71, -34, 3, 40, 77, 114, -105, -68, -31, 6, 43, 80, 117, -102, -65, -28, 9, 46, 83, 120, -99, -62, -25, 12, 49, 86, 123, -96, -59, -22, 15, 52, 89, 126, -93, -56, -19, 18, 55, 92, -127, -90, -53, -16, 21, 58, 95, -124, -87, -50, -13, 24, 61, 98, -121, -84, -47, -10, 27, 64, 101, -118, -81, -44, -7, 30, 67, 104, -115, -78, -41, -4, 33, 70, 107, -112, -75, -38, -1, 36, 73, 110, -109, -72, -35, 2, 39, 76, 113, -106, -69, -32, 5, 42, 79, 116, -103, -66, -29, 8, 45, 82, 119, -100, -63, -26, 11, 48, 85, 122, -97, -60, -23, 14, 51, 88, 125, -94, -57, -20, 17, 54, 91]> : tensor<256xi8>}> : () -> tensor<256xi8>
  %d = tosa.const_shape {values = dense<[16]> : tensor<1xindex>} : () -> !tosa.shape<1>
  %c0 = tosa.clamp %x {min_val = -90 : i8, max_val = 100 : i8} : (tensor<2x8xi8>) -> tensor<2x8xi8>
  %r0 = tosa.reshape %c0, %d : (tensor<2x8xi8>, !tosa.shape<1>) -> tensor<16xi8>
  %t0 = tosa.table %r0, %t : (tensor<16xi8>, tensor<256xi8>) -> tensor<16xi8>
  %r1 = tosa.reshape %y, %d : (tensor<2x8xi8>, !tosa.shape<1>) -> tensor<16xi8>
  %t1 = tosa.table %r1, %t : (tensor<16xi8>, tensor<256xi8>) -> tensor<16xi8>
  %c2 = tosa.clamp %z {min_val = -90 : i8, max_val = 100 : i8} : (tensor<2x8xi8>) -> tensor<2x8xi8>
  %r2 = tosa.reshape %c2, %d : (tensor<2x8xi8>, !tosa.shape<1>) -> tensor<16xi8>
  %t2 = tosa.table %r2, %t : (tensor<16xi8>, tensor<256xi8>) -> tensor<16xi8>
  return %t0, %t1, %t2, %c2 : tensor<16xi8>, tensor<16xi8>, tensor<16xi8>, tensor<2x8xi8>
}
