"""Commands beside models and builds: passes, targets, tables of ops, NPUs, boards, records."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tosaic.cli.options import FILE, FOLDER, as_json
from tosaic.support.errors import Error
from tosaic.target_files.ready import find_target
from tosaic.terminal import console


@click.command("opt")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), required=False)
@click.option("--pass-pipeline", default="", help="E.g. `fuse-clamp{max-rank=4},layout,mlir(cse)`.")
@click.option("--list-passes", is_flag=True, help="What passes and phases there are.")
@click.option("--print-ir-before", multiple=True, metavar="PASS", help="Print the IR before PASS; `*` names all.")
@click.option("--print-ir-after", multiple=True, metavar="PASS", help="Print the IR after PASS; `*` names all.")
@click.option("--time-passes", is_flag=True, help="Print the seconds each pass took.")
@click.option("--verify-each", is_flag=True, help="Compare outputs on random inputs around every pass, to the bit.")
@click.option("--save-ir", type=FOLDER, help="Write the module after every pass.")
@click.option("-o", "--output", type=FILE, help="Where the module goes; stdout when not given.")
@as_json
@console.reports_errors
def opt(file: Path | None, as_json: bool, list_passes: bool, **arguments) -> None:
    """Run passes on FILE (MLIR text or bytecode; - reads stdin)."""
    from tosaic.compiler import optimizer

    if list_passes:
        optimizer.show_passes(as_json)
        return
    if file is None:
        raise Error("no FILE to work on", hint="tosaic opt module.mlir --pass-pipeline=PASSES")
    optimizer.optimize(file, **arguments)


@click.group("targets", cls=console.Commands, invoke_without_command=True)
@as_json
@click.pass_context
@console.reports_errors
def targets(context: click.Context, as_json: bool) -> None:
    """List the targets by vendor; show one, or check a file of your own."""
    if context.invoked_subcommand is not None:
        return
    from tosaic.reports.target_report import print_targets, targets_result
    from tosaic.target_files.ready import declarations

    console.show(list(declarations().values()), as_json, targets_result, print_targets)


@targets.command("show")
@click.argument("name", metavar="NAME|FILE")
@as_json
@console.reports_errors
def show_target(name: str, as_json: bool) -> None:
    """Show a target's core, NPUs and memories, and where its numbers come from."""
    from tosaic.reports.target_report import print_target, target_result
    from tosaic.target_files.ready import find_declaration

    console.show(find_declaration(name), as_json, target_result, print_target)


@targets.command("check")
@click.argument("file", type=FILE)
@as_json
@console.reports_errors
def check_target(file: Path, as_json: bool) -> None:
    """Tell all that is wrong with a target file, a line each."""
    from tosaic.reports.target_report import check_result, print_check
    from tosaic.target_files.declaration import examine

    checked = examine(file)
    console.show(checked, as_json, check_result, print_check)
    if checked[1]:
        raise SystemExit(1)


@targets.command("schema")
@console.reports_errors
def target_schema() -> None:
    """Print the JSON schema of target files, for editors."""
    from tosaic.target_files.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))


@click.command()
@as_json
@console.reports_errors
def doctor(as_json: bool) -> None:
    """Look at what this machine has of the packages and programs that compilations need."""
    from tosaic.reports.doctor import examine
    from tosaic.reports.tables import doctor_result, print_findings

    found = examine()
    console.show(found, as_json, doctor_result, print_findings)
    if any(one.state == "missing" for one in found):
        raise SystemExit(1)


@click.command("ops")
@as_json
@console.reports_errors
def aten_ops(as_json: bool) -> None:
    """List the ATen ops that have been lowered, and where each runs."""
    from tosaic.frontend.ops import ops
    from tosaic.reports.tables import print_ops

    console.show(ops(), as_json, lambda rows: {"ops": rows}, print_ops)


@click.group(cls=console.Commands)
def npu() -> None:
    """What the NPU takes, and what it was given."""


@npu.command()
@click.argument("build", type=FOLDER)
@as_json
@console.reports_errors
def disasm(build: Path, as_json: bool) -> None:
    """Print the command streams of a build, op by op."""
    from tosaic.api import Build
    from tosaic.reports.disassembly import disassemble_build

    listings = disassemble_build(Build.load(build))
    text = "\n\n".join(f"; {name}\n{listing}" for name, listing in listings.items())
    console.show(text, as_json, lambda _: {"regions": listings}, click.echo)


@npu.command()
@click.argument("build", type=FOLDER)
@click.argument("log")
@as_json
@console.reports_errors
def measured(build: Path, log: str, as_json: bool) -> None:
    """Hold what a board's NPU counted against Vela's estimates.

    LOG is a file with lines `npu call 0: 12345 cycles`, - for stdin, or
    serial:PORT[?baud=N].
    """
    from tosaic.api import Build
    from tosaic.reports.tables import measured_result, print_measured
    from tosaic.runs.npu_measured import measured_regions

    console.show(measured_regions(Build.load(build), log), as_json, measured_result, print_measured)


@npu.command()
@click.argument("compiled", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--against",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    multiple=True,
    help="The .tflite file before Vela; of a .pte the TOSA flatbuffer of each delegate, in order.",
)
@click.option("--inputs", "count", type=click.IntRange(min=1), default=8, show_default=True, help="Random samples.")
@click.option("--seed", type=int, default=0, show_default=True)
@as_json
@console.reports_errors
def verify(compiled: Path, against: tuple[Path, ...], count: int, seed: int, as_json: bool) -> None:
    """Compare a file that Vela has compiled with what it was made of, to the bit.

    COMPILED is a .tflite file, or a .pte file with Ethos-U delegates. Its NPU
    regions run on the emulator, ops of a .tflite that are left to the core on
    LiteRT's reference kernels, TOSA on its reference model.
    The exit status is 1 where an output differs.
    """
    from tosaic.reports.tables import print_verified, verified_result
    from tosaic.runs.npu_verified import verify_file

    found = verify_file(compiled, against, count, seed)
    console.show(found, as_json, verified_result, print_verified)
    if not found.equal:
        raise SystemExit(1)


@npu.command()
@as_json
@console.reports_errors
def ops(as_json: bool) -> None:
    """List the ops that NPUs take, and on what conditions."""
    from tosaic.backends.npus import families
    from tosaic.reports.tables import print_supported_ops

    tables = [family.supported_ops() for family in families()]
    if as_json:
        console.print_json({"ops": [row for rows in tables for row in rows]})
        return
    for rows in tables:
        print_supported_ops(rows)


@click.command()
@click.argument("scheduler", metavar="tcp://HOST:PORT|FILE.json")
@click.option("--slots", type=click.IntRange(min=1), help="Batches measured at once; default: processors.")
@console.reports_errors
def worker(scheduler: str, slots: int | None) -> None:
    """Measure trials for a Dask scheduler, until it goes: what `--measure dask://HOST:PORT` runs on."""
    from tosaic.runs.measuring import run_worker

    run_worker(scheduler, slots or os.cpu_count() or 1)


@click.command()
@click.option("--target", required=True, help="A name that `tosaic targets` lists, or a TOML file.")
@click.option("--uart", type=FILE, help="A C file that drives the board's serial port; default: the target's own.")
@click.option("--baud", type=click.IntRange(min=1), default=115_200, show_default=True, help="Bits a second.")
@click.option("-o", "--output", type=FOLDER, default=Path("build/monitor"), show_default=True)
@as_json
@console.reports_errors
def monitor(target: str, uart: Path | None, baud: int, output: Path, as_json: bool) -> None:
    """Build the monitor to flash on a board: what `--measure serial:PORT` runs trials under."""
    from tosaic.backends.bench.monitor import build_monitor

    elf = build_monitor(find_target(target), output, baud, uart)
    console.show(
        elf, as_json, lambda elf: {"elf": str(elf)}, lambda elf: console.stderr.print(f"{elf} and .bin written")
    )


@click.command()
@click.argument("file", type=FILE)
@click.option("--name", default="tokenizer", show_default=True, help="What the table is called in C.")
@click.option("-o", "--output", type=FILE, required=True, help="The file of C.")
@as_json
@console.reports_errors
def tokenizer(file: Path, name: str, output: Path, as_json: bool) -> None:
    """Write a tokenizer.json of byte pairs as C, for the tokenizer in the kit of a model that generates."""
    from tosaic.backends.firmware.kit import check_name
    from tosaic.backends.firmware.tokenizer import BytePairs

    check_name(name)
    made = BytePairs.read(file)
    output.write_text(made.as_c(name))
    found = {"file": str(output), "tokens": len(made.texts), "merges": len(made.merges)}
    console.show(
        found,
        as_json,
        dict,
        lambda found: print(f"{found['file']}: {found['tokens']} tokens, {found['merges']} merges"),
    )


@click.group(cls=console.Commands)
def records() -> None:
    """Move tuning records between machines."""


def _records(count: int) -> dict:
    return {"records": count}


@records.command("export")
@click.argument("file", type=FILE)
@click.option("--records", "database", type=FILE, help="Default: the user's own.")
@as_json
@console.reports_errors
def export_records(file: Path, database: Path | None, as_json: bool) -> None:
    """Write all records to FILE as JSON lines."""
    from tosaic.compiler.tuning import open_records

    with open_records(database) as opened:
        count = opened.export_lines(file)
    console.show(count, as_json, _records, lambda count: console.stderr.print(f"{count} records written to {file}"))


@records.command("import")
@click.argument("file", type=FILE)
@click.option("--records", "database", type=FILE, help="Default: the user's own.")
@as_json
@console.reports_errors
def import_records(file: Path, database: Path | None, as_json: bool) -> None:
    """Add the records of FILE; those that are there stay."""
    from tosaic.compiler.tuning import open_records

    with open_records(database) as opened:
        count = opened.import_lines(file)
    console.show(count, as_json, _records, lambda count: console.stderr.print(f"{count} new records from {file}"))
