"""Random TOSA graphs, compiled by Vela, executed by the emulator and compared with the reference model.

    python tests/backends/ethos_u/fuzz.py ethos-u55-128 --graphs 1000 --seed 0

Each graph has 1 to 6 steps over one or two inputs, with branches: convolutions, pools, elementwise ops, tables, matrix
products, data movement, reductions, on i8 and i16. A graph is compiled and proven as tosaic does, and then executed on
data that the proof has not seen; and once more for a small arena, where Vela cascades. Exits with 1 where a graph
differs; `--only N` repeats graph N. At the end stands how often each rule suspected Vela, and how often it was right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tosa_graphs import Graph, random_inputs

from tosaic.backends import reference
from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.ethos_u.acceptance import refusal, suspicion
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.emulator.registers import Registers, command_name
from tosaic.backends.ethos_u.emulator.stream import command_words, commands
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.npu import EmulationError, NpuOptions, NpuRegion, op_of_command
from tosaic.compiler.verdicts import verdict
from tosaic.support.errors import BackendError
from tosaic.support.mlir import element_type, ir, shape_of, walk

USUAL = NpuOptions()
Step = Callable[["Fuzz", ir.Value], "ir.Value | None"]


@dataclass
class Outcome:
    """How a graph fared.

    `exact`, `different`, `emulator` (an EmulationError), `refused`, `unpredictable`; or `cascade`: exact as tosaic
    compiles it, and in a small arena wrong by a known error of Vela's.

    Args:
        suspicions: of Vela, each with whether it was an error.
    """

    kind: str
    detail: str = ""
    suspicions: tuple[tuple[str, bool], ...] = ()


@dataclass
class Fuzz:
    """One random graph."""

    rng: np.random.Generator
    large: bool
    graph: Graph = field(default_factory=Graph)
    steps: list[str] = field(default_factory=list)

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def zero(self, x: ir.Value | str) -> int:
        element = x if isinstance(x, str) else str(element_type(x))
        return self.between(-128, 127) if element == "i8" else 0

    def rounding(self) -> str:
        return str(self.rng.choice(["SINGLE_ROUND", "SINGLE_ROUND", "DOUBLE_ROUND"]))

    def padding(self, size: int, extent: int, stride: int) -> tuple[int, int] | None:
        """Padding below the kernel's extent under which the kernel fits and the stride divides, as TOSA demands."""
        fitting = [
            (before, after)
            for before in range(extent)
            for after in range(extent)
            if size + before + after >= extent and (size + before + after - extent) % stride == 0
        ]
        return fitting[self.between(0, len(fitting) - 1)] if fitting else None


def _typed(x: ir.Value) -> str:
    return str(element_type(x))


def _sparse_weights(f: Fuzz, shape: Sequence[int]) -> np.ndarray:
    weights = f.rng.integers(-127, 128, shape) * (f.rng.random(shape) >= f.rng.choice([0, 0.5, 0.95]))
    return np.sign(weights) * f.between(1, 7) if f.chance(0.2) else weights


def _requantize(f: Fuzz, y: ir.Value, element: str, fan_in: int) -> ir.Value:
    channels = shape_of(y)[-1] if f.chance(0.7) else 1
    size = 40 / (73 * 73 * np.sqrt(fan_in)) if element == "i8" else 1 / (73 * np.sqrt(fan_in))
    scales = f.rng.uniform(0.2, 1.0, channels) * size
    rounding = "SINGLE_ROUND" if _typed(y) == "i48" else f.rounding()
    return f.graph.requantize(y, element, scales, output_zero=f.zero(element), rounding=rounding)


def convolution(f: Fuzz, x: ir.Value, *, depthwise: bool = False) -> ir.Value | None:
    if _typed(x) == "i32" or len(shape_of(x)) != 4:
        return None
    _, h, w, c = shape_of(x)
    kernel = (1, 1) if f.chance(0.3) else (f.between(1, 7), f.between(1, 7))
    stride, dilation = (f.between(1, 3), f.between(1, 3)), (f.between(1, 2), f.between(1, 2))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rows, columns = f.padding(h, extents[0], stride[0]), f.padding(w, extents[1], stride[1])
    if rows is None or columns is None:
        return None
    geometry = {"pad": (*rows, *columns), "stride": stride, "dilation": dilation, "input_zero": f.zero(x)}
    channels = c if depthwise else f.between(1, 96)
    bias = f.rng.integers(-(2**14), 2**14, channels)
    if depthwise:
        y = f.graph.depthwise_conv2d(x, _sparse_weights(f, (*kernel, c, 1)), bias, **geometry)
    else:
        y = f.graph.conv2d(x, _sparse_weights(f, (channels, *kernel, c)), bias, **geometry)
    return _requantize(f, y, _typed(x), kernel[0] * kernel[1] * (1 if depthwise else c))


def depthwise_convolution(f: Fuzz, x: ir.Value) -> ir.Value | None:
    return convolution(f, x, depthwise=True)


def transpose_convolution(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if _typed(x) not in (("i8", "i16") if f.large else ("i8",)) or len(shape_of(x)) != 4:
        return None
    if shape_of(x)[1] * shape_of(x)[2] > 300:
        return None
    kernel, stride, channels = (f.between(1, 4), f.between(1, 4)), f.between(1, 2), f.between(1, 24)
    if min(kernel) < stride:
        return None
    weights = _sparse_weights(f, (channels, *kernel, shape_of(x)[3]))
    bias = f.rng.integers(-(2**10), 2**10, channels)
    y = f.graph.transpose_conv2d(x, weights, bias, stride=(stride, stride), input_zero=f.zero(x))
    return _requantize(f, y, _typed(x), weights[0].size)


def pooling(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if len(shape_of(x)) != 4:
        return None
    _, h, w, _ = shape_of(x)
    kernel, stride = (f.between(1, min(8, h)), f.between(1, min(8, w))), (f.between(1, 3), f.between(1, 3))
    rows, columns = f.padding(h, kernel[0], stride[0]), f.padding(w, kernel[1], stride[1])
    if rows is None or columns is None:
        return None
    return f.graph.pool(str(f.rng.choice(["max", "avg"])), x, kernel, stride, (*rows, *columns), zero=f.zero(x))


def _other(f: Fuzz, x: ir.Value) -> ir.Value:
    """A second operand: a new input of the same or a broadcast shape."""
    shape = list(shape_of(x))
    for axis in range(len(shape)):
        if f.chance(0.15):
            shape[axis] = 1
    return f.graph.input(shape, _typed(x))


def addition(f: Fuzz, x: ir.Value) -> ir.Value:
    a, b = (x, _other(f, x)) if f.chance(0.7) else (x, x)
    if f.chance(0.15):
        scales = f.rng.integers(1, 2 ** f.between(1, 15), 2).astype(float)
    else:
        largest = 2.0 ** (19 if _typed(x) == "i8" else f.between(12, 14))
        scales = largest * f.rng.permutation([1.0, f.rng.uniform(0.1, 1.0)])
    if f.chance(0.1):
        scales[1] = scales[0]
    rounding = f.rounding()
    wide = [
        f.graph.requantize(v, "i32", s, input_zero=f.zero(v), rounding=rounding)
        for v, s in zip((a, b), scales, strict=True)
    ]
    total = f.graph.binary(str(f.rng.choice(["add", "sub"])), *wide)
    scale = f.rng.uniform(0.5, 2.0) / max(scales)
    return f.graph.requantize(total, _typed(x), scale, output_zero=f.zero(x), rounding=rounding)


def product(f: Fuzz, x: ir.Value) -> ir.Value:
    wide = [f.graph.rescale(v, "i32", 2**30, 30, input_zero=f.zero(v)) for v in (x, _other(f, x))]
    scale = f.rng.uniform(0.001, 0.05) if _typed(x) == "i8" else f.rng.uniform(1e-5, 1e-4)
    return f.graph.requantize(f.graph.mul(*wide), _typed(x), scale, output_zero=f.zero(x), rounding=f.rounding())


def extremum(f: Fuzz, x: ir.Value) -> ir.Value:
    zero = f.zero(x)
    wide = [f.graph.rescale(v, "i32", 2**30, 30, input_zero=zero) for v in (x, _other(f, x))]
    found = f.graph.binary(str(f.rng.choice(["maximum", "minimum"])), *wide, nan_mode="PROPAGATE")
    return f.graph.rescale(found, _typed(x), 2**30, 30, output_zero=zero)


def table(f: Fuzz, x: ir.Value) -> ir.Value:
    if _typed(x) == "i8":
        return f.graph.table(x, f.rng.integers(-128, 128, 256))
    wave = np.clip(np.cumsum(f.rng.integers(-90, 91, 513)), -32000, 32000)
    return f.graph.requantize(f.graph.table(x, wave), "i16", 1 / 128, rounding=f.rounding())


def clamp(f: Fuzz, x: ir.Value) -> ir.Value:
    return f.graph.clamp(x, f.between(-100, 0), f.between(1, 100))


def rescale(f: Fuzz, x: ir.Value) -> ir.Value:
    target = str(f.rng.choice(["i8", "i16"]))
    gain = {("i8", "i16"): 100, ("i16", "i8"): 0.004}.get((_typed(x), target), 1)
    channels = shape_of(x)[-1] if f.chance(0.3) else 1
    scale = f.rng.uniform(0.3, 1.5, channels) * gain
    return f.graph.requantize(x, target, scale, input_zero=f.zero(x), output_zero=f.zero(target), rounding=f.rounding())


def transpose(f: Fuzz, x: ir.Value) -> ir.Value:
    rank = len(shape_of(x))
    order = [0, *(1 + f.rng.permutation(rank - 1))] if f.chance(0.8) else f.rng.permutation(rank)
    return f.graph.transpose(x, [int(axis) for axis in order])


def concatenation(f: Fuzz, x: ir.Value) -> ir.Value:
    axis = f.between(1, len(shape_of(x)) - 1)
    shape = list(shape_of(x))
    shape[axis] = f.between(1, 9)
    parts = [x, f.graph.input(shape, _typed(x))]
    return f.graph.concat(parts if f.chance(0.5) else parts[::-1], axis)


def slicing(f: Fuzz, x: ir.Value) -> ir.Value:
    start = [f.between(0, size - 1) for size in shape_of(x)]
    return f.graph.slice(x, start, [f.between(1, size - s) for s, size in zip(start, shape_of(x), strict=True)])


def padding(f: Fuzz, x: ir.Value) -> ir.Value:
    rank = len(shape_of(x))
    return f.graph.pad(x, [0, 0, *(f.between(0, 3) for _ in range(2 * rank - 2))], f.zero(x))


def reshaping(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if len(shape_of(x)) != 4:
        return None
    n, h, w, c = shape_of(x)
    return f.graph.reshape(x, (n, w, h, c) if f.chance(0.5) else (n, h * w, 1, c))


def repetition(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if np.prod(shape_of(x)) > 4000:
        return None
    return f.graph.tile(x, [1, *(f.between(1, 2) for _ in shape_of(x)[1:])])


def reversal(f: Fuzz, x: ir.Value) -> ir.Value | None:
    rank = len(shape_of(x))
    axis = f.between(rank - 3, rank - 1 if f.large else rank - 2)
    return f.graph.unary("reverse", x, axis=axis) if axis >= 0 else None


def upsampling(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if len(shape_of(x)) != 4 or np.prod(shape_of(x)) > 3000 or shape_of(x)[1] * shape_of(x)[2] == 1:
        return None
    n = int(f.rng.choice([2, 4]))
    if f.large and f.chance(0.5):
        y = f.graph.resize(x, "BILINEAR", (2 * n, 2, 2 * n, 2), (1 - n, 1 - n), (n - 1, n - 1))
        return f.graph.requantize(y, _typed(x), 1 / (4 * n * n), rounding="SINGLE_ROUND")
    if f.chance(0.5):
        return f.graph.resize(x, "NEAREST_NEIGHBOR", (n, 1, n, 1), (0, 0), (0, 0))
    return f.graph.resize(x, "NEAREST_NEIGHBOR", (2 * n, 2, 2 * n, 2), (1 - n, 1 - n), (n - 1, n - 1))


def extremum_along_axis(f: Fuzz, x: ir.Value) -> ir.Value:
    axis = f.between(1, len(shape_of(x)) - 1)
    return f.graph.reduce(str(f.rng.choice(["reduce_max", "reduce_min"])), x, axis, nan_mode="PROPAGATE")


def sum_along_axis(f: Fuzz, x: ir.Value) -> ir.Value:
    axis = f.between(1, len(shape_of(x)) - 1)
    wide = f.graph.rescale(x, "i32", 2**30, 30, input_zero=f.zero(x))
    total = f.graph.reduce("reduce_sum", wide, axis)
    scale = f.rng.uniform(0.3, 1.0) / np.sqrt(shape_of(x)[axis])
    return f.graph.requantize(total, _typed(x), scale, output_zero=f.zero(x), rounding=f.rounding())


def matrix_product(f: Fuzz, x: ir.Value) -> ir.Value | None:
    if (_typed(x) != "i8" and not f.large) or len(shape_of(x)) != 4 or np.prod(shape_of(x)) > 20000:
        return None
    n, h, w, c = shape_of(x)
    a = f.graph.reshape(x, (n * h, w, c))
    width = f.between(1, 24)
    y = f.graph.matmul(a, f.graph.input((n * h, c, width), _typed(x)), f.zero(x), f.zero(x))
    scale = 40 / (73 * 73 * np.sqrt(c)) if _typed(x) == "i8" else 1 / (32768 * np.sqrt(c))
    rounding = "SINGLE_ROUND" if _typed(y) == "i48" else f.rounding()
    scale *= f.rng.uniform(0.2, 1.0)
    narrow = f.graph.requantize(y, _typed(x), scale, output_zero=f.zero(x), rounding=rounding)
    return f.graph.reshape(narrow, (n, h, w, width))


STEPS: tuple[Step, ...] = (
    convolution, convolution, convolution, depthwise_convolution, depthwise_convolution, transpose_convolution, pooling,
    pooling, addition, addition, product, extremum, table, clamp, rescale, transpose, concatenation, slicing, padding,
    reshaping, repetition, reversal, upsampling, extremum_along_axis, sum_along_axis, matrix_product,
)  # fmt: skip
_MOST_ELEMENTS = 60_000


def random_graph(seed: int, *, large: bool) -> tuple[Fuzz, ir.Module]:
    """A valid integer module; `large` allows what only Ethos-U85 takes."""
    f = Fuzz(np.random.default_rng(seed), large)
    element = "i16" if f.chance(0.25) else "i8"
    values = [f.graph.input((1, f.between(1, 20), f.between(1, 20), f.between(1, 48)), element)]
    wanted = f.between(1, 6)
    while len(f.steps) < wanted:
        x = values[-1] if f.chance(0.8) else values[f.between(0, len(values) - 1)]
        step = STEPS[f.between(0, len(STEPS) - 1)]
        if np.prod(shape_of(x)) > _MOST_ELEMENTS:
            break
        y = step(f, x)
        if y is not None:
            values.append(y)
            f.steps.append(f"{step.__name__}->{'x'.join(map(str, shape_of(y)))}{_typed(y)}")
    used = {use for value in values for use in [value] if any(True for _ in value.uses)}
    outputs = [value for value in values[1:] if value not in used]
    if not outputs:
        return random_graph(seed + 1_000_000_007, large=large)
    return f, f.graph.module(*outputs)


def run(seed: int, accelerator: str) -> tuple[Outcome, str]:
    """Compile, emulate and compare one random graph; also its description."""
    f, module = random_graph(seed, large="u85" in accelerator)
    description = f"{shape_of(f.graph.inputs[0])} {' '.join(f.steps)}"
    ops = [op for op in walk(module) if op.name.startswith("tosa.")]
    reasons = [reason for op in ops if (reason := verdict(op, accelerator))]
    suspicions = tuple(
        (suspected.partition(", got")[0], verdict(op, accelerator) is not None)
        for op in ops
        if not refusal(op, accelerator) and (suspected := suspicion(op, accelerator))
    )
    if reasons:
        return Outcome("refused", f"table: {reasons[0]}", suspicions), description
    flatbuffer = reference.serialize(module)
    try:
        proof, fresh = (random_inputs(f.rng, f.graph) for _ in range(2))
        expected = reference.evaluate(flatbuffer, proof), reference.evaluate(flatbuffer, fresh)
    except BackendError as error:
        return Outcome("unpredictable", error.why, suspicions), description
    strategy = str(f.rng.choice(["Performance", "Size"]))
    limit = [None, 20_000, 60_000, 150_000][f.between(0, 3)]
    outcome = compare(flatbuffer, proof, expected[0], accelerator)
    if outcome.kind in ("different", "emulator"):
        return Outcome("refused", f"proof: {outcome.detail}", suspicions), description
    if outcome.kind == "exact":
        outcome = compare(flatbuffer, fresh, expected[1], accelerator)
    if outcome.kind == "exact" and (strategy != "Performance" or limit is not None):
        small = NpuOptions(optimize=strategy, arena_limit=limit)
        outcome = compare(flatbuffer, fresh, expected[1], accelerator, small)
        description += f" for {strategy} within {limit}"
    return replace(outcome, suspicions=suspicions), description


def compare(
    flatbuffer: bytes,
    inputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    accelerator: str,
    options: NpuOptions = USUAL,
) -> Outcome:
    """Compile for this use of the arena, emulate, and compare with what is expected."""
    try:
        region = compile_region(flatbuffer, accelerator, options)
    except VelaRefusal as refusal:
        return Outcome("refused", f"vela: {refusal.why}")
    try:
        found = emulate(region, inputs).outputs
    except EmulationError as error:
        return Outcome("emulator", str(error).replace("\n", " "))
    wrong = [int((a != b).sum()) for a, b in zip(found, expected, strict=True)]
    if not any(wrong):
        return Outcome("exact")
    overwriting = cascaded_in_place(region) if options != USUAL else ""
    if overwriting:
        return Outcome("cascade", f"{overwriting} in place, before a window, in a buffer that is refilled too early")
    return Outcome("different", f"{wrong} of {[b.size for b in expected]}")


def cascaded_in_place(region: NpuRegion) -> str:
    """The elementwise op that overwrites its input within a cascade that also has a window; empty without one.

    Vela 5.2.0 lets such an op write into the rolling buffer that it reads. The op before it refills the buffer row by
    row as if it were read once: also the rows that the window behind it has yet to read.
    """
    registers, stripes = Registers(), []
    for command in commands(command_words(region.command_stream)):
        name = command_name(command, find_accelerator(region.accelerator).generation)
        if name.startswith("NPU_SET_"):
            registers.set(name.removeprefix("NPU_SET_"), command)
        elif name in ("NPU_OP_CONV", "NPU_OP_DEPTHWISE", "NPU_OP_POOL", "NPU_OP_ELEMENTWISE"):
            op = op_of_command(region.ops, command.offset)
            elementwise = name == "NPU_OP_ELEMENTWISE"
            ifm, ofm = ((registers.get(f"{t}_REGION", -1), registers.get(f"{t}_BASE0", -1)) for t in ("IFM", "OFM"))
            window = not elementwise and registers.get("KERNEL_HEIGHT_M1", 0) > 0
            stripes.append((op, elementwise and ifm == ofm, window))
    counts = Counter(op for op, _ in groupby(op and op.offsets for op, *_ in stripes))
    cascaded = [stripe for stripe in stripes if counts[stripe[0] and stripe[0].offsets] > 1]
    in_place = [op.op for op, overwrites, _ in cascaded if op and overwrites]
    return in_place[0] if in_place and any(window for *_, window in cascaded) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("accelerator")
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    began, counts, details, suspicions = time.time(), Counter(), Counter(), Counter()
    numbers = range(arguments.graphs) if arguments.only is None else [arguments.only]
    for number in numbers:
        outcome, description = run(arguments.seed * 1_000_000 + number, arguments.accelerator)
        counts[outcome.kind] += 1
        suspicions.update(outcome.suspicions)
        if outcome.kind in ("different", "emulator"):
            print(f"{outcome.kind} graph {number}: {outcome.detail} in {description}", flush=True)
        elif outcome.detail:
            details[f"{outcome.kind}: {outcome.detail[:150]}"] += 1
    print(f"{arguments.accelerator} seed {arguments.seed}: {dict(counts)} in {time.time() - began:.0f} s")
    for detail, count in details.most_common():
        print(f"{count:6} {detail}")
    for rule in sorted({rule for rule, _ in suspicions}):
        confirmed, cleared = suspicions[rule, True], suspicions[rule, False]
        print(f"{confirmed + cleared:6} times suspected, {confirmed} of them rightly: {rule}")
    return 1 if counts["different"] + counts["emulator"] else 0


if __name__ == "__main__":
    sys.exit(main())
