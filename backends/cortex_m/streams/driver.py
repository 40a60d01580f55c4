"""The kernel of a stream: it calls the kernels of its stages on strips of rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.streams.calls import StreamCalls
from tosaic.backends.cortex_m.streams.feeding import fed_kernel
from tosaic.backends.cortex_m.streams.memory import StreamMemory, Strips
from tosaic.backends.cortex_m.streams.plan import Plan
from tosaic.backends.target import Core


def stream_kernel(plan: Plan, strips: Strips, cached: Collection[int], core: Core) -> KernelSource:
    """The kernel of a planned stream.

    Args:
        strips: the kernels of its stages; copies have none.
        cached: stages whose params are copied to scratch memory once, where every call then reads them.

    Raises:
        BackendError: the kernels of the calls of a stage differ.
    """
    memory = StreamMemory(plan, strips, cached)
    calls = StreamCalls(plan, memory, core)
    source = fed_kernel(calls) if plan.stream.fed else calls.source("stream", calls.whole)
    parts = {part.symbol: part for part in memory.strips.values()}
    return replace(
        source,
        params=bytes(memory.params),
        scratch_bytes=memory.size,
        in_place=calls.over,
        libraries=tuple(dict.fromkeys(library for part in parts.values() for library in part.libraries)),
        parts=tuple({e.symbol: e for part in parts.values() for e in (*part.parts, part)}.values()) + source.parts,
    )
