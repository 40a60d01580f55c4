"""The table: which element types of each TOSA op the NPU takes, and on what conditions.

It was established by compiling each op and element type with Vela 5.2.0 and by comparing the emulated command stream
with the reference model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.acceptance import limits, vela_errors
from tosaic.backends.ethos_u.acceptance.queries import data_type
from tosaic.support.mlir import element_type, ir
from tosaic.support.tosa_ops import ACCUMULATING, is_constant
from tosaic.support.values import producer, users

Constraint = Callable[[ir.Operation, str], str | None]


@dataclass(frozen=True)
class Row:
    """What one op needs.

    Args:
        small: element types of its data on Ethos-U55 and Ethos-U65, separated by spaces.
        large: the same on Ethos-U85.
        constraints: further conditions; each takes the op and the generation (`u55`, `u65`, `u85`).
        suspicions: conditions without which Vela may compute something else, which an execution shows.
    """

    small: str
    large: str
    constraints: tuple[Constraint, ...] = ()
    suspicions: tuple[Constraint, ...] = ()


def refusal(op: ir.Operation, accelerator: str) -> str | None:
    """Why `accelerator` cannot run `op`, e.g. `CONV2D on Ethos-U55 needs stride <= 3, got 4`; None where it can.

    An op that the NPU runs only together with a neighbor (CONV2D on i16 with its RESCALE) is judged with it.

    Raises:
        BackendError: no such accelerator.
    """
    generation = find_accelerator(accelerator).generation
    name = op.name.removeprefix("tosa.")
    if is_constant(op):
        return None
    row = ACCEPTANCE.get(name)
    if row is None:
        return f"no Ethos-U runs {name.upper()}"
    types = (row.large if generation == "u85" else row.small).split()
    if not types:
        return f"{_marketing(generation)} has no {name.upper()}"
    found = data_type(op)
    if found not in types:
        return f"{name.upper()} needs {' or '.join(types)}, got {found}"
    limit = _first((limits.static_shapes, *row.constraints), op, generation)
    return f"{name.upper()} on {_marketing(generation)} needs {limit}" if limit else None


def suspicion(op: ir.Operation, accelerator: str) -> str | None:
    """What of an `op` that `accelerator` can run makes Vela compute something else, it may be; None where nothing does.

    Raises:
        BackendError: no such accelerator.
    """
    row = ACCEPTANCE.get(op.name.removeprefix("tosa."))
    return _first(row.suspicions, op, find_accelerator(accelerator).generation) if row else None


def _first(checks: Iterable[Constraint], op: ir.Operation, generation: str) -> str | None:
    return next((reason for check in checks if (reason := check(op, generation))), None)


def supported_ops() -> list[dict[str, str]]:
    """The table for people: op, element types on U55 and U65 and on U85 (empty where there is none), conditions, and
    those without which Vela may err."""
    return [
        {
            "op": name.upper(),
            "u55_u65": row.small,
            "u85": row.large,
            "conditions": _listed(row.constraints),
            "suspicions": _listed(row.suspicions),
        }
        for name, row in sorted(ACCEPTANCE.items())
    ]


def _listed(checks: Iterable[Constraint]) -> str:
    return "; ".join((check.__doc__ or "").split("\n")[0].rstrip(".") for check in checks)


def _wide_input(op: ir.Operation, generation: str) -> str | None:
    """i48 only behind the op on i16 that made it."""
    if str(element_type(op.operands[0])) != "i48":
        return None
    before = producer(op.operands[0], *ACCUMULATING)
    if before is None:
        return "an i48 input to come from an op that accumulates in i48"
    if generation != "u85" and len(users(before.results[0])) != 1:
        return "to be the one user of the i48 result"
    name = before.name.removeprefix("tosa.")
    types = ACCEPTANCE[name]
    if data_type(before) not in (types.large if generation == "u85" else types.small).split():
        return f"{name.upper()} with it on the NPU"
    return None


_ANY = "i8 i16 i32"
_BOOL = "i1 i8 i16 i32"
_WEIGHTED = (limits.weight_type, limits.weight_sum, limits.wide_accumulator)
_CONVOLUTION = (*_WEIGHTED, limits.padding_below_kernel)

ACCEPTANCE: dict[str, Row] = {
    # Convolutions and products
    "conv2d": Row(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights_small, limits.constant_bias),
        (vela_errors.unsliced_window, vela_errors.one_scale_behind),
    ),
    "depthwise_conv2d": Row(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights, limits.depthwise_stride),
        (vela_errors.unsliced_window, vela_errors.unmerged_multiplier),
    ),
    "conv3d": Row(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights, limits.depth_of_one),
        (vela_errors.unsliced_window,),
    ),
    "transpose_conv2d": Row(
        "i8",
        "i8 i16",
        (*_WEIGHTED, limits.constant_weights, limits.transpose_stride),
        (vela_errors.unsliced_window, vela_errors.unmerged_result_small),
    ),
    "matmul": Row(
        "i8",
        "i8 i16",
        (),
        (vela_errors.one_scale_behind, vela_errors.unsliced_operands, vela_errors.unmerged_result_small),
    ),
    # Pools
    "max_pool2d": Row("i8 i16", "i8 i16", (limits.padding_below_kernel,), (vela_errors.unsliced_window,)),
    "avg_pool2d": Row(
        "i8 i16", "i8 i16", (limits.padding_below_kernel, limits.padded_average), (vela_errors.unsliced_window,)
    ),
    # Elementwise
    "abs": Row("i32", "i32"),
    "add": Row("i32", "i32", (), (vela_errors.one_integer_scale,)),
    "sub": Row("i32", "i32", (), (vela_errors.one_integer_scale,)),
    "maximum": Row("i32", "i32"),
    "minimum": Row("i32", "i32"),
    "clz": Row("i32", "i32", (), (vela_errors.unscaled_operands,)),
    "mul": Row(_ANY, _ANY),
    "negate": Row(_ANY, _ANY),
    "clamp": Row("i8 i16", "i8 i16"),
    "table": Row("i8 i16", "i8 i16", (), (vela_errors.unmerged_table, vela_errors.one_table_per_chain)),
    "arithmetic_right_shift": Row("i32", _ANY),
    "logical_left_shift": Row("i32", _ANY),
    "logical_right_shift": Row("", _ANY),
    "bitwise_and": Row("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_or": Row("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_xor": Row("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_not": Row("", _ANY, (), (vela_errors.unscaled_operands,)),
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
    "reduce_sum": Row("i32", "i32", (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result)),
    "reduce_max": Row("i8 i16", _ANY, (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result)),
    "reduce_min": Row(
        "i8 i16", _ANY, (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result, vela_errors.unshaped_minimum)
    ),
    "reduce_all": Row("", "i1"),
    "reduce_any": Row("", "i1"),
    "argmax": Row("i8", "i8 i16", (limits.argmax_axis,), (vela_errors.unmerged_result,)),
    # Data movement
    "concat": Row(_ANY, _BOOL),
    "identity": Row(_ANY, _BOOL),
    "pad": Row(_ANY, _ANY),
    "reshape": Row(_ANY, _BOOL),
    "reverse": Row(_ANY, _ANY, (limits.reversed_axis,), (vela_errors.unfused_reverse,)),
    "slice": Row(_ANY, _ANY),
    "tile": Row(_ANY, _ANY),
    "transpose": Row(_ANY, _ANY, (), (vela_errors.unfused_transpose,)),
    "gather": Row("", _ANY),
    "scatter": Row("", _ANY),
    "resize": Row("i8 i16", "i8 i16", (limits.resize_form,), (vela_errors.unmerged_result_small,)),
    # Conversions
    "cast": Row(_ANY, _BOOL, (limits.widening_cast,)),
    "rescale": Row(
        "i8 i16 i32 i48",
        "i8 i16 i32 i48",
        (limits.rescale_form, limits.result_type, _wide_input),
        (vela_errors.rescale_neighbors, vela_errors.unsliced_channels, vela_errors.unshaped_twin),
    ),
}


def _marketing(generation: str) -> str:
    return f"Ethos-{generation.upper()}"
