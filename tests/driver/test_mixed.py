"""What a user excludes from quantization runs in f32 on the CPU, beside int8 and int16, exactly."""

from pathlib import Path

import pytest

from tosaic.api import Build
from tosaic.support.mlir import element_type, functions, walk

MODEL = f"{Path(__file__).parent / 'models' / 'mixed.py'}:mixed"
EXCLUDED = ("--exclude", "softmax", "--exclude", "second", "--exclude", "sigmoid")


def computed(build: Build) -> dict[str, set[str]]:
    """The element types of each op's results in the placed module."""
    found: dict[str, set[str]] = {}
    for function in functions(build.placed).values():
        for op in walk(function):
            if op.name.startswith("tosa.") and "const" not in op.name:
                found.setdefault(op.name.removeprefix("tosa."), set()).add(str(element_type(op.results[0])))
    return found


@pytest.mark.parametrize(
    ("target", "options", "accumulators"),
    [
        ("corstone-300", EXCLUDED, {"i32", "f32"}),
        ("cortex-m55", ("--activations", "int16", *EXCLUDED), {"i48", "f32"}),
        ("cortex-m55", ("--activations", "int16"), {"i48"}),
    ],
    ids=["int8 and floats", "int16 and floats", "int16"],
)
def test_mixed_types(succeed, tmp_path, target, options, accumulators):
    compiled = succeed("compile", MODEL, "--target", target, *options, "-o", tmp_path / "build")
    types = computed(Build.load(tmp_path / "build"))
    assert types["conv2d"] == accumulators
    assert types.get("exp", set()) == types.get("sigmoid", set()) == ({"f32"} if "f32" in accumulators else set())
    assert ("table" in types) == ("f32" not in accumulators)
    floats = [op for op in compiled["ops"] if op["op"] in ("EXP", "SIGMOID", "RECIPROCAL")]
    assert all(op["processor"] == "cpu" for op in floats)
    if target == "corstone-300":
        assert compiled["regions"]["npu"] == 1
        assert all(op["reason"].startswith("no Ethos-U runs") for op in floats)
    report = succeed("run", tmp_path / "build", "--random", 2, "--npu", "reference", "-o", tmp_path / "run")
    assert report["right"], report["difference"]  # floats within TOSA's bounds, all else to the bit
    assert report["sqnr_db"][0] > 35
