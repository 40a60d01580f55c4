"""A build as an ExecuTorch program: its NPU regions as payloads of ExecuTorch's Ethos-U delegate."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tosaic.backends.npu import NpuPort, NpuRegion
from tosaic.backends.npus import compile_region
from tosaic.backends.reference import serialize
from tosaic.builds.build import BuildFolder
from tosaic.builds.manifest import PlacedOp
from tosaic.compiler.proof import region_difference
from tosaic.compiler.trial_inputs import call_inputs
from tosaic.support.errors import BackendError, Error
from tosaic.support.functions import body_of, callee_of, functions_on, standalone
from tosaic.support.mlir import functions, ir, shape_of

_BACKEND = "EthosUBackend"
_DIMENSIONS = 6  # of a port's shape


def write_pte(build: BuildFolder, file: Path) -> None:
    """Write a `.pte` that takes and gives the integers that the firmware does.

    Raises:
        Error: ExecuTorch is not installed, or the build has kernels of the core: the message lists them.
        BackendError: a region does not compute its function when its tensors lie where the delegate wants them.
    """
    if build.manifest.kernels:
        raise Error(
            "ExecuTorch has no op that computes to the bit what the core's kernels do",
            why="\n    ".join(["these run on it", *_on_the_core(build.manifest.ops)]),
            hint="a model whose ops all run on the NPU",
        )
    try:
        from executorch.exir import to_edge  # pyright: ignore[reportMissingImports]
        from executorch.exir.lowered_backend_module import LoweredBackendModule  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Error("a .pte needs ExecuTorch", why=str(error), hint="pip install executorch==1.5.1") from None

    def exported(module: nn.Module, inputs: Sequence[np.ndarray]) -> Any:
        return to_edge(torch.export.export(module, tuple(map(torch.from_numpy, inputs))))

    sample = build.samples[0].inputs
    regions = delegate_regions(build)
    read = call_inputs(build.placed, list(regions), sample)
    lowered = {
        name: LoweredBackendModule(
            exported(_Shapes(region), read[name]).exported_program(), _BACKEND, delegate_payload(region), []
        )
        for name, region in regions.items()
    }
    program = exported(_Main(functions(build.placed)["main"], lowered), sample).to_executorch()
    file.write_bytes(program.buffer)


def _on_the_core(ops: Sequence[PlacedOp]) -> list[str]:
    """The ops of the core, a line for each module and place in the model, and why they are not on the NPU."""
    held: dict[str, list[PlacedOp]] = {}
    for op in ops:
        if op.processor == "cpu":
            held.setdefault(f"{op.where} in module `{op.module}`" if op.module else op.where, []).append(op)
    return [
        f"{where}: {', '.join(dict.fromkeys(op.op for op in found))}"
        + "".join(f"; {reason}" for reason in dict.fromkeys(op.reason for op in found) if reason)
        for where, found in held.items()
    ]


def delegate_regions(build: BuildFolder) -> dict[str, NpuRegion]:
    """The build's regions with their inputs and outputs in region 1, where the delegate copies them; proven there.

    Raises:
        BackendError: one does not compute its function so.
    """
    found = {}
    placed = functions_on("npu", build.placed)
    read = call_inputs(build.placed, list(placed), build.samples[0].inputs)
    for name, function in placed.items():
        options = replace(build.manifest.region(name).options, separate_io=False)
        region = compile_region(serialize(standalone(function)), build.manifest.target.accelerator or "", options)
        if difference := region_difference(region, function, read[name]):
            raise BackendError(f"`{name}` is wrong with its tensors in the arena", why=difference)
        found[name] = region
    return found


def delegate_payload(region: NpuRegion) -> bytes:
    """What ExecuTorch's delegate reads: blocks (executorch 1.5.1, `backends/arm/arm_vela.py`).

    Each has a name of 16 bytes, its length and 12 reserved bytes ahead. Zeros stand behind, up to a multiple of 16.
    """
    blocks = {
        "vela_bin_stream": b"",
        "cmd_data": region.command_stream,
        "weight_data": region.constants,
        "scratch_size": struct.pack("<I", region.scratch_bytes),
        "inputs": _ports(region.inputs),
        "outputs": _ports(region.outputs),
        "vela_end_stream": b"",
    }
    return b"".join(
        name.encode().ljust(16, b"\0") + struct.pack("<I12x", len(data)) + data + bytes(-len(data) % 16)
        for name, data in blocks.items()
    )


def _ports(ports: Sequence[NpuPort]) -> bytes:
    rows = [len(ports)]
    for port in ports:
        shape = port.shape if len(port.shape) <= _DIMENSIONS else (math.prod(port.shape),)
        rows += [1] * (_DIMENSIONS - len(shape)) + [*shape, np.dtype(port.dtype).itemsize, port.address, port.region]
    return struct.pack(f"<{len(rows)}i", *rows)


class _Shapes(nn.Module):
    """Stands for a region where its results' shapes and types are asked."""

    def __init__(self, region: NpuRegion) -> None:
        super().__init__()
        self.kinds = [(port.shape, getattr(torch, port.dtype)) for port in region.outputs]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in self.kinds)


class _Main(nn.Module):
    """`main` of a placed module: calls of regions, and reshapes."""

    def __init__(self, main: ir.Operation, lowered: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, module in lowered.items():
            self.add_module(name, module)
        numbers: dict[ir.Value, int] = {value: number for number, value in enumerate(body_of(main).arguments)}
        self.steps: list[tuple[str, list[int], tuple[int, ...]]] = []
        for op in (op.operation for op in body_of(main).operations):
            if op.name in ("tosa.const", "tosa.const_shape"):
                continue
            name = callee_of(op) if op.name == "func.call" else ""
            if not name and op.name not in ("tosa.reshape", "func.return"):
                raise Error(f"`{op.name}` of `main` is nothing that a .pte can hold")
            read = op.operands[:1] if op.name == "tosa.reshape" else op.operands
            shape = shape_of(op.results[0]) if op.name == "tosa.reshape" else ()
            self.steps.append((name, [numbers[value] for value in read], shape))
            numbers.update({value: len(numbers) + index for index, value in enumerate(op.results)})

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for name, read, shape in self.steps[:-1]:
            taken = [values[number] for number in read]
            values += self.get_submodule(name)(*taken) if name else [taken[0].reshape(shape)]
        return tuple(values[number] for number in self.steps[-1][1])
