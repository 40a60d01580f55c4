"""What was built, as manifests hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.firmware.decoder import TokenDecoder
from tosaic.support.names import Dtype, Name
from tosaic.support.quantization import Quantization


@dataclass(frozen=True)
class ModelTensor:
    """An input or output as a host program needs to know it; `dtype` is numpy's name."""

    name: Name
    shape: tuple[int, ...]
    dtype: Dtype
    quantization: Quantization | None


@dataclass(frozen=True)
class CallRecord:
    """One call of the firmware: `processor` is `cpu` or `npu`, `where` the user's source line and op."""

    name: Name
    processor: str
    where: str
    params_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class PlannedBlock:
    """`size` bytes at `offset` of the arena's share of a memory, in use from call `first` to call `last`, both
    included; -1 is before the first call. `name` is a buffer's, or of the working memory of a call."""

    name: str
    memory: Name
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class MethodRecord:
    """A method of the model: its calls are those from `first` to `end`, which is not one of them."""

    name: Name
    first: int
    end: int


@dataclass(frozen=True)
class Firmware:
    """What was built.

    Args:
        name: what its symbols begin with.
        arena_bytes: of all arena memories; `memories` has the bytes of each by name, `plan` what lies in them.
        flash_bytes: code, constants and initial data of `model.elf`.
        stack_bytes: most that an inference takes, interrupts not counted, and the small driver where it calls an NPU;
            None where the code does not tell.
        licenses: of what is linked into it, as SPDX identifiers by the name of the library.
        fed_rows: of the input, which its first call takes one by one; 0 where inputs lie in the arena.
        hop_rows: further rows that move a window on to its next results; 0 where each inference stands for itself.
        states: what it keeps from one inference to the next.
        decoder: how it generates; None where it does not.
        methods: what can be called of it; empty where that is all of it.
    """

    name: Name
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    calls: tuple[CallRecord, ...]
    arena_bytes: int
    memories: Mapping[str, int]
    plan: tuple[PlannedBlock, ...]
    flash_bytes: int
    stack_bytes: int | None
    licenses: Mapping[str, str]
    fed_rows: int = 0
    hop_rows: int = 0
    states: tuple[ModelTensor, ...] = ()
    decoder: TokenDecoder | None = None
    methods: tuple[MethodRecord, ...] = ()

    def taken(self, sample: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arguments of the integer module as it takes them: bytes are uint8 here, and int8 there."""
        return [array.view(tensor.dtype) for array, tensor in zip(sample, self.inputs, strict=True)]

    @property
    def has_npu(self) -> bool:
        """Whether it calls an NPU."""
        return any(call.processor == "npu" for call in self.calls)

    def calls_of(self, method: str) -> slice:
        """Where the calls of a method stand among all."""
        return next(slice(each.first, each.end) for each in self.methods if each.name == method)

    def symbol(self, kernel: str) -> str:
        """How a kernel is called in it."""
        return f"{self.name}_{kernel}"
