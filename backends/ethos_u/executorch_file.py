"""A `.pte` file of ExecuTorch's: the regions that its Ethos-U delegate runs.

Each is a payload of blocks, as `backends/arm/arm_vela.py` of executorch 1.5.1 writes them: a name of 16 bytes, the
length, 12 reserved bytes, and the content, filled up to a multiple of 16.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from math import prod

from tosaic.backends.ethos_u.file_region import file_region
from tosaic.backends.npu import CompiledFile, CompiledStep, FileValue, NpuPort, NpuRegion

_IDENTIFIER = b"ET"
_FIRST, _LAST = b"vela_bin_stream\0", "vela_end_stream"
_NAME, _HEAD = 16, 32
"""Bytes of a block's name, and of all ahead of its content."""
_PORT = 9
"""Numbers that tell an input or output: six dimensions, bytes of an element, address, memory region."""
_DTYPES = {1: "int8", 2: "int16", 4: "int32"}
_FAST_BYTES = 1 << 22
"""Of fast working memory, whose size no payload tells: more than any system has."""


def is_executorch(content: bytes) -> bool:
    """Whether a file says that it is a program of ExecuTorch's."""
    return content[4:6] == _IDENTIFIER


def read_executorch(content: bytes) -> CompiledFile | None:
    """The regions of a file, each with inputs and outputs of its own; None where it has none.

    Raises:
        struct.error, ValueError, KeyError: it is damaged, or has what Vela does not write.
    """
    regions = [_region(_blocks(content, found.start())) for found in re.finditer(re.escape(_FIRST), content)]
    return _in_one_file(regions) if regions else None


def _blocks(content: bytes, at: int) -> Mapping[str, bytes]:
    """The content of each block of the payload that begins at a byte of a file, by name."""
    found = dict[str, bytes]()
    while _LAST not in found:
        (size,) = struct.unpack_from("<I", content, at + _NAME)
        name = content[at : at + _NAME].rstrip(b"\0").decode("ascii")
        found[name] = content[at + _HEAD : at + _HEAD + size]
        if len(found[name]) < size:
            raise ValueError(f"`{name}` ends behind the file")
        at += _HEAD + size + -size % 16
    return found


def _region(blocks: Mapping[str, bytes]) -> NpuRegion:
    return file_region(
        blocks["cmd_data"],
        blocks.get("weight_data", b""),
        struct.unpack("<I", blocks["scratch_size"])[0],
        _FAST_BYTES,
        _ports(blocks["inputs"]),
        _ports(blocks["outputs"]),
    )


def _ports(block: bytes) -> Iterator[NpuPort]:
    (count,) = struct.unpack_from("<i", block)
    for number in range(count):
        *shape, size, address, region = struct.unpack_from(f"<{_PORT}i", block, 4 + 4 * _PORT * number)
        yield NpuPort(region, address, prod(shape) * size, tuple(shape), _DTYPES[size])


def _in_one_file(regions: list[NpuRegion]) -> CompiledFile:
    """Regions that take nothing from each other."""
    values, steps = dict[int, FileValue](), list[CompiledStep]()
    taken, given = list[int](), list[int]()
    for number, region in enumerate(regions):
        inputs, outputs = list[int](), list[int]()
        for what, ports, found in (("input", region.inputs, inputs), ("output", region.outputs, outputs)):
            for index, port in enumerate(ports):
                found.append(len(values))
                values[len(values)] = FileValue(f"{what} {index} of region {number}", port.shape, port.dtype)
        steps.append(CompiledStep(number, "ethos-u", tuple(inputs), tuple(outputs), region))
        taken += inputs
        given += outputs
    return CompiledFile(values, tuple(taken), tuple(given), tuple(steps), "tosa")
