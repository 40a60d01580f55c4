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
class AcceptanceRow:
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

ACCEPTANCE: dict[str, AcceptanceRow] = {
    # Convolutions and products
    "conv2d": AcceptanceRow(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights_small, limits.constant_bias),
        (vela_errors.unsliced_window, vela_errors.one_scale_behind),
    ),
    "depthwise_conv2d": AcceptanceRow(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights, limits.depthwise_stride),
        (vela_errors.unsliced_window, vela_errors.unmerged_multiplier),
    ),
    "conv3d": AcceptanceRow(
        "i8 i16",
        "i8 i16",
        (*_CONVOLUTION, limits.constant_weights, limits.depth_of_one),
        (vela_errors.unsliced_window,),
    ),
    "transpose_conv2d": AcceptanceRow(
        "i8",
        "i8 i16",
        (*_WEIGHTED, limits.constant_weights, limits.transpose_stride),
        (vela_errors.unsliced_window, vela_errors.unmerged_result_small),
    ),
    "matmul": AcceptanceRow(
        "i8",
        "i8 i16",
        (),
        (vela_errors.one_scale_behind, vela_errors.unsliced_operands, vela_errors.unmerged_result_small),
    ),
    # Pools
    "max_pool2d": AcceptanceRow("i8 i16", "i8 i16", (limits.padding_below_kernel,), (vela_errors.unsliced_window,)),
    "avg_pool2d": AcceptanceRow(
        "i8 i16", "i8 i16", (limits.padding_below_kernel, limits.padded_average), (vela_errors.unsliced_window,)
    ),
    # Elementwise
    "abs": AcceptanceRow("i32", "i32"),
    "add": AcceptanceRow("i32", "i32", (), (vela_errors.one_integer_scale,)),
    "sub": AcceptanceRow("i32", "i32", (), (vela_errors.one_integer_scale,)),
    "maximum": AcceptanceRow("i32", "i32"),
    "minimum": AcceptanceRow("i32", "i32"),
    "clz": AcceptanceRow("i32", "i32", (), (vela_errors.unscaled_operands,)),
    "mul": AcceptanceRow(_ANY, _ANY),
    "negate": AcceptanceRow(_ANY, _ANY),
    "clamp": AcceptanceRow("i8 i16", "i8 i16"),
    "table": AcceptanceRow("i8 i16", "i8 i16", (), (vela_errors.unmerged_table, vela_errors.one_table_per_chain)),
    "arithmetic_right_shift": AcceptanceRow("i32", _ANY),
    "logical_left_shift": AcceptanceRow("i32", _ANY),
    "logical_right_shift": AcceptanceRow("", _ANY),
    "bitwise_and": AcceptanceRow("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_or": AcceptanceRow("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_xor": AcceptanceRow("", _ANY, (), (vela_errors.unscaled_operands,)),
    "bitwise_not": AcceptanceRow("", _ANY, (), (vela_errors.unscaled_operands,)),
    "logical_and": AcceptanceRow("", "i1"),
    "logical_or": AcceptanceRow("", "i1"),
    "logical_xor": AcceptanceRow("", "i1"),
    "logical_not": AcceptanceRow("", "i1"),
    "intdiv": AcceptanceRow("", "i32"),
    "equal": AcceptanceRow("", "i32"),
    "greater": AcceptanceRow("", "i32"),
    "greater_equal": AcceptanceRow("", "i32"),
    "select": AcceptanceRow("", _ANY),
    # Reductions
    "reduce_sum": AcceptanceRow("i32", "i32", (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result)),
    "reduce_max": AcceptanceRow("i8 i16", _ANY, (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result)),
    "reduce_min": AcceptanceRow(
        "i8 i16", _ANY, (), (vela_errors.unsliced_reduction, vela_errors.unmerged_result, vela_errors.unshaped_minimum)
    ),
    "reduce_all": AcceptanceRow("", "i1"),
    "reduce_any": AcceptanceRow("", "i1"),
    "argmax": AcceptanceRow("i8", "i8 i16", (limits.argmax_axis,), (vela_errors.unmerged_result,)),
    # Data movement
    "concat": AcceptanceRow(_ANY, _BOOL),
    "identity": AcceptanceRow(_ANY, _BOOL),
    "pad": AcceptanceRow(_ANY, _ANY),
    "reshape": AcceptanceRow(_ANY, _BOOL),
    "reverse": AcceptanceRow(_ANY, _ANY, (limits.reversed_axis,), (vela_errors.unfused_reverse,)),
    "slice": AcceptanceRow(_ANY, _ANY),
    "tile": AcceptanceRow(_ANY, _ANY),
    "transpose": AcceptanceRow(_ANY, _ANY, (), (vela_errors.unfused_transpose,)),
    "gather": AcceptanceRow("", _ANY, (limits.one_batch,)),
    "scatter": AcceptanceRow("", _ANY, (limits.one_batch,)),
    "resize": AcceptanceRow("i8 i16", "i8 i16", (limits.resize_form,), (vela_errors.unmerged_result_small,)),
    # Conversions
    "cast": AcceptanceRow(_ANY, _BOOL, (limits.widening_cast,)),
    "rescale": AcceptanceRow(
        "i8 i16 i32 i48",
        "i8 i16 i32 i48",
        (limits.rescale_form, limits.result_type, _wide_input),
        (vela_errors.rescale_neighbors, vela_errors.unsliced_channels, vela_errors.unshaped_twin),
    ),
}


def _marketing(generation: str) -> str:
    return f"Ethos-{generation.upper()}"
