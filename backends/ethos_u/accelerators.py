"""The Ethos-U accelerators: their names, MACs, cores, and how Vela is told about each."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.support.errors import BackendError


@dataclass(frozen=True)
class Accelerator:
    """One NPU configuration.

    Args:
        name: Vela's name, e.g. `ethos-u55-128`.
        generation: `u55`, `u65` or `u85`.
        macs: multiply-accumulates per cycle.
        cores: weight streams that run side by side.
        system_config, memory_mode: the default sections of Vela's `vela.ini`. The mode is what the firmware does: on
            U55 and U85 the arena in SRAM beside the core's, constants behind the slower port; a U65 has SRAM of its
            own.
    """

    name: str
    generation: str
    macs: int
    cores: int
    system_config: str
    memory_mode: str


def _family(generation: str, cores: dict[int, int], system_config: str, memory_mode: str) -> list[Accelerator]:
    return [
        Accelerator(f"ethos-{generation}-{macs}", generation, macs, count, system_config, memory_mode)
        for macs, count in cores.items()
    ]


ACCELERATORS: dict[str, Accelerator] = {
    accelerator.name: accelerator
    for accelerator in (
        *_family("u55", {32: 1, 64: 1, 128: 1, 256: 1}, "Ethos_U55_High_End_Embedded", "Shared_Sram"),
        *_family("u65", {256: 1, 512: 2}, "Ethos_U65_High_End", "Dedicated_Sram"),
        *_family("u85", {128: 1, 256: 1, 512: 2, 1024: 4, 2048: 4}, "Ethos_U85_SYS_DRAM_Mid", "Shared_Sram"),
    )
}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name.

    Raises:
        BackendError: there is none.
    """
    if name not in ACCELERATORS:
        raise BackendError(f"no accelerator is called `{name}`", hint=", ".join(ACCELERATORS))
    return ACCELERATORS[name]
