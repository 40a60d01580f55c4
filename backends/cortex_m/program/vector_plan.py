"""The registers and pointers of a block with vectors, and its instructions on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tosaic.backends.cortex_m.program.block import BlockInstruction, halves, with_late_loads
from tosaic.backends.cortex_m.program.general_registers import GeneralRegisters, guard_spent, staying
from tosaic.backends.cortex_m.program.inline_assembly import VECTORS, low_registers
from tosaic.backends.cortex_m.program.pointer_uses import PointerUse
from tosaic.backends.cortex_m.program.pointers import SPREADS, WAYS, Way, planned
from tosaic.backends.cortex_m.program.tree import Alloc, Buffer, For, RefusedError, Statement
from tosaic.backends.cortex_m.program.vector_order import behind_loop, from_one_pointer, needed_first
from tosaic.backends.cortex_m.program.vector_parts import steps_of
from tosaic.backends.cortex_m.program.vector_steps import (
    CARRY,
    Distances,
    SpreadNumber,
    VectorStep,
    addresses,
    distances,
    mask_of,
    names_of,
    spread_number,
    use_of,
)
from tosaic.backends.target import Pipeline

_GENERAL, _CARRY = 13, "r11"
"""How many general registers there are; that of bits that mean nothing, which may be odd."""
_LOW = tuple(f"r{i}" for i in range(8))
_LATE = ("vldr", "vdup")


class PressureError(RefusedError):
    """There are too few general registers."""


class VectorPlan:
    """A block as parts: before its loop, an iteration, and behind.

    Args:
        numbers: the general registers of sums.
        filled: as of `ordered`.
        outside: whether numbers from outside that stay in all lanes are vectors of C, as general registers are few.
        several: gathers in a row that begin at one pointer.
        by_addresses: how vectors that hold the addresses of gathers go along these; None where none do.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[Statement]],
        loop: For | None,
        buffers: Mapping[str, Buffer],
        pipeline: Pipeline | None,
        numbers: Sequence[str],
        *,
        outside: bool,
        filled: bool,
        several: int = 1,
        by_addresses: Way | None = None,
    ) -> None:
        self.loop, self.buffers, self.pipeline, self.filled = loop, buffers, pipeline, filled
        allocs = [s.buffer for part in parts for s in part if isinstance(s, Alloc)]
        if any(b.memory == "scratch" for b in allocs):
            raise RefusedError("a block has no working memory of its own")
        self.inside = {b.name for b in allocs}
        guard_spent(parts)
        written, short = dict[str, int](), dict[str, int]()
        steps = behind_loop([steps_of(part, buffers, written, short) for part in parts])
        self.parts = [from_one_pointer(part, buffers, several) for part in steps]
        self.names = [names_of(part) for part in self.parts]
        self.mask = mask_of(step for part in self.parts for step in part)
        apart = dict.fromkeys(each for part in self.parts for step in part if (each := distances(step)) is not None)
        self.constants: list[Distances | SpreadNumber] = [*apart]
        if outside and loop is not None:
            self._spread_outside()
        conditions = any(step.has_condition for part in self.parts for step in part)
        self.predicates = bool(self.mask) or conditions
        taken = self.mask if loop is None else self.predicates
        self.taken = {"r0" if loop is None else "r12"} if taken else set[str]()
        self.count = "r0" if loop is None else "lr"
        if self.mask and conditions:
            self._masked_each()
        lasting = loop is not None or (self.mask and conditions)
        numbers = [name for name in numbers if not lasting or name not in self.taken]
        moves = any(step.instr.row.moves_in_place for part in self.parts for step in part)
        self.carry = {CARRY: _CARRY} if moves else {}
        self.taken |= {*self.carry.values()}
        general = GeneralRegisters(self.parts, self.inside, numbers, self.taken)
        self.parts, self.assigned = general.parts, general.found
        self.names = [names_of(part) for part in self.parts]
        self.held = self._held()
        self.first = self._opening() if loop is not None and loop.iterations > 1 else 0
        if not self.first:
            iteration = 0 if loop is None else 1
            self.parts[iteration] = self._late(self.parts[iteration])
        living = {name: kind for part in self.names for name, kind in part.items() if name not in self.assigned}
        self.read = [name for name, kind in living.items() if kind == "r"]
        pairs = [name for name, kind in living.items() if kind == "p"]
        self.changed = [name.removesuffix("_low") for name in pairs if name.endswith("_low")]
        self.halves = {half: text for name in self.changed for half, text in halves(name).items()}
        if any(name in self.read for part in self.parts for step in part for name in step.targets):
            raise RefusedError("a block with vectors changes no number of 32 bits that lives outside")
        self._point(list(self._uses(by_addresses is not None)), by_addresses or WAYS[0])
        used = {name for part in self.code for each in part for name in each.names}
        self.constants = [each for each in self.constants if each.name in used]
        kept = len(self.held) + len(self.constants) + len(self.pointers.lanes)
        self.free = VECTORS[: len(VECTORS) - kept] or VECTORS[:1]

    def _spread_outside(self) -> None:
        """Numbers from outside that are written to all lanes before the loop are vectors of C."""
        written = Counter(name for part in self.parts for step in part for name in step.targets)
        found = {step: spread for step in self.parts[0] if (spread := spread_number(step)) is not None}
        moved = {
            step: spread
            for step, spread in found.items()
            if written[spread.name] == 1 and spread.number.rpartition("__")[0] not in self.inside
        }
        self.parts[0] = [step for step in self.parts[0] if step not in moved]
        self.names[0] = names_of(self.parts[0])
        self.constants += moved.values()

    def _masked_each(self) -> None:
        """Each instruction with a mask sets it, as conditions on values have the same register."""
        assert self.mask is not None
        if self.loop is not None:
            self.count = "r6"
            self.taken.add(self.count)
        sets = f"vctp.{self.mask[1]} {self.count}"
        self.parts = [[replace(s, mask=sets) if s.instr.limit else s for s in part] for part in self.parts]

    def _uses(self, by_addresses: bool) -> Iterator[PointerUse]:
        """The accesses of memory."""
        for number, part in enumerate(self.parts):
            for step in part:
                if (use := use_of(step, self.buffers)) is not None:
                    lanes = addresses(step) if by_addresses else None
                    yield use._replace(iterations=number == 1, behind=number == 2, lanes=lanes)

    def _point(self, uses: Sequence[PointerUse], way: Way) -> None:
        """Plan the pointers, and write the code on them.

        Raises:
            RefusedError: there are too few general registers, or `way` makes no difference.
        """
        for spread in SPREADS:
            self.pointers = planned(uses, self.loop, spread, way)
            if way != WAYS[0] and not self.pointers.distances:
                raise RefusedError("no vector of addresses goes along accesses")
            self.code = [self.made(part) for part in self.parts]
            if not self.is_short():
                return
        raise PressureError(
            f"{len(self.pointers.starts)} pointers, {len(self.assigned)} sums and {len(self.read)} numbers do not fit "
            "the general registers"
        )

    def is_short(self, narrow: Collection[str] = ()) -> bool:
        """Whether there are too few general registers, or too few low ones, with those of `narrow` instructions."""
        used, names = {*self.assigned.values()} | self.taken, {name: f"%[{name}]" for name in self.pointers.numbers}
        low = low_registers(i.text(names) for part in self.code for i in part) | {*narrow}
        kept = len([register for register in used if register in _LOW])
        general = len(used) + len(self.pointers.numbers) + len(self.read_alone) + len(self.halves)
        return general > _GENERAL or len(low) + kept > len(_LOW)

    @property
    def read_alone(self) -> list[str]:
        """The C variables in general registers that are read alone, but for pointers."""
        return [*self.read, *self.pointers.distances]

    def _lasting(self) -> list[str]:
        """The vectors that several parts name, but for constants."""
        known = {each.name for each in self.constants}
        return [name for name in staying(self.names, "q") if name not in known]

    def _held(self) -> dict[str, str]:
        """The registers of vectors that live in several parts, or follow each other."""
        together = dict.fromkeys(
            name for part in self.parts for step in part for name in step.registers.get(step.instr.row.together, ())
        )
        held = [*reversed(together), *(name for name in self._lasting() if name not in together)]
        if len(held) > len(VECTORS) - (not together):
            raise RefusedError(f"{len(held)} vectors stay in registers, of {len(VECTORS)}")
        return dict(zip(held, reversed(VECTORS), strict=False))

    # What runs an iteration ahead.

    def _opening(self) -> int:
        """How many instructions of an iteration run in the one before: those that a buffer needs to be made first.

        Others among them move behind.
        """
        ahead = self.loop.ahead if self.loop is not None else 0
        if not isinstance(ahead, str):
            return 0
        count = 0
        for number, step in enumerate(self.parts[1], 1):
            if any(name.rpartition("__")[0] == ahead for name in step.sources):
                break
            count = number if any(name.rpartition("__")[0] == ahead for name in step.targets) else count
        first, rest = needed_first(self.parts[1][:count], ahead)
        self.parts[1] = [*first, *rest, *self.parts[1][count:]]
        return len(first)

    def _late(self, steps: Sequence[VectorStep]) -> list[VectorStep]:
        """The steps with each load, and each number that goes to all lanes, right before what reads its vector."""
        whole = [step.as_one for step in steps]
        of = {id(each): step for each, step in zip(whole, steps, strict=True)}
        numbers = {name for part in self.names for name, kind in part.items() if kind in ("r", "p")}
        late = with_late_loads(whole, {*self.assigned, *self.held, *numbers}, _LATE)
        return [of[id(each)] for each in late]

    def made(self, steps: Sequence[VectorStep]) -> list[BlockInstruction]:
        return [i for step in steps for i in step.made(self.pointers.addresses.get(step))]
