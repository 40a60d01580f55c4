"""A fixed sample of PyTorch's op database; `benchmarks/op_db.py` runs all of it."""

from __future__ import annotations

import pytest

pytest.importorskip("expecttest", reason="torch.testing's op database imports it")

from benchmarks.op_db import run

OPS = ("acos", "gather", "nn.functional.conv2d", "sort")


def test_samples_lower_right():
    found = dict(run(OPS, count=1, workers=2))
    assert set(found) == set(OPS) and all(found.values())
    assert [(name, one) for name, outcomes in found.items() for one in outcomes if one.real or one.int8] == []


def test_a_process_that_dies_is_an_outcome(monkeypatch):
    monkeypatch.setattr("benchmarks.op_db.trial", lambda *_: __import__("os").abort())
    ((name, (outcome,)),) = run(["acos"], count=1, workers=1)
    assert (name, outcome.real) == ("acos", "the process ended with -6")
