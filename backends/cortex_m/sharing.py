"""Weights that several kernels use, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.tuner.space import Schedule

_WORTH_SHARING = 256
"""Bytes; another text of a kernel takes some itself."""

KeyT = TypeVar("KeyT")


def with_shared_weights(kernels: Mapping[KeyT, KernelSource]) -> dict[KeyT, KernelSource]:
    """The kernels, of which those with equal weights but other params find them in one place."""
    users: dict[bytes, set[bytes]] = {}
    for kernel in kernels.values():
        users.setdefault(_weights(kernel), set()).add(kernel.params)
    shared = {weights for weights, params in users.items() if len(params) > 1 and len(weights) > _WORTH_SHARING}
    return {
        key: kernel.with_shared_weights if _weights(kernel) in shared else kernel for key, kernel in kernels.items()
    }


def pack_alike(kernel: KernelSource, other: KernelSource) -> bool:
    """Whether two kernels may use the same weights, or all of each other's params."""
    return kernel.params == other.params or (_weights(kernel) == _weights(other) != b"")


def adapted(task: KernelTask, own: Schedule, other: KernelSource, like: Schedule) -> Schedule | None:
    """A schedule of a task that packs its weights as another kernel does, whose schedule is `like`; None where the
    knobs that both have make none. It stays near the task's `own` schedule if that is of the same variant."""
    variant = task.space.variant(like.variant)
    if variant is None:
        return None
    same = own.variant == like.variant
    choices = dict(own.knobs) if same else {name: known[0] for name, known in variant.knobs.items()}
    for name, choice in like.knobs:
        if choice in variant.knobs[name] and (not same or variant.legal({**choices, name: choice})):
            choices[name] = choice
            found = Schedule.of(variant.name, **choices)
            if variant.legal(choices) and pack_alike(task.generate(found), other):
                return found
    return None


def _weights(kernel: KernelSource) -> bytes:
    return b"" if kernel.weights is None else kernel.params[kernel.weights :]
