"""A compile is not done again where what was read is to the bit what was read before: what follows is the same."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unittest import mock

from tosaic.compiler import compilation
from tosaic.compiler.middle import Middle
from tosaic.compiler.options import CompileOptions
from tosaic.support.mlir import bytecode
from tosaic.terminal.progress import Stations

_T = TypeVar("_T")


class Known(BaseException):
    """Ends a compile; `digest` is that of what it read."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.digest = digest


def reading(known: Callable[[str], bool], command: Callable[[], _T]) -> tuple[_T, str]:
    """What `command` gives, and the digest of what the last compile in it read; empty where none read so far.

    Raises:
        Known: what a compile reads is `known`.
    """
    digest = ""

    def lowered(options: CompileOptions, stations: Stations) -> Middle:
        nonlocal digest
        middle = lower(options, stations)
        digest = _digest(options, middle)
        if known(digest):
            raise Known(digest)
        return middle

    lower = compilation.lower_model
    with mock.patch.object(compilation, "lower_model", lowered):
        return command(), digest


def _digest(options: CompileOptions, middle: Middle) -> str:
    """Of all that the stations behind the passes depend on."""
    records = options.tuning.records
    data = Path(records).read_bytes() if records and Path(records).exists() else b""
    names = middle.captured.input_names, middle.captured.output_names
    seen = middle.calibration, middle.accuracy, middle.layers, middle.warnings
    arrays = middle.computed, middle.states, middle.samples
    module = middle.meaning, bytecode(middle.placement.module)
    return hashlib.sha256(pickle.dumps((options.target, names, seen, arrays, module, data))).hexdigest()
