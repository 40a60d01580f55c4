"""What a call finds in the cache that a call before it has read: weights that both use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256

from tosaic.backends.cortex_m.footprint import USABLE
from tosaic.backends.cortex_m.kernel import WORTH_SHARING
from tosaic.backends.firmware.program import KernelCall
from tosaic.compiler.fitting.calls import Calls
from tosaic.compiler.fitting.ways import Segment
from tosaic.compiler.tuning import Tuner

Kept = frozenset[bytes]
"""The constants that a cache holds, each by its digest."""


class ConstantReuse:
    """Which constants the cache holds behind some segments, and what these are to a call.

    A trial begins with no constants in the cache. In the program a call finds those of an earlier one, where the cache
    holds all that was read and written since. Kernels of streams pack weights in their own way.
    """

    def __init__(self, tuner: Tuner, calls: Calls) -> None:
        self._calls = calls
        self._cache = tuner.constants.data_cache if tuner.constants else None
        self._holds_tensors = tuner.tensors is not None and tuner.tensors.data_cache == self._cache

    def kept(self, segments: Sequence[Segment]) -> Kept:
        """The constants of several calls that the cache holds behind segments that run one after another."""
        if self._cache is None or not self._shared:
            return frozenset()
        found, touched = set[bytes](), dict[object, int]()
        for segment in reversed(segments):
            touched |= self._touched(segment)
            if sum(touched.values()) > USABLE * self._cache.size:
                break
            if not segment.rows:
                found |= self._shared & self._constants[segment.first].keys()
        return frozenset(found)

    def found(self, kept: Kept, segment: Segment) -> int:
        """Bytes of constants that a segment finds in a cache."""
        if segment.rows or not kept:
            return 0
        return sum(size for digest, size in self._constants[segment.first].items() if digest in kept)

    @cached_property
    def _constants(self) -> list[Mapping[bytes, int]]:
        """The bytes of each block of constants of each call."""
        found = list[Mapping[bytes, int]]()
        for call in self._calls.program.calls:
            blocks = (call.kernel.params, call.kernel.shared) if isinstance(call, KernelCall) else ()
            found.append({sha256(block).digest(): len(block) for block in blocks})
        return found

    @cached_property
    def _shared(self) -> Kept:
        """The blocks that several calls read."""
        users = Counter(digest for blocks in self._constants for digest, size in blocks.items() if size > WORTH_SHARING)
        return frozenset(digest for digest, count in users.items() if count > 1)

    def _touched(self, segment: Segment) -> dict[object, int]:
        """The blocks that a segment reads and writes through the cache, and the bytes of each."""
        program, touched = self._calls.program, dict[object, int]()
        for number in range(segment.first, segment.last + 1):
            touched |= {(digest, segment.rows > 0): size for digest, size in self._constants[number].items()}
            if self._holds_tensors:
                call = program.calls[number]
                names = map(program.storage, (*call.reads, *call.writes))
                touched |= {name: program.buffers[name].size for name in names}
        return touched
