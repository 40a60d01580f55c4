"""A few random graphs per generation; `fuzz.py` runs as many as wanted."""

import pytest
from fuzz import run


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_random_graphs_are_exact(accelerator: str):
    outcomes = [run(seed, accelerator) for seed in range(9_000_000, 9_000_030)]
    wrong = [(o.detail, graph) for o, graph in outcomes if o.kind in ("different", "emulator")]
    assert not wrong
    assert sum(o.kind == "exact" for o, _ in outcomes) >= 20


def test_a_cascade_that_vela_overwrites_is_exact_as_tosaic_compiles_it():
    outcome, graph = run(501_000_628, "ethos-u55-128")
    assert outcome.kind == "cascade", graph
    assert outcome.detail.startswith("MAXIMUM in place, before a window")
