"""What the instructions of an iteration need of each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tosaic.backends.cortex_m.program.block import VARIABLE, BlockInstruction, InstructionBlock, encoded_bytes
from tosaic.backends.simulators.cycle_model import Decoder
from tosaic.backends.simulators.instruction import Instruction
from tosaic.backends.target import Timing


@dataclass
class DependentInstruction:
    """An instruction as the scheduler sees it.

    Args:
        names: the vector behind each name that is not a fixed register.
        needs: instructions that must be issued before.
        fed_by: those of them whose results it reads.
        gives: the vector that it starts, if any.
        takes: the vectors that it reads or changes.
        copy: the number of the hoisted load that it repeats for the next iteration.
        offsets: those of `fed_by` whose results are the offsets of this gather.
        ahead: whether it belongs to the next iteration.
        decoded: its lines as the scoreboard sees them; the registers of free vectors are the numbers of values, those
            of the next iteration the same as this one's.
    """

    instruction: BlockInstruction
    timing: Timing
    names: dict[str, int]
    needs: set[int]
    fed_by: set[int]
    gives: int | None
    takes: set[int]
    copy: int | None = None
    offsets: frozenset[int] = frozenset()
    ahead: bool = False
    decoded: tuple[Instruction, ...] = ()

    @property
    def access(self) -> str:
        """Its access of memory, as the scoreboard sees it."""
        return self.decoded[-1].access if self.decoded else ""


_AT_ONCE = Timing("alu", 1, 1)
_FREE = "q0"
"""A register that stands for that of any free vector."""


def opening_loads(block: InstructionBlock, most: int) -> list[int]:
    """The first instructions that start a vector from registers as they are when the iteration begins, at most so
    many."""
    fixed, found, changed = block.registers, list[int](), set[str]()
    for i, instruction in enumerate(block.body):
        touched = {name for name in (*instruction.reads, *instruction.writes) if name in fixed}
        from_fixed = all(name in fixed for name in instruction.reads)
        starts = from_fixed and any(name not in fixed for name in instruction.writes)
        if len(found) < most and starts and not touched & changed:
            found.append(i)
        else:
            changed |= {name for name in instruction.writes if name in fixed}
    return found


class Dependences:
    """The instructions of an iteration with values for names: a vector that is written anew is a new value."""

    def __init__(self, block: InstructionBlock, decode: Decoder | None, hoisted: int) -> None:
        self.block, self.decode = block, decode
        self.nodes: list[DependentInstruction] = []
        self.users: list[set[int]] = []
        self._current: dict[str, int] = {}
        self._source: dict[int, int] = {}
        self._writer: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        self._again: dict[int, int] = {}
        self._stored = set[int]()
        hoisted_loads = [] if block.opening else opening_loads(block, hoisted)
        self.entry = [block.body[i] for i in hoisted_loads]
        self.crossing = [self.vector(load) for load in self.entry] or self._crossing()
        for name in self.crossing:
            self._start(name)
        for i, instruction in enumerate(block.body):
            if i in hoisted_loads:
                self._current[self.vector(instruction)] = hoisted_loads.index(i)
            else:
                self._add(instruction)
        for number, instruction in enumerate(self.entry):
            self._add(instruction, True, number)
        begins = [{*instruction.writes}.difference(instruction.keeps) for instruction in block.opening]
        last = {name: number for number, names in enumerate(begins) for name in names}
        for number, instruction in enumerate(block.opening):
            crosses = [self.crossing.index(name) for name in self.crossing if last[name] == number]
            self._add(instruction, True, *crosses)

    def _crossing(self) -> list[str]:
        """The vectors that the opening leaves to the body."""
        left = {name for instruction in self.block.opening for name in instruction.writes} - set(self.block.registers)
        found = dict[str, None]()
        for instruction in self.block.body:
            found |= dict.fromkeys(name for name in instruction.reads if name in left)
            left -= set(instruction.writes) - set(instruction.keeps)
        return list(found)

    def loads(self, registers: Mapping[int, str]) -> list[str]:
        """The hoisted loads as they are executed before the loop."""
        return [self.text(load, {self.vector(load): number}, registers) for number, load in enumerate(self.entry)]

    def iteration(self, order: Sequence[int], registers: Mapping[int, str]) -> tuple[str, ...]:
        """The lines of the iteration, given the register of each value."""
        return tuple(self.text(self.nodes[i].instruction, self.nodes[i].names, registers) for i in order)

    def text(self, instruction: BlockInstruction, names: Mapping[str, int], registers: Mapping[int, str]) -> str:
        """The line of an instruction, given the value behind each vector's name and the register of each value."""
        return instruction.text({**self.block.registers, **{name: registers[value] for name, value in names.items()}})

    def vector(self, instruction: BlockInstruction) -> str:
        """The name of the vector that an instruction writes."""
        return next(name for name in instruction.writes if name not in self.block.registers)

    def _start(self, name: str) -> int:
        self._current[name] = len(self.users)
        self.users.append(set())
        return self._current[name]

    def _add(self, instruction: BlockInstruction, ahead: bool = False, copy: int | None = None) -> None:
        number, fixed = len(self.nodes), self.block.registers
        if instruction.alias and copy is None and fixed.keys().isdisjoint(instruction.names):
            (source,), (target,) = instruction.reads, instruction.writes
            self._current[target] = self._current[source]
            return
        needs, fed_by, takes = set[int](), set[int](), set[int]()
        names: dict[str, int] = {}
        for name in instruction.reads:
            if name in fixed:
                fed_by |= {self._writer[name]} if name in self._writer else set()
                self._readers.setdefault(name, set()).add(number)
            else:
                names[name] = value = self._current[name]
                takes.add(value)
                fed_by |= {self._source[value]} if value in self._source else set()
                needs |= self.users[value] if name in instruction.keeps else set()
                self.users[value].add(number)
        gives = None
        for name in instruction.writes:
            if name in fixed:
                needs |= self._readers.get(name, set()) | ({self._writer[name]} if name in self._writer else set())
                self._writer[name], self._readers[name] = number, set()
                continue
            if name not in instruction.keeps:
                names[name] = gives = self._start(name)
            self._source[names[name]] = number
        if copy is not None:
            needs |= self.users[copy]
        lines = self._lines(instruction)
        if _is_store(instruction):  # lanes that mean nothing may lie where a later one writes
            needs |= self._stored
            self._stored = {number}
            if ahead:  # what it overwrites this iteration may still read
                needs |= {i for i, node in enumerate(self.nodes) if node.access == "load" and not node.ahead}
        needs = (needs | fed_by) - {number}
        if copy is not None and gives is not None:
            self._again[gives] = copy
        gathers = bool(lines) and lines[-1].offsets == _FREE
        offsets = frozenset(self._source[v] for v in takes if v in self._source) if gathers else frozenset[int]()
        timing, decoded = lines[-1].timing if lines else _AT_ONCE, self._on_values(instruction, lines, names)
        self.nodes.append(
            DependentInstruction(instruction, timing, names, needs, fed_by, gives, takes, copy, offsets, ahead, decoded)
        )

    def _lines(self, instruction: BlockInstruction) -> list[Instruction]:
        """The lines of an instruction as the scoreboard sees them; what comes before the last one sets its mask."""
        if self.decode is None:
            return []
        registers = {**dict.fromkeys(instruction.names, _FREE), **self.block.registers}
        lines = VARIABLE.sub(_of_variable, instruction.text(registers)).split("\\n")
        parts = (line.partition(" ") for line in lines)
        return [self.decode(mnemonic, operands, encoded_bytes(mnemonic)) for mnemonic, _, operands in parts]

    def _on_values(
        self, instruction: BlockInstruction, lines: Sequence[Instruction], names: Mapping[str, int]
    ) -> tuple[Instruction, ...]:
        """The lines with the values behind names for registers."""
        if not lines:
            return ()
        values = {name: str(self._again.get(value, value)) for name, value in names.items()}
        named = {name: values.get(name, self.block.registers.get(name, name)) for name in instruction.names}
        reads, writes = (tuple(named[name] for name in part) for part in (instruction.names, instruction.writes))
        offsets = reads[-1] if lines[-1].offsets else ""  # they stand last
        whole = lines[-1]._replace(reads=reads, writes=writes, offsets=offsets)
        return (*lines[:-1], whole)


def _is_store(instruction: BlockInstruction) -> bool:
    last = instruction.mnemonic.rpartition("\\n")[2]  # what comes before it there sets its mask
    return last.startswith(("str", "vst"))


def _of_variable(name: re.Match[str]) -> str:
    """A register of the class that a variable of C lies in."""
    return "q1" if name[0].startswith("%q") else "r0"
