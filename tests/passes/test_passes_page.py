"""The pass that docs/passes.md writes is a pass, and its test there passes."""

import re
import sys
from pathlib import Path
from types import ModuleType

import test_ir

from tosaic.passes import PASSES

PAGE = Path(__file__).parents[2] / "docs" / "passes.md"


def block(language: str, holding: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (chosen,) = [text for text in found if holding in text]
    return chosen


def test_the_example(monkeypatch, tmp_path):
    monkeypatch.setattr(PASSES, "_known", dict(PASSES.known()))
    example = ModuleType("cancel_reverses")
    monkeypatch.setitem(sys.modules, example.__name__, example)
    exec(block("python", "CancelReverses"), vars(example))
    assert PASSES.known()["cancel-reverses"] is example.CancelReverses
    source = tmp_path / "cancel-reverses.mlir"
    source.write_text(block("mlir", "PIPELINE: cancel-reverses"))
    test_ir.test_ir(source, tmp_path)
