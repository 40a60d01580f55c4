"""NPU_OP_ELEMENTWISE: one or two inputs, broadcast, with their scaling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.backends.ethos_u.emulator.feature_map import zero_point
from tosaic.backends.ethos_u.emulator.output import Scaling, has_global_scale, output_rounding, output_stage
from tosaic.backends.ethos_u.emulator.registers import signed
from tosaic.backends.ethos_u.emulator.scaling import SMALL_ROUNDING, Rounding, Scale, scale_register
from tosaic.backends.ethos_u.emulator.state import SCALAR, EmulatorState
from tosaic.backends.npu import EmulationError

_MUL, _ADD, _SUB, _MIN, _MAX, _LRELU, _ABS, _CLZ, _SHR, _SHL = range(10)
_LSR, _DIV = 10, 11
_CMP_EQ, _CMP_NE, _CMP_GE, _CMP_GT = range(16, 20)
_AND, _OR, _XOR, _NOT, _AND_NOT = 33, 34, 35, 36, 42
UNARY = (_LRELU, _ABS, _CLZ, _NOT)
# The ops with scaled inputs on U85, and those whose result OFM_SCALE scales.
_LARGE_SCALED_INPUTS = (_ADD, _SUB, _ABS, _MIN, _MAX, _CMP_EQ, _CMP_NE, _CMP_GE, _CMP_GT)
_SMALL_SCALED, _LARGE_SCALED = (_MUL, _ADD, _SUB, _ABS), (_MUL, _ADD, _SUB, _ABS, _MIN, _MAX)
_SWAP, _SMALL_SCALAR = 1 << 6, 1 << 7  # IFM2_BROADCAST on U55 and U65
_LARGE_SCALAR = 1 << 3  # the BROADCAST registers on U85


def elementwise(state: EmulatorState, parameter: int) -> None:
    """An elementwise op; the low six bits of `parameter` name it."""
    mode, shape = parameter & 63, state.output_shape()
    names = ("IFM",) if mode in UNARY else ("IFM", "IFM2")
    operands = [_operand(state, name, shape) for name in names]
    scales = input_scales(state, mode)
    if scales:
        operands = [scale.apply(x, rounding) for x, (scale, rounding) in zip(operands, scales, strict=False)]
    if not state.large and len(operands) == 2 and state.registers["IFM2_BROADCAST"] & _SWAP:
        operands.reverse()
    if mode == _LRELU:
        values = _leaky_relu(state, *operands)
    else:
        values = _one_operand(mode, *operands) if mode in UNARY else _two_operands(state, mode, *operands)
    output_stage(state, np.broadcast_to(values, shape), _output_scaling(state, mode))


def _output_scaling(state: EmulatorState, mode: int) -> Scaling:
    """A product of operands of 32 bits takes the shift of OFM_SCALE alone.

    Vela's softmax for LiteRT needs that, and four published networks equal LiteRT with it; Arm documents it nowhere.
    """
    if not scales_output(state, mode):
        return Scaling.NONE
    wide = state.registers.bits("IFM_PRECISION", 2, 2) >= 2
    return Scaling.SHIFT if mode == _MUL and wide else Scaling.GLOBAL


def _leaky_relu(state: EmulatorState, x: np.ndarray) -> np.ndarray:
    """What is below 0 times OFM_SCALE; on U85 times IFM2_SCALE, and what is not, times IFM_SCALE."""
    if state.large:
        scales = [_large_scale(state, name) for name in ("IFM2_SCALE", "IFM_SCALE")]
        below, above = (scale.apply(x, rounding) for scale, rounding in scales)
        return np.where(x < 0, below, above)
    return np.where(x < 0, scale_register(state.registers, "OFM_SCALE").apply(x, output_rounding(state)), x)


def scales_output(state: EmulatorState, mode: int) -> bool:
    """Whether OFM_SCALE scales what the op computes."""
    return has_global_scale(state) and mode in (_LARGE_SCALED if state.large else _SMALL_SCALED)


def input_scales(state: EmulatorState, mode: int) -> tuple[tuple[Scale, Rounding], ...]:
    """By what the op scales IFM and IFM2 before it computes; empty where it takes them as they are.

    U55 and U65 do it in ADD and SUB. Simple: both times 16 bits. Advanced: one operand times 32 bits and shifted, the
    other shifted left by the fixed 19 (i8) or 14 (i16). OPA belongs to IFM and OPB to IFM2 whichever comes first.
    """
    if state.large:
        names = ("IFM_SCALE", "IFM2_SCALE")[: 1 if mode in UNARY else 2]
        return tuple(_large_scale(state, name) for name in names) if mode in _LARGE_SCALED_INPUTS else ()
    registers = state.registers
    log_bytes, which = registers.bits("IFM_PRECISION", 2, 2), registers.bits("IFM_PRECISION", 8, 2)
    if mode not in (_ADD, _SUB) or (which == 0 and log_bytes >= 2):
        return ()
    rounding = SMALL_ROUNDING[min(registers.bits("IFM_PRECISION", 14, 2), 2)]
    if which == 0:
        return tuple((Scale(registers[name] & 0xFFFF, 0), rounding) for name in ("OPA_SCALE", "OPB_SCALE"))
    advanced, fixed = scale_register(registers, "OPA_SCALE"), Scale(1 << (19 if log_bytes == 0 else 14), 0)
    pair = (advanced, fixed) if which == 1 else (fixed, advanced)
    return tuple((scale, rounding) for scale in pair)


def _large_scale(state: EmulatorState, name: str) -> tuple[Scale, Rounding]:
    """An input scale on U85: where the register asks for it, the operand is shifted left before, as LiteRT's ADD does.

    The shift changes nothing but where a double rounding rounds first.
    """
    parameter, scale = state.registers.parameter.get(name, 0), scale_register(state.registers, name)
    shifted = parameter >> 6 & 31
    rounding = Rounding.NATURAL if parameter >> 13 & 1 else Rounding.DOUBLE
    return Scale(scale.multiplier << shifted, scale.shift + shifted), rounding


def scalar_operand(state: EmulatorState, name: str) -> int | None:
    """The number that stands for IFM or IFM2; None where it is a feature map."""
    registers = state.registers
    broadcast = registers.get(f"{name}_BROADCAST", 0)
    if state.large:
        scalar = state.storage(name) == SCALAR or broadcast & _LARGE_SCALAR
        return signed(registers["OP_SCALAR"], 32) if scalar else None
    if name == "IFM" or not broadcast & _SMALL_SCALAR:
        return None
    return signed(registers["IFM2_SCALAR"], 16) if registers["IFM2_PRECISION"] & 1 else registers["IFM2_SCALAR"]


def _operand(state: EmulatorState, name: str, shape: tuple[int, int, int]) -> np.ndarray:
    """An input, broadcast along the axes of its BROADCAST register, or a number; less its zero point."""
    scalar = scalar_operand(state, name)
    if scalar is not None:
        return np.full((1, 1, 1), scalar - zero_point(state.registers, name), np.int64)
    return state.load(name, *broadcast_shape(shape, state.registers.get(f"{name}_BROADCAST", 0)))


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
    raise EmulationError(f"elementwise mode {mode} has no single operand")


_SIMPLE: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    _MUL: np.multiply, _ADD: np.add, _SUB: np.subtract, _MIN: np.minimum, _MAX: np.maximum,
    _AND: np.bitwise_and, _OR: np.bitwise_or, _XOR: np.bitwise_xor, _AND_NOT: lambda a, b: a & ~b,
    _CMP_EQ: lambda a, b: -(a == b).astype(np.int64), _CMP_NE: lambda a, b: -(a != b).astype(np.int64),
    _CMP_GE: lambda a, b: -(a >= b).astype(np.int64), _CMP_GT: lambda a, b: -(a > b).astype(np.int64),
}  # fmt: skip


def _two_operands(state: EmulatorState, mode: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
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
