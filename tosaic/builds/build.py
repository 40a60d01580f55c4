"""A build folder: what a compilation leaves, and how it is read back."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from tosaic.backends.firmware.records import Firmware, ModelTensor
from tosaic.builds.accuracy import Computed
from tosaic.builds.manifest import FILE, Manifest
from tosaic.passes.invariants import check_placed
from tosaic.support.attributes import text_of
from tosaic.support.errors import Error
from tosaic.support.functions import called
from tosaic.support.mlir import functions, ir
from tosaic.support.mlir_file import read_mlir
from tosaic.support.named_arrays import read_arrays
from tosaic.support.scratch import held
from tosaic.terminal.console import stderr

SEAL = "SHA256SUMS"
SAMPLES = "samples.npz"


@dataclass(frozen=True)
class BuildFolder:
    """A build folder that `tosaic compile` wrote.

    Args:
        folder: holds `manifest.json`, `module.mlirbc` (the integer module, which is the meaning of the program),
            `placed.mlirbc`, `float.pt2`, `schedules.txt` where kernels are programs, and the firmware.
        manifest: everything about the build.
    """

    folder: Path
    manifest: Manifest

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a build folder.

        Raises:
            Error: there is none, another version of tosaic wrote it, or a file of it has changed since.
        """
        manifest = Manifest.read(folder)
        _check_seal(folder)
        return cls(folder, manifest)

    @property
    def elf(self) -> Path:
        """The firmware for runners.

        Raises:
            Error: it is missing.
        """
        file = self.folder / "model.elf"
        if not file.is_file():
            raise Error(f"there is no `{file}`", hint="compile again")
        return file

    @cached_property
    def module(self) -> ir.Module:
        """The integer module."""
        return self._module("module.mlirbc")

    @cached_property
    def placed(self) -> ir.Module:
        """The module as it was placed on the processors."""
        return self._module("placed.mlirbc", self._check_placed)

    @property
    def called(self) -> list[str]:
        """The function of the placed module that each call of the firmware runs."""
        return called(self.placed)

    @cached_property
    def samples(self) -> list[Computed]:
        """The calibration samples that it carries, as the firmware takes them, with the outputs of the integer module.

        Raises:
            Error: they cannot be read.
        """
        firmware = self.manifest.firmware
        columns = self._carried("input", firmware.inputs), self._carried("output", firmware.outputs)
        inputs, outputs = (list(map(list, zip(*column, strict=True))) for column in columns)
        return list(map(Computed, inputs or [[] for _ in outputs], outputs))

    @cached_property
    def states(self) -> list[np.ndarray]:
        """What it keeps between calls, as it is before the first one, in the order of the manifest.

        Raises:
            Error: it cannot be read.
        """
        return self._carried("state", self.manifest.firmware.states)

    @property
    def float_states(self) -> list[np.ndarray]:
        """`states` in the units of the float model."""
        return [_dequantize(array, of) for array, of in zip(self.states, self.manifest.firmware.states, strict=True)]

    def _carried(self, kind: str, tensors: Sequence[ModelTensor]) -> list[np.ndarray]:
        try:
            arrays = read_arrays(self.folder / SAMPLES)
            return [arrays[f"{kind}.{tensor.name}"] for tensor in tensors]
        except (ValueError, KeyError, IndexError) as error:
            raise Error(f"cannot read `{self.folder / SAMPLES}`", why=str(error), hint="compile again") from None

    def _module(self, name: str, check: Callable[[ir.Module], None] = lambda module: None) -> ir.Module:
        try:
            module = read_mlir((self.folder / name).read_bytes())
            if "main" not in functions(module):
                raise Error("it has no function `main`")
            check(module)
        except (OSError, Error) as error:
            raise Error(f"cannot read `{self.folder / name}`", why=str(error), hint="compile again") from None
        return module

    def _check_placed(self, module: ir.Module) -> None:
        check_placed(module)
        known, names = functions(module), called(module)
        processors = [text_of(known[name], "tosaic.processor") for name in names]
        if processors != [call.processor for call in self.manifest.firmware.calls]:
            raise Error("its calls are not those of the firmware")
        if missing := {op.function for op in self.manifest.ops} - set(names):
            raise Error(f"it does not call `{min(missing)}`, whose ops `{FILE}` lists")

    def quantize_inputs(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """One sample as the firmware takes it: floats are quantized, integers of the firmware's dtype pass.

        Raises:
            Error: wrong number, shape or dtype of inputs.
        """
        wanted = self.manifest.firmware.inputs
        if len(inputs) != len(wanted):
            raise Error(f"the model takes {len(wanted)} inputs, got {len(inputs)}")
        return [_quantize(array, tensor) for array, tensor in zip(inputs, wanted, strict=True)]

    def dequantize_inputs(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """One sample as the float model takes it: quantized integers become float32, everything else passes."""
        tensors = self.manifest.firmware.inputs
        return [
            _dequantize(array, tensor) if array.dtype == tensor.dtype else array
            for array, tensor in zip(inputs, tensors, strict=True)
        ]

    def dequantize_outputs(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs in the units of the float model; outputs without quantization pass."""
        tensors = self.manifest.firmware.outputs
        return [_dequantize(array, tensor) for array, tensor in zip(outputs, tensors, strict=True)]


def _quantize(array: np.ndarray, tensor: ModelTensor) -> np.ndarray:
    if array.shape != tensor.shape:
        raise Error(f"`{tensor.name}` has the shape {list(tensor.shape)}, got {list(array.shape)}")
    if array.dtype == tensor.dtype:
        return array
    kind = np.dtype(tensor.dtype)
    if tensor.quantization is not None and np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            raise Error(f"`{tensor.name}` holds a NaN or an infinity")
        return tensor.quantization.quantize_as_torch(array).astype(kind)
    if np.issubdtype(kind, np.floating) and np.issubdtype(array.dtype, np.floating):
        return array.astype(kind)
    if array.dtype == np.int64 and kind == np.int32:
        if array.min(initial=0) < -(2**31) or array.max(initial=0) >= 2**31:
            raise Error(f"`{tensor.name}` holds values that do not fit int32")
        return array.astype(kind)
    raise Error(f"`{tensor.name}` is {tensor.dtype}, got {array.dtype}")


def _dequantize(array: np.ndarray, tensor: ModelTensor) -> np.ndarray:
    return array if tensor.quantization is None else tensor.quantization.dequantize(array).astype(np.float32)


def write_samples(folder: Path, firmware: Firmware, computed: Sequence[Computed], states: Sequence[np.ndarray]) -> None:
    """Write `samples.npz`: arrays `input.NAME` and `output.NAME` with the samples first, and `state.NAME`."""
    tensors = [("input", firmware.inputs), ("output", firmware.outputs)]
    rows = [[array for arrays in each for array in arrays] for each in computed]
    names = [f"{kind}.{tensor.name}" for kind, some in tensors for tensor in some]
    columns = zip(names, zip(*rows, strict=True), strict=True)
    arrays = {name: np.stack(column) for name, column in columns}
    arrays |= {f"state.{tensor.name}": array for tensor, array in zip(firmware.states, states, strict=True)}
    np.savez_compressed(folder / SAMPLES, **arrays)


def seal(folder: Path) -> None:
    """Write the digests of all files of a build folder, as `sha256sum` does, so that damage is noticed."""
    (folder / SEAL).unlink(missing_ok=True)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    (folder / SEAL).write_text("".join(f"{_sha256(folder / name)}  {name}\n" for name in files))


def _check_seal(folder: Path) -> None:
    try:
        lines = (folder / SEAL).read_text().splitlines()
        changed = [name for digest, name in (line.split("  ", 1) for line in lines) if _sha256(folder / name) != digest]
    except (OSError, ValueError) as error:
        raise Error(f"`{folder}` is damaged", why=str(error), hint="compile again") from None
    if changed or not any(line.endswith(f"  {FILE}") for line in lines):
        why = f"not as the compilation wrote it: {', '.join(changed or [SEAL])}"
        raise Error(f"`{folder}` is damaged", why=why, hint="compile again")


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A fresh folder beside `folder` that takes its place when the body ends well, and vanishes when it does not.

    Raises:
        Error: `folder` exists and is not a build, or cannot be written.
        OSError: its disk is full.
    """
    folder = folder.absolute()
    old = folder.with_name(f".{folder.name}.old")
    with ExitStack() as stack:
        try:
            if folder.exists() and not (folder / FILE).exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise Error(f"`{folder}` exists and is no build", hint="name another folder with -o")
            stack.callback(_remove_empty, [parent for parent in folder.parents if not parent.exists()])
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = stack.enter_context(held(folder.with_name(f".{folder.name}.new"), lambda: _say_waiting(folder)))
        except OSError as error:
            raise Error(f"cannot write `{folder}`", why=str(error)) from None
        _settle(folder, old)
        yield fresh
        if folder.exists():
            os.replace(folder, old)
        os.replace(fresh, folder)
        shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _settle(folder: Path, old: Path) -> None:
    """Where a process was killed between the two renames, the old build is the one that is there."""
    if old.exists() and not folder.exists():
        os.replace(old, folder)
    shutil.rmtree(old, ignore_errors=True)


def _say_waiting(folder: Path) -> None:
    stderr.print(f"waiting for another compilation that writes {folder}")
