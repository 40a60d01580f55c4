"""What all generators of MLIR kernels share: the text of a function, packed constants, exact requantization on MVE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

LANES = 4
"""32-bit lanes of a 128-bit MVE vector."""
ACCUMULATOR = "vector<4xi32>"
_ALIGNMENT = 16


class Params:
    """The packed constants of one kernel, addressed by byte offset."""

    def __init__(self) -> None:
        self._blob = bytearray()

    def add(self, array: np.ndarray) -> int:
        """Append `array` row-major, 16-byte aligned; its byte offset."""
        self._blob.extend(bytes(-len(self._blob) % _ALIGNMENT))
        offset = len(self._blob)
        self._blob.extend(np.ascontiguousarray(array).tobytes())
        return offset

    def __len__(self) -> int:
        return len(self._blob)

    def __bytes__(self) -> bytes:
        return bytes(self._blob)


class Function:
    """The text of one kernel function in func, scf, arith, memref and vector.

    Arguments are named `%in0..`, `%out0..`, `%params`, `%scratch`. Constants are written once, at the entry.

    Args:
        symbol: the C symbol.
        inputs: memref types of the inputs.
        outputs: memref types of the outputs.
        scratch_bytes: size of `%scratch`.
        aliases: whether an output may share a buffer with an input; otherwise every argument is `noalias`.
    """

    def __init__(
        self,
        symbol: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        scratch_bytes: int = 0,
        aliases: bool = False,
    ) -> None:
        self.symbol = symbol
        self.params = Params()
        self.scratch_bytes = scratch_bytes
        self._arguments = [(f"%in{i}", kind) for i, kind in enumerate(inputs)]
        self._arguments += [(f"%out{i}", kind) for i, kind in enumerate(outputs)]
        self._attributes = "" if aliases else " {llvm.noalias}"
        self._constants: dict[tuple[str, str], str] = {}
        self._entry: list[str] = []
        self._body: list[str] = []
        self._declarations: dict[str, str] = {}
        self._names = itertools.count()

    def constant(self, value: int | float | str, kind: str = "index") -> str:
        """The name of a constant: a number of `index` or a scalar type, splat for a vector type."""
        key = (str(value), kind)
        if key not in self._constants:
            name = f"%c{next(self._names)}"
            number = str(float(value)) if "f" in kind.rpartition("x")[2] and not isinstance(value, str) else str(value)
            literal = f"dense<{number}>" if kind.startswith("vector") else number
            self._entry.append(f"{name} = arith.constant {literal} : {kind}")
            self._constants[key] = name
        return self._constants[key]

    def op(self, expression: str) -> str:
        """Write an operation with one result; the result's name."""
        name = f"%v{next(self._names)}"
        self.line(f"{name} = {expression}")
        return name

    def binary(self, opcode: str, a: str, b: str, kind: str) -> str:
        """Write `opcode a, b : kind`; the result's name."""
        return self.op(f"{opcode} {a}, {b} : {kind}")

    def line(self, text: str) -> None:
        """Write an operation without a result."""
        self._body.append(text)

    @contextmanager
    def loop(self, stop: int | str, step: int = 1, start: int | str = 0) -> Iterator[str]:
        """`for (i = start; i < stop; i += step)`; gives the index's name."""
        index = f"%i{next(self._names)}"
        low, high = (self.constant(bound) if isinstance(bound, int) else bound for bound in (start, stop))
        self.line(f"scf.for {index} = {low} to {high} step {self.constant(step)} {{")
        yield index
        self.line("}")

    @contextmanager
    def reduction(
        self, initial: Sequence[tuple[str, str]], stop: int | str, step: int = 1, start: int | str = 0
    ) -> Iterator[CarryingLoop]:
        """A loop that carries values. Set `carried` before its end; read `results` after it.

        Args:
            initial: (name, type) of each value at entry.
        """
        index = f"%i{next(self._names)}"
        names = [f"%a{next(self._names)}" for _ in initial]
        result = f"%r{next(self._names)}"
        kinds = ", ".join(kind for _, kind in initial)
        low, high = (self.constant(bound) if isinstance(bound, int) else bound for bound in (start, stop))
        pairs = ", ".join(f"{name} = {value}" for name, (value, _) in zip(names, initial, strict=True))
        self.line(
            f"{result}:{len(initial)} = scf.for {index} = {low} to {high} step {self.constant(step)} "
            f"iter_args({pairs}) -> ({kinds}) {{"
        )
        state = CarryingLoop(index, names, [f"{result}#{i}" for i in range(len(initial))])
        yield state
        self.line(f"scf.yield {', '.join(state.carried)} : {kinds}")
        self.line("}")

    def table(self, array: np.ndarray, kind: str) -> str:
        """Pack `array` into the params; the name of a memref of it. `kind` is its element type."""
        return self._view("%params", self.params.add(array), array.shape, kind, "@PARAMS@")

    def buffer(self, offset: int, shape: Sequence[int], kind: str) -> str:
        """The name of a memref of `shape` at a byte offset of the scratch memory."""
        return self._view("%scratch", offset, shape, kind, f"memref<{self.scratch_bytes}xi8>")

    def _view(self, base: str, offset: int, shape: Sequence[int], kind: str, base_type: str) -> str:
        name = f"%m{next(self._names)}"
        position = self.constant(offset)
        self._entry.append(f"{name} = memref.view {base}[{position}][] : {base_type} to {memref(shape, kind)}")
        return name

    def call(self, callee: str, arguments: Sequence[tuple[str, str]], result: str) -> str:
        """Call an LLVM intrinsic or library function on (name, type) pairs; the result's name."""
        kinds = ", ".join(kind for _, kind in arguments)
        self._declarations[callee] = f"func.func private @{callee}({kinds}) -> {result}"
        names = ", ".join(name for name, _ in arguments)
        return self.op(f"func.call @{callee}({names}) : ({kinds}) -> {result}")

    def __str__(self) -> str:
        params = f"memref<{len(self.params)}xi8>"
        arguments = [*self._arguments, ("%params", params), ("%scratch", f"memref<{self.scratch_bytes}xi8>")]
        signature = ", ".join(f"{name}: {kind}{self._attributes}" for name, kind in arguments)
        entry = [line.replace("@PARAMS@", params) for line in self._entry]
        head = f"func.func @{self.symbol}({signature}) attributes {{llvm.bareptr}} {{"
        return "\n".join([*self._declarations.values(), head, *entry, *self._body, "return", "}", ""])


@dataclass
class CarryingLoop:
    """The names inside and after a loop that carries values."""

    index: str
    carried: list[str]
    results: list[str]


def memref(shape: Sequence[int], kind: str) -> str:
    """The type of a dense row-major memref, e.g. `memref<4x8xi8>`."""
    return f"memref<{''.join(f'{dim}x' for dim in shape)}{kind}>"


@dataclass(frozen=True)
class Requantization:
    """TOSA RESCALE of all channels alike, SINGLE_ROUND (spec 1.0, apply_scale_32), and a clamp of its result.

    `clamp(((value - input_zero_point) * multiplier + (1 << (shift - 1)) >> shift) + output_zero_point, low, high)`

    On MVE this is VQDMULH, which gives `value * multiplier >> 31`, then VRSHL by `shift - 31`, which rounds: exact for
    shifts of 32 and more. For smaller shifts the value is shifted left first: the spec demands that it is less than
    `1 << (shift - 1)`. A multiplier that is a power of two is one shift.

    Args:
        multiplier: a positive int32.
        shift: 2..62.
        input_zero_point, output_zero_point: of the value and of the result.
        low, high: bounds of the result, e.g. -128 and 127.
    """

    multiplier: int
    shift: int
    input_zero_point: int
    output_zero_point: int
    low: int
    high: int

    def apply(self, fn: Function, value: str) -> str:
        """Requantize `vector<4xi32>`; the result is a `vector<4xi32>` within low..high."""
        if self.input_zero_point:
            value = fn.binary("arith.subi", value, fn.constant(self.input_zero_point, ACCUMULATOR), ACCUMULATOR)
        result = self._scale(fn, value)
        if self.output_zero_point:
            result = fn.binary("arith.addi", result, fn.constant(self.output_zero_point, ACCUMULATOR), ACCUMULATOR)
        return clamp(fn, result, self.low, self.high)

    def _scale(self, fn: Function, value: str) -> str:
        if self.multiplier.bit_count() == 1:
            up = self.multiplier.bit_length() - 1 - self.shift
            if up < 0:
                return rounding_shift(fn, value, fn.constant(up, ACCUMULATOR))
            return fn.binary("arith.shli", value, fn.constant(up, ACCUMULATOR), ACCUMULATOR) if up else value
        left = max(0, 32 - self.shift)
        if left:
            value = fn.binary("arith.shli", value, fn.constant(left, ACCUMULATOR), ACCUMULATOR)
        product = saturating_doubling_multiply(fn, value, fn.constant(self.multiplier, ACCUMULATOR))
        return rounding_shift(fn, product, fn.constant(31 - self.shift - left, ACCUMULATOR))


def saturating_doubling_multiply(fn: Function, a: str, b: str) -> str:
    """VQDMULH.S32: `a * b >> 31` per lane."""
    return fn.call("llvm.arm.mve.vqdmulh.v4i32", [(a, ACCUMULATOR), (b, ACCUMULATOR)], ACCUMULATOR)


def rounding_shift(fn: Function, value: str, count: str) -> str:
    """VRSHL.S32: shift left by the signed `count` per lane; to the right it rounds half up."""
    no, yes = fn.constant(0, "i32"), fn.constant(1, "i32")
    arguments = [(value, ACCUMULATOR), (count, ACCUMULATOR), (no, "i32"), (yes, "i32"), (no, "i32")]
    return fn.call("llvm.arm.mve.vshl.vector.v4i32.v4i32", arguments, ACCUMULATOR)


def clamp(fn: Function, value: str, low: int, high: int, kind: str = ACCUMULATOR) -> str:
    """`min(max(value, low), high)` per lane of vector type `kind`; bounds that cannot bind in int32 are left out."""
    if low > -(2**31):
        value = fn.binary("arith.maxsi", value, fn.constant(low, kind), kind)
    if high < 2**31 - 1:
        value = fn.binary("arith.minsi", value, fn.constant(high, kind), kind)
    return value


def load_lanes(
    fn: Function, buffer: str, buffer_type: str, indices: str, vector: str, count: int, others: int = 0
) -> str:
    """Load the first `count` lanes of `vector` (a type such as `vector<16xi8>`) at `indices`; the rest are `others`."""
    if count == _lanes(vector):
        return fn.op(f"vector.load {buffer}[{indices}] : {buffer_type}, {vector}")
    mask, mask_type = _leading_lanes(fn, vector, count)
    nothing = fn.constant(others, vector)
    return fn.op(
        f"vector.maskedload {buffer}[{indices}], {mask}, {nothing} : {buffer_type}, {mask_type}, {vector} into {vector}"
    )


def store_lanes(fn: Function, value: str, buffer: str, buffer_type: str, indices: str, vector: str, count: int) -> None:
    """Store the first `count` lanes of `value` at `indices`."""
    if count == _lanes(vector):
        fn.line(f"vector.store {value}, {buffer}[{indices}] : {buffer_type}, {vector}")
        return
    mask, mask_type = _leading_lanes(fn, vector, count)
    fn.line(f"vector.maskedstore {buffer}[{indices}], {mask}, {value} : {buffer_type}, {mask_type}, {vector}")


def _lanes(vector: str) -> int:
    return int(vector.removeprefix("vector<").partition("x")[0])


def _leading_lanes(fn: Function, vector: str, count: int) -> tuple[str, str]:
    lanes = _lanes(vector)
    kind = f"vector<{lanes}xi1>"
    return fn.constant(f"[{', '.join(str(lane < count).lower() for lane in range(lanes))}]", kind), kind
