from dataclasses import dataclass
from typing import ClassVar

import pytest
from drop_in import install

from tosaic.passes import PASSES, ModulePass, parse_pipeline, print_pipeline, register
from tosaic.passes.module_pass import UpstreamPass
from tosaic.support.errors import Error, PassError


@dataclass(frozen=True)
class Example(ModulePass):
    """An example."""

    name: ClassVar[str] = "example"
    max_rank: int = 4
    factor: float = 1.0
    keep: bool = False
    label: str = "x"

    def run(self, module) -> None:
        pass


@pytest.fixture
def example(monkeypatch):
    monkeypatch.setattr(PASSES, "_known", dict(PASSES.known()))
    return register(Example)


def test_a_pipeline_is_read_and_printed(example):
    text = "example{max-rank=6 factor=0.5 keep=true label=a},fuse-clamp,mlir(canonicalize,cse),example"
    passes = parse_pipeline(text)
    assert passes[0] == Example(6, 0.5, True, "a")
    assert passes[2] == UpstreamPass("canonicalize,cse")
    assert passes[3] == Example()
    assert print_pipeline(passes) == text
    assert parse_pipeline("") == []


def test_a_phase_stands_for_its_passes():
    names = [one.name for one in parse_pipeline("layout")]
    assert names == ["sink-transposes", "transpose-into-weights", "raise-transposes", "transposes-to-reshapes", "mlir"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuse-clmp", "there is no pass `fuse-clmp`\n  try: did you mean `fuse-clamp`?"),
        ("qqqqqqqqqqqqqqq", "mlir(name)"),
        ("example{max-rnk=3}", "pass `example` has no option `max-rnk`\n  because: its options are max-rank, factor"),
        ("example{max-rank=three}", "`three` is not of type int"),
        ("example{keep=yes}", "`yes` is not of type bool"),
        ("example{max-rank}", "write options as `name{option=value}`"),
        ("fuse-clamp{max-rank=3}", "it takes no options"),
        ("fuse-clamp,,cse", "an empty item"),
        ("example{max-rank=3", "ends before `}`"),
        ("example}", "unbalanced `}`"),
        ("example{max-rank=3}x", "text follows the closing brace"),
    ],
)
def test_what_cannot_be_read_is_answered(example, text, message):
    with pytest.raises(PassError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


def test_two_passes_of_one_name_are_refused(example):
    @dataclass(frozen=True)
    class Other(ModulePass):
        """Another."""

        name: ClassVar[str] = "example"

    with pytest.raises(Error, match="there is another pass `example`"):
        register(Other)


def test_an_installed_package_adds_a_pass(tmp_path, monkeypatch):
    source = """
from test_pipeline import Example

class Added(Example):
    name = "added"

PASSES.register(Added)
"""
    install(PASSES, "their_pass", "from tosaic.passes import PASSES" + source, tmp_path, monkeypatch)
    assert PASSES.known()["added"].__module__ == "their_pass"
    assert Example.summary() == "An example."
