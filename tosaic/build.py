"""A build folder: what a compilation leaves, and how it is read back."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tosaic.support.errors import Error
from tosaic.support.mlir import ir, parse

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Build:
    """A build folder that `tosaic compile` wrote.

    Args:
        folder: holds `manifest.json`, `module.mlirbc` (the integer module, which is the meaning of the program),
            `placed.mlirbc`, `float.pt2`, and the firmware.
        manifest: everything about the build, as JSON gives it.
    """

    folder: Path
    manifest: dict

    @staticmethod
    def load(folder: Path) -> Build:
        """Read a build folder.

        Raises:
            Error: there is none, or another version of tosaic wrote it.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise Error(f"`{folder}` holds no build", hint=f"tosaic compile MODEL -o {folder}") from None
        except (OSError, ValueError) as error:
            raise Error(f"cannot read `{folder / MANIFEST}`", why=str(error), hint="compile again") from None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise Error(f"`{folder}` was written by another version of tosaic", hint="compile again")
        return Build(folder, manifest)

    @property
    def elf(self) -> Path:
        return self.folder / "model.elf"

    @cached_property
    def module(self) -> ir.Module:
        """The integer module."""
        return self._module("module.mlirbc")

    @cached_property
    def placed(self) -> ir.Module:
        """The module as it was placed on the processors."""
        return self._module("placed.mlirbc")

    def _module(self, name: str) -> ir.Module:
        try:
            return parse((self.folder / name).read_bytes())
        except (OSError, Error) as error:
            raise Error(f"cannot read `{self.folder / name}`", why=str(error), hint="compile again") from None

    def quantize_inputs(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """One sample as the firmware takes it: floats are quantized, integers of the firmware's dtype pass.

        Raises:
            Error: wrong number, shape or dtype of inputs.
        """
        wanted = self.manifest["inputs"]
        if len(inputs) != len(wanted):
            raise Error(f"the model takes {len(wanted)} inputs, got {len(inputs)}")
        return [_quantize(array, **entry) for array, entry in zip(inputs, wanted, strict=True)]

    def dequantize_inputs(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """One sample as the float model takes it: quantized integers become float32, everything else passes."""
        entries = self.manifest["inputs"]
        return [
            _dequantize(array, entry) if array.dtype == entry["dtype"] else array
            for array, entry in zip(inputs, entries, strict=True)
        ]

    def dequantize_outputs(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs in the units of the float model; outputs without quantization pass."""
        entries = self.manifest["outputs"]
        return [_dequantize(array, entry) for array, entry in zip(outputs, entries, strict=True)]


def _quantize(
    array: np.ndarray, *, name: str, shape: list[int], dtype: str, scale: float | None, zero_point: int | None
) -> np.ndarray:
    if list(array.shape) != shape:
        raise Error(f"`{name}` has the shape {shape}, got {list(array.shape)}")
    if array.dtype == dtype:
        return array
    kind = np.dtype(dtype)
    if scale is not None and np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            raise Error(f"`{name}` holds a NaN or an infinity")
        limits = np.iinfo(kind)
        # torch divides by multiplying with the reciprocal, in float32.
        steps = np.rint(array.astype(np.float32) * np.float32(1.0 / scale)) + zero_point
        return np.clip(steps, limits.min, limits.max).astype(kind)
    if np.issubdtype(kind, np.floating) and np.issubdtype(array.dtype, np.floating):
        return array.astype(kind)
    if array.dtype == np.int64 and kind == np.int32:
        if array.min(initial=0) < -(2**31) or array.max(initial=0) >= 2**31:
            raise Error(f"`{name}` holds values that do not fit int32")
        return array.astype(kind)
    raise Error(f"`{name}` is {dtype}, got {array.dtype}")


def _dequantize(array: np.ndarray, entry: dict) -> np.ndarray:
    if entry["scale"] is None:
        return array
    return (array.astype(np.float32) - entry["zero_point"]) * np.float32(entry["scale"])


def write_manifest(folder: Path, manifest: dict) -> None:
    """Write `manifest.json` into a build folder."""
    text = json.dumps({"format": FORMAT, **manifest}, indent=1, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n")


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A fresh folder beside `folder` that takes its place when the body ends well, and vanishes when it does not.

    Raises:
        Error: `folder` exists and is not a build, or cannot be written.
    """
    folder = folder.absolute()
    if folder.exists() and not (folder / MANIFEST).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Error(f"`{folder}` exists and is no build", hint="name another folder with -o")
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise Error(f"cannot write `{folder}`", why=str(error)) from None
    try:
        yield fresh
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            os.replace(folder, old)
            shutil.rmtree(old)
        os.replace(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        with suppress(OSError):
            for parent in missing:
                parent.rmdir()
        raise
