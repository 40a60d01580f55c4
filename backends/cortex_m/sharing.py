"""Weights that several kernels use, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tosaic.backends.cortex_m.kernel import WORTH_SHARING, KernelSource
from tosaic.backends.cortex_m.kernels.mve import VECTOR, round_up
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.support.errors import BackendError
from tosaic.tuner.space import Schedule

_FEW = 64
"""Schedules of a space."""

KeyT = TypeVar("KeyT")


def with_shared_weights(kernels: Mapping[KeyT, KernelSource]) -> dict[KeyT, KernelSource]:
    """The kernels, of which those with equal weights but other params find them in one place."""
    users: dict[bytes, set[bytes]] = {}
    for kernel in kernels.values():
        users.setdefault(_weights(kernel), set()).add(kernel.params)
    shared = {weights for weights, params in users.items() if len(params) > 1 and len(weights) > WORTH_SHARING}
    return {
        key: kernel.with_shared_weights if _weights(kernel) in shared else kernel for key, kernel in kernels.items()
    }


def pack_alike(kernel: KernelSource, other: KernelSource) -> bool:
    """Whether two kernels may use the same weights, or all of each other's params."""
    return kernel.params == other.params or (_weights(kernel) == _weights(other) != b"")


def adapted(task: KernelTask, own: Schedule, other: KernelSource, like: Schedule) -> Schedule | None:
    """A schedule of a task that packs its weights as another kernel does, whose schedule is `like`; None where the
    knobs that both have make none. It stays near the task's `own` schedule if that is of the same variant.

    Where the other kernel is of another kind, a small space is looked through as a whole. Of a large one, only
    schedules are that are one knob from the task's own.
    """
    variant = task.space.variant(like.variant)
    if variant is None:
        few = task.space.schedules() if task.space.assignments <= _FEW else one_knob_from(task, own)
        return next((found for found in few if pack_alike(task.generate(found), other)), None)
    same = own.variant == like.variant
    choices = dict(own.knobs) if same else {name: known[0] for name, known in variant.knobs.items()}
    for name, choice in like.knobs:
        if choice in variant.knobs[name] and (not same or variant.legal({**choices, name: choice})):
            choices[name] = choice
            found = Schedule.of(variant.name, **choices)
            if variant.legal(choices) and pack_alike(task.generate(found), other):
                return found
    return None


def one_knob_from(task: KernelTask, own: Schedule) -> Iterator[Schedule]:
    """The legal schedules of a task that differ from its `own` in one knob."""
    variant, choices = task.space.variant(own.variant), dict(own.knobs)
    if variant is None:
        return
    for name, known in variant.knobs.items():
        for choice in known:
            changed = {**choices, name: choice}
            if choice != choices[name] and variant.legal(changed):
                yield Schedule.of(variant.name, **changed)


def as_one(sources: Sequence[KernelSource]) -> KernelSource:
    """The kernel of calls that differ in their params, with those of each, as whole vectors, behind those before.

    Raises:
        BackendError: they differ in more.
    """
    first = sources[0]
    if len({(source.symbol, source.scratch_bytes, len(source.params)) for source in sources}) > 1:
        raise BackendError(f"the calls of `{first.symbol}` differ in more than their params")
    if len(sources) == 1:
        return first
    return replace(first, params=b"".join(whole_vectors(source.params).tobytes() for source in sources))


def whole_vectors(block: bytes) -> np.ndarray:
    """The bytes of a block, filled up with zeros to a multiple of a vector."""
    return np.frombuffer(block.ljust(round_up(len(block), VECTOR), b"\0"), np.uint8)


def _weights(kernel: KernelSource) -> bytes:
    return b"" if kernel.weights is None else kernel.params[kernel.weights :]
