"""What docs/kernels.md tells its reader to do works as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from drop_in import describe
from family_cases import outcomes_of, task_of
from tosa_graphs import Graph

from tosaic.backends.boards import MPS3_AN547
from tosaic.backends.cores.cortex_m55 import CORE
from tosaic.backends.cortex_m.isa.isa import ISAS
from tosaic.backends.cortex_m.kernel import FAMILIES
from tosaic.backends.simulators.measure import BatchMeasure
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.support.mlir import ir
from tosaic.target_files.ready import find_target

PAGE = Path(__file__).parents[3] / "docs" / "kernels.md"


def _difference(g: Graph) -> ir.Value:
    a, b = (g.unary("cast", g.input((3, 7, 31)), "i32") for _ in range(2))
    return g.unary("abs", g.binary("sub", a, b))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's two files and its entry points, as an installed package."""
    blocks = dict(re.findall(r"```python (\w+)\n(.*?)```", PAGE.read_text(), re.S))
    (groups,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.S)
    for name, source in blocks.items():
        (tmp_path / f"difference_{name}.py").write_text(source)
    describe("difference", groups, tmp_path)
    for registry in (FAMILIES, ISAS):
        monkeypatch.setattr(registry, "_known", registry.known())
        monkeypatch.setattr(registry, "_complete", False)
    monkeypatch.syspath_prepend(tmp_path)  # not before: what is known then would hold the page's own


def test_every_schedule_of_the_page_is_exact_and_its_best_wins(installed, tmp_path):
    task = task_of(_difference)
    names = [variant.name for variant in task.space.variants]
    assert names == ["difference.vabd", "pointwise.lanes", "linalg.loops"]
    for outcome in outcomes_of({"difference": _difference}, ("difference",), tmp_path)["difference"]:
        assert outcome.exact, outcome
    schedules = list(task.space.schedules())
    measure = BatchMeasure(Qemu(CORE, MPS3_AN547), CORE, find_target("cortex-m55").trials)
    best: dict[str, int] = {}
    for schedule, measured in zip(schedules, measure(task, schedules), strict=True):
        assert measured.ok and measured.cycles is not None, measured
        best[schedule.variant] = min(best.get(schedule.variant, measured.cycles), measured.cycles)
    assert best["difference.vabd"] <= best["pointwise.lanes"] < best["linalg.loops"]
    assert "select(x, absolute)" in [str(step) for step in task.trace(task.default())]
