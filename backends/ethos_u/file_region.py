"""A region as a file for another runtime holds it: what it computes, and nothing of how Vela came to it."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.npu import USUAL, NpuPort, NpuRegion

_GENERATIONS = ("u55", "u65", "u85")


def file_region(
    stream: bytes,
    constants: bytes,
    scratch_bytes: int,
    fast_bytes: int,
    inputs: Iterable[NpuPort],
    outputs: Iterable[NpuPort],
) -> NpuRegion:
    """The region of a command stream.

    Raises:
        ValueError: the stream is for no accelerator that there is.
        struct.error: it is too short.
    """
    return NpuRegion(
        accelerator=_accelerator(stream),
        options=USUAL,
        command_stream=stream,
        constants=constants,
        scratch_bytes=scratch_bytes,
        fast_bytes=fast_bytes,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        cycles=0,
        ops=(),
        tensors=(),
        memory={},
    )


def _accelerator(stream: bytes) -> str:
    """What a COP1 container says it was compiled for: the product from bit 28 on, log2 of its MACs in bits 0 to 3."""
    _, _, configuration = struct.unpack_from("<4s2I", stream)
    name = f"ethos-{_GENERATIONS[configuration >> 28]}-{1 << (configuration & 15)}"
    if stream[:4] != b"COP1" or name not in ACCELERATORS:
        raise ValueError(f"no accelerator is called {name}")
    return name
