"""TOSA's conformance tests on a simulated board: `python benchmarks/tosa_conformance.py FOLDER`.

The generator of tosa-tools makes them (positive tests of TOSA 1.0: pro_int, int16 and int4), once for a folder. Each
test's flatbuffer is read as `tosaic compile FILE.tosa` reads it. Tests of a few kilobytes share a firmware, as parts
of one module that have nothing in common, since a compilation costs more than what it compiles; where one is not
exact, halves of it are compiled, down to a single test. The firmware is given the tests' own inputs, and its outputs
must be those of `tosa_reference_model` to the bit. Kernels are the generators' guesses: a trial before would replace
one that is wrong by another.

The outcome of each test is a line of a file for each target, and what stands there is not run again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial, partialmethod
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import tosaic
from benchmarks.campaigns.trials import Here, Outcome, run_all
from tosaic.backends.firmware import placing
from tosaic.backends.simulators.run import run_firmware
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.compiler.options import Tuning
from tosaic.compiler.tuning import Tuner
from tosaic.frontend import read_tosa
from tosaic.passes import first_difference
from tosaic.support.errors import ModelError, OutOfMemoryError, PassError
from tosaic.support.functions import body_of, main_of, returned
from tosaic.support.mlir import bytecode, functions, ir
from tosaic.support.quantization import signed
from tosaic.support.scratch import temporary_files
from tosaic.support.tosa_tools import tosa_tool
from tosaic.terminal.console import ended_by_sigterm, quiet_libraries

_EXTENSIONS = ("tosa-ext-int16", "tosa-ext-int4")
_MOST_TESTS, _MOST_BYTES = 40, 1 << 22
"""Of what shares a firmware."""


@dataclass(frozen=True)
class Case:
    """A folder that the generator made: `desc.json`, the flatbuffer and its inputs."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def op(self) -> str:
        """Lower case, e.g. `conv2d`."""
        return self._description["test_details"]["operator"].lower()

    @property
    def kind(self) -> str:
        """The op and the types and ranks that it is tested on, as far as the name says."""
        types = "_".join(re.findall(r"_(b|i\d+(?:xi\d+)*|f\w+)(?=_|$)", self.name))
        shape = re.search(r"_(\d+(?:x\d+)*)(?=_|$)", self.name)
        return f"{self.op} {types} {shape[1].count('x') + 1 if shape else 0}"

    @property
    def inputs(self) -> list[np.ndarray]:
        return [np.load(self.folder / file) for file in self._description["ifm_file"]]

    @property
    def expected(self) -> list[np.ndarray]:
        """What the reference model makes of the inputs; it is executed once for a folder.

        Raises:
            CalledProcessError: it refuses the test.
        """
        files = [self.folder / file for file in self._description["ofm_file"]]
        if not all(file.exists() for file in files):
            model, test = tosa_tool("tosa_reference_model"), self.folder / "desc.json"
            subprocess.run([model, f"--test_desc={test}"], check=True, capture_output=True)
        return [np.load(file) for file in files]

    @property
    def bytes(self) -> int:
        """Of its file and its inputs."""
        return sum((self.folder / file).stat().st_size for file in ["test.tosa", *self._description["ifm_file"]])

    @cached_property
    def _description(self) -> dict:
        return json.loads((self.folder / "desc.json").read_text())


def generate(folder: Path, ops: Sequence[str] = ()) -> None:
    """Make the tests of `ops`, of all where none is named, in `folder`: 2,882 of all.

    Raises:
        CalledProcessError: the generator fails.
    """
    names = ["--operators", *ops] if ops else []
    tools = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="tosaic-") as scratch:
        subprocess.run(
            [
                tools / "tosa_verif_conformance_generator", *names,
                "--profile", "tosa-pro-int", "--extension", *_EXTENSIONS, "--test-type", "positive",
                "--tosa-version", "1.0.2", "--output-type", "binary", "--seed", "42", "-j", "1",
                "--ref-model-path", tosa_tool("tosa_reference_model"),
                "--build-directory", scratch, "--output-directory", folder,
            ],
            check=True, stdout=subprocess.DEVNULL,
            env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},  # it runs its other parts by name
        )  # fmt: skip


def cases_in(folder: Path) -> list[Case]:
    """The tests below a folder, in the order of their names."""
    return sorted((Case(file.parent) for file in folder.rglob("desc.json")), key=lambda test: test.name)


def trial(tests: Sequence[Case], target: str = "cortex-m55") -> Outcome:
    """Compile tests into one firmware and run it: `exact` where each of them is."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tosaic-conformance-") as name, quiet_libraries(), nothing_but_values():
        folder = Path(name)
        try:
            files = [read_tosa(test.folder / "test.tosa") for test in tests]
            inputs = _as_compiled([test.inputs for test in tests], [file.bytes[0] for file in files])
            expected = _as_compiled([test.expected for test in tests], [file.bytes[1] for file in files])
            (folder / "tests.mlirbc").write_bytes(joined([file.module for file in files]))
            build = tosaic.compile(
                str(folder / "tests.mlirbc"),
                target=target,
                calibration=[tuple(inputs)],
                prove=False,
                tuning=Tuning(records=folder / "records.db", executor=Here()),
                output=folder / "build",
            )
            sample, runner = build.quantize_inputs(inputs), Qemu.of(build.manifest.target)
            outputs = run_firmware(build.elf, build.manifest.firmware, [sample], runner).outputs[0]
        except subprocess.CalledProcessError as error:
            return Outcome("no reference", error.stderr.decode().strip()[-400:])
        except OutOfMemoryError as error:
            return Outcome("too large", error.what)
        except (ModelError, PassError) as error:
            return Outcome("refused", f"{error.what}: {error.why}" if error.why else error.what)
        except tosaic.Error as error:
            return Outcome("fails", f"{error.what}: {error.why[-400:]}", fault=True)
        except Exception as error:
            return Outcome("raises", f"{type(error).__name__}: {error}", fault=True)
    difference = first_difference(expected, list(outputs))
    return Outcome("differs", difference, fault=True) if difference else Outcome("exact")


def trial_as_a_user(tests: Sequence[Case], target: str = "cortex-m55") -> Outcome:
    """Compile one test as `tosaic compile` does, with proofs and inputs of its own, and run it on the test's."""
    (test,) = tests
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tosaic-conformance-") as name, quiet_libraries():
        folder = Path(name)
        try:
            tuning = Tuning(records=folder / "records.db", executor=Here())
            source = str(test.folder / "test.tosa")
            build = tosaic.compile(source, target=target, tuning=tuning, output=folder / "build")
            given = read_tosa(test.folder / "test.tosa").bytes
            inputs, expected = _as_compiled([test.inputs], given[:1]), _as_compiled([test.expected], given[1:])
            sample, runner = build.quantize_inputs(inputs), Qemu.of(build.manifest.target)
            outputs = run_firmware(build.elf, build.manifest.firmware, [sample], runner).outputs[0]
        except OutOfMemoryError as error:
            return Outcome("too large", error.what)
        except tosaic.Error as error:
            return Outcome("refused", f"{error.what}: {error.why}", fault=True)
        except Exception as error:
            return Outcome("raises", f"{type(error).__name__}: {error}", fault=True)
    difference = first_difference(expected, list(outputs))
    return Outcome("differs", difference, fault=True) if difference else Outcome("exact")


@contextlib.contextmanager
def nothing_but_values() -> Iterator[None]:
    """Leave out what shows no wrong value: trials before, smaller arenas than first fit's, counted instructions."""
    with (
        patch.object(Tuner, "prove", lambda self, tasks: {}),
        patch.object(placing, "_CLIMB_BUDGET", 0),
        patch.object(Qemu, "run", partialmethod(Qemu.run, count=False)),
    ):
        yield


def _as_compiled(arrays: Sequence[Sequence[np.ndarray]], unsigned: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The arrays of one file after another, as `read_tosa` makes them: u8 is i8, 128 less."""
    return [
        signed(array.view(np.uint8)) if number in some else array
        for each, some in zip(arrays, unsigned, strict=True)
        for number, array in enumerate(each)
    ]


def joined(modules: Sequence[ir.Module]) -> bytes:
    """Their functions side by side in one, as bytecode."""
    mains = [functions(module)["main"] for module in modules]
    ops = [op.operation for main in mains for op in list(body_of(main).operations)[:-1]]
    arguments = [argument for main in mains for argument in body_of(main).arguments]
    return bytecode(main_of(ops, arguments, [value for main in mains for value in returned(main)]))


def outcomes(tests: Iterable[Case], target: str, *, as_a_user: bool = False) -> Iterator[tuple[Case, Outcome]]:
    """What becomes of each test; alone and with all proofs, as a user's, or many in a firmware."""
    if as_a_user:
        alone = partial(trial_as_a_user, target=target)
        yield from ((test, outcome) for (test,), outcome in run_all(alone, ((test,) for test in tests)))
        return
    waiting = list(_batches(tests))

    def next_ones() -> Iterator[tuple[Case, ...]]:
        while waiting:
            yield waiting.pop(0)

    for batch, outcome in run_all(partial(trial, target=target), next_ones()):
        if len(batch) == 1 or outcome.kind == "exact":
            yield from ((test, outcome) for test in batch)
        else:
            half = len(batch) // 2
            waiting[:0] = [batch[:half], batch[half:]]


def _batches(tests: Iterable[Case]) -> Iterator[tuple[Case, ...]]:
    batch: list[Case] = []
    for test in tests:
        if batch and (len(batch) == _MOST_TESTS or sum(one.bytes for one in [*batch, test]) > _MOST_BYTES):
            yield tuple(batch)
            batch = []
        batch.append(test)
    if batch:
        yield tuple(batch)


def chosen(tests: Sequence[Case], op: str, sample: int | None, seed: int) -> list[Case]:
    """Tests of ops that `op` matches, at most `sample` of each op, types and rank."""
    matching = [test for test in tests if re.fullmatch(op, test.op)]
    if sample is None:
        return matching
    rng, picked = random.Random(seed), list[Case]()
    for _, some in itertools.groupby(sorted(matching, key=lambda test: test.kind), lambda test: test.kind):
        group = list(some)
        picked += rng.sample(group, min(sample, len(group)))
    return picked


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--op", default=".*", help="A regular expression of TOSA's ops in lower case.")
@click.option("--sample", type=int, help="So many tests of each op, types and rank; all where not given.")
@click.option("--seed", default=0, show_default=True, help="Of the sample.")
@click.option("--as-a-user", is_flag=True, help="Each alone, as `tosaic compile` takes it, with proofs.")
@click.option("--target", default="cortex-m55", show_default=True, help="A target without an NPU.")
@click.option("--part", default=1.0, show_default=True, help="What part of these is run.")
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="Default: results-TARGET.jsonl there.")
def main(
    folder: Path,
    op: str,
    sample: int | None,
    seed: int,
    as_a_user: bool,
    target: str,
    part: float,
    results: Path | None,
) -> None:
    """Generate the tests in FOLDER where it holds none, run them, and print a row of counts for each op."""
    file = results or folder / f"results{'-as-a-user' if as_a_user else ''}-{target}.jsonl"
    if not (tests := cases_in(folder)):
        generate(folder)
        tests = cases_in(folder)
    asked = chosen(tests, op, sample, seed)
    asked = sorted(random.Random(seed).sample(asked, round(part * len(asked))), key=lambda test: test.name)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {row["test"]: row for row in rows}
    with ended_by_sigterm(), temporary_files(), file.open("a") as out:
        for test, outcome in outcomes([one for one in asked if one.name not in done], target, as_a_user=as_a_user):
            done[test.name] = {"test": test.name, "op": test.op, **asdict(outcome)}
            print(json.dumps(done[test.name]), file=out, flush=True)
            if outcome.kind != "exact":
                click.echo(f"{test.name}: {outcome.kind}: {outcome.detail}", err=True)
    _print_counts([done[test.name] for test in asked])


def _print_counts(rows: Sequence[dict]) -> None:
    kinds = [kind for kind, _ in Counter(row["kind"] for row in rows).most_common()]
    click.echo(f"| op | tests | {' | '.join(kinds)} |\n|---|---|{'---|' * len(kinds)}")
    for op in [*sorted({row["op"] for row in rows}), "all"]:
        some = [row for row in rows if op in (row["op"], "all")]
        counts = Counter(row["kind"] for row in some)
        click.echo(f"| {op} | {len(some)} | {' | '.join(str(counts[kind]) for kind in kinds)} |")
    if any(row["fault"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
