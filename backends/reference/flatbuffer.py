"""Serialize a TOSA module with Arm's tosa-opt."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tosaic.support.errors import BackendError
from tosaic.support.functions import strip_annotations
from tosaic.support.loops import unroll
from tosaic.support.mlir import TARGET_ENV, bytecode, copy_of, functions, ir, parse, run_pipeline
from tosaic.support.tosa_tools import tosa_tool

_MOST = 1 << 25
_LATEST: dict[bytes, bytes] = {}
"""The latest flatbuffers, of `_MOST` bytes together, by the digests of the bytecode that they were made of."""


def serialize(module: ir.Module | str) -> bytes:
    """The TOSA flatbuffer of a module's `main`: calls inlined, loops unrolled, and `tosaic.*` attributes dropped.

    Inlining canonicalizes, too, where there is nothing to inline: what Vela is given depends on it.

    Raises:
        BackendError: tosa-opt refused the module.
    """
    flat = parse(module) if isinstance(module, str) else copy_of(module)
    run_pipeline(flat, "builtin.module(inline,symbol-dce)")
    unroll(flat)
    for function in functions(flat).values():
        strip_annotations(function)
    with flat.context:
        flat.operation.attributes["tosa.target_env"] = ir.Attribute.parse(TARGET_ENV)
    return _flatbuffer(bytecode(flat))


def _flatbuffer(code: bytes) -> bytes:
    key = hashlib.sha256(code).digest()
    made = _LATEST.get(key) or _serialized(code)
    if key not in _LATEST and len(made) <= _MOST:
        while len(made) + sum(map(len, _LATEST.values())) > _MOST:
            del _LATEST[next(iter(_LATEST))]
        _LATEST[key] = made
    return made


def _serialized(code: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tosaic-") as folder:
        source, target = Path(folder, "main.mlirbc"), Path(folder, "main.tosa")
        source.write_bytes(code)
        done = subprocess.run(
            [
                tosa_tool("tosa-opt"),
                source,
                "--tosa-serialize",
                f"--tosa-flatbuffer-filename={target}",
                "-o",
                os.devnull,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode or not target.exists():
            raise BackendError("tosa-opt cannot serialize this module", why=done.stderr.strip()[:2000])
        return target.read_bytes()
