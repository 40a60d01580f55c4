"""Random nests under random steps: `python benchmarks/nest_fuzz.py 10000` takes so many legal steps.

The nests shift, overlap, add up, read backwards and stand under conditions. No legal step may change what they put out.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click
import numpy as np

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.program.interpret import host_constants, interpreted
from tosaic.backends.cortex_m.program.moves import moves
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES, Step, applied
from tosaic.backends.cortex_m.program.text import listing, parse_program
from tosaic.backends.cortex_m.program.tree import RefusedError

MOST_STEPS = 8
"""Legal steps on one nest."""
_LARGEST, _OUT = 15, 12
_CHANGED = ("copied", "backwards", "window", "added", "in_place", "overlapping", "guarded", "both_ways", "summed_last")
_MADE = ("straight", "summed", "unfolded")
LIKELY = ("stage", "compute_at", "inline", "split", "reorder", "distribute", "skew", "pack", "pad", "fuse")


class Walked(NamedTuple):
    """A nest, the legal steps that it took, and what is wrong behind the last; empty where nothing is."""

    nest: Program
    steps: tuple[Step, ...]
    wrong: str


class _Nest:
    """Text of a random program: stages, each of which makes one buffer of the one before."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.numbers = rng, itertools.count()
        self.rows, self.columns, self.taps = (rng.choice((2, 3, 4, 6)) for _ in range(3))
        extent, last = _LARGEST, "a"
        self.lines = [f"a: i32[{extent}, {extent}] in in", f"out: i32[{_OUT}, {_OUT}] in out"]
        self.lines.append(f"w: i32[{self.taps}] in const")
        for number in range(rng.randint(1, _LARGEST - _OUT)):
            new, extent = f"T{number}", extent - 1
            self.lines.append(f"{new}: i32[{extent}, {extent}] in scratch")
            if rng.random() < 0.5:
                getattr(self, f"_{rng.choice(_MADE)}")(new, last, extent)
            else:
                self._add((extent, extent), [f"{new}[{{0}}, {{1}}] = {number}"])
                getattr(self, f"_{rng.choice(_CHANGED)}")(new, last)
            last = new
        self._add((_OUT, _OUT), [f"out[{{0}}, {{1}}] = {last}[{{0}}, {{1}}]"])

    def _add(self, extents: Sequence[int], body: Sequence[str]) -> None:
        names = [f"i{next(self.numbers)}" for _ in extents]
        inner = f"i{next(self.numbers)}"
        for depth, (name, extent) in enumerate(zip(names, extents, strict=True)):
            self.lines.append(f"{'  ' * depth}for {name} < {extent}:")
        self.lines += [f"{'  ' * len(names)}{line.format(*names, inner)}" for line in body]

    def _shift(self) -> int:
        return self.rng.randint(0, 2)

    def _straight(self, new: str, old: str, extent: int) -> None:
        self._add((extent, extent), [f"{new}[{{0}}, {{1}}] = {old}[{{0}} + 1, {{1}}]"])

    def _summed(self, new: str, old: str, extent: int, window: str = "[{0}, {1} + {2}]") -> None:
        target = f"{new}[{{0}}, {{1}}]"
        add = f"  {target} += {old}{window} * w[{{2}}]"
        self._add((extent, extent), [f"{target} = 2", "for {2} < 2:", add])

    def _unfolded(self, new: str, old: str, extent: int) -> None:
        self.lines.append(f"P{new}: i32[{extent}, {extent}, 2] in scratch")
        copy = ["if {1} + {2} - 1 >= 0:", f"  P{new}[{{0}}, {{1}}, {{2}}] = {old}[{{0}}, {{1}} + {{2}} - 1]"]
        self._add((extent, extent, 2), [*copy, "else:", f"  P{new}[{{0}}, {{1}}, {{2}}] = 5"])
        self._summed(new, f"P{new}", extent, "[{0}, {1}, {2}]")

    def _copied(self, new: str, old: str) -> None:
        self._add((self.rows, self.columns), [f"{new}[{{0}}, {{1}}] = {old}[{{0}} + {self._shift()}, {{1}}]"])

    def _backwards(self, new: str, old: str) -> None:
        extent = self.columns
        self._add((self.rows, extent), [f"{new}[{{0}}, {extent - 1} - {{1}}] = {old}[{{1}}, {{0}} + {self._shift()}]"])

    def _window(self, new: str, old: str) -> None:
        stride = self.rng.randint(1, 2)
        target = f"{new}[{{0}}, {stride} * {{1}}]"
        read = f"{old}[{{0}}, {stride} * {{1}} + {{2}}]"
        begun = [f"{target} = 3"] if self.rng.random() < 0.5 else []
        tap = f"for {{2}} < {self.taps}:"
        self._add((self.rows, min(4, self.columns)), [*begun, tap, f"  {target} += {read} * w[{{2}}]"])

    def _added(self, new: str, old: str) -> None:
        read = f"{old}[{{0}}, {{1}} + {self._shift()}]"
        self._add((self.rows, self.columns), [f"{new}[{{1}}, {{0}}] += {read}", f"{new}[{{0}}, {{1}}] += 1"])

    def _in_place(self, new: str, old: str) -> None:
        y, x = self._shift(), self._shift()
        self._add(
            (self.rows, self.columns), [f"{new}[{{0}}, {{1}}] = {new}[{{0}} + {y}, {{1}} + {x}] + {old}[{{1}}, 0]"]
        )

    def _overlapping(self, new: str, old: str) -> None:
        stride = self.rng.randint(1, 3)
        where = f"[{{0}}, {stride} * {{1}} + {{2}}]"
        sign = self.rng.choice(("=", "+="))
        self._add(
            (self.rows, 3), [f"for {{2}} < {self.rng.randint(2, 4)}:", f"  {new}{where} {sign} {old}[{{2}}, {{1}}]"]
        )

    def _guarded(self, new: str, old: str) -> None:
        edge = self._shift()
        then = f"  {new}[{{0}}, {{1}}] = {old}[{{0}}, {{1}} - {edge}]"
        otherwise = ["else:", f"  {new}[{{0}}, {{1}}] = 7"] if self.rng.random() < 0.5 else []
        last = [f"{new}[{{0}}, {{1}}] += 1"] if self.rng.random() < 0.5 else []
        self._add((self.rows, self.columns), [f"if {{1}} - {edge} >= 0:", then, *otherwise, *last])

    def _both_ways(self, new: str, old: str) -> None:
        lines = [
            f"{new}[{{0}}, 4 + 2 * {{1}} + {{2}}] = {old}[{{0}}, {{2}}]",
            f"{new}[{{0}}, 4 + 2 * {{1}} - {{2}}] = {old}[{{2}}, {{1}}]",
        ]
        self.rng.shuffle(lines)
        self._add((self.rows, 4), ["for {2} < 2:", *(f"  {line}" for line in lines)])

    def _summed_last(self, new: str, old: str) -> None:
        self._add(
            (self.taps,),
            [
                f"w{new}: i32[{self.taps}] in scratch",
                f"w{new}[{{0}}] = w[{{0}}]",
                f"{new}[0, {{0}}] += {old}[{{0}}, 1] * w{new}[{{0}}]",
            ],
        )


def random_nest(rng: random.Random) -> Program:
    """A program of one to three stages on `a`, `w` and `out`, all int32."""
    return parse_program("\n".join(_Nest(rng).lines))


def inputs_of(nest: Program, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Small random numbers for what a nest reads."""
    return {b.name: rng.integers(-4, 5, b.shape) for b in nest.arguments if b.memory != "out"}


def outputs(program: Program, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a program puts out, flat."""
    return interpreted(program, host_constants(program, arrays))["out"].ravel()


def walked(rng: random.Random) -> Walked:
    """A random nest, and legal steps on it, as far as its outputs stay what they were."""
    nest = program = random_nest(rng)
    arrays, steps = inputs_of(nest, np.random.default_rng(rng.randrange(1 << 30))), list[Step]()
    want = outputs(nest, arrays)
    primitives = PRIMITIVES.known()
    for _ in range(40 * MOST_STEPS):
        name = rng.choice(LIKELY if rng.random() < 0.6 else list(primitives))
        choices = list(moves(program, primitives[name], CORTEX_M55))
        if not choices or len(steps) == MOST_STEPS:
            continue
        step = rng.choice(choices)
        try:
            after = applied(program, step)
            host_constants(after, arrays)  # The host refuses constants for which an identity does not hold.
        except RefusedError:
            continue
        program = after
        steps.append(step)
        try:
            got = outputs(program, arrays)
        except ValueError as error:
            return Walked(nest, tuple(steps), str(error))
        if not np.array_equal(want, got):
            return Walked(nest, tuple(steps), "other outputs")
    return Walked(nest, tuple(steps), "")


@click.command(help=__doc__)
@click.argument("legal", type=int, default=1000)
@click.option("--seed", default=0)
def main(legal: int, seed: int) -> None:
    taken, wrong = 0, 0
    for number in itertools.count(seed):
        found = walked(random.Random(number))
        taken += len(found.steps)
        if found.wrong:
            wrong += 1
            print(f"seed {number}: {found.wrong}", *found.steps, listing(found.nest), sep="\n")
        if taken >= legal:
            break
    print(f"{taken} legal steps, {wrong} wrong")


if __name__ == "__main__":
    main()
