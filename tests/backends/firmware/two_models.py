"""An application of its own with two models in one image, built with CMake by gcc or clang."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.toolchain import newlib_headers
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.emit_header import identifier
from tosaic.backends.firmware.records import Firmware
from tosaic.backends.simulators.npu_bridge import Execute
from tosaic.backends.simulators.run import encode_inputs, read_outputs
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.support.processes import run_tool

APP = Path(__file__).parent / "app"
COMPILERS = ("gcc", "clang")
_FACTS = struct.Struct("<6i")


class Facts(NamedTuple):
    """Statuses and bytes, as main.c writes them."""

    null_arena: int
    odd_arena: int
    first_selftest: int
    second_selftest: int
    first_stack: int
    second_stack: int


def build_app(
    compiler: str, builds: Sequence[tuple[Path, Firmware]], folder: Path, driver: Sequence[object] = ()
) -> Path:
    """The ELF of both models; `driver` is what the image links for NPU calls."""
    folder.mkdir()
    lines = []
    for macro, (_, firmware) in zip(("FIRST", "SECOND"), builds, strict=True):
        name, first = firmware.name, identifier(firmware.inputs[0].name)
        lines += [
            f'#include "{name}.h"',
            f"#define {macro}(x) {name}_##x",
            f"#define {macro}_MACRO(x) {name.upper()}_##x",
        ]
        lines.append(f"#define {macro}_INPUT_TYPE {name}_input_{first}")
        macros = ("BYTES", "ELEMENTS", "SCALE", "ZERO_POINT")
        lines += [f"#define {name.upper()}_INPUT_0_{m} {name.upper()}_INPUT_{first}_{m}" for m in macros]
    (folder / "models.h").write_text("\n".join([*lines, ""]))
    runtime = [toolchain.SOURCES / name for name in ("startup.c", "start.c", "semihosting.c")]
    definitions = {
        "CMAKE_TOOLCHAIN_FILE": APP / f"{compiler}.cmake",
        "CMAKE_PREFIX_PATH": _list(build / "kit" for build, _ in builds),
        "MODELS": _list(firmware.name for _, firmware in builds),
        "RUNTIME": _list(runtime),
        "DRIVER": _list(driver),
        "INCLUDE": f"{folder};{toolchain.SOURCES}",
        "NEWLIB": newlib_headers(),
    }
    run_tool("cmake", ["-S", APP, "-B", folder, *(f"-D{key}={value}" for key, value in definitions.items())])
    run_tool("cmake", ["--build", folder])
    return folder / "app"


def run_app(
    elf: Path,
    runner: Qemu,
    models: Sequence[Firmware],
    samples: Sequence[Sequence[Sequence[np.ndarray]]],
    npu: Execute | None = None,
) -> tuple[list[tuple[tuple[np.ndarray, ...], ...]], Facts]:
    """Run the app; `samples` holds, for each sample, the inputs of each model. The outputs likewise, and the facts."""
    outputs = [tensor for model in models for tensor in model.outputs]
    data = encode_inputs([[array for part in sample for array in part] for sample in samples])
    done = runner.run(elf, {"inputs.bin": data}, npu=npu, count=False).check("the app")
    written = done.files["outputs.bin"]
    done.files["outputs.bin"] = written[: -_FACTS.size]  # type: ignore[index]
    rows = read_outputs(done, outputs, len(samples))
    cut = len(models[0].outputs)
    return [(row[:cut], row[cut:]) for row in rows], Facts(*_FACTS.unpack(written[-_FACTS.size :]))


def _list(parts) -> str:
    return ";".join(map(str, parts))


__all__ = ["APP", "COMPILERS", "CORE", "Facts", "build_app", "run_app"]
