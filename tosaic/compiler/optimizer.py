"""`tosaic opt`: passes on a module that a person wrote or saved."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.table import Table

from tosaic.backends import reference
from tosaic.compiler.verdicts import know_targets
from tosaic.passes import (
    PASSES,
    PHASES,
    Callback,
    PassTimes,
    VerifyEach,
    dump_ir,
    parse_pipeline,
    print_ir,
    run_passes,
)
from tosaic.support.errors import Error
from tosaic.support.mlir import ir
from tosaic.support.mlir_file import read_mlir
from tosaic.terminal import console


def optimize(
    file: Path,
    *,
    pass_pipeline: str = "",
    print_ir_before: tuple[str, ...] = (),
    print_ir_after: tuple[str, ...] = (),
    time_passes: bool = False,
    verify_each: bool = False,
    save_ir: Path | None = None,
    output: Path | None = None,
) -> None:
    """Run a textual pipeline on `file` and write the module; printed IR and timings go to stderr.

    Raises:
        Error: the file does not read, or a pass failed.
    """
    know_targets()
    passes = parse_pipeline(pass_pipeline)
    module = read_module(file)
    timing = PassTimes()
    callbacks: list[Callback] = [print_ir(sys.stderr, print_ir_before, print_ir_after)]
    if time_passes:
        callbacks.append(timing)
    if verify_each:
        callbacks.append(VerifyEach(reference.evaluate))
    if save_ir:
        callbacks.append(dump_ir(save_ir))
    run_passes(module, passes, callbacks)
    text = module.operation.get_asm(enable_debug_info=True)
    if output:
        _write(output, text)
    else:
        click.echo(text)
    if time_passes:
        _show_times(timing)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise Error(f"cannot write `{file}`", why=error.strerror or str(error)) from None


def read_module(file: Path) -> ir.Module:
    """The module in a file of MLIR text or bytecode; `-` is stdin.

    Raises:
        Error: there is no such file, or it is not valid MLIR.
    """
    try:
        return read_mlir(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
    except OSError as error:
        raise Error(f"cannot read `{file}`", why=error.strerror or str(error)) from None


def show_passes(as_json: bool) -> None:
    """Print every phase and pass with its options and first line of documentation."""
    if as_json:
        phases = [{"name": phase.name, "passes": [str(one) for one in phase.passes]} for phase in PHASES.values()]
        passes = [{"name": name, "summary": cls.summary()} for name, cls in PASSES.known().items()]
        console.print_json({"phases": phases, "passes": passes})
        return
    listed = {
        "Phases": [(phase.name, ", ".join(str(one) for one in phase.passes)) for phase in PHASES.values()],
        "Passes": [(name, cls.summary()) for name, cls in PASSES.known().items()],
    }
    for title, rows in listed.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        for row in rows:
            table.add_row(*row)
        console.stdout.print(table)


def _show_times(timing: PassTimes) -> None:
    total = sum(timing.seconds.values())
    for name, seconds in sorted(timing.seconds.items(), key=lambda item: -item[1]):
        console.stderr.print(f"{seconds * 1e3:10.2f} ms {seconds / total:6.1%}  {name}", highlight=False)
