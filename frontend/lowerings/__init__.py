"""ATen to TOSA, a file for each family of ops; importing this package registers them all."""

from tosaic.frontend.lowerings import convolution, elementwise, matrix, normalization, pooling, shape

FAMILIES = (convolution, elementwise, matrix, normalization, pooling, shape)
