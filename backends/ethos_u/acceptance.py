"""Which TOSA ops the NPU takes, as one table, and why not where it does not.

The table was established by compiling each op and element type with Vela 5.2.0 and by comparing the emulated command
stream with the reference model; a row that Vela accepts and computes otherwise than TOSA demands is a refusal here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tosaic.backends.ethos_u.accelerators import accelerator as find_accelerator
from tosaic.support.mlir import constant_value, element_type, ir, shape_of

Constraint = Callable[[ir.Operation, str], str | None]


@dataclass(frozen=True)
class Row:
    """What one op needs.

    Args:
        small: element types of its data on Ethos-U55 and Ethos-U65, separated by spaces.
        large: the same on Ethos-U85.
        constraints: further conditions; each takes the op and the generation (`u55`, `u65`, `u85`).
    """

    small: str
    large: str
    constraints: tuple[Constraint, ...] = ()


def verdict(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` cannot run `op`, e.g. `stride <= 3, got 4`; None where it can.

    An op that the NPU runs only together with a neighbour (CONV2D on i16 with its RESCALE) is judged with it.

    Raises:
        BackendError: no such accelerator.
    """
    generation = find_accelerator(accelerator).generation
    name = op.name.removeprefix("tosa.")
    if name in ("const", "const_shape"):
        return None
    row = ACCEPTANCE.get(name)
    if row is None:
        return f"no Ethos-U runs {name.upper()}"
    types = (row.large if generation == "u85" else row.small).split()
    if not types:
        return f"{_marketing(generation)} has no {name.upper()}"
    found = _data_type(op)
    if found not in types:
        return f"{name.upper()} needs {' or '.join(types)}, got {found}"
    return next((reason for check in (_static_shapes, *row.constraints) if (reason := check(op, generation))), None)


def supported_ops() -> str:
    """The acceptance table as Markdown: op, element types per generation, constraints."""
    lines = ["| Op | U55, U65 | U85 | Constraints |", "|---|---|---|---|"]
    for name, row in sorted(ACCEPTANCE.items()):
        notes = "; ".join((check.__doc__ or "").split("\n")[0].rstrip(".") for check in row.constraints)
        lines.append(f"| {name.upper()} | {row.small or 'no'} | {row.large or 'no'} | {notes} |")
    return "\n".join(lines)


# Constraints. The first line of each docstring is its entry in the listing.


def _static_shapes(op: ir.Operation, generation: str) -> str | None:
    """Static shapes of at most six axes, none of them empty."""
    for value in (*_data_operands(op), *op.results):
        shape = ir.RankedTensorType(value.type)
        if not shape.has_static_shape or shape.rank > 6 or 0 in shape.shape:
            return f"static shapes of at most 6 axes, got {shape}"
    return None


def _constant_weights(op: ir.Operation, generation: str) -> str | None:
    """Constant weights and bias."""
    if any(constant_operand(op, index) is None for index in (1, 2)):
        return "constant weights and bias, got computed ones"
    return None


def _constant_weights_small(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: constant weights and bias."""
    return None if generation == "u85" else _constant_weights(op, generation)


def _constant_bias(op: ir.Operation, generation: str) -> str | None:
    """Constant bias."""
    return "a constant bias, got a computed one" if constant_operand(op, 2) is None else None


def _one_scale_behind(op: ir.Operation, generation: str) -> str | None:
    """U85: no per-channel RESCALE behind computed weights or MATMUL.

    Vela fuses that RESCALE and gives every channel the scale of the first.
    """
    if generation != "u85" or (op.name == "tosa.conv2d" and constant_operand(op, 1) is not None):
        return None
    rescales = [use.owner for use in op.results[0].uses if use.owner.name == "tosa.rescale"]
    if any(ir.BoolAttr(rescale.attributes["per_channel"]).value for rescale in rescales):
        return "a RESCALE behind it with one scale for the whole tensor, got one per channel"
    return None


def _unsliced_operands(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: no operand cut out by SLICE.

    Vela then multiplies as many elements as the uncut operand has, beyond the ends of its buffers.
    """
    if generation != "u85" and any(_producer(value) == "tosa.slice" for value in list(op.operands)[:2]):
        return "operands that are not cut out by a SLICE"
    return None


def _unmerged_result(op: ir.Operation, generation: str) -> str | None:
    """The result, with its RESCALE, not before CONCAT or PAD.

    Vela makes several ops of this one and loses, in all but one of them, the place that the CONCAT or PAD gives it.
    """
    return _another_use(_consumers(op.results[0], "tosa.rescale") & {"tosa.concat", "tosa.pad"})


def _unmerged_result_small(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: the result, with its RESCALE, not before CONCAT or PAD."""
    return None if generation == "u85" else _unmerged_result(op, generation)


def _unmerged_multiplier(op: ir.Operation, generation: str) -> str | None:
    """With a channel multiplier above 1, the result, with its RESCALE, not before CONCAT or PAD."""
    return _unmerged_result(op, generation) if shape_of(op.operands[1])[3] > 1 else None


def _unfused_reverse(op: ir.Operation, generation: str) -> str | None:
    """Not before CLAMP or TABLE; on U55 and U65 nor before RESCALE.

    Vela fuses those, and then lets the next op start before the reversed rows are written.
    """
    fused = {"tosa.clamp", "tosa.table"} | (set() if generation == "u85" else {"tosa.rescale"})
    return _another_use(_consumers(op.results[0]) & fused)


def _unfused_transpose(op: ir.Operation, generation: str) -> str | None:
    """Not before CLAMP or TABLE; on U55 and U65 no swap of equal axes that keeps the last one.

    Vela fuses those, and then lets the next op start before the transposed elements are written. It does so too where
    height and width are swapped and the shape stays the same.
    """
    if _is_reshape(op):
        return None
    *_, last = map(int, ir.DenseI32ArrayAttr(op.attributes["perms"]))
    keeps_last = last == len(shape_of(op.operands[0])) - 1
    if generation != "u85" and op.operands[0].type == op.results[0].type and keeps_last:
        return f"axes of different sizes, got {shape_of(op.operands[0])}"
    return _another_use(_consumers(op.results[0]) & {"tosa.clamp", "tosa.table"})


def _unshaped_minimum(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: no RESHAPE of its operand or result, nor as its operand.

    Vela makes a subtraction, a maximum and a subtraction of it, and forgets in one of them that the shape changes.
    """
    if generation == "u85":
        return None
    source = op.operands[0].owner
    beside = [use.owner for value in (op.operands[0], op.results[0]) for use in value.uses]
    if any(_is_reshape(other) for other in (*beside, *([] if isinstance(source, ir.Block) else [source]))):
        return "no RESHAPE beside it, nor a TRANSPOSE that keeps the order of the elements"
    return None


def _unshaped_twin(op: ir.Operation, generation: str) -> str | None:
    """Behind a RESHAPE, not several elementwise uses of the result, unless it follows CONV2D or DEPTHWISE_CONV2D.

    Vela repeats a RESCALE that it could not fuse for each of them, and then gives its input the shape of its output.
    """
    if _producer(op.operands[0]) in ("tosa.conv2d", "tosa.depthwise_conv2d"):
        return None
    value, uses = op.results[0], list(op.results[0].uses)
    while len(uses) == 1 and _is_view(uses[0].owner):
        value = uses[0].owner.results[0]
        uses = list(value.uses)
    if value.type.shape != op.results[0].type.shape and len(uses) > 1 and all(_is_elementwise(u.owner) for u in uses):
        return "one elementwise use of its reshaped result"
    return None


def _unscaled_operands(op: ir.Operation, generation: str) -> str | None:
    """U85: no operand that a RESCALE made of i8 or i16.

    Vela makes that RESCALE the op's own input scaling, which no source says the hardware does for bits.
    """
    if generation != "u85":
        return None
    for value in op.operands:
        if isinstance(value.owner, ir.Block) or value.owner.name != "tosa.rescale":
            continue
        source = str(element_type(value.owner.operands[0]))
        if source in ("i8", "i16"):
            return f"no RESCALE from {source} before it"
    return None


def _unsliced_channels(op: ir.Operation, generation: str) -> str | None:
    """Per channel, no SLICE of the channels behind it, unless it follows CONV2D or DEPTHWISE_CONV2D.

    Vela may cut the input of the RESCALE instead of its output, and then takes the scales of the first channels.
    """
    if not ir.BoolAttr(op.attributes["per_channel"]).value:
        return None
    if _producer(op.operands[0]) in ("tosa.conv2d", "tosa.depthwise_conv2d"):
        return None
    for use in op.results[0].uses:
        if use.owner.name == "tosa.slice" and (_list(constant_operand(use.owner, 1)) or [0])[-1] != 0:
            return "no SLICE of the channels behind a scale per channel"
    return None


def _unsliced_window(op: ir.Operation, generation: str) -> str | None:
    """Behind SLICE, no padding with a batch above 1, and no TRANSPOSE_CONV2D.

    Vela then takes the edge of the uncut tensor for the edge of the cut one.
    """
    if _producer(op.operands[0]) != "tosa.slice":
        return None
    if op.name == "tosa.transpose_conv2d":
        return "an operand that is not cut out by a SLICE"
    if shape_of(op.operands[0])[0] > 1 and any(int_array(op, "pad")):
        return "batch 1 or no padding behind SLICE"
    return None


def _unsliced_reduction(op: ir.Operation, generation: str) -> str | None:
    """Not behind SLICE, even with a RESCALE between.

    Vela then reduces the uncut tensor.
    """
    if _producer(op.operands[0], "tosa.rescale") == "tosa.slice":
        return "an operand that is not cut out by a SLICE"
    return None


def _one_table_per_chain(op: ir.Operation, generation: str) -> str | None:
    """U85: on i16, no other TABLE on i16 before it with nothing but elementwise ops between.

    Vela chains them into one kernel, and loads both tables to the same address before it starts.
    """
    if generation != "u85" or _data_type(op) != "i16":
        return None
    pending, seen = [op.operands[0]], set()
    while pending:
        before = pending.pop().owner
        if isinstance(before, ir.Block) or before in seen:
            continue
        seen.add(before)
        if before.name == "tosa.table" and _data_type(before) == "i16":
            return "an op that is not elementwise between it and the TABLE before"
        if before.name in ("tosa.rescale", "tosa.clamp") or _is_view(before) or _is_elementwise(before):
            pending += _data_operands(before)
    return None


def _unmerged_table(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: on i16, the result, with its RESCALE, not before CONCAT or PAD."""
    return _unmerged_result_small(op, generation) if _data_type(op) == "i16" else None


def _rescale_neighbours(op: ir.Operation, generation: str) -> str | None:
    """Not directly behind CONCAT, PAD or TILE; on U55 and U65, with i32, not behind SLICE or before CONCAT or PAD.

    Vela moves the RESCALE into the copies that those ops are made of: per channel, every copy then takes the scales of
    the first channels, and one behind two such ops misses a part. On U55 and U65 a RESCALE from or to i32 becomes two
    ops, which forget where a SLICE before them, or a CONCAT or PAD behind them, begins; unless it is a part of the
    convolution, product or sum beside it.
    """
    behind = _producer(op.operands[0]).removeprefix("tosa.")
    if behind in ("concat", "pad", "tile"):
        return f"another op between it and {behind.upper()}"
    types = {str(element_type(op.operands[0])), str(element_type(op.results[0]))}
    if generation == "u85" or "i32" not in types or _is_fused(op):
        return None
    if behind == "slice":
        return f"i8 and i16 behind SLICE, got {' and '.join(sorted(types))}"
    for name in ("pad", "concat"):
        if f"tosa.{name}" in _consumers(op.results[0]):
            return f"i8 and i16 before {name.upper()}, got {' and '.join(sorted(types))}"
    return None


def _is_fused(rescale: ir.Operation) -> bool:
    """Whether the kernel of U55 and U65 that computes the op before or behind the RESCALE does its work too."""
    beside = rescale.operands[0].owner
    if str(element_type(rescale.operands[0])) != "i32":
        uses = list(rescale.results[0].uses)
        return len(uses) == 1 and _rescales_itself(uses[0].owner)
    if isinstance(beside, ir.Block) or len(list(beside.results[0].uses)) != 1:
        return False
    return beside.name in ("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.conv3d") or _rescales_itself(beside)


def _rescales_itself(op: ir.Operation | ir.OpView) -> bool:
    """Whether U55 and U65 compute a MUL, ADD or SUB of i8 or i16 in one kernel with the RESCALEs before and behind it.

    They scale the operands of a product by 1; of a sum, both by one integer below 2^15, or one by 2^19 (i8) or 2^14
    (i16) and the other by less.
    """
    if op.name not in ("tosa.mul", "tosa.add", "tosa.sub"):
        return False
    around = [value.owner for value in op.operands[:2]] + [use.owner for use in op.results[0].uses]
    if len(around) != 3:
        return False
    first, second, behind = (_scale(other) for other in around)
    if first is None or second is None or behind is None or str(element_type(around[2].results[0])) == "i32":
        return False
    element = str(element_type(around[0].operands[0]))
    if op.name == "tosa.mul":
        return first == second == 1 and element != "i32"
    if first == second:
        return first.denominator == 1 and first < 2**15 and element != "i32"
    return max(first, second) == _LARGEST_SCALE.get(element)


def _one_integer_scale(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: operands not scaled by two different integers below 2^15.

    Vela takes them for scales that the NPU knows, and then scales the operand with the larger one by 2^19 or 2^14.
    """
    if generation == "u85":
        return None
    first, second = (_scale(value.owner) for value in op.operands)
    if first is None or second is None or first == second or max(first, second) >= 2**15:
        return None
    element = str(element_type(op.operands[0].owner.operands[0]))
    if first.denominator != 1 or second.denominator != 1 or max(first, second) == _LARGEST_SCALE.get(element):
        return None
    return f"one scale for both operands, or a scale that is no integer below 2^15, got {first} and {second}"


def _scale(op: ir.Operation | ir.OpView | ir.Block) -> Fraction | None:
    """The factor of a RESCALE; None of another op, and where it differs between channels."""
    if isinstance(op, ir.Block) or op.name != "tosa.rescale":
        return None
    multiplier, shift = (_list(constant_operand(op, index)) for index in (1, 2))
    return Fraction(multiplier[0], 2 ** shift[0]) if multiplier and shift and len(multiplier) == 1 else None


def _padding_below_kernel(op: ir.Operation, generation: str) -> str | None:
    """Padding smaller than the kernel with its dilation."""
    pad = int_array(op, "pad")
    if op.name in ("tosa.max_pool2d", "tosa.avg_pool2d"):
        extent = int_array(op, "kernel")
    else:
        shape = shape_of(op.operands[1])
        taps = shape[:2] if op.name == "tosa.depthwise_conv2d" else shape[1:-1]
        extent = [(k - 1) * d + 1 for k, d in zip(taps, int_array(op, "dilation"), strict=True)]
    for axis, size in enumerate(extent):
        if max(pad[2 * axis], pad[2 * axis + 1]) >= size:
            return f"padding smaller than the kernel's {size}, got {max(pad[2 * axis], pad[2 * axis + 1])}"
    return None


def _weight_type(op: ir.Operation, generation: str) -> str | None:
    """Weights i8, or i4 with i8 data."""
    found = str(element_type(op.operands[1]))
    if found == "i8" or (found == "i4" and _data_type(op) == "i8"):
        return None
    return f"weights of i8, or of i4 with i8 data, got {found}"


def _weight_sum(op: ir.Operation, generation: str) -> str | None:
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


def _wide_accumulator(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: i16 data only where a RESCALE is the one user of the result."""
    if generation == "u85" or _data_type(op) != "i16":
        return None
    users = [use.owner for use in op.results[0].uses]
    if len(users) != 1 or users[0].name != "tosa.rescale":
        return "i16 data only with a RESCALE as the result's one user"
    refusal = _rescale_form(users[0], generation)
    return f"its RESCALE with the NPU, which needs {refusal}" if refusal else None


def _wide_input(op: ir.Operation, generation: str) -> str | None:
    """i48 only behind the op on i16 that made it."""
    if str(element_type(op.operands[0])) != "i48":
        return None
    producer = op.operands[0].owner
    if isinstance(producer, ir.Block) or producer.name.removeprefix("tosa.") not in _ACCUMULATING:
        return "an i48 input to come from an op that accumulates in i48"
    if generation != "u85" and len(list(producer.results[0].uses)) != 1:
        return "to be the one user of the i48 result"
    types = ACCEPTANCE[producer.name.removeprefix("tosa.")]
    if _data_type(producer) not in (types.large if generation == "u85" else types.small).split():
        return f"{producer.name.removeprefix('tosa.').upper()} with it on the NPU"
    return None


def _depth_of_one(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: a kernel one deep."""
    depth = shape_of(op.operands[1])[1]
    return f"a kernel depth of 1, got {depth}" if generation != "u85" and depth != 1 else None


def _transpose_stride(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: equal strides of 1 or 2, (1, 2) on one row, (2, 1) on one column."""
    stride = int_array(op, "stride")
    if generation == "u85" or stride in ([1, 1], [2, 2]):
        return None
    _, ih, iw, _ = shape_of(op.operands[0])
    _, kh, kw, _ = shape_of(op.operands[1])
    if (stride == [1, 2] and ih == kh == 1) or (stride == [2, 1] and iw == kw == 1):
        return None
    return f"a stride of (1, 1) or (2, 2), got ({stride[0]}, {stride[1]})"


def _padded_average(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: with padding, a kernel of at most 8x8."""
    kernel = int_array(op, "kernel")
    if generation != "u85" and max(kernel) > 8 and any(int_array(op, "pad")):
        return f"a kernel of at most 8x8 where there is padding, got {kernel[0]}x{kernel[1]}"
    return None


def _argmax_axis(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: batch 1, and the last axis of at most 127; U85: one of the last three axes."""
    shape = shape_of(op.operands[0])
    axis = int_attribute(op, "axis")
    if generation == "u85":
        return None if axis >= len(shape) - 3 else f"one of the last three axes, got axis {axis} of {len(shape)}"
    if axis != len(shape) - 1:
        return f"the last axis, got axis {axis} of {len(shape)}"
    if shape[axis] > 127:
        return f"at most 127 channels, got {shape[axis]}"
    if math.prod(shape[:-3]) != 1:
        return f"batch 1, got {math.prod(shape[:-3])}"
    return None


def _reversed_axis(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: the height or width axis; U85: or the channels."""
    rank = len(shape_of(op.operands[0]))
    axis = int_attribute(op, "axis") - rank
    allowed = (-3, -2, -1) if generation == "u85" else (-3, -2)
    return None if axis in allowed else f"the axis counted from the back in {allowed}, got {axis}"


def _rescale_form(op: ir.Operation, generation: str) -> str | None:
    """SINGLE_ROUND or DOUBLE_ROUND, constant multipliers, unsigned i8 and i16 only.

    Vela executes INEXACT_ROUND as SINGLE_ROUND, which is not what the reference model computes.
    """
    if "INEXACT_ROUND" in str(op.attributes["rounding_mode"]):
        return "SINGLE_ROUND or DOUBLE_ROUND, got INEXACT_ROUND"
    if any(constant_operand(op, index) is None for index in (1, 2, 3, 4)):
        return "constant multipliers, shifts and zero points, got computed ones"
    signs = ("input_unsigned", "output_unsigned")
    unsigned = any(ir.BoolAttr(op.attributes[name]).value for name in signs)
    types = {str(element_type(op.operands[0])), str(element_type(op.results[0]))}
    if unsigned and not types <= {"i8", "i16"}:
        return f"i8 and i16 where a side is unsigned, got {' and '.join(sorted(types))}"
    return None


def _result_type(op: ir.Operation, generation: str) -> str | None:
    """A result of i8, i16 or i32."""
    found = str(element_type(op.results[0]))
    return None if found in ("i8", "i16", "i32") else f"a result of i8, i16 or i32, got {found}"


def _widening_cast(op: ir.Operation, generation: str) -> str | None:
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


def _depthwise_stride(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: stride <= 3."""
    stride = int_array(op, "stride")
    return f"stride <= 3, got {max(stride)}" if generation != "u85" and max(stride) > 3 else None


def _resize_form(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: nearest neighbour by 2, 4 or 8 with aligned corners or half-pixel centres.

    These are the forms that Vela turns into pools over an input that the NPU repeats twofold.
    """
    scale, offset, border = (_list(constant_operand(op, index)) for index in (1, 2, 3))
    if scale is None or offset is None or border is None:
        return "constant scale, offset and border, got computed ones"
    if generation == "u85":
        return None
    if "BILINEAR" in str(op.attributes["mode"]):
        return "NEAREST_NEIGHBOR, got BILINEAR"
    if math.prod(shape_of(op.operands[0])[1:3]) == 1:
        return "an input larger than 1x1"
    aligned = [[n, 1, n, 1] for n in (2, 4, 8)]
    centred = [[2 * n, 2, 2 * n, 2] for n in (2, 4, 8)]
    if scale not in aligned + centred:
        return f"a scale among {', '.join(map(str, aligned + centred))}, got {scale}"
    inset = scale[0] // 2 - 1 if scale in centred else 0
    if offset != [-inset, -inset] or border != [inset, inset]:
        return f"offset {-inset} and border {inset} for this scale, got {offset} and {border}"
    return None


_ACCUMULATING = ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d", "matmul", "resize")
_ELEMENTWISE = (
    *("abs", "add", "arithmetic_right_shift", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cast", "clz"),
    *("equal", "greater", "greater_equal", "intdiv", "logical_and", "logical_left_shift", "logical_not", "logical_or"),
    *("logical_right_shift", "logical_xor", "maximum", "minimum", "mul", "negate", "reduce_min", "sub"),
)
_LARGEST_SCALE = {"i8": 2**19, "i16": 2**14}
_ANY = "i8 i16 i32"
_BOOL = "i1 i8 i16 i32"
_WEIGHTED = (_weight_type, _weight_sum, _wide_accumulator, _unsliced_window)
_CONVOLUTION = (*_WEIGHTED, _padding_below_kernel)

ACCEPTANCE: dict[str, Row] = {
    # Convolutions and products
    "conv2d": Row("i8 i16", "i8 i16", (*_CONVOLUTION, _constant_weights_small, _constant_bias, _one_scale_behind)),
    "depthwise_conv2d": Row(
        "i8 i16", "i8 i16", (*_CONVOLUTION, _constant_weights, _depthwise_stride, _unmerged_multiplier)
    ),
    "conv3d": Row("i8 i16", "i8 i16", (*_CONVOLUTION, _constant_weights, _depth_of_one)),
    "transpose_conv2d": Row("i8", "i8 i16", (*_WEIGHTED, _constant_weights, _transpose_stride, _unmerged_result_small)),
    "matmul": Row("i8", "i8 i16", (_one_scale_behind, _unsliced_operands, _unmerged_result_small)),
    # Pools
    "max_pool2d": Row("i8 i16", "i8 i16", (_padding_below_kernel, _unsliced_window)),
    "avg_pool2d": Row("i8 i16", "i8 i16", (_padding_below_kernel, _unsliced_window, _padded_average)),
    # Elementwise
    "abs": Row("i32", "i32"),
    "add": Row("i32", "i32", (_one_integer_scale,)),
    "sub": Row("i32", "i32", (_one_integer_scale,)),
    "maximum": Row("i32", "i32"),
    "minimum": Row("i32", "i32"),
    "clz": Row("i32", "i32", (_unscaled_operands,)),
    "mul": Row(_ANY, _ANY),
    "negate": Row(_ANY, _ANY),
    "clamp": Row("i8 i16", "i8 i16"),
    "table": Row("i8 i16", "i8 i16", (_unmerged_table, _one_table_per_chain)),
    "arithmetic_right_shift": Row("i32", _ANY),
    "logical_left_shift": Row("i32", _ANY),
    "logical_right_shift": Row("", _ANY),
    "bitwise_and": Row("", _ANY, (_unscaled_operands,)),
    "bitwise_or": Row("", _ANY, (_unscaled_operands,)),
    "bitwise_xor": Row("", _ANY, (_unscaled_operands,)),
    "bitwise_not": Row("", _ANY, (_unscaled_operands,)),
    "logical_and": Row("", "i1"),
    "logical_or": Row("", "i1"),
    "logical_xor": Row("", "i1"),
    "logical_not": Row("", "i1"),
    "intdiv": Row("", "i32"),
    "equal": Row("", "i32"),
    "greater": Row("", "i32"),
    "greater_equal": Row("", "i32"),
    "select": Row("", _ANY),
    # Reductions
    "reduce_sum": Row("i32", "i32", (_unsliced_reduction, _unmerged_result)),
    "reduce_max": Row("i8 i16", _ANY, (_unsliced_reduction, _unmerged_result)),
    "reduce_min": Row("i8 i16", _ANY, (_unsliced_reduction, _unmerged_result, _unshaped_minimum)),
    "reduce_all": Row("", "i1"),
    "reduce_any": Row("", "i1"),
    "argmax": Row("i8", "i8 i16", (_argmax_axis, _unmerged_result)),
    # Data movement
    "concat": Row(_ANY, _BOOL),
    "identity": Row(_ANY, _BOOL),
    "pad": Row(_ANY, _ANY),
    "reshape": Row(_ANY, _BOOL),
    "reverse": Row(_ANY, _ANY, (_reversed_axis, _unfused_reverse)),
    "slice": Row(_ANY, _ANY),
    "tile": Row(_ANY, _ANY),
    "transpose": Row(_ANY, _ANY, (_unfused_transpose,)),
    "gather": Row("", _ANY),
    "scatter": Row("", _ANY),
    "resize": Row("i8 i16", "i8 i16", (_resize_form, _unmerged_result_small)),
    # Conversions
    "cast": Row(_ANY, _BOOL, (_widening_cast,)),
    "rescale": Row(
        "i8 i16 i32 i48",
        "i8 i16 i32 i48",
        (_rescale_form, _result_type, _wide_input, _rescale_neighbours, _unsliced_channels, _unshaped_twin),
    ),
}


def constant_operand(op: ir.Operation, index: int) -> np.ndarray | None:
    """The constant behind an operand; for i4 and i48, which numpy cannot read, an array of no meaning but not None."""
    value = op.operands[index]
    if isinstance(value.owner, ir.Block) or value.owner.name not in ("tosa.const", "tosa.const_shape"):
        return None
    if isinstance(value.type, ir.RankedTensorType) and str(element_type(value)) in ("i4", "i48"):
        return np.zeros(shape_of(value), np.int64)
    return constant_value(value)


def int_array(op: ir.Operation, name: str) -> list[int]:
    return [int(v) for v in ir.DenseI64ArrayAttr(op.attributes[name])]


def int_attribute(op: ir.Operation, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


def _is_view(op: ir.Operation | ir.OpView) -> bool:
    """Whether Vela drops the op: a change of shape only, a REVERSE or reduction of an axis of size 1, a pool of 1x1."""
    if op.name == "tosa.reverse":
        return shape_of(op.operands[0])[int_attribute(op, "axis")] == 1
    if op.name.startswith("tosa.reduce_"):
        return op.operands[0].type == op.results[0].type
    if op.name == "tosa.max_pool2d":
        return int_array(op, "kernel") == [1, 1] and op.operands[0].type == op.results[0].type
    return op.name == "tosa.identity" or _is_reshape(op)


def _is_reshape(op: ir.Operation | ir.OpView) -> bool:
    """Whether the op is a RESHAPE, or a TRANSPOSE that moves axes of size 1 only."""
    if op.name != "tosa.transpose":
        return op.name == "tosa.reshape"
    shape = shape_of(op.operands[0])
    moved = [axis for axis in map(int, ir.DenseI32ArrayAttr(op.attributes["perms"])) if shape[axis] != 1]
    return moved == sorted(moved)


def _producer(value: ir.Value, *through: str) -> str:
    """The name of the op that made `value`, looking through views and the ops named; empty for an argument."""
    while not isinstance(value.owner, ir.Block) and (_is_view(value.owner) or value.owner.name in through):
        value = value.owner.operands[0]
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def _consumers(value: ir.Value, *through: str) -> set[str]:
    """The names of the ops that use `value`, looking through views and the ops named."""
    found: set[str] = set()
    for use in value.uses:
        if _is_view(use.owner) or use.owner.name in through:
            found |= _consumers(use.owner.results[0], *through)
        else:
            found.add(use.owner.name)
    return found


def _is_elementwise(op: ir.Operation | ir.OpView) -> bool:
    """Whether Vela makes an elementwise op of it: by itself, or as the input scale of elementwise ops."""
    if op.name == "tosa.rescale":
        return all(use.owner.name != "tosa.rescale" and _is_elementwise(use.owner) for use in op.results[0].uses)
    return op.name.removeprefix("tosa.") in _ELEMENTWISE


def _another_use(found: set[str]) -> str | None:
    """The refusal of uses by the ops `found`; None where there are none."""
    names = " and ".join(sorted(name.removeprefix("tosa.").upper() for name in found))
    return f"a use other than {names}" if found else None


def _list(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else [int(v) for v in np.ravel(array)]


def _data_operands(op: ir.Operation) -> list[ir.Value]:
    return [value for value in op.operands if isinstance(value.type, ir.RankedTensorType)]


def _data_type(op: ir.Operation) -> str:
    """The element type that the table speaks of: the first operand's, or the chosen values' of SELECT."""
    return str(element_type(op.operands[1 if op.name == "tosa.select" else 0]))


def _marketing(generation: str) -> str:
    return f"Ethos-{generation.upper()}"
