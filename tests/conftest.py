"""Tiers of tests: `fast` is what a change breaks first, `pages` the commands of documents as a reader types them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tosaic.support.garbage import collect_rarely

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tests share the cores; torch's threads wait for each other without giving theirs up."""
collect_rarely()
"""As the command line has it."""

ROOT = Path(__file__).parent
FAST = (
    "backends/cortex_m/program/test_legality.py",
    "backends/cortex_m/program/test_primitives.py",
    "backends/reference",
    "driver/test_doctor.py",
    "driver/test_target_files.py",
    "frontend/test_observer.py",
    "passes",
    "support",
    "test_docs.py",
    "test_house.py",
    "test_packaging.py",
    "tuner/test_cost_model.py",
    "tuner/test_database.py",
    "tuner/test_space.py",
    "tuner/test_transfer.py",
)
"""Files and folders that take two minutes together on two quiet cores."""
_NAME = "PYTEST_CURRENT_TEST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    fast = {path for path in {item.path for item in items} if any(path.is_relative_to(ROOT / name) for name in FAST)}
    for item in items:
        if item.path in fast:
            item.add_marker("fast")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    with _unnamed():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup():
    with _unnamed():
        return (yield)


@contextmanager
def _unnamed() -> Iterator[None]:
    """Without the variable that names the running test, as measuring processes serve one test after the other."""
    name = os.environ.pop(_NAME, None)
    try:
        yield
    finally:
        if name is not None:
            os.environ[_NAME] = name
