"""`file.py:function`: what `import` finds is imported, so that a module exists once; anything else is executed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from tosaic.frontend.python_file import load_function
from tosaic.support.errors import ModelError

OPS = """
import torch

@torch.library.custom_op("python_file_ops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

def op():
    return torch.ops.python_file_ops.twice.default
"""


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Write a file of a name that no other test takes, in a folder that `import` searches."""
    monkeypatch.syspath_prepend(tmp_path)
    written: list[str] = []

    def write(stem: str, text: str) -> Path:
        file = tmp_path / f"{stem}.py"
        file.write_text(text)
        os.utime(file, ns=(len(written) * 10**10, len(written) * 10**10))
        written.append(stem)
        return file

    yield write
    for stem in written:
        sys.modules.pop(stem, None)


def test_a_file_that_other_code_imports_is_one_module(named):
    file = named("python_file_ops", OPS)
    found = load_function(f"{file}:op")
    assert importlib.import_module("python_file_ops").op is found
    assert load_function(f"{file}:op") is found


def test_a_file_that_has_changed_is_imported_anew(named):
    file = named("python_file_changes", "def number(): return 1")
    assert load_function(f"{file}:number")() == 1
    file = named("python_file_changes", "def number(): return 23")
    assert load_function(f"{file}:number")() == 23


def test_a_file_that_import_does_not_find_leaves_nothing(tmp_path):
    file = tmp_path / "python_file_hidden.py"
    file.write_text("def number(): return 1")
    assert load_function(f"{file}:number")() == 1
    assert "python_file_hidden" not in sys.modules


def test_a_file_that_has_the_name_of_a_package_is_itself(tmp_path):
    file = tmp_path / "json.py"
    file.write_text("def number(): return 1")
    before = sys.modules["json"]
    assert load_function(f"{file}:number")() == 1
    assert sys.modules["json"] is before


def test_a_file_that_does_not_import_is_named(named):
    with pytest.raises(ModelError, match="does not import"):
        load_function(f"{named('python_file_broken', 'import nowhere_at_all')}:net")
