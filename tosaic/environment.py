"""The stamp of a trial: all that a measurement depends on beside the kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import tosaic
from tosaic import backends
from tosaic.backends.cortex_m.toolchain import clang_version
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.target import Memory, Target
from tosaic.tuner.database import Environment

ANY = Environment("any", "any", "any", "any", "any")
"""For commands that move records and look none up."""

_ROOM = Path(backends.__file__).parent


def environment(target: Target, runner: Runner, archives: Mapping[str, Path]) -> Environment:
    """What trials for a target on a runner depend on; records of another environment are ignored.

    Args:
        archives: of the libraries that kernels may name; their file names hold the digest of what they were built from.
    """
    linked = "".join(f"; {name} {archive.stem}" for name, archive in archives.items())
    return Environment(
        core=target.core.name,
        memory="; ".join(_described(memory) for memory in target.trials.memories),
        toolchain=clang_version().splitlines()[0] + linked,
        simulator=f"{runner.version()}; {_digest('simulators', 'firmware')}; {_short([repr(target.core).encode()])}",
        compiler=f"{tosaic.__version__}+{_digest('cortex_m')}",
    )


def _described(memory: Memory) -> str:
    return f"{memory.name} {memory.base:#x} {memory.bytes_per_cycle} B/cycle after {memory.latency}"


@cache
def _digest(*rooms: str) -> str:
    """A digest of the sources below rooms of `backends`, whose change makes records stale."""
    files = (path for room in rooms for path in sorted((_ROOM / room).rglob("*")))
    return _short(path.read_bytes() for path in files if path.suffix in (".py", ".c", ".h"))


def _short(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
