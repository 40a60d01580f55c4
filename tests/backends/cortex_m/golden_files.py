"""Golden C: where a change of it is meant, delete the file and run its test twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tosaic.backends.cortex_m.kernel import KernelSource

_FOLDER = Path(__file__).with_name("golden")


def assert_golden(name: str, source: KernelSource, begins: str) -> None:
    """The C of a kernel from the text `begins` on is what the golden file `name` holds; a missing one is written."""
    assert_golden_text(name, source.text[source.text.index(begins) :].replace(source.symbol, "kernel"))


def assert_golden_text(name: str, body: str) -> None:
    """A text is what the golden file `name` holds; a missing one is written."""
    path = _FOLDER / name
    if not path.exists():
        path.write_text(body)
        pytest.fail(f"{name} was missing and is written now")
    assert body == path.read_text()
