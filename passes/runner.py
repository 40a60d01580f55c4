"""Run passes, with one callback that serves printing, timing, dumping and verifying."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

import numpy as np

from tosaic.passes.module_pass import ModulePass
from tosaic.support.errors import Error, PassError
from tosaic.support.functions import body_of
from tosaic.support.mlir import copy_of, element_type, functions, ir, numpy_dtype, shape_of
from tosaic.support.random_arrays import random_array
from tosaic.support.scratch import lasting_folder

When: TypeAlias = Literal["before", "after"]
Callback: TypeAlias = Callable[[When, ModulePass, ir.Module], None]
Evaluate: TypeAlias = Callable[[ir.Module, Sequence[np.ndarray]], list[np.ndarray]]


def run_passes(
    module: ir.Module,
    passes: Sequence[ModulePass],
    callbacks: Sequence[Callback] = (),
    failures: Path | None = None,
) -> None:
    """Run `passes` on `module` in place; every callback sees `(when, pass, module)` before and after each.

    Args:
        failures: where the IR before a failing pass is saved; the system's temporary folder when None.

    Raises:
        PassError: a pass or a callback failed. The message ends with the command that reproduces it.
    """
    for one in passes:
        before = copy_of(module)
        try:
            with module.context, ir.Location.unknown():
                for callback in callbacks:
                    callback("before", one, module)
                one.run(module)
                _verify(module, one)
                for callback in callbacks:
                    callback("after", one, module)
        except (Error, ir.MLIRError) as error:
            raise _explain(error, one, before, failures) from error


def print_ir(stream: TextIO, before: Sequence[str] = (), after: Sequence[str] = ()) -> Callback:
    """A callback that prints the module before and after the passes named; `*` names all."""
    wanted = {"before": before, "after": after}

    def show(when: When, one: ModulePass, module: ir.Module) -> None:
        if "*" in wanted[when] or one.name in wanted[when]:
            print(f"// ---- {when} {one} ----\n{module}", file=stream)

    return show


def dump_ir(folder: Path) -> Callback:
    """A callback that writes `NN-pass.mlir` into `folder` after each pass, e.g. `06-mlir-cse.mlir`."""
    count = 0

    def dump(when: When, one: ModulePass, module: ir.Module) -> None:
        nonlocal count
        if when == "before":
            return
        folder.mkdir(parents=True, exist_ok=True)
        text = module.operation.get_asm(enable_debug_info=True)
        (folder / f"{count:02d}-{one.slug}.mlir").write_text(text)
        count += 1

    return dump


class PassTimes:
    """A callback that adds up the seconds spent in each pass, in `seconds` by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = 0.0

    def __call__(self, when: When, one: ModulePass, module: ir.Module) -> None:
        if when == "before":
            self._start = time.perf_counter()
        else:
            self.seconds[one.name] = self.seconds.get(one.name, 0.0) + time.perf_counter() - self._start


class VerifyEach:
    """A callback that compares the module's outputs on random inputs before and after each pass, to the bit.

    Args:
        evaluate: executes a module, e.g. `tosaic.backends.reference.evaluate`.
        seed: of the random inputs.
    """

    def __init__(self, evaluate: Evaluate, seed: int = 0) -> None:
        self._evaluate, self._seed = evaluate, seed
        self._inputs: list[np.ndarray] | None = None
        self._expected: list[np.ndarray] = []

    def __call__(self, when: When, one: ModulePass, module: ir.Module) -> None:
        if self._inputs is None:
            self._inputs = random_inputs(module, self._seed)
            self._expected = self._evaluate(module, self._inputs)
        if when == "after":
            difference = first_difference(self._expected, self._evaluate(module, self._inputs))
            if difference:
                raise PassError(f"`{one}` changed what the module computes", why=difference)


def random_inputs(module: ir.Module, seed: int) -> list[np.ndarray]:
    """Random arguments for `main`."""
    rng = np.random.default_rng(seed)
    arguments = body_of(functions(module)["main"]).arguments
    return [random_array(rng, shape_of(value), numpy_dtype(element_type(value))) for value in arguments]


def first_difference(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> str:
    """The first element in which two lists of outputs differ, as text; empty when they are equal to the bit.

    Subnormal floats count as 0: an implementation may flush them (TOSA 1.0, number formats), and MVE does.
    """
    if len(expected) != len(got):
        return f"{len(expected)} outputs before, {len(got)} after"
    for number, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {number} was {a.dtype}{list(a.shape)} and is {b.dtype}{list(b.shape)}"
        equal = (_flushed(a) == _flushed(b)) | ((a != a) & (b != b))
        if not equal.all():
            index = tuple(int(i) for i in np.argwhere(~equal)[0])
            count = int((~equal).sum())
            return f"output {number}{list(index)} was {a[index]} and is {b[index]} ({count} of {a.size} differ)"
    return ""


def _flushed(values: np.ndarray) -> np.ndarray:
    """With 0 in place of subnormal floats."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return np.where(np.abs(values) < np.finfo(values.dtype).smallest_normal, 0, values)


def _verify(module: ir.Module, one: ModulePass) -> None:
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise PassError(f"`{one}` left invalid IR", why=str(error)) from None


def _explain(error: Exception, one: ModulePass, before: ir.Module, failures: Path | None) -> PassError:
    folder = failures or lasting_folder()
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / f"before-{one.slug}.mlir"
    saved.write_text(before.operation.get_asm(enable_debug_info=True))
    command = f"tosaic opt {saved} --pass-pipeline='{one}'"
    if not isinstance(error, Error):
        return PassError(f"pass `{one}` failed", why=str(error), hint=command)
    hint = f"{error.hint}\n  reproduce: {command}" if error.hint else command
    return PassError(f"pass `{one}`: {error.what}", where=error.where, why=error.why, hint=hint)
