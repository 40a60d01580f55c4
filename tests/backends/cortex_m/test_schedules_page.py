"""What docs/schedules.md tells its reader to do works as it says, and prints what it says."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board import M4
from drop_in import describe, install
from pages import assert_as_printed, executed, named_blocks
from tosa_graphs import Graph

from tosaic.api import Build
from tosaic.backends.cortex_m.isa.isa import ISAS, integer_sets_of
from tosaic.backends.cortex_m.kernel import FAMILIES
from tosaic.backends.cortex_m.program.schedule import PRIMITIVES
from tosaic.backends.cortex_m.task import KernelTask
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.compiler.schedules import Schedules
from tosaic.support.functions import functions_on
from tosaic.support.mlir import functions
from tosaic.tuner.database import Database, Environment, Record
from tosaic.tuner.tune import TuningResult, tune

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
BY_HAND, OWN = re.split(r"(?=^## From a package)", PAGE.read_text(), flags=re.M)
"""What a page's blocks know without the package that its second part is about, and that part."""
MEASURE = BatchMeasure(Qemu(M4.core, M4.board), M4.core, M4.layout)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """The names that the first part defines, the first part as it prints itself, and the folder of its builds."""
    folder, names = tmp_path_factory.mktemp("page"), dict[str, Any]()
    (folder / "model.py").write_text(named_blocks(BY_HAND, "python")["model"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        return names, executed(BY_HAND, names), folder


def test_the_steps_of_a_build_can_be_given_back(read):
    build = Build.load(read[2] / "build" / "dense")
    core = build.manifest.target.core
    tasks = {name: KernelTask.of(function, core) for name, function in functions_on("cpu", build.placed).items()}
    given = Schedules.read(build.folder / "schedules.txt").given_to(tasks)
    (kernel,) = build.manifest.kernels
    task = given[kernel.name]
    assert tuple(map(str, task.trace(task.default()))) == kernel.trace
    assert task.generate(task.default()).symbol == kernel.symbol


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's own package."""
    for name, source in named_blocks(OWN, "python").items():
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)  # of a test before
    (groups,) = re.findall(r"```toml\n(.*?)```", OWN, re.S)
    describe("page", groups, tmp_path)
    for registry in (ISAS, PRIMITIVES, FAMILIES):
        monkeypatch.setattr(registry, "_known", registry.known())
        monkeypatch.setattr(registry, "_complete", False)
    monkeypatch.syspath_prepend(tmp_path)  # not before: what is known then would hold the page's own


def test_what_is_done_by_hand_prints_what_the_page_says(read, tmp_path):
    assert_as_printed(PAGE, BY_HAND, read[1], tmp_path)


def test_what_comes_from_a_package_prints_what_the_page_says(read, installed, tmp_path):
    names, *_ = read
    assert_as_printed(PAGE, OWN, executed(OWN, names), tmp_path)
    assert "halves" in PRIMITIVES.known() and names["tried"].built.program.buffers["w"].dtype == "i16"


def _negation(shape: tuple[int, ...]) -> KernelTask:
    g = Graph()
    zero = g.const([0], "i8")
    (function,) = functions(g.module(g.op("negate", [g.input(shape, "i8"), zero, zero], shape, "i8"))).values()
    return KernelTask.of(function, M4.core)


def _searched(task: KernelTask, trials: int) -> tuple[TuningResult, list[Record]]:
    """A search in this process, which knows the page's package, and its records."""
    here = Environment("here", "here", "here", "here", "here")
    executor: Any
    with Database(":memory:", here) as database, ThreadPoolExecutor(1) as executor:
        found = tune(
            [(task, 1.0)], MEASURE, database, trials=trials, objective="instructions", executor=executor, workers=1
        )
        return found, database.records(task.key)


def test_instructions_and_a_step_from_a_package_win_a_search(installed):
    task = _negation((1, 8, 16, 16))
    found, records = _searched(task, 40)
    assert found.failed == {} and found.measured == len(records) >= 13
    best = found.best[task.key]
    assert best.schedule["isa"] == "bytes" and str(task.trace(best.schedule)[0]) == "by_words(a, out, x, bytes)"
    others = [r.measurement.instructions for r in records if dict(r.schedule.knobs).get("isa") != "bytes"]
    assert 4 * best.measurement.instructions < min(others)
    assert "qsub8" in task.generate(best.schedule).text


def test_a_tail_that_is_no_word_is_exact_too(installed):
    task = _negation((1, 3, 7, 11))
    schedule = next(each for each in task.space.schedules() if each["isa"] == "bytes")
    (measured,) = MEASURE(task, [schedule])
    assert measured.ok, measured


VENDOR = """
from tosaic.backends.cortex_m.isa.isa import ISAS, Isa


@ISAS.register
class Added(Isa):
    name, base, rows = "vendor", "dsp", ()

    def on(self, core):
        return core.name == "vendor-m4"
"""


def test_a_set_from_a_package_stands_in_the_knobs_of_the_sketches_and_is_their_guess(tmp_path, monkeypatch):
    install(ISAS, "vendor", VENDOR, tmp_path, monkeypatch)
    cores = [replace(M4.core, name=name, isa=("fp",)) for name in ("vendor-m4", "other-m4")]
    assert [integer_sets_of(core) for core in cores] == [["vendor", "scalar"], ["scalar"]]
    g, rng = Graph(), np.random.default_rng(0)
    y = g.conv2d(g.input((1, 3, 4, 16)), rng.integers(-127, 128, (8, 1, 1, 16)), rng.integers(-999, 999, 8))
    (function,) = functions(g.module(g.requantize(y, "i8", rng.uniform(0.001, 0.02, 8)))).values()
    tasks = [KernelTask.of(function, core, ("conv2d",)) for core in cores]
    assert [set(task.space.variants[0].knobs["isa"]) for task in tasks] == [{"vendor", "scalar"}, {"scalar"}]
    guesses = [task.default() for task in tasks]
    assert [guess["isa"] for guess in guesses] == ["vendor", "scalar"]
    vendor, other = (MEASURE(task, [guess])[0] for task, guess in zip(tasks, guesses, strict=True))
    assert vendor.ok and other.ok and vendor.instructions < other.instructions
