"""Damaged files of every kind: a command that reads one says so, or gives what the sound file gives.

It does so within 20 seconds of CPU time, and 2 GB of memory in each of its processes. A file that reads as one before
it is not compiled again.
"""

from __future__ import annotations

import atexit
import io
import os
import random
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import torch
from click.testing import CliRunner, Result

from benchmarks.campaigns.known_compiles import Known, reading
from benchmarks.campaigns.planted_model import read
from benchmarks.campaigns.trials import Outcome
from tosaic.api import Build
from tosaic.backends.reference import serialize
from tosaic.builds.build import seal
from tosaic.cli import main
from tosaic.support.mlir import bytecode
from tosaic.terminal.console import FAULT

_SECONDS, _BYTES = 20.0, 2e9
_FORGET_PEAK = "5"  # see proc(5)
AN386 = Path(__file__).parents[2] / "examples" / "targets" / "mps2-an386.toml"
_known: dict[tuple[str, str], Outcome] = {}
"""What became of files, by their kind and the digest of what was read of them."""
_TFLITE = Path(__file__).parents[2] / "tests" / "frontend" / "tflite" / "op_dense.tflite"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        files: what may be damaged, below the folder of `sound`.
        command: reads the files of a folder; its result is an array, or None where it gives none.
        checked: whether a damage that is not refused must leave the result as it is.
        sealed: whether a build's digests are made anew after the damage.
        inside: whether the file is an archive, and one of its records is damaged and gets a new checksum.
    """

    name: str
    files: tuple[str, ...]
    command: Callable[[Path], Result]
    checked: bool = True
    sealed: bool = False
    inside: bool = False


def tosaic(*arguments: object) -> Result:
    """A command of tosaic's in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _run(folder: Path) -> Result:
    return tosaic("run", folder / "build", "--input", folder / "x.npy", "-o", folder / "out", "--json")


def _verify(folder: Path) -> Result:
    return tosaic("verify", folder / "build", "--inputs", 1, "--json")


def _compile(folder: Path, *arguments: object) -> Result:
    options = ("-o", folder / "new", "--records", folder / "records.db", "--calibration", folder / "calibration.npz")
    made = tosaic("compile", folder / "model.pt2", *options, *arguments, "--json")
    if made.exit_code:
        return made
    return tosaic("run", folder / "new", "--input", folder / "x.npy", "-o", folder / "out", "--json")


def _import(folder: Path) -> Result:
    return tosaic("records", "import", folder / "records.jsonl", "--records", folder / "records.db")


def _read(model: str) -> Callable[[Path], Result]:
    """Compile a model that is a file."""
    return lambda folder: tosaic("compile", folder / model, "-o", folder / "new", "--records", folder / "records.db")


_BUILD = ("manifest.json", "module.mlirbc", "placed.mlirbc", "float.pt2", "model.elf", "SHA256SUMS")
KINDS = (
    Kind("program", ("model.pt2",), _compile),
    Kind("program with new checksums", ("model.pt2",), _compile, checked=False, inside=True),
    Kind("build", tuple(f"build/{name}" for name in _BUILD), _run),
    Kind("build with new digests", ("build/manifest.json", "build/placed.mlirbc"), _run, checked=False, sealed=True),
    Kind("build with new digests, verified", ("build/manifest.json", "build/float.pt2"), _verify, False, sealed=True),
    Kind("records", ("records.db",), _compile),
    Kind("exported records", ("records.jsonl",), _import, checked=False),
    Kind("calibration", ("calibration.npz",), _compile),
    Kind("calibration with new checksums", ("calibration.npz",), _compile, checked=False, inside=True),
    Kind("input", ("x.npy",), _run, checked=False),
    Kind("target", ("target.toml",), lambda folder: _compile(folder, "--target", folder / "target.toml"), False),
    Kind("flatbuffer", ("model.tosa",), _read("model.tosa"), checked=False),
    Kind("text", ("model.mlir",), _read("model.mlir"), checked=False),
    Kind("bytecode", ("model.mlirbc",), _read("model.mlirbc"), checked=False),
    Kind("tflite", ("model.tflite",), _read("model.tflite"), checked=False),
    Kind("graph", ("model.onnx",), _read("model.onnx"), checked=False),
    Kind(
        "module", ("module.mlir",), lambda folder: tosaic("opt", folder / "module.mlir", "--pass-pipeline=fuse"), False
    ),
)


@cache
def sound() -> tuple[Path, np.ndarray]:
    """A folder of sound files, which goes with the process, and what the model makes of `x.npy`."""
    folder = Path(tempfile.mkdtemp(prefix="tosaic-campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model, example, batches = read()
    torch.export.save(torch.export.export(model, example), folder / "model.pt2")
    np.savez(folder / "calibration.npz", x=np.stack([batch[0].numpy() for batch in batches]))
    np.save(folder / "x.npy", example[0].numpy())
    shutil.copy(AN386, folder / "target.toml")
    made = _compile(folder, "--save-ir", folder / "ir")
    assert made.exit_code == 0, made.output
    (folder / "new").rename(folder / "build")
    (folder / "module.mlir").write_bytes(sorted((folder / "ir").iterdir())[8].read_bytes())
    module = Build.load(folder / "build").module
    (folder / "model.tosa").write_bytes(serialize(module))
    (folder / "model.mlir").write_text(str(module))
    (folder / "model.mlirbc").write_bytes(bytecode(module))
    onnx.save(_graph(), folder / "model.onnx")
    shutil.copy(_TFLITE, folder / "model.tflite")
    tosaic("records", "export", folder / "records.jsonl", "--records", folder / "records.db")
    return folder, _result(folder)


def _graph() -> onnx.ModelProto:
    """A convolution and a classifier."""
    make, rng = onnx.helper.make_node, np.random.default_rng(0)
    weights = {"w": (2, 3, 3, 3), "b": (2,), "m": (2, 3)}
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        make("Relu", ["c"], ["r"]),
        make("ReduceMean", ["r"], ["p"], axes=[2, 3], keepdims=0),
        make("MatMul", ["p", "m"], ["y"]),
    ]
    edges = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 8, 8]), ("y", [1, 3]))
    ]
    constants = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = onnx.helper.make_graph(nodes, "net", edges[:1], edges[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def _result(folder: Path) -> np.ndarray:
    result = np.concatenate([np.load(file).ravel() for file in sorted((folder / "out").glob("*.npy"))])
    shutil.rmtree(folder / "out")
    return result


def damage(rng: random.Random, data: bytes) -> bytes:
    """`data` with bits flipped, a part lost, zeroed, repeated or made noise, or nothing left."""
    if not data:
        return b"\0"
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 4, 64, 4096)))
    match rng.choice(("flip", "flip", "flip", "cut", "lose", "zero", "repeat", "noise", "empty")):
        case "flip":
            return data[:start] + bytes([data[start] ^ 1 << rng.randrange(8)]) + data[start + 1 :]
        case "cut":
            return data[:start]
        case "lose":
            return data[:start] + data[end:]
        case "zero":
            return data[:start] + bytes(end - start) + data[end:]
        case "repeat":
            return data[:end] + data[start:]
        case "noise":
            return data[:start] + rng.randbytes(end - start) + data[end:]
    return b""


def _damage_inside(rng: random.Random, data: bytes) -> bytes:
    """An archive with a damaged record, whose checksum is that of the damage."""
    damaged = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(damaged, "w") as made:
        records = archive.namelist()
        chosen = rng.choice(records)
        for record in records:
            content = archive.read(record)
            made.writestr(record, damage(rng, content) if record == chosen else content)
    return damaged.getvalue()


def trial(number: int) -> Outcome:
    """A file with a damage, read by a command."""
    rng, kind = random.Random(number), KINDS[number % len(KINDS)]
    folder_of_sound, expected = sound()
    with tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as name:
        folder = Path(name, "files")
        shutil.copytree(folder_of_sound, folder)
        file = rng.choice(kind.files)
        damaged = _damage_inside if kind.inside else damage
        (folder / file).write_bytes(damaged(rng, (folder / file).read_bytes()))
        if kind.sealed:
            seal(folder / "build")
        for process in _processes():
            (process / "clear_refs").write_text(_FORGET_PEAK)
        before = {process: _cpu_seconds(process) for process in _processes()}
        outcome = _outcome(kind, file, folder, expected)
        peak = max(map(_peak_bytes, _processes()))
        seconds = sum(_cpu_seconds(process) - before.get(process, 0.0) for process in _processes())
    if seconds > _SECONDS or peak > _BYTES:
        outcome = Outcome("large", f"{file}: {seconds:.0f} s, {peak / 1e9:.1f} GB", fault=True)
    return replace(outcome, subject=kind.name)


def _outcome(kind: Kind, file: str, folder: Path, expected: np.ndarray) -> Outcome:
    try:
        result, digest = reading(lambda digest: (kind.name, digest) in _known, lambda: kind.command(folder))
    except Known as known:
        return _known[kind.name, known.digest]
    outcome = _judge(kind, file, result, folder, expected)
    if digest:
        _known[kind.name, digest] = outcome
    return outcome


def _processes() -> list[Path]:
    """This process and those that it started, and so on, as proc(5) shows them."""
    found = [Path("/proc/self")]
    for process in found:
        with suppress(OSError):
            for children in (process / "task").glob("*/children"):
                found += [Path("/proc", child) for child in children.read_text().split()]
    return found


def _cpu_seconds(process: Path) -> float:
    """What a process and those that it waited for took; 0 where it has ended."""
    with suppress(OSError):
        times = (process / "stat").read_text().rpartition(")")[2].split()[11:15]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _peak_bytes(process: Path) -> int:
    """The most memory that a process held since its peak was forgotten; 0 where it has ended."""
    with suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE):
            return int(found[1]) * 1024
    return 0


def _judge(kind: Kind, file: str, result: Result, folder: Path, expected: np.ndarray) -> Outcome:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return Outcome("raises", f"{file}: {result.exception!r}", fault=True)
    if FAULT in result.output or "Traceback" in result.output:
        return Outcome("raises", f"{file}: {result.stderr[-600:]}", fault=True)
    if result.exit_code == 1 and (
        re.search("^error: ", result.stderr, re.MULTILINE) or '"exact": false' in result.stdout
    ):
        return Outcome("refused")
    if result.exit_code:
        return Outcome("ends", f"{file}: code {result.exit_code}, {result.output[-600:]}", fault=True)
    if not (folder / "out").exists() or np.array_equal(_result(folder), expected):
        return Outcome("same")
    return Outcome("other result", file, fault=kind.checked)
