"""Other ways in which Vela compiles a region, judged by its own cycles and the working memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tosaic.backends.npu import NpuOptions, NpuRefusal, NpuRegion
from tosaic.backends.npus import compile_region
from tosaic.support.functions import body_of, callee_of, computing_ops, number_of_states
from tosaic.support.mlir import functions, ir
from tosaic.support.values import byte_size, users

_SHARES = (0.75, 0.25)
_SHARES_OF_ROOM = (1.0, 0.9, 0.8)


def better_regions(flatbuffer: bytes, usual: NpuRegion, room: int, alone: bool = False) -> list[NpuRegion]:
    """What Vela makes of a region under other limits of its arena, the best first, and only what is better than usual.

    Better is what exceeds `room` bytes of working memory by less; then what takes fewer cycles; then less memory.

    Args:
        room: bytes beside the region's inputs and outputs.
        alone: whether it is all of the model, so that its inputs and outputs may lie in its working memory.
    """

    def cost(region: NpuRegion) -> tuple[int, int, int]:
        ports = (*region.inputs, *region.outputs) if not region.options.separate_io else ()
        taken = region.scratch_bytes + region.fast_bytes - sum(port.size for port in ports)
        return max(0, taken - room), region.cycles, taken

    ways = list(dict.fromkeys(_ways(usual, room)))
    if alone:
        ways += [replace(options, separate_io=False) for options in (usual.options, *ways)]
    found = []
    for options in ways:
        try:
            found.append(compile_region(flatbuffer, usual.accelerator, options))
        except NpuRefusal:
            continue
    return sorted((region for region in found if cost(region) < cost(usual)), key=cost)


def _ways(usual: NpuRegion, room: int) -> Iterator[NpuOptions]:
    for share in _SHARES:
        yield replace(usual.options, arena_limit=int(share * (usual.scratch_bytes + usual.fast_bytes)))
    if usual.scratch_bytes + usual.fast_bytes > room > 0:
        for share in _SHARES_OF_ROOM:
            yield replace(usual.options, arena_limit=int(share * room))
        yield replace(usual.options, optimize="Size")


def is_alone(placed: ir.Module, name: str) -> bool:
    """Whether `main` is one call of the function `name`, which takes all that it takes and keeps no state."""
    main = functions(placed)["main"]
    calls = [op for op in computing_ops(main) if op.name == "func.call"]
    return len(calls) == 1 and callee_of(calls[0]) == name and not number_of_states(main)


def bytes_beside(placed: ir.Module, name: str) -> int:
    """Bytes of the tensors of `main` that are live while it calls the function `name`, its arguments and results
    included; reshapes take none."""
    block = body_of(functions(placed)["main"])
    ops = [op.operation for op in block.operations]
    number = {op: index for index, op in enumerate(ops)}
    call = next(index for index, op in enumerate(ops) if op.name == "func.call" and callee_of(op) == name)
    made = [(value, -1) for value in block.arguments]
    made += [(value, number[op]) for op in ops if op.name == "func.call" for value in op.results]
    lasting = [(value, first, max((number[op] for op in _readers(value)), default=first)) for value, first in made]
    return sum(byte_size(value) for value, first, last in lasting if first <= call <= last)


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """What reads a value, or a reshape of it."""
    for user in users(value):
        if user.name == "tosa.reshape":
            yield from _readers(user.results[0])
        else:
            yield user
