"""Bugs that are planted in the compiler, each with what must catch it when a model is compiled."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks.campaigns import planted_model
from benchmarks.campaigns.trials import Here, Outcome
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.firmware import build as firmware_build
from tosaic.backends.firmware.program import Call, CallSequence, KernelCall, NpuCall
from tosaic.cli import main
from tosaic.compiler import compilation, layers, middle, placement, tuning
from tosaic.compiler.tuning import Tuner
from tosaic.frontend.observer import RangeObserver
from tosaic.passes.quantize import compute
from tosaic.support.mlir import constant, constant_value, dense, dense_values, ir, shape_of, walk
from tosaic.tuner.database import Record
from tosaic.tuner.measurement import Measurement

MODEL = f"{planted_model.__file__}:planted"
SMALL = f"{planted_model.__file__}:small"
PROVEN = "the firmware does not compute the integer module"
MEANT = "the integer module computes something else than the quantized model"
REFUTED = "wrong: output 0 differs at byte"
LOST = "the NPU call failed on the host"
MOVED = "Vela's command stream computes it wrongly"

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    Args:
        plant: puts it into the compiler.
        caught: what the refusal says, or the manifest of a build that does without what was wrong.
        refused: whether there must be no build.
        model: `MODEL`, of whose sound kernels records are at hand, or `SMALL`, of which no kernel has one.
    """

    name: str
    plant: Plant
    caught: str
    refused: bool = True
    target: str = "cortex-m55"
    model: str = MODEL


def _imported(change: Callable[[ir.Module], None]) -> Plant:
    """A bug in the imported module."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = middle.import_program

        def wrong(*arguments: Any) -> ir.Module:
            module = right(*arguments)
            with module.context, ir.Location.unknown():
                change(module)
            return module

        patch.setattr(middle, "import_program", wrong)

    return plant


def _passed(name: str, change: Callable[[ir.Module], None]) -> Plant:
    """A bug in what a phase leaves."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = middle.run_phase

        def wrong(module: ir.Module, phase: Any, callbacks: Sequence[Any] = ()) -> None:
            right(module, phase, callbacks)
            if phase == name:
                with module.context, ir.Location.unknown():
                    change(module)

        for user in (middle, layers):
            patch.setattr(user, "run_phase", wrong)

    return plant


def _assembled(change: Callable[[CallSequence], CallSequence]) -> Plant:
    """A bug in the program that the firmware is made of, after the proofs of its parts."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = compilation.assemble
        patch.setattr(compilation, "assemble", lambda *arguments: change(right(*arguments)))

    return plant


def _generated(change: Callable[[KernelSource], KernelSource], families: str = "") -> Plant:
    """A bug in the kernels of `families`, or of all but the generic one."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = KernelTask.generate

        def wrong(task: KernelTask, schedule: Any) -> KernelSource:
            source = right(task, schedule)
            family = schedule.variant.partition(".")[0]
            return change(source) if (family in families if families else family != "linalg") else source

        patch.setattr(KernelTask, "generate", wrong)
        patch.setattr(tuning, "LocalWorkers", _here)

    return plant


@contextmanager
def _here(*_: Any) -> Iterator[Here]:
    """A worker's generators would be right."""
    yield Here()


def _op(module: ir.Module, name: str) -> ir.Operation:
    return next(op for op in walk(module) if op.name == name)


def _swap_operands(module: ir.Module) -> None:
    op = _op(module, "tosa.sub")
    left, right = op.operands[0], op.operands[1]
    op.operands[0], op.operands[1] = right, left


def _replace_op(module: ir.Module, name: str, other: str) -> None:
    op = _op(module, name)
    with ir.InsertionPoint(op), op.location:
        wrong = ir.Operation.create(other, [op.results[0].type], list(op.operands)).result
    op.results[0].replace_all_uses_with(wrong)
    op.erase()


def _drop(module: ir.Module, name: str) -> None:
    op = _op(module, name)
    op.results[0].replace_all_uses_with(op.operands[0])
    op.erase()


def _change_constant(shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]) -> Callable[[ir.Module], None]:
    def changed(module: ir.Module) -> None:
        constants = [op for op in walk(module) if op.name == "tosa.const"]
        constant = next(op for op in constants if shape_of(op.results[0]) == shape)
        constant.attributes["values"] = dense(np.ascontiguousarray(change(dense_values(constant.attributes["values"]))))

    return changed


def _negate_channel(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values[3] = -values[3]
    return values


CallT = TypeVar("CallT", KernelCall, NpuCall)


def _with_call(program: CallSequence, index: int, call: Call) -> CallSequence:
    return replace(program, calls=(*program.calls[:index], call, *program.calls[index + 1 :]))


def _first(program: CallSequence, kind: type[CallT], condition: Callable[[CallT], bool]) -> tuple[int, CallT]:
    return next((i, call) for i, call in enumerate(program.calls) if isinstance(call, kind) and condition(call))


def _change_params(program: CallSequence) -> CallSequence:
    index, call = _first(program, KernelCall, lambda call: len(call.kernel.params) > 64)
    params = bytes(byte ^ 0x10 for byte in call.kernel.params[:64]) + call.kernel.params[64:]
    return _with_call(program, index, replace(call, kernel=replace(call.kernel, params=params)))


def _change_constants(program: CallSequence) -> CallSequence:
    index, call = _first(program, NpuCall, lambda call: True)
    return _with_call(program, index, replace(call, constants=bytes(len(call.constants))))


def _reverse_arguments(program: CallSequence) -> CallSequence:
    index, call = _first(program, KernelCall, lambda call: len(call.inputs) == 2)
    return _with_call(program, index, replace(call, inputs=call.inputs[::-1]))


def _swap_results(program: CallSequence) -> CallSequence:
    first, second = program.outputs
    return replace(program, outputs=(replace(first, buffer=second.buffer), replace(second, buffer=first.buffer)))


def _overlap(patch: pytest.MonkeyPatch) -> None:
    right = compilation.plan_memory

    def overlapping(*arguments: Any) -> Any:
        plan = right(*arguments)
        places = {name: replace(place, offset=0, memory=0) for name, place in plan.placements.items()}
        return replace(plan, placements=places)

    patch.setattr(compilation, "plan_memory", overlapping)
    patch.setattr(firmware_build, "check_plan", lambda program, plan: None)


def _region_weights(patch: pytest.MonkeyPatch) -> None:
    right = placement.compile_region

    def wrong(*arguments: Any) -> Any:
        region = right(*arguments)
        return replace(region, constants=region.constants[:-64] + bytes(64))

    patch.setattr(placement, "compile_region", wrong)


def _shrink_range(patch: pytest.MonkeyPatch) -> None:
    right = RangeObserver._range
    patch.setattr(RangeObserver, "_range", lambda self: tuple(0.8 * end for end in right(self)))


def _move_zero_point(patch: pytest.MonkeyPatch) -> None:
    right = compute.zero_point
    patch.setattr(compute, "zero_point", lambda value, element: right(value + (element == "i8"), element))


def _move_result(module: ir.Module) -> None:
    op = _op(module, "tosa.rescale")
    with ir.InsertionPoint(op), op.location:
        zero_point = constant_value(op.operands[4])
        assert zero_point is not None
        op.operands[4] = constant(zero_point + np.int8(1))


def _truncating(source: KernelSource) -> KernelSource:
    """Requantization that does not round."""
    text = source.text.replace("vqrdmulh", "vqdmulh").replace("vqrdmlash", "vqdmlash").replace("vrshl.", "vshl.")
    return replace(source, text=text)


def _other_params(source: KernelSource) -> KernelSource:
    return replace(source, params=bytes(byte ^ 0x10 for byte in source.params[:64]) + source.params[64:])


def _c_kernel(body: str) -> Callable[[KernelSource], KernelSource]:
    """A kernel in C in place of each that has one input and one output."""

    def change(source: KernelSource) -> KernelSource:
        text = (
            f"#include <stdint.h>\nvoid {source.symbol}(int8_t *in, int8_t *out, const void *p, void *s) {{ {body} }}\n"
        )
        return KernelSource(source.symbol, "c", text)

    return change


def _stale_record(patch: pytest.MonkeyPatch) -> None:
    """Records that call a wrong kernel right, of the code before it went wrong."""
    _generated(_other_params)(patch)
    right = Tuner.prove

    def stale(self: Tuner, tasks: Any) -> Any:
        proven = Measurement("ok", 1, 1, code="kernel_of_yesterday")
        self.database.append([Record(task.key, task.default(), proven) for task in tasks.values()])
        return right(self, tasks)

    patch.setattr(Tuner, "prove", stale)


_WEIGHTS = (8, 3, 3, 8)
_MIRRORED = _change_constant((8, 3, 3, 3), lambda weights: weights[:, :, ::-1])
_NEGATED = _change_constant(_WEIGHTS, _negate_channel)
_SPOILING = _c_kernel("in[0] ^= 1;")
_OUT_OF_BOUNDS = _c_kernel("out[-1] = 0;")

BUGS = (
    Bug("a channel's weights are negated at import", _imported(_NEGATED), MEANT),
    Bug("a kernel is mirrored at import", _imported(_MIRRORED), MEANT),
    Bug("the operands of a difference are swapped at import", _imported(_swap_operands), MEANT),
    Bug("a sum becomes a difference at import", _imported(lambda m: _replace_op(m, "tosa.add", "tosa.sub")), MEANT),
    Bug("a sigmoid is lost at import", _imported(lambda m: _drop(m, "tosa.sigmoid")), MEANT),
    Bug("a bias is lost at import", _imported(_change_constant((8,), np.zeros_like)), MEANT),
    Bug("zero points move by one in quantization", _move_zero_point, MEANT),
    Bug("the zero point of one convolution moves by one", _passed("quantize", _move_result), MEANT),
    Bug("ranges are observed a fifth too small", _shrink_range, "dB against the float model", False, model=SMALL),
    Bug("the operands of a difference are swapped in a pass", _passed("fuse", _swap_operands), PROVEN),
    Bug("a table is negated in a pass", _passed("layout", _change_constant((256,), np.negative)), PROVEN),
    Bug("a channel's weights are negated in a pass", _passed("cpu", _NEGATED), PROVEN),
    Bug("a kernel rounds to the other side", _generated(_truncating), REFUTED, False, model=SMALL),
    Bug("a kernel's weights change before its proof", _generated(_other_params), REFUTED, False, model=SMALL),
    Bug("a kernel's weights change after its proof", _assembled(_change_params), PROVEN),
    Bug("a kernel writes its input", _generated(_c_kernel("in[0] ^= 1;")), "wrote to its input 0", False, model=SMALL),
    Bug(
        "a kernel writes before its output",
        _generated(_c_kernel("out[-1] = 0;")),
        "beyond the ends",
        False,
        model=SMALL,
    ),
    Bug("a record is of other code", _stale_record, REFUTED, False, model=SMALL),
    Bug("a region's weights change before its proof", _region_weights, MOVED, False, "corstone-300", SMALL),
    Bug("a region's weights change after its proof", _assembled(_change_constants), LOST, True, "corstone-300", SMALL),
    Bug("the arguments of a call are reversed", _assembled(_reverse_arguments), PROVEN),
    Bug("two results are swapped", _assembled(_swap_results), PROVEN),
    Bug("tensors overlap in the memory plan", _overlap, PROVEN),
)


def compile_with(records: Path, model: str, target: str, build: Path) -> Result:
    """Compile `model` as the command line does, with the trials in a file of their own."""
    options = ("--target", target, "-o", str(build), "--records", str(records))
    return CliRunner().invoke(main, ["compile", model, *options])


@cache
def sound(target: str) -> Path:
    """A folder that goes with the process: a `build` of `MODEL`, made without bugs, and its `records.db`."""
    folder = Path(tempfile.mkdtemp(prefix="tosaic-campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    result = compile_with(folder / "records.db", MODEL, target, folder / "build")
    assert result.exit_code == 0, result.output
    return folder


def _share_first_stations(patch: pytest.MonkeyPatch) -> None:
    """Capture and quantize `MODEL` once for all bugs, which are planted behind these stations."""
    for name in ("capture", "quantize"):
        patch.setattr(middle, name, partial(_once, name, getattr(middle, name)))


def _once(name: str, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if name not in _made:
        _made[name] = compute(*arguments, **options)
    return _made[name]


_made: dict[str, Any] = {}


def trial(number: int) -> Outcome:
    """A planted bug: there is no build, or one that does without what was wrong, and the reason is said."""
    bug = BUGS[number]
    recorded = sound(bug.target) / "records.db" if bug.model == MODEL else None
    with tempfile.TemporaryDirectory(prefix="tosaic-campaign-") as name, pytest.MonkeyPatch.context() as patch:
        build, records = Path(name, "build"), Path(name, "records.db")
        if recorded:
            shutil.copy(recorded, records)
            _share_first_stations(patch)
        bug.plant(patch)
        result = compile_with(records, bug.model, bug.target, build)
        if result.exit_code != bug.refused or build.exists() == bug.refused:
            return Outcome("missed", f"{bug.name}: exit code {result.exit_code}, {result.output[-600:]}", fault=True)
        said = result.stderr if bug.refused else (build / "manifest.json").read_text()
        if bug.caught not in said:
            return Outcome("missed", f"{bug.name}: {result.stderr}", fault=True)
        if not bug.refused and CliRunner().invoke(main, ["run", str(build), "--random", "1"]).exit_code:
            return Outcome("missed", f"{bug.name}: the build differs", fault=True)
    return Outcome("caught")
