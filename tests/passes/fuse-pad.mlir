// PIPELINE: fuse-pad
// The pad holds the convolution's zero point 3, and the pool's least value -128.
// CHECK-LABEL: @main
// CHECK-NOT: tosa.pad
// CHECK: tosa.conv2d %arg0, {{.*}}pad = array<i64: 1, 0, 2, 1>
// CHECK: tosa.max_pool2d {{.*}}pad = array<i64: 1, 1, 0, 1>
// CHECK: tosa.pad
func.func @main(%x: tensor<1x4x4x2xi8>) -> (tensor<1x4x6x3xi32>, tensor<1x4x3x2xi8>, tensor<1x6x6x2xi8>) {
  %zp = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %least = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %w = "tosa.const"() <{values = dense<5> : tensor<3x2x2x2xi8>}> : () -> tensor<3x2x2x2xi8>
  %b = "tosa.const"() <{values = dense<[1, 2, 3]> : tensor<3xi32>}> : () -> tensor<3xi32>
  %p0 = tosa.const_shape {values = dense<[0, 0, 1, 0, 1, 1, 0, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
  %p1 = tosa.const_shape {values = dense<[0, 0, 1, 1, 0, 1, 0, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
  %p2 = tosa.const_shape {values = dense<[0, 0, 1, 1, 1, 1, 0, 0]> : tensor<8xindex>} : () -> !tosa.shape<8>
  %x0 = tosa.pad %x, %p0, %zp : (tensor<1x4x4x2xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x5x6x2xi8>
  %0 = tosa.conv2d %x0, %w, %b, %zp, %zero {acc_type = i32, pad = array<i64: 0, 0, 1, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<1x5x6x2xi8>, tensor<3x2x2x2xi8>, tensor<3xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x6x3xi32>
  %x1 = tosa.pad %x, %p1, %least : (tensor<1x4x4x2xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x6x5x2xi8>
  %1 = tosa.max_pool2d %x1 {kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>} : (tensor<1x6x5x2xi8>) -> tensor<1x4x3x2xi8>
  %x2 = tosa.pad %x, %p2, %zero : (tensor<1x4x4x2xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x6x6x2xi8>
  return %0, %1, %x2 : tensor<1x4x6x3xi32>, tensor<1x4x3x2xi8>, tensor<1x6x6x2xi8>
}
