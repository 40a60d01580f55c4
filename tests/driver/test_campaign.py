"""A slice of each long campaign; `benchmarks/campaign.py` runs them for hours."""

from __future__ import annotations

import pytest

from benchmarks.campaigns import files, kills, models


@pytest.mark.parametrize("seed", range(9))
def test_a_random_module(seed):
    outcome = models.trial(seed)
    assert not outcome.fault, outcome


def test_damaged_files():
    outcomes = [files.trial(number) for number in range(3 * len(files.KINDS))]
    assert not [outcome for outcome in outcomes if outcome.fault]
    assert len({outcome.kind for outcome in outcomes}) > 1


def test_a_tuning_run_that_is_killed():
    outcome = kills.kill_trial(0, kills=1)
    assert outcome.kind == "whole", outcome
