"""The examples behind `tosaic ops` in int8 on a simulated core: `python benchmarks/op_rows.py --target cortex-m4`.

Thirty at a time share a firmware, as parts of one module that have nothing in common; it is proven as every firmware
is, to the bit where TOSA defines that, else within its bounds. What NPUs make of them is proven where the table is
written.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

import tosaic
from benchmarks.campaigns.trials import Here
from benchmarks.op_examples import EXAMPLES
from benchmarks.op_table import inputs_of, lowered
from benchmarks.tosa_conformance import joined, nothing_but_values
from tosaic.compiler.options import Tuning
from tosaic.support.errors import Error
from tosaic.support.scratch import temporary_files
from tosaic.terminal.console import ended_by_sigterm, quiet_libraries

_TOGETHER = 30


def faults(names: Sequence[str], target: str) -> Iterator[tuple[str, str]]:
    """Each example that a firmware computes otherwise, or that does not become one, and what is said of it."""
    modules = [lowered(name, ("legalize", "quantize")) for name in names]
    inputs = [array for name, module in zip(names, modules, strict=True) for array in inputs_of(name, module)]
    with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch, nothing_but_values():
        folder = Path(scratch)
        (folder / "examples.mlirbc").write_bytes(joined(modules))
        try:
            tosaic.compile(
                str(folder / "examples.mlirbc"),
                target=target,
                calibration=[tuple(inputs)],
                tuning=Tuning(records=folder / "records.db", executor=Here()),
                output=folder / "build",
            )
        except Error as error:
            if len(names) == 1:
                yield names[0], f"{error.what}: {error.why}"
                return
            middle = len(names) // 2
            yield from faults(names[:middle], target)
            yield from faults(names[middle:], target)


@click.command()
@click.option("--examples", default=",".join(EXAMPLES), help="Names, separated by commas; default: all.")
@click.option("--target", default="cortex-m55", show_default=True, help="A target without an NPU.")
def main(examples: str, target: str) -> None:
    """Name what is wrong, and count."""
    warnings.simplefilter("ignore")
    names, wrong = examples.split(","), 0
    with ended_by_sigterm(), temporary_files(), quiet_libraries():
        for first in range(0, len(names), _TOGETHER):
            for name, why in faults(names[first : first + _TOGETHER], target):
                wrong += 1
                click.echo(f"{name}: {why}")
    click.echo(f"{len(names)} examples, {wrong} wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
