"""CMSIS-NN, the library: where it is and how it is built.

It comes from the checkout named by the environment variable `TOSAIC_CMSIS_NN`, else from the subset that the package
`bakenn` carries. It is built with `CMSIS_NN_USE_SINGLE_ROUNDING`, under which it rounds as TOSA's SINGLE_ROUND.
A function that the library lacks is not offered; `CmsisNn.missing` says which.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tosaic.backends.cortex_m.kernel import License
from tosaic.backends.cortex_m.toolchain import CLANG, newlib_headers, target_flags
from tosaic.backends.target import Core
from tosaic.support.cache import cached
from tosaic.support.errors import BackendError
from tosaic.support.processes import errors_of, installed, run_tool

LIBRARY = "cmsis-nn"
"""Its name in `KernelSource.libraries`."""
VARIABLE = "TOSAIC_CMSIS_NN"
"""The environment variable that names a checkout."""

CONVOLVE = "arm_convolve_wrapper_s8"
DEPTHWISE = "arm_depthwise_conv_wrapper_s8"
FULLY_CONNECTED = "arm_fully_connected_s8"
FULLY_CONNECTED_PER_CHANNEL = "arm_fully_connected_per_channel_s8"
MAX_POOL = "arm_max_pool_s8"
AVERAGE_POOL = "arm_avgpool_s8"
FUNCTIONS = (CONVOLVE, DEPTHWISE, FULLY_CONNECTED, FULLY_CONNECTED_PER_CHANNEL, MAX_POOL, AVERAGE_POOL)

_FLAGS = (
    "-O3",
    "-ffunction-sections",
    "-fdata-sections",
    "-fstack-size-section",
    "-DCMSIS_NN_USE_SINGLE_ROUNDING",
    "-w",
)
_DEFINITION = re.compile(r"^(?![#/*\s])[^;]*?\b(arm_\w+)\([^;]*$", re.MULTILINE)


@dataclass(frozen=True)
class CmsisNn:
    """A copy of CMSIS-NN: `root` holds its folders `Include` and `Source`."""

    root: Path

    @staticmethod
    def find(checkout: Path | None = None) -> CmsisNn | None:
        """The library at `checkout`, else where TOSAIC_CMSIS_NN says, else in `bakenn`; None without any.

        Raises:
            BackendError: the named folder holds no CMSIS-NN.
        """
        named_by_user = checkout or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        if named_by_user is None:
            spec = importlib.util.find_spec("bakenn")
            if spec is None or not spec.submodule_search_locations:
                return None
            root = Path(spec.submodule_search_locations[0], "backend", "cmsis_nn", "vendor", "cmsis_nn")
            return CmsisNn(root) if root.is_dir() else None
        if not (named_by_user / "Include" / "arm_nnfunctions.h").is_file():
            raise BackendError(
                f"there is no CMSIS-NN in {named_by_user}",
                why="it has no Include/arm_nnfunctions.h",
                hint=f"point {VARIABLE} at a checkout of github.com/ARM-software/CMSIS-NN, or unset it",
            )
        return CmsisNn(named_by_user.resolve())

    @property
    def include(self) -> list[Path]:
        """Header folders, for callers too. Older versions need CMSIS-Core, which lies beside the registry's copy."""
        core = self.root.parent / "cmsis_core" / "Include"
        return [self.root / "Include", *([core] if core.is_dir() else [])]

    @property
    def licenses(self) -> list[License]:
        """Of the library, and of the CMSIS-Core beside the registry's copy, whose functions are inlined.

        Raises:
            BackendError: a copy has no license with it.
        """
        folders = {"CMSIS-NN": self.root, "CMSIS-Core": self.root.parent / "cmsis_core"}
        return [License(name, "Apache-2.0", _license(folder)) for name, folder in folders.items() if folder.is_dir()]

    @property
    def missing(self) -> list[str]:
        """The functions that would be offered and are not there."""
        return [function for function in FUNCTIONS if not self.has(function)]

    def has(self, function: str) -> bool:
        return function in self._definitions

    def archive(self, core: Core) -> Path:
        """The static library of all that is offered, built on first use.

        Raises:
            BackendError: clang refused a file.
        """
        sources = self._closure()
        headers = sorted(header for folder in self.include for header in folder.rglob("*.h"))
        flags = [*target_flags(core), *_FLAGS]
        material: list[str | bytes] = [*flags, *(path.read_bytes() for path in [*sources, *headers])]
        return cached("libcmsis-nn.a", material, lambda target: self._build(sources, flags, target))

    @cached_property
    def digest(self) -> str:
        """Of all sources and headers that firmware may hold."""
        files = (*self._closure(), *sorted(header for folder in self.include for header in folder.rglob("*.h")))
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]

    @cached_property
    def _texts(self) -> dict[Path, str]:
        return {path: path.read_text(errors="replace") for path in sorted(self.root.glob("Source/*/*.c"))}

    @cached_property
    def _definitions(self) -> dict[str, Path]:
        """The file that defines each function."""
        return {name: path for path, text in self._texts.items() for name in _DEFINITION.findall(text)}

    def _closure(self) -> list[Path]:
        """The files that define the offered functions and all that they call."""
        found: set[Path] = set()
        open_names = [function for function in FUNCTIONS if self.has(function)]
        while open_names:
            path = self._definitions.get(open_names.pop())
            if path is not None and path not in found:
                found.add(path)
                open_names += set(re.findall(r"\barm_\w+", self._texts[path]))
        return sorted(found)

    def _build(self, sources: Sequence[Path], flags: Sequence[str], target: Path) -> None:
        include = [f"-I{folder}" for folder in self.include]

        def compile_one(source: Path) -> Path:
            made = target.parent / f"{source.stem}.o"
            command = [installed(CLANG), *flags, *include, "-isystem", newlib_headers(), "-c", source, "-o", made]
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
            if done.returncode:
                raise BackendError(f"CMSIS-NN's {source.name} does not compile", why=errors_of(done.stderr))
            return made

        with ThreadPoolExecutor(max_workers=2) as pool:
            objects = list(pool.map(compile_one, sources))
        run_tool("llvm-ar-22", ["rcs", target, *objects])
        for made in objects:
            made.unlink()


def _license(folder: Path) -> Path:
    found = next((folder / name for name in ("LICENSE", "LICENSE.txt") if (folder / name).is_file()), None)
    if found is None:
        raise BackendError(f"there is no license in {folder}", why="firmware that links it must bring it along")
    return found
