"""The node tests of the package `onnx` through the front half: `python benchmarks/onnx_nodes.py FOLDER`.

Tests whose inputs or outputs hold float32 are written to FOLDER once: models of one op, or of what ONNX defines an op
by, with inputs and the outputs expected. Each is captured as `tosaic compile FILE.onnx` captures it and must compute
the outputs expected; then it goes through the front half in float and in int8, as samples of `op_db.py` do. Many tests
have inputs that decide on shapes; what is compiled must know these, so that such an input is made an initializer, and
the test's line of the results names it.

The outcome of each test is a line of a file, and what stands there is not run again.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

import tosaic
from benchmarks.campaigns.lowering import difference, failure, lowering
from benchmarks.campaigns.trials import Here, Outcome, run_all
from tosaic.compiler.options import Tuning
from tosaic.frontend import Capture, capture, run_float
from tosaic.frontend.layouts import with_axes
from tosaic.frontend.onnx_scope import InputNotConstantError, tensor_of
from tosaic.frontend.precision import widened_tensor
from tosaic.frontend.unsigned import as_signed
from tosaic.support.scratch import temporary_files
from tosaic.terminal.console import ended_by_sigterm, quiet_libraries

onnx: Any = import_module("onnx")

_OPSET = 17


@dataclass(frozen=True)
class NodeOutcome(Outcome):
    """`kind` is what became of it in float.

    Args:
        int8: what became of it in int8.
        floats: the f32 ops that are left in the int8 module.
        board: what became of its firmware, where it was asked for.
        fixed: the inputs that were made initializers.
    """

    int8: str = ""
    int8_detail: str = ""
    floats: int = 0
    fixed: tuple[str, ...] = ()
    board: str = ""
    board_detail: str = ""


def generate(folder: Path, modules: Sequence[str] = ()) -> None:
    """Write the tests: a file `NAME.onnx` and an archive `NAME.npz` of its inputs and outputs for each.

    Args:
        modules: of the package's tests, those of some ops; all where none is given.
    """
    node = import_module("onnx.backend.test.case.node")
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of examples that divide by 0
        for name in modules:
            import_module(f"{node.__name__}.{name}")
        tests = node._NodeTestCases if modules else node.collect_testcases(None)
    for test in tests:
        ports = [*test.model.graph.input, *test.model.graph.output]
        if onnx.TensorProto.FLOAT in {value.type.tensor_type.elem_type for value in ports}:
            inputs, outputs = test.data_sets[0]
            np.savez(folder / f"{test.name}.npz", **_named(test.model, inputs, outputs))
            onnx.save(test.model, folder / f"{test.name}.onnx")


def _named(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """The tensors among the values, by `in:NAME` and `out:NAME`."""
    pairs = [("in", *pair) for pair in zip(model.graph.input, inputs, strict=True)]
    pairs += [("out", *pair) for pair in zip(model.graph.output, outputs, strict=True)]
    return {
        f"{kind}:{value.name}": _storable(array)
        for kind, value, array in pairs
        if value.type.HasField("tensor_type") and array is not None
    }


def _storable(value: Any) -> np.ndarray:
    """A value as an array: its bytes where numpy does not know its type."""
    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}")


def read(file: Path) -> tuple[Any, dict[str, np.ndarray], list[np.ndarray]]:
    """A test's model, inputs by name, and outputs expected."""
    model = onnx.load(file)
    types = {one.name: one.type.tensor_type.elem_type for one in [*model.graph.input, *model.graph.output]}
    inputs, outputs = dict[str, np.ndarray](), list[np.ndarray]()
    with np.load(file.with_suffix(".npz"), allow_pickle=True) as arrays:
        for label, array in arrays.items():
            kind, _, name = label.partition(":")
            if array.dtype.kind == "V":
                array = array.view(onnx.helper.tensor_dtype_to_np_dtype(types[name]))
            if kind == "in":
                inputs[name] = array
            else:
                outputs.append(array)
    return model, inputs, outputs


def trial_on_board(file: Path) -> NodeOutcome:
    """What becomes of one test, and of its int8 firmware for the simulated Cortex-M55: `ok` where it is exact."""
    outcome = trial(file)
    if outcome.int8 != "ok":
        return outcome
    model, given, _ = read(file)
    made = _with_initializers(model, {name: given[name] for name in outcome.fixed})
    inputs = {name: _finite(tensor_of(x)) for name, x in given.items() if name not in outcome.fixed}
    with tempfile.TemporaryDirectory(prefix="tosaic-nodes-") as name, quiet_libraries():
        folder = Path(name)
        onnx.save(made, folder / "net.onnx")
        tuning = Tuning(records=folder / "records.db", executor=Here())
        try:
            tosaic.compile(str(folder / "net.onnx"), inputs, tuning=tuning, output=folder / "build")
        except Exception as error:
            found = failure(error)
            return replace(outcome, board=found.kind, board_detail=found.detail, fault=outcome.fault or found.fault)
    return replace(outcome, board="ok")


def trial(file: Path) -> NodeOutcome:
    """What becomes of one test."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    fixed: tuple[str, ...] = ()
    try:
        model, given, wanted = read(file)
        fixed, captured = _captured(file, model, given)
        rest = [widened_tensor(tensor_of(given[name])) for name in given if name not in fixed]
        stored = [i for i, (x, one) in enumerate(zip(rest, captured.inputs, strict=True)) if x.dtype != one.dtype]
        exact = as_signed(with_axes(rest), stored)
        right = difference(run_float(captured, exact), wanted)
        if right.kind != "ok":
            detail = right.detail.replace("wrong", "imported wrong")
            return NodeOutcome("wrong", detail, True, "wrong", detail, fixed=fixed)
    except Exception as error:
        found = failure(error)
        return NodeOutcome(**asdict(found), int8=found.kind, int8_detail=found.detail, fixed=fixed)
    found = lowering(captured, wanted, exact)
    fault = found.real.fault or found.int8.fault
    return NodeOutcome(
        found.real.kind, found.real.detail, fault, found.int8.kind, found.int8.detail, found.floats, fixed
    )


def _captured(file: Path, model: Any, given: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], Capture]:
    """A test captured, and the inputs that had to be initializers."""
    fixed = {name: array for name, array in given.items() if not array.size}
    while True:
        changed = file.with_suffix(".fixed.onnx")
        onnx.save(_with_initializers(model, fixed), changed)
        try:
            rest = {name: _finite(tensor_of(x)) for name, x in given.items() if name not in fixed}
            return tuple(fixed), capture(str(changed), inputs=rest)
        except InputNotConstantError as error:
            more = [error.name] if error.name in given else [n for n, x in given.items() if x.dtype != np.float32]
            if not set(more) - set(fixed):
                raise
            fixed.update({name: given[name] for name in more})
        finally:
            changed.unlink()


def _finite(x: Tensor) -> Tensor:
    """What a model is calibrated with: a few tests hold NaN and infinity."""
    return torch.nan_to_num(x, posinf=1.0, neginf=-1.0) if x.is_floating_point() else x


def _with_initializers(model: Any, values: Mapping[str, np.ndarray]) -> Any:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.input[:]
    changed.graph.input.extend(value for value in model.graph.input if value.name not in values)
    changed.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in values.items())
    return changed


def opset_of(file: Path) -> int:
    """The opset of ONNX's own ops that a test is written in; 0 where it has none."""
    opsets = onnx.load(file, load_external_data=False).opset_import
    return max((one.version for one in opsets if one.domain in ("", "ai.onnx")), default=0)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--opset", default=_OPSET, show_default=True, help="Tests of this opset and newer ones.")
@click.option("--test", default="*", help="A pattern of names of tests.")
@click.option("--step", default=1, show_default=True, help="Each so many-th test alone.")
@click.option("--board", is_flag=True, help="Compile what lowers, and run it on the simulated Cortex-M55.")
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="Default: FOLDER/results.jsonl.")
def main(folder: Path, opset: int, test: str, step: int, board: bool, results: Path | None) -> None:
    """Write the tests to FOLDER where it holds none, run them, and print a row of counts."""
    if not any(folder.glob("*.npz")):
        generate(folder)
    file = results or folder / "results.jsonl"
    files = sorted(one.with_suffix(".onnx") for one in folder.glob(f"{test}.npz"))
    asked = [one for one in files if opset_of(one) >= opset][::step]
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {row["test"]: row for row in rows}
    with ended_by_sigterm(), temporary_files(), file.open("a") as out:
        for path, outcome in run_all(
            trial_on_board if board else trial, (one for one in asked if one.stem not in done)
        ):
            whole = outcome if isinstance(outcome, NodeOutcome) else NodeOutcome(**asdict(outcome), int8=outcome.kind)
            done[path.stem] = {"test": path.stem, **asdict(replace(whole, fixed=tuple(whole.fixed)))}
            print(json.dumps(done[path.stem]), file=out, flush=True)
            if whole.kind != "ok" or whole.int8 != "ok":
                click.echo(f"{path.stem}: {whole.kind}, {whole.int8}: {whole.detail or whole.int8_detail}", err=True)
    _print_counts([done[one.stem] for one in asked])


def _print_counts(rows: Sequence[dict]) -> None:
    for column, name in (("kind", "float"), ("int8", "int8"), ("board", "Cortex-M55")):
        counts = Counter(row[column] for row in rows if row[column])
        if not counts:
            continue
        shares = ", ".join(f"{kind} {count} ({count / counts.total():.1%})" for kind, count in counts.most_common())
        click.echo(f"{name}: {counts.total()} tests: {shares}")
    click.echo(f"with f32 ops in int8: {sum(bool(row['floats']) for row in rows)}")
    if any(row["fault"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
