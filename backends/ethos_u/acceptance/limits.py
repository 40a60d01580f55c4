"""What Ethos-U, or Vela's lowering to it, cannot do. The first line of each docstring is its entry in the listing."""

from __future__ import annotations

import math

import numpy as np

from tosaic.backends.ethos_u.acceptance.queries import constant_operand, data_type, int_list
from tosaic.support.attributes import bool_of, enum_of, int_of, ints_of
from tosaic.support.mlir import constant_value, element_type, ir, shape_of
from tosaic.support.values import tensor_operands, users


def static_shapes(op: ir.Operation, generation: str) -> str | None:
    """Static shapes of at most six axes, none of them empty."""
    for value in (*tensor_operands(op), *op.results):
        shape = ir.RankedTensorType(value.type)
        if not shape.has_static_shape or shape.rank > 6 or 0 in shape.shape:
            return f"static shapes of at most 6 axes, got {shape}"
    return None


def constant_weights(op: ir.Operation, generation: str) -> str | None:
    """Constant weights and bias."""
    if any(constant_operand(op, index) is None for index in (1, 2)):
        return "constant weights and bias, got computed ones"
    return None


def constant_weights_small(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: constant weights and bias."""
    return None if generation == "u85" else constant_weights(op, generation)


def constant_bias(op: ir.Operation, generation: str) -> str | None:
    """Constant bias."""
    return "a constant bias, got a computed one" if constant_operand(op, 2) is None else None


def padding_below_kernel(op: ir.Operation, generation: str) -> str | None:
    """Padding smaller than the kernel with its dilation."""
    pad = ints_of(op, "pad")
    if op.name in ("tosa.max_pool2d", "tosa.avg_pool2d"):
        extent = ints_of(op, "kernel")
    else:
        shape = shape_of(op.operands[1])
        taps = shape[:2] if op.name == "tosa.depthwise_conv2d" else shape[1:-1]
        extent = tuple((k - 1) * d + 1 for k, d in zip(taps, ints_of(op, "dilation"), strict=True))
    for axis, size in enumerate(extent):
        if max(pad[2 * axis], pad[2 * axis + 1]) >= size:
            return f"padding smaller than the kernel's {size}, got {max(pad[2 * axis], pad[2 * axis + 1])}"
    return None


def weight_type(op: ir.Operation, generation: str) -> str | None:
    """Weights i8, or i4 with i8 data."""
    found = str(element_type(op.operands[1]))
    if found == "i8" or (found == "i4" and data_type(op) == "i8"):
        return None
    return f"weights of i8, or of i4 with i8 data, got {found}"


def weight_sum(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: the absolute weights of an output channel sum to 127 * 65536 at most."""
    shape = shape_of(op.operands[1])
    reduced = math.prod(shape) // (shape[2] * shape[3] if op.name == "tosa.depthwise_conv2d" else shape[0])
    if generation == "u85" or reduced <= 127 * 65536 // 128:
        return None
    weights = constant_value(op.operands[1])
    if weights is None or str(element_type(op.operands[1])) == "i4":
        return None
    axes = (0, 1) if op.name == "tosa.depthwise_conv2d" else tuple(range(1, weights.ndim))
    largest = int(np.abs(weights.astype(np.int64)).sum(axes).max())
    return None if largest <= 127 * 65536 else f"absolute weights summing to {127 * 65536} at most, got {largest}"


def wide_accumulator(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: i16 data only where a RESCALE is the one user of the result."""
    if generation == "u85" or data_type(op) != "i16":
        return None
    readers = users(op.results[0])
    if [reader.name for reader in readers] != ["tosa.rescale"]:
        return "i16 data only with a RESCALE as the result's one user"
    refusal = rescale_form(readers[0], generation)
    return f"its RESCALE with the NPU, which needs {refusal}" if refusal else None


def depth_of_one(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: a kernel one deep."""
    depth = shape_of(op.operands[1])[1]
    return f"a kernel depth of 1, got {depth}" if generation != "u85" and depth != 1 else None


def transpose_stride(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: equal strides of 1 or 2, (1, 2) on one row, (2, 1) on one column."""
    stride = ints_of(op, "stride")
    if generation == "u85" or stride in ((1, 1), (2, 2)):
        return None
    _, ih, iw, _ = shape_of(op.operands[0])
    _, kh, kw, _ = shape_of(op.operands[1])
    if (stride == (1, 2) and ih == kh == 1) or (stride == (2, 1) and iw == kw == 1):
        return None
    return f"a stride of (1, 1) or (2, 2), got ({stride[0]}, {stride[1]})"


def depthwise_stride(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: stride <= 3."""
    stride = ints_of(op, "stride")
    return f"stride <= 3, got {max(stride)}" if generation != "u85" and max(stride) > 3 else None


def padded_average(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: with padding, a kernel of at most 8x8."""
    kernel = ints_of(op, "kernel")
    if generation != "u85" and max(kernel) > 8 and any(ints_of(op, "pad")):
        return f"a kernel of at most 8x8 where there is padding, got {kernel[0]}x{kernel[1]}"
    return None


def one_batch(op: ir.Operation, generation: str) -> str | None:
    """One batch: Vela takes the indices of the first one for all."""
    batches = shape_of(op.operands[0])[0]
    return None if batches == 1 else f"one batch, got {batches}"


def argmax_axis(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: batch 1, and the last axis of at most 127; U85: one of the last three axes."""
    shape = shape_of(op.operands[0])
    axis = int_of(op, "axis")
    if generation == "u85":
        return None if axis >= len(shape) - 3 else f"one of the last three axes, got axis {axis} of {len(shape)}"
    if axis != len(shape) - 1:
        return f"the last axis, got axis {axis} of {len(shape)}"
    if shape[axis] > 127:
        return f"at most 127 channels, got {shape[axis]}"
    if math.prod(shape[:-3]) != 1:
        return f"batch 1, got {math.prod(shape[:-3])}"
    return None


def reversed_axis(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: the height or width axis; U85: or the channels."""
    rank = len(shape_of(op.operands[0]))
    axis = int_of(op, "axis") - rank
    allowed = (-3, -2, -1) if generation == "u85" else (-3, -2)
    return None if axis in allowed else f"the axis counted from the back in {allowed}, got {axis}"


def rescale_form(op: ir.Operation, generation: str) -> str | None:
    """SINGLE_ROUND or DOUBLE_ROUND, constant multipliers, unsigned i8 and i16 only.

    Vela executes INEXACT_ROUND as SINGLE_ROUND, which is not what the reference model computes.
    """
    if enum_of(op, "rounding_mode") == "INEXACT_ROUND":
        return "SINGLE_ROUND or DOUBLE_ROUND, got INEXACT_ROUND"
    if any(constant_operand(op, index) is None for index in (1, 2, 3, 4)):
        return "constant multipliers, shifts and zero points, got computed ones"
    signs = ("input_unsigned", "output_unsigned")
    unsigned = any(bool_of(op, name) for name in signs)
    types = {str(element_type(op.operands[0])), str(element_type(op.results[0]))}
    if unsigned and not types <= {"i8", "i16"}:
        return f"i8 and i16 where a side is unsigned, got {' and '.join(sorted(types))}"
    return None


def result_type(op: ir.Operation, generation: str) -> str | None:
    """A result of i8, i16 or i32."""
    found = str(element_type(op.results[0]))
    return None if found in ("i8", "i16", "i32") else f"a result of i8, i16 or i32, got {found}"


def widening_cast(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: widening only.

    Vela accepts a narrowing CAST there, and clamps where TOSA truncates.
    """
    order = ["i1", "i8", "i16", "i32"]
    source, target = (str(element_type(v)) for v in (op.operands[0], op.results[0]))
    if target not in order:
        return f"an integer result, got {target}"
    if generation != "u85" and (target == "i1" or order.index(target) <= order.index(source)):
        return f"a widening CAST, got {source} to {target}"
    return None


def resize_form(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: nearest neighbor by 2, 4 or 8 with aligned corners or half-pixel centers.

    These are the forms that Vela turns into pools over an input that the NPU repeats twofold.
    """
    scale, offset, border = (int_list(constant_operand(op, index)) for index in (1, 2, 3))
    if scale is None or offset is None or border is None:
        return "constant scale, offset and border, got computed ones"
    if generation == "u85":
        return None
    if enum_of(op, "mode") == "BILINEAR":
        return "NEAREST_NEIGHBOR, got BILINEAR"
    if math.prod(shape_of(op.operands[0])[1:3]) == 1:
        return "an input larger than 1x1"
    aligned = [[n, 1, n, 1] for n in (2, 4, 8)]
    centered = [[2 * n, 2, 2 * n, 2] for n in (2, 4, 8)]
    if scale not in aligned + centered:
        return f"a scale among {', '.join(map(str, aligned + centered))}, got {scale}"
    inset = scale[0] // 2 - 1 if scale in centered else 0
    if offset != [-inset, -inset] or border != [inset, inset]:
        return f"offset {-inset} and border {inset} for this scale, got {offset} and {border}"
    return None
