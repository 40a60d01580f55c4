"""What a stream keeps in scratch memory, and its params."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.sharing import as_one, whole_vectors, with_shared_weights
from tosaic.backends.cortex_m.streams.layout import WindowPlace, lay_out
from tosaic.backends.cortex_m.streams.plan import Plan

StageCall: TypeAlias = tuple[int, int]
"""A stage, and the rows that a call of its kernel makes."""
Strips = Mapping[StageCall, Sequence[KernelSource]]
"""The kernel of each stage, by its number and the rows that a call makes; one for each call where params differ."""

KNOWN = "known"
"""The params of a stream."""
STATE = 3
"""Words that a stream keeps which is fed: the turn and the phase of its next step, and the rows taken for that."""


def cached_name(source: int) -> str:
    """What a copy in scratch memory is called of params that begin with a byte."""
    return f"cached{source}"


class StreamMemory:
    """Offsets of all that the calls of a stream need.

    Args:
        plan: the stream.
        strips: the kernels of its stages.
        cached: stages whose params are copied to scratch memory once.

    Raises:
        BackendError: the kernels of the calls of a stage differ.
    """

    def __init__(self, plan: Plan, strips: Strips, cached: Collection[int]) -> None:
        self._plan, self._end = plan, 0
        self.params = Params()
        self.own_params = {call: len(each[0].params) for call, each in strips.items() if len(each) > 1}
        self.strips = {call: as_one(each) for call, each in strips.items()}
        self.strips |= with_shared_weights(
            {call: source for call, source in self.strips.items() if call not in self.own_params}
        )
        self._at: dict[StageCall, int] = {}
        self._cached: dict[StageCall, tuple[int, int]] = {}
        self.kept: dict[int, tuple[int, int]] = {}
        for block, begins in _blocks(self.strips):
            self._place_params(block, begins, cached)
        self.state = self._reserve(4 * STATE if plan.stream.fed else 0)
        numbers = range(len(plan.units))
        layout = lay_out(plan, [self.staged_bytes(number) + self._inner_bytes(number) for number in numbers])
        start = self._reserve(layout.size)
        self.windows = {
            name: WindowPlace(start + place.at, start + place.kept_at) for name, place in layout.windows.items()
        }
        self.working = [start + at for at in layout.working]

    @property
    def size(self) -> int:
        """Bytes of scratch memory."""
        return self._end

    def params_of(self, call: StageCall) -> tuple[str, int, int]:
        """The buffer and the byte where the params of the kernel of a call lie, and by how many bytes those of a later
        call lie behind them."""
        apart = round_up(self.own_params[call], VECTOR) if call in self.own_params else 0
        if call in self._cached:
            source, begin = self._cached[call]
            return cached_name(source), begin, apart
        return KNOWN, self._at.get(call, 0), apart

    def _place_params(self, block: bytes, begins: Mapping[StageCall, int], cached: Collection[int]) -> None:
        at = self.params.add(whole_vectors(block))
        self._at |= {call: at + begin for call, begin in begins.items()}
        if any(stage in cached for stage, _ in begins):
            copy = self._reserve(len(block))
            self.kept[at] = copy, round_up(len(block), VECTOR)
            self._cached |= {call: (at, begin) for call, begin in begins.items()}

    def _reserve(self, size: int) -> int:
        offset = self._end
        self._end = round_up(offset + size, VECTOR)
        return offset

    def staged_bytes(self, number: int) -> int:
        """Bytes of the strips of a stage's arguments that have planes."""
        made = self._plan.units[number]
        size = sum(
            argument.planes * argument.rows.count(made) * argument.bytes
            for argument in self._plan.stream.stages[number].arguments
            if argument.rows and argument.planes > 1
        )
        return round_up(size, VECTOR)

    def _inner_bytes(self, number: int) -> int:
        """Bytes of the working memory of a stage's kernels."""
        return max((source.scratch_bytes for (stage, _), source in self.strips.items() if stage == number), default=0)


def _blocks(strips: Mapping[StageCall, KernelSource]) -> list[tuple[bytes, dict[StageCall, int]]]:
    """Params that lie together, and where those of each strip begin: equal ones once, and those of equal weights behind
    these, each with the distance to them at its end."""
    found: dict[bytes, tuple[Params, dict[bytes, int], dict[StageCall, int]]] = {}
    for key, source in strips.items():
        block, known, begins = found.setdefault(source.shared or source.params, (Params(), {}, {}))
        if not len(block) and source.shared:
            block.add(whole_vectors(source.shared))
        if source.params not in known:
            begin = round_up(len(block), VECTOR)
            distance = (-begin - len(source.params)).to_bytes(4, "little", signed=True) if source.shared else b""
            known[source.params] = block.add(np.frombuffer(source.params + distance, np.uint8))
        begins[key] = known[source.params]
    return [(bytes(block), begins) for block, _, begins in found.values() if len(block)]
