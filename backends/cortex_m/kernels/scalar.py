"""Products on cores without vectors: CONV2D, DEPTHWISE_CONV2D and MATMUL as programs with their sketches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tosaic.backends.cortex_m.isa.isa import extends, sets_of
from tosaic.backends.cortex_m.kernel import Algorithm, KernelSource, Site, Workload
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, fold_zero_point, number
from tosaic.backends.cortex_m.program import algorithms
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Built, Knobs, of_schedule, variants
from tosaic.backends.cortex_m.program.rules import DERIVED
from tosaic.backends.cortex_m.program.sketches import depthwise, products
from tosaic.backends.cortex_m.program.sketches.products import Tile
from tosaic.backends.cortex_m.program.tree import Program, RefusedError
from tosaic.backends.target import Core
from tosaic.tuner.space import Choice, Schedule, Variant

_TILES = (
    "4x2",
    "2x4",
    "3x2",
    "2x3",
    "2x2",
    "6x1",
    "5x1",
    "4x1",
    "3x1",
    "2x1",
    "1x8",
    "1x6",
    "1x4",
    "1x2",
    "1x1",
)
_UNROLLED = (8, 16, 24, 32, 4, 12, 6, 10, 7, 5, 9, 3, 2, 1)
_ROWS = (1, 2, 4, 8, 16)
_PIXELS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class Conv2dProgram:
    """CONV2D of int8 to int8."""

    geometry: Geometry
    channels: int
    epilogue: Epilogue

    def program(self) -> Program:
        return algorithms.conv2d(self.geometry, self.channels, self.epilogue)

    def knobs(self, core: Core, deep: bool, small: bool) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `tile`, pixels x channels of the sums in registers; `unroll`, steps of the depth
        in a block; `isa`; `scale`, the form of the RESCALE; `windows`, whether they are copied, or read in place;
        `weights`, whether they lie as bytes, or as pairs of which each is one half."""
        pointwise = self.geometry.kernel == (1, 1) and not any(self.geometry.pad)
        return {
            "isa": tuple(sets_of(core)),
            "tile": _TILES,
            "unroll": _UNROLLED,
            "scale": ("high", "wide") if deep else ("wide",),
            "windows": ("copied", "in place") if pointwise else ("copied",),
            "weights": ("pairs", "bytes") if deep and small and self.geometry.pixels == 1 else ("bytes",),
        }

    def tile(self, knobs: Knobs) -> Tile:
        pixels, channels = map(int, str(knobs["tile"]).split("x"))
        g = self.geometry
        if pixels > g.columns or self.channels % channels:
            raise RefusedError(f"{g.columns} pixels and {self.channels} channels have no tile of {knobs['tile']}")
        return _tile(pixels, channels, g.columns, g.depth, knobs)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        tile, high, g = self.tile(knobs), knobs["scale"] == "high", self.geometry
        if tile.halves:
            if knobs["windows"] != "copied" or tile.unroll > -(-tile.depth // 4):
                raise RefusedError("halves are made of copies")
            if knobs["weights"] == "pairs":
                if tile.depth % (4 * tile.unroll) or not high:
                    raise RefusedError("pairs are no whole blocks")
                return products.carried_dense(tile)
            return products.dsp_conv2d(tile, high, g.channels % 4 == 0, any(g.pad))
        if tile.depth % tile.unroll or knobs["weights"] == "pairs":
            raise RefusedError(f"{tile.unroll} does not divide {tile.depth}, or weights are no bytes")
        return products.scalar_conv2d(tile, high, knobs["windows"] == "copied")

    def cost(self, knobs: Knobs) -> float:
        pairs = 0.8 if knobs["weights"] == "pairs" else 1.0
        return self.tile(knobs).cost * pairs + (knobs["scale"] == "wide") + (knobs["windows"] == "copied") / 100


@dataclass(frozen=True)
class DepthwiseProgram:
    """DEPTHWISE_CONV2D of int8 to int8."""

    geometry: Geometry
    multiples: int
    epilogue: Epilogue

    def program(self) -> Program:
        return algorithms.depthwise(self.geometry, self.multiples, self.epilogue)

    def knobs(self, core: Core, deep: bool, small: bool) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open: `rows` of results whose part of the image is copied together; `pixels` whose sums
        lie in registers; `copied` pixels in a turn of the copy; `isa`; `scale`, the form of the RESCALE."""
        g = self.geometry
        return {
            "isa": tuple(sets_of(core)),
            "rows": (g.rows, *(n for n in _ROWS if n < g.rows)),
            "pixels": tuple(n for n in _PIXELS if n <= g.columns),
            "copied": tuple(dict.fromkeys(min(n, g.width) for n in (4, 8, 2, 1))),
            "scale": ("high", "wide") if deep else ("wide",),
        }

    def steps(self, knobs: Knobs) -> Iterator[str]:
        isa = str(knobs["isa"])
        strip = depthwise.Strip(int(knobs["rows"]), int(knobs["pixels"]), int(knobs["copied"]), isa)
        high = knobs["scale"] == "high"
        if extends(isa, "dsp"):
            if strip.pixels % 2 or self.geometry.dilation[1] > 1:
                raise RefusedError("halves are multiplied two by two")
            return depthwise.dsp_depthwise(self.geometry, self.multiples, strip, high)
        return depthwise.scalar_depthwise(self.geometry, self.multiples, strip, high)

    def cost(self, knobs: Knobs) -> float:
        pixels, rows, g = int(knobs["pixels"]), int(knobs["rows"]), self.geometry
        across, down = -(-g.columns // pixels) * pixels / g.columns, -(-g.rows // rows) * rows / g.rows
        copied = (rows * g.stride[0] + g.span[0] - g.stride[0]) / (rows * g.stride[0])
        halves = 0.8 if extends(str(knobs["isa"]), "dsp") else 1.0
        return across * down * (halves * (1 + 0.5 / pixels) + copied / 4) + (knobs["scale"] == "wide")


@dataclass(frozen=True)
class MatmulProgram:
    """MATMUL of two int8 tensors to int8."""

    batch: int
    rows: int
    depth: int
    columns: int
    epilogue: Epilogue

    def program(self) -> Program:
        return algorithms.matmul(self.batch, self.rows, self.depth, self.columns, self.epilogue)

    def knobs(self, core: Core, deep: bool, small: bool) -> dict[str, tuple[Choice, ...]]:
        """The numbers that are open, as of `Conv2dProgram`."""
        scale = ("high", "wide") if deep else ("wide",)
        return {"isa": tuple(sets_of(core)), "tile": _TILES, "unroll": _UNROLLED, "scale": scale}

    def tile(self, knobs: Knobs) -> Tile:
        rows, columns = map(int, str(knobs["tile"]).split("x"))
        if rows > self.rows or self.columns % columns:
            raise RefusedError(f"{self.rows} rows and {self.columns} columns have no tile of {knobs['tile']}")
        return _tile(rows, columns, self.rows, self.depth, knobs)

    def steps(self, knobs: Knobs) -> Iterator[str]:
        tile, high = self.tile(knobs), knobs["scale"] == "high"
        halves = tile.halves
        steps = tile.depth // 2 if halves else tile.depth
        if (halves and tile.depth % 2) or steps % tile.unroll:
            raise RefusedError(f"{tile.unroll} steps do not divide a depth of {tile.depth}")
        return products.dsp_matmul(tile, high) if halves else products.scalar_matmul(tile, high)

    def cost(self, knobs: Knobs) -> float:
        return self.tile(knobs).cost + (knobs["scale"] == "wide")


def _tile(pixels: int, channels: int, columns: int, depth: int, knobs: Knobs) -> Tile:
    isa = str(knobs["isa"])
    return Tile(pixels, channels, columns, depth, int(knobs["unroll"]), isa, extends(isa, "dsp"))


def is_deep(constants: Mapping[str, np.ndarray]) -> bool:
    """Whether a RESCALE can be made of high words, given the constants that an algorithm names."""
    if "shift" not in constants:
        return False
    return DERIVED["round"](constants["shift"].astype(np.int64), constants["zero"].astype(np.int64)) is not None


def is_small(constants: Mapping[str, np.ndarray]) -> bool:
    """Whether sums are so small that weights may lie in pairs."""
    if "w" not in constants:
        return False
    weights, bias = (constants[name].astype(np.int64) for name in ("w", "bias"))
    rows = weights.reshape(len(weights), -1)
    if rows.shape[1] % 2 or DERIVED["carried"](rows) is None:
        return False
    return DERIVED["carried_bias"](bias, rows) is not None and bool((constants["shift"] <= 54).all())


def normalized(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 multipliers and shifts that scale alike, each multiplier as large as int32 and a shift of 62 allow."""
    bits = np.frexp(np.maximum(multiplier, 1).astype(np.float64))[1]
    up = np.minimum(31 - bits, 62 - shift.astype(np.int32))
    return (multiplier.astype(np.int64) << up).astype(np.int32), (shift + up).astype(np.int32)


def algorithm_of(workload: Workload) -> Algorithm | None:
    """What a product computes; None where the result is no int8."""
    if not _is_known(workload):
        return None
    return Algorithm(_PROGRAMS[workload.kind](workload).program(), constants_of(workload))


def _is_known(workload: Workload) -> bool:
    return workload.attributes.get("result", "int8") == "int8"


def offered(workload: Workload, core: Core, site: Site) -> Sequence[Variant]:
    """The schedules of a product on a core without vectors; none where the result is no int8."""
    if not _is_known(workload):
        return ()
    what, constants = _PROGRAMS[workload.kind](workload), constants_of(workload)
    return variants("program", what, what.knobs(core, is_deep(constants), is_small(constants)), core, site)


def kernel_of(workload: Workload, schedule: Schedule, core: Core) -> Built:
    """The kernel of a schedule, without its constants.

    Raises:
        RefusedError: the schedule is not legal.
    """
    return of_schedule(_PROGRAMS[workload.kind](workload), schedule, core)


def source_of(workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
    """The kernel of a schedule.

    Raises:
        RefusedError: the schedule is not legal, or not for these constants.
    """
    return kernel_of(workload, schedule, core).source(workload.kind, constants_of(workload))


def _conv2d(workload: Workload) -> Conv2dProgram:
    geometry = Geometry.of(workload.attributes).flattened
    return Conv2dProgram(geometry, number(workload, "out_channels"), _epilogue(workload))


def _depthwise(workload: Workload) -> DepthwiseProgram:
    return DepthwiseProgram(Geometry.of(workload.attributes), number(workload, "multiples"), _epilogue(workload))


def _matmul(workload: Workload) -> MatmulProgram:
    batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
    return MatmulProgram(batch, rows, depth, columns, _epilogue(workload))


_PROGRAMS: Mapping[str, Callable[[Workload], Conv2dProgram | DepthwiseProgram | MatmulProgram]] = MappingProxyType(
    {"conv2d": _conv2d, "depthwise_conv2d": _depthwise, "matmul": _matmul}
)


def _epilogue(workload: Workload) -> Epilogue:
    return Epilogue(bool(workload.attributes["clamped"]), bool(workload.attributes["table"]))


def constants_of(workload: Workload) -> dict[str, np.ndarray]:
    """The constants that the algorithms name."""
    constants = dict(workload.constants)
    zero, low, upper = (np.array(value, np.int32) for value in constants["range"])
    multiplier, shift = normalized(constants["multiplier"], constants["shift"])
    found = {"zero": zero, "low": low, "upper": upper, "multiplier": multiplier, "shift": shift}
    if "table" in constants:
        found["table"] = constants["table"]
    if "weights" not in constants:
        names = ("a_zero", "b_zero")
        return found | {name: np.array(constants[f"{name}_point"].item(), np.int32) for name in names}
    edge = int(constants["input_zero_point"].item())
    found["bias"] = fold_zero_point(constants["bias"], constants["weights"], edge)
    return found | {"w": constants["weights"], "edge": np.array(edge, np.int32)}
