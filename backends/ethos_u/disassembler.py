"""A listing of a command stream that a person can read: shapes, formats, addresses and scales of each op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.emulator.elementwise import (
    UNARY,
    broadcast_shape,
    input_scales,
    scalar_operand,
    scales_output,
)
from tosaic.backends.ethos_u.emulator.feature_map import element_type, output_type, zero_point
from tosaic.backends.ethos_u.emulator.memory import RegionMemory
from tosaic.backends.ethos_u.emulator.output import TRANSPOSES, has_global_scale, output_rounding
from tosaic.backends.ethos_u.emulator.registers import Registers, command_name, signed
from tosaic.backends.ethos_u.emulator.scaling import Scale, scale_register
from tosaic.backends.ethos_u.emulator.state import CHAINED, EmulatorState
from tosaic.backends.ethos_u.emulator.stream import Command, command_words, commands
from tosaic.backends.ethos_u.emulator.window import KernelShape, upscale
from tosaic.backends.npu import EmulationError, NpuOp, op_of_command

_POOLS = ("maximum", "average", "sum over channels", "sum", "none", "minimum", "position of maximum x", "position y")
_ELEMENTWISE = {
    0: "MUL", 1: "ADD", 2: "SUB", 3: "MIN", 4: "MAX", 5: "LRELU", 6: "ABS", 7: "CLZ", 8: "SHR", 9: "SHL", 10: "LSR",
    11: "DIV", 16: "CMP_EQ", 17: "CMP_NE", 18: "CMP_GE", 19: "CMP_GT", 33: "AND", 34: "OR", 35: "XOR", 36: "NOT",
    42: "AND_NOT",
}  # fmt: skip
_RESIZES = ("bilinear", "replicate", "nearest")


def disassemble(stream: bytes, accelerator: str, ops: Sequence[NpuOp] = (), where: Sequence[str] = ()) -> str:
    """The listing of a command stream.

    Args:
        ops: the schedule of the region; without it, no TOSA ops are named.
        where: for each op of `main` but the constants, the user's source line; named beside the ops made from it.

    Raises:
        EmulationError: the stream is damaged; the message places the command.
    """
    return "\n".join(_lines(stream, accelerator, ops, where))


def _lines(stream: bytes, accelerator: str, ops: Sequence[NpuOp], where: Sequence[str]) -> Iterator[str]:
    target = find_accelerator(accelerator)
    words = command_words(stream)
    yield f"; {accelerator}, {4 * len(words)} bytes of commands"
    state = EmulatorState(target, RegionMemory({}, (), 0))
    for command in commands(words):
        try:
            name = command_name(command, target.generation)
        except EmulationError as error:
            raise error.at(command.offset, "a command") from None
        if name.startswith("NPU_SET_"):
            state.registers.set(name.removeprefix("NPU_SET_"), command)
            continue
        yield f"{command.offset:6}  {name}{_operands(name, command.parameter)}{_origin(command, name, ops, where)}"
        yield from (f"        {line}" for line in _describe(name, state, command.parameter))
        if name == "NPU_OP_STOP":
            return


def _origin(command: Command, name: str, ops: Sequence[NpuOp], where: Sequence[str]) -> str:
    if name in ("NPU_OP_STOP", "NPU_OP_DMA_WAIT", "NPU_OP_KERNEL_WAIT", "NPU_OP_IRQ", "NPU_OP_PMU_MASK"):
        return ""
    op = op_of_command(ops, command.offset)
    if op is None:
        return ""
    line = where[op.index] if 0 <= op.index < len(where) else ""
    return f"  ; {op.op} #{op.index}" + (f" at {line}" if line else "")


def _operands(name: str, parameter: int) -> str:
    if name == "NPU_OP_POOL":
        return f" {_POOLS[parameter & 7]}"
    if name == "NPU_OP_ELEMENTWISE":
        return f" {_ELEMENTWISE.get(parameter & 63, f'mode {parameter & 63}')}"
    if name == "NPU_OP_RESIZE":
        return f" {_RESIZES[min(parameter & 3, 2)]}"
    if name in ("NPU_OP_DMA_WAIT", "NPU_OP_KERNEL_WAIT"):
        return f" until {parameter} outstanding"
    return ""


def _describe(name: str, state: EmulatorState, parameter: int) -> Iterator[str]:
    registers = state.registers
    if name == "NPU_OP_DMA_START":
        yield _known(lambda: _transfer(registers))
        return
    if name not in ("NPU_OP_CONV", "NPU_OP_DEPTHWISE", "NPU_OP_POOL", "NPU_OP_ELEMENTWISE", "NPU_OP_RESIZE"):
        return
    elementwise = name == "NPU_OP_ELEMENTWISE"
    computed_weights = name == "NPU_OP_CONV" and state.large and bool(parameter & 1)
    two_inputs = computed_weights or (elementwise and parameter & 63 not in UNARY)
    weights = name in ("NPU_OP_CONV", "NPU_OP_DEPTHWISE") and not computed_weights
    for title, line in (
        ("ifm", lambda: _input(state, "IFM", name)),
        ("ifm2", lambda: _input(state, "IFM2", name) if two_inputs else ""),
        ("ofm", lambda: f"{_size(state.output_shape())} {_map(state, 'OFM', output_type(registers))}{_written(state)}"),
        ("kernel", lambda: "" if elementwise else _kernel(registers)),
        ("weights", lambda: _weights(registers) if weights else ""),
        ("scale", lambda: _scale(state, name, parameter)),
        ("blocks", lambda: _blocks(registers)),
    ):
        text = _known(line)
        if text:
            yield f"{title:8} {text}"


def _known(line: Callable[[], str]) -> str:
    """What `line` says, or that a register it needs was never set."""
    try:
        return line()
    except EmulationError as error:
        return f"({error.what})"


def _input(state: EmulatorState, which: str, name: str) -> str:
    scalar = scalar_operand(state, which) if name == "NPU_OP_ELEMENTWISE" else None
    if scalar is not None:
        return f"scalar {scalar} zero {zero_point(state.registers, which)}"
    precision = state.registers[f"{which}_PRECISION"]
    dtype = element_type(bool(precision & 1), precision >> 2 & 3)
    return f"{_size(_input_shape(state, which, name))} {_map(state, which, dtype)}"


def _input_shape(state: EmulatorState, which: str, name: str) -> tuple[int, ...]:
    registers, output = state.registers, state.output_shape()
    if name == "NPU_OP_ELEMENTWISE":
        return broadcast_shape(output, registers.get(f"{which}_BROADCAST", 0))
    depth = registers["IFM_DEPTH_M1"] + 1
    if which == "IFM2":
        return 1, output[2], depth
    if name == "NPU_OP_RESIZE":
        return registers["KERNEL_HEIGHT_M1"] + 1, registers["KERNEL_WIDTH_M1"] + 1, depth
    factor = upscale(registers)
    return *(-(-size // factor) for size in KernelShape.of(registers).input_size(output[:2])), depth


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _map(state: EmulatorState, name: str, dtype: str) -> str:
    registers = state.registers
    kind, zero = f"{'i' if 'i' in dtype else 'u'}{8 * int(dtype[-1])}", zero_point(registers, name)
    number = registers[f"{name}_REGION"] & 7
    if state.storage(name) == CHAINED:
        return f"{kind} chain buffer {number} zero {zero}"
    layout = "NHCWB16" if registers.bits(f"{name}_PRECISION", 6, 2) == 1 else "NHWC"
    strides = "/".join(str(registers.stride(f"{name}_STRIDE_{axis}")) for axis in "YXC")
    addresses = [registers.address(f"{name}_BASE{tile}") for tile in range(4)]
    bases = " ".join(f"{address:#x}" for tile, address in enumerate(addresses) if address or not tile)
    return f"{kind} {layout} region {number} at {bases} strides {strides} zero {zero}"


def _kernel(registers: Registers) -> str:
    kernel = KernelShape.of(registers)
    size, stride, dilation = (_size(pair) for pair in (kernel.size, kernel.stride, kernel.dilation))
    pad = "/".join(map(str, kernel.padding))
    scaled = ("", " upscaled", " upscaled with zeros", " ?")[registers.get("IFM_UPSCALE", 0) & 3]
    order = "part kernel first" if kernel.part_kernel_first else "depth first"
    return f"{size} stride {stride} dilation {dilation} pad {pad} {order}{scaled}"


def _weights(registers: Registers) -> str:
    streams = [
        f"{registers.address(f'{name}_LENGTH')} bytes at {registers.address(f'{name}_BASE'):#x}"
        for name in ("WEIGHT", "WEIGHT1", "WEIGHT2", "WEIGHT3")
        if registers.get(f"{name}_LENGTH", 0)
    ]
    return f"region {registers['WEIGHT_REGION'] & 7} {', '.join(streams)}"


def _scale(state: EmulatorState, name: str, parameter: int) -> str:
    registers = state.registers
    if name == "NPU_OP_ELEMENTWISE":
        inputs = [_factor(scale) for scale, _ in input_scales(state, parameter & 63)]
        before = f"inputs {' and '.join(inputs)}; " if inputs else ""
        scaled = scales_output(state, parameter & 63)
    else:
        before, scaled = "", has_global_scale(state)
    if scaled:
        factor = _factor(scale_register(registers, "OFM_SCALE"))
    elif name == "NPU_OP_ELEMENTWISE":
        factor = "none"
    else:
        factor = f"per channel, region {registers.get('SCALE_REGION', 0) & 7} at {registers.get('SCALE_BASE', 0):#x}"
    rounding = f" rounded {output_rounding(state).name.lower().replace('_', ' ')}" if factor != "none" else ""
    low, high = signed(registers["ACTIVATION_MIN"], 16), signed(registers["ACTIVATION_MAX"], 16)
    function = registers.bits("ACTIVATION", 0, 5)
    table = f", table function {function}" if function else ""
    return f"{before}{factor}{rounding}, clamped to {low}..{high}{table}"


def _factor(scale: Scale) -> str:
    return f"{scale.multiplier} >> {scale.shift}" if scale.shift else str(scale.multiplier)


def _written(state: EmulatorState) -> str:
    """How a U85 reverses and transposes the OFM on the way to memory."""
    reverse, transpose = (state.registers.bits("OFM_PRECISION", low, count) for low, count in ((9, 2), (11, 3)))
    if not state.large or not (reverse or transpose):
        return ""
    axes = "".join("HWC"[axis] for axis in TRANSPOSES.get(transpose, ()))
    reversal = f" reversed along {'HWC'[reverse - 1]}" if reverse else ""
    return f"{reversal} stored as {axes}" if transpose else reversal


def _blocks(registers: Registers) -> str:
    size = "x".join(str(registers[f"OFM_BLK_{axis}_M1"] + 1) for axis in ("HEIGHT", "WIDTH", "DEPTH"))
    return f"{size} blockdep {registers.get('BLOCKDEP', 0)}"


def _transfer(registers: Registers) -> str:
    source, target = registers["DMA0_SRC_REGION"], registers["DMA0_DST_REGION"]
    ends = ["table memory" if region >> 8 & 1 else f"region {region & 7}" for region in (source, target)]
    rows = registers.get("DMA0_SIZE0", 1) if source >> 9 & 3 else 1
    planes = registers.get("DMA0_SIZE1", 1) if source >> 9 & 3 == 2 else 1
    indexed = ", rows by index" if (source | target) >> 11 & 1 else ""
    return (
        f"{planes * rows} x {registers.address('DMA0_LEN')} bytes, {ends[0]} at {registers.address('DMA0_SRC'):#x} "
        f"to {ends[1]} at {registers.address('DMA0_DST'):#x}{indexed}"
    )
