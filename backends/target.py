"""What the backends need to know of a target: its core, its NPU and its memories."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """One memory of the target. `base` is the address the Cortex-M sees; `size` is in bytes."""

    name: str
    base: int
    size: int


@dataclass(frozen=True)
class Core:
    """A Cortex-M core and how code is built for it.

    Args:
        name: clang's and gcc's `-mcpu` name, e.g. `cortex-m55`.
        triple: LLVM target triple.
        mve: whether the core has the M-profile Vector Extension (integer).
        float_abi: `hard` or `soft`.
        machine: the QEMU machine that runs its code.
    """

    name: str
    triple: str
    mve: bool
    float_abi: str
    machine: str


@dataclass(frozen=True)
class Target:
    """A compilation target.

    Args:
        name: what the user types, e.g. `corstone-300`.
        core: the core that runs the firmware.
        accelerator: the NPU as Vela names it, e.g. `ethos-u55-128`; None without an NPU.
        code: memory of vectors and code.
        stack: memory of stack and C data.
        arena: memories the activation arena may use, fastest first; the plan uses the first that fits.
        constants: memory of weights and command streams.
    """

    name: str
    core: Core
    accelerator: str | None
    code: Memory
    stack: Memory
    arena: tuple[Memory, ...]
    constants: Memory


CORTEX_M55 = Core("cortex-m55", "thumbv8.1m.main-none-eabihf", mve=True, float_abi="hard", machine="mps3-an547")
