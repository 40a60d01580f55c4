"""The primitive of sums that fit 16 bits: fit."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tosaic.backends.cortex_m.program.affine import Affine
from tosaic.backends.cortex_m.program.around import loops_of, under
from tosaic.backends.cortex_m.program.host import Derive
from tosaic.backends.cortex_m.program.primitives.ranges import range_of
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.rewriting import mapped, parts_of, with_part
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Argument, Primitive
from tosaic.backends.cortex_m.program.tree import Access, Assign, Op, Reduce, RefusedError, Statement, Value


class _ScaledSum(NamedTuple):
    """A scaled sum that is saturated: the value, and what it is made of."""

    saturated: Op
    total: Value
    multiplier: Access
    shift: Access
    zeros: tuple[Access, ...]

    @property
    def low(self) -> Op:
        """The same number where it fits."""
        return Op("low_half", self.saturated.args)


@PRIMITIVES.register
class FitSum(Primitive):
    """`fit(out)`: a scaled sum that `out` saturates to 16 bits is cut off instead, as it fits them. It is a sum of
    products of bytes and constants, of which the host knows how large it gets, or several sums, of which types tell."""

    name = "fit"
    takes = ("buffer",)

    def apply(self, program: Program, *arguments: Argument) -> Program:
        name = program.buffer(str(arguments[0])).name
        scaled = _saturated(program, name)
        sums = _summed(program, scaled, scaled.total) if isinstance(scaled.total, Access) else ()
        rule, bounds = ("fits", ()) if sums else ("range_fits", range_of(program, scaled.total))
        scales = (scaled.multiplier.buffer, scaled.shift.buffer)
        buffers = [program.buffers[source] for source in (*sums, *scales, *(a.buffer for a in scaled.zeros))]
        alike = scaled.multiplier.index == scaled.shift.index
        alike &= len({program.buffers[source].shape for source in (*sums[1:], *scales)}) == 1
        if not alike or any(b.memory != "const" for b in buffers):
            raise RefusedError(f"what makes {name} of a sum is no constants of a channel")

        def one(s: Statement) -> Statement:
            if not isinstance(s, Assign) or s.target.buffer != name:
                return s
            return replace(s, value=with_part(s.value, scaled.saturated, scaled.low))

        host = Derive("fits", rule, tuple(b.name for b in buffers), tuple(b.shape for b in buffers), bounds)
        return replace(program, body=mapped(program.body, one), host=(*program.host, host))


def _saturated(program: Program, name: str) -> _ScaledSum:
    """The one scaled sum that a buffer is assigned.

    Raises:
        RefusedError: there is none, or there are several.
    """
    values = (s.value for s in program.statements if isinstance(s, Assign) and s.target.buffer == name)
    found = {scaled for value in values for part in parts_of(value) if (scaled := _scaled(part)) is not None}
    if len(found) != 1:
        raise RefusedError(f"{name} saturates no one scaled sum to 16 bits")
    return found.pop()


def _scaled(value: Value) -> _ScaledSum | None:
    """What a value is made of where it saturates a scaled sum, perhaps with a zero point; None of others."""
    match value:
        case Op("sat16", (Op("scale32", (total, Access() as multiplier, Access() as shift)),)):
            return _ScaledSum(value, total, multiplier, shift, ())
        case Op(
            "sat16",
            (
                Op(
                    "add",
                    (
                        Op("scale32", (total, Access() as multiplier, Access() as shift)),
                        Access(index=()) as zero,
                    ),
                ),
            ),
        ):
            return _ScaledSum(value, total, multiplier, shift, (zero,))
    return None


def _summed(program: Program, scaled: _ScaledSum, total: Access) -> tuple[str, str]:
    """The weights and the bias of sums, both in the order of channels.

    Raises:
        RefusedError: a sum is more than its bias and its products of bytes and weights.
    """
    name = total.buffer
    written = [(s, around) for s, around in under(program.body, name=name) if isinstance(s, Assign | Reduce)]
    written = [(s, around) for s, around in written if s.target.buffer == name]
    match [s for s, _ in written]:
        case [
            Assign(target=begun, value=Access() as bias),
            Reduce(target=target, value=Op("mul", (Access() as left, Access() as weights))),
        ]:
            channel = [begun.index.index(i) for i in bias.index if i in begun.index]
            own, rest = weights.index[: len(channel)], weights.index[len(channel) :]
            scale = tuple(total.index[d] for d in channel)
            alike = len(channel) == len(bias.index) and tuple(target.index[d] for d in channel) == own
            alike &= scale == scaled.multiplier.index == scaled.shift.index
            once = [Affine.of(loop.var) for loop in loops_of(written[1][1])]
            counted = len({*once}) == len(once) == len(target.index) + len(rest) and {*once} == {*target.index, *rest}
            if alike and counted and program.buffers[left.buffer].dtype == "i8":
                return weights.buffer, bias.buffer
    raise RefusedError(f"{name} is no bias and products of bytes and weights, each of them once")
