"""A listing of a command stream that a person can read: shapes, formats, addresses and scales of each op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tosaic.backends.ethos_u.accelerators import accelerator as find_accelerator
from tosaic.backends.ethos_u.emulator.errors import EmulationError
from tosaic.backends.ethos_u.emulator.registers import Registers, command_name, signed
from tosaic.backends.ethos_u.emulator.stream import command_words, commands
from tosaic.backends.ethos_u.vela import NpuOp, NpuRegion

_POOLS = ("maximum", "average", "sum over channels", "sum", "none", "minimum", "position of maximum x", "position y")
_ELEMENTWISE = {
    0: "MUL", 1: "ADD", 2: "SUB", 3: "MIN", 4: "MAX", 5: "LRELU", 6: "ABS", 7: "CLZ", 8: "SHR", 9: "SHL", 10: "LSR",
    11: "DIV", 16: "CMP_EQ", 17: "CMP_NE", 18: "CMP_GE", 19: "CMP_GT", 33: "AND", 34: "OR", 35: "XOR", 36: "NOT",
    42: "AND_NOT",
}  # fmt: skip
_RESIZES = ("bilinear", "replicate", "nearest")
_SMALL_ROUNDING = ("double", "to zero", "natural", "?")
_LARGE_ROUNDING = ("double", "natural", "double", "symmetric", "to zero", "down", "?", "?")


def disassemble(region: NpuRegion, where: Sequence[str] = ()) -> str:
    """The listing of a compiled region.

    Args:
        where: for each op of `main` but the constants, the user's source line; named beside the ops made from it.
    """
    return "\n".join(_lines(region.command_stream, region.accelerator, region.ops, where))


def disassemble_stream(command_stream: bytes, accelerator: str) -> str:
    """The listing of a bare command stream, which knows no TOSA ops.

    Raises:
        EmulationError: the stream is damaged; the message places the command.
    """
    return "\n".join(_lines(command_stream, accelerator, (), ()))


def _lines(stream: bytes, accelerator: str, ops: Sequence[NpuOp], where: Sequence[str]) -> Iterator[str]:
    generation = find_accelerator(accelerator).generation
    words = command_words(stream)
    yield f"; {accelerator}, {4 * len(words)} bytes of commands"
    registers, origin = Registers(), _Origins(ops, where)
    for command in commands(words):
        try:
            name = command_name(command, generation)
        except EmulationError as error:
            raise error.at(command.offset, "a command") from None
        if name.startswith("NPU_SET_"):
            registers.set(name.removeprefix("NPU_SET_"), command)
            continue
        yield f"{command.offset:6}  {name}{_operands(name, command.parameter)}{origin.of(command.offset, name)}"
        yield from (f"        {line}" for line in _describe(name, registers, command.parameter, generation))
        if name == "NPU_OP_STOP":
            return


class _Origins:
    """Finds the TOSA op behind a command: Vela notes where the commands of an op end."""

    def __init__(self, ops: Sequence[NpuOp], where: Sequence[str]) -> None:
        self._ends = sorted(((offset, op) for op in ops for offset in op.offsets), key=lambda end: end[0])
        self._where = where

    def of(self, offset: int, name: str) -> str:
        if name in ("NPU_OP_STOP", "NPU_OP_DMA_WAIT", "NPU_OP_KERNEL_WAIT", "NPU_OP_IRQ", "NPU_OP_PMU_MASK"):
            return ""
        op = next((op for end, op in self._ends if offset <= end and op.op), None)
        if op is None:
            return ""
        line = self._where[op.index] if 0 <= op.index < len(self._where) else ""
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


def _describe(name: str, registers: Registers, parameter: int, generation: str) -> Iterator[str]:
    if name == "NPU_OP_DMA_START":
        yield _transfer(registers)
        return
    if name not in ("NPU_OP_CONV", "NPU_OP_DEPTHWISE", "NPU_OP_POOL", "NPU_OP_ELEMENTWISE", "NPU_OP_RESIZE"):
        return
    for title, line in (
        ("ifm", lambda: _input(registers, "IFM")),
        ("ifm2", lambda: _input(registers, "IFM2") if name == "NPU_OP_ELEMENTWISE" else ""),
        ("ofm", lambda: _output(registers)),
        ("kernel", lambda: "" if name == "NPU_OP_ELEMENTWISE" else _kernel(registers)),
        ("weights", lambda: _weights(registers) if name in ("NPU_OP_CONV", "NPU_OP_DEPTHWISE") else ""),
        ("scale", lambda: _scale(registers, generation)),
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


def _input(registers: Registers, name: str) -> str:
    precision = registers[f"{name}_PRECISION"]
    depth = f" depth {registers['IFM_DEPTH_M1'] + 1}" if name == "IFM" else ""
    scalar = f" scalar {registers['IFM2_SCALAR']}" if name == "IFM2" and "IFM2_SCALAR" in registers.payload else ""
    broadcast = registers.get(f"{name}_BROADCAST", 0)
    spread = f" broadcast {broadcast:#x}" if broadcast else ""
    return _map(registers, name, precision & 1, precision >> 2 & 3) + depth + spread + scalar


def _output(registers: Registers) -> str:
    precision = registers["OFM_PRECISION"]
    shape = "x".join(str(registers[f"OFM_{axis}_M1"] + 1) for axis in ("HEIGHT", "WIDTH", "DEPTH"))
    return f"{shape} {_map(registers, 'OFM', precision & 1, precision >> 1 & 3)}"


def _map(registers: Registers, name: str, is_signed: int, log_bytes: int) -> str:
    layout = "NHCWB16" if registers.bits(f"{name}_PRECISION", 6, 2) == 1 else "NHWC"
    zero = registers[f"{name}_ZERO_POINT"]
    strides = "/".join(str(registers.stride(f"{name}_STRIDE_{axis}")) for axis in "YXC")
    bases = " ".join(
        f"{registers.address(f'{name}_BASE{i}'):#x}" for i in range(4) if registers.address(f"{name}_BASE{i}")
    )
    return (
        f"{'i' if is_signed else 'u'}{8 << log_bytes} {layout} region {registers[f'{name}_REGION'] & 7} "
        f"at {bases or '0x0'} strides {strides} zero {signed(zero, 16) if is_signed else zero}"
    )


def _kernel(registers: Registers) -> str:
    bits = registers["KERNEL_STRIDE"]
    stride = (bits >> 1 & 1 | bits >> 9 << 1 & 2) + 1, (bits & 1 | bits >> 6 << 1 & 2) + 1
    dilation = (bits >> 4 & 1) + 1, (bits >> 3 & 1) + 1
    pad = "/".join(str(registers[f"IFM_PAD_{side}"]) for side in ("TOP", "LEFT", "BOTTOM", "RIGHT"))
    size = f"{registers['KERNEL_HEIGHT_M1'] + 1}x{registers['KERNEL_WIDTH_M1'] + 1}"
    upscale = ("", " upscaled", " upscaled with zeros", " ?")[registers.get("IFM_UPSCALE", 0) & 3]
    order = "part kernel first" if bits >> 2 & 1 else "depth first"
    return f"{size} stride {stride[0]}x{stride[1]} dilation {dilation[0]}x{dilation[1]} pad {pad} {order}{upscale}"


def _weights(registers: Registers) -> str:
    streams = [
        f"{registers.address(f'{name}_LENGTH')} bytes at {registers.address(f'{name}_BASE'):#x}"
        for name in ("WEIGHT", "WEIGHT1", "WEIGHT2", "WEIGHT3")
        if registers.get(f"{name}_LENGTH", 0)
    ]
    return f"region {registers['WEIGHT_REGION'] & 7} {', '.join(streams)}"


def _scale(registers: Registers, generation: str) -> str:
    if generation == "u85":
        rounding = _LARGE_ROUNDING[registers.parameter.get("OFM_SCALE", 0) >> 13]
    else:
        rounding = _SMALL_ROUNDING[registers.bits("OFM_PRECISION", 14, 2)]
    if registers.bits("OFM_PRECISION", 8, 1):
        factor = f"{registers['OFM_SCALE']} >> {registers.parameter['OFM_SCALE'] & 63}"
    else:
        factor = f"per channel, region {registers.get('SCALE_REGION', 0) & 7} at {registers.get('SCALE_BASE', 0):#x}"
    low, high = signed(registers["ACTIVATION_MIN"], 16), signed(registers["ACTIVATION_MAX"], 16)
    function = registers.bits("ACTIVATION", 0, 5)
    table = f" table function {function}" if function else ""
    return f"{factor} rounded {rounding}, clamped to {low}..{high}{table}"


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
