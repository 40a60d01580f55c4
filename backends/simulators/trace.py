"""Run a built firmware with every tensor that its kernels read and write brought to the host."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.build import MAIN, MAIN_AT_ONCE, simulator_objects
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.simulators.execution import Runner
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.simulators.run import check_samples, encode_inputs, read_outputs
from tosaic.backends.target import Core
from tosaic.support.errors import SimulatorError


@dataclass(frozen=True)
class Signature:
    """The bytes of each tensor that a call reads and writes, in the order of its kernel's arguments.

    Calls of one kernel may differ in them: what slices the beginning of a tensor does not know how long that is.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.inputs + self.outputs


@dataclass(frozen=True)
class TracedCall:
    """One call of a kernel: the bytes of its inputs before, and of its outputs after."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True)
class Trace:
    """The model's outputs and the kernel calls in order, for each sample. NPU calls are not among them."""

    outputs: tuple[tuple[np.ndarray, ...], ...]
    calls: tuple[tuple[TracedCall, ...], ...]


def trace_firmware(
    build: Path,
    firmware: Firmware,
    core: Core,
    signatures: Sequence[Signature],
    samples: Sequence[Sequence[np.ndarray]],
    runner: Runner,
    npu: Execute | None = None,
    *,
    timeout: float = 600.0,
) -> Trace:
    """Link the archive of a build folder anew, each kernel in a wrapper that writes its tensors to a file, and run it.

    Kernels, constants and memory plan are those of `model.elf`.

    Args:
        signatures: of every call of a kernel, in order.
        samples: as `run_firmware` takes them.
        npu: executes NPU calls on the host.

    Raises:
        BackendError: it does not link.
        SimulatorError: the run failed.
    """
    check_samples(firmware.inputs, samples)
    inputs = encode_inputs(samples)
    called = [call.name for call in firmware.calls if call.processor == "cpu"]
    of_kernels: dict[str, list[Signature]] = {}
    for kernel, signature in zip(called, signatures, strict=True):
        of_kernels.setdefault(firmware.symbol(kernel), []).append(signature)
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        folder = Path(name)
        elf = _link(build, firmware, of_kernels, folder, core)
        execution = runner.run(elf, {"inputs.bin": inputs}, npu=npu, timeout=timeout, count=False)
    outputs = read_outputs(execution.check("the traced firmware"), firmware.outputs, len(samples))
    stream = _calls(execution.files.get(_TRACE, b""), [*signatures] * len(samples))
    return Trace(outputs, tuple(tuple(next(stream) for _ in called) for _ in samples))


_TRACE = "trace.bin"


def _link(
    build: Path, firmware: Firmware, signatures: Mapping[str, Sequence[Signature]], folder: Path, core: Core
) -> Path:
    source, wrappers, elf = folder / "trace.c", folder / "trace.o", folder / "traced.elf"
    source.write_text(_HEAD + "".join(_wrapper(symbol, calls) for symbol, calls in signatures.items()))
    toolchain.compile_c(source, wrappers, core)
    redirected = [f"--wrap={symbol}" for symbol in signatures]
    main = MAIN_AT_ONCE if firmware.fed_rows else MAIN
    parts = simulator_objects(build, firmware.name, core, firmware.has_npu, main)
    objects: list[Path | str] = [*redirected, wrappers, *parts]
    toolchain.link(objects, build / "model.ld", elf, core)
    return elf


_HEAD = f"""\
#include "semihosting.h"

void trace(const void *data, uint32_t bytes);
void trace(const void *data, uint32_t bytes)
{{
    static host_file file;
    static int is_open;
    if (!is_open)
        file = host_open("{_TRACE}", HOST_WRITE);
    is_open = 1;
    if (host_write(file, data, bytes) != bytes)
        host_exit(73);
}}

extern int in_kernel;
int in_kernel; /* what a kernel calls is a part of it */
"""


def _wrapper(symbol: str, calls: Sequence[Signature]) -> str:
    """A function that traces the inputs, calls the kernel, and traces the outputs; its calls follow in turn.

    Another kernel that calls this one as a part of its own is not interrupted.
    """
    inputs = [f"in{index}" for index in range(len(calls[0].inputs))]
    outputs = [f"out{index}" for index in range(len(calls[0].outputs))]
    tensors = [*inputs, *outputs]
    declared = [*(f"const void *{name}" for name in inputs), *(f"void *{name}" for name in outputs)]
    arguments = ", ".join([*declared, "const void *params", "void *scratch"])
    before, after = (
        "".join(f"    trace({name}, size[{tensors.index(name)}]);\n" for name in names) for names in (inputs, outputs)
    )
    sizes = ", ".join(f"{{{', '.join(f'{size}u' for size in call.sizes)}}}" for call in calls)
    call = f"__real_{symbol}({', '.join([*tensors, 'params', 'scratch'])});"
    return f"""
void __real_{symbol}({arguments});
void __wrap_{symbol}({arguments});
void __wrap_{symbol}({arguments})
{{
    static const uint32_t sizes[{len(calls)}][{len(tensors)}] = {{{sizes}}};
    static uint32_t called;
    if (in_kernel) {{
        {call}
        return;
    }}
    const uint32_t *size = sizes[called];
    called = (called + 1) % {len(calls)};
{before}    in_kernel = 1;
    {call}
    in_kernel = 0;
{after}}}
"""


def _calls(data: bytes, called: Sequence[Signature]) -> Iterator[TracedCall]:
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset += size
        if offset > len(data):
            raise SimulatorError(f"the trace ends after {len(data)} bytes, in a tensor")
        return data[offset - size : offset]

    for signature in called:
        yield TracedCall(tuple(map(take, signature.inputs)), tuple(map(take, signature.outputs)))
