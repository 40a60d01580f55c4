"""A kernel as one value: a tree of statements on buffers.

Primitives rewrite it, walks print, count, check and interpret it. There is no text of C in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.row import Row
from tosaic.backends.cortex_m.program.structs import Struct
from tosaic.support.errors import BackendError

BYTES: Mapping[str, int] = MappingProxyType({"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4})
"""Bytes of an element."""
NUMPY = MappingProxyType({"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f32": "float32"})
"""What NumPy calls an element."""
INTEGERS = ("i8", "i16", "i32")
"""Those that operations compute; i64 holds sums of products alone, which `scale64` makes a result of."""
REGISTERS: Mapping[str, int] = MappingProxyType({"r": 4, "h": 4, "s": 4, "p": 8, "q": 16})
"""Bytes of a register, by class: general ones; r8 and up, which hold sums on the baseline cores; those of the
floating-point unit; pairs of general ones, for i64; and vectors.

A buffer in registers ends in a dimension of whole registers."""


class RefusedError(BackendError):
    """A step is not legal on a tree, or a core cannot run it; the message says why."""


@dataclass(frozen=True)
class Buffer:
    """Elements that lie densely, row-major.

    Args:
        memory: `in` and `out` are the kernel's tensors, `const` is filled by the host, `scratch` is working memory;
            else a class of registers.
        at: the byte of working memory where it begins, if told; such may lie over each other, and hold what is last.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    memory: str
    at: int | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * BYTES[self.dtype]

    @property
    def in_registers(self) -> bool:
        return self.memory in REGISTERS

    @property
    def lanes(self) -> int:
        """Elements of a register; 1 in memory."""
        return REGISTERS[self.memory] // BYTES[self.dtype] if self.in_registers else 1

    def address(self, index: tuple[Affine, ...]) -> Affine:
        """The element that an index means, counted from the start."""
        return Affine.sum(zip(index, _strides(self.shape), strict=True))

    def __str__(self) -> str:
        place = self.memory if self.at is None else f"{self.memory} at {self.at}"
        return f"{self.name}: {self.dtype}{list(self.shape)} in {place}"


@lru_cache(maxsize=4096)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class Access(NamedTuple):
    """An element of a buffer; as an operand of an instruction, the first element of a window."""

    buffer: str
    index: tuple[Affine, ...] = ()  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.index))}]" if self.index else self.buffer


@dataclass(frozen=True)
class Op:
    """A number computed from others; `program.ops` says how."""

    name: str
    args: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


Value: TypeAlias = "Access | Op | int"

Kind = Literal["each", "unroll", "words", "block", "hardware_loop"]
BLOCKS = ("block", "hardware_loop")
"""The kinds of loops whose iterations are assembly."""


@dataclass(frozen=True)
class For:
    """`var` takes 0, step, 2 step ... below `extent`.

    Args:
        early: a last iteration that would pass the end starts early, and repeats work.
        kind: `each` is a loop of C, and `unroll` is written out. `words` copies neighbors, several words at a time. An
            iteration of a `block` is one block of assembly. A `hardware_loop` is one inside of a block, or a block
            alone.
        ahead: of a hardware loop, how many loads that open an iteration are executed in the iteration before; or the
            buffer up to whose last element all is.
    """

    var: str
    extent: int
    body: Statement
    step: int = 1
    early: bool = False
    kind: Kind = "each"
    ahead: int | str = 0

    @property
    def iterations(self) -> int:
        return -(-self.extent // self.step)

    @property
    def last(self) -> int:
        """The greatest value of `var`."""
        return self.extent - self.step if self.early else (self.iterations - 1) * self.step

    @property
    def positions(self) -> Sequence[int]:
        """The values of `var`."""
        if self.last % self.step == 0:
            return range(0, self.last + 1, self.step)
        return [*range(0, self.last, self.step), self.last]


@dataclass(frozen=True)
class If:
    """`then` where every condition is 0 or more, else `otherwise`."""

    conditions: tuple[Affine, ...]
    then: Statement
    otherwise: Statement


@dataclass(frozen=True)
class Let:
    """`var` is a number that is computed here; the body runs if that is 0 or more, and less than `extent`."""

    var: str
    value: Value
    extent: int
    body: Statement

    @property
    def last(self) -> int:
        """The greatest value of `var` in the body."""
        return self.extent - 1


@dataclass(frozen=True)
class Assign:
    target: Access
    value: Value

    def __str__(self) -> str:
        return f"{self.target} = {self.value}"


@dataclass(frozen=True)
class Reduce:
    """`target += value`, in any order of iterations; sums of floats, products with one rounding, round as the order
    is."""

    target: Access
    value: Value

    def __str__(self) -> str:
        return f"{self.target} += {self.value}"


@dataclass(frozen=True)
class Alloc:
    """A buffer that lives as long as the body runs."""

    buffer: Buffer
    body: Statement


@dataclass(frozen=True)
class Instr:
    """An instruction on windows that begin at its operands. What it means is a tree again: `meaning_of`.

    Args:
        limit: its first lanes that do something, where a mask keeps the others from it; 0 where all do.
        stride: elements from lane to lane of the operand that the row allows to lie apart.
        inner: the same of lanes of each inner level.
    """

    row: Row
    operands: tuple[Access, ...]
    limit: int = 0
    stride: int = 1
    inner: tuple[int, ...] = ()

    @property
    def lanes(self) -> int:
        """How often its meaning holds."""
        return self.limit or self.row.lanes

    def __str__(self) -> str:
        masked = f" for {self.limit} lanes" if self.limit else ""
        apart = f" by {' and '.join(map(str, (self.stride, *self.inner)))}" if self.row.apart else ""
        return f"{self.row.name}({', '.join(map(str, self.operands))}){apart}{masked}"


@dataclass(frozen=True)
class Callee:
    """A kernel, or a function of a library, that is called.

    Args:
        name: what C calls it.
        arguments: a window each: it reads `in`, writes `out`, has params in `const`, and leaves anything in `scratch`.
        align: bytes that divide the address of each window.
        header: of a library; empty for a kernel.
        takes: what it is given, structs and names of windows; empty for a kernel, whose order is that of all kernels.
    """

    name: str
    arguments: tuple[Buffer, ...]
    align: int = 16
    header: str = ""
    takes: tuple[Struct | str, ...] = ()


@dataclass(frozen=True)
class Invoke:
    """A call on dense windows that begin at its operands, one for each argument."""

    callee: Callee
    operands: tuple[Access, ...]

    @property
    def windows(self) -> tuple[tuple[Buffer, Access], ...]:
        return tuple(zip(self.callee.arguments, self.operands, strict=True))

    def __str__(self) -> str:
        return f"{self.callee.name}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Seq:
    body: tuple[Statement, ...]


Statement: TypeAlias = "For | If | Let | Assign | Reduce | Alloc | Instr | Invoke | Seq"
Around: TypeAlias = For | If | Let
"""What says how often, and at what numbers, the statements inside are executed."""
LEAVES = (Assign, Reduce, Instr, Invoke)
"""Statements that hold no others."""
SCALAR = (Assign, Reduce, Invoke, If, Let)
"""Statements that no block of assembly holds."""
