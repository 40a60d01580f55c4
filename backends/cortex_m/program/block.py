"""Instructions on named registers, and blocks of them: straight-line code of one iteration of a loop."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType

_NAME = re.compile(r"\{(\w+)\}")
VARIABLE = re.compile(r"%[qQR]?\[\w+\]")
"""A variable of C in inline assembly, in a general or a vector register, or one half of it in one of a pair."""
_ADD_REACH = 4095
NARROW_REACH = 255
"""Up to what an addition to a low register takes 16 bits."""


@lru_cache(maxsize=4096)
def _names(operands: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_NAME.findall(operands)))


@dataclass(frozen=True)
class BlockInstruction:
    """One instruction; `{name}` in its operands stands for a register.

    Args:
        mnemonic: e.g. `vmladava.s8`.
        operands: as the assembler wants them, e.g. `{sum}, {x}, {w}`.
        writes: names of registers that it writes.
        keeps: of those, the ones whose old value it reads as well (accumulators, pointers, inserted lanes).
        apart: whether no vector that it writes may share a register with one that it reads (gathers).
        alias: whether the vector that it writes may be the one that it reads; then it is not executed.
    """

    mnemonic: str
    operands: str
    writes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    apart: bool = False
    alias: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all registers in its operands."""
        return _names(self.operands)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of registers that it reads."""
        return tuple(name for name in self.names if name not in self.writes or name in self.keeps)

    def text(self, registers: Mapping[str, str]) -> str:
        """The line of assembly; names without a register stay what they are."""
        operands = _NAME.sub(lambda match: registers.get(match[1], match[1]), self.operands)
        return f"{self.mnemonic} {operands}"


@dataclass(frozen=True)
class InstructionBlock:
    """The code of one iteration.

    Args:
        body: in the order of their meaning.
        registers: the register of every name that is not a free vector.
        vectors: the vector registers that free vectors may take.
        opening: what comes before `body` and is executed one iteration ahead.
    """

    body: tuple[BlockInstruction, ...]
    registers: Mapping[str, str] = field(hash=False)
    vectors: tuple[str, ...]
    opening: tuple[BlockInstruction, ...] = ()

    def __post_init__(self) -> None:
        # What `ordered` remembers a block by must not change with the dict that it came with.
        object.__setattr__(self, "registers", MappingProxyType(dict(self.registers)))


def halves(name: str) -> dict[str, str]:
    """The registers of a variable of C of 64 bits, the lower half first, as inline assembly names them."""
    return {f"{name}_low": f"%Q[{name}]", f"{name}_high": f"%R[{name}]"}


def advance(pointer: str, distance: int, *, narrow: bool = False) -> list[BlockInstruction]:
    """Move a pointer by a constant, by as many immediates as it takes, or by one of 16 bits."""
    code, mnemonic = [], ("add" if distance > 0 else "sub") + ("s.n" if narrow else "w")
    for left in range(abs(distance), 0, -_ADD_REACH):
        step = min(left, _ADD_REACH)
        code.append(BlockInstruction(mnemonic, f"{{{pointer}}}, {{{pointer}}}, #{step}", (pointer,), (pointer,)))
    return code


def distance_name(distance: int) -> str:
    """The name of a number in a general register that vectors of addresses move on by."""
    return f"{'back' if distance < 0 else 'on'}_{abs(distance)}"


def encoded_bytes(mnemonic: str) -> int:
    """The length of an instruction in a block: long unless it says otherwise."""
    return 2 if mnemonic.endswith(".n") else 4


def update(mnemonic: str, target: str, operand: str) -> BlockInstruction:
    """An instruction on two registers that changes the first; the second may be a number."""
    second = operand if operand[0] == "#" else f"{{{operand}}}"
    return BlockInstruction(mnemonic, f"{{{target}}}, {{{target}}}, {second}", (target,), (target,))


_LOADS = ("vldr",)


def is_load(instruction: BlockInstruction, fixed: Collection[str], kinds: tuple[str, ...] = _LOADS) -> bool:
    """Whether an instruction loads a whole vector from where general registers point; `fixed` is no free vector.

    Args:
        kinds: how mnemonics of loads begin.
    """
    starts = any(name not in fixed for name in instruction.writes if name not in instruction.keeps)
    return instruction.mnemonic.startswith(kinds) and starts and all(name in fixed for name in instruction.reads)


def with_late_loads(
    code: Sequence[BlockInstruction], fixed: Collection[str], kinds: tuple[str, ...] = _LOADS
) -> list[BlockInstruction]:
    """The same code with each load right before the first instruction that reads its vector, so that fewer live.

    Args:
        fixed: names that are no free vectors. Loads that move the same pointer stay in their order.
        kinds: how mnemonics of loads begin.
    """
    late: list[BlockInstruction] = []
    waiting: list[BlockInstruction] = []

    def issue(load: BlockInstruction) -> None:
        before = [other for other in waiting[: waiting.index(load)] if set(other.writes) & set(load.writes)]
        for each in (*before, load):
            waiting.remove(each)
            late.append(each)

    for instruction in code:
        if is_load(instruction, fixed, kinds):
            waiting.append(instruction)
            continue
        for load in [load for load in waiting if set(load.writes) & {*instruction.reads, *instruction.writes}]:
            if load in waiting:
                issue(load)
        late.append(instruction)
    return [*late, *waiting]
