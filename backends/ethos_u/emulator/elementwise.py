"""NPU_OP_ELEMENTWISE: one or two inputs, broadcast, with their scaling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.backends.ethos_u.emulator.errors import EmulationError
from tosaic.backends.ethos_u.emulator.feature_map import zero_point
from tosaic.backends.ethos_u.emulator.output import Scaling, finish, has_global_scale, output_rounding
from tosaic.backends.ethos_u.emulator.registers import signed
from tosaic.backends.ethos_u.emulator.scaling import SMALL_ROUNDING, Rounding, scale_register
from tosaic.backends.ethos_u.emulator.state import SCALAR, State

_MUL, _ADD, _SUB, _MIN, _MAX, _LRELU, _ABS, _CLZ, _SHR, _SHL = range(10)
_LSR, _DIV = 10, 11
_CMP_EQ, _CMP_NE, _CMP_GE, _CMP_GT = range(16, 20)
_AND, _OR, _XOR, _NOT, _AND_NOT = 33, 34, 35, 36, 42
_UNARY = (_LRELU, _ABS, _CLZ, _NOT)
# The ops with scaled inputs on U85, and those whose result OFM_SCALE scales.
_LARGE_SCALED_INPUTS = (_ADD, _SUB, _ABS, _MIN, _MAX, _CMP_EQ, _CMP_NE, _CMP_GE, _CMP_GT)
_SMALL_SCALED, _LARGE_SCALED = (_MUL, _ADD, _SUB, _ABS), (_MUL, _ADD, _SUB, _ABS, _MIN, _MAX)
_SWAP, SMALL_SCALAR = 1 << 6, 1 << 7  # IFM2_BROADCAST on U55 and U65
LARGE_SCALAR = 1 << 3  # the BROADCAST registers on U85


def elementwise(state: State, parameter: int) -> None:
    """An elementwise op; the low six bits of `parameter` name it."""
    mode = parameter & 63
    values = _large(state, mode) if state.large else _small(state, mode)
    scaled = has_global_scale(state) and mode in (_LARGE_SCALED if state.large else _SMALL_SCALED)
    finish(state, np.broadcast_to(values, state.output_shape()), Scaling.GLOBAL if scaled else Scaling.NONE)


def _small(state: State, mode: int) -> np.ndarray:
    shape = state.output_shape()
    a = state.load("IFM", *shape)
    if mode in _UNARY:
        return _one_operand(mode, a)
    broadcast = state.registers["IFM2_BROADCAST"]
    if broadcast & SMALL_SCALAR:
        scalar = state.registers["IFM2_SCALAR"]
        if state.registers["IFM2_PRECISION"] & 1:
            scalar = signed(scalar, 16)
        b = np.full((1, 1, 1), scalar - zero_point(state.registers, "IFM2"), np.int64)
    else:
        b = state.load("IFM2", *broadcast_shape(shape, broadcast))
    if mode in (_ADD, _SUB):
        a, b = _scaled_operands(state, a, b)
    if broadcast & _SWAP:
        a, b = b, a
    return _two_operands(state, mode, a, b)


def _scaled_operands(state: State, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U55's input scaling of ADD and SUB.

    Simple: both times 16 bits. Advanced: one operand times 32 bits and shifted, the other shifted left by the fixed
    19 (i8) or 14 (i16). OPA belongs to IFM and OPB to IFM2 whichever operand comes first.
    """
    registers = state.registers
    log_bytes, which, rounding = (
        registers.bits("IFM_PRECISION", low, count) for low, count in ((2, 2), (8, 2), (14, 2))
    )
    if which == 0:
        if log_bytes >= 2:
            return a, b
        return a * (registers["OPA_SCALE"] & 0xFFFF), b * (registers["OPB_SCALE"] & 0xFFFF)
    fixed = 19 if log_bytes == 0 else 14
    scale, mode = scale_register(registers, "OPA_SCALE"), SMALL_ROUNDING[min(rounding, 2)]
    if which == 1:
        return scale.apply(a, mode), b << fixed
    return a << fixed, scale.apply(b, mode)


def _large(state: State, mode: int) -> np.ndarray:
    shape = state.output_shape()
    a = _large_operand(state, "IFM", shape)
    if mode in _LARGE_SCALED_INPUTS:
        a = _large_scaled(state, "IFM_SCALE", a)
    if mode in _UNARY:
        return _one_operand(mode, a)
    b = _large_operand(state, "IFM2", shape)
    if mode in _LARGE_SCALED_INPUTS:
        b = _large_scaled(state, "IFM2_SCALE", b)
    return _two_operands(state, mode, a, b)


def _large_operand(state: State, name: str, shape: tuple[int, int, int]) -> np.ndarray:
    """An input broadcast along the axes of its BROADCAST register, or OP_SCALAR."""
    broadcast = state.registers.get(f"{name}_BROADCAST", 0)
    if state.storage(name) == SCALAR or broadcast & LARGE_SCALAR:
        scalar = signed(state.registers["OP_SCALAR"], 32) - zero_point(state.registers, name)
        return np.full((1, 1, 1), scalar, np.int64)
    return state.load(name, *broadcast_shape(shape, broadcast))


def _large_scaled(state: State, name: str, values: np.ndarray) -> np.ndarray:
    parameter = state.registers.parameter.get(name, 0)
    if parameter >> 6 & 31:
        raise EmulationError(f"{name} asks for a double rounding, which is not modelled")
    rounding = Rounding.NATURAL if parameter >> 13 & 1 else Rounding.DOUBLE
    return scale_register(state.registers, name).apply(values, rounding)


def broadcast_shape(shape: tuple[int, int, int], axes: int) -> tuple[int, int, int]:
    return tuple(1 if axes >> i & 1 else size for i, size in enumerate(shape))  # type: ignore[return-value]


def _one_operand(mode: int, a: np.ndarray) -> np.ndarray:
    if mode == _ABS:
        return np.abs(a)
    if mode == _NOT:
        return ~a
    if mode == _CLZ:
        unsigned = a & 0xFFFFFFFF
        return 32 - np.frexp(unsigned.astype(np.float64))[1].astype(np.int64)
    raise EmulationError("elementwise LRELU is not modelled: Vela emits none for TOSA")


_SIMPLE: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    _MUL: np.multiply, _ADD: np.add, _SUB: np.subtract, _MIN: np.minimum, _MAX: np.maximum,
    _AND: np.bitwise_and, _OR: np.bitwise_or, _XOR: np.bitwise_xor, _AND_NOT: lambda a, b: a & ~b,
    _CMP_EQ: lambda a, b: -(a == b).astype(np.int64), _CMP_NE: lambda a, b: -(a != b).astype(np.int64),
    _CMP_GE: lambda a, b: -(a >= b).astype(np.int64), _CMP_GT: lambda a, b: -(a > b).astype(np.int64),
}  # fmt: skip


def _two_operands(state: State, mode: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if mode in _SIMPLE:
        return _SIMPLE[mode](a, b)
    if mode == _DIV:
        quotient = abs(a) // np.maximum(abs(b), 1)
        return np.where((a < 0) != (b < 0), -quotient, quotient)
    amount = b.clip(0, 63)
    if mode == _SHR:
        rounded = output_rounding(state) is Rounding.NATURAL
        carry = np.where(b > 0, a >> np.maximum(amount - 1, 0) & 1, 0) if rounded else 0
        return (a >> amount) + carry
    if mode == _SHL:
        return ((a << amount & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    if mode == _LSR and state.large:
        bits = 8 << state.registers.bits("IFM_PRECISION", 2, 2)
        return (a & (1 << bits) - 1) >> amount
    raise EmulationError(f"elementwise mode {mode} does not exist on Ethos-{state.accelerator.generation.upper()}")
