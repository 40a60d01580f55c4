"""A recurrent net on the simulated board: one kernel for all of its steps, its weights there once."""

import pytest
from conftest import NETS


@pytest.fixture(scope="module")
def spotter(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spotter") / "build"
    return folder, succeed("compile", f"{NETS}:spotter", "-o", folder)


def test_all_steps_are_one_kernel(spotter):
    _, report = spotter
    ops = [op["op"] for op in report["ops"]]
    assert ops.count("WHILE_LOOP") == 1 and "GATHER" not in ops
    loop = next(op for op in report["ops"] if op["op"] == "WHILE_LOOP")
    assert loop["shape"] == [1, 49, 64] and loop["where"].endswith("tosaic.gru.default")
    assert len({op["function"] for op in report["ops"]}) <= 3


def test_its_weights_are_there_once(spotter):
    _, report = spotter
    weights = 3 * 64 * (10 + 64) + 64 * 12 + 4 * (2 * 3 * 64 + 12)
    assert weights < report["flash_bytes"] < 1.4 * weights


def test_it_runs_exact_at_less_than_half_an_instruction_a_product(spotter, succeed):
    folder, _ = spotter
    ran = succeed("run", folder)
    assert ran["exact"]
    assert ran["instructions"] < 0.5 * 49 * 3 * 64 * (10 + 64)
