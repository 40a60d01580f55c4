"""The Ethos-U accelerators: their names, MACs, cores, and how Vela is told about each."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.backends.npu import Accelerator
from tosaic.support.errors import BackendError


@dataclass(frozen=True)
class FixedVirtualPlatform:
    """An FVP and the names of its parameters.

    Args:
        executable: as the download names it.
        npu, cpu, board: the instances that hold the parameters.
        settings: further parameters, for a run without windows or terminals.
    """

    executable: str
    npu: str
    cpu: str
    board: str
    settings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EthosU(Accelerator):
    """One configuration of an Ethos-U.

    `generation` is `u55`, `u65` or `u85`. The usual memory mode is what the firmware does: on U55 and U85 the arena in
    SRAM beside the core's, constants behind the slower port; a U65 has SRAM of its own. `registers` are Corstone-320's
    for U85, else Corstone-300's.

    Args:
        architecture: Regor's name of the generation, e.g. `EthosU55`.
        cores: weight streams that run side by side.
        fvp: the Fixed Virtual Platform that has it.
    """

    architecture: str
    cores: int
    fvp: FixedVirtualPlatform


_SSE_300 = FixedVirtualPlatform(
    "FVP_Corstone_SSE-300_Ethos-U55",
    npu="ethosu",
    cpu="cpu0",
    board="mps3_board",
    settings=("mps3_board.visualisation.disable-visualisation=1",),
)
_SSE_320 = FixedVirtualPlatform(
    "FVP_Corstone_SSE-320",
    npu="mps4_board.subsystem.ethosu",
    cpu="mps4_board.subsystem.cpu0",
    board="mps4_board",
    settings=("mps4_board.visualisation.disable-visualisation=1", "vis_hdlcd.disable_visualisation=1"),
)


def _family(
    generation: str, cores: dict[int, int], system_config: str, memory_mode: str, registers: int,
    fvp: FixedVirtualPlatform,
    reads_only: tuple[str, ...] = (),
) -> list[EthosU]:  # fmt: skip
    return [
        EthosU(
            f"ethos-{generation}-{macs}",
            generation,
            macs,
            system_config,
            memory_mode,
            registers,
            reads_only,
            architecture=f"Ethos{generation.upper()}",
            cores=count,
            fvp=fvp,
        )
        for macs, count in cores.items()
    ]  # fmt: skip


ACCELERATORS: dict[str, EthosU] = {
    accelerator.name: accelerator
    for accelerator in (
        *_family(
            "u55",
            {32: 1, 64: 1, 128: 1, 256: 1},
            "Ethos_U55_High_End_Embedded",
            "Shared_Sram",
            0x5810_2000,
            _SSE_300,
            ("ext",),
        ),
        *_family("u65", {256: 1, 512: 2}, "Ethos_U65_High_End", "Dedicated_Sram", 0x5810_2000, _SSE_300),
        *_family(
            "u85",
            {128: 1, 256: 1, 512: 2, 1024: 4, 2048: 4},
            "Ethos_U85_SYS_DRAM_Mid",
            "Shared_Sram",
            0x5000_4000,
            _SSE_320,
        ),
    )
}


def find_accelerator(name: str) -> EthosU:
    """The accelerator of that name.

    Raises:
        BackendError: there is none.
    """
    if name not in ACCELERATORS:
        raise BackendError(f"no accelerator is called `{name}`", hint=", ".join(ACCELERATORS))
    return ACCELERATORS[name]
