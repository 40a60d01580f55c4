// PIPELINE: rows-at-once
// The product of a row that is known before the loop is taken of all rows, once; that of the state stays in its iteration.
// CHECK-LABEL: @main
// CHECK: tosa.reshape %arg0, {{.*}} -> tensor<1x1x3x2xi8>
// CHECK: tosa.conv2d {{.*}} -> tensor<1x1x3x4xi32>
// CHECK: tosa.rescale {{.*}} -> tensor<1x1x3x4xi32>
// CHECK: tosa.while_loop
// CHECK: tosa.gather {{.*}} -> tensor<1x1x4xi32>
// CHECK: tosa.conv2d {{.*}} -> tensor<1x1x1x4xi32>
// CHECK-NOT: tosa.conv2d
// CHECK: return
func.func @main(%x: tensor<1x3x2xi8>) -> tensor<1x3x4xi8> {
  %none = "tosa.const"() <{values = dense<0> : tensor<1x3x4xi8>}> : () -> tensor<1x3x4xi8>
  %first = "tosa.const"() <{values = dense<0> : tensor<1x1xi32>}> : () -> tensor<1x1xi32>
  %state = "tosa.const"() <{values = dense<0> : tensor<1x1x1x4xi8>}> : () -> tensor<1x1x1x4xi8>
  %0:3 = tosa.while_loop (%i = %first, %r = %none, %s = %state) : (tensor<1x1xi32>, tensor<1x3x4xi8>, tensor<1x1x1x4xi8>) -> (tensor<1x1xi32>, tensor<1x3x4xi8>, tensor<1x1x1x4xi8>) {
    %iterations = "tosa.const"() <{values = dense<3> : tensor<1x1xi32>}> : () -> tensor<1x1xi32>
    %more = tosa.greater %iterations, %i : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x1xi1>
    %scalar = tosa.const_shape {values = dense<> : tensor<0xindex>} : () -> !tosa.shape<0>
    %flag = tosa.reshape %more, %scalar : (tensor<1x1xi1>, !tosa.shape<0>) -> tensor<i1>
    tosa.yield %flag : tensor<i1>
  } do {
  ^bb0(%i: tensor<1x1xi32>, %r: tensor<1x3x4xi8>, %s: tensor<1x1x1x4xi8>):
    %u = "tosa.const"() <{values = dense<[[[[1, -2]]], [[[3, 4]]], [[[-5, 6]]], [[[7, 8]]]]> : tensor<4x1x1x2xi8>}> : () -> tensor<4x1x1x2xi8>
    %w = "tosa.const"() <{values = dense<[[[[9, 8, -7, 6]]], [[[5, 4, 3, -2]]], [[[1, 2, -3, 4]]], [[[-5, 6, 7, 8]]]]> : tensor<4x1x1x4xi8>}> : () -> tensor<4x1x1x4xi8>
    %bias = "tosa.const"() <{values = dense<[1, 2, 3, 4]> : tensor<4xi32>}> : () -> tensor<4xi32>
    %z8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %z32 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %double = "tosa.const"() <{values = dense<29> : tensor<1xi8>}> : () -> tensor<1xi8>
    %small = "tosa.const"() <{values = dense<35> : tensor<1xi8>}> : () -> tensor<1xi8>
    %row_dims = tosa.const_shape {values = dense<[1, 1, 1, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %out_dims = tosa.const_shape {values = dense<[1, 1, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %one = "tosa.const"() <{values = dense<1> : tensor<1x1xi32>}> : () -> tensor<1x1xi32>
    %row = tosa.gather %x, %i : (tensor<1x3x2xi8>, tensor<1x1xi32>) -> tensor<1x1x2xi8>
    %in = tosa.reshape %row, %row_dims : (tensor<1x1x2xi8>, !tosa.shape<4>) -> tensor<1x1x1x2xi8>
    %fresh = tosa.conv2d %in, %u, %bias, %z8, %z8 {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x1x1x2xi8>, tensor<4x1x1x2xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x4xi32>
    %scaled = tosa.rescale %fresh, %m, %double, %z32, %z32 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi32>) -> tensor<1x1x1x4xi32>
    %again = tosa.conv2d %s, %w, %bias, %z8, %z8 {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x1x1x4xi8>, tensor<4x1x1x4xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x4xi32>
    %sum = tosa.add %scaled, %again : (tensor<1x1x1x4xi32>, tensor<1x1x1x4xi32>) -> tensor<1x1x1x4xi32>
    %next = tosa.rescale %sum, %m, %small, %z32, %z8 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x1x1x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x1x4xi8>
    %out = tosa.reshape %next, %out_dims : (tensor<1x1x1x4xi8>, !tosa.shape<3>) -> tensor<1x1x4xi8>
    %rows = tosa.scatter %r, %i, %out : (tensor<1x3x4xi8>, tensor<1x1xi32>, tensor<1x1x4xi8>) -> tensor<1x3x4xi8>
    %following = tosa.add %i, %one : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x1xi32>
    tosa.yield %following, %rows, %next : tensor<1x1xi32>, tensor<1x3x4xi8>, tensor<1x1x1x4xi8>
  }
  return %0#1 : tensor<1x3x4xi8>
}
