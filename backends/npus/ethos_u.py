"""Arm's Ethos-U55, U65 and U85: Vela compiles, tosaic's emulator executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from ethosu import mlw_codec

from tosaic.backends.ethos_u import acceptance, disassembler, emulation, vela
from tosaic.backends.ethos_u.accelerators import ACCELERATORS, find_accelerator
from tosaic.backends.ethos_u.acceptance.queries import is_view
from tosaic.backends.ethos_u.compiled_file import read_compiled_file
from tosaic.backends.ethos_u.emulator import execute
from tosaic.backends.ethos_u.sparsity import why_not_2_of_4
from tosaic.backends.npu import SPARSE, CompiledFile, Driver, NpuOp, NpuOptions, NpuPort, NpuRegion
from tosaic.support.mlir import ir


class EthosUFamily:
    """See `NpuFamily`."""

    accelerators = ACCELERATORS

    def refusal(self, op: ir.Operation, accelerator: str) -> str | None:
        return acceptance.refusal(op, accelerator)

    def suspicion(self, op: ir.Operation, accelerator: str) -> str | None:
        return acceptance.suspicion(op, accelerator)

    def is_view(self, op: ir.Operation) -> bool:
        return is_view(op)

    def sparsity(self, op: ir.Operation, weights: np.ndarray, accelerator: str) -> str:
        if op.name != "tosa.conv2d" or find_accelerator(accelerator).generation != "u85":
            return ""
        return why_not_2_of_4(weights) or SPARSE

    def encoded_bytes(self, weights: np.ndarray) -> int:
        return len(mlw_codec.encode(weights.ravel().tolist()))

    def compile(self, flatbuffer: bytes, accelerator: str, options: NpuOptions) -> NpuRegion:
        return vela.compile_region(flatbuffer, accelerator, options)

    def emulate(self, region: NpuRegion, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return emulation.emulate(region, inputs).outputs

    def execute(
        self, commands: bytes, memory: dict[int, np.ndarray], accelerator: str, inputs: Sequence[NpuPort]
    ) -> None:
        execute(commands, memory, accelerator, written=emulation.written_before(inputs))

    def read(self, path: Path) -> CompiledFile | None:
        return read_compiled_file(path)

    def disassemble(self, stream: bytes, accelerator: str, ops: Sequence[NpuOp], where: Sequence[str]) -> str:
        return disassembler.disassemble(stream, accelerator, ops, where)

    def supported_ops(self) -> list[dict[str, str]]:
        return acceptance.supported_ops()

    def sections(self, config: str) -> Mapping[str, Sequence[str]]:
        return vela.vela_sections(config)

    def drivers(self, accelerator: str) -> Mapping[str, Driver]:
        generation = f"-DTOSAIC_NPU_GENERATION={find_accelerator(accelerator).generation.removeprefix('u')}"
        polling = "A small driver that polls, and needs nothing else"
        arms = "Hands NPU calls to ethos-u-core-driver, which the image links too"
        return {
            "npu": Driver("Polling", polling, ("npu.c", "npu_counters.c"), (generation,), ("npu_target.c",)),
            "ethosu": Driver("Ethos-U core driver", arms, ("ethosu.c",)),
        }


FAMILY = EthosUFamily()
