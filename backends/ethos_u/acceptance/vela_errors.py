"""What Vela 5.2.0 accepts and then computes otherwise than TOSA demands, by the cause of each error.

The causes were read in Regor's sources and seen in its command streams. Each rule names more than is wrong: it is a
suspicion, which an execution confirms. The first line of each docstring is its entry in the listing.
"""

from __future__ import annotations

from fractions import Fraction

from tosaic.backends.ethos_u.acceptance.queries import (
    constant_operand,
    data_type,
    int_list,
    is_elementwise,
    is_reshape,
    is_view,
    producer_name,
    user_names,
)
from tosaic.support.attributes import bool_of, ints_of
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.tosa_ops import data_operands
from tosaic.support.values import producer, tensor_operands, users

_LARGEST_SCALE = {"i8": 2**19, "i16": 2**14}


def one_scale_behind(op: ir.Operation, generation: str) -> str | None:
    """U85: no per-channel RESCALE behind computed weights or MATMUL.

    Vela fuses that RESCALE and gives every channel the scale of the first.
    """
    if generation != "u85" or (op.name == "tosa.conv2d" and constant_operand(op, 1) is not None):
        return None
    if any(user.name == "tosa.rescale" and bool_of(user, "per_channel") for user in users(op.results[0])):
        return "a RESCALE behind it with one scale for the whole tensor, got one per channel"
    return None


def unsliced_operands(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: no operand cut out by SLICE.

    Vela then multiplies as many elements as the uncut operand has, beyond the ends of its buffers.
    """
    if generation != "u85" and any(producer_name(value) == "tosa.slice" for value in list(op.operands)[:2]):
        return "operands that are not cut out by a SLICE"
    return None


def unmerged_result(op: ir.Operation, generation: str) -> str | None:
    """The result, with its RESCALE, not before CONCAT or PAD.

    Vela makes several ops of this one and loses, in all but one of them, the place that the CONCAT or PAD gives it.
    """
    return _another_use(user_names(op.results[0], "tosa.rescale") & {"tosa.concat", "tosa.pad"})


def unmerged_result_small(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: the result, with its RESCALE, not before CONCAT or PAD."""
    return None if generation == "u85" else unmerged_result(op, generation)


def unmerged_multiplier(op: ir.Operation, generation: str) -> str | None:
    """With a channel multiplier above 1, the result, with its RESCALE, not before CONCAT or PAD."""
    return unmerged_result(op, generation) if shape_of(op.operands[1])[3] > 1 else None


def unmerged_table(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: on i16, the result, with its RESCALE, not before CONCAT or PAD."""
    return unmerged_result_small(op, generation) if data_type(op) == "i16" else None


def unfused_reverse(op: ir.Operation, generation: str) -> str | None:
    """Not before CLAMP or TABLE; on U55 and U65 nor before RESCALE.

    Vela fuses those, and then lets the next op start before the reversed rows are written.
    """
    fused = {"tosa.clamp", "tosa.table"} | (set() if generation == "u85" else {"tosa.rescale"})
    return _another_use(user_names(op.results[0]) & fused)


def unfused_transpose(op: ir.Operation, generation: str) -> str | None:
    """Not before CLAMP or TABLE; on U55 and U65 no swap of equal axes that keeps the last one.

    Vela fuses those, and then lets the next op start before the transposed elements are written. It does so too where
    height and width are swapped and the shape stays the same.
    """
    if is_reshape(op):
        return None
    *_, last = ints_of(op, "perms")
    keeps_last = last == len(shape_of(op.operands[0])) - 1
    if generation != "u85" and op.operands[0].type == op.results[0].type and keeps_last:
        return f"axes of different sizes, got {shape_of(op.operands[0])}"
    return _another_use(user_names(op.results[0]) & {"tosa.clamp", "tosa.table"})


def unshaped_minimum(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: no RESHAPE of its operand or result, nor as its operand.

    Vela makes a subtraction, a maximum and a subtraction of it, and forgets in one of them that the shape changes.
    """
    if generation == "u85":
        return None
    beside = [producer(op.operands[0]), *users(op.operands[0]), *users(op.results[0])]
    if any(other is not None and is_reshape(other) for other in beside):
        return "no RESHAPE beside it, nor a TRANSPOSE that keeps the order of the elements"
    return None


def unshaped_twin(op: ir.Operation, generation: str) -> str | None:
    """Behind a RESHAPE, not several elementwise uses of the result, unless it follows CONV2D or DEPTHWISE_CONV2D.

    Vela repeats a RESCALE that it could not fuse for each of them, and then gives its input the shape of its output.
    """
    if producer_name(op.operands[0]) in ("tosa.conv2d", "tosa.depthwise_conv2d"):
        return None
    value, readers = op.results[0], users(op.results[0])
    while len(readers) == 1 and is_view(readers[0]):
        value = readers[0].results[0]
        readers = users(value)
    if shape_of(value) != shape_of(op.results[0]) and len(readers) > 1 and all(map(is_elementwise, readers)):
        return "one elementwise use of its reshaped result"
    return None


def unscaled_operands(op: ir.Operation, generation: str) -> str | None:
    """U85: no operand that a RESCALE made of i8 or i16.

    Vela makes that RESCALE the op's own input scaling, which no source says the hardware does for bits.
    """
    if generation != "u85":
        return None
    for value in op.operands:
        rescale = producer(value, "tosa.rescale")
        source = "" if rescale is None else str(element_type(rescale.operands[0]))
        if source in ("i8", "i16"):
            return f"no RESCALE from {source} before it"
    return None


def unsliced_channels(op: ir.Operation, generation: str) -> str | None:
    """Per channel, no SLICE of the channels behind it, unless it follows CONV2D or DEPTHWISE_CONV2D.

    Vela may cut the input of the RESCALE instead of its output, and then takes the scales of the first channels.
    """
    if not bool_of(op, "per_channel"):
        return None
    if producer_name(op.operands[0]) in ("tosa.conv2d", "tosa.depthwise_conv2d"):
        return None
    for user in users(op.results[0]):
        if user.name == "tosa.slice" and (int_list(constant_operand(user, 1)) or [0])[-1] != 0:
            return "no SLICE of the channels behind a scale per channel"
    return None


def unsliced_window(op: ir.Operation, generation: str) -> str | None:
    """Behind SLICE, no padding with a batch above 1, and no TRANSPOSE_CONV2D.

    Vela then takes the edge of the uncut tensor for the edge of the cut one.
    """
    if producer_name(op.operands[0]) != "tosa.slice":
        return None
    if op.name == "tosa.transpose_conv2d":
        return "an operand that is not cut out by a SLICE"
    if shape_of(op.operands[0])[0] > 1 and any(ints_of(op, "pad")):
        return "batch 1 or no padding behind SLICE"
    return None


def unsliced_reduction(op: ir.Operation, generation: str) -> str | None:
    """Not behind SLICE, even with a RESCALE between.

    Vela then reduces the uncut tensor.
    """
    if producer_name(op.operands[0], "tosa.rescale") == "tosa.slice":
        return "an operand that is not cut out by a SLICE"
    return None


def one_table_per_chain(op: ir.Operation, generation: str) -> str | None:
    """U85: on i16, no other TABLE on i16 before it with nothing but elementwise ops between.

    Vela chains them into one kernel, and loads both tables to the same address before it starts.
    """
    if generation != "u85" or data_type(op) != "i16":
        return None
    pending, seen = [op.operands[0]], set()
    while pending:
        before = producer(pending.pop())
        if before is None or before in seen:
            continue
        seen.add(before)
        if before.name == "tosa.table" and data_type(before) == "i16":
            return "an op that is not elementwise between it and the TABLE before"
        if before.name in ("tosa.rescale", "tosa.clamp") or is_view(before) or is_elementwise(before):
            pending += tensor_operands(before)
    return None


def rescale_neighbors(op: ir.Operation, generation: str) -> str | None:
    """Not directly behind CONCAT, PAD or TILE; on U55 and U65, with i32, not behind SLICE or before CONCAT or PAD.

    Vela moves the RESCALE into the copies that those ops are made of. Per channel, every copy then takes the scales of
    the first channels, and one behind two such ops misses a part. On U55 and U65 a RESCALE from or to i32 becomes two
    ops. These forget where a SLICE before them, or a CONCAT or PAD behind them, begins. A RESCALE that is a part of the
    convolution, product or sum beside it does not.
    """
    behind = producer_name(op.operands[0]).removeprefix("tosa.")
    if behind in ("concat", "pad", "tile"):
        return f"another op between it and {behind.upper()}"
    types = {str(element_type(op.operands[0])), str(element_type(op.results[0]))}
    if generation == "u85" or "i32" not in types or _is_fused(op):
        return None
    if behind == "slice":
        return f"i8 and i16 behind SLICE, got {' and '.join(sorted(types))}"
    for name in ("pad", "concat"):
        if f"tosa.{name}" in user_names(op.results[0]):
            return f"i8 and i16 before {name.upper()}, got {' and '.join(sorted(types))}"
    return None


def _is_fused(rescale: ir.Operation) -> bool:
    """Whether the kernel of U55 and U65 that computes the op before or behind the RESCALE does its work too."""
    if str(element_type(rescale.operands[0])) != "i32":
        readers = users(rescale.results[0])
        return len(readers) == 1 and _rescales_itself(readers[0])
    beside = producer(rescale.operands[0])
    if beside is None or len(users(beside.results[0])) != 1:
        return False
    return beside.name in ("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.conv3d") or _rescales_itself(beside)


def _rescales_itself(op: ir.Operation) -> bool:
    """Whether U55 and U65 compute a MUL, ADD or SUB of i8 or i16 in one kernel with the RESCALEs before and behind it.

    They scale the operands of a product by 1; of a sum, both by one integer below 2^15, or one by 2^19 (i8) or 2^14
    (i16) and the other by less.
    """
    if op.name not in ("tosa.mul", "tosa.add", "tosa.sub"):
        return False
    before, readers = [producer(value) for value in data_operands(op)], users(op.results[0])
    if len(readers) != 1:
        return False
    first, second, behind = (_scale(other) for other in (*before, *readers))
    if before[0] is None or first is None or second is None or behind is None:
        return False
    if str(element_type(readers[0].results[0])) == "i32":
        return False
    element = str(element_type(before[0].operands[0]))
    if op.name == "tosa.mul":
        return first == second == 1 and element != "i32"
    if first == second:
        return first.denominator == 1 and first < 2**15 and element != "i32"
    return max(first, second) == _LARGEST_SCALE.get(element)


def one_integer_scale(op: ir.Operation, generation: str) -> str | None:
    """U55, U65: operands not scaled by two different integers below 2^15.

    Vela takes them for scales that the NPU knows, and then scales the operand with the larger one by 2^19 or 2^14.
    """
    if generation == "u85":
        return None
    before = producer(op.operands[0])
    first, second = (_scale(producer(value)) for value in op.operands)
    if before is None or first is None or second is None or first == second or max(first, second) >= 2**15:
        return None
    element = str(element_type(before.operands[0]))
    if first.denominator != 1 or second.denominator != 1 or max(first, second) == _LARGEST_SCALE.get(element):
        return None
    return f"one scale for both operands, or a scale that is no integer below 2^15, got {first} and {second}"


def _scale(op: ir.Operation | None) -> Fraction | None:
    """The factor of a RESCALE; None of another op, and where it differs between channels."""
    if op is None or op.name != "tosa.rescale":
        return None
    multiplier, shift = (int_list(constant_operand(op, index)) for index in (1, 2))
    return Fraction(multiplier[0], 2 ** shift[0]) if multiplier and shift and len(multiplier) == 1 else None


def _another_use(found: set[str]) -> str | None:
    """The refusal of uses by the ops `found`; None where there are none."""
    names = " and ".join(sorted(name.removeprefix("tosa.").upper() for name in found))
    return f"a use other than {names}" if found else None
