"""Serialize a TOSA module and execute it with Arm's reference model."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from tosaic.support.child import in_child
from tosaic.support.errors import BackendError
from tosaic.support.functions import strip_annotations
from tosaic.support.mlir import TARGET_ENV, bytecode, copy_of, functions, ir, parse, run_pipeline
from tosaic.support.tosa_tools import tosa_tool


def serialize(module: ir.Module | str) -> bytes:
    """The TOSA flatbuffer of a module's `main`; calls are inlined and `tosaic.*` attributes dropped.

    Raises:
        BackendError: tosa-opt refused the module.
    """
    flat = parse(module) if isinstance(module, str) else copy_of(module)
    run_pipeline(flat, "builtin.module(inline,symbol-dce)")
    for function in functions(flat).values():
        strip_annotations(function)
    with flat.context:
        flat.operation.attributes["tosa.target_env"] = ir.Attribute.parse(TARGET_ENV)
    return _flatbuffer(bytecode(flat))


@lru_cache(maxsize=16)
def _flatbuffer(code: bytes) -> bytes:
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


def evaluate(module: ir.Module | str | bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Execute `main` of a TOSA module (or a serialized flatbuffer) on `inputs`, shapes and dtypes as `main` has them.

    Raises:
        BackendError: as `evaluate_each`.
    """
    return evaluate_each(module, [inputs])[0]


def evaluate_each(module: ir.Module | str | bytes, samples: Iterable[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Execute `main` as `evaluate` does, once for the inputs of each sample.

    The model runs in another process: on an invalid graph it aborts, which must not take the compiler with it.

    Raises:
        BackendError: the module does not serialize, is not valid TOSA, or the model refused it.
    """
    flatbuffer = module if isinstance(module, bytes) else serialize(module)
    try:
        return in_child(_execute, flatbuffer, [list(inputs) for inputs in samples])
    except Exception as error:
        raise BackendError("tosa_reference_model did not accept the module", why=str(error)) from None


def evaluate_precisely(module: ir.Module, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The one float result of `main`, computed in f64, and its bounds: of a sum of products a b, the sum of |a b|.

    Raises:
        BackendError: the module does not serialize, is not valid TOSA, or the model refused it.
    """
    with tempfile.TemporaryDirectory(prefix="tosaic-") as name:
        folder = Path(name)
        (folder / "main.tosa").write_bytes(serialize(module))
        tensors = [f"TosaInput_{number}" for number in range(len(inputs))]
        for tensor, array in zip(tensors, inputs, strict=True):
            np.save(folder / f"{tensor}.npy", array)
        description = {
            "tosa_file": "main.tosa", "ifm_name": tensors, "ifm_file": [f"{tensor}.npy" for tensor in tensors],
            "ofm_name": ["TosaOutput_0"], "ofm_file": ["result.npy"],
            "test_requirements": {"bounds_file_required": True},
        }  # fmt: skip
        (folder / "desc.json").write_text(json.dumps(description))
        done = subprocess.run(
            [tosa_tool("tosa_reference_model"), f"--test_desc={folder / 'desc.json'}", "--precise_mode=1"],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BackendError("tosa_reference_model did not accept the module", why=done.stderr.strip()[:2000])
        return np.load(folder / "result.npy"), np.load(folder / "bounds_result.npy")


def _execute(flatbuffer: bytes, samples: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    import tosa_reference_model

    results = []
    for inputs in samples:
        outputs, status = tosa_reference_model.run(flatbuffer, inputs)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise ValueError(str(status))
        results.append([np.array(output) for output in outputs])
    return results
