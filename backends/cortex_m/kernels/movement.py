"""TRANSPOSE, SLICE, PAD, CONCAT and TILE on MVE: strided boxes that move as whole vectors.

Every one of these ops fills the result with boxes: a box of an input under other strides, or a box of one value.
Where input and result have a common run of neighbors, a box moves run by run. Where they have none, sixteen, eight
or four neighbors of the input are scattered over the result, or gathered into neighbors of the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.footprint import ArrayAccess, Walk
from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, with_symbol
from tosaic.backends.target import Core
from tosaic.support.attributes import int_of, ints_of
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, element_type, ir, numpy_dtype, shape_of
from tosaic.support.tosa_ops import data_operands
from tosaic.tuner.space import Schedule, Variant

_OPS = ("tosa.transpose", "tosa.slice", "tosa.pad", "tosa.concat", "tosa.tile")
_LETTER = {1: "b", 2: "h", 4: "w"}
_WALKS = ("scatter", "gather")
_STRIPS = (4096, 1024, 256, 64)


@dataclass(frozen=True)
class CopyAxis:
    """One loop over a box: how often, and the strides of source and result in elements."""

    extent: int
    source: int
    result: int


@dataclass(frozen=True)
class CopyBox:
    """A part of the result, and where its elements come from.

    Args:
        argument: the input they come from; None fills the box with the op's pad value.
        source: the first element in that input.
        result: the first element in the result.
        axes: the loops, outermost first; none has one turn, and no two neighbors could be one.
    """

    argument: int | None
    source: int
    result: int
    axes: tuple[CopyAxis, ...]

    @staticmethod
    def of(argument: int | None, source: int, result: int, axes: Sequence[CopyAxis]) -> CopyBox:
        merged: list[CopyAxis] = []
        for axis in sorted((a for a in axes if a.extent > 1), key=lambda a: (-a.result, -a.source)):
            if merged:
                outer, reach = merged[-1], axis.extent
                if (outer.source, outer.result) == (axis.source * reach, axis.result * reach):
                    merged[-1] = CopyAxis(outer.extent * reach, axis.source, axis.result)
                    continue
            merged.append(axis)
        return CopyBox(argument, source, result, tuple(merged))

    @property
    def run(self) -> bool:
        """Whether neighbors of the result are neighbors of the source, too."""
        return not self.axes or self.argument is None or self.axes[-1].source == self.axes[-1].result == 1

    @property
    def elements(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


@FAMILIES.register
class Movement(KernelFamily):
    """One op that only moves elements of one, two or four bytes.

    Knobs, where a box has no run: `walk`, `scatter` reads vectors, `gather` writes them; `strip`, elements along these
    vectors that all other loops of the box move before the next ones, 0 for all of them. Knob `unroll`, where a box
    has one: vectors of a run in flight.
    """

    name = "movement"

    def match(self, function: ir.Operation) -> Workload | None:
        ops, arguments = computing_ops(function), list(body_of(function).arguments)
        if len(ops) != 1 or ops[0].name not in _OPS or returned(function) != list(ops[0].results):
            return None
        (op,) = ops
        size = numpy_dtype(element_type(op.results[0])).itemsize
        boxes = _boxes(op, arguments)
        if size not in _LETTER or not boxes:
            return None
        fill = constant_value(op.operands[2]) if op.name == "tosa.pad" else None
        attributes = {
            "arguments": len(arguments),
            "size": size,
            "boxes": tuple(boxes),
            "fill": "" if fill is None else fill.tobytes().hex(),
        }
        return Workload(self.name, " ".join(f"{k}={v}" for k, v in attributes.items()), attributes, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        boxes, size = _boxes_of(workload), int(str(workload.attributes["size"]))
        knobs: dict[str, tuple[int | str | bool, ...]] = {}
        crossing = [box for box in boxes if not box.run]
        if crossing:
            strips = (0, *(n for n in _STRIPS if any(n < axis.extent for box in crossing for axis in box.axes)))

            def cost(guess: tuple[str, int]) -> float:
                crossings = [_Crossing(box, size, *guess) for box in crossing]
                walks = [each.walk() for each in crossings]
                return sum(each.cycles for each in crossings) + self.site.waits(walks, core.pipeline)

            walk, strip = min(itertools.product(_WALKS, strips), key=cost)
            knobs["walk"] = (walk, *(other for other in _WALKS if other != walk))
            knobs["strip"] = (strip, *(other for other in strips if other != strip))
        runs = [_runs(box, size)[1] for box in boxes if box.run]
        if runs:
            knobs["unroll"] = (4, 1) if max(runs) > VECTOR else (1,)
        return (Variant("vectors", knobs),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        size, fill = int(str(workload.attributes["size"])), bytes.fromhex(str(workload.attributes["fill"]))
        knobs = dict(schedule.knobs)
        lines = []
        for box in _boxes_of(workload):
            if box.run:
                lines += _run(box, size, int(knobs["unroll"]))
            else:
                lines += _Crossing(box, size, str(knobs["walk"]), int(knobs["strip"])).lines()
        inputs = [f"const int8_t *restrict in{i}" for i in range(int(str(workload.attributes["arguments"])))]
        arguments = ", ".join([*inputs, "int8_t *restrict out", "const void *params", "void *scratch"])
        text = "\n".join([_PRELUDE + f"void @SYMBOL@({arguments})", "{", *_fill(fill), *lines, "}", ""])
        symbol, text = with_symbol(self.name, text)
        return KernelSource(symbol, "c", text)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        boxes, size, knobs = _boxes_of(workload), int(str(workload.attributes["size"])), dict(schedule.knobs)
        crossing = [box for box in boxes if not box.run]
        found = {
            "bytes": float(size * sum(box.elements for box in boxes)),
            "crossing": float(sum(box.elements for box in crossing)),
            "gather": float(knobs.get("walk") == "gather"),
            "strip": float(knobs.get("strip", 0)),
            "unroll": float(knobs.get("unroll", 0)),
        }
        if not crossing:
            return found
        crossings = [_Crossing(box, size, str(knobs["walk"]), int(knobs["strip"])) for box in crossing]
        cycles = sum(each.cycles for each in crossings)
        return self.site.priced(found, cycles, [each.walk() for each in crossings], core.pipeline)


def _boxes_of(workload: Workload) -> tuple[CopyBox, ...]:
    boxes = workload.attributes["boxes"]
    assert isinstance(boxes, tuple)
    return boxes


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _boxes(op: ir.Operation, arguments: Sequence[ir.Value]) -> list[CopyBox]:
    """The boxes of an op; none where an operand that should be a constant or an argument is not."""
    data = data_operands(op)
    if any(value not in arguments for value in data):
        return []
    shape = shape_of(op.results[0])
    targets = _strides(shape)
    first = arguments.index(data[0])
    extents = shape_of(data[0])
    sources = _strides(extents)
    if op.name == "tosa.transpose":
        axes = [CopyAxis(shape[i], sources[p], targets[i]) for i, p in enumerate(ints_of(op, "perms"))]
        return [CopyBox.of(first, 0, 0, axes)]
    if op.name == "tosa.concat":
        return _concatenation(op, data, arguments)
    amounts = constant_value(op.operands[1])
    if amounts is None:
        return []
    numbers = [int(n) for n in amounts.reshape(-1)]
    if op.name == "tosa.slice":
        start = sum(n * stride for n, stride in zip(numbers, sources, strict=True))
        return [CopyBox.of(first, start, 0, list(map(CopyAxis, shape, sources, targets)))]
    if op.name == "tosa.tile":
        repeats = [CopyAxis(n, 0, extent * to) for n, extent, to in zip(numbers, extents, targets, strict=True)]
        return [CopyBox.of(first, 0, 0, [*repeats, *map(CopyAxis, extents, sources, targets)])]
    if constant_value(op.operands[2]) is None:
        return []
    return _padding(first, extents, numbers, shape)


def _concatenation(op: ir.Operation, data: Sequence[ir.Value], arguments: Sequence[ir.Value]) -> list[CopyBox]:
    axis, targets = int_of(op, "axis"), _strides(shape_of(op.results[0]))
    boxes, at = [], 0
    for value in data:
        extents = shape_of(value)
        axes = list(map(CopyAxis, extents, _strides(extents), targets))
        boxes.append(CopyBox.of(list(arguments).index(value), 0, at * targets[axis], axes))
        at += extents[axis]
    return boxes


def _padding(argument: int, extents: Sequence[int], amounts: Sequence[int], shape: Sequence[int]) -> list[CopyBox]:
    """The input in the middle, and for each axis what lies before and after it, as wide as the axes behind it."""
    targets = _strides(shape)
    before, after = amounts[::2], amounts[1::2]
    start = sum(n * stride for n, stride in zip(before, targets, strict=True))
    boxes = [CopyBox.of(argument, 0, start, list(map(CopyAxis, extents, _strides(extents), targets)))]
    corner = 0
    for axis, stride in enumerate(targets):
        for thick, place in ((before[axis], 0), (after[axis], before[axis] + extents[axis])):
            if thick:
                widths = [*extents[:axis], thick, *shape[axis + 1 :]]
                axes = [CopyAxis(width, 0, to) for width, to in zip(widths, targets, strict=True)]
                boxes.append(CopyBox.of(None, 0, corner + place * stride, axes))
        corner += before[axis] * stride
    return boxes


def _fill(value: bytes) -> list[str]:
    """C of the vector that holds the pad value in every element."""
    if not value:
        return []
    word = int.from_bytes(value * (4 // len(value)), "little", signed=True)
    return [f"  const int8x16_t fill = vreinterpretq_s8_s32(vdupq_n_s32({word}));"]


def _nest(box: CopyBox, axes: Sequence[CopyAxis], size: int, inner: Sequence[str]) -> list[str]:
    """C of loops over `axes` around `inner`, which reads at `from` and writes at `to`."""
    opening, source, result = [], f"in{box.argument} + {box.source * size}", f"out + {box.result * size}"
    for depth, axis in enumerate(axes):
        i = f"i{depth}"
        opening.append(f"  for (int {i} = 0; {i} < {axis.extent}; {i}++)")
        source += f" + {i} * {axis.source * size}"
        result += f" + {i} * {axis.result * size}"
    pointers = [] if box.argument is None else [f"    const int8_t *from = {source};"]
    return [*opening, "  {", *pointers, f"    int8_t *to = {result};", *(f"    {line}" for line in inner), "  }"]


def _run(box: CopyBox, size: int, unroll: int) -> list[str]:
    """C that moves a box run by run."""
    axes, length = _runs(box, size)
    step = VECTOR * unroll
    whole, rest = length // step * step, length % step
    lines = []
    if whole:
        lines += [f"for (int i = 0; i < {whole}; i += {step}) {{", *_vectors(box, "i + ", [VECTOR] * unroll), "}"]
    if rest:
        counts = [VECTOR] * (rest // VECTOR) + ([rest % VECTOR] if rest % VECTOR else [])
        lines += _vectors(box, f"{whole} + ", counts)
    return _nest(box, axes, size, lines)


def _runs(box: CopyBox, size: int) -> tuple[tuple[CopyAxis, ...], int]:
    """The loops around a run, and its bytes."""
    if box.axes and box.axes[-1].result == 1:
        return box.axes[:-1], size * box.axes[-1].extent
    return box.axes, size


def _vectors(box: CopyBox, at: str, counts: Sequence[int]) -> list[str]:
    """C that moves neighboring vectors, the last of them perhaps in part."""
    lines, stores = ["{"], []
    for n, count in enumerate(counts):
        place, part = f"{at}{n * VECTOR}", count < VECTOR
        value = "fill"
        if box.argument is not None:
            value = f"v{n}"
            load = f"vldrbq_z_s8(from + {place}, vctp8q({count}))" if part else f"vldrbq_s8(from + {place})"
            lines.append(f"  const int8x16_t {value} = {load};")
        store = f"vstrbq_p_s8(to + {place}, {value}, vctp8q({count}))" if part else f"vstrbq_s8(to + {place}, {value})"
        stores.append(f"  {store};")
    return [*lines, *stores, "}"]


class _Crossing:
    """How a box without runs moves: neighbors of one side are loaded or stored together.

    Args:
        walk: `scatter` reads neighbors, `gather` writes them, where there are such.
        strip: neighbors that all other loops move before the next ones; 0 for all.
    """

    def __init__(self, box: CopyBox, size: int, walk: str, strip: int) -> None:
        read, written = (
            next((axis for axis in box.axes if near(axis) == 1), None)
            for near in (lambda axis: axis.source, lambda axis: axis.result)
        )
        self.box, self.size = box, size
        self.scatters = read is not None and (walk == "scatter" or written is None)
        along = read if self.scatters else written
        assert along is not None, "an op reads or writes neighbors"
        self.along, self.others = along, [axis for axis in box.axes if axis is not along]
        self.strip = strip if 0 < strip < along.extent else along.extent
        self.stride = (along.result if self.scatters else along.source) * size
        self.bits = next(b for b in (8, 16, 32) if b >= 8 * size and (b == 32 or (128 // b - 1) * self.stride < 1 << b))
        self.lanes = 128 // self.bits

    @property
    def cycles(self) -> float:
        """Cycles of the core, about: each lane of a scattered or gathered vector is an access of its own."""
        vectors = math.ceil(self.along.extent / self.lanes) * math.prod(axis.extent for axis in self.others)
        return vectors * (8 + self.lanes / 3 + 2 * (not self.scatters))

    def walk(self) -> Walk:
        """The loops over memory."""
        size, along = self.size, self.along
        loops = [CopyAxis(-(-along.extent // self.strip), self.strip * along.source, self.strip * along.result)]
        loops += [*self.others, CopyAxis(self.strip, along.source, along.result)]
        read = ArrayAccess("in", "input", size, tuple(float(axis.source * size) for axis in loops))
        written = ArrayAccess("out", "output", size, tuple(float(axis.result * size) for axis in loops), writes=True)
        return Walk(tuple(float(axis.extent) for axis in loops), (read, written))

    def lines(self) -> list[str]:
        """C that moves the box."""
        along, (strips, rest) = self.along, divmod(self.along.extent, self.strip)
        around = [CopyAxis(strips, self.strip * along.source, self.strip * along.result)] if strips > 1 else []
        lines = _nest(self.box, [*around, *self.others], self.size, self._moves(self.strip))
        if rest:
            first = strips * self.strip
            source, result = self.box.source + first * along.source, self.box.result + first * along.result
            last = CopyBox(self.box.argument, source, result, self.box.axes)
            lines += _nest(last, self.others, self.size, self._moves(rest))
        return lines

    def _moves(self, count: int) -> list[str]:
        """C that moves `count` neighbors."""
        whole, rest = count // self.lanes * self.lanes, count % self.lanes
        offsets = ", ".join(str(self.stride * lane) for lane in range(self.lanes))
        lines = [f"const uint{self.bits}x{self.lanes}_t offsets = {{{offsets}}};"]
        if whole:
            lines += [f"for (int i = 0; i < {whole}; i += {self.lanes}) {{", *self._move("i", self.lanes), "}"]
        return lines + (self._move(str(whole), rest) if rest else [])

    def _move(self, at: str, left: int) -> list[str]:
        """C that moves a vector, the last of them perhaps in part."""
        letter, memory, kind = _LETTER[self.size], f"int{8 * self.size}_t", f"s{self.bits}"
        mask, z, p = (f", vctp{self.bits}q({left})", "_z", "_p") if left < self.lanes else ("", "", "")
        near, far = f"{at} * {self.size})", f"{at} * {self.stride}), offsets"
        load, store = f"vldr{letter}q", f"vstr{letter}q"
        if self.scatters:
            value = f"{load}{z}_{kind}((const {memory} *)(from + {near}{mask})"
            return [f"{store}_scatter_offset{p}_{kind}(({memory} *)(to + {far}, {value}{mask});"]
        value = f"{load}_gather_offset{z}_{kind}((const {memory} *)(from + {far}{mask})"
        return [f"{store}{p}_{kind}(({memory} *)(to + {near}, {value}{mask});"]


def _declarations() -> str:
    """The loads and stores that the common prelude lacks."""
    names = []
    for size, letter in _LETTER.items():
        for bits in (8, 16, 32):
            if bits < 8 * size:
                continue
            lanes, memory = 128 // bits, f"int{8 * size}_t *"
            vector, offsets = f"int{bits}x{lanes}_t", f"uint{bits}x{lanes}_t"
            load, store, kind = f"vldr{letter}q", f"vstr{letter}q", f"s{bits}"
            names += [
                f"{vector} {load}_{kind}(const {memory})",
                f"{vector} {load}_z_{kind}(const {memory}, mve_pred16_t)",
                f"{vector} {load}_gather_offset_{kind}(const {memory}, {offsets})",
                f"{vector} {load}_gather_offset_z_{kind}(const {memory}, {offsets}, mve_pred16_t)",
                f"void {store}_{kind}({memory}, {vector})",
                f"void {store}_p_{kind}({memory}, {vector}, mve_pred16_t)",
                f"void {store}_scatter_offset_{kind}({memory}, {offsets}, {vector})",
                f"void {store}_scatter_offset_p_{kind}({memory}, {offsets}, {vector}, mve_pred16_t)",
            ]
    missing = [text for text in names if f" {text.partition('(')[0].split()[-1]}(" not in PRELUDE]
    return "".join(f"ALIAS(__builtin_arm_mve_{text.partition('(')[0].split()[-1]}) {text};\n" for text in missing)


_PRELUDE = PRELUDE + _declarations()
