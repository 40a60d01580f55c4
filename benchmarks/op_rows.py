"""The examples behind `tosaic ops` in int8 on simulated boards: `python benchmarks/op_rows.py`.

Thirty at a time share a firmware for the Cortex-M55, as parts of one module that have nothing in common; it is proven
as every firmware is, to the bit where TOSA defines that, else within its bounds. On each NPU that takes all of an
example by the rules, the emulator executes Vela's command stream for it; what is named then, the proof of `place_on`
would keep off the NPU.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import tosaic
from benchmarks.campaigns.trials import Here
from benchmarks.op_examples import EXAMPLES
from benchmarks.op_table import ACCELERATORS, placed, quantized
from benchmarks.tosa_conformance import nothing_but_values
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.backends.reference import serialize
from tosaic.console import ended_by_sigterm, quiet_libraries
from tosaic.options import Tuning
from tosaic.passes import phases_of, run_phase
from tosaic.proof import region_difference
from tosaic.support.errors import Error
from tosaic.support.functions import body_of, computing_ops, main_of, returned
from tosaic.support.mlir import bytecode, functions, ir
from tosaic.support.scratch import temporary_files
from tosaic.trial_inputs import model_samples

_TOGETHER = 30


def wrong_on_the_m55(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each example that a firmware computes otherwise, or that does not become one, and what is said of it."""
    modules = [_run(name, ("legalize", "quantize")) for name in names]
    inputs = [array for name, module in zip(names, modules, strict=True) for array in _inputs(name, module)]
    with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch, nothing_but_values():
        folder = Path(scratch)
        (folder / "examples.mlirbc").write_bytes(_joined(modules))
        try:
            tosaic.compile(
                str(folder / "examples.mlirbc"),
                calibration=[tuple(inputs)],
                tuning=Tuning(records=folder / "records.db", executor=Here()),
                output=folder / "build",
            )
        except Error as error:
            if len(names) == 1:
                yield names[0], f"{error.what}: {error.why}"
                return
            middle = len(names) // 2
            yield from wrong_on_the_m55(names[:middle])
            yield from wrong_on_the_m55(names[middle:])


def wrong_on_npus(name: str) -> Iterator[tuple[str, str]]:
    """Each accelerator that takes all of an example and computes something else, and where that begins."""
    module = _run(name, phases_of(npu=True))
    for accelerator in ACCELERATORS:
        if computing_ops(functions(module)["main"]) and placed(module, accelerator) == "yes":
            try:
                region = compile_region(serialize(module), accelerator)
            except VelaRefusal as refusal:
                yield accelerator, f"Vela refused it: {refusal.why}"
                continue
            if difference := region_difference(region, functions(module)["main"], _inputs(name, module)):
                yield accelerator, difference


def _run(name: str, phases: Sequence[str]) -> ir.Module:
    """An example in int8 behind these phases."""
    module = quantized(name)
    for phase in phases:
        run_phase(module, phase)
    return module


def _inputs(name: str, module: ir.Module) -> list[np.ndarray]:
    """Random ones; indices are the example's own."""
    _, tensors = EXAMPLES[name]
    given = [tensor.numpy() for tensor in tensors]
    given = [array.astype(np.int32) if array.dtype == np.int64 else array for array in given]
    return model_samples(module, given, 0).drawn


def _joined(modules: Sequence[ir.Module]) -> bytes:
    """Their functions side by side in one, as bytecode."""
    mains = [functions(module)["main"] for module in modules]
    ops = [op.operation for main in mains for op in list(body_of(main).operations)[:-1]]
    arguments = [argument for main in mains for argument in body_of(main).arguments]
    return bytecode(main_of(ops, arguments, [value for main in mains for value in returned(main)]))


@click.command()
@click.option("--examples", default=",".join(EXAMPLES), help="Names, separated by commas; default: all.")
def main(examples: str) -> None:
    """Name what is wrong, and count."""
    warnings.simplefilter("ignore")
    names, wrong = examples.split(","), 0
    with ended_by_sigterm(), temporary_files(), quiet_libraries():
        for first in range(0, len(names), _TOGETHER):
            for name, why in wrong_on_the_m55(names[first : first + _TOGETHER]):
                wrong += 1
                click.echo(f"{name} on cortex-m55: {why}")
        for name in names:
            for accelerator, why in wrong_on_npus(name):
                wrong += 1
                click.echo(f"{name} on {accelerator}: {why}")
    click.echo(f"{len(names)} examples, {wrong} wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
