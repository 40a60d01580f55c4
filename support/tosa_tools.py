"""Programs of others that make TOSA: those of the package `tosa-tools`, and Arm's converter of `.tflite` files."""

from __future__ import annotations

import io
from functools import cache
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path


@cache
def tosa_tool(name: str) -> Path:
    """The program itself: the script of that name starts a Python first, which takes ten times as long."""
    return Path(str(distribution("tosa-tools").locate_file(f"bin/{name}")))


def tosa_of_tflite(path: str) -> str:
    """The text of the module that Arm's converter makes of a file. It crashes on some: to be called `in_child`.

    Raises:
        ImportError: the extra `tflite` is not installed.
        Exception: whatever the converter raises.
    """
    converter, made = import_module("tosa_converter_for_tflite"), io.BytesIO()
    converter.tflite_flatbuffer_to_tosa_mlir(path, made, converter.TosaConverterOutputFormat.Text)
    return made.getvalue().decode()
