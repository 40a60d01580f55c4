// PIPELINE: masks-to-selects
// Scores with the format of their sum with a mask are chosen as they are; others are computed with the mask's other
// number. A mask that some score outweighs stays, and so does one that is not chosen among two numbers. A choice stands
// before a reshape that keeps rows, if all rows have one condition, or all matrices of the source those of a matrix of
// the result in turn; not where conditions are those of each matrix.
// CHECK-LABEL: @main
// CHECK: %[[LEAST:.*]] = "tosa.const"() <{values = dense<-128> : tensor<1x1xi8>}>
// CHECK: %[[KEPT:.*]] = tosa.reshape %arg1
// CHECK: %[[A:.*]] = tosa.select %[[KEPT]], %arg0, %[[LEAST]]
// CHECK: tosa.add
// CHECK: %[[SUM:.*]] = tosa.rescale
// CHECK: %[[B:.*]] = tosa.select %{{.*}}, %{{.*}}, %[[SUM]]
// CHECK: tosa.add
// CHECK-NEXT: %[[C:.*]] = tosa.rescale
// CHECK: tosa.add
// CHECK-NEXT: %[[D:.*]] = tosa.rescale
// CHECK: %[[E:.*]] = tosa.select %{{.*}}, %{{.*}}, %{{.*}} : (tensor<1x1x4xi1>, tensor<1x2x4xi8>, tensor<1x1x1xi8>)
// CHECK: %[[F:.*]] = tosa.reshape %[[E]]
// CHECK: tosa.select %{{.*}}, %{{.*}}, %{{.*}} : (tensor<1x2x4xi1>, tensor<1x2x4xi8>, tensor<1x1x1xi8>)
// CHECK: %[[G:.*]] = tosa.reshape
// CHECK: %[[ALL:.*]] = tosa.tile %{{.*}}, %{{.*}} : (tensor<1x2x4xi1>, !tosa.shape<3>) -> tensor<1x4x4xi1>
// CHECK: tosa.select %[[ALL]], %{{.*}}, %{{.*}} : (tensor<1x4x4xi1>, tensor<1x4x4xi8>, tensor<1x1x1xi8>)
// CHECK: %[[H:.*]] = tosa.reshape
// CHECK: %[[I:.*]] = tosa.select %{{.*}}, %{{.*}}, %{{.*}} : (tensor<2x1x4xi1>, tensor<2x2x4xi8>, tensor<1x1x1xi8>)
// CHECK: return %[[A]], %[[B]], %[[C]], %[[D]], %[[F]], %[[G]], %[[H]], %[[I]]
func.func @main(%x: tensor<2x4xi8>, %kept: tensor<4xi1>, %m: tensor<1x4xi8>, %each: tensor<2x4xi1>, %w: tensor<1x2x4xi8>, %heads: tensor<1x4x4xi8>) -> (tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x2x4xi8>, tensor<2x2x4xi8>) {
  %one = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s20 = "tosa.const"() <{values = dense<20> : tensor<1xi8>}> : () -> tensor<1xi8>
  %s40 = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
  %s41 = "tosa.const"() <{values = dense<41> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z5 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %zb = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %high = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %low = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8>
  %s14 = "tosa.const"() <{values = dense<14> : tensor<1xi8>}> : () -> tensor<1xi8>
  %row = tosa.const_shape {values = dense<[1, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %scores = tosa.rescale %x, %one, %s20, %z5, %z {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
  %m0 = tosa.select %kept, %high, %low : (tensor<4xi1>, tensor<1xi8>, tensor<1xi8>) -> tensor<4xi8>
  %m1 = tosa.reshape %m0, %row : (tensor<4xi8>, !tosa.shape<2>) -> tensor<1x4xi8>
  %m2 = tosa.rescale %m1, %one, %s14, %zb, %z {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x4xi32>
  %t0 = tosa.add %scores, %m2 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
  %a = tosa.rescale %t0, %one, %s40, %z, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x4xi8>
  %n0 = tosa.select %kept, %low, %high : (tensor<4xi1>, tensor<1xi8>, tensor<1xi8>) -> tensor<4xi8>
  %n1 = tosa.reshape %n0, %row : (tensor<4xi8>, !tosa.shape<2>) -> tensor<1x4xi8>
  %n2 = tosa.rescale %n1, %one, %s14, %zb, %z {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x4xi32>
  %t1 = tosa.add %n2, %scores : (tensor<1x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  %b = tosa.rescale %t1, %one, %s41, %z, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x4xi8>
  %k2 = tosa.rescale %m1, %one, %s20, %zb, %z {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x4xi32>
  %t2 = tosa.add %scores, %k2 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
  %c = tosa.rescale %t2, %one, %s40, %z, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x4xi8>
  %l2 = tosa.rescale %m, %one, %s14, %zb, %z {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x4xi32>
  %t3 = tosa.add %scores, %l2 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
  %d = tosa.rescale %t3, %one, %s40, %z, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x4xi8>
  %s31 = "tosa.const"() <{values = dense<31> : tensor<1xi8>}> : () -> tensor<1xi8>
  %least = "tosa.const"() <{values = dense<-128> : tensor<1x1xi8>}> : () -> tensor<1x1xi8>
  %two = tosa.const_shape {values = dense<[2, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %k1 = tosa.reshape %kept, %row : (tensor<4xi1>, !tosa.shape<2>) -> tensor<1x4xi1>
  %w0 = tosa.rescale %w, %one, %s31, %zb, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x4xi8>
  %w1 = tosa.reshape %w0, %two : (tensor<1x2x4xi8>, !tosa.shape<2>) -> tensor<2x4xi8>
  %e = tosa.select %k1, %w1, %least : (tensor<1x4xi1>, tensor<2x4xi8>, tensor<1x1xi8>) -> tensor<2x4xi8>
  %v0 = tosa.rescale %w, %one, %s31, %z5, %zb {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x4xi8>
  %v1 = tosa.reshape %v0, %two : (tensor<1x2x4xi8>, !tosa.shape<2>) -> tensor<2x4xi8>
  %g = tosa.select %each, %v1, %least : (tensor<2x4xi1>, tensor<2x4xi8>, tensor<1x1xi8>) -> tensor<2x4xi8>
  %l1 = "tosa.const"() <{values = dense<-128> : tensor<1x1x1xi8>}> : () -> tensor<1x1x1xi8>
  %s224 = tosa.const_shape {values = dense<[2, 2, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %s124 = tosa.const_shape {values = dense<[1, 2, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %s214 = tosa.const_shape {values = dense<[2, 1, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %h0 = tosa.rescale %heads, %one, %s31, %zb, %z5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi8>
  %h1 = tosa.reshape %h0, %s224 : (tensor<1x4x4xi8>, !tosa.shape<3>) -> tensor<2x2x4xi8>
  %h2 = tosa.reshape %each, %s124 : (tensor<2x4xi1>, !tosa.shape<3>) -> tensor<1x2x4xi1>
  %h = tosa.select %h2, %h1, %l1 : (tensor<1x2x4xi1>, tensor<2x2x4xi8>, tensor<1x1x1xi8>) -> tensor<2x2x4xi8>
  %i0 = tosa.rescale %heads, %one, %s31, %z5, %zb {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi8>
  %i1 = tosa.reshape %i0, %s224 : (tensor<1x4x4xi8>, !tosa.shape<3>) -> tensor<2x2x4xi8>
  %i2 = tosa.reshape %each, %s214 : (tensor<2x4xi1>, !tosa.shape<3>) -> tensor<2x1x4xi1>
  %i = tosa.select %i2, %i1, %l1 : (tensor<2x1x4xi1>, tensor<2x2x4xi8>, tensor<1x1x1xi8>) -> tensor<2x2x4xi8>
  return %a, %b, %c, %d, %e, %g, %h, %i : tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x2x4xi8>, tensor<2x2x4xi8>
}
