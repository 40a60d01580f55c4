"""The contract between a CPU kernel's generator and everything that builds, measures and links it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from tosaic.backends.cortex_m.footprint import Place, Walk, lines_moved, words_moved
from tosaic.backends.cortex_m.program.places import Overlap
from tosaic.backends.cortex_m.program.program import Program
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.simulators.memory_model import fill_cycles, word_of, write_cycles
from tosaic.backends.target import Cache, Core, Memory, Pipeline
from tosaic.support.mlir import ir
from tosaic.support.registry import Registry
from tosaic.tuner.space import Schedule, Variant


class Fed(NamedTuple):
    """An input, by number, that a kernel takes row by row; each row has so many bytes.

    With a hop, so many further rows each give the results of a window that has moved on by them; the kernel's scratch
    memory and results have to stay for it.
    """

    input: int
    row_bytes: int
    hop: int = 0


@dataclass(frozen=True)
class KernelSource:
    """One kernel function as source, and what it needs at run time.

    The C signature is always `void symbol(const void *in0, ..., void *out0, ..., const void *params, void *scratch)`:
    the function's tensor arguments, then its results, each dense row-major and 16-byte aligned. `params` and
    `scratch` are always passed and may be unused.

    Args:
        symbol: the C symbol; equal symbols mean equal code, so kernels that differ only in `params` are linked once.
        language: `mlir` is `func.func` (and `memref.global`) text in func, scf, arith, math, memref and vector with
            attribute `llvm.bareptr`; `c` is a whole translation unit.
        text: the source.
        params: packed constants (weights, biases, multipliers), linked into the target's constant memory.
        scratch_bytes: working memory the caller provides, 16-byte aligned.
        in_place: inputs and outputs that may share memory.
        libraries: names of support libraries to link, e.g. `cmsis-nn`.
        parts: kernels that it calls.
        weights: where the weights begin, which are the last of `params` and which the text finds by `weights_at`; None
            where it does not.
        shared: weights that lie elsewhere; `params` end then with a word to come, the distance from it to them.
        fed: the input whose rows may also come one after another: `symbol_begin(params, scratch)`, and
            `symbol_feed(rows, count, other tensors..., params, scratch)`, which gives 1 once the results are there.
    """

    symbol: str
    language: Literal["mlir", "c"]
    text: str
    params: bytes = b""
    scratch_bytes: int = 0
    in_place: tuple[Overlap, ...] = ()
    libraries: tuple[str, ...] = ()
    parts: tuple[KernelSource, ...] = ()
    weights: int | None = None
    shared: bytes = b""
    fed: Fed | None = None

    @property
    def with_shared_weights(self) -> KernelSource:
        """The kernel whose weights lie elsewhere, so that others may use them too.

        Raises:
            ValueError: its text does not say where they are.
        """
        if self.weights is None:
            raise ValueError(f"`{self.symbol}` has no weights of its own")
        symbol, here = f"{self.symbol}_shared", weights_at(self.weights)
        there = here.replace(";", f" + *(const int32_t *)(params + {self.weights});")
        text = self.text.replace(here, there).replace(self.symbol, symbol)
        params, weights = self.params[: self.weights], self.params[self.weights :]
        return replace(self, symbol=symbol, text=text, params=params, weights=None, shared=weights)


WORTH_SHARING = 256
"""Bytes; of larger constants kernels share those that are alike. Another text of a kernel takes some itself."""


def weights_at(offset: int) -> str:
    """The line of C by which a kernel finds its weights, `packed`, at `offset` of its params."""
    return f"  const int8_t *packed = params + {offset};"


class License(NamedTuple):
    """Under which license a library that firmware links is: an SPDX identifier, and the file with the text."""

    of: str
    spdx: str
    text: Path


@dataclass(frozen=True, eq=False)
class Workload:
    """What a family recognized in a kernel function.

    Args:
        kind: the family's name for it, e.g. `conv2d`.
        key: shapes, dtypes and attributes as canonical text; equal keys generate equal code.
        attributes: the numbers a generator needs (shapes, strides, pads, zero points ...).
        constants: weights, biases, multipliers, shifts and tables by name.
    """

    kind: str
    key: str
    attributes: Mapping[str, object]
    constants: Mapping[str, np.ndarray]


class Algorithm(NamedTuple):
    """What a kernel computes, as a program that schedules rewrite, and the constants that it names."""

    program: Program
    constants: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Site:
    """Where kernels will run, as far as a guess without a measurement counts with it.

    Args:
        constants: the memory that params lie in; None where it answers at once.
        most_scratch: bytes of working memory that a kernel may take; None for any number.
        tensors: the memory of tensors and working memory; None where it answers at once.
        elsewhere: the memories of those that lie in another than `tensors`.
        alike: whether the kernel is one of several that shall differ in their params alone, not in how these lie.
        compared: whether a space begins with the best of several schedules that are built, which takes long, and not
            with the first legal one.
    """

    constants: Memory | None = None
    most_scratch: int | None = None
    tensors: Memory | None = None
    elsewhere: tuple[tuple[Place, Memory], ...] = ()
    alike: bool = False
    compared: bool = True

    def holds(self, counts: Mapping[str, float]) -> bool:
        """Whether there is working memory for a kernel with these features; always where they tell none, as those of
        the generic lowering, which takes the place of kernels that are found wrong."""
        return self.most_scratch is None or counts.get("scratch", 0) <= self.most_scratch

    @property
    def inside(self) -> Site:
        """The site of a kernel whose params have been copied to working memory."""
        return replace(self, constants=self._memory_of("scratch"))

    @property
    def waits_for_memory(self) -> bool:
        """Whether some schedules wait longer for memory than others."""
        return self.constants is not None or self.tensors is not None

    def waits(self, walks: Sequence[Walk], pipeline: Pipeline | None) -> float:
        """Cycles that a kernel waits for memory."""
        return sum(count * cycles for count, cycles in self._moved(walks, pipeline).values())

    def priced(
        self, counts: Mapping[str, float], cycles: float, walks: Sequence[Walk], pipeline: Pipeline | None
    ) -> dict[str, float]:
        """Counts of a kernel, with the lines that it moves, and the `cycles` that they promise, alone and with what it
        waits for memory."""
        moved = self._moved(walks, pipeline)
        waits = sum(count * cycles for count, cycles in moved.values())
        lines = {name: count for name, (count, _) in moved.items()}
        return {**counts, **lines, "estimate": cycles, "estimate_with_waits": cycles + waits}

    def _moved(self, walks: Sequence[Walk], pipeline: Pipeline | None) -> dict[str, tuple[float, float]]:
        """By what it is called as a feature, how often a line or word is moved, and the cycles that each takes."""
        if pipeline is None:
            return {}
        lines = {cache: [lines_moved(walk, places, cache) for walk in walks] for cache, places in self._behind.items()}
        found: dict[str, tuple[float, float]] = {}
        for place, memory, cache in self._lying:
            through = cache is None or cache.writes == "through"
            words = [words_moved(walk, place, word_of(pipeline)) for walk in walks] if through else []
            filled = [each[place] for each in lines[cache]] if cache else words
            written = words if through else filled
            found[f"{place}_lines_filled"] = sum(each.filled for each in filled), fill_cycles(memory, cache, pipeline)
            found[f"{place}_lines_written"] = sum(each.written for each in written), write_cycles(memory, pipeline)
        return found

    @cached_property
    def _lying(self) -> list[tuple[Place, Memory, Cache | None]]:
        """Each place that does not answer at once, its memory, and the cache before that."""
        found: list[tuple[Place, Memory, Cache | None]] = []
        for place in _PLACES:
            if (memory := self._memory_of(place)) is not None:
                found.append((place, memory, memory.data_cache))
        return found

    @cached_property
    def _behind(self) -> dict[Cache, list[Place]]:
        """The places that lie behind each cache."""
        behind: dict[Cache, list[Place]] = {}
        for place, _, cache in self._lying:
            if cache is not None:
                behind.setdefault(cache, []).append(place)
        return behind

    def _memory_of(self, place: Place) -> Memory | None:
        return self.constants if place == "params" else dict(self.elsewhere).get(place, self.tensors)


_PLACES: tuple[Place, ...] = ("input", "output", "scratch", "params")

ANYWHERE = Site()


STEPS = "steps"
"""The variant of a schedule that is given step by step, and its knob."""


class KernelFamily(ABC):
    """A family of kernels with a schedule space: a class in a file of its own, in `FAMILIES`.

    Families are asked by `rank`, then by name, best untuned guess first. A special case of another family has rank -1,
    what tosaic generates for a core's own instructions 0, a library's kernels 1, and what covers every function 2.

    Args:
        libraries: the folders of support libraries at hand, by name.
        site: what the order of the variants' schedules takes into account.
    """

    name: ClassVar[str]
    rank: ClassVar[int] = 0

    def __init__(self, libraries: Mapping[str, Path] = MappingProxyType({}), site: Site = ANYWHERE) -> None:
        self.libraries, self.site = libraries, site

    @abstractmethod
    def match(self, function: ir.Operation) -> Workload | None:
        """The workload of an outlined `func.func`, or None where this family does not cover it."""

    @abstractmethod
    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        """The ways to write it, best untuned guess first; empty where the core lacks what they need."""

    @abstractmethod
    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        """The kernel of one schedule, out of one of `variants`."""

    @abstractmethod
    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        """Static features of that kernel for the cost model; `scratch` is its working memory."""

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        """The steps that make the kernel; empty where it is no program."""
        return ()

    def algorithm(self, workload: Workload, core: Core, steps: Sequence[Step] = ()) -> Algorithm | None:
        """The program that steps given by hand begin with, of several the first that takes them; None where the kernels
        are made otherwise.

        A family that has one generates a schedule of the variant `STEPS`, whose one knob of that name is their text.
        """
        return None

    def is_program(self, workload: Workload, schedule: Schedule, core: Core) -> bool:
        """Whether the kernel of a schedule is steps on its `algorithm`."""
        return False


FAMILIES: Registry[KernelFamily] = Registry(
    "kernel family", "tosaic.backends.cortex_m.kernels", "tosaic.kernel_families"
)
"""Every family: those in `kernels/`, and those that packages name in the group `tosaic.kernel_families`."""
