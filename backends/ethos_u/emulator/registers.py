"""The NPU's registers: which command sets which, for both register layouts, and the values held during a run.

Command codes and field positions are those of Arm's interface descriptions for Ethos-U65 (U55 is a subset) and U85.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tosaic.backends.ethos_u.emulator.stream import Command
from tosaic.backends.npu import EmulationError

OPERATIONS = {
    0: "STOP", 1: "IRQ", 2: "CONV", 3: "DEPTHWISE", 5: "POOL", 6: "ELEMENTWISE", 7: "RESIZE",
    16: "DMA_START", 17: "DMA_WAIT", 18: "KERNEL_WAIT", 19: "PMU_MASK",
}  # fmt: skip

_FEATURE_MAP_0 = {
    261: "IFM_PRECISION", 265: "IFM_ZERO_POINT", 266: "IFM_WIDTH0_M1", 267: "IFM_HEIGHT0_M1", 268: "IFM_HEIGHT1_M1",
    271: "IFM_REGION", 276: "OFM_PRECISION", 280: "OFM_ZERO_POINT", 282: "OFM_WIDTH0_M1", 283: "OFM_HEIGHT0_M1",
    284: "OFM_HEIGHT1_M1", 287: "OFM_REGION", 384: "IFM2_BROADCAST", 389: "IFM2_PRECISION", 393: "IFM2_ZERO_POINT",
    394: "IFM2_WIDTH0_M1", 395: "IFM2_HEIGHT0_M1", 396: "IFM2_HEIGHT1_M1", 399: "IFM2_REGION",
}  # fmt: skip
_COMMON_0 = {
    **_FEATURE_MAP_0,
    256: "IFM_PAD_TOP", 257: "IFM_PAD_LEFT", 258: "IFM_PAD_RIGHT", 259: "IFM_PAD_BOTTOM", 260: "IFM_DEPTH_M1",
    263: "IFM_UPSCALE", 273: "OFM_WIDTH_M1", 274: "OFM_HEIGHT_M1", 275: "OFM_DEPTH_M1", 277: "OFM_BLK_WIDTH_M1",
    278: "OFM_BLK_HEIGHT_M1", 279: "OFM_BLK_DEPTH_M1", 288: "KERNEL_WIDTH_M1", 289: "KERNEL_HEIGHT_M1",
    290: "KERNEL_STRIDE", 292: "ACC_FORMAT", 293: "ACTIVATION", 294: "ACTIVATION_MIN", 295: "ACTIVATION_MAX",
    296: "WEIGHT_REGION", 297: "SCALE_REGION", 303: "BLOCKDEP", 304: "DMA0_SRC_REGION", 305: "DMA0_DST_REGION",
    306: "DMA0_SIZE0", 307: "DMA0_SIZE1",
}  # fmt: skip
_SMALL_0 = {269: "IFM_IB_END", 291: "PARALLEL_MODE", 301: "AB_START", 385: "IFM2_SCALAR", 397: "IFM2_IB_START"}
_LARGE_0 = {
    264: "IFM_BROADCAST", 298: "RESIZE_X_SCALE_N_M1", 299: "RESIZE_Y_SCALE_N_M1", 300: "RESIZE_X_OFFSET",
    301: "RESIZE_Y_OFFSET", 302: "WEIGHT_FORMAT", 308: "DMA0_IDX_REGION",
}  # fmt: skip

_COMMON_1 = {
    **{first + i: f"{name}_BASE{i}" for first, name in ((0, "IFM"), (16, "OFM"), (128, "IFM2")) for i in range(4)},
    **{
        first + 4 + i: f"{name}_STRIDE_{axis}"
        for first, name in ((0, "IFM"), (16, "OFM"), (128, "IFM2"))
        for i, axis in enumerate("XYC")
    },
    32: "WEIGHT_BASE", 33: "WEIGHT_LENGTH", 34: "SCALE_BASE", 35: "SCALE_LENGTH", 36: "OFM_SCALE",
    48: "DMA0_SRC", 49: "DMA0_DST", 50: "DMA0_LEN", 144: "WEIGHT1_BASE", 145: "WEIGHT1_LENGTH",
}  # fmt: skip
_SMALL_1 = {
    37: "OPA_SCALE", 38: "OPB_SCALE", 51: "DMA0_SKIP0", 52: "DMA0_SKIP1", 146: "SCALE1_BASE", 147: "SCALE1_LENGTH",
}  # fmt: skip
_LARGE_1 = {
    37: "IFM_SCALE", 38: "IFM2_SCALE", 39: "OP_SCALAR", 51: "DMA0_SRC_STRIDE0", 52: "DMA0_SRC_STRIDE1",
    53: "DMA0_DST_STRIDE0", 54: "DMA0_DST_STRIDE1", 55: "DMA0_IDX", 56: "DMA0_IDX_MAX", 57: "DMA0_IDX_SKIP1",
    146: "WEIGHT2_BASE", 147: "WEIGHT2_LENGTH", 148: "WEIGHT3_BASE", 149: "WEIGHT3_LENGTH", 150: "RESIZE_X_STEP",
    151: "RESIZE_Y_STEP", 256: "OP_BRANCH",
}  # fmt: skip

_SMALL = ({**_COMMON_0, **_SMALL_0}, {**_COMMON_1, **_SMALL_1})
_LARGE = ({**_COMMON_0, **_LARGE_0}, {**_COMMON_1, **_LARGE_1})


def command_name(command: Command, generation: str) -> str:
    """`NPU_OP_CONV`, `NPU_SET_IFM_BASE0`, ...

    Raises:
        EmulationError: the generation has no such command.
    """
    if command.payload is None and command.code in OPERATIONS and (command.code != 7 or generation == "u85"):
        return f"NPU_OP_{OPERATIONS[command.code]}"
    narrow, wide = _LARGE if generation == "u85" else _SMALL
    name = (narrow if command.payload is None else wide).get(command.code)
    if name is None:
        form = 0 if command.payload is None else 1
        raise EmulationError(f"CMD{form} {command.code} is no command of Ethos-{generation.upper()}")
    return f"NPU_{name}" if name.startswith("OP_BRANCH") else f"NPU_SET_{name}"


def signed(value: int, bits: int) -> int:
    """`value`'s low `bits` as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass
class Registers:
    """Values by name. A wide register is `payload`, and `parameter` holds the 16 bits beside its code."""

    payload: dict[str, int] = field(default_factory=dict)
    parameter: dict[str, int] = field(default_factory=dict)

    def set(self, name: str, command: Command) -> None:
        self.parameter[name] = command.parameter
        self.payload[name] = command.parameter if command.payload is None else command.payload

    def __getitem__(self, name: str) -> int:
        """The unsigned value of a narrow register, or the 32-bit payload of a wide one.

        Raises:
            EmulationError: the stream has not set it.
        """
        if name not in self.payload:
            raise EmulationError(f"{name} is used and was never set")
        return self.payload[name]

    def get(self, name: str, default: int) -> int:
        return self.payload.get(name, default)

    def address(self, name: str) -> int:
        """A 40-bit address, offset or length."""
        return self[name] | (self.parameter[name] & 0xFF) << 32

    def stride(self, name: str) -> int:
        """A signed 40-bit stride, 0 where it was never set."""
        if name not in self.payload:
            return 0
        return signed(self.payload[name], 32)

    def bits(self, name: str, low: int, count: int) -> int:
        return self[name] >> low & (1 << count) - 1
