"""Primitives on how loops are executed: words, block, and those that a core iterates by itself: hardware_loop, hoist,
pipeline."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.cortex_m.program.around import around_of
from tosaic.backends.cortex_m.program.copied_rows import copied_row
from tosaic.backends.cortex_m.program.primitives.loops import plain, with_loop
from tosaic.backends.cortex_m.program.program import Program, walk
from tosaic.backends.cortex_m.program.rewriting import mapped
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.touches import touches, written_by
from tosaic.backends.cortex_m.program.tree import BLOCKS, SCALAR, For, Instr, RefusedError, Statement


@PRIMITIVES.register
class Block(Primitive):
    """`block(k)`: an iteration of a loop is one block of assembly, in which loops are written out."""

    name = "block"
    takes = ("instructions",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        if any(isinstance(s, SCALAR) for s in walk(loop.body)):
            raise RefusedError(f"`{loop.var}` holds what is no instruction: select some first")
        if any(isinstance(s, For) and s.kind == "block" for s in walk(loop.body)):
            raise RefusedError(f"`{loop.var}` holds a block")
        if any(isinstance(s, For) and s.kind in BLOCKS for s in around_of(loop, program.body) or ()):
            raise RefusedError(f"`{loop.var}` is in a block")

        def unrolled(s: Statement) -> Statement:
            return replace(s, kind="unroll") if isinstance(s, For) and s.kind == "each" else s

        if not any(isinstance(s, Instr) for s in walk(loop.body)):
            raise RefusedError(f"`{loop.var}` holds no instruction")
        return with_loop(program, loop, replace(loop, body=mapped(loop.body, unrolled), kind="block"))


@PRIMITIVES.register
class Words(Primitive):
    """`words(x)`: a loop that copies neighbors reads several words of them before it writes these.

    A compiler does so by itself only where the buffers cannot lie over each other.
    """

    name = "words"
    takes = ("copy",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        copied_row(loop, program.buffers)
        return with_loop(program, loop, replace(loop, kind="words"))


@PRIMITIVES.register
class HardwareLoop(Primitive):
    """`hardware_loop(x)`: the core counts the iterations of a loop over instructions, in which other loops are written
    out.

    It may stand in a block, between other instructions.
    """

    name = "hardware_loop"
    takes = ("instructions",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop = plain(program.loop(str(arguments[0])))
        inside = list(walk(loop.body))
        if loop.early:
            raise RefusedError(
                f"the last iteration of `{loop.var}` starts early, and pointers move on by as much each iteration"
            )
        if not holds_instructions_alone(loop):
            raise RefusedError(f"`{loop.var}` holds what is no instruction: select some first")
        outside = around_of(loop, program.body) or ()
        if any(isinstance(s, For) and s.kind in BLOCKS for s in (*inside, *outside)):
            raise RefusedError(f"`{loop.var}` holds a block, or is in one")

        def unrolled(s: Statement) -> Statement:
            return replace(s, kind="unroll") if isinstance(s, For) else s

        made = replace(loop, body=mapped(loop.body, unrolled), kind="hardware_loop")
        return with_loop(program, loop, made)


def holds_instructions_alone(loop: For) -> bool:
    """Whether a loop holds instructions, and no other statement that computes."""
    inside = list(walk(loop.body))
    return any(isinstance(s, Instr) for s in inside) and not any(isinstance(s, SCALAR) for s in inside)


def _turned(program: Program, var: str) -> For:
    """Guard: a hardware loop of which nothing runs ahead yet.

    Raises:
        RefusedError: it is none, or has no further iteration.
    """
    loop = program.loop(var)
    if loop.kind != "hardware_loop" or loop.iterations < 2 or loop.ahead:
        raise RefusedError(f"`{var}` is no hardware loop of several iterations of which nothing runs ahead")
    return loop


@PRIMITIVES.register
class Hoist(Primitive):
    """`hoist(x, 2)`: of the loads that open an iteration of a hardware loop, so many are executed in the iteration
    before."""

    name = "hoist"
    takes = ("hardware", "number")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, loads = _turned(program, str(arguments[0])), int(arguments[1])
        if loads < 1:
            raise RefusedError(f"{loads} loads are none")
        return with_loop(program, loop, replace(loop, ahead=loads))


@PRIMITIVES.register
class PipelineLoop(Primitive):
    """`pipeline(x, T)`: a hardware loop executes the first part of each iteration in the iteration before. The first
    part is all up to where `T` is made. It stands beside the end of the iteration before.
    """

    name = "pipeline"
    takes = ("hardware", "made")

    def apply(self, program: Program, *arguments: Argument) -> Program:
        loop, b = _turned(program, str(arguments[0])), program.buffer(str(arguments[1]))
        if b.memory != "q" or b.name not in written_by(loop.body) or b.name not in _own(loop):
            raise RefusedError(f"an iteration of `{loop.var}` makes no vectors {b.name}")
        return with_loop(program, loop, replace(loop, ahead=b.name))


def _own(loop: For) -> set[str]:
    """The names of buffers that an iteration reads after it has made them."""
    return {access.buffer for how, access in touches(loop.body) if how == "read"}
