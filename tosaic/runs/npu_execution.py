"""What executes a build's NPU regions when the runner has no NPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import numpy as np

from tosaic.backends.npu import EmulationError, NpuPort, op_of_command
from tosaic.backends.npus import family_of
from tosaic.backends.reference import evaluate, serialize
from tosaic.backends.simulators.npu_bridge import COMMAND_STREAM
from tosaic.builds.build import BuildFolder
from tosaic.builds.streams import source_lines
from tosaic.support.errors import SimulatorError
from tosaic.support.functions import functions_on, standalone

NpuChoice = Literal["emulator", "reference"]

DESCRIPTION: Mapping[str, str] = {
    "none": "no NPU region",
    "reference": "NPU regions executed by the reference model on the host",
    "emulator": "NPU command streams executed by tosaic's emulator",
    "runner": "NPU command streams executed by the runner's own NPU",
}


class ReferenceNpu:
    """Executes each region's TOSA function with `tosa_reference_model`; the command stream is not looked at.

    Args:
        build: whose regions these are.
    """

    def __init__(self, build: BuildFolder) -> None:
        functions = functions_on("npu", build.placed)
        self._flatbuffer = cache(lambda name: serialize(standalone(functions[name])))
        self._manifest = build.manifest

    def __call__(self, call: int, regions: dict[int, bytearray]) -> None:
        region = self._manifest.region(self._manifest.firmware.calls[call].name)
        outputs = evaluate(self._flatbuffer(region.name), read_ports(region.inputs, regions))
        write_ports(region.outputs, outputs, regions)


class EmulatedNpu:
    """Executes the command stream that the guest handed over, on the guest's memory.

    Args:
        build: whose regions these are.
    """

    def __init__(self, build: BuildFolder) -> None:
        self._build = build

    def __call__(self, call: int, regions: dict[int, bytearray]) -> None:
        memory = {number: np.frombuffer(data, np.uint8) for number, data in regions.items() if number != COMMAND_STREAM}
        manifest = self._build.manifest
        inputs = manifest.region(manifest.firmware.calls[call].name).inputs
        accelerator = manifest.target.accelerator or ""
        try:
            family_of(accelerator).execute(bytes(regions[COMMAND_STREAM]), memory, accelerator, inputs)
        except EmulationError as error:
            where = f"{self._origin(call, error.offset)}{error.where}"
            raise SimulatorError(error.what, where=where, why=error.why, hint=error.hint) from None

    def _origin(self, call: int, offset: int) -> str:
        """The op behind a command of a call, and the user's line."""
        region = self._build.manifest.region(self._build.manifest.firmware.calls[call].name)
        op = op_of_command(region.ops, offset) if offset >= 0 else None
        if op is None:
            return ""
        line = source_lines(functions_on("npu", self._build.placed)[region.name])[op.index]
        return f"{op.op} of {region.name} from {line}, "


def npu_for(build: BuildFolder, choice: NpuChoice) -> ReferenceNpu | EmulatedNpu | None:
    """The executor of a build's NPU regions; None where it has none."""
    if not build.manifest.regions:
        return None
    return ReferenceNpu(build) if choice == "reference" else EmulatedNpu(build)


def read_ports(ports: Sequence[NpuPort], regions: Mapping[int, bytearray]) -> list[np.ndarray]:
    """The tensors at `ports` of the memory regions."""
    found = []
    for port in ports:
        data = bytes(regions[port.region][port.address : port.address + port.size])
        found.append(np.frombuffer(data, port.dtype).reshape(port.shape))
    return found


def write_ports(ports: Sequence[NpuPort], tensors: Sequence[np.ndarray], regions: Mapping[int, bytearray]) -> None:
    """Write `tensors` to `ports` of the memory regions."""
    for port, tensor in zip(ports, tensors, strict=True):
        data = np.ascontiguousarray(tensor, port.dtype).tobytes()
        regions[port.region][port.address : port.address + port.size] = data
