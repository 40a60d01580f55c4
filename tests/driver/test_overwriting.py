"""What writes a new state over the old one is tried so, and what that costs decides where it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.backends.cortex_m.kernel import Overlap
from tosaic.compiler import tuning
from tosaic.compiler.options import Tuning
from tosaic.compiler.placement import divided
from tosaic.compiler.tuning import Tuner
from tosaic.support.mlir import parse
from tosaic.target_files.ready import find_target

_STATE, _ROWS = "tensor<1x512x64xi8>", "tensor<1x1x64xi8>"


def row_written(seen: str, folder: Path, states: int = 1) -> tuple[tuple[Overlap, ...], int]:
    """What the kernel of a row's SCATTER writes over, and its cycles; the model also gives what it makes of `seen`."""
    module = parse(f"""func.func @main(%i: tensor<1x1xi32>, %r: {_ROWS}, %old: {_STATE}) -> ({_STATE}, {_STATE})
      attributes {{tosaic.states = {states} : i64}} {{
      %new = tosa.scatter %old, %i, %r : ({_STATE}, tensor<1x1xi32>, {_ROWS}) -> {_STATE}
      %not = tosa.bitwise_not {seen} : ({_STATE}) -> {_STATE}
      return %not, %new : {_STATE}, {_STATE}
    }}""")
    given = [np.full((1, 1), 3, np.int32), np.ones((1, 1, 64), np.int8), np.zeros((1, 512, 64), np.int8)]
    with Tuner(find_target("cortex-m55"), Tuning(records=folder / "records.db"), None) as tuner:
        tasks = tuner.tasks(divided(module, ""), "all", given).values()
        (task,) = (task for task in tasks if task.is_known_to("scatter"))
        tuner.try_once([task])
        record = tuner.record(task)
        assert record and record.measurement.cycles
        return task.over, record.measurement.cycles


@pytest.mark.parametrize("seen", ["%new", "%old"], ids=["as it becomes", "as it was"])
def test_a_state_that_dies_is_not_copied_in_a_trial(seen, tmp_path):
    """What reads it as it was does so before."""
    over, cycles = row_written(seen, tmp_path)
    assert over == (Overlap(0, 0),) and cycles < 400


def test_what_is_no_state_is_copied_in_a_trial(tmp_path):
    over, cycles = row_written("%new", tmp_path, states=0)
    assert not over and cycles > 512 * 64 / 8


class Keys(nn.Module):
    """A row is written to what a product reads."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(32, 32), nn.Linear(32, 32)
        self.register_buffer("past", torch.zeros(1, 512, 32))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        self.past.index_copy_(1, place, self.key(x))
        return torch.softmax(self.query(x) @ self.past.transpose(1, 2), -1)


@pytest.mark.parametrize("copied", [False, True])
def test_a_row_is_written_by_the_core_where_its_price_is_right(copied, tmp_path, monkeypatch):
    """The price of a copy of the state is the planted bug."""
    if copied:
        monkeypatch.setattr(tuning, "with_states_written_over", lambda tasks, placed: tasks)
    torch.manual_seed(0)
    target = find_target("corstone-320", constants="sram", memory_mode="Sram_Only")
    samples = [(torch.randn(1, 1, 32), torch.tensor([place])) for place in (3, 511, 0)]
    build = tosaic.compile(
        Keys().eval(), samples[0], target=target, calibration=samples, output=tmp_path / "build",
        tuning=Tuning(records=tmp_path / "records.db"),
    )  # fmt: skip
    (row,) = [op for op in build.manifest.ops if op.op == "SCATTER"]
    assert row.processor == ("npu" if copied else "cpu")
    assert build.run().exact
