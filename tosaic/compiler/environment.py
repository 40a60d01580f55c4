"""The stamp of a trial: all that a measurement depends on beside the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tosaic
from tosaic.backends.cortex_m.toolchain import clang_version
from tosaic.backends.digest import code_digest, short_digest
from tosaic.backends.simulators.execution import Machine
from tosaic.backends.target import Layout, Memory, Target
from tosaic.tuner.database import Environment

ANY = Environment("any", "any", "any", "any", "any")
"""For commands that move records and look none up."""


def environment(target: Target, machine: Machine, layout: Layout, archives: Mapping[str, Path]) -> Environment:
    """What trials for a target on a machine depend on; records of another environment are ignored.

    Args:
        layout: where they lie.
        archives: of the libraries that kernels may name; their file names hold the digest of what they were built from.
    """
    timings = short_digest([repr(target.core).encode()])
    linked = "".join(f"; {name} {archive.stem}" for name, archive in archives.items())
    return Environment(
        core=target.core.name,
        memory="; ".join(_described(memory) for memory in layout.memories),
        toolchain=clang_version().splitlines()[0] + linked,
        simulator=f"{machine.version()}; {code_digest('bench', 'simulators', 'firmware')}; {timings}",
        compiler=f"{tosaic.__version__}+{code_digest('cortex_m')}",
    )


def _described(memory: Memory) -> str:
    speed = f"{memory.bytes_per_cycle} B/cycle after {memory.latency}"
    lines = "".join(f" by {cache}" for cache in memory.caches)
    return f"{memory.name} {memory.base:#x} {speed}, {memory.line_fill}/{memory.line_write_back} a line{lines}"
